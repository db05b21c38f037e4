"""Random numbers of a run, and delays drawn from the frame's distributions. One stream, seeded by the run."""

from __future__ import annotations

import math

import numpy as np

from wattflow.frames.kernel.frame_tables import CHOICE, CONSTANT, D_LATENCY, EXPONENTIAL, MESSAGES, NOW
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import random


@jit
def bits(s):
    """Return the next 64 bits of the run's stream."""
    s.rng[0] += random.STEP
    return random.mix(s.rng[0])


@jit
def unit(s):
    """Return the next number in (0, 1)."""
    return random.unit(bits(s))


@jit
def below(s, n):
    """Return a whole number from 0 to n − 1."""
    # Multiply and shift (Lemire) instead of a modulo; the bias is below n / 2³².
    return np.int64((bits(s) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32))


@jit
def other_below(s, n, first):
    """Return a whole number from 0 to n − 1 that is not ``first``."""
    v = below(s, n - 1)
    return v + 1 if v >= first else v


@jit
def draw(s, d):
    """Return seconds of one delay."""
    kind = s.d_kind[d]
    # No draw: frames that differ in constant delays alone see the same random numbers.
    if kind == CONSTANT:
        return s.d_a[d]
    u = unit(s)
    if kind == EXPONENTIAL:
        return -s.d_a[d] * math.log(u)
    if kind == CHOICE:
        at = s.d_first[d]
        last = at + s.d_n[d] - 1
        while at < last and u >= s.d_until[at]:
            at += 1
        return s.d_value[at]
    # Log-normal with median a and spread b, by Box and Muller.
    return s.d_a[d] * math.exp(s.d_b[d] * math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * unit(s)))


@jit
def is_zero(s, d):
    """Tell whether a delay is always nothing."""
    return s.d_kind[d] == CONSTANT and s.d_a[d] == 0.0


@jit
def message(s, count):
    """Return seconds that ``count`` messages in a row take; they are counted, and their joules too."""
    s.i[MESSAGES] += count
    if s.d_kind[D_LATENCY] == CONSTANT:
        return count * s.d_a[D_LATENCY]
    total = 0.0
    for _ in range(count):
        total += draw(s, D_LATENCY)
    return total


@jit
def ask(s, count):
    """Return seconds until the last of ``count`` that are asked at once has answered: a question and an answer each."""
    if s.d_kind[D_LATENCY] == CONSTANT:
        # The same delay for all of them, so only the messages are counted.
        s.i[MESSAGES] += 2 * count
        return 2.0 * s.d_a[D_LATENCY]
    longest = 0.0
    for _ in range(count):
        longest = max(longest, message(s, 2))
    return longest


@jit
def serve(s, server, d):
    """Return seconds until a single server with a queue has dealt with a request made now."""
    if is_zero(s, d):
        return 0.0
    now = s.f[NOW]
    # One after the other: a request waits for those made before it.
    begin = max(now, s.served[server])
    s.served[server] = begin + draw(s, d)
    return s.served[server] - now

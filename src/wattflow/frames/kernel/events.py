"""The heap of what happens next: by time, then kind, then sequence number of creation."""

from __future__ import annotations

from wattflow.frames.kernel.jit import jit
from wattflow.frames.kernel.tables import EVENT_N, NOW, O_MESSAGE, SEQUENCE, SOON_FIRST, SOON_NEXT

_ORDER = 1 << 56


@jit
def push_as(s, time, key, what, who, other):
    """Add an event with its full key."""
    at = s.i[EVENT_N]
    s.i[EVENT_N] = at + 1
    times = s.e_time
    keys = s.e_key
    while at > 0:
        parent = (at - 1) >> 1
        if times[parent] < time or (times[parent] == time and keys[parent] < key):
            break
        times[at] = times[parent]
        keys[at] = keys[parent]
        s.e_what[at] = s.e_what[parent]
        s.e_who[at] = s.e_who[parent]
        s.e_other[at] = s.e_other[parent]
        at = parent
    times[at] = time
    keys[at] = key
    s.e_what[at] = what
    s.e_who[at] = who
    s.e_other[at] = other


@jit
def push(s, time, order, what, who, other):
    """Add an event; equal ones keep the order in which they were added."""
    s.i[SEQUENCE] += 1
    push_as(s, time, order * _ORDER + s.i[SEQUENCE], what, who, other)


@jit
def soon(s, what, who, other):
    """Do this next, in the same instant. So each handler is compiled once, not into each of its callers."""
    at = s.i[SOON_NEXT]
    s.n_what[at] = what
    s.n_who[at] = who
    s.n_other[at] = other
    s.i[SOON_NEXT] = at + 1 if at + 1 < s.n_what.size else 0


@jit
def send(s, seconds, what, who, other):
    """A message between components: after its delay, or next where there is none."""
    if seconds > 0.0:
        push(s, s.f[NOW] + seconds, O_MESSAGE, what, who, other)
    else:
        soon(s, what, who, other)


@jit
def is_pending(s):
    """Whether something is to be done next in this instant."""
    return s.i[SOON_FIRST] != s.i[SOON_NEXT]


@jit
def order_of(s):
    """Kind of the first event."""
    return s.e_key[0] >> 56


@jit
def pop(s):
    """Remove the first event; read it before."""
    n = s.i[EVENT_N] - 1
    s.i[EVENT_N] = n
    times = s.e_time
    keys = s.e_key
    time = times[n]
    key = keys[n]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        right = child + 1
        if right < n and (times[right] < times[child] or (times[right] == times[child] and keys[right] < keys[child])):
            child = right
        if time < times[child] or (time == times[child] and key < keys[child]):
            break
        times[at] = times[child]
        keys[at] = keys[child]
        s.e_what[at] = s.e_what[child]
        s.e_who[at] = s.e_who[child]
        s.e_other[at] = s.e_other[child]
        at = child
    times[at] = time
    keys[at] = key
    s.e_what[at] = s.e_what[n]
    s.e_who[at] = s.e_who[n]
    s.e_other[at] = s.e_other[n]

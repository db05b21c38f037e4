"""The heap of what happens next: by time, then kind, then sequence number of creation."""

from __future__ import annotations

from wattflow.frames.kernel.frame_tables import EVENT_N, NOW, O_MESSAGE, SEQUENCE, SOON_FIRST, SOON_NEXT
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import heaps

# The order of a kind stands above 56 bits of sequence, so that one number compares both and `order_of` reads it back.
_ORDER = 1 << 56


@jit
def _before(s, a, b):
    return s.e_time[a] < s.e_time[b] or (s.e_time[a] == s.e_time[b] and s.e_key[a] < s.e_key[b])


@jit
def _move(s, to, source):
    s.e_time[to] = s.e_time[source]
    s.e_key[to] = s.e_key[source]
    s.e_what[to] = s.e_what[source]
    s.e_who[to] = s.e_who[source]
    s.e_other[to] = s.e_other[source]


_enter, _drop_first = heaps.of_rows(_before, _move)


@jit
def push_as(s, time, key, what, who, other):
    """Add an event with its full key. The row behind the last is scratch space."""
    at = s.i[EVENT_N]
    s.i[EVENT_N] = at + 1
    # Outside the heap for the moment; `frame_loop.advance` keeps rows free beyond the last (MARGIN).
    hole = at + 1
    s.e_time[hole] = time
    s.e_key[hole] = key
    s.e_what[hole] = what
    s.e_who[hole] = who
    s.e_other[hole] = other
    _enter(s, at, hole)


@jit
def push(s, time, order, what, who, other):
    """Add an event; equal ones keep the order in which they were added."""
    s.i[SEQUENCE] += 1
    push_as(s, time, order * _ORDER + s.i[SEQUENCE], what, who, other)


@jit
def soon(s, what, who, other):
    """Do this next, in the same instant. So each handler is compiled once, not into each of its callers."""
    # A ring: `frame_loop.advance` takes them out in the order in which they were put in.
    at = s.i[SOON_NEXT]
    s.n_what[at] = what
    s.n_who[at] = who
    s.n_other[at] = other
    s.i[SOON_NEXT] = at + 1 if at + 1 < s.n_what.size else 0


@jit
def send(s, seconds, what, who, other):
    """Send a message between components: it arrives after its delay, or next where there is none."""
    if seconds > 0.0:
        push(s, s.f[NOW] + seconds, O_MESSAGE, what, who, other)
    else:
        soon(s, what, who, other)


@jit
def is_pending(s):
    """Tell whether something is to be done next in this instant."""
    return s.i[SOON_FIRST] != s.i[SOON_NEXT]


@jit
def order_of(s):
    """Kind of the first event."""
    return s.e_key[0] >> 56


@jit
def pop(s):
    """Remove the first event; read it before."""
    s.i[EVENT_N] -= 1
    _drop_first(s, s.i[EVENT_N])

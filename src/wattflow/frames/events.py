"""The heap of what happens next: by time, then kind, then sequence number of creation."""

from __future__ import annotations

from wattflow.frames.jit import jit
from wattflow.frames.tables import EVENT_N, SEQUENCE

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

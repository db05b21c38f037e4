"""Data at hosts: object caches that forget the least recently used, and what a task must fetch before it runs."""

from __future__ import annotations

from wattflow.frames.kernel import draws
from wattflow.frames.kernel.frame_tables import (
    CACHE_N,
    CACHED_AT_START,
    D_DATA,
    D_FETCH,
    DATA_MANAGER,
    HAS_DATA,
    HITS,
    INTERMEDIATE,
    LOCAL_DATA,
    MISSES,
    OBJECT_BYTES,
    OBJECTS,
    STORED_DATA,
)
from wattflow.frames.kernel.jit import jit


@jit
def _unlink(s, h, slot):
    before = s.c_previous[slot]
    after = s.c_next[slot]
    if before >= 0:
        s.c_next[before] = after
    else:
        s.c_head[h] = after
    if after >= 0:
        s.c_previous[after] = before
    else:
        s.c_tail[h] = before


@jit
def _link_first(s, h, slot):
    first = s.c_head[h]
    s.c_previous[slot] = -1
    s.c_next[slot] = first
    if first >= 0:
        s.c_previous[first] = slot
    else:
        s.c_tail[h] = slot
    s.c_head[h] = slot


@jit
def holds(s, h, thing):
    """Tell whether an object lies in a host's cache."""
    return s.c_place[h * s.i[OBJECTS] + thing] >= 0


@jit
def touch(s, h, thing):
    """Make an object the most recently used one. False when it is not there."""
    slot = s.c_place[h * s.i[OBJECTS] + thing]
    if slot < 0:
        return False
    if s.c_head[h] != slot:
        _unlink(s, h, slot)
        _link_first(s, h, slot)
    return True


@jit
def keep(s, h, thing):
    """Put an object into a host's cache; the least recently used one makes room."""
    if touch(s, h, thing):
        return
    base = h * s.i[OBJECTS]
    if s.c_len[h] < s.i[CACHE_N]:
        slot = h * s.i[CACHE_N] + s.c_len[h]
        s.c_len[h] += 1
    else:
        slot = s.c_tail[h]
        _unlink(s, h, slot)
        s.c_place[base + s.c_object[slot]] = -1
    s.c_object[slot] = thing
    s.c_place[base + thing] = slot
    _link_first(s, h, slot)


@jit
def clear(s, h):
    """Forget everything a host held; returns how many objects that were."""
    count = s.c_len[h]
    base = h * s.i[OBJECTS]
    slot = s.c_head[h]
    while slot >= 0:
        s.c_place[base + s.c_object[slot]] = -1
        slot = s.c_next[slot]
    s.c_head[h] = -1
    s.c_tail[h] = -1
    s.c_len[h] = 0
    return count


@jit
def bytes_to(s, t, h):
    """Return bytes of inputs and parents' outputs that must travel for a task to run on a host."""
    total = s.input_bytes[t] if s.input_bytes.size > 1 else 0.0
    for e in range(s.parent_start[t], s.parent_start[t + 1]):
        if s.i[INTERMEDIATE] == STORED_DATA:
            # Written to storage by the parent's host, then read from there.
            total += 2.0 * s.parent_bytes[e]
        elif s.t_node[s.parent[e]] != h:
            total += s.parent_bytes[e]
    return total


@jit
def fetch_s(s, a):
    """Return seconds until the data of an attempt are at its host; the joules of moving them go to the attempt."""
    t = s.a_task[a]
    h = s.a_host[a]
    seconds = 0.0
    if s.i[CACHE_N] > 0:
        thing = s.object[t]
        if thing >= 0:
            if touch(s, h, thing):
                s.i[HITS] += 1
            else:
                s.i[MISSES] += 1
                # ExDe's own simulator counts an object as cached from the start of its fetch on.
                if s.i[CACHED_AT_START] == 1:
                    keep(s, h, thing)
                seconds = draws.draw(s, D_FETCH) + draws.serve(s, DATA_MANAGER, D_DATA)
                s.a_transfer_j[a] += s.f[OBJECT_BYTES] * s.h_j_byte[h]
    # By number: free, local, stored.
    if s.i[HAS_DATA] == 1 and s.i[INTERMEDIATE] >= LOCAL_DATA:
        size = bytes_to(s, t, h)
        if size > 0.0:
            seconds += s.h_latency[h] + size / s.h_bandwidth[h]
            if s.i[INTERMEDIATE] == STORED_DATA:
                seconds += draws.draw(s, D_FETCH) + draws.serve(s, DATA_MANAGER, D_DATA)
            s.a_transfer_j[a] += size * s.h_j_byte[h]
    return seconds

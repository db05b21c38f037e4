"""Nodes in the same state are one candidate: groups keyed by a hash of what a decision can see.

A group holds the nodes of one class with equal allocation, power state, frequency and device allocation, as a bit set
over the class's nodes. Its lowest node stands for all. Moving a node between groups costs O(1); empty groups stay for
reuse.
"""

from __future__ import annotations

import numpy as np
from numba import types

from wattflow.engine.parts import LIVE, RICH
from wattflow.engine.tables import COUNTABLE
from wattflow.kernel.jit import inner, jit, optional

# Odd multipliers such as xxHash and MurmurHash3 use, one for each number that is mixed into a key.
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_C = np.uint64(0x165667B19E3779F9)
_D = np.uint64(0xD6E8FEB86659FD93)
_E = np.uint64(0xFF51AFD7ED558CCD)
_F = np.uint64(0x2545F4914F6CDD1D)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_29 = np.uint64(29)
_32 = np.uint64(32)


@inner
def mix(x):
    """Spread the bits of a 64-bit number."""
    x = (x ^ (x >> _32)) * _E
    x = (x ^ (x >> _29)) * _D
    return x ^ (x >> _32)


@inner
def low_bit(x):
    """Index of the lowest set bit of a number that is not 0."""
    n = 0
    if x & np.uint64(0xFFFFFFFF) == _ZERO:
        n += 32
        x = x >> np.uint64(32)
    if x & np.uint64(0xFFFF) == _ZERO:
        n += 16
        x = x >> np.uint64(16)
    if x & np.uint64(0xFF) == _ZERO:
        n += 8
        x = x >> np.uint64(8)
    if x & np.uint64(0xF) == _ZERO:
        n += 4
        x = x >> np.uint64(4)
    if x & np.uint64(0x3) == _ZERO:
        n += 2
        x = x >> np.uint64(2)
    if x & _ONE == _ZERO:
        n += 1
    return n


@jit
def device_key(state, node):
    """Hash of the allocation of a node's devices."""
    node_row = state.nodes[node]
    key = _ZERO
    first = node_row.device_first
    for d in range(first, first + node_row.device_n):
        part = np.uint64(d - first + 1) * _A + np.uint64(state.devices[d].share_u) * _B
        part += np.uint64(state.devices[d].memory) * _C + np.uint64(state.devices[d].tasks) * _D
        part += np.uint64(state.devices[d].loaded + 1) * _E
        part += np.uint64(state.devices[d].busy_u) * _F + np.uint64(state.devices[d].duty_u) * _A * _B
        part += np.uint64(state.devices[d].level) * _C * _D
        key += mix(part)
    return key


@inner
def _node_key(state, n):
    node_row = state.nodes[n]
    # All that `fit` and policies read of a node: what is missing here would make unlike nodes one candidate.
    key = np.uint64(node_row.cls + 1) * _A + np.uint64(node_row.used_u) * _B + np.uint64(node_row.alloc_u) * _E
    key += np.uint64(node_row.used_mem) * _C + np.uint64(node_row.capacity_u) * _D
    key += np.uint64(node_row.capacity_mem) * _F + node_row.count_key
    # Only where the number of attempts decides (`fit.is_full_of_pods`): it would split groups for nothing.
    if state.rules[0].pods > 0:
        key += np.uint64(node_row.running) * _C * _A
    key += np.uint64(node_row.power_state * 64 + node_row.frequency) * _B * _A
    return mix(key + node_row.device_key)


@inner
def _find_or_make(state, key, n):
    """Return the group with this key; made from node n's state when there is none."""
    node_row = state.nodes[n]
    counts = state.counts[0]
    slots = state.group_slots
    mask = slots.size - 1
    at = np.int64(key & np.uint64(mask))
    while True:
        g = slots[at]
        # No slot is ever emptied by itself, so the first free one ends the search; `_regroup` empties all at once.
        if g < 0:
            break
        if state.groups[g].key == key:
            return g
        at = (at + 1) & mask
    # There is a row: `rejoin` clears away empty groups before they run out, and there are more rows than nodes.
    g = counts.group_n
    counts.group_n = g + 1
    slots[at] = g
    cls = node_row.cls
    kind = state.classes[cls]
    state.groups[g].key = key
    state.groups[g].cls = cls
    state.groups[g].count = 0
    state.groups[g].low = 0
    state.groups[g].free_u = node_row.capacity_u - node_row.used_u
    state.groups[g].free_mem = node_row.capacity_mem - node_row.used_mem
    state.groups[g].power_state = node_row.power_state
    state.groups[g].words = (kind.room + 63) >> 6
    for w in range(state.groups[g].words):
        state.group_bits[g, w] = _ZERO
    return g


@jit
def rebuild(state):
    """Put every node into its group anew, after tables or rules have changed; costs that were kept are void."""
    _regroup(state)
    for b in range(state.boards.size):
        state.boards[b].owner = _ZERO


@inner
def _regroup(state):
    """Forget empty groups and put every node into its group anew."""
    counts = state.counts[0]
    state.group_slots[:] = -1
    counts.group_n = 0
    counts.active_n = 0
    for n in range(state.nodes.size):
        if state.nodes[n].pos >= 0:  # a free row of a live engine stands nowhere
            join(state, n)


@inner
def join(state, n):
    """Put a node into the group of its present state."""
    node_row = state.nodes[n]
    counts = state.counts[0]
    key = _node_key(state, n)
    g = _find_or_make(state, key, n)
    group = state.groups[g]
    pos = node_row.pos
    state.group_bits[g, pos >> 6] |= _ONE << np.uint64(pos & 63)
    node_row.group = g
    count = group.count
    if count == 0:
        at = counts.active_n
        state.active_groups[at] = g
        group.place = at
        counts.active_n = at + 1
        group.low = pos
        group.node = n
    elif pos < group.low:
        group.low = pos
        group.node = n
    group.count = count + 1


@inner
def leave(state, n):
    """Take a node out of its group, before its state changes."""
    counts = state.counts[0]
    node_row = state.nodes[n]
    g = node_row.group
    group = state.groups[g]
    pos = node_row.pos
    state.group_bits[g, pos >> 6] &= ~(_ONE << np.uint64(pos & 63))
    count = group.count - 1
    group.count = count
    if count == 0:
        last = counts.active_n - 1
        counts.active_n = last
        moved = state.active_groups[last]
        state.active_groups[group.place] = moved
        state.groups[moved].place = group.place
    elif group.low == pos:
        w = pos >> 6
        # The group is not empty, so a higher bit is set.
        while state.group_bits[g, w] == _ZERO:
            w += 1
        group.low = (w << 6) + low_bit(state.group_bits[g, w])
        group.node = state.class_nodes[state.classes[group.cls].first + group.low]


@optional(RICH, types.int64)
def second(state, g):
    """Return the second lowest node of a group of two or more."""
    # `pos` counts within the class, as the bits do; `class_nodes` leads from there to the node.
    group = state.groups[g]
    w = group.low >> 6
    bits = state.group_bits[g, w] & ~(_ONE << np.uint64(group.low & 63))
    while bits == _ZERO:
        w += 1
        bits = state.group_bits[g, w]
    return state.class_nodes[state.classes[group.cls].first + (w << 6) + low_bit(bits)]


@inner
def count_key(state, node):
    """Hash of a node's free countable resources; 0 when it has none."""
    key = _ZERO
    for k in range(COUNTABLE):
        free = state.node_counts[node, k]
        if free != 0:
            key += mix(np.uint64(k + 1) * _A + np.uint64(free) * _B)
    return key


@inner
def allowed(state, node, constraint):
    """Tell whether a constraint lets a node be used."""
    node_row = state.nodes[node]
    place = state.classes[node_row.cls].first + node_row.pos
    return (state.masks[constraint, place >> 6] >> np.uint64(place & 63)) & _ONE == _ONE


@optional(RICH, types.int64)
def lowest_allowed(state, g, constraint):
    """Return the position of the group's lowest node that a constraint lets be used; −1 without one."""
    group = state.groups[g]
    first = state.classes[group.cls].first >> 6
    low = np.int64(group.low)
    w = low >> 6
    # The lowest node of the group first: mostly it is allowed, and no other word has to be read.
    if (state.masks[constraint, first + w] >> np.uint64(low & 63)) & _ONE == _ONE:
        return low
    if group.count == 1:
        return np.int64(-1)
    for word in range(w, group.words):
        bits = state.group_bits[g, word] & state.masks[constraint, first + word]
        if bits != _ZERO:
            return np.int64((word << 6) + low_bit(bits))
    return np.int64(-1)


@optional(RICH, types.int64)
def lowest_of(state, g, constraint, wish):
    """Find the group's lowest node that a constraint allows, of a level of preference; its position, −1 without."""
    group = state.groups[g]
    first = state.classes[group.cls].first >> 6
    for word in range(np.int64(group.low) >> 6, group.words):
        bits = state.group_bits[g, word] & state.masks[constraint, first + word] & state.wishes[wish, first + word]
        if bits != _ZERO:
            return np.int64((word << 6) + low_bit(bits))
    return np.int64(-1)


@inner
def room_grew(state, node):
    """Note that a node can take more than before: shapes that fitted nowhere may look at it (`decide.look_again`)."""
    clock = state.clock[0]
    # The ring's size is a power of two, so that the epoch is masked; `decide.look_again` reads it back.
    state.freed[clock.epoch & (state.freed.size - 1)] = node
    # After the ring was written: a shape that fails from now on has seen this node.
    clock.epoch += 1


@inner
def room_grew_widely(state):
    """Note that many nodes can take more than before: every shape that fitted nowhere may try again."""
    clock = state.clock[0]
    clock.epoch += 1
    # No single node is noted: below the floor `look_again` does not trust the ring, and every shape tries again.
    state.choice[0].floor = clock.epoch


@inner
def rejoin(state, n):
    """Move a node to the group of its changed state; `leave` was called before the change."""
    if state.counts[0].group_n >= state.groups.size:
        # The node is in no group now; it is joined with all others.
        _regroup(state)
    else:
        join(state, n)
    touch(state, n)


@inner
def touch(state, n):
    """Invalidate a changed node's cached costs (`boards`)."""
    if state.boards.size > 0:
        _stamp(state, n)


@optional(LIVE)
def _stamp(state, n):
    """Note when a node changed last."""
    turn = state.touches[0]
    turn.now += 1
    place = np.int64(state.classes[state.nodes[n].cls].first) + state.nodes[n].pos
    state.touched[place] = turn.now
    # A power of two as well; `boards.sync` reads the changes back, or all places where the ring is too short.
    state.touch_ring[turn.now & (state.touch_ring.size - 1)] = place
    state.touched_words[place >> 6] = turn.now


@jit
def join_new(state, n):
    """Put a node row into use."""
    state.nodes[n].count_key = count_key(state, n)
    rejoin(state, n)


@jit
def leave_for_good(state, n):
    """Take a node row out of use."""
    leave(state, n)
    touch(state, n)

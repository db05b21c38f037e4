"""Nodes in the same state are one candidate: groups keyed by a hash of what a decision can see.

A group holds the nodes of one class with equal allocation, power state, frequency and device allocation, as a bit set over
the class's nodes. Its lowest node stands for all. Moving a node between groups costs O(1); empty groups stay for reuse.
"""

from __future__ import annotations

import numpy as np

from wattflow.engine.jit import jit

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_C = np.uint64(0x165667B19E3779F9)
_D = np.uint64(0xD6E8FEB86659FD93)
_E = np.uint64(0xFF51AFD7ED558CCD)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_29 = np.uint64(29)
_32 = np.uint64(32)


@jit
def mix(x):
    """Spread the bits of a 64-bit number."""
    x = (x ^ (x >> _32)) * _E
    x = (x ^ (x >> _29)) * _D
    return x ^ (x >> _32)


@jit
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
    key = _ZERO
    first = state.nodes.device_first[node]
    for d in range(first, first + state.nodes.device_n[node]):
        part = np.uint64(d - first + 1) * _A + np.uint64(state.devices.share_u[d]) * _B
        part += np.uint64(state.devices.memory[d]) * _C + np.uint64(state.devices.tasks[d]) * _D
        part += np.uint64(state.devices.loaded[d] + 1) * _E
        key += mix(part)
    return key


@jit
def _node_key(state, n):
    nodes = state.nodes
    key = np.uint64(nodes.cls[n] + 1) * _A + np.uint64(nodes.used_u[n]) * _B + np.uint64(nodes.alloc_u[n]) * _E
    key += np.uint64(nodes.used_mem[n]) * _C + np.uint64(nodes.capacity_u[n]) * _D
    key += np.uint64(nodes.power_state[n] * 64 + nodes.frequency[n]) * _B * _A
    return mix(key + nodes.device_key[n])


@jit
def _find_or_make(state, key, n):
    """The group with this key; made from node n's state when there is none."""
    slots = state.group_slots
    mask = slots.size - 1
    at = np.int64(key & np.uint64(mask))
    while True:
        g = slots[at]
        if g < 0:
            break
        if state.groups.key[g] == key:
            return g
        at = (at + 1) & mask
    g = state.clock.group_n[0]
    state.clock.group_n[0] = g + 1
    slots[at] = g
    groups = state.groups
    cls = state.nodes.cls[n]
    groups.key[g] = key
    groups.cls[g] = cls
    groups.count[g] = 0
    groups.low[g] = 0
    groups.free_u[g] = state.nodes.capacity_u[n] - state.nodes.used_u[n]
    groups.free_mem[g] = state.classes.memory[cls] - state.nodes.used_mem[n]
    groups.power_state[g] = state.nodes.power_state[n]
    groups.words[g] = (state.classes.count[cls] + 63) >> 6
    for w in range(groups.words[g]):
        state.group_bits[g, w] = _ZERO
    return g


@jit
def rebuild(state):
    """Forget empty groups and put every node into its group anew."""
    state.group_slots[:] = -1
    state.clock.group_n[0] = 0
    state.clock.active_n[0] = 0
    for n in range(state.nodes.size):
        join(state, n)


@jit
def join(state, n):
    """Put a node into the group of its present state."""
    key = _node_key(state, n)
    g = _find_or_make(state, key, n)
    groups = state.groups
    pos = state.nodes.pos[n]
    state.group_bits[g, pos >> 6] |= _ONE << np.uint64(pos & 63)
    state.nodes.group[n] = g
    count = groups.count[g]
    if count == 0:
        at = state.clock.active_n[0]
        state.active_groups[at] = g
        groups.place[g] = at
        state.clock.active_n[0] = at + 1
        groups.low[g] = pos
    elif pos < groups.low[g]:
        groups.low[g] = pos
    groups.count[g] = count + 1


@jit
def leave(state, n):
    """Take a node out of its group, before its state changes."""
    g = state.nodes.group[n]
    groups = state.groups
    pos = state.nodes.pos[n]
    state.group_bits[g, pos >> 6] &= ~(_ONE << np.uint64(pos & 63))
    count = groups.count[g] - 1
    groups.count[g] = count
    if count == 0:
        last = state.clock.active_n[0] - 1
        state.clock.active_n[0] = last
        moved = state.active_groups[last]
        state.active_groups[groups.place[g]] = moved
        groups.place[moved] = groups.place[g]
    elif groups.low[g] == pos:
        w = pos >> 6
        while state.group_bits[g, w] == _ZERO:
            w += 1
        groups.low[g] = (w << 6) + low_bit(state.group_bits[g, w])


@jit
def rejoin(state, n):
    """Move a node to the group of its changed state; `leave` was called before the change."""
    if state.clock.group_n[0] >= state.groups.size:
        # The node is in no group now; rebuild joins it with all others.
        rebuild(state)
    else:
        join(state, n)

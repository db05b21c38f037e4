"""Who fits where: candidates for a variant, and the taking and giving back of what it needs."""

from __future__ import annotations

import numpy as np

from wattflow.engine import groups, view
from wattflow.engine.jit import jit
from wattflow.engine.tables import (
    ASLEEP,
    EXCLUSIVE,
    FALLING,
    MICRO,
    NO_DEVICE,
    ON,
    TIME_SLICE,
    WAKING,
)


@jit
def device_fits(state, variant, device):
    """Whether one device has room for the variant's share and memory."""
    devices = state.devices
    dcls = devices.cls[device]
    table = state.device_classes
    v = state.variants
    if table.kind[dcls] != v.device[variant]:
        return False
    models = v.models[variant]
    if models != np.uint64(0) and (models >> np.uint64(table.model[dcls])) & np.uint64(1) == np.uint64(0):
        return False
    if devices.memory[device] + v.device_memory[variant] > table.memory[dcls]:
        return False
    sharing = table.sharing[dcls]
    if sharing == EXCLUSIVE:
        return devices.tasks[device] == 0
    if sharing == TIME_SLICE:
        return devices.tasks[device] < table.slots[dcls]
    return devices.share_u[device] + share_on(state, variant, dcls) <= MICRO


@jit
def share_on(state, variant, dcls):
    """The share that a variant takes of a device of this class: sevenths under MIG, else as asked."""
    share = state.variants.share_u[variant]
    if state.device_classes.sharing[dcls] == 3:
        sevenths = (share * 7 + MICRO - 1) // MICRO
        return min(MICRO, (sevenths * MICRO + 6) // 7)
    return share


@jit
def _same_device(state, a, b):
    d = state.devices
    return (
        d.cls[a] == d.cls[b]
        and d.share_u[a] == d.share_u[b]
        and d.memory[a] == d.memory[b]
        and d.tasks[a] == d.tasks[b]
        and d.loaded[a] == d.loaded[b]
    )


@jit
def _whole_free(state, variant, device):
    return state.devices.tasks[device] == 0 and device_fits(state, variant, device)


@jit
def _add(state, n, node, device):
    state.candidates.node[n] = node
    state.candidates.device[n] = device
    return n + 1


@jit
def _add_devices(state, n, variant, node):
    """Candidates of a node for a variant that needs a device: each distinct device, or one for several whole ones."""
    first = state.nodes.device_first[node]
    count = state.nodes.device_n[node]
    wanted = state.variants.devices[variant]
    if wanted > 1:
        free = 0
        for d in range(first, first + count):
            if _whole_free(state, variant, d):
                free += 1
        if free < wanted:
            return n
        for d in range(first, first + count):
            if _whole_free(state, variant, d):
                return _add(state, n, node, d)
        return n
    start = n
    for d in range(first, first + count):
        if not device_fits(state, variant, d):
            continue
        seen = False
        for c in range(start, n):
            if _same_device(state, state.candidates.device[c], d):
                seen = True
                break
        if not seen:
            n = _add(state, n, node, d)
    return n


@jit
def node_fits(state, variant, task, node):
    """Whether a node that is or will be on has the cores and memory now (devices apart)."""
    nodes = state.nodes
    cls = nodes.cls[node]
    if state.class_ok[variant, cls] == 0:
        return False
    if state.classes.serverless[cls] == 1 and too_long(state, task, variant, node):
        return False
    return (
        nodes.used_u[node] + state.variants.need_u[variant] <= nodes.capacity_u[node]
        and nodes.used_mem[node] + state.variants.memory[variant] <= state.classes.memory[cls]
    )


@jit
def too_long(state, task, variant, node):
    """Whether the task's estimate exceeds the time limit of a serverless node."""
    limit = state.classes.limit_s[state.nodes.cls[node]]
    factor = view.work_factor(state, state.tasks.form[task], variant, node, -1)
    return state.tasks.estimate[task] * factor > limit


@jit
def _usable(power_state, asleep):
    if asleep:
        return power_state == ASLEEP or power_state == FALLING
    return power_state == ON or power_state == WAKING


@jit
def _try_node(state, n, variant, task, node):
    """Add a single node as candidate if it fits."""
    if not node_fits(state, variant, task, node):
        return n
    if state.variants.device[variant] != NO_DEVICE:
        return _add_devices(state, n, variant, node)
    return _add(state, n, node, -1)


@jit
def _collect(state, variant, task, asleep):
    """Candidates among nodes that are on (or, asked so, asleep)."""
    n = 0
    pinned = state.tasks.pinned[task]
    if pinned >= 0:
        if _usable(state.nodes.power_state[pinned], asleep):
            n = _try_node(state, n, variant, task, pinned)
        return n
    if state.clock.grouped[0] == 0:
        for node in range(state.nodes.size):
            if _usable(state.nodes.power_state[node], asleep):
                n = _try_node(state, n, variant, task, node)
        return n
    need = state.variants.need_u[variant]
    memory = state.variants.memory[variant]
    plain = state.variants.device[variant] == NO_DEVICE
    table = state.groups
    for at in range(state.clock.active_n[0]):
        g = state.active_groups[at]
        if table.free_u[g] < need or table.free_mem[g] < memory:
            continue
        cls = table.cls[g]
        if state.class_ok[variant, cls] == 0 or not _usable(table.power_state[g], asleep):
            continue
        node = state.class_nodes[state.classes.first[cls] + table.low[g]]
        if state.classes.serverless[cls] == 1 and too_long(state, task, variant, node):
            continue
        if plain:
            n = _add(state, n, node, -1)
        else:
            n = _add_devices(state, n, variant, node)
    if state.clock.has_data[0] == 1 or state.clock.cold[0] == 1:
        n = _add_near(state, n, variant, task, asleep)
    return n


@jit
def _add_near(state, n, variant, task, asleep):
    """Nodes that hold the task's data or a warm container of its function stand for themselves."""
    room = state.candidates.size - state.devices.size - 64
    if state.clock.has_data[0] == 1:
        for e in range(state.parent_start[task], state.parent_start[task + 1]):
            node = state.tasks.node[state.parent[e]]
            if node >= 0 and n < room and state.parent_bytes[e] > 0.0:
                n = _add_single(state, n, variant, task, node, asleep)
    fn = state.shapes.function[state.tasks.form[task]]
    if state.functions.cold_start_s[fn] > 0.0:
        c = state.functions.first_container[fn]
        while c >= 0 and n < room:
            n = _add_single(state, n, variant, task, state.containers.node[c], asleep)
            c = state.containers.next_function[c]
    return n


@jit
def _add_single(state, n, variant, task, node, asleep):
    if not _usable(state.nodes.power_state[node], asleep):
        return n
    for c in range(n):
        if state.candidates.node[c] == node:
            return n
    return _try_node(state, n, variant, task, node)


@jit
def candidates(state, variant, task):
    """Fill the candidate table for a variant; returns how many. Sleeping nodes only where none that is on fits."""
    n = _collect(state, variant, task, False)
    if state.clock.asleep_n[0] > 0:
        if n == 0:
            n = _collect(state, variant, task, True)
        elif state.clock.wakes[0] == 1:
            n = _collect_both(state, variant, task)
    if state.clock.reserved[0] >= -1 and n > 0:
        n = _keep_reservation(state, n, variant, task)
    return n


@jit
def _collect_both(state, variant, task):
    n = _collect(state, variant, task, True)
    room = state.gang.size // 2
    kept = min(n, room)
    for c in range(kept):
        state.gang[2 * c] = state.candidates.node[c]
        state.gang[2 * c + 1] = state.candidates.device[c]
    n = _collect(state, variant, task, False)
    for c in range(kept):
        if n < state.candidates.size:
            n = _add(state, n, state.gang[2 * c], state.gang[2 * c + 1])
    return n


@jit
def _keep_reservation(state, n, variant, task):
    """EASY: drop candidates that would delay the head of the queue (they must end by the shadow time)."""
    kept = 0
    for c in range(n):
        node = state.candidates.node[c]
        ends = state.clock.now[0] + view.runtime_s(state, task, variant, c)
        if ends <= state.clock.shadow[0] or (state.clock.reserved[0] >= 0 and node != state.clock.reserved[0]):
            state.candidates.node[kept] = node
            state.candidates.device[kept] = state.candidates.device[c]
            kept += 1
    return kept


@jit
def take(state, variant, node, device):
    """Take what a variant needs of a node; returns the bit mask of the devices taken."""
    groups.leave(state, node)
    nodes = state.nodes
    nodes.used_u[node] += state.variants.need_u[variant]
    nodes.alloc_u[node] += state.variants.cores_u[variant]
    nodes.used_mem[node] += state.variants.memory[variant]
    taken = np.uint64(0)
    if device >= 0:
        taken = _take_devices(state, variant, node, device)
        nodes.device_key[node] = groups.device_key(state, node)
    nodes.running[node] += 1
    nodes.placed_count[node] += 1
    groups.rejoin(state, node)
    return taken


@jit
def _take_devices(state, variant, node, device):
    first = state.nodes.device_first[node]
    wanted = state.variants.devices[variant]
    taken = np.uint64(0)
    if wanted == 1:
        _take_device(state, variant, device)
        return np.uint64(1) << np.uint64(device - first)
    left = wanted
    for d in range(first, first + state.nodes.device_n[node]):
        if left > 0 and _whole_free(state, variant, d):
            _take_device(state, variant, d)
            taken |= np.uint64(1) << np.uint64(d - first)
            left -= 1
    return taken


@jit
def _take_device(state, variant, device):
    dcls = state.devices.cls[device]
    state.devices.tasks[device] += 1
    state.devices.memory[device] += state.variants.device_memory[variant]
    state.devices.share_u[device] += share_on(state, variant, dcls)


@jit
def give_back(state, variant, node, device, taken):
    """Undo `take`."""
    groups.leave(state, node)
    nodes = state.nodes
    nodes.used_u[node] -= state.variants.need_u[variant]
    nodes.alloc_u[node] -= state.variants.cores_u[variant]
    nodes.used_mem[node] -= state.variants.memory[variant]
    if device >= 0:
        first = nodes.device_first[node]
        for d in range(first, first + nodes.device_n[node]):
            if (taken >> np.uint64(d - first)) & np.uint64(1) == np.uint64(1):
                dcls = state.devices.cls[d]
                state.devices.tasks[d] -= 1
                state.devices.memory[d] -= state.variants.device_memory[variant]
                state.devices.share_u[d] -= share_on(state, variant, dcls)
        nodes.device_key[node] = groups.device_key(state, node)
    nodes.running[node] -= 1
    groups.rejoin(state, node)
    state.clock.epoch[0] += 1

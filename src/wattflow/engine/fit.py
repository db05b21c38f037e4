"""Who fits where: candidates for a variant, and the taking and giving back of what it needs."""

from __future__ import annotations

import numpy as np
from numba import types

from wattflow.engine import groups, view
from wattflow.engine.devices import busy_share, device_fits, holds, level_among, share_on, turns, whole_free
from wattflow.engine.parts import RICH
from wattflow.engine.tables import ASLEEP, COUNTABLE, FALLING, NO_DEVICE, ON, WAKING
from wattflow.kernel.jit import inner, jit, optional

_ONE = np.uint64(1)
WAKES_BY_ITSELF = FALLING
"""Power states up to this one lead back to on; later ones mean that the node is down or being drained."""


@inner
def _same_device(state, a, b):
    device_row_b = state.devices[b]
    device_row_a = state.devices[a]
    # Keep in step with `groups.device_key`: a column that is missing here hides a device that differs.
    return (
        device_row_a.cls == device_row_b.cls
        and device_row_a.share_u == device_row_b.share_u
        and device_row_a.memory == device_row_b.memory
        and device_row_a.tasks == device_row_b.tasks
        and device_row_a.busy_u == device_row_b.busy_u
        and device_row_a.duty_u == device_row_b.duty_u
        and device_row_a.loaded == device_row_b.loaded
        and device_row_a.level == device_row_b.level
    )


@inner
def _add(state, n, node, device):
    candidate_row = state.candidates[n]
    candidate_row.node = node
    candidate_row.device = device
    return n + 1


@optional(RICH, types.int64)
def _add_devices(state, n, variant, task, node):
    """Candidates of a node for a variant that needs a device: each distinct device, or one for several whole ones."""
    node_row = state.nodes[node]
    first = node_row.device_first
    count = node_row.device_n
    wanted = state.variants[variant].devices
    limited = state.classes[node_row.cls].serverless == 1
    if wanted > 1:
        free = 0
        for d in range(first, first + count):
            if whole_free(state, variant, d):
                free += 1
        if free < wanted:
            return n
        # The lowest free device stands for all that the attempt
        # will take: `_take_devices` takes them in the same order.
        for d in range(first, first + count):
            if whole_free(state, variant, d):
                if limited and too_long(state, task, variant, node, d):
                    return n
                return _add(state, n, node, d)
        return n
    start = n
    for d in range(first, first + count):
        if not device_fits(state, variant, d) or (limited and too_long(state, task, variant, node, d)):
            continue
        seen = False
        for c in range(start, n):
            if _same_device(state, state.candidates[c].device, d):
                seen = True
                break
        if not seen:
            n = _add(state, n, node, d)
    return n


@inner
def node_fits(state, variant, task, node):
    """Tell whether a node that is or will be on has the cores and memory now (devices apart)."""
    needs = state.variants[variant]
    node_row = state.nodes[node]
    cls = node_row.cls
    kind = state.classes[cls]
    if state.class_ok[variant, cls] == 0:
        return False
    if kind.serverless == 1 and needs.device == NO_DEVICE and too_long(state, task, variant, node, -1):
        return False
    constraint = state.shapes[state.tasks[task].form].constraint
    if (constraint > 0 or state.rules[0].tainted == 1) and not groups.allowed(state, node, constraint):
        return False
    if needs.counts_n > 0 and not counts_fit(state, variant, node):
        return False
    if is_full_of_pods(state, node):
        return False
    return (
        node_row.used_u + needs.need_u <= node_row.capacity_u
        and node_row.used_mem + needs.memory <= node_row.capacity_mem
    )


@inner
def is_full_of_pods(state, node):
    """Tell whether a node has as many attempts as the policy allows a node of one's own to have."""
    most = state.rules[0].pods
    row = state.nodes[node]
    return most > 0 and row.running >= most and state.classes[row.cls].serverless == 0


@jit
def enough_nodes(count):
    """Count the nodes that kube-scheduler scores: all below 100, else 50 − n / 125 per cent, at least 5 and 100."""
    # kube-scheduler's `numFeasibleNodesToFind`, its whole-number divisions included.
    if count < 100:
        return count
    share = max(5, 50 - count // 125)
    return min(count, max(100, count * share // 100))


@optional(RICH, types.int64)
def _sample(state, variant, task):
    """Collect nodes that are on and fit, from where the last search ended, until there are enough of them."""
    choice = state.choice[0]
    count = state.nodes.size
    enough = enough_nodes(count)
    first = choice.sample_at
    n = 0
    found = 0
    looked = 0
    while looked < count and found < enough:
        node = first + looked
        if node >= count:
            node -= count
        looked += 1
        if _usable(state.nodes[node].power_state, False):
            before = n
            n = _try_node(state, n, variant, task, node)
            if n > before:
                found += 1
    choice.sample_at = (first + looked) % count
    return n


@optional(RICH, types.boolean)
def counts_fit(state, variant, node):
    """Tell whether a node has the countable resources that a variant needs."""
    lacking = 0
    for k in range(COUNTABLE):
        if state.variant_counts[variant, k] > state.node_counts[node, k]:
            lacking += 1
    return lacking == 0


@optional(RICH)
def _take_counts(state, variant, node, sign):
    """Take a variant's countable resources of a node, or give them back."""
    for k in range(COUNTABLE):
        state.node_counts[node, k] -= sign * state.variant_counts[variant, k]
    state.nodes[node].count_key = groups.count_key(state, node)


@optional(RICH, types.boolean)
def too_long(state, task, variant, node, device):
    """Tell whether the task's estimate exceeds the time limit of a serverless node."""
    task_row = state.tasks[task]
    limit = state.classes[state.nodes[node].cls].limit_s
    factor = view.work_factor(state, task_row.form, variant, node, device)
    # Without an estimate the product is NaN and the comparison false: what is not known is not refused.
    return task_row.estimate * factor > limit


@inner
def _usable(power_state, asleep):
    if asleep:
        return power_state == ASLEEP or power_state == FALLING
    return power_state == ON or power_state == WAKING


@inner
def _try_node(state, n, variant, task, node):
    """Add a single node as candidate if it fits."""
    if not node_fits(state, variant, task, node):
        return n
    if state.variants[variant].device != NO_DEVICE:
        return _add_devices(state, n, variant, task, node)
    return _add(state, n, node, -1)


@inner
def _collect(state, variant, task, asleep, n):
    """Candidates among nodes that are on (or, asked so, asleep), behind the n that there are; how many then."""
    rules = state.rules[0]
    counts = state.counts[0]
    choice = state.choice[0]
    needs = state.variants[variant]
    pinned = state.tasks[task].pinned
    if pinned >= 0 or rules.grouped == 0:
        choice.scan_left = 0
    if pinned >= 0:
        if _usable(state.nodes[pinned].power_state, asleep):
            n = _try_node(state, n, variant, task, pinned)
        return n
    if rules.samples == 1 and not asleep and state.nodes.size >= 100:
        choice.scan_left = 0
        # Only nodes that are on come here, and they are collected first, so n is 0 and nothing is overwritten.
        return _sample(state, variant, task)
    if rules.grouped == 0:
        for node in range(state.nodes.size):
            if _usable(state.nodes[node].power_state, asleep):
                n = _try_node(state, n, variant, task, node)
        return n
    need = needs.need_u
    memory = needs.memory
    plain = needs.device == NO_DEVICE
    counted = needs.counts_n > 0
    constraint = state.shapes[state.tasks[task].form].constraint
    free = constraint == 0 and rules.tainted == 0
    levels = state.mask_rows[constraint].wish_n if rules.wishes == 1 else 0
    limit = rules.score_limit if not asleep else 0
    first = choice.scan_at if limit > 0 else 0
    active_n = counts.active_n
    count = choice.scan_left if limit > 0 else active_n
    reserved = choice.reserved
    pods = rules.pods
    # Tables by name: after each candidate is written, they need not be looked up again.
    active = state.active_groups
    all_groups = state.groups
    classes = state.classes
    class_nodes = state.class_nodes
    suits = state.class_ok[variant]
    mask = state.masks[constraint]
    for i in range(count):
        at = first + i
        if at >= active_n:
            at -= active_n
        # The cap is reached: `choose` asks again, from here on, if too few of these costs are finite.
        if limit > 0 and n >= limit:
            choice.scan_at = at
            choice.scan_left = count - i
            return n
        g = active[at]
        group = all_groups[g]
        if group.free_u < need or group.free_mem < memory:
            continue
        cls = group.cls
        if suits[cls] == 0 or not _usable(group.power_state, asleep):
            continue
        node = group.node
        if not free:
            place = np.int64(classes[cls].first) + group.low
            if (mask[place >> 6] >> np.uint64(place & 63)) & _ONE != _ONE:
                if group.count == 1:
                    continue
                low = groups.lowest_allowed(state, g, constraint)
                if low < 0:
                    continue
                node = class_nodes[np.int64(classes[cls].first) + low]
            if levels > 1 and group.count > 1:
                n = _add_levels(state, n, variant, task, g, constraint)
                continue
        if counted and not counts_fit(state, variant, node):
            continue
        if pods > 0 and is_full_of_pods(state, node):
            continue
        if not plain:
            n = _add_devices(state, n, variant, task, node)
        elif classes[cls].serverless == 0 or not too_long(state, task, variant, node, -1):
            n = _add(state, n, node, -1)
        if reserved == node and group.count > 1:
            n = _add_twin(state, n, variant, task, g)
    if limit > 0:
        choice.scan_left = 0
    # Data and containers are in no group's key: nodes of one group differ in what lies near them.
    if rules.has_data == 1 or rules.cold == 1:
        n = _add_near(state, n, variant, task, asleep)
    return n


@optional(RICH, types.int64)
def _add_twin(state, n, variant, task, g):
    """Add the group's second node: the first is reserved and cannot stand for its twins."""
    return _try_node(state, n, variant, task, groups.second(state, g))


@optional(RICH, types.int64)
def _add_levels(state, n, variant, task, g, constraint):
    """Add the lowest node of each level of preference of a group whose nodes are not liked alike."""
    wishes = state.mask_rows[constraint]
    cls = state.classes[state.groups[g].cls]
    for at in range(wishes.wish_first, wishes.wish_first + wishes.wish_n):
        low = groups.lowest_of(state, g, constraint, at)
        if low >= 0:
            n = _try_node(state, n, variant, task, state.class_nodes[cls.first + low])
    return n


@optional(RICH, types.int64)
def _add_near(state, n, variant, task, asleep):
    """Add nodes that hold the task's data or a warm container for its function, each for itself."""
    # A node adds at most one row for each of its devices (64 at most): below this none is written past the end.
    room = state.candidates.size - state.devices.size - 64
    if state.rules[0].has_data == 1:
        links = state.links[task]
        for e in range(links.parent_first, links.parent_first + links.parent_n):
            node = state.tasks[state.parent[e]].node
            if node >= 0 and n < room and state.parent_bytes[e] > 0.0:
                n = _add_single(state, n, variant, task, node, asleep)
    fn = state.shapes[state.tasks[task].form].function
    function = state.functions[fn]
    if function.cold_start_s > 0.0:
        for kind in range(2):
            c = function.first_container if kind == 0 else state.counts[0].hot_container
            while c >= 0 and n < room:
                n = _add_single(state, n, variant, task, state.containers[c].node, asleep)
                c = state.containers[c].next_function
    return n


@inner
def _add_single(state, n, variant, task, node, asleep):
    if not _usable(state.nodes[node].power_state, asleep):
        return n
    for c in range(n):
        if state.candidates[c].node == node:
            return n
    return _try_node(state, n, variant, task, node)


@inner
def candidates(state, variant, task):
    """Fill the candidate table for a variant; returns how many. Sleeping nodes only where none that is on fits."""
    rules = state.rules[0]
    n = _collect(state, variant, task, False, 0)
    if state.counts[0].asleep_n > 0 and (n == 0 or rules.wakes == 1):
        n = _collect_asleep(state, n, variant, task)
    if state.choice[0].reserved >= -1 and n > 0:
        n = _keep_reservation(state, n, variant, task)
    return n


@optional(RICH, types.int64)
def _collect_asleep(state, n, variant, task):
    """Collect sleeping nodes behind those that are on. A scan that a cap has ended goes on where it was."""
    return _collect(state, variant, task, True, n)


@inner
def rooms(state, variant, node, more_u, more_mem):
    """Count parts of a variant that a node could take once what ends before is given back, so much more in use."""
    needs = state.variants[variant]
    node_row = state.nodes[node]
    # Devices have to be there (`class_ok`) but need not be free: they are not reckoned into a reservation.
    if state.class_ok[variant, node_row.cls] == 0 or node_row.power_state > WAKES_BY_ITSELF:
        return 0
    free_u = node_row.capacity_u - node_row.used_u + node_row.freed_u - more_u
    # Without a request (need 0) the cores never limit; the 1 only keeps the division defined.
    by_cores = max(0, free_u) // max(1, needs.need_u)
    if needs.memory > 0:
        free_mem = node_row.capacity_mem - node_row.used_mem + node_row.freed_mem - more_mem
        return min(by_cores, max(0, free_mem) // needs.memory)
    return by_cores


@inner
def _taken_rooms(state, variant, node):
    """Count parts of the head that no longer fit on a node with an attempt of this variant past the shadow time."""
    needs = state.variants[variant]
    head = state.choice[0].head
    return rooms(state, head, node, 0, 0) - rooms(state, head, node, needs.need_u, needs.memory)


@optional(RICH)
def note_backfill(state, variant, node, end, sign):
    """Count an attempt placed before EASY's head (with sign −1: taken back) against the spare room.

    To be called while the node is without it. One that ends in time gives back all that it takes.
    """
    choice = state.choice[0]
    if end <= choice.shadow:
        state.nodes[node].freed_u += sign * state.variants[variant].need_u
        state.nodes[node].freed_mem += sign * state.variants[variant].memory
    else:
        choice.spare -= sign * _taken_rooms(state, variant, node)


@optional(RICH, types.int64)
def _keep_reservation(state, n, variant, task):
    """EASY: drop candidates that would delay the head: neither over by the shadow time nor in what it leaves over."""
    clock = state.clock[0]
    choice = state.choice[0]
    kept = 0
    for c in range(n):
        node = state.candidates[c].node
        ends = clock.now + view.runtime_s(state, task, variant, c)
        elsewhere = choice.reserved >= 0 and node != choice.reserved
        if ends <= choice.shadow or elsewhere or _taken_rooms(state, variant, node) <= choice.spare:
            state.candidates[kept].node = node
            state.candidates[kept].device = state.candidates[c].device
            kept += 1
    return kept


@inner
def take(state, variant, node, device):
    """Take what a variant needs of a node; returns the bit mask of the devices taken."""
    node_row = state.nodes[node]
    needs = state.variants[variant]
    # Between `leave` and `rejoin` the node is in no group: nothing may look for candidates here.
    groups.leave(state, node)
    node_row.used_u += needs.need_u
    node_row.alloc_u += needs.cores_u
    node_row.used_mem += needs.memory
    if needs.counts_n > 0:
        _take_counts(state, variant, node, 1)
    taken = np.uint64(0)
    if device >= 0:
        taken = _take_devices(state, variant, node, device)
    node_row.running += 1
    groups.rejoin(state, node)
    return taken


@optional(RICH, types.uint64)
def _take_devices(state, variant, node, device):
    node_row = state.nodes[node]
    first = node_row.device_first
    wanted = state.variants[variant].devices
    taken = np.uint64(0)
    if wanted == 1:
        _take_device(state, variant, device)
        taken = np.uint64(1) << np.uint64(device - first)
    else:
        left = wanted
        for d in range(first, first + node_row.device_n):
            if left > 0 and whole_free(state, variant, d):
                _take_device(state, variant, d)
                taken |= np.uint64(1) << np.uint64(d - first)
                left -= 1
    # Kept beside the node: `groups` would else hash every device at each change of the node.
    node_row.device_key = groups.device_key(state, node)
    return taken


@inner
def _take_device(state, variant, device):
    device_row = state.devices[device]
    dcls = device_row.cls
    level = state.variants[variant].level
    # The more urgent decides: a device runs as fast as any of its attempts asked for.
    device_row.level = level if device_row.tasks == 0 else min(device_row.level, level)
    device_row.tasks += turns(state, variant, dcls)
    device_row.memory += state.variants[variant].device_memory
    device_row.share_u += share_on(state, variant, dcls)
    device_row.busy_u += busy_share(state, variant, dcls)
    device_row.duty_u += state.variants[variant].duty_u


@inner
def give_back(state, a):
    """Undo `take`: what the attempt took, whatever its variant says by now."""
    attempt = state.attempts[a]
    node = attempt.node
    variant = attempt.variant
    node_row = state.nodes[node]
    needs = state.variants[variant]
    groups.leave(state, node)
    # The attempt's own amounts, not its variant's: RESIZE changes the former alone.
    node_row.used_u -= attempt.need_u
    node_row.alloc_u -= attempt.cores_u
    node_row.used_mem -= attempt.memory
    if needs.counts_n > 0:
        _take_counts(state, variant, node, -1)
    if attempt.device >= 0:
        _give_devices(state, a)
    node_row.running -= 1
    groups.rejoin(state, node)


@optional(RICH)
def _give_devices(state, a):
    attempt = state.attempts[a]
    node = attempt.node
    variant = attempt.variant
    node_row = state.nodes[node]
    needs = state.variants[variant]
    first = node_row.device_first
    for d in range(first, first + node_row.device_n):
        if holds(attempt.devices, d - first):
            dcls = state.devices[d].cls
            state.devices[d].tasks -= turns(state, variant, dcls)
            state.devices[d].memory -= needs.device_memory
            state.devices[d].share_u -= share_on(state, variant, dcls)
            state.devices[d].busy_u -= busy_share(state, variant, dcls)
            state.devices[d].duty_u -= needs.duty_u
            if state.device_classes[dcls].level_n > 1:
                state.devices[d].level = level_among(state, node, d, a)
    node_row.device_key = groups.device_key(state, node)

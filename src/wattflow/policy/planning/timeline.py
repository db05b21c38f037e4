"""Slots in time, compiled: where a task fits between those already planned, and list scheduling.

A *bin* is a node (cores and memory) or a device (share and memory). Its timeline is a linked list of moments with
what is free from each on. Looking for the earliest slot walks that list (insertion, as in HEFT), from the first
moment at which anything is free. A task takes all its cores at once, so a node of one core is the papers' processor.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined"
from __future__ import annotations

import math

import numpy as np

from wattflow.kernel import heaps
from wattflow.policy.planning.facts import NOWHERE, WHOLE, jit


@jit
def _row_at(slots, place, at_s):
    """Return the row in force at a moment (the head before it), looked for from where the last search ended."""
    row = slots.finger[place]
    head = slots.head[place]
    # The head moves on (`_skip_full`) and may have passed the finger.
    if slots.time[row] < slots.time[head]:
        row = head
    while slots.time[row] > at_s and row != head:
        row = slots.previous[row]
    while slots.next[row] >= 0 and slots.time[slots.next[row]] <= at_s:
        row = slots.next[row]
    slots.finger[place] = row
    return row


@jit
def earliest(slots, place, after_s, long_s, need_u, need_bytes):
    """Return the first moment from which a bin has room for so long; inf if that would not end before ``near[3]``."""
    row = _row_at(slots, place, after_s)
    start = max(after_s, slots.time[row])
    while True:
        if start + long_s >= slots.near[3]:
            return math.inf
        if slots.free_u[row] >= need_u and slots.free_bytes[row] >= need_bytes:
            ahead = slots.next[row]
            while ahead >= 0 and slots.time[ahead] < start + long_s:
                if slots.free_u[ahead] < need_u or slots.free_bytes[ahead] < need_bytes:
                    break
                ahead = slots.next[ahead]
            if ahead < 0 or slots.time[ahead] >= start + long_s:
                return start
            # Room runs out before the end: nothing before that moment can be the start.
            row = ahead
        row = slots.next[row]
        if row < 0:
            return math.inf
        start = slots.time[row]


@jit
def latest(slots, place, after_s, until_s, long_s, need_u, need_bytes):
    """Return the last moment ≥ ``after_s`` from which a bin has room so long, ending by ``until_s``; −inf without."""
    row = _row_at(slots, place, after_s)
    found = -math.inf
    start = after_s
    # A run of moments that all have room is one gap: its start stays while it lasts.
    open_ = False
    while row >= 0 and slots.time[row] <= until_s:
        if slots.free_u[row] >= need_u and slots.free_bytes[row] >= need_bytes:
            if not open_:
                start = max(after_s, slots.time[row])
                open_ = True
            ahead = slots.next[row]
            stop = until_s if ahead < 0 else min(until_s, slots.time[ahead])
            if stop - long_s >= start:
                found = stop - long_s
        else:
            open_ = False
        row = slots.next[row]
    return found


@jit
def _moment(slots, place, at_s):
    """Return the row that begins at a moment, made if need be."""
    row = _row_at(slots, place, at_s)
    if slots.time[row] == at_s:
        return row
    new = slots.rows[0]
    slots.rows[0] = new + 1
    slots.time[new] = at_s
    slots.free_u[new] = slots.free_u[row]
    slots.free_bytes[new] = slots.free_bytes[row]
    after = slots.next[row]
    slots.next[new] = after
    slots.previous[new] = row
    slots.next[row] = new
    if after >= 0:
        slots.previous[after] = new
    return new


@jit
def occupy(slots, place, start_s, end_s, need_u, need_bytes):
    """Take room of a bin (negative needs give it back)."""
    if end_s <= start_s:
        return
    row = _moment(slots, place, start_s)
    last = _moment(slots, place, end_s)
    while row != last:
        slots.free_u[row] -= need_u
        slots.free_bytes[row] -= need_bytes
        row = slots.next[row]


@jit
def _skip_full(slots, place):
    """Forget the past in which nothing at all is free."""
    row = slots.head[place]
    # Only cores count: where none is free nothing starts, however much memory there is.
    while slots.free_u[row] <= 0 and slots.next[row] >= 0:
        row = slots.next[row]
    slots.head[place] = row


@jit
def share_of(facts, offer, device):
    """Return the share of a device that an offer takes: all of it unless the device is divided by shares."""
    sharing = facts.device_sharing[device]
    share = facts.share_u[offer]
    if sharing <= 1 or facts.devices[offer] > 1:
        return WHOLE
    if sharing == 3:
        return min(WHOLE, ((share * 7 + WHOLE - 1) // WHOLE * WHOLE + 6) // 7)
    return share


@jit
def gather(facts, slots, task):
    """Sum up where a task's inputs lie: near = (ready, bytes, parents with bytes, worst useful end)."""
    ready = facts.release_s[task]
    size = 0.0
    count = 0
    for e in range(facts.parent_start[task], facts.parent_start[task + 1]):
        parent = facts.parent[e]
        ready = max(ready, slots.end_s[parent])
        if facts.parent_bytes[e] <= 0.0:
            continue
        size += facts.parent_bytes[e]
        count += 1
        node = slots.node[parent]
        if node >= 0:
            slots.zone_n[facts.zone[facts.cls[node]]] += 1
            if facts.stores[node] == 1:
                slots.local_bytes[node] += facts.parent_bytes[e]
                slots.local_n[node] += 1
    slots.near[0] = ready
    slots.near[1] = size
    slots.near[2] = count
    slots.near[3] = math.inf


@jit
def forget(facts, slots, task):
    """Undo `gather`."""
    for e in range(facts.parent_start[task], facts.parent_start[task + 1]):
        node = slots.node[facts.parent[e]]
        if node >= 0:
            # To 0, not by subtraction: sums of floats would leave a rest.
            slots.local_bytes[node] = 0.0
            slots.local_n[node] = 0
            slots.zone_n[facts.zone[facts.cls[node]]] = 0


@jit
def fetch_s(facts, slots, task, node):
    """Return seconds of the data stage on a node (physics, section 5), after `gather`."""
    size = facts.input_bytes[task]
    # Not by bytes: sums of floats differ in their last digit, and all inputs here must mean nothing to fetch.
    if slots.local_n[node] < slots.near[2]:
        size += slots.near[1] - slots.local_bytes[node]
    if size <= 0.0:
        return 0.0
    cls = facts.cls[node]
    wait = facts.latency_s[cls]
    here = slots.zone_n[facts.zone[cls]]
    total = 0
    for zone in range(slots.zone_n.size):
        total += slots.zone_n[zone]
    if total > here:
        wait += facts.zone_latency_s[cls]
    return wait + size * facts.seconds_per_byte[cls]


@jit
def message_s(facts, source, node, size):
    """Return seconds for a parent's bytes to reach a node, alone on the link."""
    if size <= 0.0 or (source == node and facts.stores[node] == 1):
        return 0.0
    cls = facts.cls[node]
    wait = facts.latency_s[cls]
    if source >= 0 and facts.zone[facts.cls[source]] != facts.zone[cls]:
        wait += facts.zone_latency_s[cls]
    return wait + size * facts.seconds_per_byte[cls]


@jit
def ready_on(facts, slots, task, node):
    """Return when a task may take cores of a node: its parents' ends, or (``overlap``) when their bytes are there."""
    if facts.overlap[0] == 0:
        return slots.near[0]
    ready = facts.release_s[task] + message_s(facts, -1, node, facts.input_bytes[task])
    for e in range(facts.parent_start[task], facts.parent_start[task + 1]):
        parent = facts.parent[e]
        ready = max(ready, slots.end_s[parent] + message_s(facts, slots.node[parent], node, facts.parent_bytes[e]))
    return ready


@jit
def _one_device(facts, slots, offer, node, from_s, wait_s, run_s):
    """Earliest end over the devices of a node, cores and share together: best = (start, end)."""
    slots.best[0] = math.inf
    slots.best[1] = math.inf
    slots.choice[0] = 0
    nodes = facts.cls.size
    for k in range(facts.device_n[node]):
        d = facts.device_first[node] + k
        if facts.device_ok[offer, d] == 0:
            continue
        long_s = wait_s + run_s / facts.device_speed[d]
        start = from_s
        # Cores and device are asked in turn until both are free at one moment.
        while True:
            first = earliest(slots, node, start, long_s, facts.need_u[offer], facts.need_bytes[offer])
            share = share_of(facts, offer, d)
            start = earliest(slots, nodes + d, first, long_s, share, facts.device_bytes[offer])
            if start == first:
                break
        if start + long_s < slots.best[1]:
            slots.best[0] = start
            slots.best[1] = start + long_s
            slots.choice[0] = 1 << k


@jit
def _many_devices(facts, slots, offer, node, from_s, wait_s, run_s):
    """Earliest moment at which enough whole devices of a node are free together."""
    nodes = facts.cls.size
    slowest = math.inf
    for k in range(facts.device_n[node]):
        d = facts.device_first[node] + k
        if facts.device_ok[offer, d] == 1:
            # The slowest of all that suit, before it is known which will be free.
            slowest = min(slowest, facts.device_speed[d])
    long_s = wait_s + run_s / slowest
    start = from_s
    while True:
        start = earliest(slots, node, start, long_s, facts.need_u[offer], facts.need_bytes[offer])
        taken = 0
        found = 0
        later = math.inf
        for k in range(facts.device_n[node]):
            d = facts.device_first[node] + k
            if facts.device_ok[offer, d] == 0 or found == facts.devices[offer]:
                continue
            at = earliest(slots, nodes + d, start, long_s, WHOLE, facts.device_bytes[offer])
            if at == start:
                taken |= 1 << k
                found += 1
            else:
                later = min(later, at)
        if found == facts.devices[offer]:
            break
        start = later
    slots.best[0] = start
    slots.best[1] = start + long_s
    slots.choice[0] = taken


@jit
def try_node(facts, slots, task, offer, node):
    """Earliest (start, end) of an offer on a node into ``best``; inf where it cannot run. After `gather`."""
    slots.best[0] = math.inf
    slots.best[1] = math.inf
    run_s = facts.estimate_s[task] * facts.factor[offer, facts.cls[node]]
    # NaN fails the first test; where there is no limit, inf needs the second.
    if not run_s <= facts.limit_s[facts.cls[node]] or run_s == math.inf:
        return
    from_s = ready_on(facts, slots, task, node)
    wait_s = 0.0 if facts.overlap[0] == 1 else fetch_s(facts, slots, task, node)
    if facts.devices[offer] == 0:
        start = earliest(slots, node, from_s, wait_s + run_s, facts.need_u[offer], facts.need_bytes[offer])
        slots.best[0] = start
        slots.best[1] = start + (wait_s + run_s)
        slots.choice[0] = 0
    elif facts.devices[offer] == 1:
        _one_device(facts, slots, offer, node, from_s, wait_s, run_s)
    else:
        _many_devices(facts, slots, offer, node, from_s, wait_s, run_s)


@jit
def put(facts, slots, task, node, offer, sign):
    """Take (sign 1) or give back (−1) what a task's place needs, between its planned start and end."""
    start = slots.start_s[task]
    end = slots.end_s[task]
    occupy(slots, node, start, end, sign * facts.need_u[offer], sign * facts.need_bytes[offer])
    for k in range(facts.device_n[node]):
        if (slots.taken[task] >> k) & 1 == 1:
            d = facts.device_first[node] + k
            share = sign * share_of(facts, offer, d)
            occupy(slots, facts.cls.size + d, start, end, share, sign * facts.device_bytes[offer])


HELD = ("node", "need_u", "need_bytes", "taken", "share_u", "device_bytes", "start_s", "end_s")
"""Columns of `base.HOLD` that `hold` takes, in its order."""


@jit
def hold(facts, slots, node, need_u, need_bytes, taken, share_u, device_bytes, start_s, end_s):
    """Take what earlier plans hold out of the timelines."""
    for i in range(node.size):
        slots.used[node[i]] = 1
        occupy(slots, node[i], start_s[i], end_s[i], need_u[i], need_bytes[i])
        for k in range(facts.device_n[node[i]]):
            if (taken[i] >> k) & 1 == 1:
                place = facts.cls.size + facts.device_first[node[i]] + k
                occupy(slots, place, start_s[i], end_s[i], share_u[i], device_bytes[i])


@jit
def _place_best(facts, slots, task, only, bias):
    """Plan a task where end + bias is least; ties go to the lower node, then the earlier variant."""
    gather(facts, slots, task)
    shape = facts.shape[task]
    least = math.inf
    node_at, offer_at, taken = NOWHERE, -1, 0
    start, end = slots.near[0], slots.near[0] + facts.estimate_s[task]
    fresh = 0
    for node in range(facts.cls.size):
        if (only >= 0 and node != only) or facts.free_u[node] <= 0:
            continue
        cls = facts.cls[node]
        if only < 0 and slots.used[node] == 0 and slots.local_n[node] == 0:
            # Unused nodes of one class are alike: the first stands for all (classes are bits of `fresh`).
            if cls < 62 and (fresh >> cls) & 1 == 1:
                continue
            if cls < 62:
                fresh |= 1 << cls
        for offer in range(facts.offer_first[shape], facts.offer_first[shape] + facts.offer_n[shape]):
            soonest = slots.near[0] + facts.estimate_s[task] * facts.factor[offer, cls] + bias[cls]
            if facts.devices[offer] == 0 and not soonest < least:
                continue
            # `earliest` gives up where the end could not be better than the best so far.
            slots.near[3] = least - bias[cls]
            try_node(facts, slots, task, offer, node)
            if slots.best[1] + bias[cls] < least:
                least = slots.best[1] + bias[cls]
                node_at, offer_at, taken = node, offer, slots.choice[0]
                start, end = slots.best[0], slots.best[1]
    forget(facts, slots, task)
    slots.node[task], slots.offer[task], slots.taken[task] = node_at, offer_at, taken
    slots.start_s[task], slots.end_s[task] = start, end
    if node_at >= 0:
        slots.used[node_at] = 1
        put(facts, slots, task, node_at, offer_at, 1)
        _skip_full(slots, node_at)


@jit
def _before(keys, a, b):
    """Tell whether a comes before b: higher priority, then nearer the entry, then lower index."""
    priority, depth = keys
    if priority[a] != priority[b]:
        return priority[a] > priority[b]
    if depth[a] != depth[b]:
        return depth[a] < depth[b]
    return a < b


_rise, _sink = heaps.of_numbers(_before)


@jit
def _push(heap, count, task, keys):
    heap[count] = task
    _rise(keys, heap, count)
    return count + 1


@jit
def list_schedule(facts, slots, priority, bias, only):
    """Plan every task: of those whose parents are planned the one of highest priority goes where end + bias is least.

    ``bias`` has a row per task (or one for all) and a column per class; ``only`` names a node or −1.
    O(tasks × nodes × slots).
    """
    tasks = facts.estimate_s.size
    # A copy by subtraction, counted down below.
    waiting = facts.parent_start[1:] - facts.parent_start[:-1]
    heap = np.zeros(tasks + 1, np.int64)
    keys = (priority, facts.depth)
    count = 0
    for task in range(tasks):
        if waiting[task] == 0:
            count = _push(heap, count, task, keys)
    while count > 0:
        task = heap[0]
        count -= 1
        heap[0] = heap[count]
        _sink(keys, heap, count, 0)
        _place_best(facts, slots, task, only[task], bias[min(task, bias.shape[0] - 1)])
        for e in range(facts.child_start[task], facts.child_start[task + 1]):
            child = facts.child[e]
            waiting[child] -= 1
            if waiting[child] == 0:
                count = _push(heap, count, child, keys)

"""Who waits for whom, so that a run follows a plan.

What a task uses is handed to it by tasks that ended before it starts (a resource flow). A run that keeps these pairs
never needs more than there is, whenever tasks really end, and is no later than the plan while no task is longer than
planned.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined"
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.policy.planning.facts import Facts, Floats, Longs, Slots, handles, jit
from wattflow.policy.planning.timeline import share_of


def waits(facts: Facts, order: Longs, slots: Slots) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Pairs (earlier, later): who hands cores, memory or a device to whom. O(tasks log tasks)."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    planned = np.lexsort((position, slots.end_s, slots.start_s))
    planned = planned[slots.node[planned] >= 0]
    pairs: list[NDArray[np.int64]] = []
    by_node = planned[np.argsort(slots.node[planned], kind="stable")]
    bounds = np.searchsorted(slots.node[by_node], np.arange(len(facts.cls) + 1))
    for node in np.unique(slots.node[planned]).tolist():
        tasks = by_node[bounds[node] : bounds[node + 1]]
        offers = slots.offer[tasks]
        cores, memory = facts.need_u[offers], facts.need_bytes[offers]
        pairs.append(_flow(tasks, cores, slots.end_s, int(facts.free_u[node])))
        if _may_bind(cores, memory, int(facts.free_u[node]), int(facts.free_bytes[node])):
            pairs.append(_flow(tasks, memory, slots.end_s, int(facts.free_bytes[node])))
        pairs += _device_flows(facts, slots, node, tasks)
    if not pairs:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    both = np.unique(np.concatenate(pairs, axis=1), axis=1)
    return both[0].astype(np.int32), both[1].astype(np.int32)


def _device_flows(facts: Facts, slots: Slots, node: int, tasks: Longs) -> list[NDArray[np.int64]]:
    found = []
    for k in range(int(facts.device_n[node])):
        device = int(facts.device_first[node]) + k
        users = tasks[(slots.taken[tasks] >> k) & 1 == 1]
        if not len(users):
            continue
        row = len(facts.cls) + device
        share = np.zeros(len(users), np.int64)
        shares_of(*handles(facts, slots), users, device, share)
        memory = facts.device_bytes[slots.offer[users]]
        found.append(_flow(users, share, slots.end_s, int(facts.free_u[row])))
        if _may_bind(share, memory, int(facts.free_u[row]), int(facts.free_bytes[row])):
            found.append(_flow(users, memory, slots.end_s, int(facts.free_bytes[row])))
    return found


def _may_bind(first: Longs, second: Longs, first_n: int, second_n: int) -> bool:
    """Whether as many tasks as the first resource lets in could ask for too much of the second."""
    at_once = len(first) if first.min() <= 0 else min(len(first), first_n // int(first.min()))
    return int(np.sort(second)[len(second) - at_once :].sum()) > second_n


def _flow(tasks: Longs, need: Longs, end_s: Floats, capacity: int) -> NDArray[np.int64]:
    # Each hand-over empties a giver or fills a taker, so there are at most two for each task.
    out = np.zeros((2, 2 * len(tasks) + 1), np.int64)
    return out[:, : hand_over(tasks, np.ascontiguousarray(need), end_s, capacity, out)]


@jit
def shares_of(facts, slots, tasks, device, out):
    """What each of these tasks takes of a device."""
    for i in range(tasks.size):
        out[i] = share_of(facts, slots.offer[tasks[i]], device)


@jit
def hand_over(order, need, end_s, capacity, out):
    """Pairs (giver, taker) of one resource of one bin; ``order`` lists its users by start. Returns how many.

    What ended first is taken first. ``out`` has two rows.
    """
    givers = np.zeros(order.size + 1, np.int64)
    left = np.zeros(order.size + 1, np.int64)
    count = 0
    spare = capacity
    n = 0
    for i in range(order.size):
        task = order[i]
        want = need[i]
        from_spare = min(spare, want)
        spare -= from_spare
        want -= from_spare
        while want > 0 and count > 0:
            part = min(left[0], want)
            want -= part
            left[0] -= part
            out[0, n] = givers[0]
            out[1, n] = task
            n += 1
            if left[0] == 0:
                count -= 1
                _sift_first(givers, left, count, end_s)
        if need[i] > 0:
            at = count
            count += 1
            while at > 0 and end_s[task] < end_s[givers[(at - 1) // 2]]:
                givers[at] = givers[(at - 1) // 2]
                left[at] = left[(at - 1) // 2]
                at = (at - 1) // 2
            givers[at] = task
            left[at] = need[i]
    return n


@jit
def _sift_first(givers, left, count, end_s):
    """Put the last row of the heap in the place of its first."""
    task = givers[count]
    amount = left[count]
    at = 0
    while 2 * at + 1 < count:
        down = 2 * at + 1
        if down + 1 < count and end_s[givers[down + 1]] < end_s[givers[down]]:
            down += 1
        if end_s[givers[down]] >= end_s[task]:
            break
        givers[at] = givers[down]
        left[at] = left[down]
        at = down
    givers[at] = task
    left[at] = amount

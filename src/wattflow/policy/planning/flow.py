"""Who waits for whom, so that a run follows a plan.

What a task uses is handed to it by tasks that ended before it starts (a resource flow). A run that keeps these pairs
never needs more than there is, whenever tasks really end, and is no later than the plan while no task is longer than
planned.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined"
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel import heaps
from wattflow.policy.base import HOLD
from wattflow.policy.planning.facts import Floats, Longs, PlanFacts, Slots, handles, jit
from wattflow.policy.planning.timeline import share_of


def holds(facts: PlanFacts, slots: Slots) -> NDArray[np.void]:
    """List the resources that each placed task holds, and when."""
    placed = np.flatnonzero(slots.node >= 0)
    offer, rows = slots.offer[placed], np.zeros(len(placed), HOLD)
    rows["task"], rows["node"], rows["taken"] = placed, slots.node[placed], slots.taken[placed]
    rows["need_u"], rows["need_bytes"] = facts.need_u[offer], facts.need_bytes[offer]
    rows["device_bytes"] = facts.device_bytes[offer]
    rows["start_s"], rows["end_s"] = slots.start_s[placed], slots.end_s[placed]
    if rows["taken"].any():
        share = np.zeros(len(placed), np.int64)
        shares_of(*handles(facts, slots), placed, share)
        rows["share_u"] = share
    return rows


def waits(
    facts: PlanFacts, order: Longs, earlier: NDArray[np.void], own: NDArray[np.void]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return pairs (earlier, later) of rows: who hands cores, memory or a device to whom. O(rows log rows).

    Rows of earlier plans come first, then the tasks by their numbers.
    """
    count = len(earlier)
    number = np.concatenate([np.arange(count), count + own["task"]])
    rows = np.concatenate([earlier, own])
    position = np.zeros(len(order), np.int64)
    position[order] = np.arange(len(order))
    # Earlier plans come before all tasks of this one where starts and ends tie.
    place = np.concatenate([np.arange(count) - count, position[own["task"]]])
    by_start = np.lexsort((place, rows["end_s"], rows["start_s"]))
    by_node = by_start[np.argsort(rows["node"][by_start], kind="stable")]
    found, first = np.unique(rows["node"][by_node], return_index=True)
    bounds = [*first.tolist(), len(by_node)]
    end_s = np.ascontiguousarray(rows["end_s"])
    # Nodes that this plan does not use hand over nothing new.
    touched = set(own["node"].tolist())
    pairs: list[NDArray[np.int64]] = []
    for at, node in enumerate(found.tolist()):
        if node not in touched:
            continue
        users = by_node[bounds[at] : bounds[at + 1]]
        bins = [(users, "need_u", "need_bytes", node)]
        for k in range(int(facts.device_n[node])):
            taken = users[(rows["taken"][users] >> k) & 1 == 1]
            if len(taken):
                bins.append((taken, "share_u", "device_bytes", len(facts.cls) + int(facts.device_first[node]) + k))
        for users, main, memory, row in bins:
            room, room_bytes = int(facts.free_u[row]), int(facts.free_bytes[row])
            pairs.append(_flow(users, rows[main][users], end_s, room))
            # Pairs for memory only where memory could bind: most plans are bound by cores alone.
            if _may_bind(rows[main][users], rows[memory][users], room, room_bytes):
                pairs.append(_flow(users, rows[memory][users], end_s, room_bytes))
    if not pairs:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    both = number[np.unique(np.concatenate(pairs, axis=1), axis=1)]
    return both[0].astype(np.int32), both[1].astype(np.int32)


def _may_bind(first: Longs, second: Longs, first_n: int, second_n: int) -> bool:
    """Tell whether as many tasks as the first resource lets in could ask for too much of the second."""
    at_once = len(first) if first.min() <= 0 else min(len(first), first_n // int(first.min()))
    return int(np.sort(second)[len(second) - at_once :].sum()) > second_n


def _flow(tasks: Longs, need: Longs, end_s: Floats, capacity: int) -> NDArray[np.int64]:
    # Each hand-over empties a giver or fills a taker, so there are at most two for each task.
    out = np.zeros((2, 2 * len(tasks) + 1), np.int64)
    return out[:, : hand_over(tasks, np.ascontiguousarray(need), end_s, capacity, out)]


@jit
def shares_of(facts, slots, tasks, out):
    """Write the share of its device that each of these tasks takes (of each device, where it has several)."""
    for i in range(tasks.size):
        node = slots.node[tasks[i]]
        for k in range(facts.device_n[node]):
            if (slots.taken[tasks[i]] >> k) & 1 == 1:
                out[i] = share_of(facts, slots.offer[tasks[i]], facts.device_first[node] + k)


@jit
def _ends_before(rows, a, b):
    givers, _, end_s = rows
    return end_s[givers[a]] < end_s[givers[b]]


@jit
def _move(rows, to, source):
    givers, left, _ = rows
    givers[to] = givers[source]
    left[to] = left[source]


_enter, _drop_first = heaps.of_rows(_ends_before, _move)


@jit
def hand_over(order, need, end_s, capacity, out):
    """Pairs (giver, taker) of one resource of one bin; ``order`` lists its users by start. Returns how many.

    What ended first is taken first. ``out`` has two rows.
    """
    givers = np.zeros(order.size + 1, np.int64)
    left = np.zeros(order.size + 1, np.int64)
    rows = (givers, left, end_s)
    # What nobody has used yet goes first: it costs no wait.
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
                _drop_first(rows, count)
        if need[i] > 0:
            # Row 0 … count − 1 are the heap; the row behind is where `_enter` takes it from.
            givers[count + 1] = task
            left[count + 1] = need[i]
            _enter(rows, count, count + 1)
            count += 1
    return n

"""Slack reclamation: from the last task back, each takes the cheapest slot that its children's starts leave it.

Everything else stays where it is, so no child starts later and no workflow ends after its limit. A task that finds
nothing cheaper moves to the latest slot on its node, which leaves its parents more slack; a run is work-conserving, so
nothing waits for that. Device tasks stay. A task moves to another node only if neither its own nor a child's transfer
gets longer by it, since the links are shared.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined"
from __future__ import annotations

import math

import numpy as np

from wattflow.policy.planning.facts import Floats, PlanFacts, Slots, handles, jit
from wattflow.policy.planning.problem import PlanningProblem
from wattflow.policy.planning.timeline import fetch_s, forget, gather, latest, message_s, put, ready_on

# A task moves for a real gain only, not for a rounding.
_CHEAPER = 1.0 - 1e-9


def reclaim(problem: PlanningProblem, slots: Slots, finish_by_s: Floats) -> Slots:
    """Return a copy of the plan with its slack spent on energy; see the module. O(tasks × nodes × slots in a node)."""
    spent = _with_room(problem.facts, slots)
    # Last end first: children are settled before their parents, whose limit they are.
    order = np.lexsort((np.arange(len(slots.start_s)), slots.start_s, slots.end_s))[::-1].copy()
    if len(order):
        _reclaim(*handles(problem.facts, spent), order, finish_by_s)
    return spent


def finish_by(problem: PlanningProblem, slots: Slots, slack: float, to_deadline: bool = True) -> Floats:
    """For each task its workflow's planned end plus ``slack`` of its span; its deadline, if later and asked for."""
    workload = problem.workload
    count = len(workload.workflow_submit_s)
    end, start = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(end, workload.workflow, slots.end_s)
    np.minimum.at(start, workload.workflow, problem.facts.release_s)
    limit: Floats = (end + slack * (end - start))[workload.workflow]
    known = np.isfinite(workload.deadline_s) if to_deadline else np.zeros(len(limit), bool)
    return np.where(known, np.maximum(limit, workload.deadline_s), limit)


def joules(problem: PlanningProblem, slots: Slots) -> float:
    """Return energy above idle that the plan's CPU tasks are expected to take."""
    facts = problem.facts
    placed = np.flatnonzero(slots.node >= 0)
    offer, cls = slots.offer[placed], facts.cls[slots.node[placed]]
    run_s = facts.estimate_s[placed] * facts.factor[offer, cls]
    return float((facts.watts[offer, cls] * run_s).sum())


def _with_room(facts: PlanFacts, slots: Slots) -> Slots:
    """Return a copy with rows for every task to be planned once more, and timelines from their beginning."""
    rows = int(slots.rows[0])
    # Each task may add two moments to its bin when it is taken out and two when it is put in again.
    more = 4 * len(slots.node) + 2
    grown = {
        name: np.concatenate([getattr(slots, name)[:rows], np.zeros(more, getattr(slots, name).dtype)])
        for name in ("time", "free_u", "free_bytes", "next", "previous")
    }
    others = {
        name: getattr(slots, name).copy()
        for name in slots.NAMES
        if name not in grown and name not in ("head", "finger")
    }
    bins = np.arange(len(facts.free_u), dtype=np.int64)
    # From the beginning: list scheduling has passed over the past in which
    # nothing was free (`_skip_full`), but a task moves out of it now.
    return Slots(**grown, **others, head=bins, finger=bins.copy())


@jit
def _reclaim(facts, slots, order, finish_by_s):
    for i in range(order.size):
        task = order[i]
        if slots.node[task] >= 0 and facts.devices[slots.offer[task]] == 0:
            _reclaim_one(facts, slots, task, finish_by_s[task])


@jit
def _reclaim_one(facts, slots, task, finish_by_s):
    home, old = slots.node[task], slots.offer[task]
    # Out of the timeline while it looks, so that its own slot counts as free.
    put(facts, slots, task, home, old, -1)
    gather(facts, slots, task)
    shape = facts.shape[task]
    least = _joules(facts, task, old, home) * _CHEAPER
    node_at, offer_at = home, old
    start_at, end_at = slots.start_s[task], slots.end_s[task]
    # As late as possible where it stands: that leaves its parents the most slack, at the same joules.
    _slot(facts, slots, task, old, home, finish_by_s)
    if slots.best[0] > start_at:
        start_at, end_at = slots.best[0], slots.best[1]
    fetch_home = fetch_s(facts, slots, task, home)
    fresh = 0
    for node in range(facts.cls.size):
        # `_ties` keeps a child's transfer from getting longer: links are shared, and the plan does not foresee that.
        if node != home and (facts.free_u[node] <= 0 or _ties(facts, slots, task, node)):
            continue
        cls = facts.cls[node]
        # Unused nodes of a class are alike; 62 classes fit the bits of an int64.
        if node != home and slots.used[node] == 0 and cls < 62:
            if (fresh >> cls) & 1 == 1:
                continue
            fresh |= 1 << cls
        for offer in range(facts.offer_first[shape], facts.offer_first[shape] + facts.offer_n[shape]):
            cost = _joules(facts, task, offer, node)
            if facts.devices[offer] > 0 or not cost < least or fetch_s(facts, slots, task, node) > fetch_home:
                continue
            _slot(facts, slots, task, offer, node, finish_by_s)
            if slots.best[0] > -math.inf:
                least = cost * _CHEAPER
                node_at, offer_at = node, offer
                start_at, end_at = slots.best[0], slots.best[1]
    forget(facts, slots, task)
    slots.node[task], slots.offer[task] = node_at, offer_at
    slots.start_s[task], slots.end_s[task] = start_at, end_at
    slots.used[node_at] = 1
    put(facts, slots, task, node_at, offer_at, 1)


@jit
def _joules(facts, task, offer, node):
    cls = facts.cls[node]
    return facts.estimate_s[task] * facts.factor[offer, cls] * facts.watts[offer, cls]


@jit
def _slot(facts, slots, task, offer, node, finish_by_s):
    """Write the latest (start, end) of an offer on a node that delays no child into ``best``; −inf without one."""
    slots.best[0] = -math.inf
    run_s = facts.estimate_s[task] * facts.factor[offer, facts.cls[node]]
    if not run_s < math.inf or run_s > facts.limit_s[facts.cls[node]]:
        return
    until = finish_by_s
    for e in range(facts.child_start[task], facts.child_start[task + 1]):
        child = facts.child[e]
        lead = 0.0
        if facts.overlap[0] == 1 and slots.node[child] >= 0:
            lead = message_s(facts, node, slots.node[child], facts.child_bytes[e])
        until = min(until, slots.start_s[child] - lead)
    wait_s = 0.0 if facts.overlap[0] == 1 else fetch_s(facts, slots, task, node)
    from_s = ready_on(facts, slots, task, node)
    start = latest(slots, node, from_s, until, wait_s + run_s, facts.need_u[offer], facts.need_bytes[offer])
    slots.best[0] = start
    # `until` itself where the sum would exceed it by a rounding: the child starts no later.
    slots.best[1] = min(until, start + (wait_s + run_s))


@jit
def _ties(facts, slots, task, node):
    """Tell whether moving a task to a node would make a child's transfer longer."""
    if facts.overlap[0] == 1:
        return False
    home = slots.node[task]
    apart = facts.zone[facts.cls[home]] != facts.zone[facts.cls[node]]
    for e in range(facts.child_start[task], facts.child_start[task + 1]):
        if facts.child_bytes[e] > 0.0 and (apart or slots.node[facts.child[e]] == home):
            return True
    return False

"""Rules that follow a plan where there is one, and are the flagship's where there is none.

A planned task goes to its node in its variant and frequency at its planned start, or as soon after that as it is ready
and fits; before it only where a core is free and the task planned before it on the node has begun. So a plan whose
estimates were wrong is followed earlier or later, in its order, and nodes that it needs no more sleep.
A task without a plan is priced as `wattflow` does. What is planned stands in the State: the node and variant that a
task is pinned to, its start and the orders to sleep in the policy's memory (`sleeping`).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.engine.tables import PLACED
from wattflow.model.cluster import Cluster
from wattflow.plan import node_offers, sleeps
from wattflow.plan.node_offers import Floats, Longs
from wattflow.policy import effects, patient, view, wattflow
from wattflow.policy.jit import jit

EARLY_S = 1e-6
"""Starts are sums of many numbers; this much before one counts as being there."""
Row = tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class Course:
    """A course for the open tasks: by settings alone, or by a plan.

    Attributes:
        dials: The flagship's numbers, for tasks without a plan.
        task, node, variant, start_s: Rows of the State's tasks that have a plan, and it; empty without one.
        orders: When nodes fall asleep and wake (`sleeping.orders`).
        asleep: Nodes that should sleep until an order says otherwise.
    """

    dials: Mapping[str, float]
    task: Longs
    node: Longs
    variant: Longs
    start_s: Floats
    orders: tuple[Row, ...] = ()
    asleep: frozenset[int] = frozenset()


def by_settings(dials: Mapping[str, float]) -> Course:
    """No plan: the flagship with these dials."""
    none = np.zeros(0, np.int64)
    return Course(dials, none, none, none, np.zeros(0))


@jit
def planned_s(state, task):
    """Return when a task should start; −1 without a plan."""
    # Tasks that arrived after the plan was made have no entry.
    if task >= view.recall(state, sleeps.NOTES.planned, 0):
        return -1.0
    return view.recall(state, sleeps.NOTES.planned, 1 + task)


@jit
def its_turn(state, task, variant, node):
    """Tell whether a task may go before its time: the one before it on the node has begun, and a core of its own is
    free."""
    before = int(view.recall(state, sleeps.NOTES.before, task))
    # In the plan's order on this node: else a task that is early would take the cores of the one before it.
    if before >= 0 and state.tasks[before].state < PLACED:
        return False
    kind = state.classes[state.nodes[node].cls]
    # On a core of its own only: beside others it would slow them, which the plan does not foresee.
    return view.is_on(state, node) and view.busy_cores(state, node) + view.variant_cores(state, variant) <= kind.cores


def score(state, task, variant, out):
    """Nowhere before its time or turn; the flagship's prices for a task without a plan."""
    at_s = planned_s(state, task)
    if at_s >= 0.0:
        early = view.now_s(state) < at_s - EARLY_S
        for c in range(out.size):
            out[c] = 0.0
            if early and not its_turn(state, task, variant, view.node_of(state, c)):
                out[c] = math.inf
        if early:
            effects.hold_until(state, at_s)
    elif view.param(state, wattflow.DIAL.wait) == math.inf:
        patient.fill_costs(state, task, variant, view.recall(state, wattflow.NOTES.idle_w, 0), out)
    else:
        wattflow.fill_prices(state, task, variant, out)
        wattflow.settle(state, task, variant, 1.0, out)


def priority(state, task):
    """Return the planned start, or the flagship's order."""
    at_s = planned_s(state, task)
    if at_s >= 0.0:
        return at_s
    if view.param(state, wattflow.DIAL.wait) == math.inf:
        return view.latest_start_s(state, task)
    return view.rank(state, task)


def put(state: Any, cluster: Cluster, rows: Longs, course: Course, sleep_after_s: Floats) -> None:
    """Make a State follow a course; ``rows`` are the tasks that are known, ``sleep_after_s`` time-outs without one."""
    for name, value in course.dials.items():
        state.params[list(wattflow.DIAL.defaults).index(name)] = value
    classes = state.classes
    # From the time-outs without a policy: those of the setting before must not stay.
    classes.sleep_after_s[:] = sleep_after_s
    state.tasks.pinned[rows], state.tasks.pinned_variant[rows] = -1, -1
    if not len(course.task):
        # Without a plan the flagship sets its own time-outs.
        wattflow.prepare(state, cluster)
        sleeps.lay_out(state, [], np.full(len(state.nodes), -1.0))
        return
    planned, wanted = np.full(len(state.tasks), -1.0), np.ones(len(state.nodes))
    # −1 means no plan, so a start before time 0 counts as 0.
    planned[course.task] = np.maximum(course.start_s, 0.0)
    wanted[list(course.asleep)] = 0.0
    state.tasks.pinned[course.task], state.tasks.pinned_variant[course.task] = course.node, course.variant
    # Every node is awake or asleep by order here: no time-out may interfere.
    sleeps.lay_out(state, list(course.orders), wanted, planned, _before(course, len(state.tasks)))


def _before(course: Course, tasks: int) -> Floats:
    """Return the task that is planned before each on its node; −1 for the first."""
    found = np.full(tasks, -1.0)
    order = np.lexsort((course.task, course.start_s, course.node))
    same = course.node[order][1:] == course.node[order][:-1]
    found[course.task[order][1:][same]] = course.task[order][:-1][same]
    return found


def orders(spans: Mapping[int, Floats], cluster: Cluster, now_s: float, asleep: frozenset[int]) -> list[Row]:
    """Return when each node should fall asleep and wake, by the (start, end) of what it has to do from now on.

    After its last task a node sleeps as soon as that pays by the end of the plan, or else when it has idled for as long
    as falling asleep and waking are worth.
    """
    found: list[Row] = []
    last_s = max((float(busy[:, 1].max()) for busy in spans.values()), default=now_s)
    for number, machine in enumerate(cluster.nodes):
        above_w = node_offers.idle_w(machine) - sleeps.still_w(machine)
        if above_w <= 0 or machine.sleep is None:
            continue
        free_s, lies = now_s, number in asleep
        for start_s, stop_s in sleeps.merged(spans[number]) if number in spans else ():
            idle_s = start_s - free_s
            # Long enough to fall and wake, and worth it.
            if not lies and idle_s > sleeps.worth_s(machine) and above_w * idle_s > sleeps.cycle_j(machine):
                found.append((free_s, number, 0))
                lies = True
            if lies:
                # So that it is awake when the task starts.
                found.append((start_s - machine.sleep.wake_s, number, 1))
            free_s, lies = stop_s, False
        # Others may come after the end of the plan: a node that would not gain by then waits as long as sleep is worth.
        if above_w * (last_s - free_s) <= sleeps.enter_j(machine):
            free_s += sleeps.cycle_j(machine) / above_w
        if not lies:
            found.append((free_s, number, 0))
    return sorted(found)


__all__ = ["Course", "by_settings", "orders", "planned_s", "priority", "put", "score"]

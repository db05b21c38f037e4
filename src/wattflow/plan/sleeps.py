"""A plan with its sleep: nodes that a schedule does not need sleep, and are awake again when it needs them.

A node sleeps before its first task if that is worth it, after its last, and in gaps between if asked for: wherever
the watts saved pay for falling asleep and waking. Waking is ordered so that it ends when the next task starts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster, Node
from wattflow.plan import node_offers
from wattflow.plan.node_offers import Floats, Longs
from wattflow.policy import effects, view
from wattflow.policy.base import Plan, Policy

NOTES = view.notes("at_s", "node", "awake", "next", "wanted")
"""``wanted`` of a node is 1 for awake and 0 for asleep."""


def still_w(node: Node) -> float:
    """Return watts of a node that the plan does not need: asleep where that is less than idling."""
    if node.sleep is None:
        return node_offers.idle_w(node)
    return min(node.sleep.watts, node_offers.idle_w(node))


def _change_j(node: Node, seconds: float) -> float:
    """Return joules above stillness of so many seconds of falling asleep or waking."""
    # It never pays: inf keeps it awake in every comparison.
    if node.sleep is None or node.sleep.watts >= node_offers.idle_w(node):
        return math.inf
    watts = node_offers.idle_w(node) if node.sleep.wake_w is None else node.sleep.wake_w
    # What draws less than sleep costs nothing here.
    return seconds * max(0.0, watts - node.sleep.watts)


def enter_j(node: Node) -> float:
    """Return joules above stillness of falling asleep; inf where the node does not."""
    return _change_j(node, node.sleep.enter_s if node.sleep else 0.0)


def cycle_j(node: Node) -> float:
    """Return joules above stillness of falling asleep and waking; inf where the node does not."""
    return _change_j(node, node.sleep.enter_s + node.sleep.wake_s if node.sleep else 0.0)


def worth_s(node: Node) -> float:
    """Return the shortest gap in which a node can sleep and be awake again."""
    return node.sleep.wake_s + node.sleep.enter_s if node.sleep else math.inf


def orders(node: Longs, busy: Floats, cluster: Cluster, gaps: bool) -> list[tuple[float, int, int]]:
    """(time, node, awake) in order of time: what each node should be from then on. All are awake at first.

    ``busy`` has (start, end) of each task, ``node`` where it runs.
    """
    found: list[tuple[float, int, int]] = []
    begin_s, end_s = float(busy[:, 0].min(initial=math.inf)), float(busy[:, 1].max(initial=0.0))
    for number, machine in enumerate(cluster.nodes):
        above_w = node_offers.idle_w(machine) - still_w(machine)
        if above_w <= 0 or machine.sleep is None:
            continue
        free_s = begin_s
        for start_s, stop_s in merged(busy[node == number]):
            idle_s = start_s - free_s
            # Long enough to fall and wake, and worth it.
            if gaps and idle_s > worth_s(machine) and above_w * idle_s > cycle_j(machine):
                found += [(free_s, number, 0), (start_s - machine.sleep.wake_s, number, 1)]
            free_s = stop_s
        # After its last task it need not wake: only the fall has to be paid.
        if above_w * (end_s - free_s) > enter_j(machine):
            found.append((free_s, number, 0))
    return sorted(found)


def merged(spans: Floats) -> list[tuple[float, float]]:
    """Spans that touch or overlap as one, in order."""
    joined: list[tuple[float, float]] = []
    for start_s, end_s in sorted(map(tuple, spans.tolist())):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end_s)
        else:
            joined.append((start_s, end_s))
    return joined


def act(state: Any) -> None:
    """Make every node what it should be now, and come back when that changes."""
    now = view.now_s(state)
    at = int(view.recall(state, NOTES.next, 0))
    count = int(view.recall(state, NOTES.next, 1))
    # All orders that are due, in their order: of several for one node the last counts.
    while at < count and view.recall(state, NOTES.at_s, at) <= now:
        effects.note(state, NOTES.wanted, int(view.recall(state, NOTES.node, at)), view.recall(state, NOTES.awake, at))
        at += 1
    effects.note(state, NOTES.next, 0, float(at))
    if at < count:
        effects.order_timer(state, view.recall(state, NOTES.at_s, at))
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.wanted, node) == 1.0:
            if view.is_asleep(state, node):
                effects.order_wake(state, node)
        elif view.is_on(state, node) and view.tasks_on(state, node) == 0:
            effects.order_sleep(state, node)


def follower(name: str, plan: Plan, rows: list[tuple[float, int, int]], settings: PolicySettings) -> Policy:
    """Return a policy that follows a plan and lets nodes sleep by ``rows`` (see `orders`)."""

    def prepare(state: Any, cluster: Cluster) -> None:
        view.lay_out(
            state,
            NOTES,
            # A block is never empty: an order at infinity never comes.
            at_s=[r[0] for r in rows] or [math.inf],
            node=[float(r[1]) for r in rows] or [0.0],
            awake=[float(r[2]) for r in rows] or [1.0],
            next=[0.0, float(len(rows))],
            wanted=np.ones(len(cluster.nodes)),
        )

    return Policy(
        name,
        "follows a schedule found by search, sleep included",
        plan=lambda *_: plan,
        act=act,
        prepare=prepare,
        settings=settings,
        knows_future=True,
    )

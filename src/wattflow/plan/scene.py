"""A planner's view when a workflow arrives in the middle of a run: open workflows, and how far they have come.

Read from the State and from the workflows as they were estimated at their arrival. Of tasks that are done it is known
where they ran; of those that run, when they are expected to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wattflow.engine.tables import ASLEEP, DONE, FALLING, ON, PLACED, WAKING
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining, rehearsal
from wattflow.plan.annealing import Game, Standing
from wattflow.plan.node_offers import Floats, Longs

MOST_FLOWS, MOST_TASKS = 16, 600
"""Open workflows and their tasks, up to which all are planned together."""
NEVER_S = 1e12


@dataclass(frozen=True, slots=True)
class Scene:
    """Workflows from the first that is still open on.

    Attributes:
        now_s: The arrival.
        workload: They as one, as estimated, on the run's own clock.
        rows: Each task's row in the State.
        work_s: Mean work of all workflows that have arrived, in seconds of a core of speed 1.
    """

    now_s: float
    workload: Workload
    rows: Longs
    work_s: float


def scene(state: Any, known: Sequence[Workload], cluster: Cluster, now_s: float | None = None) -> Scene | None:
    """None where a plan is not to be thought of: too many tasks or too few, estimates or watts unknown, gangs.

    It is the time of the last arrival, unless another is told.
    """
    flows = _rows(state, len(known))
    # A State that has grown or lost rows since is not the one that these workflows are of.
    if len(flows) != len(known) or any(len(a) != len(b) for a, b in zip(flows, known, strict=True)):
        return None
    still = [bool((np.asarray(state.tasks["state"])[rows] < DONE).any()) for rows in flows]
    first = still.index(True) if any(still) else len(known)
    parts, rows = known[first:], flows[first:]
    tasks = sum(map(len, parts))
    if not 1 <= len(parts) <= MOST_FLOWS or not rehearsal.LEAST <= tasks <= MOST_TASKS:
        return None
    if any(node.power is None or node.serverless is not None for node in cluster.nodes):
        return None
    if not all(np.isfinite(part.estimate_s).all() for part in parts):
        return None
    if any(shape.parts > 1 for part in parts for shape in part.shapes):
        return None
    if now_s is None:
        # All of them have arrived by now, so the last arrival is the present.
        now_s = max(float(part.workflow_submit_s[0]) for part in parts)
    work_s = float(np.mean([joining.core_seconds(part) for part in known]))
    return Scene(now_s, _as_one(parts, cluster), np.concatenate(rows), work_s)


def rows_of(state: Any, count: int) -> Longs:
    """Return tasks of the first workflows by arrival."""
    return np.concatenate([np.zeros(0, np.int64), *_rows(state, count)])


def _rows(state: Any, count: int) -> list[Longs]:
    """Return tasks of the first workflows by arrival, each in its own order."""
    owner = np.asarray(state.tasks["workflow"])
    submit_s = np.asarray(state.workflows["submit"])
    there = np.unique(owner)
    order = there[np.argsort(submit_s[there], kind="stable")][:count]
    return [np.flatnonzero(owner == flow) for flow in order.tolist()]


def _as_one(parts: Sequence[Workload], cluster: Cluster) -> Workload:
    small = [rehearsal.small(part) for part in parts]
    joined = rehearsal.as_they_came(small, cluster)
    submit_s = np.array([float(part.workflow_submit_s[0]) for part in parts])
    seconds = np.concatenate([part.estimate_s for part in parts])
    return replace(
        joined,
        release_s=np.concatenate([part.release_s for part in parts]),
        deadline_s=np.concatenate([part.deadline_s for part in parts]),
        workflow_submit_s=submit_s,
        runtime_s=seconds,
        estimate_s=seconds,
    )


def standing(state: Any, seen: Scene, game: Game, end_s: Floats, due_s: Floats) -> Standing:
    """Tell how far the tasks have come, in the numbers of a game on the same workload; ``end_s`` of those that run."""
    tasks, rows, now_s = state.tasks, seen.rows, seen.now_s
    states = np.asarray(tasks["state"])[rows]
    node = np.asarray(tasks["node"])[rows].astype(np.int64)
    option = game.offered.first[seen.workload.shape].copy()
    index = {row: i for i, row in enumerate(rows.tolist())}
    attempts = state.attempts
    for row in np.flatnonzero(np.asarray(attempts["task"]) >= 0).tolist():
        i = index.get(int(attempts["task"][row]), -1)
        if i < 0:
            continue
        variant = state.variants[int(attempts["variant"][row])]
        node[i] = int(attempts["node"][row])
        # Numbered as `node_offers` numbers: variants, each with all levels.
        option[i] += int(variant["origin"]) * game.offered.levels + int(variant["frequency"])
    fixed = (states >= DONE) | ((states == PLACED) & (node >= 0))  # what was cancelled has no node, and needs none
    awake_s, sleeps = _nodes(state, now_s)
    end_s = np.where(states == PLACED, np.maximum(end_s, now_s), now_s)
    return Standing(now_s, fixed, np.maximum(node, 0), option, end_s, awake_s, sleeps, due_s)


def _nodes(state: Any, now_s: float) -> tuple[Floats, Any]:
    """Return when each node could be awake, and which are asleep."""
    nodes, classes = state.nodes, state.classes
    kind = np.asarray(nodes["power_state"])
    wake_s, enter_s = (np.asarray(classes[name])[nodes["cls"]] for name in ("wake_s", "enter_s"))
    # Nodes that are down, or being drained, count as never awake.
    awake_s = np.full(len(nodes), NEVER_S)
    awake_s[kind == ON] = now_s
    awake_s[kind == ASLEEP] = (now_s + wake_s)[kind == ASLEEP]
    awake_s[kind == FALLING] = (now_s + enter_s + wake_s)[kind == FALLING]
    # As announced; the others are reckoned from now.
    awake_s[kind == WAKING] = np.asarray(nodes["on_at"])[kind == WAKING]
    return awake_s, (kind == ASLEEP) | (kind == FALLING)

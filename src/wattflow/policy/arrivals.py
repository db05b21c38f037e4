"""A policy's work when workflows arrive: its ranks, its plans, and each task's place on its DAG.

A driver calls these with what it knows. Nothing here looks beyond the workflow that arrives: `ranks` asks for one
workflow at a time (or for many at once where the function is `vectorised`, which means the same), and `plans` goes
through the arrivals in order, each with what the ones before it hold. Only a policy that says ``knows_future`` is
given the whole workload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import EXTRA
from wattflow.kernel.records import record_table
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import levels
from wattflow.policy.base import HOLD, Committed, Plan, Policy

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


def workflows(workload: Workload) -> Iterator[tuple[Longs, Workload]]:
    """Each workflow alone with the numbers of its tasks, in order of arrival (submission, then index)."""
    # Stable sorts throughout: tasks keep their index order within a workflow, and equal submissions theirs.
    order = np.argsort(workload.workflow, kind="stable").astype(np.int64)
    bounds = np.searchsorted(workload.workflow[order], np.arange(len(workload.workflow_names) + 1))
    local = np.empty(len(workload), np.int32)
    local[order] = np.arange(len(workload)) - bounds[workload.workflow[order]]
    for flow in np.argsort(workload.workflow_submit_s, kind="stable").tolist():
        tasks = order[bounds[flow] : bounds[flow + 1]]
        if len(tasks):
            yield tasks, _alone(workload, flow, tasks, local)


def _alone(workload: Workload, flow: int, tasks: Longs, local: NDArray[np.int32]) -> Workload:
    counts = workload.parent_start[tasks + 1] - workload.parent_start[tasks]
    start = np.zeros(len(tasks) + 1, np.int64)
    np.cumsum(counts, out=start[1:])
    # For each edge its place in the whole workload: the task's first edge, less those of the tasks before it here.
    edges = np.repeat(workload.parent_start[tasks] - start[:-1], counts) + np.arange(int(start[-1]))
    return Workload(
        name=workload.workflow_names[flow],
        workflow=np.zeros(len(tasks), np.int32),
        release_s=workload.release_s[tasks],
        runtime_s=workload.estimate_s[tasks],  # what a policy sees is what is estimated
        estimate_s=workload.estimate_s[tasks],
        shape=workload.shape[tasks],
        input_bytes=workload.input_bytes[tasks],
        output_bytes=workload.output_bytes[tasks],
        deadline_s=workload.deadline_s[tasks],
        parent_start=start,
        parent=local[workload.parent[edges]],
        parent_bytes=workload.parent_bytes[edges],
        shapes=workload.shapes,
        functions=workload.functions,
        workflow_names=(workload.workflow_names[flow],),
        workflow_submit_s=workload.workflow_submit_s[flow : flow + 1],
    )


def ranks(policy: Policy, workload: Workload, cluster: Cluster) -> Floats:
    """Return the rank of every task, each by its own workflow."""
    assert policy.rank is not None
    if getattr(policy.rank, "vectorised", False):
        return policy.rank(workload, cluster)
    found = np.zeros(len(workload))
    for tasks, workflow in workflows(workload):
        found[tasks] = policy.rank(workflow, cluster)
    return found


def plans(policy: Policy, workload: Workload, cluster: Cluster) -> Plan:
    """Return all plans as one, in the workload's numbers: each workflow planned at its arrival."""
    assert policy.plan is not None
    # One object for all arrivals: its cache is how a planner remembers from one call to the next.
    committed = Committed(float(workload.workflow_submit_s.min(initial=0.0)), policy.params)
    if policy.knows_future or not len(workload):
        return policy.plan(workload, cluster, committed)
    count = len(workload)
    node, variant, order = np.full(count, -1, np.int32), np.full(count, -1, np.int32), np.zeros(count)
    earlier, later, kept = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)], [np.zeros(0, HOLD)]
    for tasks, workflow in workflows(workload):
        committed.now_s = float(workflow.workflow_submit_s[0])
        # What has ended by its plan holds nothing any more, whenever it really ends.
        committed.holds = committed.holds[committed.holds["end_s"] > committed.now_s]
        made = policy.plan(workflow, cluster, committed)
        node[tasks], order[tasks] = made.node, made.order
        if made.variant is not None:
            variant[tasks] = made.variant
        if made.after is not None:
            # `Plan.after` counts the rows of earlier holds first, then the workflow's own tasks.
            rows = np.concatenate([committed.holds["task"], tasks]).astype(np.int32)
            earlier.append(rows[made.after[0]])
            later.append(rows[made.after[1]])
        if made.holds is not None:
            own = made.holds.copy()
            own["task"] = tasks[own["task"]]
            kept.append(own)
            committed.holds = np.concatenate([committed.holds, own])
    # Cores, memory and devices may each ask for the same pair; one edge is enough.
    both = np.unique(np.stack([np.concatenate(earlier), np.concatenate(later)]), axis=1)
    after = (both[0], both[1]) if both.shape[1] else None
    return Plan(node=node, order=order, after=after, variant=variant, holds=np.concatenate(kept))


def note_places(state: Any, workload: Workload, cluster: Cluster, policy: Policy, plan: Plan | None) -> None:
    """Write what is known at arrival into the State: rank or planned order, pins, and places on the DAGs."""
    count = len(workload)
    if not count or not (policy.rank or policy.slack or plan is not None):
        return
    extra = per_task(state, workload)
    if policy.slack:
        found = levels.levels(workload, cluster)
        submit = workload.workflow_submit_s[workload.workflow]
        # Without a deadline a workflow is due when its critical path, at mean speed, is over.
        due = np.where(np.isfinite(workload.deadline_s), workload.deadline_s, submit + found.path)
        # A deadline that cannot be kept leaves no negative slack: the task is due at its earliest start.
        latest = np.maximum(due - found.rest, submit + found.before)
        extra["start_at"][:count] = latest
        extra["slack"][:count] = latest - submit - found.before
        extra["typical"][:count], extra["path"][:count] = found.seconds, found.path
    if policy.rank is not None:
        extra["rank"][:count] = ranks(policy, workload, cluster)
    if plan is not None:
        # After the ranks: a planned order replaces them.
        extra["rank"][:count] = plan.order
        state.tasks.pinned[:count] = plan.node
        if plan.variant is not None:
            state.tasks.pinned_variant[:count] = plan.variant


def per_task(state: Any, workload: Workload) -> Any:
    """Return the table of further facts with a row for each task, made where the State has only one shared row."""
    rows = max(2, len(workload))  # one row means: nothing of the kind
    if len(state.extra) < rows:
        # The row that was shared said nothing of single tasks, so theirs are written anew.
        extra = record_table(EXTRA, rows)
        extra["deadline"] = np.inf
        extra["deadline"][: len(workload)] = workload.deadline_s
        extra["input_bytes"][: len(workload)] = workload.input_bytes
        state.replace(extra=extra)
        state.counts["extra_n"] = rows
    return state.extra

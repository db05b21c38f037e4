"""Notes of a policy about workflows when they arrive or change: ranks, slack, plans. Once per workflow and change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import PARKED, READY, UNKNOWN, WAITING, State
from wattflow.live.nodebook import NodeBook
from wattflow.live.protocol import NotLive
from wattflow.live.shapebook import ShapeBook
from wattflow.model.cluster import Cluster, Node, Zone
from wattflow.model.errors import WattflowError
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import arrivals, levels, registry
from wattflow.policy.base import HOLD, Committed, Policy

log = logging.getLogger(__name__)
Rows = NDArray[np.int64]
_OPEN = (WAITING, READY, PARKED)


def needs_places(policy: Policy) -> bool:
    """Tell whether the policy wants to see workflows when they arrive."""
    return policy.rank is not None or policy.plan is not None or policy.slack


def live_policy(policy: str | Policy) -> Policy:
    """Load a policy by name, ready to decide.

    Raises:
        NotLive: It plans the whole workload before the first arrival.
    """
    made = registry.load(policy) if isinstance(policy, str) else policy
    if made.knows_future:
        raise NotLive(
            f"policy {made.name!r} plans the whole workload before the first arrival; it cannot run live, where "
            "tasks are not known in advance"
        )
    if made.ready is not None:
        made.ready()
    return made


def tasks_of(state: State, workflow: int) -> list[int]:
    """Return the rows of a workflow's tasks, in the order in which they were put."""
    rows, sibling = [], state.marks.sibling
    task = int(state.workflows.first_task[workflow])
    while task >= 0:
        rows.append(task)
        task = int(sibling[task])
    return rows[::-1]


class WorkflowNotes:
    """Notes of one engine's workflows for one policy.

    Attributes:
        missed: Something came before the first node, and has no notes yet. Snapshots of older versions have none.
    """

    missed = False

    def __init__(self, state: State, nodes: NodeBook, shapes: ShapeBook, base: Cluster | None) -> None:
        self.state, self.nodes, self.shapes, self.base = state, nodes, shapes, base
        self.committed = Committed(0.0, {})
        self._cluster: Cluster | None = None
        self._node_rows: Rows = np.zeros(0, np.int64)
        self._names: list[str] = []
        self._parts: dict[bytes, Cluster] = {}

    @property
    def unplanned(self) -> dict[int, str]:
        """Tell why workflows could not be planned, by their tasks' rows. Snapshots of older versions have none."""
        found: dict[int, str] = self.__dict__.setdefault("_unplanned", {})
        return found

    def nodes_changed(self) -> None:
        """Note that the cluster is another one now."""
        self._cluster = None
        self._parts.clear()

    def cluster(self) -> Cluster:
        """Return all nodes that are there, in the order of their rows."""
        if self._cluster is None:
            rows = sorted(self.nodes.facts)
            self._node_rows = np.array(rows, np.int64)
            nodes = tuple(self._named(row) for row in rows)
            self._move_holds([node.name for node in nodes])
            zones = self.base.zones if self.base else ()
            known = {zone.name for zone in zones}
            zones += tuple(Zone(name) for name in self.nodes.zones if name not in known)
            if self.base is not None:
                self._cluster = replace(self.base, nodes=nodes, zones=zones)
            else:
                self._cluster = Cluster("live", nodes, zones or (Zone(),))
        return self._cluster

    def _named(self, row: int) -> Node:
        """Return a row's node; one that leaves while another of its name has come already goes by its row."""
        node = self.nodes.facts[row].node
        return node if self.nodes.by_name.get(node.name) == row else replace(node, name=f"{node.name} ({row}, leaving)")

    def _move_holds(self, names: list[str]) -> None:
        """Move planned holds, which name nodes by their place in the cluster, when nodes come and go."""
        index = {name: i for i, name in enumerate(names)}
        place = np.array([index.get(name, -1) for name in self._names], np.int64)
        held = self.committed.holds
        if len(held):
            node = place[held["node"]]
            self.committed.holds = held[node >= 0].copy()
            self.committed.holds["node"] = node[node >= 0]
        self._names = names

    def start(self, policy: Policy) -> None:
        """Begin with another policy: nothing is planned yet."""
        self.committed, self.missed = Committed(0.0, policy.params), False
        self.unplanned.clear()

    def note(
        self, policy: Policy, workflows: list[int], loose: list[int], add_lane: Callable[[int, int], None]
    ) -> None:
        """Write what the policy says of these workflows and of tasks without one into the State."""
        flows = [tasks_of(self.state, w) for w in workflows] + [[task] for task in loose]
        flows = [flow for flow in flows if flow]
        # Without nodes there is nothing to rank or plan by: the engine asks again when the first has come.
        self.missed = self.missed or (bool(flows) and not self.nodes.facts)
        if not flows or self.missed:
            return
        if policy.plan is not None:
            for flow in flows:
                self._plan_or_tell(policy, flow, add_lane)
            return
        rows = np.array([task for flow in flows for task in flow], np.int64)
        workload = self._workload(flows, rows)
        cluster = self.cluster()
        extra = self.state.extra
        if policy.slack:
            found = levels.levels(workload, cluster)
            submit = workload.workflow_submit_s[workload.workflow]
            due = np.where(np.isfinite(workload.deadline_s), workload.deadline_s, submit + found.path)
            latest = np.maximum(due - found.rest, submit + found.before)
            extra.start_at[rows], extra.slack[rows] = latest, latest - submit - found.before
            extra.typical[rows], extra.path[rows] = found.seconds, found.path
        if policy.rank is not None:
            extra.rank[rows] = arrivals.ranks(policy, workload, cluster)

    def known(self, workflows: Sequence[int], loose: Sequence[int] = ()) -> Workload | None:
        """Return these workflows as they are estimated, and tasks without one, each alone; None without any task."""
        flows = [flow for flow in (tasks_of(self.state, w) for w in workflows) if flow] + [[task] for task in loose]
        if not flows:
            return None
        return self._workload(flows, np.array([task for flow in flows for task in flow], np.int64))

    def _plan_or_tell(self, policy: Policy, flow: list[int], add_lane: Callable[[int, int], None]) -> None:
        """Plan a workflow. Where the planner raises (a task that no node can take), its tasks go without a plan: the
        policy's order and costs place what can be placed, and `unplanned` has the reason."""
        for task in flow:
            self.unplanned.pop(task, None)
        try:
            self._plan(policy, flow, add_lane)
        except Exception as error:
            log.warning("%s cannot plan a workflow of %d tasks: %s", policy.name, len(flow), error)
            said = str(error) if isinstance(error, WattflowError) else f"{type(error).__name__}: {error}"
            self.unplanned.update(dict.fromkeys(flow, f"{policy.name} cannot plan it: {said}"))

    def _plan(self, policy: Policy, flow: list[int], add_lane: Callable[[int, int], None]) -> None:
        """Plan a workflow's tasks that are not placed yet, with what was planned before committed."""
        assert policy.plan is not None
        states = self.state.tasks.state
        rows = np.array([task for task in flow if states[task] in _OPEN], np.int64)
        if not len(rows):
            return
        workload, committed = self._workload([rows.tolist()], rows), self.committed
        where = self._allowed(rows)
        places = np.flatnonzero(where.all(axis=0))
        cluster = self._part(places)
        if cluster is None:  # no node may take them all: a task planned where it may not go stays unpinned
            cluster, places = self.cluster(), np.arange(where.shape[1])
        first_time = int(self.state.workflows.started[self.state.tasks.workflow[rows[0]]]) == 0
        # A workflow that has begun is planned from now on: what is placed is no part of the plan any more.
        committed.now_s = float(workload.workflow_submit_s[0] if first_time else self.state.clock.now[0])
        held = committed.holds
        committed.holds = held[(held["end_s"] > committed.now_s) & ~np.isin(held["task"], rows)]
        plan = policy.plan(workload, cluster, self._within(committed, places))
        tasks = self.state.tasks
        node = np.where(plan.node >= 0, places[plan.node], -1)
        # A planner that had to plan over nodes that not all tasks may use: those wait unpinned, in the plan's order.
        node[(node >= 0) & ~where[np.arange(len(rows)), node]] = -1
        tasks.pinned[rows] = np.where(node >= 0, self._node_rows[node], -1)
        self.state.extra.rank[rows] = plan.order
        if plan.variant is not None:
            tasks.pinned_variant[rows] = plan.variant
        if plan.after is not None:
            first = int(np.isin(committed.holds["node"], places).sum())
            for earlier, later in zip(plan.after[0].tolist(), plan.after[1].tolist(), strict=True):
                if earlier >= first and later >= first:  # a lane across workflows is kept by the order alone
                    add_lane(int(rows[earlier - first]), int(rows[later - first]))
        if plan.holds is not None:
            own = plan.holds.copy()
            own["task"], own["node"] = rows[own["task"]], places[own["node"]]
            committed.holds = np.concatenate([committed.holds, own.astype(HOLD)])

    def _allowed(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell whether each of these tasks may go to each node of the cluster, as far as its constraint says."""
        self.cluster()
        state, nodes = self.state, self._node_rows
        if not state.rules[0].tainted and not state.shapes.constraint[state.tasks.form[rows]].any():
            return np.ones((len(rows), len(nodes)), np.bool_)
        place = state.classes.first[state.nodes.cls[nodes]].astype(np.int64) + state.nodes.pos[nodes]
        bits = state.masks[:, place // 64] >> (place % 64).astype(np.uint64)
        found: NDArray[np.bool_] = (bits & np.uint64(1)).astype(np.bool_)[
            state.shapes.constraint[state.tasks.form[rows]]
        ]
        return found

    def _part(self, places: Rows) -> Cluster | None:
        """Cut the cluster to these nodes, the same object each time (planners keep what they derive from it)."""
        whole = self.cluster()
        if len(places) == len(whole.nodes):
            return whole
        if not len(places):
            return None
        key = places.tobytes()
        if key not in self._parts:
            self._parts[key] = replace(whole, nodes=tuple(whole.nodes[i] for i in places.tolist()))
        return self._parts[key]

    def _within(self, committed: Committed, places: Rows) -> Committed:
        """Tell what is committed on these nodes, by their number among them."""
        if len(places) == len(self._node_rows):
            return committed
        number = np.full(len(self._node_rows), -1, np.int64)
        number[places] = np.arange(len(places))
        held = committed.holds[number[committed.holds["node"]] >= 0].copy()
        held["node"] = number[held["node"]]
        return replace(committed, holds=held)

    def _workload(self, flows: list[list[int]], rows: Rows) -> Workload:
        """Open workflows as a Workload; index i is the task of ``rows[i]``."""
        state = self.state
        tasks, links, extra = state.tasks, state.links, state.extra
        forms, shape = np.unique(tasks["form"][rows], return_inverse=True)
        count = links["parent_n"][rows].astype(np.int64)
        child = np.repeat(np.arange(len(rows)), count)
        # For each edge its place in the table: the child's first, and how many of the child's stand before it.
        edges = links["parent_first"][rows][child] + np.arange(len(child)) - (np.cumsum(count) - count)[child]
        # By search, not by a table of all rows, of which a server has a hundred thousand.
        order = np.argsort(rows)
        place = order[np.minimum(np.searchsorted(rows[order], state.parent[edges]), len(rows) - 1)]
        kept = rows[place] == state.parent[edges]  # a parent that is gone holds nobody back
        start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.bincount(child[kept], minlength=len(rows)), out=start[1:])
        estimate = np.nan_to_num(tasks.estimate[rows], nan=0.0)
        flow_of = np.repeat(np.arange(len(flows), dtype=np.int32), [len(flow) for flow in flows])
        owners = tasks.workflow[[flow[0] for flow in flows]]
        now = float(state.clock.now[0])
        submit = np.where(
            owners > 0, state.workflows.submit[owners], np.maximum(now, tasks.release[[f[0] for f in flows]])
        )
        release = np.maximum(tasks.release[rows], submit[flow_of])
        due = np.minimum(extra.deadline[rows], np.where(owners > 0, state.workflows.deadline[owners], np.inf)[flow_of])
        return Workload(
            name="live", workflow=flow_of, release_s=release, runtime_s=estimate, estimate_s=estimate,
            shape=shape.astype(np.int32),
            input_bytes=extra.input_bytes[rows].copy(), output_bytes=np.zeros(len(rows)), deadline_s=due,
            parent_start=start, parent=place[kept].astype(np.int32), parent_bytes=state.parent_bytes[edges[kept]],
            shapes=tuple(self._shape(form) for form in forms.tolist()), functions=tuple(self.shapes.functions),
            workflow_names=tuple(str(i) for i in range(len(flows))), workflow_submit_s=submit.astype(np.float64),
        )  # fmt: skip

    def _shape(self, form: int) -> Shape:
        if form == 0:
            return Shape(0, (Variant(),))
        facts = self.shapes.facts[form]
        return Shape(self.nodes.functions[facts.function], facts.variants, facts.parts)


def open_flows(state: State) -> tuple[list[int], list[int]]:
    """Return workflows with open tasks, and open tasks without one."""
    open_rows = np.flatnonzero(np.isin(state.tasks.state, (*_OPEN, UNKNOWN)))
    owners: Any = state.tasks.workflow[open_rows]
    return np.unique(owners[owners > 0]).tolist(), open_rows[owners == 0].tolist()

"""Costs of every task on every kind of node, ranks, and the way from slots to a Plan, for planning policies.

Processors are cores. A node counts as many as run at full speed at once (``smt`` 1: all hardware threads, each
planned as slow as when all are busy); a task of c cores takes c of them on one node, a device task its share of a
device too. Cold starts, reconfiguration, interference on shared devices and links used by several transfers at once
are not foreseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.build import build_state
from wattflow.engine.settings import PolicySettings
from wattflow.engine.tables import MICRO, UNKNOWN_COST
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import levels
from wattflow.policy.base import HOLD, Committed, Plan
from wattflow.policy.planning import flow, timeline
from wattflow.policy.planning.facts import Floats, Longs, PlanFacts, Slots, empty_slots, handles, jit

SHORTEST_S = 1e-6
"""Tasks that take no time are planned this long, or others could be planned across them."""

PARAMS: Mapping[str, float] = {"overlap": 0.0, "smt": -1.0}
"""Numbers that every planner takes.

overlap: 0 plans transfers as the simulator runs them (after placement, cores held, all parents in one transfer); 1 as
the papers do (each parent's bytes travel from its end on, beside everything else).
smt: 0 plans one task per physical core, 1 one per hardware thread, −1 both and keeps the plan that ends first.
"""


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """A workload on a cluster, ready to plan.

    Attributes:
        cost_s: Seconds of each task on each class, by its quickest offer there; inf where none fits.
        weight: Share of each class in the cluster's cores: mean costs are means over processors.
        mean_s: Mean of ``cost_s`` over the processors that can run the task.
        send_s, send_s_per_byte: Mean cost of handing bytes from a processor to another.
        order: Tasks so that parents come first.
        holds: What earlier plans hold (rows of `base.HOLD`); the slots of this one go round it.
    """

    workload: Workload
    facts: PlanFacts
    cost_s: Floats
    weight: Floats
    mean_s: Floats
    send_s: float
    send_s_per_byte: float
    order: Longs
    holds: NDArray[np.void]

    def edge_s(self) -> Floats:
        """Return the mean communication cost of each edge, in the order of ``child``."""
        size = self.facts.child_bytes
        return np.where(size > 0, self.send_s + size * self.send_s_per_byte, 0.0)


Maker = Callable[[PlanningProblem, Mapping[str, float]], tuple[PlanningProblem, Slots]]
"""How a planner fills slots; the Problem comes back because some close nodes."""


def problem(
    workload: Workload,
    cluster: Cluster,
    params: Mapping[str, float],
    settings: PolicySettings | None = None,
    committed: Committed | None = None,
) -> PlanningProblem:
    """Return costs of every task on every class of nodes, by the engine's own tables."""
    cache = {} if committed is None else committed.cache
    # The shapes and the cluster stay the same objects for a whole run; the references keep their ids from being reused.
    key = (id(workload.shapes), id(cluster), settings, params.get("smt", 0.0) > 0, params.get("overlap", 0.0))
    if key not in cache:
        cache[key] = (workload.shapes, cluster, _offered(workload, cluster, params, settings or PolicySettings()))
    offered: _Offered = cache[key][2]
    facts = _facts(workload, offered)
    cost_s = facts.estimate_s[:, None] * offered.quickest[facts.shape]
    # A platform that would stop the task is no place for it.
    cost_s = np.where(cost_s <= facts.limit_s, cost_s, np.inf)
    weight = offered.weight
    with np.errstate(invalid="ignore"):
        able = np.isfinite(cost_s)
        # The least float above 0 keeps the division defined where no class can run the task; the next line replaces it.
        mean_s = np.where(able, cost_s, 0.0) @ weight / np.maximum(able @ weight, 1e-300)
    mean_s = np.where(able.any(axis=1), mean_s, facts.estimate_s)
    order = workload.topological_order() if workload.edge_count else np.arange(len(workload), dtype=np.int64)
    holds = np.zeros(0, HOLD) if committed is None else committed.holds
    return PlanningProblem(
        workload, facts, cost_s, weight, mean_s, offered.send_s, offered.send_s_per_byte, order, holds
    )


@dataclass(frozen=True, slots=True)
class _Offered:
    """Facts that depend on the shapes and the cluster alone: rows of Facts, and what follows from them."""

    rows: dict[str, Any]
    quickest: Floats
    weight: Floats
    send_s: float
    send_s_per_byte: float


def _offered(workload: Workload, cluster: Cluster, params: Mapping[str, float], settings: PolicySettings) -> _Offered:
    state: Any = build_state(workload, cluster, settings)
    nodes, classes, variants = state.nodes, state.classes, state.variants
    rows = _offers(state, smt=params.get("smt", 0.0) > 0)
    devices = state.device_classes[state.devices.cls]
    # The table of devices has a row even where there is none.
    real = len(state.devices) if nodes.device_n.sum() else 0
    capacity = rows.pop("capacity_u")
    rows |= {
        "offer_first": state.shapes.variant_first.astype(np.int64),
        "offer_n": state.shapes.variant_n.astype(np.int64),
        "share_u": variants.share_u.astype(np.int64),
        "device_bytes": variants.device_memory.astype(np.int64),
        "devices": variants.devices.astype(np.int64),
        "device_ok": _device_ok(state, real),
        "device_speed": devices.speed[:real].astype(np.float64),
        "device_sharing": devices.sharing[:real].astype(np.int64),
        "device_watts": (devices.full_w - devices.idle_w)[:real].astype(np.float64),
        "device_first": nodes.device_first.astype(np.int64),
        "device_n": nodes.device_n.astype(np.int64),
        "cls": nodes.cls.astype(np.int64),
        "free_u": np.concatenate([capacity[nodes.cls], np.full(real, MICRO)]).astype(np.int64),
        "free_bytes": np.concatenate([classes.memory[nodes.cls], devices.memory[:real]]).astype(np.int64),
        "seconds_per_byte": 1.0 / classes.bandwidth,
        "latency_s": classes.latency_s.copy(),
        "zone_latency_s": classes.zone_latency_s.copy(),
        "zone": classes.zone.astype(np.int64),
        "stores": (classes.serverless[nodes.cls] == 0).astype(np.uint8),
        "limit_s": classes.limit_s.copy(),
        "overlap": np.array([int(params.get("overlap", 0.0))], np.int64),
    }
    # By cores, as the mean costs are means over processors.
    cores = np.bincount(rows["cls"], weights=rows["free_u"][: len(nodes)], minlength=len(classes))
    return _Offered(rows, _quickest(rows), cores / cores.sum(), *_mean_link(rows))


def _facts(workload: Workload, offered: _Offered) -> PlanFacts:
    count = len(workload)
    if workload.edge_count:
        child_start, child, child_bytes = workload.children()
    else:
        child_start, child, child_bytes = np.zeros(count + 1, np.int64), np.zeros(0, np.int32), np.zeros(0)
    return PlanFacts(
        estimate_s=np.maximum(known_estimates(workload), SHORTEST_S),
        release_s=workload.release_s.copy(),
        shape=workload.shape.astype(np.int64),
        input_bytes=workload.input_bytes.copy(),
        parent_start=workload.parent_start.astype(np.int64),
        parent=workload.parent.astype(np.int64),
        parent_bytes=workload.parent_bytes.copy(),
        child_start=child_start.astype(np.int64),
        child=child.astype(np.int64),
        child_bytes=np.ascontiguousarray(child_bytes, np.float64),
        depth=_depth(workload),
        **offered.rows,
    )


def known_estimates(workload: Workload) -> Floats:
    """Estimates; a task without one counts as one of a second (`levels.GUESS_S`)."""
    return np.where(np.isnan(workload.estimate_s), levels.GUESS_S, workload.estimate_s)


def _depth(workload: Workload) -> Longs:
    """Count the edges of the longest path from an entry."""
    depth = np.zeros(len(workload), np.int64)
    if workload.edge_count:
        _levels(workload.topological_order(), workload.parent_start, workload.parent, depth)
    return depth


@jit
def _levels(order, parent_start, parent, depth):
    for i in range(order.size):
        task = order[i]
        for e in range(parent_start[task], parent_start[task + 1]):
            depth[task] = max(depth[task], depth[parent[e]] + 1)


def _offers(state: Any, smt: bool) -> dict[str, Any]:
    """Needs, slowness and watts of each offer on each class. A gang goes to one node or is not planned."""
    classes, variants, shapes = state.classes, state.variants, state.shapes
    owner = np.repeat(np.arange(len(shapes)), shapes.variant_n)
    # Without shapes there is one row that belongs to nobody.
    if len(owner) < len(variants):
        owner = np.zeros(len(variants), np.int64)
    function, parts = shapes.function[owner], np.maximum(shapes.parts[owner], 1)
    speed = np.where((variants["device"] > 0)[:, None], 1.0, state.speed[:, function].T)
    # Levels that no node has fit nowhere; any column does for them.
    level = np.minimum(variants.frequency, state.frequency_speed.shape[1] - 1)
    bound = state.functions.compute_bound[function]
    slow = np.where(level[:, None] > 0, state.frequency_speed[:, level].T, 1.0)
    slow = np.where(slow > 0, slow, 1.0)
    factor = variants.factor[:, None] / speed * ((1.0 - bound[:, None]) + bound[:, None] / slow)
    capacity = np.minimum(classes.request_u, classes.burst_u)
    if not smt:
        capacity = np.minimum(capacity, classes.cores * MICRO)
    asked = variants.cores_u * parts
    # With SMT every thread is planned as slow as when all of them are busy, whoever is there.
    full = np.maximum(asked[:, None], capacity[None, :] if smt else 0) / MICRO
    factor = factor * np.where((variants["device"] > 0)[:, None], 1.0, _stretch(classes, full))
    need = np.minimum(asked, int(capacity.max()))
    fits = (asked[:, None] <= np.maximum(capacity, classes.request_u)) & (state.class_ok == 1)
    fits &= (variants.memory * parts)[:, None] <= classes.memory
    # Gangs whose parts need devices are not planned: the engine places them.
    fits &= (parts == 1)[:, None] | (variants.devices == 0)[:, None]
    fits &= need[:, None] <= capacity
    # Levels of devices are not planned: they are chosen with the place, by policies that score.
    fits &= (variants.level == 0)[:, None]
    return {
        "factor": np.ascontiguousarray(np.where(fits, factor, np.inf)),
        "watts": _watts(state, parts, capacity / MICRO),
        "need_u": need.astype(np.int64),
        "need_bytes": (variants.memory * parts).astype(np.int64),
        "capacity_u": capacity.astype(np.int64),
    }


def _stretch(classes: NDArray[np.void], busy: Floats) -> Floats:
    """Return how much longer a task takes with so many busy cores on its node: D / X(D) (physics, section 6)."""
    cores, threads, gain = classes["cores"], classes["threads"], classes["smt_gain"]
    done = cores + (np.minimum(busy, threads) - cores) * gain
    return np.asarray(np.where(busy <= cores, 1.0, busy / np.where(busy <= cores, 1.0, done)))


def _node_watts(state: Any, busy: Floats) -> Floats:
    """P(k) of each class with so many busy threads, devices left out."""
    found = np.zeros(len(busy))
    for c, kind in enumerate(state.classes):
        curve = state.grid[kind.grid_first : kind.grid_first + kind.grid_n]
        found[c] = np.interp(busy[c] * kind.grid_per_core, np.arange(len(curve)), curve)
    return found


def _watts(state: Any, parts: NDArray[np.generic], processors: Floats) -> Floats:
    """Return watts above idle of each offer on each class; unknown curves lose to all.

    A processor draws the mean slope of the node's curve up to where all that are planned with are busy: (P(n) − P(0)) /
    n. On n = cores that is more for each than on n = threads, where SMT makes them slower instead (`_stretch`). Below
    the nominal frequency the watts above idle fall as the node's levels say. Nodes that can sleep also answer for their
    idle watts, by the share of cores taken.
    """
    classes, variants = state.classes, state.variants
    cores = variants.cores_u * parts / MICRO
    level = np.minimum(variants.frequency[:, None], np.maximum(classes.frequency_n - 1, 0)[None, :])
    power = state.frequency_power[np.arange(len(classes))[None, :], level]
    power = np.where(variants.frequency[:, None] > 0, power, 1.0)
    busy = np.maximum(np.minimum(processors, classes.threads), 1e-6)
    dynamic = (_node_watts(state, busy) - (classes.idle_w - classes.device_idle_w)) / busy
    # A node that sleeps when it is empty is awake for those who hold its cores: they answer for its idle watts.
    held = np.where(classes.sleepable == 1, (classes.idle_w - classes.sleep_w) / classes.cores, 0.0)
    watts = cores[:, None] * (dynamic * power + held)
    return np.ascontiguousarray(np.where(classes.known_power == 1, watts, UNKNOWN_COST))


def _device_ok(state: Any, real: int) -> NDArray[np.uint8]:
    variants, kinds = state.variants, state.device_classes[state.devices.cls[:real]]
    ok = variants["device"][:, None] == kinds.kind[None, :]
    ok &= variants.device_memory[:, None] <= kinds.memory[None, :]
    model = np.left_shift(np.uint64(1), kinds.model.astype(np.uint64))
    ok &= (variants.models == 0)[:, None] | ((variants.models[:, None] & model[None, :]) != 0)
    return np.ascontiguousarray(ok & (variants["device"] > 0)[:, None], np.uint8)


def _quickest(rows: Mapping[str, Any]) -> Floats:
    """Slowness of each shape on each class by its quickest offer (on the quickest device of the class)."""
    factor, cls, devices, first = rows["factor"].copy(), rows["cls"], rows["device_n"], rows["device_first"]
    best = np.zeros(factor.shape)
    for node in np.unique(cls, return_index=True)[1].tolist():
        own = slice(first[node], first[node] + devices[node])
        if devices[node] and len(rows["device_speed"]):
            # 0 where no device suits: the division below makes it inf.
            speeds = np.where(rows["device_ok"][:, own] == 1, rows["device_speed"][own], 0.0)
            best[:, cls[node]] = speeds.max(axis=1)
    with np.errstate(divide="ignore"):
        factor = np.where((rows["devices"] > 0)[:, None], factor / best, factor)
    shapes = np.full((len(rows["offer_first"]), factor.shape[1]), np.inf)
    for s, (at, n) in enumerate(zip(rows["offer_first"].tolist(), rows["offer_n"].tolist(), strict=True)):
        if n:
            shapes[s] = factor[at : at + n].min(axis=0)
    return shapes


def _mean_link(rows: Mapping[str, Any]) -> tuple[float, float]:
    """Mean latency and seconds per byte between two different processors; those of one node hand over for nothing."""
    cls = rows["cls"]
    cores = np.maximum(rows["free_u"][: len(cls)] / MICRO, 1.0)
    pairs = cores.sum() * (cores.sum() - 1.0)
    # Pairs of cores on one node hand over for nothing; a single core has no pair at all.
    apart = 1.0 - float((cores * (cores - 1.0)).sum()) / pairs if pairs > 0 else 0.0
    weight = cores / cores.sum()
    latency, per_byte = rows["latency_s"][cls] @ weight, rows["seconds_per_byte"][cls] @ weight
    return float(latency) * apart, float(per_byte) * apart


def upward_rank(problem: PlanningProblem) -> Floats:
    """rank_u(t) = mean cost + max over children (mean communication + rank_u). Topcuoglu et al., eq. 8."""
    rank = np.zeros(len(problem.order))
    _upward(problem.order, problem.facts.child_start, problem.facts.child, problem.edge_s(), problem.mean_s, rank)
    return rank


def downward_rank(problem: PlanningProblem) -> Floats:
    """rank_d(t) = max over parents (rank_d + mean cost + mean communication). Topcuoglu et al., eq. 11."""
    rank = np.zeros(len(problem.order))
    _downward(problem.order, problem.facts.child_start, problem.facts.child, problem.edge_s(), problem.mean_s, rank)
    return rank


@jit
def _upward(order, child_start, child, edge_s, mean_s, rank):
    for i in range(order.size - 1, -1, -1):
        task = order[i]
        longest = 0.0
        for e in range(child_start[task], child_start[task + 1]):
            longest = max(longest, edge_s[e] + rank[child[e]])
        rank[task] = mean_s[task] + longest


@jit
def _downward(order, child_start, child, edge_s, mean_s, rank):
    for i in range(order.size):
        task = order[i]
        for e in range(child_start[task], child_start[task + 1]):
            rank[child[e]] = max(rank[child[e]], rank[task] + mean_s[task] + edge_s[e])


def schedule(
    problem: PlanningProblem, priority: Floats, bias: Floats | None = None, only: Longs | None = None
) -> Slots:
    """List scheduling with insertion, round what is held already: see `timeline.list_schedule`."""
    facts = problem.facts
    slots = empty_slots(facts, held=len(problem.holds))
    if bias is None:
        bias = np.zeros((1, problem.cost_s.shape[1]))
    if only is None:
        only = np.full(len(priority), -1, np.int64)
    if len(priority):
        tables = handles(facts, slots)
        if len(problem.holds):
            timeline.hold(*tables, *(np.ascontiguousarray(problem.holds[name]) for name in timeline.HELD))
        timeline.list_schedule(*tables, priority, np.ascontiguousarray(bias), only)
    return slots


def follow(
    workload: Workload, cluster: Cluster, committed: Committed, make: Maker, settings: PolicySettings | None = None
) -> Plan:
    """Return the Plan of a planner's slots; with ``smt`` −1 the earlier end of two (physical cores when equal).

    As long as earlier plans hold anything their choice of ``smt`` stays: the two plan different speeds of one node.
    """
    params = committed.params
    smt = params.get("smt", -1.0)
    # Two choices would plan different speeds for one node.
    if smt < 0 and len(committed.holds):
        smt = committed.cache["smt"]
    if smt < 0:
        threaded = any(node.request_cores > node.cores for node in cluster.nodes)
        tried = [float(value) for value in ((0, 1) if threaded else (0,))]
    else:
        tried = [smt]
    problems = [problem(workload, cluster, {**params, "smt": chosen}, settings, committed) for chosen in tried]
    found = [make(one, params) for one in problems]
    # The first of equal ends: physical cores.
    best = min(range(len(found)), key=lambda i: makespan_s(*found[i]))
    committed.cache["smt"] = tried[best]
    return to_plan(*found[best])


def to_plan(problem: PlanningProblem, slots: Slots) -> Plan:
    """Return the Plan that makes the engine follow these slots."""
    facts = problem.facts
    offset = slots.offer - facts.offer_first[facts.shape]
    own = flow.holds(facts, slots)
    return Plan(
        node=slots.node.astype(np.int32),
        order=slots.start_s.copy(),
        after=flow.waits(facts, problem.order, problem.holds, own),
        variant=np.where(slots.node >= 0, offset, -1).astype(np.int32),
        holds=own,
    )


def makespan_s(problem: PlanningProblem, slots: Slots) -> float:
    """Return the last planned end − first release."""
    return float(slots.end_s.max() - problem.facts.release_s.min()) if len(slots.end_s) else 0.0

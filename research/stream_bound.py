"""A lower bound on the joules of a stream whose workflows end by due times: an integer relaxation (HiGHS).

Time is cut at some instants. At each, N nodes of a class are on, a whole number; between two of them some fall asleep
and some wake, N' = N − falls + wakes, and N − falls of them are on all the while. All nodes are on at first. Work of a
task may be done by any class between its earliest start and its latest end, with as much throughput as nodes are on;
tasks that run at an instant in every schedule that is in time (latest start ≤ t < earliest end) must fit the threads of
the N; and while the longest chain of a workflow runs, some node is on. Joules are those of `node_offers`, and of each
fall and wake. Every schedule of the simulator in time is a solution, if tasks reserve the cores that they keep busy;
windows are widened to the cuts, and waiting, data, cold starts and failures only add. Where the solver runs out of
time, its own lower bound stands.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import MissingExtra
from wattflow.model.workload import Workload
from wattflow.plan import relaxation
from wattflow.plan.node_offers import Floats, Longs, PlanOffers, idle_w, least_by_task, offers, still_w

CUTS, LIMIT_S, GAP = 64, 20.0, 0.005
"""Instants at which time is cut, seconds for the solver, and how near to its best answer it stops."""


@dataclass(frozen=True, slots=True)
class _Windows:
    """Earliest start and latest end of each task, and its least seconds."""

    start_s: Floats
    end_s: Floats
    run_s: Floats


def least_joules(workload: Workload, cluster: Cluster, due_s: Floats, horizon_s: float, cuts: int = CUTS) -> float:
    """Bound the joules to the horizon, or a later end, of all schedules in which workflow i ends by ``due_s[i]``.

    Needs SciPy (extra `plan`). inf where no schedule can be in time.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError as error:
        raise MissingExtra("bounds by integer programming need SciPy: pip install 'wattflow[plan]'") from error
    programme = _Programme(workload, cluster, due_s, horizon_s, cuts)
    if not programme.in_time:
        return float("inf")
    low, high, right_low, right_high = programme.limits()
    found = milp(
        programme.cost(),
        constraints=LinearConstraint(programme.rows(), right_low, right_high),
        bounds=Bounds(low, high),
        integrality=programme.integral(),
        options={"time_limit": LIMIT_S, "mip_rel_gap": GAP},
    )
    if found.status == 2:
        return float("inf")
    # The solver's own lower bound, not its best answer: it holds even where time ran out.
    least = found.mip_dual_bound if found.mip_dual_bound is not None else 0.0
    return float(least) * programme.unit_j + programme.standing_j


def windows(workload: Workload, offered: PlanOffers, due_s: Floats) -> _Windows:
    """Between what must come before a task and what must follow, each as quick as can be."""
    run_s = least_by_task(workload, offered.seconds, offered)
    # Absolute times: dues are.
    start_s = relaxation.heads_s(workload, run_s) - run_s + float(workload.release_s.min())
    end_s = due_s[workload.workflow] - relaxation.tails_s(workload, run_s)
    return _Windows(start_s, end_s, run_s)


def cut_at(found: _Windows, cores: Floats, last_s: float, cuts: int) -> tuple[Floats, Floats]:
    """Instants, and the cores of tasks that surely run there: the most crowded one of each equal part of the time."""
    # From its latest start to its earliest end a task runs in every schedule that is in time.
    begin_s, stop_s = found.end_s - found.run_s, found.start_s + found.run_s
    sure = stop_s > begin_s
    at = np.concatenate([begin_s[sure], stop_s[sure]])
    change = np.concatenate([cores[sure], -cores[sure]])
    order = np.lexsort((change, at))  # at one instant ends count before starts
    at, width = at[order], np.cumsum(change[order])
    first_s = float(found.start_s.min())
    edges = np.linspace(first_s, last_s, cuts + 1)
    # The first instant has no width: nothing runs yet.
    times, widths = [first_s], [0.0]
    for low, high in itertools.pairwise(edges.tolist()):
        inside = np.flatnonzero((at > max(low, times[-1])) & (at < high))
        if len(inside):
            # One instant of each part, the most crowded: it says the most about nodes that must be on.
            best = inside[np.argmax(width[inside])]
            times.append(float(at[best]))
            widths.append(float(width[best]))
    return np.array([*times, last_s]), np.array([*widths, 0.0])


class _Programme:
    """Columns: node counts, falls, wakes, seconds on and busy (each by class and interval), then work by group."""

    def __init__(self, workload: Workload, cluster: Cluster, due_s: Floats, horizon_s: float, cuts: int) -> None:
        self.offered = offered = offers(workload, cluster)
        found = windows(workload, offered, due_s)
        # A task that cannot be in time even alone: no programme is needed.
        self.in_time = bool((found.end_s - found.start_s >= found.run_s * (1 - 1e-9)).all())
        least_cores = _least_cores(workload, offered)
        last_s = max(horizon_s, float(due_s.max()))
        self.at, self.width = cut_at(found, least_cores, last_s, cuts)
        self.length = np.diff(self.at)
        self.steps, self.classes = len(self.length), len(offered.nodes)
        kinds = {int(c): node for node, c in zip(cluster.nodes, offered.cls.tolist(), strict=True)}
        self.kinds: list[Node] = [kinds[c] for c in range(self.classes)]
        self.groups, self.amount = _groups(workload, offered, found, self.at)
        self.block = self.classes * self.steps
        self.chains = _chains(workload, found, self.at)
        self.standing_j = float((offered.still_w * offered.nodes).sum()) * (horizon_s - float(self.at[0]))
        joules = [piece for group in self.groups for piece in group.joules]
        # Costs near 1, as solvers like them.
        self.unit_j = max(1.0, float(np.mean(joules)) if joules else 1.0)
        self.unit_s = max(1e-9, float(self.length.mean()))

    def _column(self, kind: int, cls: int, step: int) -> int:
        return kind * self.block + cls * self.steps + step

    def cost(self) -> Floats:
        """In units of `unit_j`; what stands still is left out."""
        awake_w = np.maximum(self.offered.idle_w - self.offered.still_w, 0.0)
        waking_j = np.array([wake_j(node) for node in self.kinds])
        each = (
            np.zeros(self.classes),
            self.offered.enter_j,
            waking_j,
            awake_w * self.unit_s,
            self.offered.busy_w * self.unit_s,
        )
        parts = [np.repeat(values, self.steps) for values in each]
        work = [np.repeat(group.joules, group.steps) * self.amount for group in self.groups]
        return np.concatenate([*parts, *work]) / self.unit_j

    def integral(self) -> Longs:
        found = np.zeros(5 * self.block + sum(group.columns for group in self.groups), np.int64)
        # Nodes, falls and wakes are whole; seconds and work are not.
        found[: 3 * self.block] = 1
        return found

    def limits(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of columns, then of rows."""
        nodes = np.repeat(self.offered.nodes.astype(np.float64), self.steps)
        sleeps = np.repeat(
            [float(node.sleep is not None or node.faults is not None) for node in self.kinds], self.steps
        )
        seconds = nodes * np.tile(self.length, self.classes) / self.unit_s
        work = np.full(sum(group.columns for group in self.groups), np.inf)
        low = np.zeros(5 * self.block + len(work))
        first = [self._column(0, c, 0) for c in range(self.classes)]
        low[first] = self.offered.nodes  # all are on at first
        # A node that cannot sleep never falls; one that fails may be off, so it counts as able to.
        high = np.concatenate([nodes, nodes * sleeps * self.steps, nodes * sleeps * self.steps, seconds, seconds, work])
        self.rows()
        # `rows` fills the limits on the way.
        return low, high, np.array(self._low), np.array(self._high)

    def rows(self) -> Any:
        """Return the matrix; its limits are kept."""
        from scipy.sparse import csr_array

        self._low: list[float] = []
        self._high: list[float] = []
        self._row: list[int] = []
        self._col: list[int] = []
        self._val: list[float] = []
        self._nodes()
        self._work()
        shape = (len(self._low), 5 * self.block + sum(group.columns for group in self.groups))
        return csr_array((self._val, (self._row, self._col)), shape=shape)

    def _add(self, columns: Any, values: Any, low: float, high: float) -> None:
        self._row += [len(self._low)] * len(columns)
        self._col += list(columns)
        self._val += list(values)
        self._low.append(low)
        self._high.append(high)

    def _nodes(self) -> None:
        """Counts from instant to instant, seconds on, threads for those who surely run, a node for each chain."""
        column, inf = self._column, np.inf
        for c in range(self.classes):
            for k in range(self.steps):
                if k + 1 < self.steps:
                    self._add(
                        [column(0, c, k + 1), column(0, c, k), column(1, c, k), column(2, c, k)],
                        [1.0, -1.0, 1.0, -1.0],
                        0.0,
                        0.0,
                    )
                here = float(self.length[k]) / self.unit_s
                # N − falls of them are on all the while.
                self._add([column(3, c, k), column(0, c, k), column(1, c, k)], [1.0, -here, here], 0.0, inf)
                self._add([column(3, c, k), column(4, c, k)], [1.0, -1.0], 0.0, inf)
        threads = [float(node.request_cores) for node in self.kinds]
        for k in np.flatnonzero(self.width[: self.steps] > 0).tolist():
            self._add([column(0, c, k) for c in range(self.classes)], threads, float(self.width[k]), inf)
        for first, stop, seconds in self.chains:
            inside = [column(3, c, k) for c in range(self.classes) for k in range(first, stop)]
            self._add(inside, np.ones(len(inside)), seconds / self.unit_s, inf)

    def _work(self) -> None:
        """Require that all work is done in its window, by nodes that are on."""
        used: dict[tuple[int, int], list[tuple[int, float]]] = {}
        at = 5 * self.block
        for group in self.groups:
            # At least: what is done twice only costs.
            self._add(range(at, at + group.columns), np.ones(group.columns), group.seconds / self.amount, np.inf)
            for row, (cls, work) in enumerate(zip(group.cls.tolist(), group.work.tolist(), strict=True)):
                for k in range(group.steps):
                    if work > 0:
                        used.setdefault((cls, group.first + k), []).append((at + row * group.steps + k, work))
            at += group.columns
        for (cls, k), pieces in used.items():
            columns = [*(place for place, _ in pieces), self._column(4, cls, k)]
            room = -float(self.offered.throughput[cls]) * self.unit_s / self.amount
            self._add(columns, [*(work for _, work in pieces), room], -np.inf, 0.0)


@dataclass(frozen=True, slots=True)
class _Group:
    """Tasks of one window and one table of options: seconds of their own, and per such second joules and work."""

    first: int
    steps: int
    seconds: float
    cls: Longs
    joules: Floats
    work: Floats

    @property
    def columns(self) -> int:
        return self.steps * len(self.cls)


def _groups(workload: Workload, offered: PlanOffers, found: _Windows, at: Floats) -> tuple[list[_Group], float]:
    """Return tasks alike in window and options, and the unit of their seconds."""
    tables = []
    for first, count in zip(offered.first.tolist(), offered.count.tolist(), strict=True):
        rows = relaxation.undominated(offered, first, count)
        option, cls = rows[:, 0], rows[:, 1]
        work = np.where(offered.device[option] > 0, 0.0, offered.cores[option]) * offered.seconds[option, cls]
        tables.append((cls, offered.joules[option, cls], work))
    alike: dict[tuple[bytes, ...], int] = {}
    kind = np.array([alike.setdefault(tuple(part.tobytes() for part in table), len(alike)) for table in tables])
    # Widened to the cuts on both sides: a bound may allow more, never less.
    first = np.clip(np.searchsorted(at, found.start_s, side="right") - 1, 0, len(at) - 2)
    last = np.clip(np.searchsorted(at, found.end_s, side="left") - 1, first, len(at) - 2)
    keys = np.stack([kind[workload.shape], first, last], axis=1)
    each, member = np.unique(keys, axis=0, return_inverse=True)
    seconds = np.bincount(member.ravel(), weights=workload.runtime_s, minlength=len(each))
    example = {number: table for number, table in zip(kind.tolist(), tables, strict=True)}
    groups = [
        _Group(int(low), int(high - low) + 1, float(total), *example[int(number)])
        for (number, low, high), total in zip(each.tolist(), seconds.tolist(), strict=True)
        # Shapes that fit nowhere have no columns.
        if len(example[int(number)][0])
    ]
    return groups, max(1e-9, float(np.mean(seconds)))


def _chains(workload: Workload, found: _Windows, at: Floats) -> list[tuple[int, int, float]]:
    """Of each workflow the intervals of its window and the seconds of its longest chain."""
    flows = len(workload.workflow_names)
    begin, end, longest = np.full(flows, np.inf), np.zeros(flows), np.zeros(flows)
    np.minimum.at(begin, workload.workflow, found.start_s)
    np.maximum.at(end, workload.workflow, found.end_s)
    ahead = relaxation.tails_s(workload, found.run_s) + found.run_s
    np.maximum.at(longest, workload.workflow, ahead)
    first = np.clip(np.searchsorted(at, begin, side="right") - 1, 0, len(at) - 2)
    stop = np.clip(np.searchsorted(at, end, side="left"), first + 1, len(at) - 1)
    return [(int(a), int(b), float(s)) for a, b, s in zip(first, stop, longest, strict=True) if s > 0]


def _least_cores(workload: Workload, offered: PlanOffers) -> Floats:
    """Return cores that each task takes whichever option is chosen."""
    least = np.zeros(len(workload.shapes))
    for shape, (first, count) in enumerate(zip(offered.first.tolist(), offered.count.tolist(), strict=True)):
        able = np.isfinite(offered.seconds[first : first + count]).any(axis=1)
        least[shape] = float(offered.cores[first : first + count][able].min(initial=np.inf)) if able.any() else 0.0
    return least[workload.shape]


def wake_j(node: Node) -> float:
    """Waking, above the node's stillest watts; where that draws less than idling it may stand for anything."""
    if node.sleep is None or node.faults is not None:
        return 0.0
    watts = idle_w(node) if node.sleep.wake_w is None else node.sleep.wake_w
    return node.sleep.wake_s * (watts - still_w(node)) if watts >= idle_w(node) else 0.0

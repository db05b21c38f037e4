"""A lower bound on energy at a makespan: a linear programme with start times and node area cuts.

Every task is split over its options (variant, frequency, class of nodes); with the split go its seconds, work and
joules. Start times follow the edges, the last end is the makespan T ≤ the limit. Nodes of a class are on for at least
the work given to it over what one node does in a second; a window cut says that work which can begin only after r and
has at least q to follow must fit into T − r − q; and as the tasks of a chain run one after the other, a class is on for
at least the seconds that it runs of any chain. All nodes are on at first: each falls asleep once or stays on. Energy
is a + b · k above idle (see `offers`), idle watts while on, and the stillest watts of all nodes for the rest of T. Each
of these holds for every schedule of the simulator: any guarantee, sharing, sleep rule; waiting, data, cold starts and
failures only add. Solved by HiGHS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, MissingExtra
from wattflow.model.workload import Workload
from wattflow.plan.node_offers import Floats, Longs, PlanOffers, least_by_task, offers

LIMIT_S = 60.0
WINDOWS = 4
"""Window cuts: so many heads × so many tails."""
MOST_WINDOW_TASKS = 2_000
CHAINS = 24
"""Chains that are looked at: the longest first, without common tasks."""
_INFEASIBLE = 2


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A lower bound: no schedule within the limit can undercut it.

    Attributes:
        energy_j: All nodes from the first release to the last end, PUE not included; inf when the limit cannot be kept.
        makespan_s: T of the relaxed schedule.
        solved: False where the solver ran out of time; then it is the plain bound of `energy_bound_j`.
    """

    energy_j: float
    makespan_s: float
    solved: bool = True


@dataclass(frozen=True, slots=True)
class _Splits:
    """One row for each (task, option, class) that can be best."""

    task: Longs
    cls: Longs
    seconds: Floats
    work: Floats
    joules: Floats
    device: Floats


def least_energy(workload: Workload, cluster: Cluster, makespan_s: float = np.inf, limit_s: float = LIMIT_S) -> Relaxed:
    """Bound all schedules that end within ``makespan_s`` of the first release. Needs SciPy (extra `plan`)."""
    try:
        from scipy.optimize import linprog
    except ImportError as error:
        raise MissingExtra("bounds by linear programming need SciPy: pip install 'wattflow[plan]'") from error
    if not makespan_s > 0:
        raise InvalidInput("makespan_s", f"must be above 0, not {makespan_s}")
    if not len(workload):
        return Relaxed(0.0, 0.0)
    least_s = makespan_bound_s(workload, cluster)
    # A rounding below the bound is not below it.
    if makespan_s < least_s * (1 - 1e-9):
        return Relaxed(np.inf, least_s)
    programme = _Programme(workload, offers(workload, cluster), least_s, max(makespan_s, least_s))
    found = linprog(
        programme.cost,
        A_ub=programme.rows(),
        b_ub=np.array(programme.right),
        A_eq=programme.equal_rows(),
        b_eq=np.array(programme.equal_right),
        bounds=programme.limits,
        method="highs",
        options={"time_limit": limit_s},
    )
    if found.status == _INFEASIBLE:
        return Relaxed(np.inf, least_s)
    if found.status != 0:
        return Relaxed(energy_bound_j(workload, cluster), least_s, solved=False)
    return Relaxed(float(found.fun) * programme.unit_j, float(found.x[programme.span]) * programme.unit_s)


class _Programme:
    """Columns: splits; seconds and start of each task; of each class node seconds busy and on, and nodes that sleep; T.

    Seconds are in units of the bound.
    """

    def __init__(self, workload: Workload, offered: PlanOffers, least_s: float, most_s: float) -> None:
        self.workload, self.offered = workload, offered
        # Seconds and joules near 1: solvers count in absolute tolerances.
        self.unit_s = max(least_s, 1e-9)
        splits = self.splits = _splits(workload, offered)
        tasks, classes, count = len(workload), len(offered.nodes), len(splits.task)
        self.length, self.start, self.busy = count, count + tasks, count + 2 * tasks
        self.on, self.asleep = self.busy + classes, self.busy + 2 * classes
        self.span = self.busy + 3 * classes
        self.right: list[float] = []
        self.equal_right: list[float] = []
        self._rows: list[tuple[Longs, Floats]] = []
        self._equal: list[tuple[Longs, Floats]] = []
        awake_w = np.maximum(offered.idle_w - offered.still_w, 0.0)
        still_w = float((offered.still_w * offered.nodes).sum())
        by_class = [offered.busy_w * self.unit_s, awake_w * self.unit_s, offered.enter_j]
        cost = np.concatenate([splits.joules, np.zeros(2 * tasks), *by_class, [still_w * self.unit_s]])
        # The largest cost is 1, for the same reason.
        self.unit_j = max(float(np.abs(cost).max()), 1e-9)
        self.cost = cost / self.unit_j
        ready = (workload.release_s - workload.release_s.min()) / self.unit_s
        most = most_s / self.unit_s
        low: list[Any] = [np.zeros(count + tasks), ready, np.zeros(3 * classes), [least_s / self.unit_s]]
        high: list[Any] = [
            np.ones(count),
            np.full(2 * tasks, most),
            np.full(2 * classes, np.inf),
            offered.nodes,
            [most],
        ]
        self.limits = np.column_stack([np.concatenate(low), np.concatenate(high)])
        self.run_s = least_by_task(workload, offered.seconds, offered)
        self._tasks()
        self._areas()
        self._chains()

    def _tasks(self) -> None:
        """Require each task once, its seconds by its splits, children after parents, and all within T."""
        workload, splits, count = self.workload, self.splits, len(self.workload)
        at = np.searchsorted(splits.task, np.arange(count + 1))
        for task in range(count):
            own = np.arange(at[task], at[task + 1])
            if len(own):
                self._equal.append((own, np.ones(len(own))))
                self.equal_right.append(1.0)
            length = np.append(own, self.length + task)
            self._equal.append((length, np.append(splits.seconds[own] / self.unit_s, -1.0)))
            self.equal_right.append(0.0)
        child = np.repeat(np.arange(count), np.diff(workload.parent_start))
        for a, b in zip(workload.parent.tolist(), child.tolist(), strict=True):
            self._at_most({self.start + a: 1.0, self.length + a: 1.0, self.start + b: -1.0})
        # Only tasks without children: the others end before theirs.
        for task in np.setdiff1d(np.arange(count), workload.parent).tolist():
            self._at_most({self.start + task: 1.0, self.length + task: 1.0, self.span: -1.0})

    def _areas(self) -> None:
        """Node seconds pay for work and devices; windows."""
        splits, offered = self.splits, self.offered
        windows = self._windows()
        for cls in range(len(offered.nodes)):
            mine = np.flatnonzero(splits.cls == cls)
            nodes, each = float(offered.nodes[cls]), float(offered.throughput[cls])
            # On for at most T, busy for at most as long as on.
            self._at_most({self.on + cls: 1.0, self.span: -nodes})
            self._at_most({self.busy + cls: 1.0, self.on + cls: -1.0})
            # T is at least one unit, so nodes that never sleep are on for at least that long each.
            self._at_most({self.on + cls: -1.0, self.asleep + cls: -1.0}, -nodes)
            for amount, room in ((splits.work, each), (splits.device, float(offered.devices[cls]))):
                used = mine[amount[mine] > 0]
                if len(used) and room > 0:
                    self._rows.append((np.append(used, self.busy + cls), np.append(amount[used] / self.unit_s, -room)))
                    self.right.append(0.0)
            for head_s, tail_s, inside in windows:
                used = mine[inside[splits.task[mine]] & (splits.work[mine] > 0)]
                if len(used):
                    room = each * nodes
                    self._rows.append((np.append(used, self.span), np.append(splits.work[used] / self.unit_s, -room)))
                    self.right.append(-room * (head_s + tail_s) / self.unit_s)

    def _chains(self) -> None:
        """Require that a class is on while it runs a task of a chain."""
        for chain in chains(self.workload, self.run_s):
            inside = np.isin(self.splits.task, chain)
            for cls in range(len(self.offered.nodes)):
                used = np.flatnonzero(inside & (self.splits.cls == cls))
                if len(used):
                    seconds = self.splits.seconds[used] / self.unit_s
                    self._rows.append((np.append(used, self.busy + cls), np.append(seconds, -1.0)))
                    self.right.append(0.0)

    def _windows(self) -> list[tuple[float, float, Any]]:
        """(head, tail, tasks that begin no sooner and have at least that to follow), a few of each."""
        workload = self.workload
        # Each window is a row over all tasks, and there are up to 16 of them for each class.
        if len(workload) > MOST_WINDOW_TASKS:
            return []
        # Least seconds before and behind, so the window holds for every schedule.
        heads = heads_s(workload, self.run_s) - self.run_s
        tails = tails_s(workload, self.run_s)
        found = []
        for head_s in np.unique(np.quantile(heads, np.linspace(0, 0.9, WINDOWS), method="lower")):
            for tail_s in np.unique(np.quantile(tails, np.linspace(0, 0.9, WINDOWS), method="lower")):
                if head_s + tail_s > 0:
                    found.append((float(head_s), float(tail_s), (heads >= head_s) & (tails >= tail_s)))
        return found

    def _at_most(self, row: dict[int, float], right: float = 0.0) -> None:
        self._rows.append((np.fromiter(row, np.int64), np.fromiter(row.values(), np.float64)))
        self.right.append(right)

    def rows(self) -> Any:
        """Inequalities as a sparse matrix."""
        return _sparse(self._rows, self.span + 1)

    def equal_rows(self) -> Any:
        """Equations as a sparse matrix."""
        return _sparse(self._equal, self.span + 1)


def _sparse(rows: list[tuple[Longs, Floats]], columns: int) -> Any:
    from scipy.sparse import csr_matrix

    start = np.concatenate([[0], np.cumsum([len(where) for where, _ in rows])])
    where = np.concatenate([where for where, _ in rows])
    return csr_matrix((np.concatenate([values for _, values in rows]), where, start), shape=(len(rows), columns))


def tails_s(workload: Workload, run_s: Floats) -> Floats:
    """Return the least seconds from each task's end to the end of all that follows it."""
    return _tails(workload, run_s, _downwards(workload))


def chains(workload: Workload, run_s: Floats) -> list[Longs]:
    """Return the longest chain, the longest of what is left, and so on; no task is in two."""
    left, down = run_s.copy(), _downwards(workload)
    child_start, child, _ = workload.children()
    found = []
    for _ in range(min(CHAINS, len(workload))):
        ahead = _tails(workload, left, down) + left
        task = int(np.argmax(ahead))
        if left[task] <= 0:
            break
        chain = []
        while True:
            if left[task] > 0:
                chain.append(task)
            after = child[child_start[task] : child_start[task + 1]]
            if not len(after):
                break
            # Towards the longest rest, as the chain was found.
            task = int(after[np.argmax(ahead[after])])
        found.append(np.array(chain, np.int64))
        # No task is in two chains: their seconds would be counted twice.
        left[found[-1]] = 0.0
    return found


def _downwards(workload: Workload) -> list[int]:
    """Return tasks so that children come first."""
    order = workload.topological_order() if workload.edge_count else np.arange(len(workload))
    return list(order[::-1].tolist())


def _tails(workload: Workload, run_s: Floats, down: list[int]) -> Floats:
    tails = np.zeros(len(workload))
    child_start, child, _ = workload.children()
    for task in down:
        after = child[child_start[task] : child_start[task + 1]]
        tails[task] = float((tails[after] + run_s[after]).max(initial=0.0))
    return tails


def _splits(workload: Workload, offered: PlanOffers) -> _Splits:
    """Return rows in order of task; options that another of the same class beats in everything are left out."""
    per_shape = [undominated(offered, int(at), int(n)) for at, n in zip(offered.first, offered.count, strict=True)]
    pieces = [per_shape[shape] for shape in workload.shape.tolist()]
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    task = np.repeat(np.arange(len(workload)), sizes)
    rows = np.concatenate(pieces) if sizes.sum() else np.zeros((0, 2), np.int64)
    option, cls = rows[:, 0], rows[:, 1]
    seconds = workload.runtime_s[task] * offered.seconds[option, cls]
    work = np.where(offered.device[option] > 0, 0.0, offered.cores[option] * seconds)
    joules = workload.runtime_s[task] * offered.joules[option, cls]
    return _Splits(task, cls, seconds, work, joules, offered.device[option] * seconds)


def undominated(offered: PlanOffers, first: int, count: int) -> Longs:
    """(option, class) rows of a shape worth looking at."""
    kept: list[tuple[int, int]] = []
    for cls in range(len(offered.nodes)):
        own: list[int] = []
        for option in range(first, first + count):
            # Only options of one class are compared: classes differ in what else they cost.
            if np.isfinite(offered.seconds[option, cls]) and not any(_beats(offered, o, option, cls) for o in own):
                own = [o for o in own if not _beats(offered, option, o, cls)] + [option]
        kept += [(option, cls) for option in own]
    return np.array(kept, np.int64).reshape(-1, 2)


def _beats(offered: PlanOffers, one: int, other: int, cls: int) -> bool:
    """Tell whether the first is no worse in seconds, joules, work and device time."""

    def facts(option: int) -> tuple[float, float, float, float]:
        seconds = float(offered.seconds[option, cls])
        device = float(offered.device[option])
        work = 0.0 if device > 0 else float(offered.cores[option]) * seconds
        return seconds, float(offered.joules[option, cls]), work, device * seconds

    return all(a <= b for a, b in zip(facts(one), facts(other), strict=True))


# Lower bounds: no schedule is shorter, or takes fewer joules, than these.
#
# Makespan: the larger of the critical path (each task on its quickest offer, data at hand) and the area (the work of
# all CPU tasks, each where it is least, over the throughput of all nodes). Energy: what the nodes draw with nothing
# to do for that long (asleep where they can sleep), plus each task's share of P(k) − P(0) on the thriftiest node at
# the thriftiest load. Both hold for any policy, guarantee, frequency and sharing; failures only add.


def quickest_s(workload: Workload, cluster: Cluster) -> Floats:
    """Return the least seconds that each task can run: best variant, node, device and frequency, alone."""
    offered = offers(workload, cluster)
    return least_by_task(workload, offered.seconds, offered)


def makespan_bound_s(workload: Workload, cluster: Cluster) -> float:
    """Return seconds from the first release to the last end that no schedule can undercut."""
    if not len(workload):
        return 0.0
    # Both hold for every schedule, so the larger one does.
    return max(critical_path_s(workload, cluster), _area_s(workload, cluster))


def critical_path_s(workload: Workload, cluster: Cluster) -> float:
    """Return the longest chain of tasks, release times included, each as quick as can be."""
    return float((heads_s(workload, quickest_s(workload, cluster))).max())


def heads_s(workload: Workload, run_s: Floats) -> Floats:
    """Return the earliest end of each task after the first release, if each takes ``run_s`` and nothing waits."""
    end_s = workload.release_s.copy()
    order = workload.topological_order() if workload.edge_count else np.arange(len(workload))
    for task in order.tolist():
        parents = workload.parents_of(task)
        ready = max(float(workload.release_s[task]), float(end_s[parents].max(initial=-np.inf)))
        end_s[task] = ready + run_s[task]
    return end_s - float(workload.release_s.min())


def energy_bound_j(workload: Workload, cluster: Cluster) -> float:
    """Return joules that no schedule can undercut, PUE not included."""
    offered = offers(workload, cluster)
    standing_w = float((offered.still_w * offered.nodes).sum())
    least_j = least_by_task(workload, offered.joules, offered)
    return standing_w * makespan_bound_s(workload, cluster) + float(least_j.sum())


def _area_s(workload: Workload, cluster: Cluster) -> float:
    offered = offers(workload, cluster)
    # Device tasks are not slowed by the CPU and count nothing.
    work = np.where((offered.device > 0)[:, None], 0.0, offered.cores[:, None] * offered.seconds)
    least = least_by_task(workload, work, offered)
    return float(least.sum()) / float((offered.throughput * offered.nodes).sum())

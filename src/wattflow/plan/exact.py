"""The least joules at a makespan by CP-SAT, for small workloads: integral choices in the model of the other bounds.

Each task takes one option on one node; cores are cumulative, devices and data are left out, nodes sleep before T only
after their last task. So it lies between the linear relaxation and what annealing finds in its model. It starts from
a complete hint: the annealed schedule. Times are whole milliseconds, rounded down; joules whole microjoules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, MissingExtra
from wattflow.model.workload import Workload
from wattflow.plan import annealing, relaxation
from wattflow.plan.node_offers import least_by_task

MOST_TASKS = 50
_MS, _UJ = 1000, 1_000_000


@dataclass(frozen=True, slots=True)
class Exact:
    """The solver's answer.

    Attributes:
        energy_j: The best found; inf without one.
        least_j: No schedule of the model takes less.
        proven: Whether the two are the same.
        hint_complete: Whether the hint was a whole solution.
    """

    energy_j: float
    least_j: float
    proven: bool
    hint_complete: bool = False


def least_energy(
    workload: Workload,
    cluster: Cluster,
    makespan_s: float,
    *,
    hint: annealing.Schedule | None = None,
    limit_s: float = 10.0,
    workers: int = 1,
) -> Exact:
    """Solve for up to 50 tasks. Needs ortools."""
    if len(workload) > MOST_TASKS:
        raise InvalidInput(workload.name, f"has {len(workload)} tasks; exact bounds are for up to {MOST_TASKS}")
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise MissingExtra("exact bounds need ortools: pip install ortools") from error
    if not len(workload):
        return Exact(0.0, 0.0, True)
    made = _Model(cp_model, workload, cluster, makespan_s)
    if hint is not None:
        made.hint(hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = limit_s, workers
    status = solver.solve(made.model)
    # Proven, too: nothing can be in time.
    if status == cp_model.INFEASIBLE:
        return Exact(math.inf, math.inf, True)
    least_j = solver.best_objective_bound / _UJ
    known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    energy_j = solver.objective_value / _UJ if known else math.inf
    return Exact(energy_j, least_j, status == cp_model.OPTIMAL, hint is not None)


class _Model:
    """Variables by task, by (task, node, option), and by node."""

    def __init__(self, cp_model: Any, workload: Workload, cluster: Cluster, makespan_s: float) -> None:
        # With the truth for estimates, as all bounds.
        self.workload, self.game = workload, annealing.Game(workload.with_estimates(workload.runtime_s), cluster)
        self.offered = self.game.offered
        self.model = cp_model.CpModel()
        least_s = relaxation.makespan_bound_s(workload, cluster)
        # Room for rounding: every end may be lower by a millisecond for each task on the way.
        self.most = max(1, math.floor(min(makespan_s, self._longest_s()) * _MS) + 1)
        self.least = max(0, math.floor(least_s * _MS) - len(workload))
        self.span = self.model.new_int_var(min(self.least, self.most), self.most, "span")
        self.start = [self.model.new_int_var(0, self.most, f"start{t}") for t in range(len(workload))]
        self.end = [self.model.new_int_var(0, self.most, f"end{t}") for t in range(len(workload))]
        self.chosen: list[dict[tuple[int, int], Any]] = []
        self.costs: list[Any] = []
        self._tasks()
        self._nodes()
        self.model.minimize(sum(self.costs))

    def _longest_s(self) -> float:
        ready = float(self.workload.release_s.max() - self.workload.release_s.min())
        finite = np.where(np.isfinite(self.offered.seconds), self.offered.seconds, 0.0)
        return ready + float(self.workload.runtime_s.sum()) * float(finite.max())

    def _tasks(self) -> None:
        """Require for each task one option on one node, after its parents and its release."""
        model, workload, offered = self.model, self.workload, self.offered
        first, count, option, kind = self.game.able[:4]
        self.intervals: dict[int, list[tuple[Any, int]]] = {n: [] for n in range(len(offered.cls))}
        self.length: dict[tuple[int, int, int], int] = {}
        for t, shape in enumerate(workload.shape.tolist()):
            mine: dict[tuple[int, int], Any] = {}
            for row in range(int(first[shape]), int(first[shape] + count[shape])):
                o, c = int(option[row]), int(kind[row])
                # Rounded down, seconds and joules: a bound may be too low but never too high.
                long = math.floor(float(workload.runtime_s[t] * offered.seconds[o, c]) * _MS)
                joules = math.floor(float(workload.runtime_s[t] * offered.joules[o, c]) * _UJ)
                for n in np.flatnonzero(offered.cls == c).tolist():
                    here = mine[n, o] = model.new_bool_var("")
                    self.length[t, n, o] = long
                    interval = model.new_optional_interval_var(self.start[t], long, self.end[t], here, "")
                    self.intervals[n].append((interval, math.ceil(offered.cores[o])))
                    self.costs.append(here * joules)
            model.add_exactly_one(mine.values())
            self.chosen.append(mine)
            model.add(self.start[t] >= math.floor((workload.release_s[t] - workload.release_s.min()) * _MS))
            model.add(self.span >= self.end[t])
            for parent in workload.parents_of(t).tolist():
                model.add(self.start[t] >= self.end[parent])

    def _nodes(self) -> None:
        """Cores, and what each node draws: busy, on, asleep."""
        model, offered = self.model, self.offered
        run_s = least_by_task(self.workload, offered.seconds, offered)
        chains = relaxation.chains(self.workload, run_s)
        self.on, self.busy, self.asleep = [], [], []
        micro = _UJ // _MS
        for n, c in enumerate(offered.cls.tolist()):
            model.add_cumulative(
                [i for i, _ in self.intervals[n]], [k for _, k in self.intervals[n]], int(offered.physical[c])
            )
            on, busy = (model.new_int_var(0, self.most, f"{word}{n}") for word in ("on", "busy"))
            asleep = model.new_bool_var(f"asleep{n}")
            model.add(busy <= on)
            model.add(on <= self.span)
            # A node that does not fall asleep is on to the end; one that does, at least to its last task.
            model.add(on >= self.span).only_enforce_if(asleep.negated())
            for t, mine in enumerate(self.chosen):
                for (node, _), here in mine.items():
                    if node == n:
                        model.add(on >= self.end[t]).only_enforce_if(here)
            # Tasks of a chain run one after the other, so their seconds add up, whatever the cores.
            for chain in chains:
                model.add(busy >= sum(self._run_ms(int(t), n) for t in chain))
            work = sum(
                here * math.floor(self.length[t, node, o] * offered.cores[o])
                for t, mine in enumerate(self.chosen)
                for (node, o), here in mine.items()
                if node == n
            )
            # Work over what the node does in a second: it cannot be busy for less.
            model.add(busy * math.ceil(offered.throughput[c]) >= work)
            awake_w = max(0.0, float(offered.idle_w[c] - offered.still_w[c]))
            self.costs += [
                self.span * math.floor(float(offered.still_w[c]) * micro),
                on * math.floor(awake_w * micro),
                busy * math.floor(float(offered.busy_w[c]) * micro),
                asleep * math.floor(float(offered.enter_j[c]) * _UJ),
            ]
            self.on.append(on)
            self.busy.append(busy)
            self.asleep.append(asleep)

    def _run_ms(self, task: int, node: int) -> Any:
        return sum(here * self.length[task, n, o] for (n, o), here in self.chosen[task].items() if n == node)

    def hint(self, known: annealing.Schedule) -> None:
        """Hint a value for every variable, from the annealed choices: rounded, data left out."""
        place = {}
        lanes: dict[int, list[int]] = {n: [0] * int(self.offered.physical[c]) for n, c in enumerate(self.offered.cls)}
        end: dict[int, int] = {}
        for t in known.order.tolist():
            n, o = int(known.node[t]), int(known.option[t])
            long, wide = self.length[t, n, o], math.ceil(self.offered.cores[o])
            ready = math.floor((self.workload.release_s[t] - self.workload.release_s.min()) * _MS)
            begin = max([ready, *(end[p] for p in self.workload.parents_of(t).tolist())])
            # The cores that are free soonest, as the walk takes them.
            free = sorted(lanes[n])
            begin = max([begin, *free[:wide]])
            end[t] = begin + long
            lanes[n] = free[wide:] + [end[t]] * wide
            place[t] = n, o, begin
        span = max([self.least, *end.values()])
        for t, (n, o, begin) in place.items():
            self.model.add_hint(self.start[t], begin)
            self.model.add_hint(self.end[t], end[t])
            for (node, option), here in self.chosen[t].items():
                self.model.add_hint(here, (node, option) == (n, o))
        self.model.add_hint(self.span, span)
        self._hint_nodes(place, end, span)

    def _hint_nodes(self, place: dict[int, tuple[int, int, int]], end: dict[int, int], span: int) -> None:
        for n, c in enumerate(self.offered.cls.tolist()):
            mine = [t for t, where in place.items() if where[0] == n]
            last = max((end[t] for t in mine), default=0)
            busy = _union([(place[t][2], end[t]) for t in mine])
            awake_w = max(0.0, float(self.offered.idle_w[c] - self.offered.still_w[c]))
            sleeps = awake_w * (span - last) / _MS > float(self.offered.enter_j[c])
            self.model.add_hint(self.asleep[n], sleeps)
            self.model.add_hint(self.on[n], last if sleeps else span)
            self.model.add_hint(self.busy[n], busy)


def _union(spans: list[tuple[int, int]]) -> int:
    """Length of the union of intervals."""
    total, last = 0, -1
    for start, end in sorted(spans):
        total += max(0, end - max(start, last))
        last = max(last, end)
    return total

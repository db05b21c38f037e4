"""NSGA-II over plans: node, priority and offer of every task, judged by simulation for energy and makespan.

Deb, Pratap, Agarwal, Meyarivan: A fast and elitist multiobjective genetic algorithm: NSGA-II. IEEE Transactions on
Evolutionary Computation 6(2), 2002, 10.1109/4235.996017; the algorithm is pymoo's (extra `plan`). Three genes for
each task: which of the nodes that can run it, its place in the queue, and which of the offers (variant and frequency
level) that fit on that node. The search starts from the plans of HEFT and energy-aware HEFT, children of these, and
random plans.

O(population × generations) simulations. Same workload, cluster and ``seed``: same front. The policy follows the knee:
the point of the front farthest from the line between its ends; ties go to the shorter makespan. A plan of a policy
says nothing of sleep; `research/search_front.py` is the same search with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.model.errors import MissingExtra
from wattflow.model.workload import Workload
from wattflow.policy import eheft, heft, planning
from wattflow.policy.base import Committed, Plan, Policy
from wattflow.policy.planning.problem import known_estimates
from wattflow.sim import simulate

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Front:
    """Plans of which none is better in both energy and makespan, by rising makespan.

    Attributes:
        plans: One plan per point.
        makespan_s, energy_j: As simulated with the estimates.
        knee: Index of the point that the policy follows.
    """

    plans: tuple[Plan, ...]
    makespan_s: Floats
    energy_j: Floats
    knee: int


def front(workload: Workload, cluster: Cluster, params: Mapping[str, float] | None = None) -> Front:
    """Return the Pareto front that the search found. Raises MissingExtra without pymoo."""
    settings = {**PARAMS, **(params or {})}
    judge = _Judge(workload, cluster, settings)
    genes, costs = _search(judge, settings)
    # By makespan, then energy: `undominated` reads them in this order.
    order = np.lexsort((costs[:, 1], costs[:, 0]))
    genes, costs = genes[order], costs[order]
    keep = undominated(costs)
    genes, costs = genes[keep], costs[keep]
    plans = tuple(judge.plan(row) for row in genes)
    return Front(plans, costs[:, 0], costs[:, 1], knee(costs))


def knee(costs: Floats) -> int:
    """Return the row farthest below the line between the first and the last, both objectives scaled to 0–1."""
    span = np.ptp(costs, axis=0)
    scaled = (costs - costs.min(axis=0)) / np.where(span > 0, span, 1.0)
    # Rounded, so that equal distances tie and the shorter makespan stays.
    return int(np.argmin(np.round(scaled.sum(axis=1), 12)))


def plan(workload: Workload, cluster: Cluster, committed: Committed) -> Plan:
    """Return the plan at the knee of the front."""
    if not len(workload):
        return heft.plan(workload, cluster, Committed(0.0, planning.PARAMS))
    found = front(workload, cluster, committed.params)
    return found.plans[found.knee]


class _Judge:
    """From genes to a plan, and from a plan to (makespan, energy)."""

    def __init__(self, workload: Workload, cluster: Cluster, params: Mapping[str, float]) -> None:
        estimate = known_estimates(workload)
        # Judged by estimates: the search must not know the truth either.
        self.workload = replace(workload, runtime_s=estimate, estimate_s=estimate)
        self.cluster, self.params = cluster, params
        problem = planning.problem(workload, cluster, planning.PARAMS, SETTINGS)
        self.facts = problem.facts
        # Nodes in order of class: neighbouring genes are alike.
        by_class = np.argsort(problem.facts.cls, kind="stable")
        able = np.isfinite(problem.cost_s)
        self.able = [by_class[row[problem.facts.cls[by_class]]] for row in np.unique(able, axis=0)]
        self.kind = np.unique(able, axis=0, return_inverse=True)[1].reshape(-1)

    def plan(self, genes: Floats) -> Plan:
        count = len(self.workload)
        node = np.full(count, -1, np.int32)
        for kind, nodes in enumerate(self.able):
            mine = self.kind == kind
            if len(nodes):
                # A gene of exactly 1 belongs to the last.
                at = np.minimum((genes[:count][mine] * len(nodes)).astype(np.int64), len(nodes) - 1)
                node[mine] = nodes[at]
        return Plan(node=node, order=genes[count : 2 * count].copy(), variant=self._offers(node, genes[2 * count :]))

    def _fitting(self, shape: int, cls: int) -> NDArray[np.int64]:
        """Offers of a shape that fit on a class, as numbers within the shape, the quickest first."""
        first, n = int(self.facts.offer_first[shape]), int(self.facts.offer_n[shape])
        factor = self.facts.factor[first : first + n, cls]
        return np.argsort(factor, kind="stable")[: int(np.isfinite(factor).sum())]

    def _offers(self, node: NDArray[np.int32], genes: Floats) -> NDArray[np.int32]:
        """The offer of each task on its node; one that a platform's time limit forbids gives way to the quickest."""
        facts, chosen = self.facts, np.full(len(node), -1, np.int32)
        placed = np.flatnonzero(node >= 0)
        pairs = np.stack([facts.shape[placed], facts.cls[node[placed]]])
        for shape, cls in np.unique(pairs, axis=1).T.tolist():
            tasks = placed[(pairs[0] == shape) & (pairs[1] == cls)]
            fitting = self._fitting(shape, cls)
            if len(fitting):
                at = np.minimum((genes[tasks] * len(fitting)).astype(np.int64), len(fitting) - 1)
                seconds = facts.estimate_s[tasks] * facts.factor[facts.offer_first[shape] + fitting[at], cls]
                # The first of `fitting` is the quickest.
                chosen[tasks] = fitting[np.where(seconds <= facts.limit_s[cls], at, 0)]
        return chosen

    def genes(self, known: Plan) -> Floats:
        """Genes whose plan has these nodes, this order and these variants at the nominal frequency."""
        count = len(self.workload)
        genes = np.zeros(GENES * count)
        for kind, nodes in enumerate(self.able):
            if len(nodes):
                place = np.full(len(self.cluster.nodes), 0)
                place[nodes] = np.arange(len(nodes))
                mine = self.kind == kind
                # The middle of its cell: a small mutation keeps the choice.
                genes[:count][mine] = (place[np.maximum(known.node[mine], 0)] + 0.5) / len(nodes)
        genes[count : 2 * count][np.argsort(known.order, kind="stable")] = (np.arange(count) + 0.5) / count
        variant = np.zeros(count, np.int32) if known.variant is None else known.variant
        for task in np.flatnonzero(known.node >= 0).tolist():
            fitting = self._fitting(int(self.facts.shape[task]), int(self.facts.cls[known.node[task]]))
            place = np.flatnonzero(fitting == variant[task] * len(SETTINGS.frequencies))
            if len(place):
                genes[2 * count + task] = (place[0] + 0.5) / len(fitting)
        return genes

    def costs(self, genes: Floats) -> tuple[float, float]:
        chosen = self.plan(genes)
        run = simulate(
            self.workload,
            self.cluster,
            Policy("nsga2-candidate", plan=lambda *_: chosen, knows_future=True, settings=SETTINGS),
        )
        return run.makespan_s, run.total_j


def _search(judge: _Judge, params: Mapping[str, float]) -> tuple[Floats, Floats]:
    population, seed = max(4, int(params["population"])), int(params["seed"])
    # Half of the population is random, however good the known plans are.
    first = np.random.default_rng(seed).random((population, GENES * len(judge.workload)))
    for row, planner in enumerate((heft.plan, eheft.plan)):
        first[row] = judge.genes(planner(judge.workload, judge.cluster, Committed(0.0, planning.PARAMS)))
    # Children of the known plans: a tenth of their genes drawn anew.
    for row in range(2, population // 2):
        drawn = np.random.default_rng([seed, row]).random(first.shape[1])
        first[row] = np.where(drawn < 0.1, first[row], first[row % 2])
    return evolved(judge.costs, first, ("n_gen", max(1, int(params["generations"]))), seed)


def evolved(
    costs: Callable[[Floats], tuple[float, float]], first: Floats, until: tuple[str, float], seed: int
) -> tuple[Floats, Floats]:
    """Genes (0–1) and costs of the front after pymoo's NSGA-II from a first population.

    ``until`` is ("n_gen", generations) or ("time", seconds): after so many no further generation is begun.
    """
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2 as Nsga2
        from pymoo.core.problem import ElementwiseProblem
        from pymoo.optimize import minimize
    except ImportError as error:
        raise MissingExtra("the policy nsga2 needs pymoo: pip install 'wattflow[plan]'") from error

    # pymoo has no types.
    class PlacementProblem(ElementwiseProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=first.shape[1], n_obj=2, xl=0.0, xu=1.0)

        def _evaluate(self, x: Floats, out: dict[str, object], *args: object, **kwargs: object) -> None:
            out["F"] = costs(x)

    algorithm = Nsga2(pop_size=len(first), sampling=first, eliminate_duplicates=True)
    result = minimize(PlacementProblem(), algorithm, until, seed=seed, verbose=False)
    return np.atleast_2d(result.X), np.atleast_2d(result.F)


def undominated(costs: Floats) -> NDArray[np.int64]:
    """Rows, sorted by the first column, whose second column is less than all before."""
    best, keep = np.inf, []
    for row, (_, energy) in enumerate(costs):
        if energy < best:
            best = energy
            keep.append(row)
    return np.array(keep, np.int64)


GENES = 3
"""Of each task: node, place in the queue, offer."""
SETTINGS = PolicySettings(frequencies=(0, 1, 2))
"""Offers are the variants of a task, each at three frequency levels where the node has them."""
PARAMS: Mapping[str, float] = {"population": 20.0, "generations": 10.0, "seed": 1.0}

NSGA2 = Policy(
    "nsga2",
    "evolutionary search over nodes, order, variants and frequencies, judged by simulation",
    "10.1109/4235.996017",
    plan=plan,
    settings=SETTINGS,
    params=PARAMS,
    knows_future=True,
)

"""NSGA-II with sleep: the front of waiting and joules over order, node, variant and frequency of every task.

The search (`nsga2`) is given what annealing has: its compiled model of a schedule, in which nodes sleep wherever that
pays (`anneal_core`, about 0.1 µs a task), so that it judges thousands of plans a second, and HEFT and energy-aware HEFT
to begin with. Costs are the mean response of workflows (the makespan, where there is one) and joules. The front is then
simulated: the figures that count are the simulator's. Like annealing it knows the whole workload and its true runtimes.

Not repeatable to the bit where it is given seconds: a quicker machine makes more generations.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel import jit as engine_jit
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import nsga2
from wattflow.plan.annealing import Game, Schedule
from wattflow.plan.measured import Result, result_of

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
POPULATION = 24
GENES = 3
"""Of each task: variant, frequency and class of node together; the node within the class; the place in the queue."""
SHARES = (0.02, 0.1, 0.3, 1.0)
"""Of genes drawn anew in the first population's children of known plans, in turn."""


@dataclass(frozen=True, slots=True)
class Searched:
    """Findings of the search.

    Attributes:
        results: Points of the front as simulated, by rising mean response of the model; none dominates another there.
        evaluations: Plans judged.
        search_s: Seconds of the search alone.
        seconds: With set-up and the simulation of the front.
    """

    results: tuple[Result, ...]
    evaluations: int
    search_s: float
    seconds: float


def front(
    workload: Workload, cluster: Cluster, *, seconds: float = 0.0, generations: int = 20, seed: int = 1
) -> Searched:
    """Return the front after so many seconds of search, or after so many generations where these are 0.

    Raises MissingExtra without pymoo.
    """
    began = time.perf_counter()
    coded = Coded(Game(workload.with_estimates(workload.runtime_s), cluster))
    first = coded.population(POPULATION, seed)
    coded.costs(first[0])  # compiles
    # The first call compiled: it is no part of the search.
    coded.evaluations = 0
    until = ("time", float(seconds)) if seconds > 0 else ("n_gen", float(generations))
    searching = time.perf_counter()
    genes, costs = nsga2.evolved(coded.costs, first, until, seed)
    search_s = time.perf_counter() - searching
    # As in `nsga2.front`.
    order = np.lexsort((costs[:, 1], costs[:, 0]))
    kept = genes[order][nsga2.undominated(costs[order])]
    results = tuple(result_of(coded.game.simulated(coded.schedule(row))) for row in kept)
    return Searched(results, coded.evaluations, search_s, time.perf_counter() - began)


class Coded:
    """Genes as choices of annealing's game, and back."""

    def __init__(self, game: Game) -> None:
        self.game, self.evaluations = game, 0
        workload = game.workload
        self._submit_s = workload.workflow_submit_s - game.begin_s
        self._parents = np.diff(workload.parent_start).astype(np.int64)

    def schedule(self, genes: Floats) -> Schedule:
        """Return the schedule of a row of genes."""
        first, count, option, kind, node_first, nodes_n, nodes = self.game.able
        shape = self.game.workload.shape
        rows, within, place = genes.reshape(GENES, -1)
        # A gene of exactly 1 belongs to the last.
        row = first[shape] + np.minimum((rows * count[shape]).astype(np.int64), count[shape] - 1)
        many = nodes_n[kind[row]]
        node = nodes[node_first[kind[row]] + np.minimum((within * many).astype(np.int64), many - 1)]
        order = np.zeros(len(shape), np.int64)
        in_order(place, self._parents.copy(), *self.game.children, order)
        return self.game.schedule(order, node, option[row])

    def costs(self, genes: Floats) -> tuple[float, float]:
        """Return the mean response and joules in the model."""
        self.evaluations += 1
        made = self.schedule(genes)
        end_s = np.zeros(len(self._submit_s))
        np.maximum.at(end_s, self.game.workload.workflow, made.end_s)
        return float((end_s - self._submit_s).mean()), made.energy_j

    def genes(self, order: Longs, node: Longs, option: Longs) -> Floats:
        """Genes of known choices."""
        first, count, options, kind, node_first, nodes_n, nodes = self.game.able
        cls = self.game.offered.cls
        place_of = np.zeros(len(nodes), np.int64)
        place_of[nodes] = np.arange(len(nodes))
        made = np.zeros((GENES, len(node)))
        for task, shape in enumerate(self.game.workload.shape.tolist()):
            rows = np.arange(first[shape], first[shape] + count[shape])
            at = np.flatnonzero((kind[rows] == cls[node[task]]) & (options[rows] == option[task]))
            # The middle of its cell: a small mutation keeps the choice.
            made[0, task] = (int(at[0]) + 0.5) / len(rows) if len(at) else 0.0
            here = cls[node[task]]
            made[1, task] = (place_of[node[task]] - node_first[here] + 0.5) / nodes_n[here]
        made[2, order] = (np.arange(len(order)) + 0.5) / len(order)
        return made.reshape(-1)

    def population(self, size: int, seed: int) -> Floats:
        """Annealing's starts, then children of these with some genes drawn anew."""
        known = np.array([self.genes(*start) for start in self.game.starts])
        rng = np.random.default_rng([seed, 0xF1])
        found = [*known]
        while len(found) < size:
            parent = known[len(found) % len(known)]
            # Little changes of known plans up to wholly random ones.
            share = SHARES[len(found) // len(known) % len(SHARES)]
            found.append(np.where(rng.random(len(parent)) < share, rng.random(len(parent)), parent))
        return np.array(found)


def jit(function):
    """Compile as the engine does, in a cache folder of its own."""
    return engine_jit.jit(function, engine_jit.cache_folder("kernel", __file__))


@jit
def in_order(place, parents, child_start, child, order):
    """Order tasks by rising ``place``, parents first; ``parents`` counts those still to come, and is used up."""
    done = np.zeros(place.size, np.int64)
    # O(tasks²), but compiled and without a heap: workloads of a search are small.
    for i in range(place.size):
        best = -1
        for t in range(place.size):
            if done[t] == 0 and parents[t] == 0 and (best < 0 or place[t] < place[best]):
                best = t
        order[i] = best
        done[best] = 1
        for e in range(child_start[best], child_start[best + 1]):
            parents[child[e]] -= 1

"""An upper bound: simulated annealing over order, node, variant and frequency of every task, judged by the simulator.

Kirkpatrick, Gelatt, Vecchi: Optimization by simulated annealing. Science 220, 1983, 10.1126/science.220.4598.671. The
walk starts from HEFT and from energy-aware HEFT and minimises joules within a makespan, on physical cores, with node
sleep planned as well (`anneal_core` has the model). What it finds is then simulated: the figures that count are the
simulator's. It knows the whole workload, so its distance to a policy is headroom that no policy need be able to get.

O(evaluations × tasks); same workload, cluster and seed: same schedule.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wattflow.engine.build import why_not
from wattflow.kernel import random
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.plan import anneal_core, node_offers, sleeps
from wattflow.plan.node_offers import Floats, Longs, PlanOffers
from wattflow.policy import planning
from wattflow.policy.base import Plan, Policy
from wattflow.policy.planning import reclaim
from wattflow.policy.planning.facts import empty_slots
from wattflow.sim import simulate

EVALUATIONS = 150_000
HOT, COLD, PRICE = 0.02, 2e-5, 4.0
"""First and last temperature and the price of being late, relative to the start's joules and the makespan."""
TRIES = 3
"""How often the walk is repeated with a tighter limit when the simulated schedule is later than asked for."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Choices of the walk in its own model: times from the first release on, joules by linear curves."""

    order: Longs
    node: Longs
    option: Longs
    start_s: Floats
    end_s: Floats
    energy_j: float
    makespan_s: float


@dataclass(frozen=True, slots=True)
class Annealed:
    """The best schedule found within a makespan.

    Attributes:
        energy_j, makespan_s: As simulated; inf where no schedule was found in time.
        run: The simulated run.
        schedule: The same in the model of the walk; None where one of its starts had to do.
        evaluations, seconds: What the walk took, compilation not included.
    """

    energy_j: float
    makespan_s: float
    run: Run | None
    schedule: Schedule | None
    evaluations: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Evaluations a second."""
        return self.evaluations / self.seconds if self.seconds > 0 else math.inf


def anneal(
    workload: Workload,
    cluster: Cluster,
    makespan_s: float = math.inf,
    *,
    evaluations: int = EVALUATIONS,
    seed: int = 0,
) -> Annealed:
    """Fewest joules found within ``makespan_s`` of the first release.

    With truth for estimates: as a bound it may know what a policy may not.
    """
    if not makespan_s > 0:
        raise InvalidInput("makespan_s", f"must be above 0, not {makespan_s}")
    if evaluations < 1:
        raise InvalidInput("evaluations", f"must be at least 1, not {evaluations}")
    # As a bound it may be told the truth.
    known = workload.with_estimates(workload.runtime_s)
    if not len(known):
        run = simulate(known, cluster)
        return Annealed(run.total_j, run.makespan_s, run, None, 0, 0.0)
    game = Game(known, cluster)
    # A finite limit: the walk divides by it.
    limit_s = tightened_s = min(makespan_s, 1e300)
    best = Annealed(math.inf, math.inf, None, None, 0, 0.0)
    for turn in range(TRIES):
        found, seconds = game.walk(tightened_s, evaluations, seed + turn)
        done, spent = best.evaluations + evaluations * len(game.starts), best.seconds + seconds
        best = replace(best, evaluations=done, seconds=spent)
        if found is None:
            break
        run = game.simulated(found)
        if run.makespan_s <= limit_s * (1 + 1e-6):
            if run.total_j < best.energy_j:
                best = Annealed(run.total_j, run.makespan_s, run, found, done, spent)
            break
        # Later than its model said: the next walk is given less time, by the same ratio.
        tightened_s = found.makespan_s * limit_s / run.makespan_s
    return best if best.run is not None else game.listed(limit_s, best)


class Game:
    """A workload and a cluster as the compiled walk wants them."""

    def __init__(self, workload: Workload, cluster: Cluster) -> None:
        self.workload, self.cluster = workload, cluster
        # Sleep between tasks is planned where there are several workflows.
        self.gaps = len(workload.workflow_names) > 1
        self.offered = node_offers.offers(workload, cluster)
        params = {**planning.PARAMS, "smt": 0.0}
        self.problem = planning.problem(workload, cluster, params, self.offered.settings)
        facts = self.problem.facts
        self.begin_s = float(workload.release_s.min())
        self.facts = (
            facts.estimate_s, workload.release_s - self.begin_s, facts.shape, facts.input_bytes, facts.parent_start,
            facts.parent, facts.parent_bytes,
        )  # fmt: skip
        self.children = (facts.child_start, facts.child)
        self.tables = _tables(self.offered, cluster, int(self.gaps))
        self.able = _able(self.offered, workload, cluster)
        # The walk draws among places of a shape; with none it would divide by 0.
        if not (self.able[1][workload.shape] > 0).all():
            raise InvalidInput(workload.name, "has a task that fits on no node, so it cannot be planned")
        self.starts = self._starts()

    def _starts(self) -> list[tuple[Longs, Longs, Longs]]:
        """HEFT, and the same with its slack spent."""
        slots = planning.schedule(self.problem, planning.upward_rank(self.problem))
        thrifty = reclaim.reclaim(self.problem, slots, reclaim.finish_by(self.problem, slots, 0.0, False))
        self.lists = (slots, thrifty)
        # Equal starts keep the order in which parents come first.
        place = np.empty(len(self.workload), np.int64)
        place[self.problem.order] = np.arange(len(place))
        found = []
        for made in self.lists:
            node, option = made.node.copy(), made.offer.copy()
            self._repair(node, option)
            found.append((np.lexsort((place, made.start_s)).astype(np.int64), node, option))
        return found

    def _repair(self, node: Longs, option: Longs) -> None:
        """Place tasks that the list scheduler left out, and give the others options that the walk knows."""
        first, count, options, kind, node_first, _, nodes = self.able
        for task, shape in enumerate(self.workload.shape.tolist()):
            rows = np.arange(first[shape], first[shape] + count[shape])
            here = rows[(kind[rows] == self.offered.cls[node[task]]) & (options[rows] == option[task])]
            if node[task] < 0 or not len(here):
                node[task], option[task] = nodes[node_first[kind[rows[0]]]], options[rows[0]]

    def walk(self, limit_s: float, evaluations: int, seed: int) -> tuple[Schedule | None, float]:
        """Return the best of one walk from each start, and the seconds they took."""
        walked = [self.walk_from(number, limit_s, evaluations, seed) for number in range(len(self.starts))]
        # The first of equal joules: HEFT before its thrifty form.
        best = min(walked, key=lambda one: one[0])
        return (None if best[1] is None else self.schedule(*best[1])), sum(one[2] for one in walked)

    def walk_from(self, number: int, limit_s: float, evaluations: int, seed: int) -> tuple[float, Any, float]:
        """From one start: the model's joules (inf: nothing in time), the choices, and the seconds it took."""
        start = self.starts[number]
        choice, kept = (tuple(part.copy() for part in start) for _ in range(2))
        slots = self._slots()
        state = np.array([random.stream(2 * seed + number)], np.uint64)
        # A walk without evaluations compiles, so that the seconds below are the walk's own.
        self._run(choice, slots, kept, np.array([limit_s, 0.0, HOT, COLD, PRICE]), state)  # compiles
        begun = time.perf_counter()
        joules, _ = self._run(choice, slots, kept, np.array([limit_s, float(evaluations), HOT, COLD, PRICE]), state)
        return joules, kept if joules < math.inf else None, time.perf_counter() - begun

    def _run(self, choice: Any, slots: Any, kept: Any, goal: Floats, state: Any) -> tuple[float, float]:
        found: tuple[float, float]
        # The stream of random numbers wraps around at 64 bits; uncompiled, numpy would warn.
        with np.errstate(over="ignore"):
            found = anneal_core.walk(
                self.facts, self.children, self.tables, self.able, choice, slots, kept, goal, state
            )
        return found

    def schedule(self, order: Longs, node: Longs, option: Longs) -> Schedule:
        """Choices as times and joules of the model, in order of start: only then are gaps seen for what they are."""
        slots = self._slots()
        anneal_core.evaluate(self.facts, self.tables, (order, node, option), slots)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        order = np.lexsort((place, slots[0])).astype(np.int64)
        joules, last = anneal_core.evaluate(self.facts, self.tables, (order, node, option), slots)
        return Schedule(order, node, option, slots[0], slots[1], float(joules), float(last))

    def _slots(self) -> tuple[Any, ...]:
        tasks, nodes = len(self.workload), len(self.cluster.nodes)
        lanes, slices = int(self.offered.physical.max()) + 1, max(1, int(self.tables[6].max()))
        return (
            np.zeros(tasks), np.zeros(tasks), np.zeros((nodes, lanes)), np.zeros((nodes, lanes), np.int64),
            np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros((nodes, slices)),
            np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), np.zeros(1),
        )  # fmt: skip

    def plan(self, schedule: Schedule) -> Plan:
        """Turn the schedule into a plan that the engine follows."""
        slots = empty_slots(self.problem.facts)
        slots.node[:], slots.offer[:] = schedule.node, schedule.option
        # Equal starts keep the walk's order, which is the order in which lanes were taken.
        slots.start_s[:] = schedule.start_s + self.begin_s
        slots.end_s[:] = schedule.end_s + self.begin_s
        return planning.to_plan(self.problem, slots)

    def policy(self, schedule: Schedule) -> Policy:
        """Return a policy that follows the schedule, sleep included."""
        busy = np.column_stack([schedule.start_s, schedule.end_s]) + self.begin_s
        rows = sleeps.orders(schedule.node, busy, self.cluster, self.gaps)
        return sleeps.follower("annealing", self.plan(schedule), rows, self.offered.settings)

    def listed(self, limit_s: float, best: Annealed) -> Annealed:
        """Return the better of the starts as planned, sleep added, where the walk found nothing in time."""
        for made in self.lists:
            busy = np.column_stack([made.start_s, made.end_s])
            rows = sleeps.orders(made.node, busy, self.cluster, False)
            plan = planning.to_plan(self.problem, made)
            run = simulate(self.workload, self.cluster, sleeps.follower("listed", plan, rows, self.offered.settings))
            if run.makespan_s <= limit_s * (1 + 1e-6) and run.total_j < best.energy_j:
                best = replace(best, energy_j=run.total_j, makespan_s=run.makespan_s, run=run)
        return best

    def simulated(self, schedule: Schedule) -> Run:
        """Return the schedule as the simulator runs it."""
        return simulate(self.workload, self.cluster, self.policy(schedule))


def _tables(offered: PlanOffers, cluster: Cluster, gaps: int) -> tuple[Any, ...]:
    kinds = list({node.class_key: node for node in cluster.nodes}.values())
    still = np.array([sleeps.still_w(node) for node in kinds])
    share = float(offered.device.max(initial=0.0))
    # As many slices as the largest share leaves: a plan never puts more tasks on a device than fit.
    slots = max(1, int(1.0 / share + 1e-9)) if share > 0 else 1
    shared = [all(d.sharing in ("mps", "mig") for d in node.devices) for node in kinds]
    slices = offered.devices * np.where(shared, slots, 1)
    costs = [(sleeps.enter_j(node), sleeps.cycle_j(node), sleeps.worth_s(node)) for node in kinds]
    return (
        # inf would spread through sums; what does not fit is in no row of `_able`.
        np.where(np.isfinite(offered.seconds), offered.seconds, 0.0), np.ceil(offered.cores).astype(np.int64),
        np.where(np.isfinite(offered.joules_with_devices), offered.joules_with_devices, 0.0),
        (offered.device > 0).astype(np.int64), offered.cls, offered.physical, slices.astype(np.int64),
        offered.idle_w - still, still, offered.busy_w, np.array(costs),
        np.array([1.0 / node.network.bandwidth_bytes_per_s for node in kinds]),
        np.array([node.network.latency_s for node in kinds]), np.array([gaps], np.int64),
    )  # fmt: skip


def _able(offered: PlanOffers, workload: Workload, cluster: Cluster) -> tuple[Any, ...]:
    """Return rows (option, class) of each shape with a full guarantee, quickest first; nodes by class."""
    kinds = list({node.class_key: node for node in cluster.nodes}.values())
    first: list[int] = []
    count: list[int] = []
    option: list[int] = []
    kind: list[int] = []
    for number, shape in enumerate(workload.shapes):
        first.append(len(option))
        rows = []
        for i in range(int(offered.count[number])):
            variant = shape.variants[i // offered.levels]
            for c, node in enumerate(kinds):
                fits = (
                    why_not(variant, node, 1.0, i % offered.levels) is None
                    and variant.cores * shape.parts <= node.cores
                )
                # Gangs on devices and platforms are not in the model of the walk.
                if fits and (shape.parts == 1 or variant.device is None) and node.serverless is None:
                    rows.append(
                        (float(offered.seconds[offered.first[number] + i, c]), int(offered.first[number]) + i, c)
                    )
        # The quickest first: `_repair` and the starts take the first row.
        rows.sort()
        option += [row[1] for row in rows]
        kind += [row[2] for row in rows]
        count.append(len(rows))
    nodes = np.argsort(offered.cls, kind="stable").astype(np.int64)
    node_first = np.searchsorted(offered.cls[nodes], np.arange(len(kinds))).astype(np.int64)
    return (
        np.array(first, np.int64),
        np.array(count, np.int64),
        np.array(option, np.int64),
        np.array(kind, np.int64),
        node_first,
        offered.nodes.copy(),
        nodes,
    )

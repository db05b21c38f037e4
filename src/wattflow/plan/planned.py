"""planned: at each arrival the open tasks are planned by annealing, if following the plan is better than any setting.

When a workflow arrives, what is known is simulated under the tuned portfolio's setting for the ``load``: when each
workflow would end under it is the limit. Then annealing (`annealing`, ``search`` evaluations from each of its starts,
under two lines of watts) looks for the fewest joules within the limit: order, node, variant, frequency, sleep; what has
begun stays where it is, and nothing is known of what will arrive. Where no plan keeps every workflow's limit, the last
one's has to do. Plans, the portfolio's setting and those that rehearsals try are looked at from the State as it is
(`sim.outlook`), as estimated and with runtimes drawn round their estimates (σ = ``spread``). Of those that end no later
than the portfolio would, the one with the fewest joules is followed until the next arrival (`following`).

``spread`` says how far estimates err. Told 0, the policy trusts them: it saves more where they are right, and is late
where they are not (docs/learned.md has figures of both).

Evaluations are counted, not timed: same workflows, cluster and numbers, same plan. Two or three seconds for 200 open
tasks. With more than 16 open workflows or 600 tasks, gangs, serverless nodes, or estimates or watts that are not known,
the portfolio's setting is used. A driver that does not ask at arrivals uses the flagship's rules.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.model.errors import WattflowError
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.plan import following, rehearsal, sleeps
from wattflow.plan.annealing import Game, Schedule, Standing
from wattflow.plan.following import Course
from wattflow.plan.node_offers import Floats, Longs
from wattflow.plan.scene import Scene, rows_of, scene, standing
from wattflow.policy import wattflow
from wattflow.policy.base import Policy, beforehand
from wattflow.sim import simulate
from wattflow.sim.outlook import Outlook, Seen

log = logging.getLogger(__name__)
DRAWS = 4
TRIES = 2
"""How often the walk is repeated with a tighter limit where the plan, looked at, is later than it says."""
LEFT = 5
"""Courses that are looked at under drawn runtimes: the best as estimated."""
ON_TIME, TOLERATED = 1e-6, 0.02
"""How much later than the portfolio a course may end: as estimated, and in the mean of drawn runtimes."""
LEVELS = len(wattflow.WATTFLOW.settings.frequencies)


@dataclass(frozen=True, slots=True)
class Limit:
    """Ends that the portfolio's setting would reach with what is known.

    Attributes:
        run: Its run.
        end_s: When each workflow would end.
    """

    run: Run
    end_s: Floats

    @property
    def last_s(self) -> float:
        """When the last would."""
        return float(self.end_s.max())


def limit_of(seen: Scene, cluster: Cluster, dials: Mapping[str, float]) -> Limit:
    """Return the portfolio's setting, simulated from the first arrival on with estimates for the truth."""
    run = simulate(seen.workload, cluster, wattflow.WATTFLOW.with_params(**dials))
    end_s = np.full(len(seen.workload.workflow_names), -math.inf)
    np.maximum.at(end_s, seen.workload.workflow, run.end_s_by_task())
    return Limit(run, end_s)


class Planner:
    """One arrival: courses that could be taken, and the best of them."""

    def __init__(self, policy: Policy, state: Any, cluster: Cluster, seen: Scene, usual: Mapping[str, float]) -> None:
        self.policy, self.state, self.cluster, self.seen, self.usual = policy, state, cluster, seen, usual
        self.limit = limit_of(seen, cluster, usual)
        # Before any course is tried: each look begins from these.
        self.sleep_after_s = state.classes.sleep_after_s.copy()
        self.outlook = Outlook(state, cluster, seen.rows, policy, seen.now_s)
        self.plain = self.outlook.left(0.0, 0)
        going = self.look(following.by_settings(usual), self.plain)
        # Only for its numbers of options and nodes; what has begun is not in it yet.
        bare = Game(seen.workload, cluster, gaps=True, levels=LEVELS)
        self.standing = standing(state, seen, bare, going.end_s, self.limit.end_s[seen.workload.workflow])

    def look(self, course: Course, left_s: Floats) -> Seen:
        """Simulate a course from here on."""

        def put(state: Any) -> None:
            following.put(state, self.cluster, self.seen.rows, course, self.sleep_after_s)

        return self.outlook.look(put, left_s)

    def over(self, seen: Seen, last_s: float) -> float:
        """By how much the last end is later than another's, as a share of the time from the first arrival on."""
        begin_s = float(self.seen.workload.workflow_submit_s.min())
        return (float(seen.end_s.max()) - begin_s) / max(1e-9, last_s - begin_s) - 1.0

    def plans(self) -> list[Course]:
        """Plan from each start under each line of watts, as far as a plan is found that ends in time when looked at."""
        # Nothing is free to be planned, or the portfolio would be done by now.
        if self.standing.fixed.all() or self.limit.last_s <= self.seen.now_s:
            return []
        together = replace(self.standing, due_s=np.full(len(self.seen.rows), math.inf))
        # Every workflow's own end first; where no plan keeps them all, the last end has to do.
        return self._plans_within(self.standing) or self._plans_within(together)

    def _plans_within(self, known: Standing) -> list[Course]:
        found = []
        for alone in (True, False):
            game = Game(self.seen.workload, self.cluster, known, gaps=True, levels=LEVELS, alone=alone)
            self._more_starts(game)
            found += [self._plan_from(game, number) for number in range(len(game.starts))]
        return [course for course in found if course is not None]

    def _plan_from(self, game: Game, number: int) -> Course | None:
        limit_s = tightened_s = self.limit.last_s - self.seen.now_s
        for turn in range(TRIES):
            _, choices, _ = game.walk_from(number, tightened_s, int(self.policy.params["search"]), turn)
            if choices is None:
                return None
            schedule = game.schedule(*choices)
            course = self.course(game, schedule)
            look = self.look(course, self.plain)
            if self.over(look, self.limit.last_s) <= ON_TIME:
                return course
            # Later than its own model says: less time for the next walk, by the same ratio.
            tightened_s = schedule.makespan_s * limit_s / (float(look.end_s.max()) - self.seen.now_s)
        return None

    def _more_starts(self, game: Game) -> None:
        """Add two starts: the portfolio's own run, and the present plan with that run for what is new."""
        run, rows = self.limit.run, self.seen.rows
        tasks = len(rows)
        node, start_s = np.zeros(tasks, np.int64), np.zeros(tasks)
        node[run.attempts["task"]], start_s[run.attempts["task"]] = run.attempts["node"], run.attempts["start_s"]
        # Runs of the flagship take the first variant at its nominal speed.
        option = game.offered.first[self.seen.workload.shape].copy()
        game.add_start(node, option, start_s)
        before = int(self.state.memory[sleeps.NOTES.planned]) if len(self.state.memory) > len(sleeps.NOTES) else 0
        block = self.state.memory[before : before + 1 + len(self.state.tasks)]
        # The block belongs to another State, or tasks came since: no plan is being followed.
        if not before or int(block[0]) != len(self.state.tasks):
            return
        planned_s = block[1:][rows]
        mine = (planned_s >= 0.0) & (self.state.tasks.pinned[rows] >= 0)
        variant = self.state.tasks.pinned_variant[rows].astype(np.int64)
        # Two numberings of options: three levels in the State, all of the cluster's in the game.
        there = option + variant // LEVELS * game.offered.levels + variant % LEVELS
        game.add_start(
            np.where(mine, self.state.tasks.pinned[rows], node).astype(np.int64),
            np.where(mine, there, option),
            np.where(mine, planned_s, start_s),
        )

    def course(self, game: Game, schedule: Schedule) -> Course:
        """Return a schedule as it is put into the State."""
        now_s = self.seen.now_s
        free: Longs = game.facts[7]
        first = game.offered.first[self.seen.workload.shape]
        option = schedule.option - first
        variant = option // game.offered.levels * LEVELS + option % game.offered.levels
        busy = np.column_stack([schedule.start_s, schedule.end_s]) + now_s
        ahead = busy[:, 1] > now_s
        spans = {int(n): busy[ahead & (schedule.node == n)] for n in np.unique(schedule.node[ahead])}
        asleep = frozenset(np.flatnonzero(self.standing.sleeps).tolist())
        rows = following.orders(spans, self.cluster, now_s, asleep)
        return Course(
            self.usual,
            self.seen.rows[free],
            schedule.node[free],
            variant[free],
            schedule.start_s[free] + now_s,
            tuple(rows),
            asleep,
        )

    def best(self, tries: Sequence[Mapping[str, float]]) -> Course:
        """Return the course to take: the plan or settings, judged beside the portfolio's setting."""
        courses = [following.by_settings(dials) for dials in (self.usual, *tries)] + self.plans()
        looks = [self.look(course, self.plain) for course in courses]
        as_estimated = [self._cost(look, looks[0].energy_j, self.limit.last_s) for look in looks]
        # The portfolio's own course is always among them: it is what the others are compared with.
        kept = list(dict.fromkeys([0, *np.argsort(as_estimated, kind="stable")[:LEFT].tolist()]))
        spread = self.policy.params["spread"]
        # Without a spread every draw is the same.
        drawn = [self.outlook.left(spread, seed) for seed in range(DRAWS if spread > 0.0 else 1)]
        theirs = [self.look(courses[0], left_s) for left_s in drawn]
        costs = {}
        for i in kept:
            mine = theirs if i == 0 else [self.look(courses[i], left_s) for left_s in drawn]
            energy = np.mean([_ratio(a.energy_j, b.energy_j) for a, b in zip(mine, theirs, strict=True)])
            over = np.mean([self.over(a, float(b.end_s.max())) for a, b in zip(mine, theirs, strict=True)])
            late = self.over(looks[i], self.limit.last_s) > ON_TIME
            # Courses that were late as estimated carry that with them, however lucky they are drawn.
            costs[i] = (late * as_estimated[i] + float(energy) + rehearsal.fine(float(over) - TOLERATED), i)
        best: int = min(kept, key=lambda i: costs[i])
        return courses[best]

    def _cost(self, look: Seen, reference_j: float, last_s: float) -> float:
        over = self.over(look, last_s)
        late = 1.0 + rehearsal.fine(over) if over > ON_TIME else 0.0
        return _ratio(look.energy_j, reference_j) + late


def _ratio(ours_j: float, theirs_j: float) -> float:
    """Logarithm; work that takes no time takes no joules."""
    return math.log(max(1e-9, ours_j) / max(1e-9, theirs_j))


def prepare(
    state: Any,
    cluster: Cluster,
    policy: Policy,
    known: Sequence[Workload] = (),
    name: str = "all",
    now_s: float | None = None,
) -> None:
    """Put the best course into the State; without workflows to look at, the flagship's rules with the dials given."""
    sleep_after_s = state.classes.sleep_after_s.copy()
    # Numbers that were given by hand stay in every setting that is tried.
    given = {k: v for k, v in policy.params.items() if k in wattflow.DIAL.defaults and v != wattflow.DIAL.defaults[k]}
    dials = dict(wattflow.DIAL.defaults) | given
    course, rows = following.by_settings(dials), np.zeros(0, np.int64)
    if known:
        usual = {**rehearsal.reference(policy.params["load"], name), **given}
        rows = rows_of(state, len(known))  # what was planned for them before is planned anew, or not at all
        course, seen = following.by_settings(usual), scene(state, known, cluster, now_s)
        if seen is not None:
            tries = [{**dials, **given} for dials in rehearsal.settings(name)]
            course = _best(policy, state, cluster, seen, usual, tries)
    following.put(state, cluster, rows, course, sleep_after_s)


def _best(
    policy: Policy,
    state: Any,
    cluster: Cluster,
    seen: Scene,
    usual: Mapping[str, float],
    tries: Sequence[Mapping[str, float]],
) -> Course:
    """Return the course to take; the portfolio's setting where a task has no place that a plan could give it."""
    try:
        return Planner(policy, state, cluster, seen, usual).best(tries)
    except WattflowError as error:
        log.info("nothing is planned: %s", error)
        return following.by_settings(usual)


@beforehand
def tailored(policy: Policy, known: Sequence[Workload], cluster: Cluster, name: str = "all") -> Policy:
    """Return the policy that plans what is open now."""
    fitted = replace(policy, tailor=None, tailor_next=None)
    return replace(fitted, prepare=partial(prepare, policy=fitted, known=tuple(known), name=name))


def foretold(workflows: Sequence[Workload], name: str = "all") -> Policy:
    """Return the same, told all workflows at the first arrival: for measuring what knowing them beforehand is worth."""

    def at_once(policy: Policy, known: Sequence[Workload], cluster: Cluster) -> Policy:
        fitted, now_s = replace(policy, tailor=None, tailor_next=None), float(known[0].workflow_submit_s[0])
        return replace(fitted, prepare=partial(prepare, policy=fitted, known=tuple(workflows), name=name, now_s=now_s))

    return replace(PLANNED, name="foretold", tailor=beforehand(at_once), tailor_next=None, knows_future=True)


def next_at(policy: Policy, seen: int) -> int:
    """At every arrival."""
    return seen + 1


def policy_of(name: str) -> Policy:
    """Return the policy with the settings of a fold."""
    return replace(PLANNED, tailor=beforehand(partial(tailored, name=name)))


def _unplanned(state: Any, cluster: Cluster) -> None:
    """Prepare with the dials that the State has been given: a driver may have been told others than the usual ones."""
    told = dict(zip(PLANNED.params, np.asarray(state.params).tolist(), strict=False))
    prepare(state, cluster, replace(PLANNED, params=told))


PLANNED = replace(
    wattflow.WATTFLOW,
    name="planned",
    summary="open tasks planned by annealing at each arrival, where that is better than any setting of the flagship",
    score=following.score,
    priority=following.priority,
    act=sleeps.act,
    params={**wattflow.DIAL.defaults, "load": rehearsal.LOAD, "search": 8_000.0, "spread": 0.2},
    prepare=_unplanned,
    tailor=tailored,
    tailor_next=next_at,
    terms={},
    limits={**wattflow.LIMITS, "load": (0.0, 1.0), "search": (1.0, 1e9), "spread": (0.0, 2.0)},
)

"""The live twin and the simulator's foresight decide by one rule: on the same stream they choose alike.

The simulator's run, with the members that its foresight chose, is told to a live engine as events. At every planning
point the twin is asked what it would use.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_live_replay import Replay

from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.learn.foresight import Foresight
from wattflow.live.looking import Rule
from wattflow.live.twin import AtOnce, Twin, _mark
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, kernel

FLAGSHIP = registry.load("learned", lean=0.0)
FREE = Rule(worth=0.002, sure=0.0, wait=0.3, learnt=2)
"""Changes members more often than the usual one, so that there is something to compare."""

DIALS: list[dict[str, float]] = [{"sleep": 1e6}, {}, {"second": 100.0}, {"wait": 0.5}, {"lean": 1.0}, {"sleep": 0.3}]
"""A reference that leaves nodes on, and others that do not."""


class Noted(Foresight):
    """A foresight that notes what it chose, and every instant of its run."""

    def run_noted(self) -> tuple[Run, dict[float, int], set[float]]:
        """The run, the number chosen at each planning point, and the instants."""
        chosen: list[int] = []
        instants: set[float] = set()
        advance, choose, sim = self.simulation.advance, self.choose, self.simulation

        def by_one(until_s: float = np.inf, max_events: int | None = None) -> int:
            status = kernel.LIMIT
            while status == kernel.LIMIT:
                status = advance(until_s, 1)
                instants.add(float(sim.state.clock.now[0]))
            return status

        def noting(present: int) -> int:
            chosen.append(choose(present))
            return chosen[-1]

        vars(self.simulation)["advance"], vars(self)["choose"] = by_one, noting
        self.run()
        points = dict(zip(self.points().tolist(), chosen, strict=False))
        return self.simulation.result(), points, instants


class Told(Replay):
    """A live engine with a twin that is asked at planning points; ``answers`` are what it would use then."""

    def __init__(self, run: Run, members: list[Policy], points: dict[float, int], rule: Rule) -> None:
        super().__init__(run, members[0], SimOptions(), seed=0)
        self.twin = Twin(members, every_s=0.0, spread=0.0, seeds=(0,), rule=rule, executor=AtOnce())
        self.members, self.points, self.answers = members, points, dict[float, int]()

    def instant(self, now: float, rows: list[tuple[int, int, object]]) -> None:
        super().instant(now, rows)
        self.twin.arrived.note(self.engine, now)

    def go(self) -> None:
        self.events[self.run.start_s]  # nodes idle from the start of the run
        for at_s, chosen in sorted(self.points.items()):
            self.until(at_s)
            self.engine.step(at_s)
            before = self.engine.policy
            found = self.twin.consider(self.engine, at_s) or before
            self.answers[at_s] = self.number(found)
            if self.members[chosen].name != before.name:  # as the simulator went on, whatever the twin says
                self.engine.use(self.members[chosen])
                self.twin._used = _mark(self.members[chosen])
                self.events[at_s]
        self.until(self.run.start_s + self.run.makespan_s)

    def until(self, at_s: float) -> None:
        while self.events and min(self.events) <= at_s:
            now = min(self.events)
            self.instant(now, self.events.pop(now))

    def number(self, policy: Policy) -> int:
        return [member.name for member in self.members].index(policy.name)


def stream(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    parts = [Recipe("montage", tasks).draw(seed + i) for i, tasks in enumerate((20, 30, 25, 20, 30, 25, 20, 30))]
    # Minutes instead of seconds: else nobody sleeps, and members are all alike.
    parts = [replace(part, runtime_s=60 * part.runtime_s, estimate_s=60 * part.estimate_s) for part in parts]
    cluster = scenarios.random_cluster(np.random.default_rng(seed), "small")
    gap_s = float(np.mean([joining.core_seconds(part) for part in parts])) / joining.capacity(cluster) / 0.1
    submit_s = np.cumsum(rng.exponential(gap_s, len(parts)))
    return joining.joined(parts, submit_s, cluster, 5.0, "stream")


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_on_the_same_stream_they_choose_alike(seed: int) -> None:
    workload = stream(seed)
    rng = np.random.default_rng(seed)
    workload = workload.with_estimates(workload.estimate_s * np.exp(rng.normal(0.0, 0.1, len(workload))))
    cluster = scenarios.random_cluster(np.random.default_rng(seed), "small")
    members = [replace(FLAGSHIP.with_params(**some), name=f"member-{i}") for i, some in enumerate(DIALS)]
    run, points, instants = Noted(workload, cluster, members, 0, draws=1, rule=FREE, spread=0.0).run_noted()
    told = Told(run, members, points, FREE)
    for now in instants:
        told.events[now]
    told.go()
    assert len(told.placed) == len(run.attempts)
    assert max(points.values()) > 0, "the case does not ask enough"
    assert told.answers == points

"""Trials: one workload on one cluster, simulated again and again under other weights without being set up anew.

A trial keeps the tables as they are before the first event; each run copies them back (microseconds), puts the weights
in and lets the compiled kernel go to the end. Runs release the interpreter's lock, so threads use all cores.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import measured
from wattflow.plan.measured import BASELINE, BOUND, PUNCTUAL, Result
from wattflow.policy import learned, registry, weights
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, kernel, world_build
from wattflow.sim.simulate import Simulation

Floats = NDArray[np.float64]


class WeightsTrial:
    """A workload on a cluster under one policy, ready to run many times."""

    def __init__(
        self, workload: Workload, cluster: Cluster, policy: str | Policy, seed: int, options: SimOptions | None = None
    ) -> None:
        self.workload = workload
        self.simulation = Simulation(workload, cluster, policy, seed=seed, options=options)
        sim = self.simulation
        world = world_build.build_world(sim.state, workload, cluster, sim.options, seed)
        # In one piece of memory each, so that a restart is two copies of bytes.
        self.beginning = self._state, self._world = sim.state.copy(), world.copy()
        sim.state, sim.world = self._state.copy(), self._world.copy()
        self._learns = sim.policy.prepare is learned.prepare
        self._due_s = np.full(len(workload.workflow_submit_s), np.inf)
        np.minimum.at(self._due_s, workload.workflow, workload.deadline_s)
        self._lock = threading.Lock()

    def restart(self, theta: Floats | None = None) -> None:
        """Go back before the first event. Weights of no length are zeros."""
        sim = self.simulation
        try:
            sim.state.copy_from(self._state)
            sim.world.copy_from(self._world)
        except ValueError:  # tables grew in the last run
            sim.state, sim.world = self._state.copy(), self._world.copy()
        if theta is not None and self._learns:
            learned.use(sim.state, theta if len(theta) else np.zeros(weights.SIZE))
        with np.errstate(over="ignore"):
            kernel.open_world(sim.state.handle(), sim.world.handle())

    def run(self, theta: Floats | None = None) -> Result:
        """Simulate to the end, with these weights where the policy has any."""
        with self._lock, np.errstate(over="ignore"):
            self.restart(theta)
            sim = self.simulation
            while sim.advance() != kernel.DONE:
                pass
            kernel.settle(sim.state.handle(), sim.world.handle())
            return self.result()

    def result(self) -> Result:
        """Sum up the run, its intervals being settled."""
        sim = self.simulation
        pulse = sim.world.pulse[0]
        rows = sim.world.records[: int(pulse.record_n)]
        end_s = np.zeros(len(self._due_s))
        np.maximum.at(end_s, self.workload.workflow[rows["task"]], rows["end_s"])
        response_s = end_s - self.workload.workflow_submit_s
        return Result(
            float(sim.world.energy.sum()),
            float(response_s.mean()),
            float(np.quantile(response_s, 0.95)),
            float(pulse.last_end - sim.state.clock.start[0]),
            frozenset(np.flatnonzero(end_s > self._due_s + 1e-6).tolist()),
            measured.tail_of(response_s),
        )


@dataclass(frozen=True, slots=True)
class TrialWeights:
    """Weights of a trial: shares of response and makespan beside energy, and the flagship's dial."""

    response: float = 0.0
    makespan: float = 0.0
    wait: float = 0.0

    def policy(self) -> Policy:
        """Return the learned policy, told so."""
        energy = 1.0 - self.response - self.makespan
        return registry.load("learned", energy=energy, response=self.response, makespan=self.makespan, wait=self.wait)


class Drawn(Protocol):
    """A scenario that can be judged: a cluster, errors of what is known there, and the workload of a seed."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def options(self) -> SimOptions: ...
    def draw(self, seed: int) -> Workload:
        """Draw the workload of a seed."""


class Judge:
    """A scenario and a seed with what others did there: the reward of weights is measured against them."""

    BOUND, STEP, WIDTH, PRICE = 1.0, 0.3, 0.06, 2.0
    """From which ratio to the baseline's seconds on the worst of mean, tail and makespan is fined. The bound comes
    first: breaking it by a few times ``WIDTH`` costs ``STEP``, more than most joules there are to win, and each further
    per cent ``PRICE``. A seed alone is judged a little harder than the mean of several (1.02)."""

    def __init__(
        self, scenario: Drawn, seed: int, wish: TrialWeights | None = None, policy: Policy | None = None,
        reference: Policy | None = None,
    ) -> None:  # fmt: skip
        self.scenario, self.seed, self.wish = scenario, seed, wish or TrialWeights()
        workload = scenario.draw(seed)
        cluster, options = scenario.cluster, scenario.options
        self.trial = WeightsTrial(workload, cluster, policy or self.wish.policy(), seed, options)
        self.baseline, self.punctual, self.reference = (
            measured.measure(workload, cluster, policy, seed, options)
            for policy in (
                BASELINE,
                PUNCTUAL,
                reference or registry.load("wattflow", wait=self.wish.wait),
            )
        )

        self.fined = self.penalty(self.reference)

    def like(self, scenario: Drawn) -> Judge:
        """Take the same seed and wish in another scenario."""
        return Judge(scenario, self.seed, self.wish)

    def beside(self, baseline: Result) -> None:
        """Fine what is slower than this from now on."""
        self.baseline = baseline
        self.fined = self.penalty(self.reference)

    def parts(self, theta: Floats) -> tuple[float, float]:
        """Run the weights; return what they win and what they are fined in the scenario."""
        found = self.trial.run(theta)
        return self.gain(found), self.penalty(found)

    def gain(self, found: Result) -> float:
        """Return log-ratio of the reference's joules (and seconds, as wished) to ours."""
        wish = self.wish
        gain = (1.0 - wish.response - wish.makespan) * math.log(self.reference.energy_j / found.energy_j)
        gain += wish.response * math.log(self.reference.mean_s / found.mean_s)
        return gain + wish.makespan * math.log(self.reference.makespan_s / found.makespan_s)

    def penalty(self, found: Result) -> float:
        """Price seconds beyond those of the baseline (and the dial) and newly missed deadlines."""
        slower = max(
            getattr(found, name) / max(1e-9, getattr(self.baseline, name))
            for name in ("mean_s", "tail_s", "makespan_s")
        )
        missed = len(found.missed - self.punctual.missed)
        beyond = max(0.0, math.log(slower / (self.BOUND + self.wish.wait)))
        late = self.STEP * -math.expm1(-beyond / self.WIDTH) + self.PRICE * beyond
        return late + (self.STEP if missed else 0.0) + missed / max(1, len(self.trial.workload.workflow_names))

    def keeps(self, found: Result) -> bool:
        """Tell whether the bound holds in this seed, and nobody is late who was not under `eft:sleep=120`."""
        return not found.missed - self.punctual.missed and all(
            getattr(found, name) <= BOUND * getattr(self.baseline, name) for name in ("mean_s", "p95_s", "makespan_s")
        )


def beyond(pairs: Sequence[tuple[Judge, Result]]) -> tuple[float, float, float]:
    """Compare checkpoints by what they did in each scenario: gain, log-ratio of joules, share kept.

    The gain is beyond the reference's, and a hundredth of the scenarios more within the bound is worth a per cent of
    joules in it, as in the portfolio.
    """
    energy = float(np.mean([math.log(found.energy_j / one.reference.energy_j) for one, found in pairs]))
    kept = float(np.mean([one.keeps(found) for one, found in pairs]))
    return kept - float(np.mean([one.keeps(one.reference) for one, _ in pairs])) - energy, energy, kept

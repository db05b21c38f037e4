"""Simulate before commit inside the simulator: a whole stream run with a look ahead at every arrival.

The same rule as `wattflow.live.twin`, for judging it on many scenarios. Members are settings of `learned`, whose
``lean`` = 0 is `wattflow` with its dials, so that a change of member is a change of numbers: dials, notes, time-outs.
A look ahead starts from the State, which holds estimates alone: what runs and waits is drawn round its estimate, watts
are those of the profiles, and no workflow is known before it arrives.

A look ahead errs where estimates do, and the same way at every planning point. So there is a look back beside it
(`hindsight`): all that has arrived, replayed from the start under each member with the runtimes that are known by now.
A member is changed for another that saves enough in the look ahead, for sure (the draws are common to all), and that
would not have been worse until now; one that would have been worse than the reference gives its place back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.build import build_state
from wattflow.engine.tables import DONE, PLACED
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.learn.portfolio import Result
from wattflow.learn.trial import Trial
from wattflow.live import roll
from wattflow.live.twin import SPREAD, WAIT, lead
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.policy import learned, placing
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, adopt, kernel
from wattflow.sim.simulate import _grow
from wattflow.sim.tailoring import recheck
from wattflow.sim.world import RUNS

Floats = NDArray[np.float64]
LEARNT = 2
"""Workflows without whose end a look back says nothing: until then the reference stays. (Members that were chosen
before were what cost most, on seeds on which no threshold had been chosen.)"""
WORSE = 0.005
"""A member that would have taken so much more than the reference until now is given up."""


@dataclass(frozen=True, slots=True)
class Member:
    """A setting as the numbers that a State holds of it."""

    params: Floats
    memory: Floats
    sleep_after_s: Floats


@dataclass(frozen=True, slots=True)
class Look:
    """What one member would do with all that is open: joules, mean seconds of open workflows, late ones, last end."""

    energy_j: float
    response_s: float
    late: float
    last_s: float = 0.0


class Foresight(Trial):
    """A trial in which the member in use is chosen anew at every arrival.

    Args:
        members: Settings of the learned policy; the first is the reference, used until another is better.
        draws: Looks for each member at a planning point, under the same draws for all.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        members: Sequence[Policy],
        seed: int,
        options: SimOptions | None = None,
        draws: int = 3,
    ) -> None:
        if any(member.score is not learned.score for member in members):
            raise InvalidInput("members", "must all be settings of the policy 'learned'")
        super().__init__(workload, cluster, members[0], seed, options)
        self.draws = draws
        self.members = [self._numbers(member, cluster) for member in members]
        self.used = np.zeros(len(members), np.int64)
        self._future = self._world.copy()
        self._future.replace(arrivals=np.zeros(0, self._world.arrivals.dtype))
        self._future.watt_error[:] = 1.0
        self._copies: tuple[Any, Any] | None = None

    def _numbers(self, member: Policy, cluster: Cluster) -> Member:
        state = build_state(self.workload, cluster, member.settings)
        for i, value in enumerate(member.params.values()):
            state.params[i] = value
        assert member.prepare is not None
        member.prepare(state, cluster)
        return Member(state.params.copy(), state.memory.copy(), state.classes.sleep_after_s.copy())

    def run(self, theta: Floats | None = None) -> Result:
        """Simulate to the end; weights are the members' own."""
        with self._lock, jit.compiling(), np.errstate(over="ignore"):
            self.restart()
            sim, self.used[:], present = self.simulation, 0, 0
            for at_s in self.points().tolist():
                sim.advance(at_s)
                if sim.state.counts.open[0] == 0:
                    break
                chosen = self.choose(present)
                self.used[chosen] += 1
                if chosen != present:
                    self._become(sim.state, self.members[chosen])
                    recheck(sim.state.handle(), sim.world.handle())
                    present = chosen
            while sim.advance() != kernel.DONE:
                pass
            kernel.settle(sim.state.handle(), sim.world.handle())
            return self.result()

    def points(self) -> Floats:
        """When to look: at every arrival, and as often again after the last one."""
        at_s = np.unique(self.workload.workflow_submit_s)
        gap_s = max(1e-3, float(at_s[-1] - at_s[0]) / max(1, len(at_s) - 1))
        return np.concatenate([at_s, at_s[-1] + gap_s * np.arange(1, len(at_s) + 1)])

    def _become(self, state: Any, member: Member) -> None:
        """Dials, notes and time-outs of a member; what was watched stays."""
        first = int(state.memory[learned.NOTES.watched])
        watched = state.memory[first : first + placing.TIMER].copy()
        state.params[:] = member.params
        state.memory[: len(member.memory)] = member.memory
        state.memory[first : first + placing.TIMER] = watched
        state.classes.sleep_after_s[:] = member.sleep_after_s

    def choose(self, present: int) -> int:
        """The number of the member to use from now on."""
        state = self.simulation.state
        left = [roll.draw_left(state, SPREAD, seed) for seed in range(self.draws)]
        looks = [[self._roll(member, draw) for draw in left] for member in self.members]
        means = [self._mean(some) for some in looks]
        able = {i for i, look in enumerate(means) if keeps(look, means[0])}
        leads = {
            i: lead([x.energy_j for x in looks[present]], [x.energy_j for x in looks[i]]) for i in able - {present}
        }
        wanted = [i for i, won in sorted(leads.items(), key=lambda one: -one[1]) if won > 0.0]
        if present not in able:
            present, wanted = 0, []
        return self._borne_out(present, wanted, left[0])

    def _borne_out(self, present: int, wanted: Sequence[int], left: Floats) -> int:
        """The first of those wanted that looking back bears out; the reference where it would have been better."""
        if self._ended() < LEARNT or (present == 0 and not wanted):
            return present
        reference = self.hindsight(0, left)
        mine = reference if present == 0 else self.hindsight(present, left)
        if not _no_worse(mine, reference):
            return 0
        for i in wanted:
            if _no_worse(self.hindsight(i, left), mine):
                return i
        return present

    @staticmethod
    def _mean(looks: Sequence[Look]) -> Look:
        return Look(*(float(np.mean([getattr(look, one.name) for look in looks])) for one in fields(Look)))

    def _roll(self, member: Member, left: Floats) -> Look:
        """Until all that is open has ended. What idles afterwards does so until the next arrival, which nobody knows.

        Going on for some time was tried: then those whose nodes sleep first win, whatever they do with the work.
        """
        sim = self.simulation
        state, world = self._scratch()
        self._become(state, member)
        world.runtime[:] = left[: len(world.runtime)]
        now = float(state.clock.now[0])
        world.pulse["last_end"] = now
        adopt.adopt(state.handle(), world.handle())
        step = kernel.kernel(state, world, sim.functions)
        while step(state.handle(), world.handle(), sim.functions, math.inf, 1 << 40) == kernel.GROW:
            _grow(state, world, SimOptions())
            self._copies = None
        kernel.settle(state.handle(), world.handle())
        flow, submit_s = self.workload.workflow, self.workload.workflow_submit_s
        still = np.asarray(sim.state.tasks["state"])[: len(flow)] < DONE
        mine = (np.bincount(flow[still], minlength=len(submit_s)) > 0) & (submit_s <= now)
        return self._look(state, world, mine, now)

    def _ended(self) -> int:
        """Workflows that are done."""
        flow = self.workload.workflow
        still = np.asarray(self.simulation.state.tasks["state"])[: len(flow)] < DONE
        return len(self._due_s) - len(np.unique(flow[still]))

    def hindsight(self, number: int, left: Floats) -> Look:
        """All that has arrived, from the start, if a member had been in use: joules, response, late ones.

        Runtimes are the true ones of tasks that are done; of the others as they are drawn.
        """
        sim, now = self.simulation, float(self.simulation.state.clock.now[0])
        state, world = self._state.copy(), self._world.copy()
        self._become(state, self.members[number])
        arrived = np.asarray(state.tasks["release"])[world.arrivals] <= now
        world.replace(arrivals=world.arrivals[arrived].copy())
        world.watt_error[:] = 1.0
        rows, tasks = len(world.runtime), np.asarray(sim.state.tasks)
        guess = np.where(np.isfinite(tasks["estimate"]), tasks["estimate"], left)[:rows]
        # What is left of a task that runs is no runtime: its estimate is taken.
        unknown = np.where(tasks["state"][:rows] == PLACED, guess, left[:rows])
        world.runtime[:] = np.where(tasks["state"][:rows] == DONE, sim.world.runtime, unknown)
        kernel.open_world(state.handle(), world.handle())
        step = kernel.kernel(state, world, sim.functions)
        while step(state.handle(), world.handle(), sim.functions, math.inf, 1 << 40) == kernel.GROW:
            _grow(state, world, SimOptions())
        kernel.settle(state.handle(), world.handle())
        return self._look(state, world, self.workload.workflow_submit_s <= now, 0.0)

    def _scratch(self) -> tuple[Any, Any]:
        """Copies to look ahead in: the State of now, and a World in which nothing has begun."""
        now = self.simulation.state
        if self._copies is not None:
            try:
                self._copies[0].copy_from(now)
                self._copies[1].copy_from(self._future)
                return self._copies
            except ValueError:  # tables grew
                pass
        if len(self._future.runs) < len(now.attempts):
            self._future.replace(runs=record_table(RUNS, len(now.attempts)))
        self._copies = now.copy(), self._future.copy()
        return self._copies

    def _look(self, state: Any, world: Any, mine: NDArray[np.bool_], since_s: float) -> Look:
        """Joules until the end, and how long ``mine`` take; those that nothing ends count as long again."""
        rows = world.records[: int(world.pulse.record_n[0])]
        flow, submit_s = self.workload.workflow, self.workload.workflow_submit_s
        after = np.asarray(state.tasks["state"])[: len(flow)] < DONE
        left = np.bincount(flow[after], minlength=len(submit_s)) > 0
        end_s = np.full(len(submit_s), since_s)
        np.maximum.at(end_s, flow[rows["task"]], rows["end_s"])
        end_s[left] = 2.0 * float(state.clock.now[0]) - float(self.simulation.state.clock.now[0])
        late = float(np.count_nonzero(end_s[mine] > self._due_s[mine] + 1e-6))
        response_s = float((end_s - submit_s)[mine].mean()) if mine.any() else 0.0
        last_s = float(end_s[mine].max(initial=since_s)) - since_s
        return Look(float(world.energy.sum()), response_s, late, last_s)


def _no_worse(one: Look, other: Look) -> bool:
    return keeps(one, other) and one.energy_j <= (1.0 + WORSE) * other.energy_j


def keeps(one: Look, reference: Look) -> bool:
    """Whether nobody waits longer, the last not either, and no more workflows are late, than under the reference."""
    sooner = one.response_s <= reference.response_s * (1 + WAIT) + 1e-9
    return sooner and one.last_s <= reference.last_s * (1 + WAIT) + 1e-9 and one.late <= reference.late

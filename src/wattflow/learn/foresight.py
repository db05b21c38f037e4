"""Simulate before commit inside the simulator: a whole stream run with a look ahead at every arrival.

The same rule object as the live twin's (`wattflow.live.looking`), for judging it on many scenarios. Members are
settings of `learned`, whose ``lean`` = 0 is `wattflow` with its dials, so that a change of member is a change of
numbers: dials, notes, time-outs. A look ahead starts from the State, which holds estimates alone: what runs and waits
is drawn round its estimate, watts are those of the profiles, and no workflow is known before it arrives. A look back
(`hindsight`) has true runtimes of what is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine import agenda
from wattflow.engine.build import build_state
from wattflow.engine.tables import DONE, PLACED, READY, STARTED
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.learn.portfolio import Result
from wattflow.learn.trial import Trial
from wattflow.live import desk, kernels, roll
from wattflow.live.looking import SPREAD, USUAL, Ends, Look, Rule
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.policy import learned, placing
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, adopt, kernel
from wattflow.sim.simulate import grow
from wattflow.sim.tailoring import recheck
from wattflow.sim.world import RUNS

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Member:
    """A setting as the numbers that a State holds of it."""

    params: Floats
    memory: Floats
    sleep_after_s: Floats


class Foresight(Trial):
    """A trial in which the member in use is chosen anew at every arrival.

    Args:
        members: Settings of the learned policy; the first is the reference, used until another is better.
        draws: Looks for each member at a planning point, under the same draws for all.
        rule: When the member in use is changed.
        spread: σ of the logarithm of runtimes around their estimates, as they are drawn.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        members: Sequence[Policy],
        seed: int,
        options: SimOptions | None = None,
        draws: int = 3,
        rule: Rule = USUAL,
        spread: float = SPREAD,
    ) -> None:
        if any(member.score is not learned.score for member in members):
            raise InvalidInput("members", "must all be settings of the policy 'learned'")
        super().__init__(workload, cluster, members[0], seed, options)
        self.draws, self.rule, self.spread = draws, rule, spread
        self.members = [self._numbers(member, cluster) for member in members]
        self.used = np.zeros(len(members), np.int64)
        self._live = kernels.kernels(self._state, desk.make_desk(1, 1, 1))
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
                sim.state.clock["now"] = at_s  # nothing happens until then, but time goes by
                chosen = self.choose(present)
                self.used[chosen] += 1
                if chosen != present:
                    self._become(sim.state, self.members[chosen])
                    recheck(sim.state.handle(), sim.world.handle())
                    decide_again(sim.state.handle(), sim.world.handle())
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
        """Dials, notes and time-outs of a member, by which the queue is ordered anew; what was watched stays."""
        first = int(state.memory[learned.NOTES.watched])
        watched = state.memory[first : first + placing.TIMER].copy()
        state.params[:] = member.params
        state.memory[: len(member.memory)] = member.memory
        state.memory[first : first + placing.TIMER] = watched
        state.classes.sleep_after_s[:] = member.sleep_after_s
        waiting = np.flatnonzero(np.asarray(state.tasks["state"]) == READY)
        waiting = waiting[np.argsort(np.asarray(state.tasks["sequence"])[waiting], kind="stable")]
        self._live.requeue(state.handle(), self.simulation.functions, waiting)

    def choose(self, present: int) -> int:
        """The number of the member to use from now on."""
        if self._ended() < self.rule.learnt:
            return 0
        state = self.simulation.state
        self._as_told_live()
        left = [roll.draw_left(state, self.spread, seed) for seed in range(self.draws)]
        looks = [[self._roll(member, draw) for draw in left] for member in self.members]
        return self.rule.back(*self.rule.ahead(present, looks), lambda number: self.hindsight(number, left[0]))

    def _as_told_live(self) -> None:
        """What runs, since when, and what waits for its node to wake, where a live engine has it from its driver.

        Without it everything seemed to have run since the start of the stream, and to be almost done.
        """
        attempts = self.simulation.state.attempts
        runs = self.simulation.world.runs[: len(attempts)]
        attempts["started"] = np.where(attempts["stage"] == STARTED, runs["start"], np.nan)

    def _roll(self, member: Member, left: Floats) -> Look:
        """Until all that is open has ended. What idles afterwards does so until the next arrival, which nobody knows.

        Going on for some time was tried: then those whose nodes sleep first win, whatever they do with the work.
        """
        sim = self.simulation
        state, world = self._scratch()
        self._become(state, member)
        world.runtime[:] = left[: len(world.runtime)]
        now = float(state.clock.now[0])
        self._only_arrived(state, now)
        world.pulse["last_end"] = now
        adopt.take_over(state, world)
        step = kernel.kernel(state, world, sim.functions)
        while step(state.handle(), world.handle(), sim.functions, math.inf, 1 << 40) == kernel.GROW:
            grow(state, world, SimOptions())
            self._copies = None
        kernel.settle(state.handle(), world.handle())
        flow, submit_s = self.workload.workflow, self.workload.workflow_submit_s
        still = np.asarray(sim.state.tasks["state"])[: len(flow)] < DONE
        mine = (np.bincount(flow[still], minlength=len(submit_s)) > 0) & (submit_s <= now)
        return self._look(state, world, mine, now)

    def _only_arrived(self, state: Any, now_s: float) -> None:
        """Let a look end with the work that has arrived.

        While tasks that will not arrive in it counted as open, it went on until every time-out was over, and whoever
        let nodes sleep sooner won.
        """
        flow = self.workload.workflow
        here = self.workload.workflow_submit_s[flow] <= now_s
        state.counts["open"] = np.count_nonzero(here & (np.asarray(state.tasks["state"])[: len(flow)] < DONE))

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
        self._only_arrived(state, now)
        world.watt_error[:] = 1.0
        rows, tasks = len(world.runtime), np.asarray(sim.state.tasks)
        guess = np.where(np.isfinite(tasks["estimate"]), tasks["estimate"], left)[:rows]
        # What is left of a task that runs is no runtime: its estimate is taken.
        unknown = np.where(tasks["state"][:rows] == PLACED, guess, left[:rows])
        world.runtime[:] = np.where(tasks["state"][:rows] == DONE, sim.world.runtime, unknown)
        kernel.open_world(state.handle(), world.handle())
        step = kernel.kernel(state, world, sim.functions)
        while step(state.handle(), world.handle(), sim.functions, math.inf, 1 << 40) == kernel.GROW:
            grow(state, world, SimOptions())
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
        ends = Ends(submit_s[mine], self._due_s[mine], end_s[mine])
        return Look.of(float(world.energy.sum()), ends, since_s, float(np.count_nonzero(rows["outcome"] == 0)))


@jit.jit
def decide_again(state: Any, world: Any) -> None:
    """Let the kernel decide at this instant once more."""
    agenda.push(state, state.clock[0].now, agenda.LOOK, 0, 0)


__all__ = ["Foresight", "Member"]

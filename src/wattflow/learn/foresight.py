"""Simulate before commit inside the simulator: a whole stream run with a look ahead at every arrival.

The same rule as `wattflow.live.twin`, for judging it on many scenarios. Members are settings of `learned`, whose
``lean`` = 0 is `wattflow` with its dials, so that a change of member is a change of numbers: dials, notes, time-outs.
A look ahead starts from the State, which holds estimates alone: what runs and waits is drawn round its estimate, watts
are those of the profiles, and no workflow is known before it arrives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.build import build_state
from wattflow.engine.tables import DONE, ON
from wattflow.kernel import jit
from wattflow.kernel.jit import jit as entry
from wattflow.kernel.records import record_table
from wattflow.learn.portfolio import Result
from wattflow.learn.trial import Trial
from wattflow.live import roll
from wattflow.live.twin import SPREAD, WAIT, WORTH
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.policy import learned, placing
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, adopt, kernel, sleep
from wattflow.sim.simulate import _grow
from wattflow.sim.world import RUNS

Floats = NDArray[np.float64]
MORE, LEAST_S = 1.2, 120.0
"""Looks go on for so much longer than the reference needs for what is open, so that idling afterwards counts."""


@entry
def recheck(state, world):  # type: ignore[no-untyped-def]
    """After a change of time-outs: when idle nodes are looked at again."""
    now = state.clock[0].now
    for n in range(state.nodes.size):
        row = state.nodes[n]
        after_s = state.classes[row.cls].sleep_after_s
        if row.power_state == ON and row.running == 0 and row.pos >= 0:
            row.generation += 1
            if after_s < math.inf:
                sleep.check_later(state, world, n, max(now, row.idle_since + after_s))


@dataclass(frozen=True, slots=True)
class Member:
    """A setting as the numbers that a State holds of it."""

    params: Floats
    memory: Floats
    sleep_after_s: Floats


@dataclass(frozen=True, slots=True)
class Look:
    """What one member would do with all that is open: joules, mean seconds of open workflows, late ones."""

    energy_j: float
    response_s: float
    late: float


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
            for at_s in np.unique(self.workload.workflow_submit_s).tolist():
                sim.advance(at_s)
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
        end_s = self._roll(self.members[0], left[0], math.inf)[0]
        until_s = float(state.clock.now[0]) + MORE * (end_s - float(state.clock.now[0])) + LEAST_S
        looks = [self._mean([self._roll(member, draw, until_s)[1] for draw in left]) for member in self.members]
        able = [i for i, look in enumerate(looks) if keeps(look, looks[0])]
        best = min(able, key=lambda i: (looks[i].energy_j, i))
        if present in able and looks[best].energy_j > (1 - WORTH) * looks[present].energy_j:
            return present
        return best

    @staticmethod
    def _mean(looks: Sequence[Look]) -> Look:
        energy_j, response_s, late = (
            float(np.mean([getattr(look, name) for look in looks])) for name in ("energy_j", "response_s", "late")
        )
        return Look(energy_j, response_s, late)

    def _roll(self, member: Member, left: Floats, until_s: float) -> tuple[float, Look]:
        """When the last task ends, and the look."""
        sim = self.simulation
        state, world = self._scratch()
        self._become(state, member)
        world.runtime[:] = left[: len(world.runtime)]
        now = float(state.clock.now[0])
        world.pulse["last_end"] = now
        adopt.adopt(state.handle(), world.handle())
        step = kernel.kernel(state, world, sim.functions)
        while step(state.handle(), world.handle(), sim.functions, until_s, 1 << 40) == kernel.GROW:
            _grow(state, world, SimOptions())
            self._copies = None
        if math.isfinite(until_s):
            state.clock["now"] = max(until_s, float(state.clock.now[0]))
        kernel.settle(state.handle(), world.handle())
        return max(now, float(world.pulse.last_end[0])), self._look(state, world, now)

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

    def _look(self, state: Any, world: Any, now: float) -> Look:
        """Joules until the horizon; workflows that are not done by then end as long after it again."""
        rows = world.records[: int(world.pulse.record_n[0])]
        flow, submit_s = self.workload.workflow, self.workload.workflow_submit_s
        before, after = (np.asarray(s.tasks["state"])[: len(flow)] < DONE for s in (self.simulation.state, state))
        mine, left = (np.bincount(flow[some], minlength=len(submit_s)) > 0 for some in (before, after))
        mine &= submit_s <= now
        end_s = np.full(len(submit_s), now)
        np.maximum.at(end_s, flow[rows["task"]], rows["end_s"])
        horizon_s = float(state.clock.now[0])
        end_s[left] = 2.0 * horizon_s - now
        late = float(np.count_nonzero(end_s[mine] > self._due_s[mine] + 1e-6))
        return Look(float(world.energy.sum()), float((end_s - submit_s)[mine].mean()) if mine.any() else 0.0, late)


def keeps(one: Look, reference: Look) -> bool:
    """Whether nobody waits longer, and no more workflows are late, than under the reference."""
    return one.response_s <= reference.response_s * (1 + WAIT) + 1e-9 and one.late <= reference.late

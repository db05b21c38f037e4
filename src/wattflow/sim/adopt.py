"""A World that begins in the middle: the physics of a State in which attempts run and nodes wake already."""

from __future__ import annotations

import math

from wattflow.engine import agenda
from wattflow.engine.tables import FALLING, ON, WAITS, WAKING, State
from wattflow.kernel.jit import inner
from wattflow.kernel.jit import jit as entry
from wattflow.sim import energy_accounts, faults, running, world_build
from wattflow.sim.world import OK, World


def take_over(state: State, world: World) -> None:
    """Take a State over at its present time. World's ``runtime`` holds what is left of the tasks that run."""
    world_build.make_event_room(state)
    _adopt(state.handle(), world.handle())


@entry
def _adopt(state, world):
    now = state.clock[0].now
    # What the State was to come back for is another driver's: a live engine's timers, or another World's events.
    state.counts[0].timer_n = 0
    for n in range(state.nodes.size):
        row = state.nodes[n]
        kind = state.classes[row.cls]
        world.nodes[n].idle_w = kind.idle_w * world.watt_error[n]
        world.nodes[n].since = now
        # From 0: `refresh` adds the difference to the watts of the whole cluster.
        world.nodes[n].watts = 0.0
        energy_accounts.refresh(state, world, n)
        if row.pos < 0:
            continue
        if row.power_state == WAKING:
            # Its driver may be late with the report: the wake never ends in the past.
            agenda.push(state, max(now, row.on_at), agenda.WAKE_DONE, n, 0)
        elif row.power_state == FALLING:
            # State does not hold when the fall began: it is taken to begin now.
            agenda.push(state, now + kind.enter_s, agenda.FALL_DONE, n, row.falls)
        elif row.power_state == ON:
            faults.schedule_failure(state, world, n)
            if row.running == 0 and kind.sleep_after_s < math.inf:
                at = max(now, row.idle_since + kind.sleep_after_s)
                agenda.push(state, at, agenda.SLEEP, n, row.generation)
    for a in range(state.attempts.size):
        if state.attempts[a].task >= 0:
            _adopt_attempt(state, world, a)


@inner
def _adopt_attempt(state, world, a):
    run = world.runs[a]
    run.outcome = OK
    run.since = state.clock[0].now
    run.domain = -1
    if state.attempts[a].stage != WAITS:
        running.start_run(state, world, a)

"""A World that begins in the middle: the physics of a State in which attempts run and nodes wake already."""

from __future__ import annotations

import math

from wattflow.engine.tables import FALLING, ON, WAITS, WAKING
from wattflow.kernel.jit import inner
from wattflow.kernel.jit import jit as entry
from wattflow.sim import clocks, faults, power, running
from wattflow.sim.world import FALL_DONE, NODE, OK, SLEEP_CHECK, WAKE, WAKE_DONE


@entry
def adopt(state, world):
    """Take a State over at its present time. World's ``runtime`` holds what is left of the tasks that run."""
    now = state.clock[0].now
    for n in range(state.nodes.size):
        row = state.nodes[n]
        kind = state.classes[row.cls]
        world.nodes[n].idle_w = kind.idle_w * world.watt_error[n]
        world.nodes[n].since = now
        world.nodes[n].watts = 0.0
        power.refresh(state, world, n)
        if row.pos < 0:
            continue
        if row.power_state == WAKING:
            clocks.push_event(world, max(now, row.on_at), NODE, WAKE_DONE, n, 0)
        elif row.power_state == FALLING:
            clocks.push_event(world, now + kind.enter_s, NODE, FALL_DONE, n, row.falls)
        elif row.power_state == ON:
            faults.schedule_failure(state, world, n)
            if row.running == 0 and kind.sleep_after_s < math.inf:
                at = max(now, row.idle_since + kind.sleep_after_s)
                clocks.push_event(world, at, NODE, SLEEP_CHECK, n, row.generation)
    for a in range(state.attempts.size):
        if state.attempts[a].task >= 0:
            _adopt_attempt(state, world, a)


@inner
def _adopt_attempt(state, world, a):
    run = world.runs[a]
    run.outcome = OK
    run.since = state.clock[0].now
    run.domain = -1
    if state.attempts[a].stage == WAITS:
        run.stage = WAKE
    else:
        running.start_run(state, world, a)

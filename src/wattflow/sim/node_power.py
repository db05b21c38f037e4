"""The World's side of a node's life: joules of its power states, the events that end each change, warming, loss."""

from __future__ import annotations

import numpy as np
from numba import types

from wattflow.engine import agenda, fold, life
from wattflow.engine.parts import RICH
from wattflow.engine.tables import ASLEEP, DOWN, DRAINING, FALLING, MICRO, ON, WAKING
from wattflow.kernel.jit import inner, optional
from wattflow.sim import energy_accounts, faults, running
from wattflow.sim.world import World


@life.settle.of(World)
@inner
def _settle(state, world, node):
    energy_accounts.account(state, world, node)


@life.draw.of(World)
@inner
def _draw(state, world, node):
    energy_accounts.refresh(state, world, node)


@life.warms.of(World)
@inner
def _warms(state, world, node):
    return world.nodes[node].warming_u > 0


@life.falls.of(World)
@inner
def _falls(state, world, node, power_state):
    world.pulse[0].sleeps += 1
    if power_state == FALLING:
        node_row = state.nodes[node]
        end = state.clock[0].now + state.classes[node_row.cls].enter_s
        agenda.push(state, end, agenda.FALL_DONE, node, node_row.falls)


@life.wakes.of(World)
@inner
def _wakes(state, world, node, power_state):
    world.pulse[0].wakes += 1
    if power_state == WAKING:
        agenda.push(state, state.nodes[node].on_at, agenda.WAKE_DONE, node, 0)
    return power_state


@life.set_level.of(World)
@inner
def _set_level(state, world, node, level, kind, value):
    running.set_frequency(state, world, node, level)


@life.begin_warming.of(World)
@inner
def _begin_warming(state, world, node, fn):
    """Keep one core busy for the time of a cold start; its joules are no attempt's."""
    load = world.nodes[node]
    # As everywhere: close the interval at the watts so far, change, then set the new watts.
    energy_accounts.account(state, world, node)
    load.busy_u += MICRO
    load.weight_u += MICRO
    load.warming_u += MICRO
    energy_accounts.refresh(state, world, node)
    world.pulse[0].cold_starts += 1
    # With the number of the node's losses, so that what is made on a node that is lost meanwhile does not count.
    return load.warm_gen * (state.functions.size + 1) + fn + 1


@life.end_warming.of(World)
@inner
def _end_warming(state, world, node, number):
    load = world.nodes[node]
    functions = state.functions.size + 1
    if number // functions != load.warm_gen:
        return np.int64(life.NOT_MADE)
    energy_accounts.account(state, world, node)
    load.busy_u -= MICRO
    load.weight_u -= MICRO
    load.warming_u -= MICRO
    energy_accounts.refresh(state, world, node)
    # Stored one higher (`_begin_warming`): a hot container's function is −1, and a remainder is never negative.
    return np.int64(number % functions - 1)


@life.forget_warming.of(World)
@inner
def _forget_warming(state, world, node):
    """Stop the watts of what is being warmed."""
    load = world.nodes[node]
    energy_accounts.account(state, world, node)
    load.busy_u -= load.warming_u
    load.weight_u -= load.warming_u
    load.warming_u = 0
    # `life.lose` changes the power state next, and that sets the new watts.
    load.warm_gen += 1


@life.lost.of(World)
@inner
def _lost(state, world, node):
    faults.schedule_repair(state, world, node)


@inner
def _sleep_check(state, world, node, generation):
    """Let the node fall asleep, unless something was placed or warmed on it since its idling began: then False."""
    if not fold.idles_still(state, node, generation) or world.nodes[node].warming_u > 0:
        return False
    life.fall_asleep(state, world, node)
    return True


@inner
def _fall_done(state, world, node, falls):
    """Put a node to sleep, or turn it round at once if someone waits for it. False if it was lost since."""
    if state.nodes[node].power_state != FALLING or state.nodes[node].falls != falls:
        return False
    life.set_power(state, world, node, ASLEEP)
    if state.nodes[node].wake_wanted == 1:
        life.wake(state, world, node)
        if state.nodes[node].power_state == ON:
            life.is_on(state, world, node)
    return True


@inner
def _wake_done(state, world, node):
    # The node may have been lost, and even have begun to wake again, since this was announced.
    if state.nodes[node].power_state != WAKING or state.nodes[node].on_at > state.clock[0].now:
        return False
    life.set_power(state, world, node, ON)
    life.is_on(state, world, node)
    if state.nodes[node].running == 0:
        life.idles(state, world, node)
    return True


@optional(RICH, types.boolean)
def changed(state, world, what, node, generation, priority):
    """Fold a change of a node that was announced; False if it is out of date."""
    power_state = state.nodes[node].power_state
    if what == agenda.WAKE_DONE:
        return _wake_done(state, world, node)
    if what == agenda.FALL_DONE:
        return _fall_done(state, world, node, generation)
    if what == agenda.SLEEP:
        return _sleep_check(state, world, node, generation)
    if what == agenda.WARM:
        return life.warmed(state, world, node, generation)
    # Outages by option and drawn ones may overlap: whichever comes second finds the node down, or up again.
    if what == agenda.LOST:
        if power_state == DOWN:
            return False
        life.lose(state, world, node, priority)
    elif what == agenda.BACK:
        if power_state != DOWN:
            return False
        life.set_power(state, world, node, ON)
        life.idles(state, world, node)
        faults.schedule_failure(state, world, node)
    elif what == agenda.NOTICE:
        if power_state != ON:
            return False
        life.set_power(state, world, node, DRAINING)
    return True

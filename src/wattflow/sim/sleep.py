"""Power states of nodes, as `engine.fold` changes them, with joules and the events that end each change."""

from __future__ import annotations

from wattflow.engine import agenda, fold, life
from wattflow.engine.tables import ASLEEP, FALLING, WAKING
from wattflow.kernel.jit import inner
from wattflow.sim import power
from wattflow.sim.world import World


@life.settle.of(World)
@inner
def _settle(state, world, node):
    power.account(state, world, node)


@life.draw.of(World)
@inner
def _draw(state, world, node):
    power.refresh(state, world, node)


@life.look_at.of(World)
@inner
def _look_at(state, world, node, at_s):
    agenda.push(state, at_s, agenda.SLEEP, node, state.nodes[node].generation)


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


@inner
def sleep_check(state, world, node, generation):
    """The node falls asleep, unless something was placed or warmed on it since its idling began: then False."""
    if not fold.idles_still(state, node, generation) or world.nodes[node].warming_u > 0:
        return False
    life.fall_asleep(state, world, node)
    return True


@inner
def fall_done(state, world, node, falls):
    """The node is asleep now, and turns round at once if someone waits for it. False if it was lost since."""
    if state.nodes[node].power_state != FALLING or state.nodes[node].falls != falls:
        return False
    life.set_power(state, world, node, ASLEEP)
    if state.nodes[node].wake_wanted == 1:
        life.wake(state, world, node)
    return True

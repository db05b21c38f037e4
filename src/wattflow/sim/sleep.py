"""Power states of nodes, as `engine.fold` changes them, with joules and the events that end each change."""

from __future__ import annotations

import math

from wattflow.engine import fold
from wattflow.engine.tables import ASLEEP, FALLING, WAKING
from wattflow.kernel.jit import inner
from wattflow.sim import clocks, power
from wattflow.sim.world import FALL_DONE, NODE, SLEEP_CHECK, WAKE_DONE


@inner
def set_state(state, world, node, power_state):
    """Change a node's power state, with joules and groups kept right."""
    power.account(state, world, node)
    fold.set_power(state, node, power_state)
    power.refresh(state, world, node)


@inner
def node_idles(state, world, node):
    """The node has no attempt left: it may fall asleep after a while."""
    check_later(state, world, node, fold.node_idles(state, node))


@inner
def check_later(state, world, node, at_s):
    """Look at that time whether the node should sleep; `inf` for never."""
    if at_s < math.inf:
        clocks.push_event(world, at_s, NODE, SLEEP_CHECK, node, state.nodes[node].generation)


@inner
def sleep_check(state, world, node, generation):
    """The node falls asleep, unless something was placed or warmed on it since its idling began: then False."""
    if not fold.idles_still(state, node, generation) or world.nodes[node].warming_u > 0:
        return False
    fall_asleep(state, world, node)
    return True


@inner
def fall_asleep(state, world, node):
    """Begin to sleep, if the node is on, empty and able to."""
    if not fold.may_sleep(state, node) or world.nodes[node].warming_u > 0:
        return
    world.pulse[0].sleeps += 1
    power_state = fold.falling_to(state, node)
    set_state(state, world, node, power_state)
    if power_state == FALLING:
        node_row = state.nodes[node]
        end = state.clock[0].now + state.classes[node_row.cls].enter_s
        clocks.push_event(world, end, NODE, FALL_DONE, node, node_row.falls)


@inner
def fall_done(state, world, node, falls):
    """The node is asleep now, and turns round at once if someone waits for it. False if it was lost since."""
    if state.nodes[node].power_state != FALLING or state.nodes[node].falls != falls:
        return False
    set_state(state, world, node, ASLEEP)
    if state.nodes[node].wake_wanted == 1:
        wake(state, world, node)
    return True


@inner
def wake(state, world, node):
    """Begin to wake. A node that is still falling asleep wakes when it is down."""
    power_state = fold.waking_to(state, node)
    if power_state < 0:
        return
    world.pulse[0].wakes += 1
    set_state(state, world, node, power_state)
    if power_state == WAKING:
        clocks.push_event(world, state.nodes[node].on_at, NODE, WAKE_DONE, node, 0)

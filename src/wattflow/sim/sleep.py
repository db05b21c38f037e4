"""Power states of nodes: falling asleep, sleeping, waking."""

from __future__ import annotations

import math

from wattflow.engine import groups
from wattflow.engine.tables import ASLEEP, FALLING, ON, WAKING
from wattflow.kernel.jit import inner
from wattflow.sim import clocks, power
from wattflow.sim.world import FALL_DONE, NODE, SLEEP_CHECK, WAKE_DONE


@inner
def set_state(state, world, node, power_state):
    """Change a node's power state, with joules and groups kept right."""
    node_row = state.nodes[node]
    clock = state.clock[0]
    counts = state.counts[0]
    power.account(state, world, node)
    before = node_row.power_state
    groups.leave(state, node)
    node_row.power_state = power_state
    groups.rejoin(state, node)
    was_asleep = before == ASLEEP or before == FALLING
    is_asleep = power_state == ASLEEP or power_state == FALLING
    if was_asleep and not is_asleep:
        counts.asleep_n -= 1
    elif is_asleep and not was_asleep:
        counts.asleep_n += 1
    clock.epoch += 1
    power.refresh(state, world, node)


@inner
def node_idles(state, world, node):
    """The node has no attempt left: it may fall asleep after a while."""
    node_row = state.nodes[node]
    now = state.clock[0].now
    node_row.idle_since = now
    after = state.classes[node_row.cls].sleep_after_s
    if after < math.inf and node_row.power_state == ON:
        node_row.generation += 1  # a check that was announced for an earlier idling no longer counts
        clocks.push_event(world, now + after, NODE, SLEEP_CHECK, node, node_row.generation)


@inner
def sleep_check(state, world, node, generation):
    """The node falls asleep, unless something was placed on it since its idling began: then False."""
    node_row = state.nodes[node]
    if node_row.generation != generation or node_row.running > 0:
        return False
    fall_asleep(state, world, node)
    return True


@inner
def fall_asleep(state, world, node):
    """Begin to sleep, if the node is on, empty and able to."""
    node_row = state.nodes[node]
    cls = node_row.cls
    kind = state.classes[cls]
    if node_row.power_state != ON or node_row.running > 0 or kind.sleepable == 0:
        return
    world.pulse[0].sleeps += 1
    world.nodes[node].wake_wanted = 0
    if kind.enter_s > 0.0:
        set_state(state, world, node, FALLING)
        end = state.clock[0].now + kind.enter_s
        world.nodes[node].gen += 1
        clocks.push_event(world, end, NODE, FALL_DONE, node, world.nodes[node].gen)
    else:
        set_state(state, world, node, ASLEEP)


@inner
def fall_done(state, world, node, gen):
    """The node is asleep now, and turns round at once if someone waits for it. False if it was lost since."""
    if state.nodes[node].power_state != FALLING or world.nodes[node].gen != gen:
        return False
    set_state(state, world, node, ASLEEP)
    if world.nodes[node].wake_wanted == 1:
        wake(state, world, node)
    return True


@inner
def wake(state, world, node):
    """Begin to wake. A node that is still falling asleep wakes when it is down."""
    node_row = state.nodes[node]
    power_state = node_row.power_state
    if power_state == FALLING:
        world.nodes[node].wake_wanted = 1
    if power_state != ASLEEP:
        return
    world.pulse[0].wakes += 1
    seconds = state.classes[node_row.cls].wake_s
    if seconds > 0.0:
        node_row.on_at = state.clock[0].now + seconds
        set_state(state, world, node, WAKING)
        clocks.push_event(world, node_row.on_at, NODE, WAKE_DONE, node, 0)
    else:
        set_state(state, world, node, ON)

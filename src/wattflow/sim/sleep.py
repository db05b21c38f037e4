"""Power states of nodes: falling asleep, sleeping, waking."""

from __future__ import annotations

import math

from wattflow.engine import groups
from wattflow.engine.jit import jit
from wattflow.engine.tables import ASLEEP, FALLING, ON, WAKING
from wattflow.sim import clocks, power
from wattflow.sim.world import FALL_DONE, NODE, SLEEP_CHECK, WAKE_DONE


@jit
def set_state(state, world, node, power_state):
    """Change a node's power state, with joules and groups kept right."""
    power.account(state, world, node)
    before = state.nodes.power_state[node]
    groups.leave(state, node)
    state.nodes.power_state[node] = power_state
    groups.rejoin(state, node)
    was_asleep = before == ASLEEP or before == FALLING
    is_asleep = power_state == ASLEEP or power_state == FALLING
    if was_asleep and not is_asleep:
        state.clock.asleep_n[0] -= 1
    elif is_asleep and not was_asleep:
        state.clock.asleep_n[0] += 1
    state.clock.epoch[0] += 1
    power.refresh(state, world, node)


@jit
def node_idles(state, world, node):
    """The node has no attempt left: it may fall asleep after a while."""
    now = state.clock.now[0]
    state.nodes.idle_since[node] = now
    after = state.classes.sleep_after_s[state.nodes.cls[node]]
    if after < math.inf and state.nodes.power_state[node] == ON:
        clocks.push_event(world, now + after, NODE, SLEEP_CHECK, node, state.nodes.generation[node])


@jit
def sleep_check(state, world, node, generation):
    """Nothing was placed on the node since its idling began: it falls asleep."""
    if state.nodes.generation[node] == generation and state.nodes.running[node] == 0:
        fall_asleep(state, world, node)


@jit
def fall_asleep(state, world, node):
    """Begin to sleep, if the node is on, empty and able to."""
    cls = state.nodes.cls[node]
    if state.nodes.power_state[node] != ON or state.nodes.running[node] > 0 or state.classes.sleepable[cls] == 0:
        return
    world.clock.sleeps[0] += 1
    world.nodes.wake_wanted[node] = 0
    if state.classes.enter_s[cls] > 0.0:
        set_state(state, world, node, FALLING)
        end = state.clock.now[0] + state.classes.enter_s[cls]
        clocks.push_event(world, end, NODE, FALL_DONE, node, 0)
    else:
        set_state(state, world, node, ASLEEP)


@jit
def fall_done(state, world, node):
    """The node is asleep now, and turns round at once if someone waits for it."""
    if state.nodes.power_state[node] != FALLING:
        return
    set_state(state, world, node, ASLEEP)
    if world.nodes.wake_wanted[node] == 1:
        wake(state, world, node)


@jit
def wake(state, world, node):
    """Begin to wake. A node that is still falling asleep wakes when it is down."""
    power_state = state.nodes.power_state[node]
    if power_state == FALLING:
        world.nodes.wake_wanted[node] = 1
    if power_state != ASLEEP:
        return
    world.clock.wakes[0] += 1
    seconds = state.classes.wake_s[state.nodes.cls[node]]
    if seconds > 0.0:
        state.nodes.on_at[node] = state.clock.now[0] + seconds
        set_state(state, world, node, WAKING)
        clocks.push_event(world, state.nodes.on_at[node], NODE, WAKE_DONE, node, 0)
    else:
        set_state(state, world, node, ON)

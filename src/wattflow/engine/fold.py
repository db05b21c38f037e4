"""Every change of State that is not physics and not a decision: ends, retries, lost nodes, sleep and waking.

The simulator calls these and adds what its World keeps (joules, stages, true clocks); a live engine calls the same ones
with what its driver reports. None of them knows a World. Where one starts something that takes time, it returns when
that is due, and its caller sees to coming back.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from wattflow.engine import attempts, containers, devices, fit, groups, release, view
from wattflow.engine.parts import RICH
from wattflow.engine.tables import ASLEEP, FALLING, ON, WAKING
from wattflow.kernel.jit import inner, optional


@inner
def set_power(state, node, power_state):
    """Change a node's power state, with groups and counts kept right."""
    node_row = state.nodes[node]
    counts = state.counts[0]
    before = node_row.power_state
    # Out of its group before the change: the key that finds the group is made from the node's state.
    groups.leave(state, node)
    node_row.power_state = power_state
    groups.rejoin(state, node)
    was_asleep = before == ASLEEP or before == FALLING
    is_asleep = power_state == ASLEEP or power_state == FALLING
    if was_asleep and not is_asleep:
        counts.asleep_n -= 1
    elif is_asleep and not was_asleep:
        counts.asleep_n += 1
    # Whatever the change: where nothing that is on fits, nodes that sleep are candidates, too.
    groups.room_grew(state, node)


@inner
def node_idles(state, node):
    """Start a node's idling; returns when to look whether it should fall asleep, `inf` for never."""
    node_row = state.nodes[node]
    now = state.clock[0].now
    node_row.idle_since = now
    after = state.classes[node_row.cls].sleep_after_s
    if after < math.inf and node_row.power_state == ON:
        node_row.generation += 1  # a check that was announced for an earlier idling no longer counts
        return now + after
    return math.inf


@inner
def idles_still(state, node, generation):
    """Tell whether nothing was placed on the node since the idling for which this check was announced."""
    node_row = state.nodes[node]
    return node_row.generation == generation and node_row.running == 0


@inner
def may_sleep(state, node):
    """Tell whether the node is on, empty and able to sleep."""
    node_row = state.nodes[node]
    return node_row.power_state == ON and node_row.running == 0 and state.classes[node_row.cls].sleepable == 1


@inner
def falling_to(state, node):
    """Return the state that a node enters when it begins to sleep; an earlier wish to wake it no longer counts."""
    node_row = state.nodes[node]
    # Else a wish from before this sleep would wake the node as soon as it is down.
    node_row.wake_wanted = 0
    if state.classes[node_row.cls].enter_s > 0.0:
        # Numbered: the end of a fall that a loss cut short must not end the next one (`sim.node_power._fall_done`).
        node_row.falls += 1
        return FALLING
    return ASLEEP


@inner
def waking_to(state, node):
    """Return the state that a sleeping node enters when it begins to wake; −1 when it cannot begin now.

    A node that is still falling asleep wakes when it is down.
    """
    node_row = state.nodes[node]
    if node_row.power_state == FALLING:
        node_row.wake_wanted = 1
    if node_row.power_state != ASLEEP:
        return -1
    seconds = state.classes[node_row.cls].wake_s
    if seconds > 0.0:
        # `view.wait_s` tells policies how long a waking node takes from here.
        node_row.on_at = state.clock[0].now + seconds
        return WAKING
    return ON


@inner
def oldest_attempt(state, node):
    """Return the attempt on a node that was placed first; −1 without one."""
    a = state.nodes[node].first_attempt
    oldest = -1
    while a >= 0:
        if oldest < 0 or state.attempts[a].sequence < state.attempts[oldest].sequence:
            oldest = a
        a = state.attempts[a].next
    return oldest


@inner
def forget_contents(state, node):
    """Forget the containers and loaded kernels of a lost node."""
    node_row = state.nodes[node]
    while node_row.first_container >= 0:
        containers.drop(state, node_row.first_container)
    for d in range(node_row.device_first, node_row.device_first + node_row.device_n):
        if state.devices[d].loaded >= 0:
            containers.load_device(state, node, d, -1)


@inner
def enter(state, a):
    """Give an attempt on a node that is on its container, warm or new, and load its devices.

    Returns the seconds of the cold start, 0 when everything was warm.
    """
    attempt = state.attempts[a]
    fn = state.shapes[state.tasks[attempt.task].form].function
    function = state.functions[fn]
    seconds = 0.0
    # What `reports.refused` puts back: the age of the container that is taken, -inf for none.
    attempt.was_idle = -math.inf
    if function.cold_start_s > 0.0:
        seconds = _take_container(state, a, fn)
    if attempt.device >= 0:
        seconds += _load_devices(state, a, fn)
    return seconds


@optional(RICH, types.float64)
def _take_container(state, a, fn):
    """Take a warm container; seconds that making one takes where there is none."""
    attempt = state.attempts[a]
    node = attempt.node
    c = view.find_container(state, node, fn)
    if c < 0:
        return state.functions[fn].cold_start_s * state.classes[state.nodes[node].cls].cold_factor
    attempt.was_idle = state.containers[c].idle_since
    containers.drop(state, c)
    return 0.0


@optional(RICH, types.float64)
def _load_devices(state, a, fn):
    """Put the function's kernel into the attempt's FPGAs that hold another one; seconds of the slowest."""
    attempt = state.attempts[a]
    node = attempt.node
    first = state.nodes[node].device_first
    slowest = 0.0
    for d in range(first, first + state.nodes[node].device_n):
        seconds = state.device_classes[state.devices[d].cls].reconfigure_s
        if seconds > 0.0 and devices.holds(attempt.devices, d - first) and state.devices[d].loaded != fn:
            slowest = max(slowest, seconds)
            containers.load_device(state, node, d, fn)
    return slowest


@inner
def keep_container(state, a):
    """Keep the container of an attempt that ended well warm for a while."""
    attempt = state.attempts[a]
    fn = state.shapes[state.tasks[attempt.task].form].function
    if state.functions[fn].cold_start_s > 0.0:
        containers.keep(state, attempt.node, fn)


@inner
def end_attempt(state, a):
    """Release an attempt and free its row; returns when to look whether its node should sleep, `inf` for never."""
    node = state.attempts[a].node
    fit.give_back(state, a)
    groups.room_grew(state, node)
    attempts.drop_attempt(state, a)
    if state.nodes[node].running == 0:
        return node_idles(state, node)
    return math.inf


@inner
def part_done(state, task, node, priority):
    """Count a part of a task that ended well; the last one completes it (True). Serverless nodes keep no data."""
    task_row = state.tasks[task]
    left = task_row.parts_left - 1
    task_row.parts_left = left
    if left > 0:
        return False
    # Outputs of a platform's calls lie in storage, which is no node: −1 is near to nobody.
    where = node if state.classes[state.nodes[node].cls].serverless == 0 else -1
    release.complete(state, task, where, priority)
    return True


@inner
def try_again(state, task, final, priority):
    """Retry a task at the queue's end with one try less (0), or give it up with all that waits for it.

    Returns how many tasks leave; ``scratch`` lists them.
    """
    task_row = state.tasks[task]
    # Counted before it is compared: ``max_retries`` are the tries after the first.
    task_row.attempt += 1
    if task_row.attempt <= state.rules[0].max_retries and not final:
        release.enqueue(state, task, priority)
        return 0
    return release.give_up(state, task)


@inner
def set_frequency(state, node, level):
    """Change a node's frequency level; False when it has no such level."""
    node_row = state.nodes[node]
    if level < 0 or level >= state.classes[node_row.cls].frequency_n:
        return False
    groups.leave(state, node)
    node_row.frequency = level
    groups.rejoin(state, node)
    return True


@inner
def level_below(state, node, watts):
    """Return the fastest frequency level at which the node, fully busy, draws no more than this; else the slowest."""
    cls = state.nodes[node].cls
    kind = state.classes[cls]
    # ``idle_w`` counts the idle watts of devices, ``full_w`` does not (`build.fill_class`).
    above_w = kind.full_w + kind.device_idle_w - kind.idle_w
    slowest = 0
    best = -1
    for level in range(kind.frequency_n):
        speed = state.frequency_speed[cls, level]
        if speed < state.frequency_speed[cls, slowest]:
            slowest = level
        full_w = kind.idle_w + above_w * state.frequency_power[cls, level]
        # A cap of exactly a level's watts admits that level, whatever the rounding.
        if full_w <= watts + 1e-9 and (best < 0 or speed > state.frequency_speed[cls, best]):
            best = level
    return best if best >= 0 else slowest


@inner
def set_capacity(state, node, capacity_u):
    """Change what a node's requests may sum to."""
    groups.leave(state, node)
    state.nodes[node].capacity_u = capacity_u
    groups.rejoin(state, node)
    groups.room_grew(state, node)


@optional(RICH)
def grow_platforms(state):
    """Grow what serverless nodes offer as time goes on."""
    now = state.clock[0].now
    for n in range(state.nodes.size):
        if state.nodes[n].pos < 0:
            continue  # a free row of a live engine: the class that it names is somebody else's
        kind = state.classes[state.nodes[n].cls]
        if kind.serverless == 1 and state.nodes[n].capacity_u < kind.request_u:
            offered = kind.burst_u + kind.ramp_u_s * now
            # A thousandth of a micro-core above: `next_growth` names the instant at which this is reached, rounded.
            capacity = np.int64(min(float(kind.request_u), math.floor(offered + 1e-3)))
            if capacity > state.nodes[n].capacity_u:
                set_capacity(state, n, capacity)


@optional(RICH, types.float64)
def next_growth(state):
    """When a ramping node has grown enough for one more of the waiting tasks or of their parts; `inf` for never."""
    counts = state.counts[0]
    now = state.clock[0].now
    soonest = math.inf
    for n in range(state.nodes.size):
        cls = state.nodes[n].cls
        kind = state.classes[cls]
        if state.nodes[n].pos < 0 or kind.serverless == 0 or kind.ramp_u_s <= 0.0:
            continue
        if state.nodes[n].capacity_u >= kind.request_u:
            continue
        for at in range(counts.shapes_n):
            shape = state.active_shapes[at]
            first = state.shapes[shape].variant_first
            for v in range(first, first + state.shapes[shape].variant_n):
                if state.class_ok[v, cls] == 0:
                    continue
                for parts in range(1, state.shapes[shape].parts + 1):
                    wanted = state.nodes[n].used_u + parts * state.variants[v].need_u
                    at_s = (wanted - kind.burst_u) / kind.ramp_u_s
                    # At or before now the cores are offered already, and the task waits for something else.
                    if now < at_s < soonest and wanted <= kind.request_u:
                        soonest = at_s
    return soonest

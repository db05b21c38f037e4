"""Questions that a policy may ask about the state. All functions are compiled, scalar, and free of effects."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import devices
from wattflow.engine.tables import ASLEEP, FALLING, HOT, MICRO, NO_DEVICE, UNKNOWN_COST, WAKING
from wattflow.kernel import power_curve, random
from wattflow.kernel.jit import jit


@jit
def watts(state, cls, busy):
    """P(k) of a node class with ``busy`` hardware threads busy, linear between points, flat beyond."""
    kind = state.classes[cls]
    if busy > kind.threads:
        busy = kind.threads
    return power_curve.curve_w(state.grid, kind.grid_first, kind.grid_n, busy * kind.grid_per_core)


@jit
def device_watts(state, cls, share):
    """Return watts of a device class with ``share`` (0 … 1) of it busy."""
    device_kind = state.device_classes[cls]
    grid_at = share * device_kind.grid_per_share
    return power_curve.curve_w(state.device_grid, device_kind.grid_first, device_kind.grid_n, grid_at)


@jit
def work_factor(state, shape, variant, node, device):
    """Return seconds on this node per second of the task's runtime, alone on it."""
    if device >= 0:
        speed = devices.speed_ahead(state, variant, node, device)
    else:
        speed = state.speed[state.nodes[node].cls, state.shapes[shape].function]
    return factor_at(state, shape, variant, node, speed)


@jit
def level_at(state, variant, node):
    """Return the frequency level of a variant on a node: its own or the node's, whichever is slower."""
    own = state.variants[variant].frequency
    node_row = state.nodes[node]
    if node_row.frequency == 0:
        return np.int64(own)
    speeds = state.frequency_speed[node_row.cls]
    return np.int64(own if speeds[own] < speeds[node_row.frequency] else node_row.frequency)


@jit
def factor_at(state, shape, variant, node, speed):
    """Return the same at a given speed: the runtime factor is the variant's, the frequency level that of `level_at`."""
    needs = state.variants[variant]
    factor = needs.factor / speed
    level = level_at(state, variant, node)
    if level > 0:
        bound = state.functions[state.shapes[shape].function].compute_bound
        factor *= (1.0 - bound) + bound / state.frequency_speed[state.nodes[node].cls, level]
    return factor


@jit
def runtime_s(state, task, variant, candidate):
    """Return the estimated seconds of the task on a candidate, alone there; UNKNOWN_COST when there is no estimate."""
    candidate_row = state.candidates[candidate]
    task_row = state.tasks[task]
    estimate = task_row.estimate
    if math.isnan(estimate):
        return UNKNOWN_COST
    return estimate * work_factor(state, task_row.form, variant, candidate_row.node, candidate_row.device)


@jit
def share_rate(state, cls, demand):
    """Progress of each CPU attempt with this demand on a node's cores: X(D)/D."""
    kind = state.classes[cls]
    if demand <= kind.cores:
        return 1.0
    return (kind.cores + (min(demand, kind.threads) - kind.cores) * kind.smt_gain) / demand


@jit
def node_added_w(state, variant, node, device):
    """Return watts that one more attempt of this variant adds to the node as allocated, others at its level."""
    needs = state.variants[variant]
    node_row = state.nodes[node]
    cls = node_row.cls
    if state.classes[cls].known_power == 0:
        return UNKNOWN_COST
    before = node_row.alloc_u / MICRO
    own = needs.cores_u / MICRO
    level = level_at(state, variant, node)
    # docs/physics.md, section 7: watts above idle scale with the cores' weights at their levels.
    if level > 0 and own > 0.0:
        idle = state.grid[state.classes[cls].grid_first]
        others = before * state.frequency_power[cls, node_row.frequency]
        counted = others + own * state.frequency_power[cls, level]
        added = (watts(state, cls, before + own) - idle) * counted / (before + own)
        if before > 0.0:
            added -= (watts(state, cls, before) - idle) * others / before
    else:
        added = watts(state, cls, before + own) - watts(state, cls, before)
    if device >= 0:
        added += device_added_w(state, variant, device)
    return added


@jit
def device_added_w(state, variant, device):
    """Return watts that one more attempt adds to a device (and to its siblings, if it takes several)."""
    needs = state.variants[variant]
    device_row = state.devices[device]
    dcls = device_row.cls
    before = devices.busy_together(state, dcls, device_row.busy_u, device_row.duty_u)
    busy_u = device_row.busy_u + devices.busy_share(state, variant, dcls)
    after = devices.busy_together(state, dcls, busy_u, device_row.duty_u + needs.duty_u)
    if needs.level > 0 or device_row.level > 0:
        return _levelled_w(state, variant, device, before, after) * needs.devices
    return (device_watts(state, dcls, after) - device_watts(state, dcls, before)) * needs.devices


@jit
def _levelled_w(state, variant, device, before, after):
    """Return the same where a lower clock is held or asked for; ``before`` and ``after`` are its busy shares.

    Those who are there run at the clock that results. Their watts count by the work that they do: a higher clock ends
    them sooner, so theirs are multiplied by their seconds there over those at the present clock.
    """
    device_row = state.devices[device]
    dcls = device_row.cls
    node = device_row.node
    first = state.nodes[node].device_first
    own = state.variants[variant].level
    level = own if device_row.tasks == 0 else min(own, device_row.level)
    were = 0.0
    then = float(devices.weight_at(state, variant, dcls, level))
    a = state.nodes[node].first_attempt
    while a >= 0:
        attempt = state.attempts[a]
        if attempt.device >= 0 and devices.holds(attempt.devices, device - first):
            who = attempt.variant
            were += devices.weight_at(state, who, dcls, device_row.level)
            faster = devices.seconds_at(state, who, dcls, level) / devices.seconds_at(
                state, who, dcls, device_row.level
            )
            then += devices.weight_at(state, who, dcls, level) * faster
        a = attempt.next
    idle = state.device_classes[dcls].idle_w
    busy_u = device_row.busy_u + devices.busy_share(state, variant, dcls)
    added = (device_watts(state, dcls, after) - idle) * then / max(1, busy_u)
    if device_row.busy_u > 0:
        added -= (device_watts(state, dcls, before) - idle) * were / device_row.busy_u
    return added


@jit
def added_w(state, task, variant, candidate):
    """Return the marginal watts: what placing the task on this candidate adds; UNKNOWN_COST without a power profile."""
    candidate_row = state.candidates[candidate]
    return node_added_w(state, variant, candidate_row.node, candidate_row.device)


@jit
def crowding_w(state, variant, node, device):
    """Price crowding: watts that sharing the cores costs, over the seconds that the attempt would take alone.

    It runs longer itself, and all that share with it run longer too, at the watts that the node draws. 0 while there
    is a core for each. Without it a node that is full would cost nothing more, and all tasks would pile up there.
    """
    needs = state.variants[variant]
    node_row = state.nodes[node]
    cls = node_row.cls
    before = node_row.alloc_u / MICRO
    after = before + needs.cores_u / MICRO
    if after <= state.classes[cls].cores:
        return 0.0
    rate = share_rate(state, cls, after)
    # Beyond all threads every place costs the same joules, so a thousandth more for each full node's worth of demand:
    # of two crowded nodes the less crowded one ends sooner.
    longer = (1.0 - rate / share_rate(state, cls, before)) * (1.0 + 0.001 * after / state.classes[cls].threads)
    # Its own progress is the device's; only those whose cores it crowds run longer.
    if device >= 0:
        return watts(state, cls, before) * longer
    own = node_added_w(state, variant, node, -1) * (1.0 / rate - 1.0)
    if before <= 0.0:
        return own
    return own + watts(state, cls, before) * longer / rate


@jit
def priced_w(state, task, variant, candidate):
    """Return marginal watts with the cost of longer runs of all that share; × `runtime_s` it is the joules added."""
    candidate_row = state.candidates[candidate]
    node = candidate_row.node
    device = candidate_row.device
    added = node_added_w(state, variant, node, device)
    return added if added >= UNKNOWN_COST else added + crowding_w(state, variant, node, device)


@jit
def wait_s(state, candidate):
    """Return seconds until the candidate's node is on (0 when it is)."""
    node = state.candidates[candidate].node
    node_row = state.nodes[node]
    power_state = node_row.power_state
    cls = node_row.cls
    if power_state == WAKING:
        return max(0.0, node_row.on_at - state.clock[0].now)
    # State does not hold when a fall ends, so a falling node counts as one that sleeps already.
    if power_state == ASLEEP or power_state == FALLING:
        return state.classes[cls].wake_s
    return 0.0


@jit
def wake_j(state, candidate):
    """Return joules that waking the candidate's node costs (0 when it is on)."""
    node = state.candidates[candidate].node
    node_row = state.nodes[node]
    power_state = node_row.power_state
    cls = node_row.cls
    kind = state.classes[cls]
    if power_state == ASLEEP or power_state == FALLING:
        return kind.wake_s * kind.wake_w
    return 0.0


@jit
def idle_w(state, candidate):
    """Return idle watts of the candidate's node, its devices included."""
    return state.classes[state.nodes[state.candidates[candidate].node].cls].idle_w


@jit
def load(state, candidate):
    """Return guaranteed cores in use over what requests may sum to."""
    node = state.candidates[candidate].node
    node_row = state.nodes[node]
    return node_row.used_u / node_row.request_u


@jit
def warm(state, task, candidate):
    """Tell whether an idle container of the task's function waits on the candidate's node."""
    fn = state.shapes[state.tasks[task].form].function
    return find_container(state, state.candidates[candidate].node, fn) >= 0


@jit
def find_container(state, node, fn):
    """Find the most recently idle container of a function on a node, not too old, else a hot one; −1 without."""
    node_row = state.nodes[node]
    c = node_row.first_container
    hot = -1
    oldest = state.clock[0].now - state.classes[node_row.cls].keep_alive_s
    while c >= 0:
        # At exactly its keep-alive it is gone, as in `containers._purge`.
        if state.containers[c].idle_since > oldest:
            if state.containers[c].function == fn:
                return c
            # A container of the function's own goes first: the hot one may serve somebody without.
            if state.containers[c].function == HOT and hot < 0:
                hot = c
        c = state.containers[c].next_node
    return hot


@jit
def warming_s(state, node, fn):
    """Return seconds that a container of a function takes to make on a node; a hot one as long as the slowest."""
    seconds = 0.0
    for f in range(state.functions.size):
        if f == fn or fn == HOT:
            seconds = max(seconds, state.functions[f].cold_start_s)
    return seconds * state.classes[state.nodes[node].cls].cold_factor


@jit
def cold_start_s(state, task, variant, candidate):
    """Return seconds of cold start on the candidate: container, and FPGA kernel where another is loaded."""
    candidate_row = state.candidates[candidate]
    fn = state.shapes[state.tasks[task].form].function
    function = state.functions[fn]
    node = candidate_row.node
    seconds = 0.0
    if function.cold_start_s > 0.0 and find_container(state, node, fn) < 0:
        seconds = function.cold_start_s * state.classes[state.nodes[node].cls].cold_factor
    device = candidate_row.device
    if device >= 0 and state.variants[variant].device != NO_DEVICE and state.devices[device].loaded != fn:
        seconds += state.device_classes[state.devices[device].cls].reconfigure_s
    return seconds


@jit
def bytes_to(state, task, node):
    """Return bytes that must travel for the task to run on a node."""
    # One row means that no task has extra facts (`build`).
    total = state.extra[task].input_bytes if state.counts[0].extra_n > 1 else 0.0
    links = state.links[task]
    for e in range(links.parent_first, links.parent_first + links.parent_n):
        at = state.tasks[state.parent[e]].node
        if at != node or state.classes[state.nodes[node].cls].serverless == 1:
            total += state.parent_bytes[e]
    return total


@jit
def data_latency_s(state, task, node):
    """Return seconds before the first byte: the node's latency, and more if a parent's bytes lie in another zone."""
    kind = state.classes[state.nodes[node].cls]
    links = state.links[task]
    for e in range(links.parent_first, links.parent_first + links.parent_n):
        at = state.tasks[state.parent[e]].node
        if state.parent_bytes[e] > 0.0 and at >= 0 and state.classes[state.nodes[at].cls].zone != kind.zone:
            return kind.latency_s + kind.zone_latency_s
    return kind.latency_s


@jit
def transfer_s(state, task, candidate):
    """Return seconds to bring the task's data to the candidate, alone on the link."""
    node = state.candidates[candidate].node
    size = bytes_to(state, task, node)
    if size <= 0.0:
        return 0.0
    return data_latency_s(state, task, node) + size / state.classes[state.nodes[node].cls].bandwidth


@jit
def ready_in_s(state, task, variant, candidate):
    """Return seconds from placement to the start of the run: wake, cold start and data."""
    return wait_s(state, candidate) + cold_start_s(state, task, variant, candidate) + transfer_s(state, task, candidate)


@jit
def finish_s(state, task, variant, candidate):
    """Return seconds from placement to the end, by the estimate."""
    return ready_in_s(state, task, variant, candidate) + runtime_s(state, task, variant, candidate)


@jit
def waited_s(state, task):
    """Return seconds since the task became ready."""
    return state.clock[0].now - state.tasks[task].ready


@jit
def hold_until(state, at_s):
    """Ask to be called again at this time; return `inf` costs to hold the task until then."""
    clock = state.clock[0]
    # The earliest of all holds: one look at that time serves every task that is held.
    if at_s > clock.now and at_s < clock.retry_at:
        clock.retry_at = at_s


@jit
def request_action(state, kind, node, value, at_s):
    """Append a row to the action table; extra rows beyond its capacity are dropped."""
    counts = state.counts[0]
    n = counts.action_n
    if n < state.actions.size:
        action = state.actions[n]
        action.kind = kind
        action.node = node
        action.value = value
        action.at = at_s
        counts.action_n = n + 1


@jit
def random_unit(state):
    """Return the next pseudo-random number in (0, 1] of the run's own stream (splitmix64)."""
    clock = state.clock[0]
    clock.random += random.STEP
    return random.unit(random.mix(clock.random))

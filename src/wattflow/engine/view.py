"""What a policy may ask about the state. All functions are compiled, scalar, and free of effects."""

from __future__ import annotations

import math

from wattflow.engine.jit import jit
from wattflow.engine.tables import ASLEEP, EXCLUSIVE, FALLING, MICRO, NO_DEVICE, TIME_SLICE, UNKNOWN_COST, WAKING


@jit
def watts(state, cls, busy):
    """P(k) of a node class with ``busy`` hardware threads busy, linear between points, flat beyond."""
    classes = state.classes
    if busy > classes.threads[cls]:
        busy = classes.threads[cls]
    at = busy * classes.grid_per_core[cls]
    cell = int(at)
    first = classes.grid_first[cls]
    if cell >= classes.grid_n[cls] - 1:
        return state.grid[first + classes.grid_n[cls] - 1]
    low = state.grid[first + cell]
    return low + (state.grid[first + cell + 1] - low) * (at - cell)


@jit
def device_watts(state, cls, share):
    """Watts of a device class with ``share`` (0 … 1) of it busy."""
    table = state.device_classes
    at = share * table.grid_per_share[cls]
    cell = int(at)
    first = table.grid_first[cls]
    if cell >= table.grid_n[cls] - 1:
        return state.device_grid[first + table.grid_n[cls] - 1]
    low = state.device_grid[first + cell]
    return low + (state.device_grid[first + cell + 1] - low) * (at - cell)


@jit
def work_factor(state, shape, variant, node, device):
    """Seconds on this node per second of the task's runtime, alone on it."""
    fn = state.shapes.function[shape]
    cls = state.nodes.cls[node]
    if device >= 0:
        factor = state.variants.factor[variant] / state.device_classes.speed[state.devices.cls[device]]
    else:
        factor = state.variants.factor[variant] / state.speed[cls, fn]
    level = state.variants.frequency[variant]
    if level > 0:
        bound = state.functions.compute_bound[fn]
        factor *= (1.0 - bound) + bound / state.frequency_speed[cls, level]
    return factor


@jit
def runtime_s(state, task, variant, candidate):
    """Estimated seconds of the task on a candidate, alone there; UNKNOWN_COST when there is no estimate."""
    estimate = state.tasks.estimate[task]
    if math.isnan(estimate):
        return UNKNOWN_COST
    c = state.candidates
    return estimate * work_factor(state, state.tasks.form[task], variant, c.node[candidate], c.device[candidate])


@jit
def node_added_w(state, variant, node, device):
    """Watts that one more attempt of this variant adds to the node as it is allocated now."""
    cls = state.nodes.cls[node]
    if state.classes.known_power[cls] == 0:
        return UNKNOWN_COST
    before = state.nodes.alloc_u[node] / MICRO
    level = state.variants.frequency[variant]
    weight = state.variants.cores_u[variant] / MICRO
    if level > 0:
        weight *= state.frequency_power[cls, level]
    added = watts(state, cls, before + weight) - watts(state, cls, before)
    if device >= 0:
        added += device_added_w(state, variant, device)
    return added


@jit
def device_added_w(state, variant, device):
    """Watts that one more attempt adds to a device (and to its siblings, if it takes several)."""
    dcls = state.devices.cls[device]
    sharing = state.device_classes.sharing[dcls]
    if sharing == EXCLUSIVE or sharing == TIME_SLICE:
        if state.devices.tasks[device] > 0:
            return 0.0
        one = device_watts(state, dcls, 1.0) - device_watts(state, dcls, 0.0)
        return one * state.variants.devices[variant]
    before = state.devices.share_u[device] / MICRO
    after = before + state.variants.share_u[variant] / MICRO
    return (device_watts(state, dcls, after) - device_watts(state, dcls, before)) * state.variants.devices[variant]


@jit
def added_w(state, task, variant, candidate):
    """Marginal watts: what placing the task on this candidate adds; UNKNOWN_COST without a power profile."""
    return node_added_w(state, variant, state.candidates.node[candidate], state.candidates.device[candidate])


@jit
def wait_s(state, candidate):
    """Seconds until the candidate's node is on (0 when it is)."""
    node = state.candidates.node[candidate]
    power_state = state.nodes.power_state[node]
    cls = state.nodes.cls[node]
    if power_state == WAKING:
        return max(0.0, state.nodes.on_at[node] - state.clock.now[0])
    if power_state == ASLEEP or power_state == FALLING:
        return state.classes.wake_s[cls]
    return 0.0


@jit
def wake_j(state, candidate):
    """Joules that waking the candidate's node costs (0 when it is on)."""
    node = state.candidates.node[candidate]
    power_state = state.nodes.power_state[node]
    cls = state.nodes.cls[node]
    if power_state == ASLEEP or power_state == FALLING:
        return state.classes.wake_s[cls] * state.classes.wake_w[cls]
    return 0.0


@jit
def idle_w(state, candidate):
    """Idle watts of the candidate's node, its devices included."""
    return state.classes.idle_w[state.nodes.cls[state.candidates.node[candidate]]]


@jit
def load(state, candidate):
    """Guaranteed cores in use over what requests may sum to."""
    node = state.candidates.node[candidate]
    return state.nodes.used_u[node] / state.classes.request_u[state.nodes.cls[node]]


@jit
def memory_load(state, candidate):
    """Memory in use over the node's memory; 0 for a node that has none."""
    node = state.candidates.node[candidate]
    memory = state.classes.memory[state.nodes.cls[node]]
    return state.nodes.used_mem[node] / memory if memory > 0 else 0.0


@jit
def warm(state, task, candidate):
    """Whether an idle container of the task's function waits on the candidate's node."""
    fn = state.shapes.function[state.tasks.form[task]]
    return find_container(state, state.candidates.node[candidate], fn) >= 0


@jit
def find_container(state, node, fn):
    """The most recently idle container of a function on a node that is not too old; −1 without one."""
    c = state.nodes.first_container[node]
    oldest = state.clock.now[0] - state.classes.keep_alive_s[state.nodes.cls[node]]
    while c >= 0:
        if state.containers.function[c] == fn and state.containers.idle_since[c] > oldest:
            return c
        c = state.containers.next_node[c]
    return -1


@jit
def cold_start_s(state, task, variant, candidate):
    """Seconds of cold start on the candidate: container, and FPGA kernel where another is loaded."""
    fn = state.shapes.function[state.tasks.form[task]]
    node = state.candidates.node[candidate]
    seconds = 0.0
    if state.functions.cold_start_s[fn] > 0.0 and find_container(state, node, fn) < 0:
        seconds = state.functions.cold_start_s[fn] * state.classes.cold_factor[state.nodes.cls[node]]
    device = state.candidates.device[candidate]
    if device >= 0 and state.variants.device[variant] != NO_DEVICE and state.devices.loaded[device] != fn:
        seconds += state.device_classes.reconfigure_s[state.devices.cls[device]]
    return seconds


@jit
def bytes_to(state, task, node):
    """Bytes that must travel for the task to run on a node."""
    total = state.extra.input_bytes[task] if state.clock.extra_n[0] > 1 else 0.0
    for e in range(state.parent_start[task], state.parent_start[task + 1]):
        at = state.tasks.node[state.parent[e]]
        if at != node or state.classes.serverless[state.nodes.cls[node]] == 1:
            total += state.parent_bytes[e]
    return total


@jit
def transfer_s(state, task, candidate):
    """Seconds to bring the task's data to the candidate, alone on the link."""
    node = state.candidates.node[candidate]
    size = bytes_to(state, task, node)
    if size <= 0.0:
        return 0.0
    cls = state.nodes.cls[node]
    return state.classes.latency_s[cls] + size / state.classes.bandwidth[cls]


@jit
def ready_in_s(state, task, variant, candidate):
    """Seconds from placement to the start of the run: wake, cold start and data."""
    return wait_s(state, candidate) + cold_start_s(state, task, variant, candidate) + transfer_s(state, task, candidate)


@jit
def finish_s(state, task, variant, candidate):
    """Seconds from placement to the end, by the estimate."""
    return ready_in_s(state, task, variant, candidate) + runtime_s(state, task, variant, candidate)


@jit
def waited_s(state, task):
    """Seconds since the task became ready."""
    return state.clock.now[0] - state.tasks.ready[task]


@jit
def hold_until(state, at_s):
    """Ask to be called again at this time; return `inf` costs to hold the task until then."""
    if at_s > state.clock.now[0] and at_s < state.clock.retry_at[0]:
        state.clock.retry_at[0] = at_s


@jit
def request_action(state, kind, node, value, at_s):
    """Append a row to the action table; extra rows beyond its capacity are dropped."""
    n = state.clock.action_n[0]
    if n < state.actions.size:
        state.actions.kind[n] = kind
        state.actions.node[n] = node
        state.actions.value[n] = value
        state.actions.at[n] = at_s
        state.clock.action_n[0] = n + 1


@jit
def random_unit(state):
    """The next pseudo-random number in [0, 1) of the run's own stream (64-bit LCG, high bits)."""
    x = (state.clock.random[0] * 6364136223846793 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
    state.clock.random[0] = x
    return (x >> 10) / 9007199254740992.0

"""Questions of a policy about nodes and classes of nodes: the part of the public page `view` that speaks of them."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

from wattflow.engine.tables import ASLEEP, DOWN, FALLING, MICRO, NO_DEVICE, ON, UNKNOWN_COST, WAKING
from wattflow.engine.view import bytes_to, watts, work_factor
from wattflow.policy.jit import jit


@jit
def is_on(state, node):
    """Tell whether the node takes tasks at once."""
    return state.nodes[node].power_state == ON


@jit
def is_asleep(state, node):
    """Tell whether the node sleeps or is falling asleep."""
    power_state = state.nodes[node].power_state
    return power_state in (ASLEEP, FALLING)


@jit
def is_waking(state, node):
    """Tell whether the node is on its way up."""
    return state.nodes[node].power_state == WAKING


@jit
def is_gone(state, node):
    """Tell whether the node is down or being drained."""
    # By number: DOWN and DRAINING are the last states (`engine.tables`).
    return state.nodes[node].power_state >= DOWN


@jit
def can_sleep(state, node):
    """Tell whether the node has a sleep state."""
    return state.classes[state.nodes[node].cls].sleepable == 1


@jit
def has_profile(state, node):
    """Tell whether the node's watts are known."""
    return state.classes[state.nodes[node].cls].known_power == 1


@jit
def is_serverless(state, node):
    """Tell whether the node is a serverless platform."""
    return state.classes[state.nodes[node].cls].serverless == 1


@jit
def zone_of(state, node):
    """Return the node's zone."""
    return state.classes[state.nodes[node].cls].zone


@jit
def class_of(state, node):
    """Return the number of the node's class: equal for nodes that are alike. A row of blocks laid out per class."""
    return state.nodes[node].cls


@jit
def classes_n(state):
    """Count classes of nodes that are alike."""
    return state.classes.size


@jit
def class_count(state, cls):
    """Count nodes of a class."""
    return state.classes[cls].count


@jit
def class_node(state, cls, i):
    """Node i of a class."""
    return state.class_nodes[state.classes[cls].first + i]


@jit
def class_takes(state, variant, cls):
    """Tell whether an empty node of the class could run the variant."""
    return state.class_ok[variant, cls] == 1


@jit
def node_cores(state, node):
    """Count physical cores."""
    return state.classes[state.nodes[node].cls].cores


@jit
def node_threads(state, node):
    """Count hardware threads."""
    return state.classes[state.nodes[node].cls].threads


@jit
def request_cores(state, node):
    """Return the limit on the sum of guaranteed cores."""
    return state.nodes[node].request_u / MICRO


@jit
def busy_cores(state, node):
    """Return cores that placed attempts use at most."""
    return state.nodes[node].alloc_u / MICRO


@jit
def free_cores(state, node):
    """Return guaranteed cores still to be had."""
    row = state.nodes[node]
    return (row.capacity_u - row.used_u) / MICRO


@jit
def tasks_on(state, node):
    """Count attempts on the node."""
    return state.nodes[node].running


@jit
def throughput(state, node, busy):
    """X(D): cores' worth of work per second with D busy threads (physics, section 6)."""
    kind = state.classes[state.nodes[node].cls]
    if busy <= kind.cores:
        return busy
    return kind.cores + (min(busy, kind.threads) - kind.cores) * kind.smt_gain


@jit
def watts_at(state, node, busy):
    """P(k) of the node, its devices left out, with k busy threads."""
    return watts(state, state.nodes[node].cls, busy)


@jit
def node_idle_w(state, node):
    """Return idle watts, devices included."""
    return state.classes[state.nodes[node].cls].idle_w


@jit
def node_sleep_w(state, node):
    """Return watts asleep."""
    return state.classes[state.nodes[node].cls].sleep_w


@jit
def frequencies_of(state, node):
    """Frequency levels of the node."""
    return state.classes[state.nodes[node].cls].frequency_n


@jit
def frequency_power(state, node, level):
    """Return watts above idle at a frequency level, over those at the nominal one."""
    return state.frequency_power[state.nodes[node].cls, level] if level > 0 else 1.0


@jit
def frequency_speed(state, node, level):
    """Return the speed of what follows the clock at a frequency level, over that at the nominal one."""
    return state.frequency_speed[state.nodes[node].cls, level] if level > 0 else 1.0


@jit
def node_now_w(state, node):
    """Return watts of the node by its profile as allocated and clocked now; 0 without one, devices at idle."""
    row = state.nodes[node]
    kind = state.classes[row.cls]
    if kind.known_power == 0 or row.power_state == DOWN:
        return 0.0
    if row.power_state == ASLEEP:
        return kind.sleep_w
    # One figure for both ways: the cluster's description has no other.
    if row.power_state in (WAKING, FALLING):
        return kind.wake_w
    still = watts(state, row.cls, 0.0)
    # Above the curve's own idle watts: ``idle_w`` counts the devices', too.
    above = watts(state, row.cls, row.alloc_u / MICRO) - still
    return kind.idle_w + above * frequency_power(state, node, row.frequency)


@jit
def node_tdp_w(state, node):
    """Return the node's TDP; its full watts where none is given."""
    return state.classes[state.nodes[node].cls].tdp_w


@jit
def node_wake_s(state, node):
    """Return seconds from asleep to on."""
    return state.classes[state.nodes[node].cls].wake_s


@jit
def sleep_cycle_j(state, node):
    """Return joules of falling asleep and waking once."""
    kind = state.classes[state.nodes[node].cls]
    return (kind.wake_s + kind.enter_s) * kind.wake_w


@jit
def enter_j(state, node):
    """Return joules of falling asleep once."""
    kind = state.classes[state.nodes[node].cls]
    return kind.enter_s * kind.wake_w


@jit
def sleep_after_s(state, node):
    """Return idle seconds after which the node falls asleep by itself; inf when it does not."""
    return state.classes[state.nodes[node].cls].sleep_after_s


@jit
def idle_since_s(state, node):
    """Return when the node last became empty."""
    return state.nodes[node].idle_since


@jit
def busy_until_s(state, node):
    """Return when the last attempt on the node is expected to end; now for an empty one. O(attempts on it)."""
    last = state.clock[0].now
    a = state.nodes[node].first_attempt
    while a >= 0:
        attempt = state.attempts[a]
        if attempt.end > last:
            last = attempt.end
        a = attempt.next
    return last


@jit
def makes_room(state, variant, node, attempt):
    """Tell whether the node would have room and threads for the variant if this attempt of it ended."""
    row = state.nodes[node]
    needs = state.variants[variant]
    gone = state.attempts[attempt]
    if variant_device(state, variant) and not (gone.device >= 0 and device_suits(state, variant, gone.device)):
        return False
    if row.used_mem - gone.memory + needs.memory > row.capacity_mem:
        return False
    threads = state.classes[row.cls].threads
    fits = row.used_u - gone.need_u + needs.need_u <= row.capacity_u
    # Threads, too: a node that sells more than it has would be crowded, not free.
    # 1e-9 forgives a rounding only: cores are counted in whole millionths.
    return fits and (row.alloc_u - gone.cores_u + needs.cores_u) / MICRO <= threads + 1e-9


@jit
def next_room(state, variant, node):
    """(seconds until an attempt is expected to end that makes room for the variant, its device); inf without one.

    One that should have ended already promises nothing. O(attempts on the node).
    """
    now = state.clock[0].now
    soonest = math.inf
    device = -1
    a = state.nodes[node].first_attempt
    while a >= 0:
        attempt = state.attempts[a]
        if now < attempt.end < now + soonest and makes_room(state, variant, node, a):
            soonest = attempt.end - now
            device = attempt.device
        a = attempt.next
    return soonest, device if variant_device(state, variant) else -1


@jit
def expects_end(state, node):
    """Tell whether an attempt on a node is still expected to end. O(attempts on the node)."""
    now = state.clock[0].now
    a = state.nodes[node].first_attempt
    while a >= 0:
        if state.attempts[a].end > now:
            return True
        a = state.attempts[a].next
    return False


@jit
def variant_device(state, variant):
    """Tell whether the variant runs on a GPU or an FPGA."""
    return state.variants[variant].device != NO_DEVICE


@jit
def factor_on(state, task, variant, node, device):
    """Return seconds on a node (or its device) per second of the task's estimate, alone there."""
    return work_factor(state, state.tasks[task].form, variant, node, device)


@jit
def mean_w(state, variant, node, device):
    """Return watts of a variant at the node's mean slope, whoever else is there; UNKNOWN_COST without a profile."""
    kind = state.classes[state.nodes[node].cls]
    if kind.known_power == 0:
        return UNKNOWN_COST
    # By the curve's own idle watts, as in `node_now_w`: ``full_w`` holds no device either.
    total = (
        (kind.full_w - watts(state, state.nodes[node].cls, 0.0))
        / kind.threads
        * state.variants[variant].cores_u
        / MICRO
    )
    if device >= 0:
        device_kind = state.device_classes[state.devices[device].cls]
        total += device_kind.full_w - device_kind.idle_w
    return total


@jit
def devices_of(state, node):
    """(first, behind the last) of the node's devices."""
    first = state.nodes[node].device_first
    return first, first + state.nodes[node].device_n


@jit
def device_suits(state, variant, device):
    """Tell whether a device is of the kind that the variant runs on."""
    return state.device_classes[state.devices[device].cls].kind == state.variants[variant].device


@jit
def transfer_j(state, task, node):
    """Return joules of bringing the task's data to a node."""
    return bytes_to(state, task, node) * state.classes[state.nodes[node].cls].j_per_byte


@jit
def asks_cores(state, variant):
    """Tell whether the variant requests cores."""
    return state.variants[variant].need_u > 0


@jit
def asks_memory(state, variant):
    """Tell whether the variant requests memory: a guarantee of 0 is a pod without any request."""
    return state.variants[variant].memory > 0 and state.variants[variant].guarantee > 0.0


@jit
def all_ask(state):
    """Tell whether every variant of the workload requests cores and memory."""
    return state.rules[0].bare == 0


@jit
def unasked(state, node):
    """Count attempts on the node without a request for cores, and for memory; also the bytes the latter hold."""
    cores_n = 0
    memory_n = 0
    held = 0
    # The flag spares nearly every workload the walk.
    if state.rules[0].bare == 1:
        a = state.nodes[node].first_attempt
        while a >= 0:
            attempt = state.attempts[a]
            if attempt.need_u == 0:
                cores_n += 1
            if attempt.memory == 0 or state.variants[attempt.variant].guarantee == 0.0:
                memory_n += 1
                held += attempt.memory
            a = attempt.next
    return cores_n, memory_n, held


@jit
def requested(state, node, variant):
    """Return cores and bytes that attempts on the node request, this one among them."""
    row = state.nodes[node]
    needs = state.variants[variant]
    # A bare pod's memory is reserved but was never requested.
    own = needs.memory if asks_memory(state, variant) else 0
    return (row.used_u + needs.need_u) / MICRO, row.used_mem - unasked(state, node)[2] + own


@jit
def node_memory(state, node):
    """Return bytes of memory that requests may sum to."""
    return state.nodes[node].capacity_mem


@jit
def core_share(state, variant, candidate):
    """Return guaranteed cores over what requests may sum to, the task included."""
    row = state.nodes[state.candidates[candidate].node]
    # The node's full size: ``capacity_u`` is what a ramping serverless platform offers so far.
    return (row.used_u + state.variants[variant].need_u) / row.request_u


@jit
def memory_share(state, variant, candidate):
    """Memory in use over the node's memory, the task included; 0 for a node that has none."""
    row = state.nodes[state.candidates[candidate].node]
    memory = row.capacity_mem
    return (row.used_mem + state.variants[variant].memory) / memory if memory > 0 else 0.0

"""Questions of a policy about devices and what variants ask of them: that part of the public page `view`.

Shares of devices and cores are told in whole millionths (``_u``), as they are counted, so that sums are exact.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from wattflow.engine import devices
from wattflow.engine.tables import GPU, MICRO, MPS, NO_DEVICE
from wattflow.engine.tables import HOT as ANY_FUNCTION
from wattflow.policy.jit import jit

WHOLE_U = MICRO
"""A whole core or device in millionths."""


@jit
def is_gpu(state, device):
    """Tell whether a device is a GPU."""
    return state.device_classes[state.devices[device].cls].kind == GPU


@jit
def device_tasks(state, device):
    """Count attempts that hold a part of the device."""
    return state.devices[device].tasks


@jit
def device_turns(state, device):
    """Return how many tasks may take turns on a device, 1 on an exclusive one; 0 where it is shared out by shares."""
    kind = state.device_classes[state.devices[device].cls]
    # By number: exclusive 0, time slices 1, then MPS and MIG (`engine.tables`).
    if kind.sharing > 1:
        return 0
    return kind.slots if kind.sharing == 1 else 1


@jit
def beside(state, variant, device):
    """Return seconds that one more task takes on a shared device over those alone there, and those that it adds to all
    others together, as `docs/physics.md` has interference under MPS."""
    row = state.devices[device]
    kind = state.device_classes[row.cls]
    if kind.sharing != MPS or row.tasks == 0 or kind.interference == 0.0:
        return 1.0, 0.0
    tasks, share_u = row.tasks, devices.busy_share(state, variant, row.cls)
    before = 1.0 + kind.interference * row.busy_u / MICRO * (tasks - 1) / tasks
    after = 1.0 + kind.interference * (row.busy_u + share_u) / MICRO * tasks / (tasks + 1)
    return after, tasks * (after - before)


@jit
def taken_u(state, device):
    """Return the share of the device that is taken."""
    return state.devices[device].share_u


@jit
def free_u(state, node):
    """Return cores that requests may still take on a node."""
    return state.nodes[node].capacity_u - state.nodes[node].used_u


@jit
def variant_need_u(state, variant):
    """Return cores that the variant is guaranteed."""
    return state.variants[variant].need_u


@jit
def variant_devices(state, variant):
    """Count devices that the variant asks for; 0 for none."""
    needs = state.variants[variant]
    return needs.devices if needs.device != NO_DEVICE else 0


@jit
def wants_gpu(state, variant):
    """Tell whether the variant runs on GPUs."""
    return state.variants[variant].device == GPU


@jit
def variant_share_u(state, variant):
    """Return the share of each device that the variant takes: of several the whole."""
    needs = state.variants[variant]
    return needs.share_u if needs.devices == 1 else MICRO


@jit
def shape_seen(state, shape):
    """Count tasks of a shape that have arrived."""
    return state.shapes[shape].seen


@jit
def stands_for(state, node):
    """Return how many equal nodes a candidate stands for."""
    if state.rules[0].grouped == 1:
        return max(1, state.groups[state.nodes[node].group].count)
    return 1


@jit
def first_attempt(state, node):
    """Return the first attempt on a node, −1 for none; go on with `next_attempt`."""
    return state.nodes[node].first_attempt


@jit
def next_attempt(state, attempt):
    """Return the attempt behind another on its node; −1 for none."""
    return state.attempts[attempt].next


@jit
def attempt_variant(state, attempt):
    """Return the variant that an attempt runs."""
    return state.attempts[attempt].variant


@jit
def attempt_end_s(state, attempt):
    """Return when an attempt is expected to end."""
    return state.attempts[attempt].end


# mypy: disable-error-code="no-untyped-def"


@jit
def container_start_s(state, fn):
    """Return seconds that a container of the function takes to make, before a node's own factor."""
    return state.functions[fn].cold_start_s


@jit
def function_running(state, fn):
    """Count attempts of the function under way."""
    return state.functions[fn].running


@jit
def function_arrived(state, fn):
    """Count tasks of the function that became ready so far, tries after the first among them."""
    return state.functions[fn].started + state.functions[fn].waiting


@jit
def function_waiting(state, fn):
    """Count tasks of the function in the queue."""
    return state.functions[fn].waiting


@jit
def keep_alive_s(state, node):
    """Return seconds that the node keeps an idle container."""
    return state.classes[state.nodes[node].cls].keep_alive_s


@jit
def cold_factor(state, node):
    """Return how much longer containers take on this node."""
    return state.classes[state.nodes[node].cls].cold_factor


@jit
def idle_containers(state, fn):
    """Count containers of a function (or of ANY_FUNCTION) that wait, on all nodes, and are not too old."""
    count = 0
    c = state.counts[0].hot_container if fn == ANY_FUNCTION else state.functions[fn].first_container
    while c >= 0:
        # As `containers` and `view.find_container` count: at exactly its keep-alive a container is gone.
        if state.containers[c].idle_since > state.clock[0].now - keep_alive_s(state, state.containers[c].node):
            count += 1
        c = state.containers[c].next_function
    return count


@jit
def spare_containers(state, node, fn):
    """Count idle containers of a function on a node that no task placed in this instant will take."""
    row = state.nodes[node]
    spare = 0
    c = row.first_container
    oldest = state.clock[0].now - state.classes[row.cls].keep_alive_s
    while c >= 0:
        if state.containers[c].function == fn and state.containers[c].idle_since > oldest:
            spare += 1
        c = state.containers[c].next_node
    if spare > 0:
        # Placed in this instant and not begun: they have taken no container yet, but will.
        for i in range(state.counts[0].placed_n):
            attempt = state.attempts[state.placed[i]]
            if attempt.node == node and state.shapes[state.tasks[attempt.task].form].function == fn:
                spare -= 1
    return spare

"""Questions of a policy about devices and what variants ask of them: that part of the public page `view`.

Shares of devices and cores are told in whole millionths (``_u``), as they are counted, so that sums are exact.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from wattflow.engine.tables import GPU, MICRO, NO_DEVICE
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

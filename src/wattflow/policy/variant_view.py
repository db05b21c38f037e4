"""Questions of a policy about the variants of a task: the part of the public page `view` that speaks of them."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.engine import devices
from wattflow.engine.tables import MICRO
from wattflow.policy.jit import jit


@jit
def variant_cores(state, variant):
    """Return cores that the variant uses."""
    return state.variants[variant].cores_u / MICRO


@jit
def variant_guaranteed(state, variant):
    """Return cores that the variant is guaranteed."""
    return state.variants[variant].need_u / MICRO


@jit
def variant_guarantee(state, variant):
    """Return the share of its request that the variant is guaranteed."""
    return state.variants[variant].guarantee


@jit
def variant_frequency(state, variant):
    """Frequency level of the variant; 0 is nominal."""
    return state.variants[variant].frequency


@jit
def variant_level(state, variant):
    """Level of the variant, of its cores or of its device; 0 is nominal."""
    needs = state.variants[variant]
    # An offer lowers one of the two.
    return max(needs.frequency, needs.level)


@jit
def level_seconds(state, task, variant, candidate):
    """Return the task's seconds at the variant's level on a candidate, over those at the nominal one."""
    needs = state.variants[variant]
    place = state.candidates[candidate]
    if needs.level > 0:
        return devices.seconds_at(state, variant, state.devices[place.device].cls, needs.level)
    if needs.frequency == 0:
        return 1.0
    bound = state.functions[state.shapes[state.tasks[task].form].function].compute_bound
    return (1.0 - bound) + bound / state.frequency_speed[state.nodes[place.node].cls, needs.frequency]


@jit
def variants_of(state, task):
    """(first, behind the last) of the task's variants."""
    form = state.shapes[state.tasks[task].form]
    return form.variant_first, form.variant_first + form.variant_n


def shape_count(state: Any) -> int:
    """Return how many task shapes there are; for ``prepare``."""
    return len(state.shapes)


def first_variants(state: Any, shapes: Any) -> Any:
    """Return the first variant of each of these shapes; for ``prepare``."""
    return np.asarray(state.shapes.variant_first[shapes])


def candidate_room(state: Any) -> int:
    """Return the most candidates that a score can be asked about at once; for ``prepare``."""
    return len(state.candidates)

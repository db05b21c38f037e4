"""Questions of a policy about the variants of a task: the part of the public page `view` that speaks of them."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

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
def variants_of(state, task):
    """(first, behind the last) of the task's variants."""
    form = state.shapes[state.tasks[task].form]
    return form.variant_first, form.variant_first + form.variant_n

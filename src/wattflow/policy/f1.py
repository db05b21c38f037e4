"""F1: the best of four queue orders that were found by regression on simulated schedules.

Carastan-Santos, de Camargo: Obtaining dynamic scheduling policies with simulation and machine learning, SC '17,
doi:10.1145/3126908.3126955. O(log waiting) to queue; ties go to the task that entered first. Tasks without an
estimate come last. Runtimes and arrivals below one second count as one, so that no logarithm is negative or infinite.
"""

from __future__ import annotations

import math

from wattflow.policy import least_loaded, view
from wattflow.policy.base import Policy

DIAL = view.dials(arrival_weight=870.0)


def priority(state, task):
    """log₁₀(r) · n + 870 · log₁₀(s): runtime r, cores n, arrival s."""
    if not view.has_estimate(state, task):
        return view.UNKNOWN_COST
    estimate = view.estimate_s(state, task)
    # Both logarithms: below one second counts as one, else they would be negative or infinite.
    size = math.log10(max(1.0, estimate)) * view.cores_of(state, task)
    return size + view.param(state, DIAL.arrival_weight) * math.log10(max(1.0, view.ready_s(state, task)))


F1 = Policy(
    "f1",
    "log10(runtime) · cores + 870 · log10(arrival), smallest first",
    "10.1145/3126908.3126955",
    score=least_loaded.score,
    priority=priority,
    params=DIAL.defaults,
)

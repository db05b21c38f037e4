"""Weighted: every workflow by the weights of its own objective, all of them in one queue.

The cost of a place is J^energy · s^time · (1.5 − fill)^packing: joules that the task adds there (`least-energy`),
seconds until it ends there (`eft`), and how full the node is with it (`most-allocated`). Places are compared for one
task at a time, so workflows with unlike weights never have their costs compared; with a single weight the choice is
that policy's own, to the bit. Between tasks the order is that of their workflows' arrival; one with the weight
``short`` counts as if it had arrived later by as many seconds as it runs: shortest first, and nobody waits for ever.

A workflow that carries no weights (each one of a simulation) has those of the policy's numbers. O(candidates) per task;
ties go to the lower index.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import view
from wattflow.policy.base import Policy

# `view.objective_weight` unpacks with the same 12 bits, written out there: compiled code.
BITS = 12
"""Bits of a weight in a workflow's row; four of them are a whole number that a float64 holds exactly."""
DIAL = view.dials(energy=1.0, time=0.0, packing=0.0, short=0.0)
DECIDING = ("energy", "time", "packing")
UNKNOWN_S = 3600.0
"""Runtime assumed of a task without an estimate in the order of ``short``."""


def packed(**weights: float) -> float:
    """Pack weights between 0 and 1, by name, into the number that a workflow carries (`view.objective_weight`).

    Raises:
        ValueError: A name or a weight that there is not, or none of those that decide.
    """
    unknown = sorted(set(weights) - set(DIAL._fields))
    if unknown or not all(0.0 <= weight <= 1.0 for weight in weights.values()):
        raise ValueError(f"weights are {', '.join(DIAL._fields)} between 0 and 1, not {weights}")
    if not any(weights.get(name, 0.0) > 0.0 for name in DECIDING):
        raise ValueError(f"one of {', '.join(DECIDING)} must be above 0, not {weights}")
    most = (1 << BITS) - 1
    return float(sum(round(weight * most) << (BITS * getattr(DIAL, name)) for name, weight in weights.items()))


def score(state, task, variant, out):
    """J^energy · s^time · (1.5 − fill)^packing."""
    energy = view.objective_weight(state, task, DIAL.energy)
    time = view.objective_weight(state, task, DIAL.time)
    packing = view.objective_weight(state, task, DIAL.packing)
    for c in range(out.size):
        # A single weight of 1 leaves that policy's own cost, to the bit: 1.0 · x ** 1.0 is x.
        cost = 1.0
        if energy > 0.0:
            # A cost of 0 to any power would hide the other weights.
            cost *= max(view.added_j(state, task, variant, c), 1e-12) ** energy
        if time > 0.0:
            cost *= max(view.bounded(view.finish_in_s(state, task, variant, c)), 1e-12) ** time
        if packing > 0.0:
            fill = 0.5 * (view.core_share(state, variant, c) + view.memory_share(state, variant, c))
            cost *= max(1.5 - fill, 1e-12) ** packing
        out[c] = view.bounded(cost)


def priority(state, task):
    """Arrival of its workflow, later by its runtime where short ones go first."""
    known_s = view.estimate_s(state, task) if view.has_estimate(state, task) else UNKNOWN_S
    return view.submit_s(state, task) + view.objective_weight(state, task, DIAL.short) * known_s


WEIGHTED = Policy(
    "weighted",
    "every workflow by the weights of its own objective",
    score=score,
    priority=priority,
    settings=PolicySettings(wakes=True),
    params=DIAL.defaults,
    limits=dict.fromkeys(DIAL.defaults, (0.0, 1.0)),
    one_of=DECIDING,
)

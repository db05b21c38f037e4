"""Multi-criteria choice by TOPSIS, as in KCSS.

Menouer: KCSS: Kubernetes container scheduling strategy, J. Supercomputing 77, 2021, doi:10.1007/s11227-020-03427-3.
Criteria here, all to be small: share of cores, share of memory, the node's watts, running attempts, seconds until
the run can start (image, data, wake). Each column is divided by its Euclidean norm and weighed; a candidate's cost is
its distance to the ideal row over the sum of its distances to the ideal and to the worst row.

O(criteria × candidates) per task; ties go to the lower index. A node without a profile is compared by the other
criteria and used only where none with one fits.
"""

from __future__ import annotations

import math

from wattflow.policy import view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(cores=0.2, memory=0.2, watts=0.2, running=0.2, start=0.2)
CRITERIA = 5
POWER = 2


@jit
def node_w(state, task, variant, candidate):
    """Return watts of the whole node with the task on it (KCSS: the node's power), its own idle watts included."""
    added = view.added_w(state, task, variant, candidate)
    if added >= view.UNKNOWN_COST:
        return view.UNKNOWN_COST
    node = view.node_of(state, candidate)
    before = view.watts_at(state, node, view.busy_cores(state, node)) - view.watts_at(state, node, 0.0)
    return view.node_idle_w(state, node) + before + added


@jit
def criterion(state, task, variant, candidate, k):
    """Value k of a candidate; the unknown is view.UNKNOWN_COST."""
    if k == 0:
        return view.core_share(state, variant, candidate)
    if k == 1:
        return view.memory_share(state, variant, candidate)
    if k == POWER:
        return node_w(state, task, variant, candidate)
    if k == 3:
        return float(view.tasks_on(state, view.node_of(state, candidate)))
    return view.ready_in_s(state, task, variant, candidate)


@jit
def extremes(state, task, variant, out, k):
    """(Euclidean norm, smallest, largest) of criterion k over the candidates, the unknown left out."""
    norm = 0.0
    best = math.inf
    worst = -math.inf
    for c in range(out.size):
        value = criterion(state, task, variant, c, k)
        if value < view.UNKNOWN_COST:
            norm += value * value
            best = min(best, value)
            worst = max(worst, value)
    return math.sqrt(norm), best, worst


@jit
def closeness(state, task, variant, candidate, table):
    """Distance to the ideal over distance to the ideal plus distance to the worst: 0 is ideal."""
    to_best = 0.0
    to_worst = 0.0
    for k in range(CRITERIA):
        value = criterion(state, task, variant, candidate, k)
        # A criterion that is 0 everywhere, or unknown here, says nothing.
        if value < view.UNKNOWN_COST and table[k][0] > 0.0:
            weight = view.param(state, k) / table[k][0]
            best = weight * (value - table[k][1])
            worst = weight * (value - table[k][2])
            to_best += best * best
            to_worst += worst * worst
    both = math.sqrt(to_best) + math.sqrt(to_worst)
    # All candidates equal: each is ideal.
    return math.sqrt(to_best) / both if both > 0.0 else 0.0


def score(state, task, variant, out):
    """d⁺ / (d⁺ + d⁻)."""
    table = (
        extremes(state, task, variant, out, 0),
        extremes(state, task, variant, out, 1),
        extremes(state, task, variant, out, POWER),
        extremes(state, task, variant, out, 3),
        extremes(state, task, variant, out, 4),
    )
    for c in range(out.size):
        out[c] = closeness(state, task, variant, c, table)
        if not view.has_profile(state, view.node_of(state, c)):
            # On top of its closeness, so that nodes without profiles are still compared with each other.
            out[c] += view.UNKNOWN_COST


TOPSIS = Policy(
    "topsis",
    "multi-criteria choice by TOPSIS (KCSS)",
    "10.1007/s11227-020-03427-3",
    score=score,
    params=DIAL.defaults,
)

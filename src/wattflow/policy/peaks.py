"""PEAKS' rule: the node whose power rises least, by its power model of utilisation.

PEAKS (Power Efficiency Aware Kubernetes Scheduler, https://github.com/sustainable-computing-io/peaks) predicts a
node's watts as K0 + K1 · e^(K2 · utilisation) and scores the jump that a pod causes. Here each model goes through the
profile's watts at 0, 50 and 100 % (a straight line where these lie on one). Devices have no part in the rule.

O(candidates) per task; ties go to the lower index. A node without a profile is used only where none with one fits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.policy import view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

NOTES = view.notes("k0", "k1", "k2")


@jit
def model_w(state, cls, utilisation):
    """K0 + K1 e^(K2 x), x in per cent; with K2 = 0 the straight line K0 + K1 x."""
    k0 = view.recall(state, NOTES.k0, cls)
    k1 = view.recall(state, NOTES.k1, cls)
    k2 = view.recall(state, NOTES.k2, cls)
    if k2 == 0.0:
        return k0 + k1 * utilisation
    return k0 + k1 * math.exp(k2 * utilisation)


def score(state, task, variant, out):
    """P(utilisation after) − P(utilisation before)."""
    for c in range(out.size):
        node = view.node_of(state, c)
        if not view.has_profile(state, node):
            out[c] = view.UNKNOWN_COST
            continue
        cls = view.class_of(state, node)
        per_core = 100.0 / view.node_threads(state, node)
        busy = view.busy_cores(state, node)
        before = min(100.0, busy * per_core)
        after = min(100.0, (busy + view.variant_cores(state, variant)) * per_core)
        out[c] = model_w(state, cls, after) - model_w(state, cls, before)


def fit(idle_w: float, half_w: float, full_w: float) -> tuple[float, float, float]:
    """(K0, K1, K2) through the watts at 0, 50 and 100 %."""
    first, second = half_w - idle_w, full_w - half_w
    # The logarithm below needs growth, and a straight line has none.
    if first <= 0 or second <= 0 or abs(second / first - 1.0) < 1e-9:
        return idle_w, (full_w - idle_w) / 100.0, 0.0
    growth = second / first  # e^(50 K2)
    k1 = first / (growth - 1.0)
    return idle_w - k1, k1, math.log(growth) / 50.0


def prepare(state: Any, cluster: Cluster) -> None:
    """Fit every class's model."""
    rows = []
    for cls in range(len(state.classes)):
        # Nodes of a class are alike.
        node = int(state.class_nodes[state.classes["first"][cls]])
        threads = float(view.node_threads(state.handle(), node))
        rows.append(fit(*(float(view.watts_at(state.handle(), node, share * threads)) for share in (0.0, 0.5, 1.0))))
    k0, k1, k2 = np.array(rows, np.float64).T
    view.lay_out(state, NOTES, k0=k0, k1=k1, k2=k2)


PEAKS = Policy("peaks", "smallest rise of power by the node's power model", score=score, prepare=prepare)

"""Joulie's score: power headroom after the pod, cooling stress, and a bonus against the trend of the node's watts.

    points = 0.7 · headroom + 0.15 · (100 − stress) − clamp(trend / scale, ±25), held between 0 and 100
    headroom = 100 · (cap − watts now − watts added) / cap, at least 0;  stress = 100 · watts now / TDP, at most 100

Trends are watts a minute from one minute's sample to the next; the scale is 2 while the cluster's trends sum to more
than 500 W a minute either way, else 6. Watts are those of this moment, which is more than its operator knows (it
looks every half minute or so). https://joulie-k8s.github.io/Joulie (experiment 04, scoring formula validation).

`joulie-caps` adds its static partition: of each class of nodes the first part stays as it is, the rest is capped at a
share of full watts; pods of class *performance* (here: tasks with a deadline) do not go to capped nodes, unless no
other node could ever take them. Small classes share the part out among them: of ten that differ four stay as they are.
O(candidates + classes) per task and O(nodes) a minute. Ties go to the lower index. A node without a profile is used
only where none with one fits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.policy import effects, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

SAMPLE_S = 60.0
BURST_W = 500.0
"""Watts a minute of the whole cluster."""
DIAL = view.dials(performance=1.0, eco=0.65)
"""Part of the nodes of each class that stays uncapped, and the share of full watts that the others keep."""
NOTES = view.notes("before_w", "trend", "cap_w", "capped", "open", "whole")
SAMPLED, CLUSTER, ORDERED = 0, 1, 2
"""In ``whole``: when trends were taken last, their sum, and whether caps were ordered."""


@jit
def points(state, node, added_w, scale):
    """Its score of a node, 0 to 100; higher is better."""
    now_w = view.node_now_w(state, node)
    cap_w = view.recall(state, NOTES.cap_w, node)
    # Without known watts there is no cap, and no headroom either.
    headroom = max(0.0, 100.0 * (cap_w - now_w - added_w) / cap_w) if cap_w > 0.0 else 0.0
    stress = min(100.0, 100.0 * now_w / max(1e-9, view.node_tdp_w(state, node)))
    bonus = -max(-25.0, min(25.0, view.recall(state, NOTES.trend, node) / scale))
    return max(0.0, min(100.0, 0.7 * headroom + 0.15 * (100.0 - stress) + bonus))


@jit
def open_somewhere(state, variant):
    """Tell whether a node without a cap could take the variant, now or later."""
    for cls in range(view.classes_n(state)):
        if view.recall(state, NOTES.open, cls) > 0.0 and view.class_takes(state, variant, cls):
            return True
    return False


def score(state, task, variant, out):
    """100 − points; inf on a capped node for a task with a deadline that another node could take."""
    scale = 2.0 if abs(view.recall(state, NOTES.whole, CLUSTER)) > BURST_W else 6.0
    urgent = view.deadline_s(state, task) < math.inf and open_somewhere(state, variant)
    for c in range(out.size):
        node = view.node_of(state, c)
        added_w = view.added_w(state, task, variant, c)
        if urgent and view.recall(state, NOTES.capped, node) == 1.0:
            out[c] = math.inf
        elif added_w >= view.UNKNOWN_COST:
            out[c] = view.UNKNOWN_COST
        else:
            out[c] = 100.0 - points(state, node, added_w, scale)


def act(state):
    """Take the trends once a minute; at the beginning order the caps."""
    now = view.now_s(state)
    if view.recall(state, NOTES.whole, ORDERED) == 0.0:
        effects.note(state, NOTES.whole, ORDERED, 1.0)
        effects.note(state, NOTES.whole, SAMPLED, now)
        effects.order_timer(state, now + SAMPLE_S)
        for node in range(view.nodes_n(state)):
            if view.recall(state, NOTES.capped, node) == 1.0:
                effects.order_cap(state, node, view.recall(state, NOTES.cap_w, node))
    minutes = (now - view.recall(state, NOTES.whole, SAMPLED)) / SAMPLE_S
    # Sums of floats: a timer that comes a rounding early is still the minute's.
    if minutes < 1.0 - 1e-9:
        return
    total = 0.0
    for node in range(view.nodes_n(state)):
        now_w = view.node_now_w(state, node)
        trend = (now_w - view.recall(state, NOTES.before_w, node)) / minutes
        effects.note(state, NOTES.before_w, node, now_w)
        effects.note(state, NOTES.trend, node, trend)
        total += trend
    effects.note(state, NOTES.whole, SAMPLED, now)
    effects.note(state, NOTES.whole, CLUSTER, total)
    effects.order_timer(state, now + SAMPLE_S)


def prepare(state: Any, cluster: Cluster) -> None:
    """Caps of nodes, and watts to begin with: idle."""
    share, eco = float(state.params[DIAL.performance]), float(state.params[DIAL.eco])
    classes, cls = state.classes, np.asarray(state.nodes.cls)
    # Rows for nodes to come have a class, too.
    standing = np.asarray(state.nodes.pos) >= 0  # a live engine keeps rows for nodes to come
    full_w = np.asarray(classes.full_w[cls] + classes.device_idle_w[cls], np.float64)
    capped, unlimited = np.zeros(len(cls)), np.zeros(len(classes))
    seen = kept = 0
    for one in np.unique(cls):
        (members,) = np.nonzero((cls == one) & standing)
        seen += len(members)
        # Rounded over all classes so far: many small classes still keep the share as a whole.
        keep = min(len(members), max(0, round(share * seen) - kept))
        kept += keep
        capped[members[keep:]], unlimited[one] = 1.0, keep
    view.lay_out(
        state,
        NOTES,
        before_w=np.where(standing, classes.idle_w[cls], 0.0),
        trend=np.zeros(len(cls)),
        cap_w=np.where(capped == 1.0, eco * full_w, full_w),
        capped=capped,
        open=unlimited,
        whole=np.zeros(3),
    )


JOULIE = Policy(
    "joulie",
    "power headroom, cooling stress and power trends, as Joulie's extender scores",
    score=score,
    act=act,
    # Trends and caps are each node's own, which groups of equal nodes do not know.
    settings=PolicySettings(grouped=False),
    params=DIAL.defaults,
    prepare=prepare,
    slack=True,
)
JOULIE_CAPS = Policy(
    "joulie-caps",
    "Joulie's score with a part of the nodes capped",
    score=score,
    act=act,
    settings=PolicySettings(grouped=False),
    params={**DIAL.defaults, "performance": 0.4},
    prepare=prepare,
    slack=True,
)

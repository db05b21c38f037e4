"""Opponents of chosen levels: one clock for all, one cap for all, and the level that is best for each job by itself.

All of them place as kube-scheduler does by default, so that what differs is the clock alone.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.policy import effects, kubernetes, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(level=1.0, share=0.0)
"""The level of all nodes and devices; the share of full watts that every node keeps, 0 for no cap."""
NOTES = view.notes("ordered", "full_w")
AWAY = 1000.0
"""More than all points of kube-scheduler: offers of another level are taken only where there is no other."""
LEVELS = (0, 1, 2)


@jit
def fill(state, variant, out):
    """Points of kube-scheduler; devices at the level of all."""
    kubernetes.fill_points(state, variant, out)
    if view.variant_needs_device(state, variant) and view.variant_level(state, variant) != view.param(
        state, DIAL.level
    ):
        for c in range(out.size):
            out[c] += AWAY


def score_fixed(state, task, variant, out):
    """Place as kube-scheduler does."""
    fill(state, variant, out)


def act_fixed(state):
    """Order the clock, or the cap, of every node once."""
    if view.recall(state, NOTES.ordered, 0) == 1.0:
        return
    effects.note(state, NOTES.ordered, 0, 1.0)
    share = view.param(state, DIAL.share)
    for node in range(view.nodes_n(state)):
        if share > 0.0:
            effects.order_cap(state, node, share * view.recall(state, NOTES.full_w, node))
        else:
            level = min(int(view.param(state, DIAL.level)), view.frequencies_of(state, node) - 1)
            effects.order_frequency(state, node, level)


def prepare(state: Any, cluster: Any) -> None:
    """Lay out full watts of nodes."""
    full_w = state.classes.full_w[state.nodes.cls] + state.classes.device_idle_w[state.nodes.cls]
    view.lay_out(state, NOTES, ordered=[0.0], full_w=np.asarray(full_w))


def score_zeus(state, task, variant, out):
    """Take kube-scheduler's node, and there the level of least ½ · joules + ½ · full watts · seconds, as Zeus does."""
    kubernetes.fill_points(state, variant, out)
    for c in range(out.size):
        seconds = view.runtime_s(state, task, variant, c)
        slower = view.level_seconds(state, task, variant, c)
        added_w = view.added_w(state, task, variant, c)
        if added_w < view.UNKNOWN_COST and seconds < view.UNKNOWN_COST:
            node = view.node_of(state, c)
            # Of the whole machine, as its meter has it: its cores' part of the idle watts counts.
            part = view.variant_cores(state, variant) / max(1.0, view.node_threads(state, node))
            idle_w = view.node_idle_w(state, node) * part
            joules = (added_w + idle_w) * seconds
            most_w = (added_w + idle_w) * slower
            out[c] = out[c] * 1e6 + 0.5 * joules + 0.5 * most_w * seconds
        elif view.variant_level(state, variant) > 0:
            out[c] = view.UNKNOWN_COST


FIXED = Policy(
    "one-clock",
    score=score_fixed,
    act=act_fixed,
    prepare=prepare,
    params=DIAL.defaults,
    settings=PolicySettings(frequencies=(0,), grouped=False),
)
ZEUS = Policy("zeus", score=score_zeus, settings=PolicySettings(frequencies=LEVELS))


def one_clock(level: int) -> Policy:
    """Every node and device at a level."""
    return FIXED.with_params(level=float(level)).with_settings(frequencies=tuple(sorted({0, level})))


def one_cap(share: float) -> Policy:
    """Every node at a share of its full watts; devices at full clock."""
    return FIXED.with_params(level=0.0, share=share)

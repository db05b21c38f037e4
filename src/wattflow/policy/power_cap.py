"""A power cap over time: the cluster (or a zone) stays below a series of watts.

Caps come from contracts, cooling or the grid; a series holds for one step at a time and repeats, as carbon does. The
cap is held by levels first: a task starts wherever the capped nodes, slowed down as far as they go, stay below the cap
of this moment with it (fewest added joules among those places), and in the same instant `act` lowers frequencies, the
hungriest node first, until the cap is kept, and raises them again when there is room: slowed cores do more work for a
watt, so all of them slower do more than some of them at full clock. By holding back last: a task that even the slowest
clocks leave no room for waits until the next step or the next end. A cluster without anything running takes a task even
above the cap, so that nothing waits for ever.

`following` makes the policy for a series in watts; the registered one caps the whole cluster at a share of its full
watts. Watts are those of the profiles at the present allocation. O(nodes) per task and instant. Ties go to the lower
index. A node without a profile counts nothing and is used only where none with one fits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster, Series
from wattflow.policy import effects, series, terms, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(share=0.8)
NOTES = view.notes(*series.BLOCKS, "capped", "level")
CAP = 0
"""The one series: watts."""
ROOM = 0.95
"""A frequency rises again only while that leaves the watts below this share of the cap."""


@jit
def present_w(state):
    """Return watts of the capped nodes as they are allocated now."""
    total = 0.0
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.capped, node) == 1.0:
            total += view.node_now_w(state, node)
    return total


@jit
def slowest_power(state, node):
    """Return watts above idle at the node's thriftiest level, over those at the nominal one."""
    least = 1.0
    for level in range(1, view.frequencies_of(state, node)):
        least = min(least, view.frequency_power(state, node, level))
    return least


@jit
def slowing(state, variant, node):
    """Return what a variant's watts become when its node goes down to its thriftiest level."""
    # Devices have a clock of their own, which nobody lowers here.
    if view.variant_needs_device(state, variant) or view.frequencies_of(state, node) == 1:
        return 1.0
    return slowest_power(state, node) / view.frequency_power(state, node, int(view.recall(state, NOTES.level, node)))


@jit
def slowed_w(state):
    """Return watts of the capped nodes as they are allocated now, each at its thriftiest level."""
    total = 0.0
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.capped, node) == 1.0:
            now_w = view.node_now_w(state, node)
            if view.is_on(state, node) and view.frequencies_of(state, node) > 1:
                idle_w = view.node_idle_w(state, node)
                level = int(view.recall(state, NOTES.level, node))
                now_w = idle_w + (now_w - idle_w) * slowest_power(state, node) / view.frequency_power(
                    state, node, level
                )
            total += now_w
    return total


def score(state, task, variant, out):
    """Added joules; inf where the cap would be exceeded at the slowest clocks while anything runs."""
    now = view.now_s(state)
    room_w = series.value(state, CAP, now) - slowed_w(state)
    held = False
    for c in range(out.size):
        node = view.node_of(state, c)
        added_w = view.added_w(state, task, variant, c) * slowing(state, variant, node)
        if view.is_asleep(state, node):
            # Waking adds the whole idle draw, not only what the task adds.
            added_w += view.node_idle_w(state, node) - view.node_sleep_w(state, node)
        out[c] = view.added_j(state, task, variant, c)
        capped = view.recall(state, NOTES.capped, node) == 1.0 and view.has_profile(state, node)
        # With nothing running a task must start, or everything would wait for ever.
        if capped and added_w > room_w and view.running(state) > 0:
            out[c] = math.inf
            held = True
    if held:
        step = series.step_s(state, CAP)
        # The next step of the series; an end before it brings a decision anyway.
        effects.hold_until(state, (math.floor(now / step) + 1.0) * step)


@jit
def hungriest(state, lower):
    """Find the capped node with most watts above idle that can go down (or, without ``lower``, up); −1 without."""
    best = -1
    most = 0.0
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.capped, node) == 0.0 or view.tasks_on(state, node) == 0:
            continue
        level = view.recall(state, NOTES.level, node)
        able = level + 1.0 < view.frequencies_of(state, node) if lower else level > 0.0
        above_w = view.node_now_w(state, node) - view.node_idle_w(state, node)
        if able and above_w > most:
            most = above_w
            best = node
    return best


@jit
def step_w(state, node, change):
    """Return watts that a change of the node's frequency level adds."""
    level = int(view.recall(state, NOTES.level, node))
    above_w = view.watts_at(state, node, view.busy_cores(state, node)) - view.watts_at(state, node, 0.0)
    return above_w * (view.frequency_power(state, node, level + change) - view.frequency_power(state, node, level))


def act(state):
    """Step down while above the cap, up while there is room; and be there when the cap changes."""
    now = view.now_s(state)
    cap_w = series.value(state, CAP, now)
    watts = present_w(state)
    change = 1 if watts > cap_w else -1
    # As many steps as nodes, so that a single act ends.
    for _ in range(view.nodes_n(state)):
        node = hungriest(state, change == 1)
        # Going down stops as soon as the cap is kept.
        if node < 0 or (change == 1 and watts <= cap_w):
            break
        added = step_w(state, node, change)
        # Below the cap by some distance: else a node would go up and down with every task.
        if change == -1 and watts + added > ROOM * cap_w:
            break
        watts += added
        level = int(view.recall(state, NOTES.level, node)) + change
        effects.note(state, NOTES.level, node, level)
        effects.order_frequency(state, node, level)
    # With nothing running there is nothing to slow down at the next step.
    if view.running(state) > 0:
        step = series.step_s(state, CAP)
        effects.order_timer(state, (math.floor(now / step) + 1.0) * step)


def _lay_out(state: Any, cluster: Cluster, cap: Series, zone: str | None) -> None:
    # The cluster lists the nodes that are there in the order of their rows; rows of nodes that left are empty.
    capped = np.zeros(len(state.nodes))
    capped[np.asarray(state.nodes["pos"]) >= 0] = [float(zone is None or node.zone == zone) for node in cluster.nodes]
    view.lay_out(state, NOTES, capped=capped, level=np.zeros(len(capped)), **series.blocks([cap]))


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay out a constant cap: a share of all nodes' full watts."""
    classes = state.classes
    # ``full_w`` is without devices; they idle at least.
    full_w = float(((classes.full_w + classes.device_idle_w) * classes.count).sum())
    _lay_out(state, cluster, Series(3600.0, (float(state.params[DIAL.share]) * full_w,)), None)


def following(cap_w: Series, zone: str | None = None, policy: Policy | None = None) -> Policy:
    """Make the policy, or this one with its settings, that keeps the cluster or one of its zones below these watts."""

    def known(state: Any, cluster: Cluster) -> None:
        _lay_out(state, cluster, cap_w, zone)

    # Without the share: nobody reads it here, and manifests would tell of a cap that is not held.
    return replace(policy or POWER_CAP, prepare=known, params={}, limits={})


POWER_CAP = Policy(
    "power-cap",
    "fewest added joules below a cap on watts that may change over time",
    score=score,
    act=act,
    settings=PolicySettings(wakes=True, alike=True),
    params=DIAL.defaults,
    # Above 1, too: full watts are without those of busy devices.
    limits={"share": (0.01, 10.0)},
    prepare=prepare,
    terms=terms.JOULES,
)

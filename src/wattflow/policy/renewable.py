"""Follow a renewable supply with a battery: work starts when it can run on what the sun and the wind give.

The supply is a series of watts that repeats, as carbon and caps are; what the cluster does not draw charges a battery,
what it draws beyond comes out of it, and from the grid when it is empty. A task starts where the supply over its run
and the battery's charge now cover what the cluster draws already and what it adds itself, at the fewest added joules
among such places. Otherwise it waits for the next step of the supply, until its latest start: by its deadline, or on
its workflow's critical path plus ``delay_s``. Then it runs on the grid.

`following` makes the policy for a given supply and battery; the registered one has a sunny day of half the cluster's
full watts at noon and a battery for an hour of them, empty at the start. The forecast is the series itself; charging
loses a tenth. Watts are those of the profiles at the present allocation, and a node without one counts nothing. O(nodes
+ steps of a run) per task and instant. Ties go to the lower index.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster, Series
from wattflow.policy import effects, series, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

DIAL = view.dials(delay_s=6 * 3600.0, peak=0.5, battery_h=1.0)
NOTES = view.notes(*series.BLOCKS, "capacity_j", "charge_j", "at_s", "draw_w")
SUPPLY = 0
"""The one series: watts."""
EFFICIENCY = 0.9
"""Joules in the battery for each that is put in."""


@jit
def present_w(state):
    """Return watts of all nodes as they are allocated now."""
    total = 0.0
    for node in range(view.nodes_n(state)):
        total += view.node_now_w(state, node)
    return total


@jit
def charge_j(state):
    """Return the battery's charge now: since it was last written down the cluster drew the same watts."""
    now = view.now_s(state)
    step = series.step_s(state, SUPPLY)
    charge = view.recall(state, NOTES.charge_j, 0)
    at = view.recall(state, NOTES.at_s, 0)
    while at < now:
        until = min(now, (math.floor(at / step) + 1.0) * step)
        spare_j = (series.value(state, SUPPLY, at) - view.recall(state, NOTES.draw_w, 0)) * (until - at)
        # Charging loses a tenth; what is drawn is drawn whole.
        charge += spare_j * EFFICIENCY if spare_j > 0.0 else spare_j
        # After each step: a full battery does not save what comes on top, an empty one owes nothing.
        charge = min(max(0.0, charge), view.recall(state, NOTES.capacity_j, 0))
        at = until
    return charge


def score(state, task, variant, out):
    """Added joules; inf where supply and battery do not cover the run, while the task can still wait."""
    now = view.now_s(state)
    latest = view.latest_start_s(state, task)
    if view.deadline_s(state, task) == math.inf:
        latest += view.param(state, DIAL.delay_s)
    # Without an estimate nobody knows what a run would take: it does not wait.
    waits = latest > now and view.has_estimate(state, task)
    charge = charge_j(state) if waits else 0.0
    drawn_w = present_w(state) if waits else 0.0
    for c in range(out.size):
        joules = view.added_j(state, task, variant, c)
        out[c] = joules
        if waits and joules < view.UNKNOWN_COST:
            seconds = view.finish_in_s(state, task, variant, c)
            given = charge + series.mean(state, SUPPLY, now, seconds) * seconds
            # What runs already goes on drawing: the task may only have the rest.
            if drawn_w * seconds + joules > given:
                out[c] = math.inf
    if waits:
        step = series.step_s(state, SUPPLY)
        # At its latest start it runs, whatever the supply.
        effects.hold_until(state, min(latest, (math.floor(now / step) + 1.0) * step))


def act(state):
    """Write down the battery's charge and what is drawn from here on; be there when the supply changes."""
    now = view.now_s(state)
    effects.note(state, NOTES.charge_j, 0, charge_j(state))
    effects.note(state, NOTES.at_s, 0, now)
    effects.note(state, NOTES.draw_w, 0, present_w(state))
    # With waiting tasks, too: they are held for the next step of the supply.
    if view.running(state) + view.waiting(state) > 0:
        step = series.step_s(state, SUPPLY)
        effects.order_timer(state, (math.floor(now / step) + 1.0) * step)


def _lay_out(state: Any, supply: Series, battery_j: float) -> None:
    found = series.blocks([supply])
    start_s = float(state.clock.now[0])
    # A live engine's clock is not 0 when a policy is taken up.
    view.lay_out(state, NOTES, capacity_j=[battery_j], charge_j=[0.0], at_s=[start_s], draw_w=[0.0], **found)


def sunny_day(peak_w: float) -> Series:
    """Return watts by the hour: a half sine from six to six."""
    return Series(3600.0, tuple(max(0.0, peak_w * math.sin(math.pi * (hour - 6) / 12)) for hour in range(24)))


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay out a sunny day, and a battery for some hours of its noon."""
    classes = state.classes
    full_w = float(((classes.full_w + classes.device_idle_w) * classes.count).sum())
    peak_w = float(state.params[DIAL.peak]) * full_w
    _lay_out(state, sunny_day(peak_w), float(state.params[DIAL.battery_h]) * 3600.0 * peak_w)


def following(supply_w: Series, battery_j: float = 0.0) -> Policy:
    """Make the policy for a supply in watts and a battery in joules, empty at the start."""

    def known(state: Any, cluster: Cluster) -> None:
        _lay_out(state, supply_w, battery_j)

    return replace(RENEWABLE, prepare=known)


RENEWABLE = Policy(
    "renewable",
    "waits, within a bound, until a renewable supply and a battery cover the run",
    score=score,
    act=act,
    settings=PolicySettings(wakes=True),
    params=DIAL.defaults,
    prepare=prepare,
    slack=True,
)

"""A power cap over time: the cluster (or a zone) stays below a series of watts.

Caps come from contracts, cooling or the grid; a series holds for one step at a time and repeats, as carbon does. The
cap is held by levels first: a task starts wherever the capped nodes, slowed down as far as they go, stay below the cap
of this moment with it (fewest added joules among those places), and in the same instant `act` lowers frequencies, the
hungriest node first, until the cap is kept, and raises them again when there is room, first where the last end is
expected: slowed cores do more work for a watt, so all of them slower do more than some of them at full clock. By
holding back last: a task that even the slowest clocks leave no room for waits until the next step or the next end; so
does one that would still run at a lower step of the series and leave none then. A cluster without anything running
takes a task even above the cap, so that nothing waits for ever.

`following` makes the policy for a series in watts; the registered one caps the whole cluster at so many ``watts``, or
at a ``share`` of its full watts. A server, whose caps may change by word from outside, writes the cap of this moment
and its next changes into the policy's text as ``steps=`` (`stepped`) and anew at each of them.

Watts are those of the profiles at the present allocation. O(nodes) per task and instant. Ties go to the lower index. A
node without a profile counts nothing and is used only where none with one fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster, Series
from wattflow.model.errors import InvalidInput
from wattflow.policy import effects, series, terms, view
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

Changes = Sequence[tuple[float, float]]
"""When a cap changes, and the watts from then on."""
DIAL = view.dials(share=0.8, watts=0.0)
"""Of all nodes' full watts; or, where it is above 0, the cap itself."""
NOTES = view.notes(*series.BLOCKS, "capped", "level", "later_s", "later_w")
CAP = 0
"""The one series: watts."""
ROOM = 0.95
"""A frequency rises again only while watts above idle stay below this share of what the cap leaves for them."""
AHEAD = 16
"""Steps of the series that a start looks ahead, at most."""
UNCAPPED_W = 1e12
"""As good as none: at this cap no clock is lowered."""


@jit
def present_w(state):
    """Return watts of the capped nodes as they are allocated now."""
    total = 0.0
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.capped, node) == 1.0:
            total += view.node_now_w(state, node)
    return total


@jit
def idle_now_w(state):
    """Return watts that the capped nodes draw for being there."""
    total = 0.0
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.capped, node) == 1.0:
            total += min(view.node_now_w(state, node), view.node_idle_w(state, node))
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


@jit
def lasting_cores(state, node, until_s):
    """Return the cores of a node's attempts that may still run at a time, were they slowed down from now on."""
    now = view.now_s(state)
    cores = 0.0
    a = view.first_attempt(state, node)
    while a >= 0:
        left_s = view.attempt_end_s(state, a) - now
        # Whoever has outlasted its estimate may go on for ever.
        if left_s <= 0.0 or now + left_s * longest(state, node) > until_s:
            cores += view.variant_cores(state, view.attempt_variant(state, a))
        a = view.next_attempt(state, a)
    return cores


@jit
def longest(state, node):
    """Return how much longer a run that follows the clock alone takes at the node's slowest level."""
    slowest = 1.0
    for level in range(1, view.frequencies_of(state, node)):
        slowest = min(slowest, view.frequency_speed(state, node, level))
    return 1.0 / slowest


@jit
def slowed_later_w(state, until_s):
    """Return `slowed_w` of a later time: without those that will have ended."""
    total = 0.0
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.capped, node) == 1.0:
            now_w = view.node_now_w(state, node)
            if view.is_on(state, node):
                idle_w, busy = view.watts_at(state, node, 0.0), view.busy_cores(state, node)
                above_w = (view.watts_at(state, node, busy) - idle_w) * view.frequency_power(
                    state, node, int(view.recall(state, NOTES.level, node))
                )
                lasting_w = view.watts_at(state, node, lasting_cores(state, node, until_s)) - idle_w
                now_w += lasting_w * slowest_power(state, node) - above_w
            total += now_w
    return total


@jit
def edge_s(state, k):
    """Return when the cap changes for the k-th time from now on; inf where nobody says so."""
    told_s = view.recall(state, NOTES.later_s, k - 1)
    if told_s >= 0.0:
        return told_s
    step = series.step_s(state, CAP)
    return (math.floor(view.now_s(state) / step) + k) * step


@jit
def edge_w(state, k, at_s):
    """Return the cap from such a change on."""
    if view.recall(state, NOTES.later_s, k - 1) >= 0.0:
        return view.recall(state, NOTES.later_w, k - 1)
    # In the middle: a sum of floats may fall short of the edge.
    return series.value(state, CAP, at_s + 0.5 * series.step_s(state, CAP))


@jit
def hold_for_later(state, task, variant, out):
    """Hold back what would still run when the cap falls, and then exceed it at the slowest clocks; tell whether any.

    Nobody ends a task for a cap, and the series says what comes: so the room of a lower step is kept free of long
    tasks before it begins.
    """
    now = view.now_s(state)
    cap_w = series.value(state, CAP, now)
    held = False
    for k in range(1, AHEAD + 1):
        at_s = edge_s(state, k)
        then_w = edge_w(state, k, at_s)
        lasts = False
        room_w = math.inf
        for c in range(out.size):
            if out[c] == math.inf:
                continue
            node = view.node_of(state, c)
            seconds = view.runtime_s(state, task, variant, c) * longest(state, node)
            if now + view.wait_s(state, c) + seconds <= at_s:
                continue
            lasts = True
            if then_w >= cap_w or view.recall(state, NOTES.capped, node) == 0.0 or not view.has_profile(state, node):
                continue
            if room_w == math.inf:
                room_w = then_w - slowed_later_w(state, at_s)
            if view.added_w(state, task, variant, c) * slowing(state, variant, node) > room_w:
                out[c] = math.inf
                held = True
        if not lasts:
            break
    return held


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
    # Nothing runs, now or at any later step: whoever is first may start.
    if view.running(state) > 0 and hold_for_later(state, task, variant, out):
        held = True
    if held:
        step = series.step_s(state, CAP)
        # The next step of the series; an end before it brings a decision anyway.
        effects.hold_until(state, (math.floor(now / step) + 1.0) * step)


@jit
def next_node(state, lower):
    """Find the busy capped node to go down, the one with most watts above idle, or up (without ``lower``), the one
    whose last attempt is expected to end last; −1 without."""
    best = -1
    most = 0.0
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.capped, node) == 0.0 or view.tasks_on(state, node) == 0:
            continue
        level = view.recall(state, NOTES.level, node)
        able = level + 1.0 < view.frequencies_of(state, node) if lower else level > 0.0
        above_w = view.node_now_w(state, node) - view.node_idle_w(state, node)
        found = above_w if lower else view.busy_until_s(state, node)
        if able and above_w > 0.0 and found > most:
            most = found
            best = node
    return best


@jit
def step_w(state, node, change):
    """Return watts that a change of the node's frequency level adds."""
    level = int(view.recall(state, NOTES.level, node))
    above_w = view.watts_at(state, node, view.busy_cores(state, node)) - view.watts_at(state, node, 0.0)
    return above_w * (view.frequency_power(state, node, level + change) - view.frequency_power(state, node, level))


@jit
def raise_all(state):
    """Give every node its full clock, idle ones too: whoever decides next may never ask for it."""
    for node in range(view.nodes_n(state)):
        if view.recall(state, NOTES.level, node) > 0.0:
            effects.note(state, NOTES.level, node, 0)
            effects.order_frequency(state, node, 0)


def act(state):
    """Step down while above the cap, up while there is room; and be there when the cap changes."""
    now = view.now_s(state)
    cap_w = series.value(state, CAP, now)
    if cap_w >= UNCAPPED_W:
        raise_all(state)
        return
    watts = present_w(state)
    idle_w = idle_now_w(state)
    change = 1 if watts > cap_w else -1
    # As many steps as nodes, so that a single act ends.
    for _ in range(view.nodes_n(state)):
        node = next_node(state, change == 1)
        # Going down stops as soon as the cap is kept.
        if node < 0 or (change == 1 and watts <= cap_w):
            break
        added = step_w(state, node, change)
        # Below the cap by some distance: else a node would go up and down with every task.
        if change == -1 and watts + added - idle_w > ROOM * (cap_w - idle_w):
            break
        watts += added
        level = int(view.recall(state, NOTES.level, node)) + change
        effects.note(state, NOTES.level, node, level)
        effects.order_frequency(state, node, level)
    # With nothing running there is nothing to slow down at the next step.
    if view.running(state) > 0:
        step = series.step_s(state, CAP)
        effects.order_timer(state, (math.floor(now / step) + 1.0) * step)


def _lay_out(state: Any, cluster: Cluster, cap: Series, zone: str | None, later: Changes | None = None) -> None:
    # A live engine lays out anew when a node comes or changes: clocks that were ordered stand.
    # The cluster lists the nodes that are there in the order of their rows; rows of nodes that left are empty.
    capped = np.zeros(len(state.nodes))
    capped[np.asarray(state.nodes["pos"]) >= 0] = [float(zone is None or node.zone == zone) for node in cluster.nodes]
    # Below 0 the series has them; inf is never.
    later_s, later_w = np.full(AHEAD, -1.0 if later is None else math.inf), np.zeros(AHEAD)
    for k, (at_s, watts) in enumerate((later or ())[:AHEAD]):
        later_s[k], later_w[k] = at_s, watts
    level = np.asarray(state.nodes["frequency"])
    view.lay_out(state, NOTES, capped=capped, level=level, later_s=later_s, later_w=later_w, **series.blocks([cap]))


def _typed_w(state: Any) -> float:
    """Return the cap by the policy's numbers: in watts, or as a share of all nodes' full watts."""
    classes = state.classes
    # ``full_w`` is without devices; they idle at least.
    full_w = float(((classes.full_w + classes.device_idle_w) * classes.count).sum())
    return float(state.params[DIAL.watts]) or float(state.params[DIAL.share]) * full_w


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay out a constant cap."""
    _lay_out(state, cluster, Series(3600.0, (_typed_w(state),)), None)


def following(cap_w: Series, zone: str | None = None, policy: Policy | None = None) -> Policy:
    """Make the policy, or this one with its settings, that keeps the cluster or one of its zones below these watts."""

    def known(state: Any, cluster: Cluster) -> None:
        _lay_out(state, cluster, cap_w, zone)

    # Without the share: nobody reads it here, and manifests would tell of a cap that is not held.
    return replace(policy or POWER_CAP, prepare=known, params={}, limits={})


def stepped(policy: Policy, text: str, alone: bool) -> Policy:
    """Make the policy that keeps what ``steps=`` says: ``WATTS`` now, then ``/SECONDS/WATTS`` for each change to come.

    Seconds are the engine's (since 1970 where it is live). With ``alone`` false the cap of the policy's own numbers
    holds besides, and the lower of the two counts.
    """
    try:
        now_w, *rest = [float(part) for part in text.split("/")]
        later = list(zip(rest[::2], rest[1::2], strict=True))
    except ValueError:
        later, now_w = [], math.nan
    times = [at_s for at_s, _ in later]
    # `not … >`: NaN is refused as well.
    if any(not watts > 0.0 for watts in (now_w, *(watts for _, watts in later))) or times != sorted(set(times)):
        raise InvalidInput(policy.name, f"steps is WATTS and then /SECONDS/WATTS for each change, not {text[:80]!r}")

    def known(state: Any, cluster: Cluster) -> None:
        most_w = UNCAPPED_W if alone else _typed_w(state)
        told = [(at_s, min(most_w, watts)) for at_s, watts in later]
        _lay_out(state, cluster, Series(3600.0, (min(most_w, now_w),)), None, told)

    return replace(policy, prepare=known)


POWER_CAP = Policy(
    "power-cap",
    "fewest added joules below a cap on watts that may change over time",
    score=score,
    act=act,
    # A long task that is held for a lower step holds shorter ones of its shape in that instant, too: to ask each of
    # thousands would take 30 times as long.
    settings=PolicySettings(wakes=True, alike=True),
    params=DIAL.defaults,
    # Above 1, too: full watts are without those of busy devices.
    limits={"share": (0.01, 10.0), "watts": (0.0, 1e12)},
    prepare=prepare,
    terms=terms.JOULES,
)

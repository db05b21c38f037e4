"""portfolio: plain rules, pools of nodes, the flagship and the rule that corrects it, behind one dial.

Which rule is best differs between clusters and applications; `wattflow.plan.shield` chooses among them by rehearsal,
and all of them are numbers of one policy, so that a choice is changed in the middle of a run. ``rule`` says which:

- 0, *flagship*: `learned` with its dials; ``lean`` = 0 is `wattflow` to the bit.
- 1, *soonest*: where a task ends first, hardware threads in use and the seconds that it takes from others counted in.
- 2, *thrift*: the fewest joules among the places that end within ``tolerance`` of the first end.
- 3, *spread*: kube-scheduler's points (`kubernetes`) among nodes that are on; sleeping ones last.

With ``reserve`` ≥ 0 a *pool* of nodes is on: the decayed peak of busy capacity (``decay_s``, e-fold) × (1 + reserve),
``least`` of all capacity at least, the frugal nodes first; tasks go to the pool's nodes before others, whatever the
rule. Else nodes sleep by time-out: the flagship's own, or ``after_s`` under the other rules. ``rest_s`` is the least
time-out of the slowest waker, and of others by the square of their wake times; ``after_s`` = ∞ wakes all nodes, to stay
on, and until ``on_until_s`` all are woken, to fall asleep by their time-out. Plain rules take requests as they are, in
order of arrival. O(candidates × attempts on a node); ties go to the lower index.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.engine.offer_rows import level_count
from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.policy import effects, kubernetes, learned, view, wattflow, weights
from wattflow.policy.base import Policy
from wattflow.policy.jit import jit

FLAGSHIP, SOONEST, THRIFT, SPREAD = 0.0, 1.0, 2.0, 3.0
DIAL = view.dials(
    **{**learned.DIAL.defaults, "lean": 0.0},
    rule=FLAGSHIP,
    tolerance=0.3,
    after_s=600.0,
    reserve=-1.0,
    decay_s=600.0,
    rest_s=0.0,
    least=0.0,
    on_until_s=-1.0,
)
LIMITS = {
    **learned.LIMITS,
    "rule": (FLAGSHIP, SPREAD),
    "tolerance": (0.0, math.inf),
    "after_s": (0.0, math.inf),
    "reserve": (-1.0, math.inf),
    "decay_s": (1.0, math.inf),
    "rest_s": (0.0, math.inf),
    "least": (0.0, 1.0),
    "on_until_s": (-1.0, math.inf),
}
NOTES = view.notes(*learned.NOTES._fields, "order", "peak", "place")
"""The learned policy's in their places; ``order``: node and capacity, the frugal first; ``peak``: of busy capacity, and
when it was noted; ``place``: 0 for a node of the pool, else how far beyond it stands."""
POOL_AFTER_S = 30.0
"""Idle seconds before a node beyond the pool sleeps."""
LATER, BEYOND, LAST = 1e5, 1e7, 1e12
"""Costs that set apart: sleeping nodes under *spread*, nodes beyond the pool, places that end too late."""


@jit
def ends_in_s(state, task, variant, candidate):
    """Seconds to the end with the threads in use counted in, and those that it takes from others."""
    return view.crowded_finish_s(state, task, variant, candidate) + view.crowding_s(state, task, variant, candidate)


@jit
def fill_thrift(state, task, variant, out):
    """The fewest joules among places that end soon enough; the others by their ends, behind them."""
    soonest = math.inf
    for c in range(out.size):
        out[c] = ends_in_s(state, task, variant, c)
        soonest = min(soonest, out[c])
    limit = soonest * (1.0 + view.param(state, DIAL.tolerance))
    for c in range(out.size):
        if out[c] > limit:
            known = view.has_profile(state, view.node_of(state, c))
            out[c] = view.bounded(LAST + out[c]) if known else view.UNKNOWN_COST
        else:
            out[c] = view.bounded(view.added_j(state, task, variant, c) + view.awake_j(state, c, out[c]))


@jit
def fill_plain(state, task, variant, rule, out):
    """Costs of the plain rules."""
    if rule == THRIFT:
        fill_thrift(state, task, variant, out)
    elif rule == SPREAD:
        kubernetes.fill_points(state, variant, out)
        for c in range(out.size):
            if view.is_asleep(state, view.node_of(state, c)):
                out[c] += LATER
    else:
        for c in range(out.size):
            out[c] = view.bounded(ends_in_s(state, task, variant, c))
    if view.param(state, DIAL.reserve) >= 0.0:
        for c in range(out.size):
            out[c] = view.bounded(out[c] + BEYOND * view.recall(state, NOTES.place, view.node_of(state, c)))


def score(state, task, variant, out):
    """Costs by the rule in use; each rule takes its own variants: the flagship's, or whole requests at full speed."""
    rule = view.param(state, DIAL.rule)
    whole = view.variant_guarantee(state, variant) >= 1.0
    # The least guarantee is offered first (`PORTFOLIO`). Where that is the whole request, as on Kubernetes, it is the
    # flagship's too: else nothing would ever be placed by it.
    offers = view.variants_of(state, task)
    only_whole = view.variant_guarantee(state, offers[0]) >= 1.0
    if rule == FLAGSHIP and (only_whole or not whole):
        learned.fill_costs(state, task, variant, out)
    elif rule > FLAGSHIP and whole and view.variant_level(state, variant) == 0:
        fill_plain(state, task, variant, rule, out)
    else:
        for c in range(out.size):
            out[c] = math.inf


def priority(state, task):
    """Latest start under the flagship's rules, else first in, first out."""
    if view.param(state, DIAL.rule) == FLAGSHIP:
        return learned.start_by(state, task)
    return view.ready_s(state, task)


@jit
def wake_all(state):
    """Have every node on."""
    if view.asleep(state) > 0:
        for node in range(view.nodes_n(state)):
            if view.is_asleep(state, node):
                effects.order_wake(state, node)


@jit
def needed(state, count):
    """The capacity that the pool should have: the decayed peak of what is busy or asked for, and the reserve."""
    busy = float(view.waiting(state))
    total = 0.0
    for i in range(count):
        node = int(view.recall(state, NOTES.order, 2 * i))
        total += view.recall(state, NOTES.order, 2 * i + 1)
        share = view.busy_cores(state, node) / view.node_cores(state, node)
        busy += share * view.recall(state, NOTES.order, 2 * i + 1)
    now = view.now_s(state)
    passed = now - view.recall(state, NOTES.peak, 1)
    peak = max(busy, view.recall(state, NOTES.peak, 0) * math.exp(-passed / view.param(state, DIAL.decay_s)))
    effects.note(state, NOTES.peak, 0, peak)
    effects.note(state, NOTES.peak, 1, now)
    return max(view.param(state, DIAL.least) * total, peak * (1.0 + view.param(state, DIAL.reserve)))


@jit
def keep_pool(state):
    """Have the pool on, and let nodes beyond it sleep when they have idled for a while."""
    count = int(view.recall(state, NOTES.peak, 2))
    need = needed(state, count)
    after_s = max(POOL_AFTER_S, view.param(state, DIAL.rest_s))
    have = 0.0
    for i in range(count):
        node = int(view.recall(state, NOTES.order, 2 * i))
        if have < need:
            have += view.recall(state, NOTES.order, 2 * i + 1)
            effects.note(state, NOTES.place, node, 0.0)
            if view.is_asleep(state, node):
                effects.order_wake(state, node)
            continue
        effects.note(state, NOTES.place, node, 1.0 + i)
        if view.is_on(state, node) and view.tasks_on(state, node) == 0 and view.can_sleep(state, node):
            due_s = view.idle_since_s(state, node) + after_s
            if view.now_s(state) >= due_s - 1e-6:
                effects.order_sleep(state, node)
            else:
                effects.order_timer(state, due_s)


def act(state):
    """Wake all, keep a pool, or watch as the learned policy does."""
    if view.param(state, DIAL.rule) == FLAGSHIP:
        learned.watch_and_doze(state)
    elif view.param(state, DIAL.after_s) == math.inf or view.now_s(state) <= view.param(state, DIAL.on_until_s):
        wake_all(state)
    elif view.param(state, DIAL.reserve) >= 0.0:
        keep_pool(state)


def pool_order(state: Any, cluster: Cluster) -> Any:
    """Rows of (node, capacity), the fewest joules per unit of work first; nodes without a profile are not pooled."""
    merit = wattflow.merits(state, cluster)
    rows = []
    for cls in np.flatnonzero(state.classes.count).tolist():
        kind = state.classes[cls]
        if np.isfinite(merit[cls]) and kind.sleepable and not kind.serverless:
            nodes = state.class_nodes[kind.first : kind.first + kind.count].tolist()
            size = float(kind.cores) * float(np.max(state.speed[cls], initial=0.0) or 1.0)
            rows += [(float(merit[cls]), node, size) for node in nodes]
    return np.array([(node, size) for _, node, size in sorted(rows)]).reshape(-1, 2)


def peak_before(state: Any, rows: Any) -> list[float]:
    """The peak that is noted, if the memory is one of ours; else the whole cluster, so that nodes leave it in time."""
    first = int(state.memory[NOTES.peak]) if state.memory[0] == len(NOTES) else 0
    noted = state.memory[first : first + 2].tolist() if first else [rows[:, 1].sum(), float(state.clock.now[0])]
    return [*noted, float(len(rows))]


def extend(state: Any, **blocks: Any) -> None:
    """Lay the memory out anew with more blocks behind those that the learned policy's preparation has laid.

    Its last block, ``longest``, is one number; what follows is padding, with which the memory would grow with every
    preparation.
    """
    memory, fields = np.asarray(state.memory).copy(), learned.NOTES._fields
    starts = memory[: len(fields)].astype(np.int64).tolist()
    ends = [*starts[1:], starts[-1] + 1]
    old = {name: memory[a:b] for name, a, b in zip(fields, starts, ends, strict=True)}
    view.lay_out(state, NOTES, **old, **blocks)


def prepare(state: Any, cluster: Cluster) -> None:
    """The learned policy's preparation, the pool's order, and time-outs."""
    given = state.classes.sleep_after_s.copy()
    rows = pool_order(state, cluster)
    peak = peak_before(state, rows)
    learned.prepare(state, cluster)
    extend(state, order=rows, peak=peak, place=np.zeros(len(state.nodes)))
    classes = state.classes
    ours = (classes.sleepable == 1) & np.isinf(given)
    if state.params[DIAL.rule] != FLAGSHIP:
        classes.sleep_after_s[:] = given
        classes.sleep_after_s[ours] = state.params[DIAL.after_s] if state.params[DIAL.reserve] < 0 else np.inf
    slowest_s = float(classes.wake_s[ours].max(initial=0.0))
    if state.params[DIAL.rest_s] > 0 and slowest_s > 0:
        longest = state.memory[int(state.memory[NOTES.longest])] or 1.0
        rest_s = state.params[DIAL.rest_s] * (classes.wake_s / slowest_s) ** 2 * longest
        classes.sleep_after_s[ours] = np.maximum(classes.sleep_after_s, rest_s)[ours]


PORTFOLIO = Policy(
    "portfolio",
    "plain rules, pools of nodes and the flagship behind one dial, for rehearsal",
    score=score,
    priority=priority,
    act=act,
    rank=wattflow.rank,
    # `score` relies on this order.
    settings=PolicySettings(guarantees=(0.8, 1.0), frequencies=(0, 1, 2), wakes=True),
    params=DIAL.defaults,
    limits=LIMITS,
    one_of=learned.COUNTS,
    prepare=prepare,
    slack=True,
    ready=weights.check,
)


def with_own_offers(policy: Policy, cluster: Cluster) -> Policy:
    """Return the policy with the offers alone that `score` takes under its rule, at levels that the cluster has.

    It decides as before, and in a third of the time; but its rule must stay what it is.
    """
    offered = policy.settings.guarantees
    whole = tuple(share for share in offered if share >= 1.0)
    cut = tuple(share for share in offered if share < 1.0)
    own = (whole if policy.params["rule"] > FLAGSHIP else cut) or offered
    most = max(max(len(node.frequencies), *map(level_count, node.devices), 1) for node in cluster.nodes)
    levels = tuple(level for level in policy.settings.frequencies if level < most)
    return policy.with_settings(guarantees=own, frequencies=levels)


REFERENCE = {"rule": SPREAD, "after_s": math.inf}
"""Dials of the reference: kube-scheduler's choice, all nodes on."""
SLEEPY = {**REFERENCE, "after_s": 600.0}
"""Dials of late sleep: kube-scheduler's choice, nodes off after ten minutes, as a cluster autoscaler does."""

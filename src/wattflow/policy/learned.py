"""learned: the flagship `wattflow`, corrected by a rule of twelve numbers that was learned in simulation.

Every price of the flagship is multiplied by e^f, where f is a weighted sum of *relative* facts of the candidate
(`placing`), so with weights of zero, or with ``lean`` = 0, it decides exactly as `wattflow`. The same weights hold four
corrections:

- *place*: price × e^f(candidate);
- *haste*: how likely seconds until a busy node has room are weighed against waking one;
- *order*: latest start + h(task) × the workflow's critical path;
- *sleep*: each class's idle seconds before sleep × e^g(class), and × e^d(node) by how busy the cluster is and was, how
  long waking takes beside the critical paths of late, and whether the nodes that are awake would do.

No fact is an identifier or an absolute size, so the weights apply to clusters and applications that were not trained
on. They are read from a file (`wattflow.policy.weights`); docs/learned.md is the model card. ``energy`` …
``utilisation`` say what counts; they, ``wait`` and ``lean`` are dials. O(candidates × (features + attempts on a node)).
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.policy import effects, patient, placing, pricing, view, wattflow, weights
from wattflow.policy.base import Facts, Policy
from wattflow.policy.jit import jit

DIAL = view.dials(**wattflow.DIAL.defaults, lean=1.0, energy=1.0, response=0.0, makespan=0.0, cost=0.0, utilisation=0.0)
"""The flagship's numbers in their places, how far the rule is followed, and what counts."""
COUNTS = ("energy", "response", "makespan", "cost", "utilisation")
"""Objectives that may have a weight; one of them must."""
LIMITS = {**wattflow.LIMITS, "lean": (0.0, 2.0), **dict.fromkeys(COUNTS, (0.0, 1e9))}
NOTES = view.notes("idle_w", "kept", "theta", "facts", "classes", "scratch", "watched", "longest")
"""The flagship's in their places; ``facts``: totals of the cluster (`placing.FACTS`); ``classes``: a row of `CLASS_N`
for each class; ``watched``: what `placing.watch` keeps; ``longest``: the engine's time-outs over those of the sleep
head, 0 where idle nodes are left to the engine."""

CLASS_N = 9
"""Features of a class for the sleep head; the last is the time-out of the flagship."""
MOST = 2.0
"""Corrections are softly held within e^±MOST."""


@jit
def soft(x):
    """−MOST … MOST, with slope 1 at 0."""
    return x / (1.0 + abs(x) / MOST)


@jit
def weighed(state, first, count, weight, total):
    """Add the weighted features in the memory from ``first`` on to a sum."""
    memory = state.memory
    for i in range(count):
        total += memory[weight + i] * memory[first + i]
    return total


@jit
def linear(state, first, count, weight):
    """Sum the constant and the weighted features in the memory from ``first`` on."""
    return weighed(state, first, count, weight, state.memory[weight + count])


@jit
def usual_time_outs(state, variant, longest, out):
    """Price as if the engine's time-outs were those of the sleep head: for nodes that `doze` rules over."""
    for c in range(out.size):
        if out[c] < view.UNKNOWN_COST:
            over_j = placing.overrated_j(state, c, longest)
            if over_j > 0.0:
                out[c] -= over_j / wattflow.companions(state, variant, view.node_of(state, c))


@jit
def correct(state, task, variant, longest, out):
    """Multiply the flagship's prices; returns the haste."""
    lean = view.param(state, DIAL.lean)
    least = math.inf
    for c in range(out.size):
        least = min(least, out[c])
    if least == math.inf or lean == 0.0:
        return 1.0
    first = view.place_of(state, NOTES.scratch)
    facts = view.place_of(state, NOTES.facts)
    theta = view.place_of(state, NOTES.theta)
    placing.around(state, task, variant, first, facts)
    if least < view.UNKNOWN_COST:
        classes = view.place_of(state, NOTES.classes)
        parts = view.place_of(state, NOTES.kept)
        due = wattflow.due_s(state, task)
        place = theta + weights.PLACE
        # What all candidates share is summed once; each adds its own to it.
        shared = weighed(state, first, placing.AROUND_N, place, state.memory[place + placing.N])
        for c in range(out.size):
            if out[c] < view.UNKNOWN_COST:
                merit = state.memory[classes + CLASS_N * view.class_of(state, view.node_of(state, c))]
                at = pricing.found(state, task, variant, c, parts)
                placing.candidate(state, task, variant, c, at, first, facts, due, out[c], least, merit, longest)
                own_n = placing.N - placing.AROUND_N
                f = weighed(state, first + placing.AROUND_N, own_n, place + placing.AROUND_N, shared)
                out[c] = view.bounded(out[c] * math.exp(lean * soft(f)))
    return math.exp(lean * soft(linear(state, first, placing.AROUND_N, theta + weights.HASTE)))


@jit
def fill_costs(state, task, variant, out):
    """Multiply the flagship's prices by what was learned, and turn these into costs."""
    if view.param(state, DIAL.wait) == math.inf:
        patient.fill_costs(state, task, variant, view.recall(state, NOTES.idle_w, 0), out)
    else:
        wattflow.fill_prices(state, task, variant, out)
        longest = view.recall(state, NOTES.longest, 0)
        usual_time_outs(state, variant, longest, out)
        haste = correct(state, task, variant, longest, out)
        wattflow.settle(state, task, variant, haste, out)


def score(state, task, variant, out):
    """Cost the flagship's joules and priced seconds × what was learned; with ``wait`` = ∞ the flagship's own."""
    fill_costs(state, task, variant, out)


@jit
def start_by(state, task):
    """Return the flagship's latest start, moved by a share of the critical path."""
    lean = view.param(state, DIAL.lean)
    if view.param(state, DIAL.wait) == math.inf:
        return view.latest_start_s(state, task)
    if lean == 0.0:
        return view.rank(state, task)
    first = view.place_of(state, NOTES.scratch)
    placing.watch_task(state, task, view.place_of(state, NOTES.watched))
    placing.order(state, task, first, view.place_of(state, NOTES.facts))
    move = linear(state, first, placing.ORDER_N, view.place_of(state, NOTES.theta) + weights.ORDER)
    return view.rank(state, task) + lean * soft(move) * view.path_s(state, task)


def priority(state, task):
    """Order the queue by the latest start, as moved."""
    return start_by(state, task)


@jit
def awake_threads(state):
    """Return hardware threads of nodes that are on or waking."""
    total = 0.0
    for cls in range(view.classes_n(state)):
        for i in range(view.class_count(state, cls)):
            node = view.class_node(state, cls, i)
            if view.is_on(state, node) or view.is_waking(state, node):
                total += view.node_threads(state, node)
    return total


@jit
def doze(state, lean, longest):
    """Put idle nodes whose time is over to sleep; returns when the next one's will be."""
    first = view.place_of(state, NOTES.scratch)
    facts = view.place_of(state, NOTES.facts)
    rows = view.place_of(state, NOTES.classes)
    watched = view.place_of(state, NOTES.watched)
    at = view.place_of(state, NOTES.theta) + weights.DOZE
    awake = awake_threads(state)
    next_s = math.inf
    for cls in range(view.classes_n(state)):
        if state.memory[rows + CLASS_N * cls + CLASS_N - 1] == math.inf:
            continue  # a time-out that is given
        shared = False
        for i in range(view.class_count(state, cls)):
            node = view.class_node(state, cls, i)
            if view.tasks_on(state, node) > 0 or not view.is_on(state, node) or not view.can_sleep(state, node):
                continue
            if not shared:
                placing.dozing(state, first, facts, state.memory[rows + CLASS_N * cls], watched)
                shared = True
            placing.dozing_node(state, node, first, facts, watched, awake)
            later = lean * soft(linear(state, first, placing.DOZE_N, at))
            # The correction is at most e^(2 · lean · MOST), which is
            # ``longest`` (`use`): the engine's own time-out comes later.
            due_s = view.idle_since_s(state, node) + view.sleep_after_s(state, node) / longest * math.exp(2.0 * later)
            # The look was ordered for this very moment: a rounding must not put it off to the next.
            if view.now_s(state) >= due_s - 1e-9:
                effects.order_sleep(state, node)
                # Nodes that are looked at after it would have to do without it, too.
                awake -= view.node_threads(state, node)
            else:
                next_s = min(next_s, due_s)
    return next_s


@jit
def watch_and_doze(state):
    """Keep notes of how busy the cluster is, and let idle nodes sleep when their time, by the state of it, is over."""
    lean = view.param(state, DIAL.lean)
    if lean == 0.0 or view.param(state, DIAL.wait) == math.inf:
        return
    watched = view.place_of(state, NOTES.watched)
    placing.watch(state, view.place_of(state, NOTES.facts), watched)
    longest = view.recall(state, NOTES.longest, 0)
    if longest == 0.0:
        return
    next_s = doze(state, lean, longest)
    ordered_s = view.recall(state, NOTES.watched, placing.TIMER)
    if ordered_s <= view.now_s(state):
        ordered_s = math.inf
    if next_s < ordered_s:  # a look that is ordered for earlier will order the next
        effects.order_timer(state, next_s)
        ordered_s = next_s
    effects.note(state, NOTES.watched, placing.TIMER, ordered_s)


def act(state):
    """Watch the cluster, and let idle nodes sleep."""
    watch_and_doze(state)


def class_rows(state: Any, cluster: Cluster) -> Any:
    """Features of each class, relative to the cluster's best or mean; the last column is the flagship's time-out."""
    classes = state.classes
    merit = wattflow.merits(state, cluster)
    known = np.isfinite(merit)
    best = float(merit[known].min(initial=np.inf))
    threads = np.maximum(1.0, classes.threads.astype(np.float64))
    total = max(1.0, float((threads * classes.count).sum()))
    saved_w = np.maximum(1e-9, classes.idle_w - classes.sleep_w)
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = np.column_stack([
            np.where(known, np.log(np.where(known, merit, 1.0) / (best if np.isfinite(best) else 1.0)), 2.0),
            threads * classes.count / total,
            np.log(threads * len(classes) / max(1.0, threads.sum())),
            classes.idle_w / np.maximum(1e-9, classes.full_w),
            np.log1p(np.minimum(60.0, (classes.wake_s + classes.enter_s) * classes.wake_w / saved_w / 60.0)),
            np.log1p(classes.wake_s / 60.0),
            1.0 / np.maximum(1.0, classes.count),
            np.minimum(1.0, classes.sleep_w / np.maximum(1e-9, classes.idle_w)),
            classes.sleep_after_s,
        ])  # fmt: skip
    # In the last column inf means something: a class whose time-out is not ours.
    return np.where(np.isfinite(rows) | (np.arange(CLASS_N) == CLASS_N - 1), rows, 0.0)


def use(state: Any, theta: Any) -> None:
    """Put weights into a State that `prepare` has seen: its memory, and when nodes go to sleep."""
    place = int(state.memory[NOTES.theta])
    state.memory[place : place + weights.SIZE] = theta
    lean = float(state.params[DIAL.lean])
    if lean == 0.0 or state.params[DIAL.wait] == np.inf:
        return
    first = int(state.memory[NOTES.classes])
    rows = state.memory[first : first + CLASS_N * len(state.classes)].reshape(-1, CLASS_N)
    head = theta[weights.SLEEP : weights.SLEEP + CLASS_N]
    moved = rows[:, : CLASS_N - 1] @ head[: CLASS_N - 1] + head[CLASS_N - 1]
    base = rows[:, CLASS_N - 1]
    ours = np.isfinite(base) & (state.classes.sleepable == 1)
    # Without a doze head the engine's own timers do; with one they come last, and `doze` before them.
    dozes = bool(theta[weights.DOZE : weights.SLEEP].any())
    # The bound of the correction in `doze`, so that no engine's timer comes before it.
    longest = np.exp(2.0 * lean * MOST) if dozes else 1.0
    state.memory[int(state.memory[NOTES.longest])] = longest if dozes else 0.0
    after_s = base * np.exp(lean * 1.5 * moved / (1.0 + np.abs(moved) / MOST)) * longest
    state.classes.sleep_after_s[ours] = after_s[ours]


def watched_before(state: Any) -> Any:
    """Keep what was watched by now, if the memory is one of ours: nodes that come and other dials do not undo it."""
    # The first block begins behind the starts of all (`view.lay_out`),
    # so the first number tells how many blocks there are.
    first = int(state.memory[NOTES.watched]) if state.memory[0] == len(NOTES) else 0
    return state.memory[first : first + placing.TIMER].copy() if first else np.zeros(placing.TIMER)


def prepare(state: Any, cluster: Cluster, theta: Any = None) -> None:
    """Prepare as the flagship, and lay out facts of the cluster and the weights (by default those in use)."""
    given, seen = state.classes.sleep_after_s.copy(), watched_before(state)
    wattflow.prepare(state, cluster)
    view.lay_out(
        state,
        NOTES,
        idle_w=wattflow.totals(state, cluster),
        kept=np.zeros(pricing.SIZE),
        theta=np.zeros(weights.SIZE),
        facts=placing.facts_of(state),
        classes=class_rows(state, cluster),
        scratch=np.zeros(placing.N),
        # The last is TIMER, which `watched_before` leaves out: no look is ordered yet.
        watched=[*seen, np.inf],
        longest=[0.0],
    )
    # A time-out that the cluster file or the run gives is not ours to move.
    rows = int(state.memory[NOTES.classes])
    fixed = np.flatnonzero(np.isfinite(given))
    state.memory[rows + CLASS_N * fixed + CLASS_N - 1] = np.inf
    use(state, weights.current() if theta is None else theta)


def kept_awake(state, task, variant, out):
    """Price its share of what it costs to have the node on, by the time-outs of the sleep head."""
    wattflow.fill_awake(state, task, variant, out)
    usual_time_outs(state, variant, view.recall(state, NOTES.longest, 0), out)


def correction(state, task, variant, out):
    """Write the correction of the flagship's price by what was learned."""
    longest = view.recall(state, NOTES.longest, 0)
    wattflow.fill_prices(state, task, variant, out)
    usual_time_outs(state, variant, longest, out)
    before = out.copy()
    if view.param(state, DIAL.wait) < math.inf:
        correct(state, task, variant, longest, out)
    for c in range(out.size):
        out[c] = out[c] - before[c] if before[c] < view.UNKNOWN_COST else 0.0


def write_facts(state, task, variant, out):
    """Write the features of each candidate, as `correct` makes them; nan for one without a price."""
    count = out.size // placing.N
    prices = out[:count]
    longest = view.recall(state, NOTES.longest, 0)
    wattflow.fill_prices(state, task, variant, prices)
    usual_time_outs(state, variant, longest, prices)
    least = math.inf
    for c in range(count):
        least = min(least, prices[c])
    first = view.place_of(state, NOTES.scratch)
    facts = view.place_of(state, NOTES.facts)
    classes = view.place_of(state, NOTES.classes)
    parts = view.place_of(state, NOTES.kept)
    due = wattflow.due_s(state, task)
    placing.around(state, task, variant, first, facts)
    for c in range(count - 1, -1, -1):  # from the last on: the prices of those before it are still there
        price = out[c]
        if price < view.UNKNOWN_COST:
            merit = state.memory[classes + CLASS_N * view.class_of(state, view.node_of(state, c))]
            at = pricing.found(state, task, variant, c, parts)
            placing.candidate(state, task, variant, c, at, first, facts, due, price, least, merit, longest)
        for i in range(placing.N):
            out[c * placing.N + i] = state.memory[first + i] if price < view.UNKNOWN_COST else math.nan


def moved(state: Any, rows: Any, offers: Any) -> Any:
    """Tell how far each feature, and last the constant, moved the logarithm of each price; 0 where no rule is asked.

    The terms of the sum as they stand: f is their sum, before it is softly held.
    """
    lean = float(state.params[DIAL.lean])
    if lean == 0.0 or state.params[DIAL.wait] == np.inf:
        return np.zeros((len(rows), placing.N + 1))
    place = int(state.memory[NOTES.theta]) + weights.PLACE
    head = np.asarray(state.memory[place : place + placing.N + 1])
    return lean * np.column_stack([rows * head[:-1], np.full(len(rows), head[-1])])


LEARNED = Policy(
    "learned",
    "the flagship, corrected by a short rule of learned numbers",
    score=score,
    priority=priority,
    act=act,
    rank=wattflow.rank,
    settings=PolicySettings(guarantees=(0.8,), frequencies=(0, 1, 2), wakes=True),
    params=DIAL.defaults,
    limits=LIMITS,
    one_of=COUNTS,
    prepare=prepare,
    slack=True,
    ready=weights.check,
    terms={**wattflow.WATTFLOW.terms, "kept awake": kept_awake, "correction": correction},
    facts=Facts(placing.N, write_facts, (*placing.AROUND, *placing.CANDIDATE, "constant"), moved),
)


def with_weights(theta: Any) -> Policy:
    """Return the policy with these weights, whatever file is in use."""
    return replace(LEARNED, prepare=functools.partial(prepare, theta=theta), ready=None)


__doc__ = f"{__doc__}\nThe rule that is shipped:\n\n{weights.formula(weights.load(weights.shipped())[0])}\n"

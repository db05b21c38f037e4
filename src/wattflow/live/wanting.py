"""The compiled half of `wanted`: an instant decided one choice at a time.

`open_instant`, then `want` with each choice until it wants no more, then `close_instant` do together what one
`decide_all` does; with the cheapest row chosen each time, they do the same.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from wattflow.engine import attempts, decide, fit, fold, instant, life, rows, structure, tallies
from wattflow.engine.choose import BAD as BAD_SCORE
from wattflow.engine.choose import FULL, NO_FIT, TAKEN
from wattflow.engine.kinds import NODE_ID
from wattflow.engine.tables import ASLEEP, FALLING, ON, SKIP, STRICT
from wattflow.kernel.handle import Tables
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner
from wattflow.kernel.lowering import tables_at
from wattflow.live import stepping

PLACE, WAIT, SLEEP, WAKE = 0, 1, 2, 3
"""Kinds of rows."""
NONE = -1
"""As a choice: the task waits (or, jointly, all do)."""
NOTHING, GROW, BAD = -1, -2, -3
"""In place of a task: nothing wants a decision any more; attempt rows ran out; a cost is no number."""
ROW = np.dtype([
    ("cost", "f8"), ("task", "i8"), ("node", "i8"), ("alike", "i4"), ("kind", "i4"), ("variant", "i4"),
    ("origin", "i4"), ("device", "i4"), ("node_row", "i4"), ("task_row", "i4"), ("unused", "i4"),
])  # fmt: skip
"""A row of a decision: what it costs, for which task, on which node (one of ``alike`` equal ones); ``origin`` is the
shape's variant, ``kind`` PLACE, WAIT, SLEEP or WAKE. The last fields are the engine's own numbers."""
ASK = np.dtype([
    ("open", "i8"), ("task", "i8"), ("shown", "i8"), ("part", "i8"), ("before", "i8"), ("joint", "i8"), ("lost", "i8"),
    ("epoch", "i8"), ("chosen", "i8"), ("n", "i8"), ("fresh", "i8"),
])  # fmt: skip


class Ask(Tables):
    """What passes between the caller who chooses and the compiled code that asks."""

    __slots__ = ("ask", "rows")
    NAMES: ClassVar[tuple[str, ...]] = ("ask", "rows")


@inner
def _row(state, ask, n, kind, node):
    """Write a row that places nothing."""
    if n >= ask.rows.size:
        ask.ask[0].lost += 1
        return n
    row = ask.rows[n]
    row.kind = kind
    row.task = -1
    row.task_row = -1
    row.variant = 0
    row.origin = -1
    row.node = rows.make_id(NODE_ID, node, state.node_marks[node].generation) if node >= 0 else -1
    row.node_row = node
    row.device = -1
    row.alike = state.groups[state.nodes[node].group].count if node >= 0 else 0
    row.cost = math.inf
    return n + 1


@inner
def _place_rows(state, ask, task, variant, found, n):
    """Rows for all candidates of one variant; what they share and where the tables lie is looked up once."""
    shown = ask.rows
    candidates = state.candidates
    nodes = state.nodes
    marks = state.node_marks
    all_groups = state.groups
    cost = state.cost
    identity = structure.task_id(state, task)
    origin = state.variants[variant].origin
    kept = min(found, shown.size - n)
    at = 0
    for c in range(found):
        r = n + at
        if at >= kept:
            # Without a row of its own; one that is cheaper than all others takes the last.
            ask.ask[0].lost += 1
            r = shown.size - 1
            if not _is_cheapest(state, ask, task, c):
                continue
        at += 1
        node = candidates[c].node
        row = shown[r]
        row.cost = cost[c]
        row.task = identity
        row.node = rows.make_id(NODE_ID, node, marks[node].generation)
        row.alike = all_groups[nodes[node].group].count
        row.kind = PLACE
        row.variant = variant
        row.origin = origin
        row.device = candidates[c].device
        row.node_row = node
        row.task_row = task
    return n + kept


@inner
def _is_cheapest(state, ask, task, c):
    """Whether a candidate goes before all rows, which are full, as `_cheaper` has it."""
    cost = state.cost[c]
    place = state.candidates[c]
    rule = state.shapes[state.tasks[task].form].constraint
    for r in range(ask.rows.size):
        row = ask.rows[r]
        if row.cost < cost:
            return False
        if row.cost > cost:
            continue
        liked = 0
        if state.rules[0].wishes == 1:
            liked = tallies.level(state, rule, place.node) - _level(state, row)
        if liked > 0 or (liked == 0 and place.node > row.node_row):
            return False
        if liked == 0 and place.node == row.node_row and place.device >= row.device:
            return False
    return True


@inner
def _level(state, row):
    return tallies.level(state, state.shapes[state.tasks[row.task_row].form].constraint, row.node_row)


@inner
def _cheaper(state, ask, a, b):
    """Whether row a goes before row b: cost, liking, node, device; a later variant only if really cheaper."""
    first = ask.rows[a]
    second = ask.rows[b]
    if first.cost != second.cost:
        return first.cost < second.cost
    if state.rules[0].wishes == 1:
        liked = _level(state, first) - _level(state, second)
        if liked != 0:
            return liked < 0
    if first.node_row != second.node_row:
        return first.node_row < second.node_row
    return first.device < second.device


@inner
def _best_first(state, ask, n):
    best = 0
    for r in range(1, n):
        if ask.rows[r].kind == PLACE and _cheaper(state, ask, r, best):
            best = r
    if best > 0:
        swap(ask, 0, best)


@inner
def swap(ask, a, b):
    x = ask.rows[a]
    y = ask.rows[b]
    x.kind, y.kind = y.kind, x.kind
    x.task, y.task = y.task, x.task
    x.task_row, y.task_row = y.task_row, x.task_row
    x.variant, y.variant = y.variant, x.variant
    x.origin, y.origin = y.origin, x.origin
    x.node, y.node = y.node, x.node
    x.node_row, y.node_row = y.node_row, x.node_row
    x.device, y.device = y.device, x.device
    x.alike, y.alike = y.alike, x.alike
    x.cost, y.cost = y.cost, x.cost


@inner
def _rows_of(state, ask, score, task, n):
    """Rows for all candidates of all variants of a task, from row n on; BAD when a cost is no number."""
    counts = state.counts[0]
    form = state.shapes[state.tasks[task].form]
    pinned = state.tasks[task].pinned_variant
    for v in range(form.variant_first, form.variant_first + form.variant_n):
        if pinned >= 0 and v - form.variant_first != pinned:
            continue
        found = fit.candidates(state, v, task)
        if found == 0:
            continue
        cost = state.cost[:found]
        if state.rules[0].has_score == 1:
            counts.candidate_n = found
            score(state, task, v, cost)
            counts.scored += found
        else:
            cost[:] = 0.0
        for c in range(found):
            if math.isnan(cost[c]):
                state.choice[0].bad_task = task
                state.choice[0].bad_variant = v
                return np.int64(BAD)
        n = _place_rows(state, ask, task, v, found, n)
    return n


@inner
def _undo_parts(state, ask):
    """A gang that cannot be placed whole gives its first parts back."""
    asked = ask.ask[0]
    if asked.part > 0:
        decide.undo_parts(state, asked.task, asked.before, asked.epoch)
    asked.part = 0
    asked.task = NONE


@inner
def _take(state, ask, row):
    """Place one part of a task as a row says; True when it was the last."""
    asked = ask.ask[0]
    counts = state.counts[0]
    choice = state.choice[0]
    task = row.task_row
    choice.best_node = row.node_row
    choice.best_device = row.device
    choice.best_variant = row.variant
    parts = state.shapes[state.tasks[task].form].parts
    if asked.part == 0:
        asked.before = counts.placed_n
        asked.epoch = state.clock[0].epoch
    attempts.commit(state, task, asked.part)
    counts.decisions += 1
    asked.part += 1
    asked.task = task
    if asked.part < parts:
        return False
    decide.take(state, task, parts)
    asked.part = 0
    asked.task = NONE
    return True


@inner
def answer(state, driver, ask, chosen):
    """Note what was chosen; a row that lets a node sleep or wakes it is carried out at once."""
    asked = ask.ask[0]
    asked.chosen = chosen
    if asked.shown == 0 or chosen < 0:
        return
    row = ask.rows[chosen]
    if row.kind == SLEEP or row.kind == WAKE:
        if row.kind == SLEEP:
            life.fall_asleep(state, driver, row.node_row)
        else:
            life.wake(state, driver, row.node_row)
        asked.shown = 0
        asked.task = NONE


@inner
def _enough_rows(state, task):
    parts = state.shapes[state.tasks[task].form].parts
    counts = state.counts[0]
    return counts.running + parts <= state.attempts.size and counts.placed_n + parts <= state.placed.size


@decide.is_open.of(Ask)
@inner
def _is_open(state, hand):
    return hand.ask[0].open == 1


@decide.open_hand.of(Ask)
@inner
def open_asking(state, hand):
    """Begin to ask: nobody was looked at yet."""
    asked = hand.ask[0]
    asked.open = 1
    asked.fresh = 1
    asked.task = NONE
    asked.shown = 0
    asked.part = 0


@decide.begins.of(Ask)
@inner
def _begins(state, hand):
    fresh = hand.ask[0].fresh == 1
    hand.ask[0].fresh = 0
    return fresh


@decide.look_first.of(Ask)
@inner
def look_first(state, hand):
    """Pass over shapes that no node which gained room would take."""
    if state.rules[0].queue == SKIP:
        decide.look_again(state, state.freed.size)


@decide.keeps.of(Ask)
@inner
def _keeps(state, hand):
    return True


@decide.close_hand.of(Ask)
@inner
def _close_hand(state, hand):
    hand.ask[0].open = 0


@decide.opened.of(Ask)
@inner
def _opened(state, hand):
    return np.int64(hand.ask[0].task)


@decide.following.of(Ask)
@inner
def _following(state, hand, priority):
    return np.int64(decide.next_task(state, priority))


@decide.no_place.of(Ask)
@inner
def _no_place(state, hand, shape, taken):
    state.shapes[shape].failed = state.clock[0].epoch
    return taken


@decide.place.of(Ask)
@inner
def place_by_hand(state, hand, task, score):
    """Ask about a task, or carry out what was answered; the parts of a gang are asked about one by one."""
    asked = hand.ask[0]
    if asked.shown == 1:
        asked.shown = 0
        answered(state, hand)
        if asked.chosen < 0 or hand.rows[asked.chosen].kind == WAIT:
            _undo_parts(state, hand)
            return decide.WAITED
        if _take(state, hand, hand.rows[asked.chosen]):
            return TAKEN
    if asked.part == 0 and not _enough_rows(state, task):
        return FULL
    n, fits = offer(state, hand, task, score)
    if n == BAD:
        return BAD_SCORE
    if n == 0:
        _undo_parts(state, hand)
        return decide.WAITED if fits else NO_FIT
    asked.task = task
    asked.shown = 1
    asked.n = n
    return decide.ASKS


@inner
def all_rows(state, hand, task, score):
    """Write a row for every candidate of a task, the cheapest first; how many, and whether it fits anywhere."""
    n = np.int64(_rows_of(state, hand, score, task, 0))
    if n > 0:
        _best_first(state, hand, n)
    return n, n > 0


@hook
def offer(state, hand, task, score):
    """Write the rows of a task that are shown, the cheapest first; how many, and whether it fits anywhere."""
    return all_rows(state, hand, task, score)


@hook
def answered(state, hand):
    """Go on after an answer: what was made to look otherwise while rows were shown is as it was."""


@hook
def screen(state, hand, n):
    """Leave rows out that are not to be shown; how many are left."""
    return n


@decide.select.of(Ask)
@inner
def _select(state, hand, priority, score):
    if hand.ask[0].joint == 1:
        return _select_jointly(state, hand, score)
    return decide.decide_ordered(state, hand, priority, score)


@inner
def _select_jointly(state, hand, score):
    """Ask about the first tasks of all shapes together, until the hand waits or nothing fits."""
    asked = hand.ask[0]
    while asked.shown == 1 or asked.part > 0:
        task = np.int64(asked.task)
        if asked.part == 0:
            asked.shown = 0
            if asked.chosen < 0 or hand.rows[asked.chosen].kind == WAIT:
                asked.task = NONE
                return np.int64(decide.ALL_TRIED)
            if _take(state, hand, hand.rows[asked.chosen]):
                break
            continue
        result = place_by_hand(state, hand, task, score)  # the other parts of a gang, one by one
        if result == decide.ASKS:
            return np.int64(decide.ASKED)
        if result == BAD_SCORE:
            return np.int64(decide.BAD_COST)
        if result != TAKEN:
            decide.hold(state, task)
            if state.rules[0].queue == STRICT:
                return np.int64(decide.ALL_TRIED)
        break
    return np.int64(_ask_jointly(state, hand, score))


@inner
def _ask_jointly(state, ask, score):
    """Write rows for the first task of every waiting shape, then for waiting, sleeping and waking."""
    asked = ask.ask[0]
    counts = state.counts[0]
    n = np.int64(0)
    for at in range(counts.shapes_n):
        form = state.shapes[state.active_shapes[at]]
        if form.failed == state.clock[0].epoch:
            continue
        if not _enough_rows(state, form.head):
            return decide.MORE
        before = n
        n = _rows_of(state, ask, score, form.head, n)
        if n == BAD:
            return decide.BAD_COST
        if n == before and not decide.misfit_of_its_own(state, form.head):
            form.failed = state.clock[0].epoch
    if n == 0:
        return decide.ALL_TRIED
    _best_first(state, ask, n)
    asked.task = ask.rows[0].task_row
    n = _row(state, ask, n, WAIT, -1)
    for at in range(counts.active_n):
        group = state.groups[state.active_groups[at]]
        node = group.node
        if group.power_state == ON and fold.may_sleep(state, node):
            n = _row(state, ask, n, SLEEP, node)
        elif group.power_state == ASLEEP or group.power_state == FALLING:
            n = _row(state, ask, n, WAKE, node)
    asked.n = screen(state, ask, n)
    asked.shown = 1
    return decide.ASKED


@inner
def want_one(state, ask, functions, chosen):
    """Carry out a choice and go to the next decision."""
    asked = ask.ask[0]
    if asked.open == 0:
        return np.int64(NOTHING), 0
    answer(state, None, ask, chosen)
    status = decide.decide(state, ask, functions.priority, functions.score)
    if status == decide.ASKED:
        return structure.task_id(state, asked.task), asked.n
    if status == decide.MORE:
        return np.int64(GROW), 0
    return np.int64(BAD if status == decide.BAD_COST else NOTHING), 0


def want(state, ask, functions, chosen):
    """`want_one`, called from Python."""
    return want_one(state, ask, functions, chosen)


def want_many(state, ask, functions, states, asks, rules, chosen, tasks, shown):
    """`want_one` for many engines, given the addresses of their tables; ``state`` and ``ask`` say of which types."""
    for i in range(states.size):
        own = tables_at(state, states[i])
        desk = tables_at(ask, asks[i])
        tasks[i], shown[i] = want_one(own, desk, tables_at(functions, rules[i]), chosen[i])


def open_instant(state, desk, ask, functions, joint):
    """After the events are folded: arrivals, and a hand that was not asked yet."""
    instant.start(state, desk, functions.priority)
    if instant.ramps(state, desk):
        fold.grow_platforms(state)
    ask.ask[0].joint = joint
    ask.ask[0].lost = 0
    decide.open_hand(state, ask)
    return 0


def close_instant(state, desk, ask, functions):
    """What a step does after its decisions: list placements, let the policy act, say when to come back."""
    if ask.ask[0].open == 1:
        _undo_parts(state, ask)
        ask.ask[0].open = 0
        decide.end(state)
    instant.start_placed(state, desk)
    instant.come_back(state, desk)
    instant.act(state, desk, functions)
    stepping.list_results(state, desk)
    return stepping.OK

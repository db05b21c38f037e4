"""The compiled half of `wanted`: an instant decided one choice at a time.

`open_instant`, then `want` with each choice until it wants no more, then `close_instant` do together what one
`decide_all` does; with the cheapest row chosen each time, they do the same.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import (
    attempts,
    backfill,
    decide,
    fit,
    fold,
    life,
    queue,
    release,
    rows,
    structure,
    tallies,
)
from wattflow.engine.choose import BAD as BAD_SCORE
from wattflow.engine.choose import FULL, NO_FIT, TAKEN
from wattflow.engine.kinds import NODE_ID
from wattflow.engine.tables import ASLEEP, EASY, FALLING, ON, PLACED, SKIP, STRICT, WAITING
from wattflow.kernel.handle import Tables
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
    NAMES = ("ask", "rows")


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
        _swap(ask, 0, best)


@inner
def _swap(ask, a, b):
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
def _set_aside(state, ask, task, fits):
    """What the engine does with a task that was not placed; True when the instant is over by that (strict)."""
    rule = state.rules[0].queue
    shape = state.tasks[task].form
    if rule == EASY:
        if state.choice[0].reserved == backfill.NO_RESERVATION:
            backfill.reserve(state, task)
        decide.hold(state, task)
        return False
    if not fits and not decide.misfit_of_its_own(state, task):
        state.shapes[shape].failed = state.clock[0].epoch
    elif rule != STRICT:
        decide.hold(state, task)
    return rule == STRICT


@inner
def _undo_parts(state, ask):
    """A gang that cannot be placed whole gives its first parts back."""
    counts = state.counts[0]
    asked = ask.ask[0]
    while counts.placed_n > asked.before:
        counts.placed_n -= 1
        a = state.placed[counts.placed_n]
        fit.give_back(state, a)
        attempts.drop_attempt(state, a)
    decide.never_was(state, asked.epoch)
    asked.part = 0


@inner
def _carry_out(state, ask, chosen):
    """Do what was chosen for the task that is open; True when the instant is over by that."""
    asked = ask.ask[0]
    counts = state.counts[0]
    task = asked.task
    if chosen < 0 or ask.rows[chosen].kind == WAIT:
        asked.task = NONE
        if asked.part > 0:
            _undo_parts(state, ask)
            return _set_aside(state, ask, task, True)
        return True if asked.joint == 1 else _set_aside(state, ask, task, True)
    row = ask.rows[chosen]
    if row.kind != PLACE:
        if row.kind == SLEEP:
            life.fall_asleep(state, None, row.node_row)
        else:
            life.wake(state, None, row.node_row)
        asked.task = NONE
        return False
    task = row.task_row
    choice = state.choice[0]
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
    if asked.part < parts:
        asked.task = task
        return False
    for part in range(parts):
        if parts > 1:
            following = state.placed[asked.before + (part + 1) % parts]
            state.attempts[state.placed[asked.before + part]].sibling = following
    queue.remove(state, task)
    state.tasks[task].state = PLACED
    state.tasks[task].parts_left = parts
    state.workflows[state.tasks[task].workflow].started = 1
    asked.part = 0
    asked.task = NONE
    return False


@inner
def _enough_rows(state, task):
    parts = state.shapes[state.tasks[task].form].parts
    counts = state.counts[0]
    return counts.running + parts <= state.attempts.size and counts.placed_n + parts <= state.placed.size


@decide.begins.of(Ask)
@inner
def _begins(state, hand):
    return hand.ask[0].fresh == 1


@decide.keeps.of(Ask)
@inner
def _keeps(state, hand):
    return True


@decide.opened.of(Ask)
@inner
def _opened(state, hand):
    return hand.ask[0].task


@decide.by_pairs.of(Ask)
@inner
def _by_pairs(state, hand):
    return False


@decide.place.of(Ask)
@inner
def _place(state, hand, task, score):
    """Ask about a task, or carry out what was answered; the parts of a gang are asked about one by one."""
    asked = hand.ask[0]
    while True:
        if asked.shown == 1:
            asked.shown = 0
            if asked.chosen < 0 or hand.rows[asked.chosen].kind == WAIT:
                asked.task = NONE
                if asked.part > 0:
                    _undo_parts(state, hand)
                return decide.WAITED
            _carry_out(state, hand, asked.chosen)
            if asked.part == 0:
                return TAKEN
        if asked.part == 0 and not _enough_rows(state, task):
            return FULL
        n = _rows_of(state, hand, score, task, 0)
        if n == BAD:
            return BAD_SCORE
        if n == 0:
            if asked.part > 0:
                _undo_parts(state, hand)
            asked.task = NONE
            return NO_FIT
        _best_first(state, hand, n)
        asked.task = task
        asked.shown = 1
        asked.n = n
        return decide.ASKS


@inner
def _next_joint(state, ask, functions):
    """Rows for the first task of every waiting shape, then waiting, sleeping and waking."""
    asked = ask.ask[0]
    counts = state.counts[0]
    n = 0
    for at in range(counts.shapes_n):
        form = state.shapes[state.active_shapes[at]]
        if form.failed == state.clock[0].epoch:
            continue
        if not _enough_rows(state, form.head):
            return np.int64(GROW), 0
        before = n
        n = _rows_of(state, ask, functions.score, form.head, n)
        if n == BAD:
            return np.int64(BAD), 0
        if n == before and not decide.misfit_of_its_own(state, form.head):
            form.failed = state.clock[0].epoch
    if n == 0:
        return np.int64(NOTHING), 0
    _best_first(state, ask, n)
    first = ask.rows[0].task
    asked.task = ask.rows[0].task_row
    n = _row(state, ask, n, WAIT, -1)
    for at in range(counts.active_n):
        group = state.groups[state.active_groups[at]]
        node = group.node
        if group.power_state == ON and fold.may_sleep(state, node):
            n = _row(state, ask, n, SLEEP, node)
        elif group.power_state == ASLEEP or group.power_state == FALLING:
            n = _row(state, ask, n, WAKE, node)
    return first, n


@inner
def want_one(state, ask, functions, chosen):
    """Carry out a choice and go to the next decision."""
    asked = ask.ask[0]
    if asked.open == 0:
        return np.int64(NOTHING), 0
    if asked.joint == 1 and asked.part == 0:
        return _want_joint(state, ask, functions, chosen)
    asked.chosen = chosen
    status = decide.decide(state, ask, functions.priority, functions.score)
    asked.fresh = 0
    if status == decide.ASKED:
        return structure.task_id(state, asked.task), asked.n
    if status == decide.MORE:
        return np.int64(GROW), 0
    asked.open = 0
    return np.int64(BAD if status == decide.BAD_COST else NOTHING), 0


@inner
def _want_joint(state, ask, functions, chosen):
    asked = ask.ask[0]
    if asked.task >= 0 and asked.shown == 1:
        asked.shown = 0
        if _carry_out(state, ask, chosen):
            asked.open = 0
            decide.restore_held(state)
            return np.int64(NOTHING), 0
    task, n = _next_joint(state, ask, functions)
    if task == NOTHING or task == BAD:
        asked.open = 0
        decide.restore_held(state)
        state.choice[0].reserved = backfill.NO_RESERVATION
    elif task >= 0:
        asked.shown = 1
    return task, n


def want(state, ask, functions, chosen):
    """`want_one`, called from Python."""
    return want_one(state, ask, functions, chosen)


def want_many(state, ask, functions, states, asks, rules, chosen, tasks, shown):
    """`want_one` for many engines, given the addresses of their tables; ``state`` and ``ask`` say of which types."""
    for i in range(states.size):
        own = tables_at(state, states[i])
        desk = tables_at(ask, asks[i])
        tasks[i], shown[i] = want_one(own, desk, tables_at(functions, rules[i]), chosen[i])


@inner
def begin_asking(state, ask, joint):
    """An instant in which nobody was asked yet."""
    asked = ask.ask[0]
    asked.open = 1
    asked.fresh = 1
    asked.task = NONE
    asked.shown = 0
    asked.part = 0
    asked.joint = joint
    state.choice[0].reserved = backfill.NO_RESERVATION


def open_instant(state, desk, ask, functions, joint):
    """After the events are folded: arrivals, and the queue's first look."""
    clock = state.clock[0]
    words = desk.words[0]
    for i in range(words.arriving):
        if state.tasks[desk.arrivals[i]].state == WAITING:
            release.arrive(state, desk.arrivals[i], functions.priority)
    words.arriving = 0
    clock.retry_at = math.inf
    begin_asking(state, ask, joint)
    ask.ask[0].lost = 0
    if words.ramps == 1:
        fold.grow_platforms(state)
    if joint == 1 and state.rules[0].queue == SKIP:
        decide.look_again(state, state.freed.size)
    return 0


def close_instant(state, desk, ask, functions):
    """What a step does after its decisions: list placements, let the policy act, say when to come back."""
    if ask.ask[0].open == 1:
        if ask.ask[0].part > 0:
            _undo_parts(state, ask)
        ask.ask[0].open = 0
        decide.restore_held(state)
        state.choice[0].reserved = backfill.NO_RESERVATION
    words = desk.words[0]
    if words.placements + state.counts[0].placed_n > desk.placements.size:
        return stepping.GROW_ATTEMPTS
    stepping._list_placements(state, desk)
    grows = fold.next_growth(state) if words.ramps == 1 and state.counts[0].waiting > 0 else math.inf
    stepping.end_step(state, desk, functions, grows)
    return stepping.OK

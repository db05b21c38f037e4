"""Decisions by hand: the bodies of a hand's hooks (`engine.decide`) for `Ask`, and the compiled half of `wanted`.

`open_instant`, then `want` with each choice until it wants no more, then `close_instant` do together what one
`decide_all` does; with the cheapest row chosen each time, they do the same.
"""

from __future__ import annotations

import numpy as np

from wattflow.engine import attempts, decide, fold, instant, life, structure
from wattflow.engine.choose import BAD as BAD_SCORE
from wattflow.engine.choose import FULL, NO_FIT, TAKEN
from wattflow.engine.tables import ASLEEP, FALLING, ON, SKIP, STRICT
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner
from wattflow.live import candidate_rows, stepping
from wattflow.live.candidate_rows import BAD, NONE, SLEEP, WAIT, WAKE, Ask

NOTHING, GROW = -1, -2
"""In place of a task: nothing wants a decision any more; attempt rows ran out (BAD: a cost is no number)."""


@inner
def _undo_parts(state, ask):
    """Give the first parts of a gang back that cannot be placed whole."""
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
    # Of the first part: a gang that is given up goes back to here, whatever the others took.
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
        # The tables have changed under the rows that were shown: they are asked for anew.
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
    # For all parts at once: rows that run out in the middle of a gang would undo one that fits.
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
    n = np.int64(candidate_rows.rows_of(state, hand, score, task, 0))
    if n > 0:
        candidate_rows.best_first(state, hand, n)
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
        n = candidate_rows.rows_of(state, ask, score, form.head, n)
        if n == BAD:
            return decide.BAD_COST
        if n == before and not decide.misfit_of_its_own(state, form.head):
            form.failed = state.clock[0].epoch
    if n == 0:
        return decide.ALL_TRIED
    candidate_rows.best_first(state, ask, n)
    asked.task = ask.rows[0].task_row
    n = candidate_rows.write_row(state, ask, n, WAIT, -1)
    for at in range(counts.active_n):
        group = state.groups[state.active_groups[at]]
        node = group.node
        if group.power_state == ON and fold.may_sleep(state, node):
            n = candidate_rows.write_row(state, ask, n, SLEEP, node)
        elif group.power_state == ASLEEP or group.power_state == FALLING:
            n = candidate_rows.write_row(state, ask, n, WAKE, node)
    asked.n = screen(state, ask, n)
    asked.shown = 1
    return decide.ASKED


def want(state, ask, functions, chosen):
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


def open_instant(state, desk, ask, functions, joint):
    """Let tasks arrive after the events are folded, and open a hand that was not asked yet."""
    instant.start(state, desk, functions.priority)
    ask.ask[0].joint = joint
    ask.ask[0].lost = 0
    instant.open_decisions(state, desk, ask)
    return 0


def close_instant(state, desk, ask, functions):
    """Finish a step after its decisions: list placements, let the policy act, say when to come back."""
    if ask.ask[0].open == 1:
        _undo_parts(state, ask)
        ask.ask[0].open = 0
        decide.end(state)
    instant.start_placed(state, desk)
    instant.come_back(state, desk)
    instant.act(state, desk, functions)
    stepping.list_results(state, desk)
    return stepping.OK

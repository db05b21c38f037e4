"""One pass over the queue: the policy's order and costs become attempts. `instant` makes the passes, for a driver."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from wattflow.engine import agenda, fit, queue
from wattflow.engine.attempts import commit, drop_attempt
from wattflow.engine.backfill import NO_RESERVATION, reserve
from wattflow.engine.choose import BAD, FULL, HELD, NO_FIT, TAKEN, choose
from wattflow.engine.parts import LIVE, RICH
from wattflow.engine.tables import BEST_PAIR, EASY, PARKED, PLACED, SKIP, STRICT
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner, optional

# Statuses of decide
ALL_TRIED, MORE, BAD_COST, ASKED = 0, 1, 2, 3
ASKS, WAITED = 100, 101
"""Answers of `place` with a hand: it is asked first; it lets the task wait."""
MANY_SHAPES, FEW_FREED = 32, 8
"""With so many shapes waiting, what a placement took away is looked at for all of them at once, over so few nodes."""


@inner
def never_was(state, epoch):
    """Placements were undone: no node has gained room since that epoch. What the ring lost by it is noted."""
    clock = state.clock[0]
    if clock.epoch > epoch:
        state.choice[0].floor = max(state.choice[0].floor, clock.epoch - state.freed.size)
        clock.epoch = epoch


@optional(RICH, types.int64)
def _place_gang(state, task, parts, score):
    """Place all parts of a gang or none."""
    counts = state.counts[0]
    before = counts.placed_n
    # Asked for all parts first: rows that run out in the middle of a gang would undo one that fits.
    if before + parts > state.placed.size:
        return FULL
    epoch = state.clock[0].epoch
    result = TAKEN
    for part in range(parts):
        if counts.free_attempt < 0:
            result = FULL
            break
        result = choose(state, task, score)
        if result != TAKEN:
            break
        commit(state, task, part)
    if result != TAKEN:
        undo_parts(state, task, before, epoch)
    return result


@optional(RICH)
def undo_parts(state, task, before, epoch):
    """Take the first parts of a gang back that cannot be placed whole: State is as it was before them."""
    counts = state.counts[0]
    while counts.placed_n > before:
        counts.placed_n -= 1
        # Last placed, first undone: rows go back onto the free list in the order that a new try takes them from it.
        a = state.placed[counts.placed_n]
        attempt = state.attempts[a]
        fit.give_back(state, a)
        if state.choice[0].reserved >= -1:
            fit.note_backfill(state, attempt.variant, attempt.node, attempt.end, -1)
        # `drop_attempt` counts those that run; what never began was not started either.
        state.functions[state.shapes[state.tasks[task].form].function].started -= 1
        drop_attempt(state, a)
    never_was(state, epoch)


@optional(RICH)
def _join_parts(state, before, parts):
    """The parts of a gang know each other, as a ring."""
    for part in range(parts):
        state.attempts[state.placed[before + part]].sibling = state.placed[before + (part + 1) % parts]


@inner
def take(state, task, parts):
    """All parts of a task are placed: it leaves the queue."""
    if parts > 1:
        _join_parts(state, state.counts[0].placed_n - parts, parts)
    task_row = state.tasks[task]
    queue.remove(state, task)
    task_row.state = PLACED
    task_row.parts_left = parts
    state.workflows[task_row.workflow].started = 1


@inner
def try_place(state, task, score):
    """Place a task if it fits and the policy does not hold it."""
    task_row = state.tasks[task]
    counts = state.counts[0]
    parts = state.shapes[task_row.form].parts
    if parts == 1:
        if counts.free_attempt < 0 or counts.placed_n >= state.placed.size:
            return FULL
        result = choose(state, task, score)
        if result == TAKEN:
            commit(state, task, 0)
    else:
        result = _place_gang(state, task, parts, score)
    if result == TAKEN:
        take(state, task, parts)
    return result


# Hooks of a hand: the bodies here are for decisions by the policy.


@hook
def is_open(state, hand):
    """Tell whether a hand is being asked in this instant."""
    return False


@hook
def open_hand(state, hand):
    """Begin to ask: nobody was looked at yet."""


@hook
def begins(state, hand):
    """Tell whether the queue is tried from its start: once for each instant."""
    return True


@hook
def look_first(state, hand):
    """Pass over shapes that no node which gained room would take."""
    if state.rules[0].queue == SKIP:
        look_again(state, state.freed.size)


@hook
def keeps(state, hand):
    """Tell whether what was held stays so when room is made in the middle of an instant."""
    return False


@hook
def close_hand(state, hand):
    """End the asking: every task was tried, or a cost is no number."""


@hook
def opened(state, hand):
    """The task that a hand was asked about; −1 without one."""
    return np.int64(-1)


@hook
def following(state, hand, priority):
    """The next task of the queue; −1 when all were tried."""
    return np.int64(next_task(state, priority))


@hook
def place(state, hand, task, score):
    """Place a task if it fits, where the policy says or where the hand does."""
    return try_place(state, task, score)


@hook
def no_place(state, hand, shape, taken):
    """Pass a shape over until a node gains room; False when ``taken`` need not be looked at again."""
    state.shapes[shape].failed = state.clock[0].epoch
    if taken and state.rules[0].queue == SKIP and state.counts[0].shapes_n > MANY_SHAPES:
        # What was placed took the room that the others were to be tried for: one look, not a search for each.
        look_again(state, FEW_FREED)
        return False
    return taken


@hook
def select(state, hand, priority, score):
    """Decide in the queue's order, or (Min-Min, Max-Min) among all tasks and nodes together."""
    if state.rules[0].selection == BEST_PAIR:
        return _decide_best_pair(state, score)
    return decide_ordered(state, hand, priority, score)


@inner
def hold(state, task):
    """Set a task aside for the rest of this instant."""
    counts = state.counts[0]
    queue.remove(state, task)
    # The link of its queue is free now: a held task is in none, and `restore_held` runs before anybody reads it.
    state.tasks[task].next = counts.held_first
    counts.held_first = task
    counts.held += 1


@optional(LIVE, types.boolean)
def park(state, task, until):
    """Take a held task out of the queue until the time that the policy named for it; False without room for that."""
    # One row of marks: nobody reports to this State (a simulation), so a hold is a time to look again, no parking.
    if state.marks.size == 1 or state.counts[0].timer_n + 1 >= state.timers.size:
        return False
    queue.remove(state, task)
    state.tasks[task].state = PARKED
    state.marks[task].until = until
    agenda.push(state, until, agenda.PARK, task, state.marks[task].generation)
    state.counts[0].held += 1
    return True


@inner
def restore_held(state):
    counts = state.counts[0]
    task = counts.held_first
    while task >= 0:
        after = state.tasks[task].next
        # The list has the last held first and each goes to the front, so the queue has its old order again.
        queue.push_front(state, task)
        task = after
    counts.held_first = -1


@inner
def next_task(state, priority):
    rules = state.rules[0]
    if rules.dynamic == 1:
        return queue.rekey(state, priority)
    if rules.queue == SKIP:
        return queue.first(state)
    return queue.first_of_all(state)


@inner
def misfit_of_its_own(state, task):
    """Tell whether others of its shape may fit where this task does not: it is pinned, or its estimate is too long."""
    task_row = state.tasks[task]
    return task_row.pinned >= 0 or task_row.pinned_variant >= 0 or state.rules[0].limits == 1


@inner
def look_again(state, most):
    """A shape that fitted nowhere needs a new try only if one of the nodes that gained room since would take it.

    Shapes since whose last try more than ``most`` nodes gained room are left to be tried.
    """
    epoch = state.clock[0].epoch
    floor = state.choice[0].floor
    for at in range(state.counts[0].shapes_n):
        form = state.shapes[state.active_shapes[at]]
        since = form.failed
        # 0: it never failed, or was let go. Beyond ``most`` or below the floor the ring has forgotten who gained room.
        if since == 0 or since == epoch or epoch - since > most or since < floor:
            continue
        # The head stands for all: a task that differs from its shape never marks it (`misfit_of_its_own`).
        if not _fits_a_freed_node(state, form.head, since, epoch):
            form.failed = epoch


@inner
def _fits_a_freed_node(state, task, since, until):
    form = state.shapes[state.tasks[task].form]
    for e in range(since, until):
        node = state.freed[e & (state.freed.size - 1)]
        for v in range(form.variant_first, form.variant_first + form.variant_n):
            if fit.node_fits(state, v, task, node):
                return True
    return False


@inner
def decide_ordered(state, hand, priority, score):
    """Try task after task of the queue."""
    clock = state.clock[0]
    rules = state.rules[0]
    choice = state.choice[0]
    taken = False
    while True:
        task = opened(state, hand)
        is_open = task >= 0
        if not is_open:
            task = following(state, hand, priority)
            if task < 0:
                return ALL_TRIED
        shape = state.tasks[task].form
        result = NO_FIT
        retry_at = clock.retry_at
        own = math.inf
        if is_open or state.shapes[shape].failed != clock.epoch:
            # Taken apart from the others' times: each parked task has a timer of its own.
            if rules.parks == 1:
                clock.retry_at = math.inf
            result = place(state, hand, task, score)
            if rules.parks == 1:
                own = clock.retry_at
                clock.retry_at = min(own, retry_at)
        if result == BAD:
            return BAD_COST
        if result == FULL:
            return MORE
        if result == ASKS:
            return ASKED
        if result == TAKEN:
            taken = True
            continue
        if rules.queue == EASY:
            # The first that does not fit is promised room; all behind it are tried around that promise.
            if choice.reserved == NO_RESERVATION:
                reserve(state, task)
            hold(state, task)
            continue
        if result == HELD and own < math.inf and park(state, task, own):
            clock.retry_at = retry_at
            continue
        if result == NO_FIT and not misfit_of_its_own(state, task):
            taken = no_place(state, hand, shape, taken)
        elif rules.queue != STRICT:
            if result == HELD and rules.alike == 1 and not misfit_of_its_own(state, task):
                _hold_shape(state, shape)
            else:
                hold(state, task)
        if rules.queue == STRICT:
            return ALL_TRIED


@optional(RICH)
def _hold_shape(state, shape):
    """All waiting tasks of a shape are held for the rest of this instant: it counts as one that fits nowhere."""
    state.shapes[shape].failed = state.clock[0].epoch
    state.shapes[shape].held = 1
    state.counts[0].held += state.shapes[shape].waiting


@optional(RICH)
def _let_shapes_go(state):
    """Shapes that were held are tried again at the next instant."""
    for at in range(state.counts[0].shapes_n):
        form = state.shapes[state.active_shapes[at]]
        if form.held == 1:
            form.held = 0
            form.failed = 0


@optional(RICH, types.int64)
def _decide_best_pair(state, score):
    """Min-Min and Max-Min: among all waiting tasks, the one whose best cost is smallest (or largest) goes first."""
    clock = state.clock[0]
    counts = state.counts[0]
    choice = state.choice[0]
    while True:
        best_task = -1
        best = 0.0
        for at in range(counts.shapes_n):
            shape = state.active_shapes[at]
            if state.shapes[shape].failed == clock.epoch:
                continue
            task = state.shapes[shape].head
            while task >= 0:
                result = choose(state, task, score)
                if result == BAD:
                    return BAD_COST
                if result == NO_FIT and not misfit_of_its_own(state, task):
                    state.shapes[shape].failed = clock.epoch
                    break
                if result == TAKEN and _better_pair(state, choice.best_cost, best, task, best_task):
                    best = choice.best_cost
                    best_task = task
                task = state.tasks[task].next
        if best_task < 0:
            return ALL_TRIED
        result = try_place(state, best_task, score)
        if result == FULL:
            return MORE
        if result == BAD:
            return BAD_COST
        # It fitted a moment ago, but the policy holds it: set aside, or this loop would pick it for ever.
        if result != TAKEN:
            hold(state, best_task)


@inner
def _better_pair(state, cost, best, task, best_task):
    if best_task < 0:
        return True
    if cost == best:
        # By who came first, never by place in `active_shapes`: that order changes whenever a shape runs empty.
        return state.tasks[task].sequence < state.tasks[best_task].sequence
    return cost > best if state.rules[0].largest == 1 else cost < best


@inner
def decide(state, hand, priority, score):
    """Try the queue once. MORE: attempt rows ran out; start what is placed, then call again. ASKED: the hand's turn.

    ``hand`` is None, or tables by which somebody answers in the policy's place (`live.hand`).
    """
    choice = state.choice[0]
    if begins(state, hand):
        if state.counts[0].waiting == 0:
            close_hand(state, hand)
            return ALL_TRIED
        choice.reserved = NO_RESERVATION
        look_first(state, hand)
    status = select(state, hand, priority, score)
    # Held tasks and the head's reservation belong to the whole instant, and a hand is still inside it.
    if status == ASKED or (status == MORE and keeps(state, hand)):
        return status
    close_hand(state, hand)
    end(state)
    return status


@inner
def end(state):
    """After the last decision of an instant: what was set aside stands in the queue again."""
    state.choice[0].reserved = NO_RESERVATION
    restore_held(state)
    if state.rules[0].alike == 1:
        _let_shapes_go(state)

"""Rows of attempts: what a choice becomes, and how it is unlinked again."""

from __future__ import annotations

import math

from wattflow.engine import fit, tallies, view
from wattflow.engine.parts import RICH
from wattflow.engine.tables import ASSUMED, UNKNOWN_COST
from wattflow.kernel.jit import inner, optional


@inner
def _new_attempt(state, task, part, taken):
    """Write an attempt for the choice in ``best_*``; what it needs was taken before."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    counts = state.counts[0]
    choice = state.choice[0]
    a = counts.free_attempt
    attempt = state.attempts[a]
    # There is a free row: whoever places has looked before (`decide.try_place`, `decide._place_gang`, `live.hand`).
    counts.free_attempt = attempt.next
    node = choice.best_node
    node_row = state.nodes[node]
    variant = choice.best_variant
    attempt.task = task
    attempt.part = part
    attempt.variant = variant
    attempt.node = node
    attempt.device = choice.best_device
    attempt.devices = taken
    needs = state.variants[variant]
    # What is taken now is kept in the row: `give_back` returns this, whatever a resize or a changed shape says then.
    attempt.need_u = needs.need_u
    attempt.cores_u = needs.cores_u
    attempt.memory = needs.memory
    attempt.attempt = task_row.attempt
    attempt.sibling = -1
    attempt.stage = ASSUMED  # not what the row's last attempt ended in: `life.is_on` looks for those that wait
    attempt.placed = clock.now
    attempt.ready = task_row.ready
    sequence = clock.sequence
    clock.sequence = sequence + 1
    # Unique and growing: ties of ends, losses and wakes are broken by the order of placement.
    attempt.sequence = sequence
    # Newest first. `life.is_on` and `fold.oldest_attempt` look for the smallest sequence and need no other order.
    first = node_row.first_attempt
    attempt.previous = -1
    attempt.next = first
    if first >= 0:
        state.attempts[first].previous = a
    node_row.first_attempt = a
    state.placed[counts.placed_n] = a
    counts.placed_n += 1
    counts.running += 1
    form = state.shapes[task_row.form]
    function = state.functions[form.function]
    function.running += 1
    function.started += 1
    if form.counted > 0:
        tallies.count(state, task_row.form, node, 1)
    return a


@inner
def commit(state, task, part):
    """Take the best choice for one part. The estimate of its end and its marginal joules go into the attempt."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    choice = state.choice[0]
    node = choice.best_node
    device = choice.best_device
    variant = choice.best_variant
    # Reckoned while the node is without this attempt: the curve is read at the cores allocated so far.
    added = view.node_added_w(state, variant, node, device)
    if added < UNKNOWN_COST:
        added += view.crowding_w(state, variant, node, device)
    estimate = task_row.estimate * view.work_factor(state, task_row.form, variant, node, device)
    # Before `take`: the spare room is reckoned while the node is without this attempt.
    if choice.reserved >= -1:
        fit.note_backfill(state, variant, node, clock.now + estimate, 1)
    taken = fit.take(state, variant, node, device)
    a = _new_attempt(state, task, part, taken)
    attempt = state.attempts[a]
    # NaN, not 0: unknown joules must not look like none in the record.
    attempt.marginal_j = math.nan if added >= UNKNOWN_COST else added * estimate
    # An end that is not known never comes: EASY counts on nothing that it would free.
    attempt.end = math.inf if math.isnan(estimate) else clock.now + estimate
    return a


@inner
def drop_attempt(state, a):
    """Unlink an attempt from its node and free its row."""
    attempt = state.attempts[a]
    counts = state.counts[0]
    node = attempt.node
    before = attempt.previous
    after = attempt.next
    if before >= 0:
        state.attempts[before].next = after
    else:
        state.nodes[node].first_attempt = after
    if after >= 0:
        state.attempts[after].previous = before
    shape = state.tasks[attempt.task].form
    form = state.shapes[shape]
    state.functions[form.function].running -= 1
    counts.running -= 1
    if form.counted > 0:
        tallies.count(state, shape, node, -1)
    if attempt.sibling >= 0:
        _leave_gang(state, a)
    attempt.next = counts.free_attempt
    attempt.task = -1
    # The driver's id holds the generation, so every later report about this attempt is stale (`live.inbox`).
    attempt.generation += 1
    counts.free_attempt = a


@optional(RICH)
def _leave_gang(state, a):
    """Take an attempt out of the ring of its task's parts."""
    before = a
    while state.attempts[before].sibling != a:
        before = state.attempts[before].sibling
    after = state.attempts[a].sibling
    # The last part of a ring has no sibling; −1 also says "no gang" to everybody who asks.
    state.attempts[before].sibling = after if after != before else -1

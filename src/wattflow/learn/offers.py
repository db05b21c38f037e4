"""The rows of a task: places that the flagship's rules allow, at most as many as there is room for. Compiled.

The cheapest always stands first, so that row 0 is what the flagship would do however few rows are shown.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import fit, queue, tallies
from wattflow.engine.tables import FALLING
from wattflow.kernel.jit import inner
from wattflow.learn.episode_buffers import NODE, ONE, SLOWER, VARIANT
from wattflow.live import candidate_rows
from wattflow.live.candidate_rows import BAD, PLACE
from wattflow.policy import learned, patient, pricing, view, wattflow

_BAD = np.int64(BAD)


@inner
def _those_that_take(state, variant, found):
    """Keep, of the candidates of the variant before, those whose class takes this one; how many."""
    kept = 0
    for c in range(found):
        node = state.candidates[c].node
        if state.class_ok[variant, state.nodes[node].cls] == 1:
            state.candidates[kept].node = node
            state.candidates[kept].device = state.candidates[c].device
            kept += 1
    return kept


@inner
def _is_passed_over(state, ask, task, variant, found):
    """Tell whether the flagship surely passes over all candidates of a variant, told without their prices.

    It does where the task would be late and end later than by waiting for room elsewhere (`wattflow.pass_over`).
    """
    if view.param(state, wattflow.DIAL.spare) == math.inf or view.parts_of(state, task) > 1:
        return False
    due = wattflow.due_s(state, task)
    least_s = math.inf
    any_left = False
    for c in range(found):
        node = view.node_of(state, c)
        if patient.crowded(state, variant, node):
            continue
        finish_s = pricing.finish_s(state, task, variant, c)
        if not view.has_profile(state, node) or wattflow.slower_s(state, task, finish_s, due) <= 0.0:
            return False
        least_s = min(least_s, finish_s)
        any_left = True
    return not any_left or _room_comes(state, ask, task, least_s)


@inner
def _room_comes(state, ask, task, finish_s):
    """Tell whether a task would rather wait for a place that is about to come than take one of so many seconds.

    The place for which the last one of its shape waited is looked at first: it will mostly do for this one too.
    """
    awaited = ask.awaited
    shape = state.tasks[task].form
    if awaited[shape, NODE] >= 0:
        there_s = wattflow.sooner_on_s(state, task, awaited[shape, VARIANT], awaited[shape, NODE], math.inf)
        if wattflow.holds_out(state, finish_s, there_s):
            return True
    soon_s, awaited[shape, VARIANT], awaited[shape, NODE] = wattflow.sooner(state, task, finish_s)
    return wattflow.holds_out(state, finish_s, soon_s)


@inner
def _is_better(state, task, cost, c, best):
    """Tell whether candidate c goes before the best so far, as `choose` has it."""
    choice = state.choice[0]
    if best < 0 or cost != choice.best_cost:
        return best < 0 or cost < choice.best_cost
    place = state.candidates[c]
    if state.rules[0].wishes == 1:
        rule = state.shapes[state.tasks[task].form].constraint
        liked = tallies.level(state, rule, place.node) - tallies.level(state, rule, choice.best_node)
        if liked != 0:
            return liked < 0
    if place.node != choice.best_node:
        return place.node < choice.best_node
    return place.device < choice.best_device


@inner
def _write(state, ask, r, task, variant, c, cost):
    """Write row r: candidate c of a variant."""
    row = ask.rows[r]
    place = state.candidates[c]
    row.cost = cost
    row.task = task
    row.node = place.node
    row.alike = state.groups[state.nodes[place.node].group].count
    row.kind = PLACE
    row.variant = variant
    row.origin = state.variants[variant].origin
    row.device = place.device
    row.node_row = place.node
    row.task_row = task
    _keep_parts(state, ask, r, c)


@inner
def _keep_parts(state, ask, r, c):
    """Keep what a candidate's price is made of, for those who describe the row; no number where nobody knows."""
    at = pricing.slot(view.place_of(state, learned.NOTES.kept), c)
    for i in range(pricing.WIDTH):
        ask.parts[r, i] = state.memory[at + i]
    # Parts are kept of the first candidates only, and none where the flagship has no prices.
    if c >= pricing.MOST or state.rules[0].has_score == 0 or view.param(state, wattflow.DIAL.wait) == math.inf:
        ask.parts[r, pricing.PRICE] = math.nan


@inner
def _swap(ask, a, b):
    candidate_rows.swap(ask, a, b)
    for i in range(pricing.WIDTH):
        ask.parts[a, i], ask.parts[b, i] = ask.parts[b, i], ask.parts[a, i]


@inner
def _priced(state, ask, score, task, v, n, best):
    """Write rows for the candidates of one variant that have a price, from row n on; (rows, row of the best)."""
    choice = state.choice[0]
    found = state.counts[0].candidate_n
    cost = state.cost[:found]
    most = ask.rows.size
    if state.rules[0].has_score == 1:
        score(state, task, v, cost)
        state.counts[0].scored += found
    else:
        cost[:] = 0.0
    for c in range(found):
        x = cost[c]
        if math.isnan(x):
            choice.bad_task = task
            choice.bad_variant = v
            return _BAD, best
        if x == math.inf:
            continue
        better = _is_better(state, task, x, c, best)
        if n < most:
            _write(state, ask, n, task, v, c, x)
            n += 1
        else:
            ask.ask[0].lost += 1
            if better:
                _write(state, ask, most - 1, task, v, c, x)
        if better:
            best = n - 1
            choice.best_cost = x
            choice.best_node = state.candidates[c].node
            choice.best_device = state.candidates[c].device
    return n, best


@inner
def rows_of(state, ask, score, task):
    """Write the places of a task that the flagship's rules allow, the cheapest first; (rows, whether there is room)."""
    form = state.shapes[state.tasks[task].form]
    pinned = state.tasks[task].pinned_variant
    n = np.int64(0)
    best = np.int64(-1)
    found = -1
    fits = False
    passed = False
    for v in range(form.variant_first, form.variant_first + form.variant_n):
        if pinned >= 0 and v - form.variant_first != pinned:
            continue
        # It ends no sooner than the one before on any class, so whoever passed over that one passes over it.
        if ask.follows[v] == SLOWER and passed:
            continue
        # It differs in its frequency alone: what fits the one before fits it, and the search need not be made again.
        if ask.follows[v] > 0 and found >= 0:
            found = _those_that_take(state, v, found)
        else:
            found = fit.candidates(state, v, task)
        if found == 0:
            continue
        fits = True
        if state.rules[0].has_score == 1:
            passed = _is_passed_over(state, ask, task, v, found)
            if passed:
                continue
        state.counts[0].candidate_n = found
        n, best = _priced(state, ask, score, task, v, n, best)
        if n == BAD:
            return n, fits
    # Row 0 is what the flagship would do: a learner that always takes it must run as the flagship does.
    if best > 0:
        _swap(ask, 0, best)
    return n, fits


# Which waiting tasks may find a place, told without a look at each. Compiled.
#
# The flagship looks at every waiting task at every instant, and most of them find no place: there is no room, or no
# hardware thread is left on the nodes that have room. That does not depend on the task but on its shape, and it can
# change only where a node gains room. So a shape without an *open* place is *closed* until then, and only nodes that
# gained room since are looked at again. `docs/learned.md` says why an episode is the flagship's run all the same.

FEW = 8
"""With more nodes than this that gained room, all groups of nodes are looked at instead."""
_NOWHERE = np.int64(-1)


@inner
def _has_thread(state, variant, node):
    """Tell whether the flagship would use the node: not where a task on a node in use has no thread of its own."""
    return view.busy_cores(state, node) <= 0.0 or not patient.crowded(state, variant, node)


@inner
def _takes(state, variant, need_u, memory, node, threads):
    """Tell whether a node has room for a plain variant and, asked so, a thread."""
    row = state.nodes[node]
    if row.used_u + need_u > row.capacity_u or row.used_mem + memory > row.capacity_mem:
        return False
    if row.power_state > FALLING or state.class_ok[variant, row.cls] == 0:
        return False
    return not threads or _has_thread(state, variant, node)


@inner
def _taken_by(state, ask, shape, node, threads):
    """Tell the same for any variant of a plain shape."""
    needs = ask.needs[shape]
    if needs.plain == ONE:
        return _takes(state, needs.variant, needs.need_u, needs.memory, node, threads)
    form = state.shapes[shape]
    for v in range(form.variant_first, form.variant_first + form.variant_n):
        own = state.variants[v]
        if ask.follows[v] == 0 and _takes(state, v, own.need_u, own.memory, node, threads):
            return True
    return False


@inner
def _taken_anywhere(state, ask, shape, threads):
    """Find the first node of which the same is true; −1 without one."""
    needs = ask.needs[shape]
    for at in range(state.counts[0].active_n):
        group = state.groups[state.active_groups[at]]
        if needs.plain == ONE and (group.free_u < needs.need_u or group.free_mem < needs.memory):
            continue
        if _taken_by(state, ask, shape, group.node, threads):
            return np.int64(group.node)
    return _NOWHERE


@inner
def _is_open(state, ask, shape):
    """Tell whether a task of the shape may find a place now; where it surely does not, the shape is closed."""
    if ask.needs[shape].plain == 0:
        return True
    threads = state.rules[0].has_score == 1
    # Tried first: the node that had room last mostly has it still, and one look then answers.
    last = ask.opening[shape]
    if last >= 0 and _taken_by(state, ask, shape, last, threads):
        return True
    epoch = state.clock[0].epoch
    since = ask.closed[shape]
    found = _NOWHERE
    # Below the floor the ring of freed nodes has lost some of those that gained room: all must be looked at.
    if since == 0 or epoch - since > FEW or since < state.choice[0].floor:
        found = _taken_anywhere(state, ask, shape, threads)
    else:
        for e in range(since, epoch):
            node = state.freed[e & (state.freed.size - 1)]
            if _taken_by(state, ask, shape, node, threads):
                found = np.int64(node)
                break
    if found < 0:
        close(state, ask, shape)
        return False
    ask.opening[shape] = found
    return True


@inner
def close(state, ask, shape):
    """Note that no task of the shape finds a place until a node gains room."""
    ask.closed[shape] = state.clock[0].epoch
    ask.opening[shape] = _NOWHERE


@inner
def first_open(state, ask):
    """Find the first waiting task whose shape is not closed; −1 without one.

    Of shapes whose first task stands behind one that is open nobody needs to know.
    """
    epoch = state.clock[0].epoch
    best = np.int64(-1)
    for at in range(state.counts[0].shapes_n):
        shape = state.active_shapes[at]
        if ask.closed[shape] == epoch:
            continue
        head = np.int64(state.shapes[shape].head)
        if (best < 0 or queue.stands_before(state, head, best)) and _is_open(state, ask, shape):
            best = head
    return best


@inner
def _count_before(state, ask, shape, task):
    """Count waiting tasks of a shape that stand before a task and behind the one that was looked at last."""
    asked = ask.ask[0]
    heap = state.tasks
    stack = ask.stack
    stack[0] = state.shapes[shape].head
    height = 1
    found = 0
    while height > 0:
        height -= 1
        one = stack[height]
        if not queue.stands_before(state, one, task):
            continue  # and nothing below it
        row = heap[one]
        if row.key > asked.key or (row.key == asked.key and row.sequence > asked.sequence):
            found += 1
        if row.next >= 0:
            stack[height] = row.next
            height += 1
        if row.previous >= 0:
            stack[height] = row.previous
            height += 1
    return found


@inner
def set_apart(state, ask, task):
    """Count the tasks of closed shapes that the flagship sets aside before it comes to a task.

    It prices by how many tasks wait, and those that have room but no thread are set aside in their turn; those that
    have no room stay.
    """
    asked = ask.ask[0]
    epoch = state.clock[0].epoch
    for at in range(state.counts[0].shapes_n):
        shape = state.active_shapes[at]
        if ask.closed[shape] != epoch or not queue.stands_before(state, state.shapes[shape].head, task):
            continue
        if ask.needs[shape].plain > 0 and _taken_anywhere(state, ask, shape, False) >= 0:
            asked.apart += _count_before(state, ask, shape, task)
    # The next count goes on behind this task: none is set apart twice.
    asked.key = state.tasks[task].key
    asked.sequence = state.tasks[task].sequence

"""Decisions: the policy's order and costs become attempts. Effects are the driver's business."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import fit, queue, view
from wattflow.engine.jit import jit
from wattflow.engine.tables import BEST_PAIR, EASY, MICRO, PLACED, SKIP, STRICT, UNKNOWN_COST

# Outcomes of one try
TAKEN, NO_FIT, HELD, BAD, FULL = 0, 1, 2, 3, 4
# Statuses of decide
ALL_TRIED, MORE, BAD_COST = 0, 1, 2
_NO_RESERVATION = -2


@jit
def choose(state, task, score):
    """Find the cheapest (variant, candidate) of a task; the answer stands in the clock's ``best_*`` fields."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    clock.best_cost = math.inf
    clock.best_node = -1
    shape = task_row.form
    form = state.shapes[shape]
    first = form.variant_first
    fits = False
    pinned = task_row.pinned_variant
    for v in range(first, first + form.variant_n):
        if pinned >= 0 and v - first != pinned:
            continue
        n = fit.candidates(state, v, task)
        if n == 0:
            continue
        fits = True
        cost = state.cost[:n]
        if clock.has_score == 1:
            clock.candidate_n = n
            score(state, task, v, cost)
            clock.scored += n
        else:
            cost[:] = 0.0
        for c in range(n):
            x = cost[c]
            if x <= clock.best_cost and x < math.inf:
                _consider(state, v, c, x)
            elif math.isnan(x):
                clock.bad_task = task
                clock.bad_variant = v
                return BAD
    if not fits:
        return NO_FIT
    clock.decisions += 1
    return HELD if clock.best_node < 0 else TAKEN


@jit
def _consider(state, variant, c, cost):
    """Keep a candidate if it is cheaper, or as cheap with a lower node, device or variant."""
    clock = state.clock[0]
    candidate_row = state.candidates[c]
    node = candidate_row.node
    device = candidate_row.device
    if clock.best_node >= 0 and cost == clock.best_cost:
        if node > clock.best_node:
            return
        if node == clock.best_node and device >= clock.best_device:
            return
    clock.best_cost = cost
    clock.best_node = node
    clock.best_device = device
    clock.best_variant = variant


@jit
def _new_attempt(state, task, part, taken):
    """Write an attempt for the choice in ``best_*``; what it needs was taken before."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    a = clock.free_attempt
    attempt = state.attempts[a]
    clock.free_attempt = attempt.next
    node = clock.best_node
    node_row = state.nodes[node]
    variant = clock.best_variant
    attempt.task = task
    attempt.part = part
    attempt.variant = variant
    attempt.node = node
    attempt.device = clock.best_device
    attempt.devices = taken
    attempt.attempt = task_row.attempt
    attempt.placed = clock.now
    attempt.ready = task_row.ready
    sequence = clock.sequence
    clock.sequence = sequence + 1
    attempt.sequence = sequence
    first = node_row.first_attempt
    attempt.previous = -1
    attempt.next = first
    if first >= 0:
        state.attempts[first].previous = a
    node_row.first_attempt = a
    state.placed[clock.placed_n] = a
    clock.placed_n += 1
    clock.running += 1
    fn = state.shapes[task_row.form].function
    function = state.functions[fn]
    function.running += 1
    function.started += 1
    return a


@jit
def _commit(state, task, part):
    """Take the best choice for one part. The estimate of its end and its marginal joules go into the attempt."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    node = clock.best_node
    device = clock.best_device
    variant = clock.best_variant
    added = view.node_added_w(state, variant, node, device)
    estimate = task_row.estimate * view.work_factor(state, task_row.form, variant, node, device)
    taken = fit.take(state, variant, node, device)
    a = _new_attempt(state, task, part, taken)
    attempt = state.attempts[a]
    attempt.marginal_j = math.nan if added >= UNKNOWN_COST else added * estimate
    attempt.end = math.inf if math.isnan(estimate) else clock.now + estimate
    return a


@jit
def drop_attempt(state, a):
    """Unlink an attempt from its node and free its row."""
    attempt = state.attempts[a]
    clock = state.clock[0]
    node = attempt.node
    before = attempt.previous
    after = attempt.next
    if before >= 0:
        state.attempts[before].next = after
    else:
        state.nodes[node].first_attempt = after
    if after >= 0:
        state.attempts[after].previous = before
    fn = state.shapes[state.tasks[attempt.task].form].function
    state.functions[fn].running -= 1
    clock.running -= 1
    attempt.next = clock.free_attempt
    attempt.task = -1
    clock.free_attempt = a


@jit
def _place_gang(state, task, parts, score):
    """All parts or none."""
    clock = state.clock[0]
    before = clock.placed_n
    if before + parts > state.placed.size:
        return FULL
    result = TAKEN
    for part in range(parts):
        if clock.free_attempt < 0:
            result = FULL
            break
        result = choose(state, task, score)
        if result != TAKEN:
            break
        _commit(state, task, part)
    if result != TAKEN:
        epoch = clock.epoch
        while clock.placed_n > before:
            clock.placed_n -= 1
            a = state.placed[clock.placed_n]
            variant = state.attempts[a].variant
            fit.give_back(state, variant, state.attempts[a].node, state.attempts[a].device, state.attempts[a].devices)
            drop_attempt(state, a)
        clock.epoch = epoch
    return result


@jit
def try_place(state, task, score):
    """Place a task if it fits and the policy does not hold it."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    parts = state.shapes[task_row.form].parts
    if parts == 1:
        if clock.free_attempt < 0 or clock.placed_n >= state.placed.size:
            return FULL
        result = choose(state, task, score)
        if result == TAKEN:
            _commit(state, task, 0)
    else:
        result = _place_gang(state, task, parts, score)
    if result == TAKEN:
        queue.remove(state, task)
        task_row.state = PLACED
        task_row.parts_left = parts
        state.workflows[task_row.workflow].started = 1
    return result


@jit
def _hold(state, task):
    """Set a task aside for the rest of this instant."""
    clock = state.clock[0]
    queue.remove(state, task)
    state.tasks[task].next = clock.held_first
    clock.held_first = task
    clock.held += 1


@jit
def _restore_held(state):
    clock = state.clock[0]
    task = clock.held_first
    while task >= 0:
        after = state.tasks[task].next
        queue.push_front(state, task)
        task = after
    clock.held_first = -1


@jit
def _next_task(state, priority):
    clock = state.clock[0]
    if clock.dynamic == 1:
        return queue.rekey(state, priority)
    if clock.queue == SKIP:
        return queue.first(state)
    return queue.first_of_all(state)


@jit
def _misfit_of_its_own(state, task):
    """Whether others of its shape may fit where this task does not: it is pinned, or its estimate is too long."""
    task_row = state.tasks[task]
    return task_row.pinned >= 0 or task_row.pinned_variant >= 0 or state.clock[0].limits == 1


@jit
def _decide_ordered(state, priority, score):
    clock = state.clock[0]
    while True:
        task = _next_task(state, priority)
        if task < 0:
            return ALL_TRIED
        shape = state.tasks[task].form
        result = NO_FIT
        if state.shapes[shape].failed != clock.epoch:
            result = try_place(state, task, score)
        if result == BAD:
            return BAD_COST
        if result == FULL:
            return MORE
        if result == TAKEN:
            continue
        if clock.queue == EASY:
            if clock.reserved == _NO_RESERVATION:
                reserve(state, task)
            _hold(state, task)
            continue
        if result == NO_FIT and not _misfit_of_its_own(state, task):
            state.shapes[shape].failed = clock.epoch
        elif clock.queue != STRICT:
            _hold(state, task)
        if clock.queue == STRICT:
            return ALL_TRIED


@jit
def _decide_best_pair(state, score):
    """Min-Min and Max-Min: among all waiting tasks, the one whose best cost is smallest (or largest) goes first."""
    clock = state.clock[0]
    while True:
        best_task = -1
        best = 0.0
        for at in range(clock.shapes_n):
            shape = state.active_shapes[at]
            if state.shapes[shape].failed == clock.epoch:
                continue
            task = state.shapes[shape].head
            while task >= 0:
                result = choose(state, task, score)
                if result == BAD:
                    return BAD_COST
                if result == NO_FIT and not _misfit_of_its_own(state, task):
                    state.shapes[shape].failed = clock.epoch
                    break
                if result == TAKEN and _better_pair(state, clock.best_cost, best, task, best_task):
                    best = clock.best_cost
                    best_task = task
                task = state.tasks[task].next
        if best_task < 0:
            return ALL_TRIED
        result = try_place(state, best_task, score)
        if result == FULL:
            return MORE
        if result == BAD:
            return BAD_COST
        if result != TAKEN:
            _hold(state, best_task)


@jit
def _better_pair(state, cost, best, task, best_task):
    if best_task < 0:
        return True
    if cost == best:
        return state.tasks[task].sequence < state.tasks[best_task].sequence
    return cost > best if state.clock[0].largest == 1 else cost < best


@jit
def decide(state, priority, score):
    """Try the queue once. MORE: attempt rows ran out; start what is placed, then call again."""
    clock = state.clock[0]
    if clock.waiting == 0:
        return ALL_TRIED
    clock.reserved = _NO_RESERVATION
    if clock.selection == BEST_PAIR:
        status = _decide_best_pair(state, score)
    else:
        status = _decide_ordered(state, priority, score)
    clock.reserved = _NO_RESERVATION
    _restore_held(state)
    return status


@jit
def reserve(state, task):
    """EASY: when could the head start, by the estimated ends of what runs? Sets shadow time and reserved node.

    Ends are walked in order; each gives its cores and memory back to a copy of the node's free row until the parts fit.
    """
    clock = state.clock[0]
    shape = state.tasks[task].form
    form = state.shapes[shape]
    variant = form.variant_first
    parts = form.parts
    clock.shadow = math.inf
    clock.reserved = -1
    n = 0
    for a in range(state.attempts.size):
        if state.attempts[a].task >= 0:
            state.scratch[n] = a
            n += 1
    sequences = np.empty(n, np.int64)
    for i in range(n):
        sequences[i] = state.attempts[state.scratch[i]].sequence
    order = state.scratch[:n][np.argsort(sequences)]
    ends = np.empty(n, np.float64)
    for i in range(n):
        ends[i] = state.attempts[order[i]].end
    sorted_at = np.argsort(ends, kind="mergesort")
    freed_u = np.zeros(state.nodes.size, np.int64)
    freed_mem = np.zeros(state.nodes.size, np.int64)
    fitting = 0
    for node in range(state.nodes.size):
        fitting += _parts_that_fit(state, variant, node, 0, 0)
    for i in range(n):
        a = order[sorted_at[i]]
        node = state.attempts[a].node
        before = _parts_that_fit(state, variant, node, freed_u[node], freed_mem[node])
        freed_u[node] += state.variants[state.attempts[a].variant].need_u
        freed_mem[node] += state.variants[state.attempts[a].variant].memory
        fitting += _parts_that_fit(state, variant, node, freed_u[node], freed_mem[node]) - before
        if fitting >= parts:
            clock.shadow = ends[sorted_at[i]]
            if parts == 1:
                clock.reserved = node
            return


@jit
def _parts_that_fit(state, variant, node, freed_u, freed_mem):
    needs = state.variants[variant]
    node_row = state.nodes[node]
    cls = node_row.cls
    if state.class_ok[variant, cls] == 0 or node_row.power_state > 3:
        return 0
    need = max(1, needs.need_u)
    by_cores = (node_row.capacity_u - node_row.used_u + freed_u) // need
    memory = needs.memory
    if memory > 0:
        by_memory = (state.classes[cls].memory - node_row.used_mem + freed_mem) // memory
        return min(by_cores, by_memory)
    return by_cores


@jit
def cores(amount_u):
    """Millionths of a core to cores."""
    return amount_u / MICRO

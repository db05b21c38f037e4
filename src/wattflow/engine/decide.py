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
    clock = state.clock
    clock.best_cost[0] = math.inf
    clock.best_node[0] = -1
    shape = state.tasks.form[task]
    first = state.shapes.variant_first[shape]
    fits = False
    pinned = state.tasks.pinned_variant[task]
    for v in range(first, first + state.shapes.variant_n[shape]):
        if pinned >= 0 and v - first != pinned:
            continue
        n = fit.candidates(state, v, task)
        if n == 0:
            continue
        fits = True
        cost = state.cost[:n]
        if clock.has_score[0] == 1:
            clock.candidate_n[0] = n
            score(state, task, v, cost)
            clock.scored[0] += n
        else:
            cost[:] = 0.0
        for c in range(n):
            x = cost[c]
            if x <= clock.best_cost[0] and x < math.inf:
                _consider(state, v, c, x)
            elif math.isnan(x):
                clock.bad_task[0] = task
                clock.bad_variant[0] = v
                return BAD
    if not fits:
        return NO_FIT
    clock.decisions[0] += 1
    return HELD if clock.best_node[0] < 0 else TAKEN


@jit
def _consider(state, variant, c, cost):
    """Keep a candidate if it is cheaper, or as cheap with a lower node, device or variant."""
    clock = state.clock
    node = state.candidates.node[c]
    device = state.candidates.device[c]
    if clock.best_node[0] >= 0 and cost == clock.best_cost[0]:
        if node > clock.best_node[0]:
            return
        if node == clock.best_node[0] and device >= clock.best_device[0]:
            return
    clock.best_cost[0] = cost
    clock.best_node[0] = node
    clock.best_device[0] = device
    clock.best_variant[0] = variant


@jit
def _new_attempt(state, task, part, taken):
    """Write an attempt for the choice in ``best_*``; what it needs was taken before."""
    clock = state.clock
    a = clock.free_attempt[0]
    attempts = state.attempts
    clock.free_attempt[0] = attempts.next[a]
    node = clock.best_node[0]
    variant = clock.best_variant[0]
    attempts.task[a] = task
    attempts.part[a] = part
    attempts.variant[a] = variant
    attempts.node[a] = node
    attempts.device[a] = clock.best_device[0]
    attempts.devices[a] = taken
    attempts.attempt[a] = state.tasks.attempt[task]
    attempts.placed[a] = clock.now[0]
    attempts.ready[a] = state.tasks.ready[task]
    sequence = clock.sequence[0]
    clock.sequence[0] = sequence + 1
    attempts.sequence[a] = sequence
    first = state.nodes.first_attempt[node]
    attempts.previous[a] = -1
    attempts.next[a] = first
    if first >= 0:
        attempts.previous[first] = a
    state.nodes.first_attempt[node] = a
    state.placed[clock.placed_n[0]] = a
    clock.placed_n[0] += 1
    clock.running[0] += 1
    fn = state.shapes.function[state.tasks.form[task]]
    state.functions.running[fn] += 1
    state.functions.started[fn] += 1
    return a


@jit
def _commit(state, task, part):
    """Take the best choice for one part. The estimate of its end and its marginal joules go into the attempt."""
    clock = state.clock
    node = clock.best_node[0]
    device = clock.best_device[0]
    variant = clock.best_variant[0]
    added = view.node_added_w(state, variant, node, device)
    estimate = state.tasks.estimate[task] * view.work_factor(state, state.tasks.form[task], variant, node, device)
    taken = fit.take(state, variant, node, device)
    a = _new_attempt(state, task, part, taken)
    state.attempts.marginal_j[a] = math.nan if added >= UNKNOWN_COST else added * estimate
    state.attempts.end[a] = math.inf if math.isnan(estimate) else clock.now[0] + estimate
    return a


@jit
def drop_attempt(state, a):
    """Unlink an attempt from its node and free its row."""
    attempts = state.attempts
    node = attempts.node[a]
    before = attempts.previous[a]
    after = attempts.next[a]
    if before >= 0:
        attempts.next[before] = after
    else:
        state.nodes.first_attempt[node] = after
    if after >= 0:
        attempts.previous[after] = before
    fn = state.shapes.function[state.tasks.form[attempts.task[a]]]
    state.functions.running[fn] -= 1
    state.clock.running[0] -= 1
    attempts.next[a] = state.clock.free_attempt[0]
    attempts.task[a] = -1
    state.clock.free_attempt[0] = a


@jit
def _place_gang(state, task, parts, score):
    """All parts or none."""
    clock = state.clock
    before = clock.placed_n[0]
    if before + parts > state.placed.size:
        return FULL
    result = TAKEN
    for part in range(parts):
        if clock.free_attempt[0] < 0:
            result = FULL
            break
        result = choose(state, task, score)
        if result != TAKEN:
            break
        _commit(state, task, part)
    if result != TAKEN:
        epoch = clock.epoch[0]
        while clock.placed_n[0] > before:
            clock.placed_n[0] -= 1
            a = state.placed[clock.placed_n[0]]
            variant = state.attempts.variant[a]
            fit.give_back(state, variant, state.attempts.node[a], state.attempts.device[a], state.attempts.devices[a])
            drop_attempt(state, a)
        clock.epoch[0] = epoch
    return result


@jit
def try_place(state, task, score):
    """Place a task if it fits and the policy does not hold it."""
    parts = state.shapes.parts[state.tasks.form[task]]
    if parts == 1:
        if state.clock.free_attempt[0] < 0 or state.clock.placed_n[0] >= state.placed.size:
            return FULL
        result = choose(state, task, score)
        if result == TAKEN:
            _commit(state, task, 0)
    else:
        result = _place_gang(state, task, parts, score)
    if result == TAKEN:
        queue.remove(state, task)
        state.tasks.state[task] = PLACED
        state.tasks.parts_left[task] = parts
        state.workflows.started[state.tasks.workflow[task]] = 1
    return result


@jit
def _hold(state, task):
    """Set a task aside for the rest of this instant."""
    queue.remove(state, task)
    state.tasks.next[task] = state.clock.held_first[0]
    state.clock.held_first[0] = task
    state.clock.held[0] += 1


@jit
def _restore_held(state):
    task = state.clock.held_first[0]
    while task >= 0:
        after = state.tasks.next[task]
        queue.push_front(state, task)
        task = after
    state.clock.held_first[0] = -1


@jit
def _next_task(state, priority):
    if state.clock.dynamic[0] == 1:
        return queue.rekey(state, priority)
    if state.clock.queue[0] == SKIP:
        return queue.first(state)
    return queue.first_of_all(state)


@jit
def _decide_ordered(state, priority, score):
    clock = state.clock
    while True:
        task = _next_task(state, priority)
        if task < 0:
            return ALL_TRIED
        shape = state.tasks.form[task]
        result = NO_FIT
        if state.shapes.failed[shape] != clock.epoch[0]:
            result = try_place(state, task, score)
        if result == BAD:
            return BAD_COST
        if result == FULL:
            return MORE
        if result == TAKEN:
            continue
        if clock.queue[0] == EASY:
            if clock.reserved[0] == _NO_RESERVATION:
                reserve(state, task)
            _hold(state, task)
        elif result == NO_FIT:
            state.shapes.failed[shape] = clock.epoch[0]
            if clock.queue[0] == STRICT:
                return ALL_TRIED
        elif clock.queue[0] == STRICT:
            return ALL_TRIED
        else:
            _hold(state, task)


@jit
def _decide_best_pair(state, score):
    """Min-Min and Max-Min: among all waiting tasks, the one whose best cost is smallest (or largest) goes first."""
    clock = state.clock
    while True:
        best_task = -1
        best = 0.0
        for at in range(clock.shapes_n[0]):
            shape = state.active_shapes[at]
            if state.shapes.failed[shape] == clock.epoch[0]:
                continue
            task = state.shapes.head[shape]
            while task >= 0:
                result = choose(state, task, score)
                if result == BAD:
                    return BAD_COST
                if result == NO_FIT:
                    state.shapes.failed[shape] = clock.epoch[0]
                    break
                if result == TAKEN and _better_pair(state, clock.best_cost[0], best, task, best_task):
                    best = clock.best_cost[0]
                    best_task = task
                task = state.tasks.next[task]
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
        return state.tasks.sequence[task] < state.tasks.sequence[best_task]
    return cost > best if state.clock.largest[0] == 1 else cost < best


@jit
def decide(state, priority, score):
    """Try the queue once. MORE: attempt rows ran out; start what is placed, then call again."""
    clock = state.clock
    if clock.waiting[0] == 0:
        return ALL_TRIED
    clock.reserved[0] = _NO_RESERVATION
    if clock.selection[0] == BEST_PAIR:
        status = _decide_best_pair(state, score)
    else:
        status = _decide_ordered(state, priority, score)
    clock.reserved[0] = _NO_RESERVATION
    _restore_held(state)
    return status


@jit
def reserve(state, task):
    """EASY: when could the head start, by the estimated ends of what runs? Sets shadow time and reserved node.

    Ends are walked in order; each gives its cores and memory back to a copy of the node's free row until the parts fit.
    """
    clock = state.clock
    shape = state.tasks.form[task]
    variant = state.shapes.variant_first[shape]
    parts = state.shapes.parts[shape]
    clock.shadow[0] = math.inf
    clock.reserved[0] = -1
    n = 0
    for a in range(state.attempts.size):
        if state.attempts.task[a] >= 0:
            state.scratch[n] = a
            n += 1
    order = state.scratch[:n]
    ends = np.empty(n, np.float64)
    for i in range(n):
        ends[i] = state.attempts.end[order[i]]
    sorted_at = np.argsort(ends, kind="mergesort")
    freed_u = np.zeros(state.nodes.size, np.int64)
    freed_mem = np.zeros(state.nodes.size, np.int64)
    fitting = 0
    for node in range(state.nodes.size):
        fitting += _parts_that_fit(state, variant, node, 0, 0)
    for i in range(n):
        a = order[sorted_at[i]]
        node = state.attempts.node[a]
        before = _parts_that_fit(state, variant, node, freed_u[node], freed_mem[node])
        freed_u[node] += state.variants.need_u[state.attempts.variant[a]]
        freed_mem[node] += state.variants.memory[state.attempts.variant[a]]
        fitting += _parts_that_fit(state, variant, node, freed_u[node], freed_mem[node]) - before
        if fitting >= parts:
            clock.shadow[0] = ends[sorted_at[i]]
            if parts == 1:
                clock.reserved[0] = node
            return


@jit
def _parts_that_fit(state, variant, node, freed_u, freed_mem):
    cls = state.nodes.cls[node]
    if state.class_ok[variant, cls] == 0 or state.nodes.power_state[node] > 3:
        return 0
    need = max(1, state.variants.need_u[variant])
    by_cores = (state.nodes.capacity_u[node] - state.nodes.used_u[node] + freed_u) // need
    memory = state.variants.memory[variant]
    if memory > 0:
        by_memory = (state.classes.memory[cls] - state.nodes.used_mem[node] + freed_mem) // memory
        return min(by_cores, by_memory)
    return by_cores


@jit
def cores(amount_u):
    """Millionths of a core to cores."""
    return amount_u / MICRO

"""Decisions: the policy's order and costs become attempts. Effects are the driver's business."""

from __future__ import annotations

import math

from wattflow.engine import fit, queue, tallies, timers, view
from wattflow.engine.tables import BEST_PAIR, EASY, MICRO, PARKED, PLACED, SKIP, STRICT, UNKNOWN_COST
from wattflow.kernel.jit import inner

# Outcomes of one try
TAKEN, NO_FIT, HELD, BAD, FULL = 0, 1, 2, 3, 4
# Statuses of decide
ALL_TRIED, MORE, BAD_COST = 0, 1, 2
_NO_RESERVATION = -2


@inner
def choose(state, task, score):
    """Find the cheapest (variant, candidate) of a task; the answer stands in ``choice``."""
    task_row = state.tasks[task]
    rules = state.rules[0]
    counts = state.counts[0]
    choice = state.choice[0]
    choice.best_cost = math.inf
    choice.best_node = -1
    shape = task_row.form
    form = state.shapes[shape]
    first = form.variant_first
    limit = rules.score_limit
    fits = False
    pinned = task_row.pinned_variant
    for v in range(first, first + form.variant_n):
        if pinned >= 0 and v - first != pinned:
            continue
        if limit > 0:
            choice.scan_left = counts.active_n
            if choice.scan_at >= counts.active_n:
                choice.scan_at = 0
        finite = 0
        while True:
            n = fit.candidates(state, v, task)
            if n > 0:
                fits = True
            cost = state.cost[:n]
            if rules.has_score == 1 and n > 0:
                counts.candidate_n = n
                score(state, task, v, cost)
                counts.scored += n
            else:
                cost[:] = 0.0
            for c in range(n):
                x = cost[c]
                if x < math.inf:
                    finite += 1
                    if x <= choice.best_cost:
                        _consider(state, v, c, x, form.constraint)
                elif math.isnan(x):
                    choice.bad_task = task
                    choice.bad_variant = v
                    return BAD
            # A cap counts finite costs: a policy that says inf of many nodes still gets to see the others.
            if limit == 0 or choice.scan_left == 0 or finite >= limit:
                break
    if not fits:
        return NO_FIT
    counts.decisions += 1
    return HELD if choice.best_node < 0 else TAKEN


@inner
def _consider(state, variant, c, cost, rule):
    """Keep a candidate if it is cheaper, or as cheap and liked better, or with a lower node or device."""
    choice = state.choice[0]
    candidate_row = state.candidates[c]
    node = candidate_row.node
    device = candidate_row.device
    if choice.best_node >= 0 and cost == choice.best_cost:
        liked = 0
        if state.rules[0].wishes == 1:
            liked = tallies.level(state, rule, node) - tallies.level(state, rule, choice.best_node)
        if liked > 0 or (liked == 0 and node > choice.best_node):
            return
        if node == choice.best_node and device >= choice.best_device:
            return
    choice.best_cost = cost
    choice.best_node = node
    choice.best_device = device
    choice.best_variant = variant


@inner
def _new_attempt(state, task, part, taken):
    """Write an attempt for the choice in ``best_*``; what it needs was taken before."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    counts = state.counts[0]
    choice = state.choice[0]
    a = counts.free_attempt
    attempt = state.attempts[a]
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
    attempt.need_u = needs.need_u
    attempt.cores_u = needs.cores_u
    attempt.memory = needs.memory
    attempt.attempt = task_row.attempt
    attempt.sibling = -1
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
def _commit(state, task, part):
    """Take the best choice for one part. The estimate of its end and its marginal joules go into the attempt."""
    task_row = state.tasks[task]
    clock = state.clock[0]
    choice = state.choice[0]
    node = choice.best_node
    device = choice.best_device
    variant = choice.best_variant
    added = view.node_added_w(state, variant, node, device)
    if added < UNKNOWN_COST:
        added += view.crowding_w(state, variant, node, device)
    estimate = task_row.estimate * view.work_factor(state, task_row.form, variant, node, device)
    if choice.reserved >= -1:
        fit.note_backfill(state, variant, node, clock.now + estimate, 1)
    taken = fit.take(state, variant, node, device)
    a = _new_attempt(state, task, part, taken)
    attempt = state.attempts[a]
    attempt.marginal_j = math.nan if added >= UNKNOWN_COST else added * estimate
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
    attempt.generation += 1
    counts.free_attempt = a


@inner
def _leave_gang(state, a):
    """Take an attempt out of the ring of its task's parts."""
    before = a
    while state.attempts[before].sibling != a:
        before = state.attempts[before].sibling
    after = state.attempts[a].sibling
    state.attempts[before].sibling = after if after != before else -1


@inner
def never_was(state, epoch):
    """Placements were undone: no node has gained room since that epoch. What the ring lost by it is noted."""
    clock = state.clock[0]
    if clock.epoch > epoch:
        state.choice[0].floor = clock.epoch - state.freed.size
        clock.epoch = epoch


@inner
def _place_gang(state, task, parts, score):
    """All parts or none."""
    counts = state.counts[0]
    before = counts.placed_n
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
        _commit(state, task, part)
    if result != TAKEN:
        while counts.placed_n > before:
            counts.placed_n -= 1
            a = state.placed[counts.placed_n]
            attempt = state.attempts[a]
            fit.give_back(state, a)
            if state.choice[0].reserved >= -1:
                fit.note_backfill(state, attempt.variant, attempt.node, attempt.end, -1)
            drop_attempt(state, a)
        never_was(state, epoch)
        return result
    for part in range(parts):
        state.attempts[state.placed[before + part]].sibling = state.placed[before + (part + 1) % parts]
    return result


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
            _commit(state, task, 0)
    else:
        result = _place_gang(state, task, parts, score)
    if result == TAKEN:
        queue.remove(state, task)
        task_row.state = PLACED
        task_row.parts_left = parts
        state.workflows[task_row.workflow].started = 1
    return result


@inner
def _hold(state, task):
    """Set a task aside for the rest of this instant."""
    counts = state.counts[0]
    queue.remove(state, task)
    state.tasks[task].next = counts.held_first
    counts.held_first = task
    counts.held += 1


@inner
def park(state, task, until):
    """Take a held task out of the queue until the time that the policy named for it; False without room for that."""
    if state.counts[0].timer_n + 1 >= state.timers.size:
        return False
    queue.remove(state, task)
    state.tasks[task].state = PARKED
    state.marks[task].until = until
    timers.push(state, until, timers.PARK, task, state.marks[task].generation)
    state.counts[0].held += 1
    return True


@inner
def _restore_held(state):
    counts = state.counts[0]
    task = counts.held_first
    while task >= 0:
        after = state.tasks[task].next
        queue.push_front(state, task)
        task = after
    counts.held_first = -1


@inner
def _next_task(state, priority):
    rules = state.rules[0]
    if rules.dynamic == 1:
        return queue.rekey(state, priority)
    if rules.queue == SKIP:
        return queue.first(state)
    return queue.first_of_all(state)


@inner
def _misfit_of_its_own(state, task):
    """Whether others of its shape may fit where this task does not: it is pinned, or its estimate is too long."""
    task_row = state.tasks[task]
    return task_row.pinned >= 0 or task_row.pinned_variant >= 0 or state.rules[0].limits == 1


@inner
def _decide_ordered(state, priority, score):
    clock = state.clock[0]
    rules = state.rules[0]
    choice = state.choice[0]
    while True:
        task = _next_task(state, priority)
        if task < 0:
            return ALL_TRIED
        shape = state.tasks[task].form
        result = NO_FIT
        retry_at = clock.retry_at
        own = math.inf
        if state.shapes[shape].failed != clock.epoch:
            if rules.parks == 1:
                clock.retry_at = math.inf
            result = try_place(state, task, score)
            if rules.parks == 1:
                own = clock.retry_at
                clock.retry_at = min(own, retry_at)
        if result == BAD:
            return BAD_COST
        if result == FULL:
            return MORE
        if result == TAKEN:
            continue
        if rules.queue == EASY:
            if choice.reserved == _NO_RESERVATION:
                reserve(state, task)
            _hold(state, task)
            continue
        if result == HELD and own < math.inf and park(state, task, own):
            clock.retry_at = retry_at
            continue
        if result == NO_FIT and not _misfit_of_its_own(state, task):
            state.shapes[shape].failed = clock.epoch
        elif rules.queue != STRICT:
            _hold(state, task)
        if rules.queue == STRICT:
            return ALL_TRIED


@inner
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
                if result == NO_FIT and not _misfit_of_its_own(state, task):
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
        if result != TAKEN:
            _hold(state, best_task)


@inner
def _better_pair(state, cost, best, task, best_task):
    if best_task < 0:
        return True
    if cost == best:
        return state.tasks[task].sequence < state.tasks[best_task].sequence
    return cost > best if state.rules[0].largest == 1 else cost < best


@inner
def look_again(state):
    """A shape that fitted nowhere needs a new try only if one of the nodes that gained room since would take it."""
    epoch = state.clock[0].epoch
    floor = state.choice[0].floor
    for at in range(state.counts[0].shapes_n):
        form = state.shapes[state.active_shapes[at]]
        since = form.failed
        if since == 0 or since == epoch or epoch - since > state.freed.size or since < floor:
            continue
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
def decide(state, priority, score):
    """Try the queue once. MORE: attempt rows ran out; start what is placed, then call again."""
    rules = state.rules[0]
    counts = state.counts[0]
    choice = state.choice[0]
    if counts.waiting == 0:
        return ALL_TRIED
    choice.reserved = _NO_RESERVATION
    if rules.queue == SKIP:
        look_again(state)
    if rules.selection == BEST_PAIR:
        status = _decide_best_pair(state, score)
    else:
        status = _decide_ordered(state, priority, score)
    choice.reserved = _NO_RESERVATION
    _restore_held(state)
    return status


@inner
def reserve(state, task):
    """EASY: when could the head start, by the estimated ends of what runs? Sets shadow time and reserved node.

    Ends are walked in order; each gives its cores and memory back to a copy of the node's free row until the parts fit.
    What fits beyond the head's parts then is spare: others may hold it past the shadow time.
    """
    choice = state.choice[0]
    shape = state.tasks[task].form
    form = state.shapes[shape]
    variant = form.variant_first
    parts = form.parts
    choice.shadow = math.inf
    choice.reserved = -1
    choice.head = variant
    choice.spare = 0
    n = 0
    for a in range(state.attempts.size):
        if state.attempts[a].task >= 0:
            state.scratch[n] = a
            n += 1
    for at in range(n // 2 - 1, -1, -1):
        _sift_end(state, at, n)
    fitting = 0
    for node in range(state.nodes.size):
        state.nodes[node].freed_u = 0
        state.nodes[node].freed_mem = 0
        fitting += fit.rooms(state, variant, node, 0, 0)
    while n > 0:
        attempt = state.attempts[state.scratch[0]]
        if attempt.end > choice.shadow:
            return
        node = attempt.node
        before = fit.rooms(state, variant, node, 0, 0)
        state.nodes[node].freed_u += attempt.need_u
        state.nodes[node].freed_mem += attempt.memory
        fitting += fit.rooms(state, variant, node, 0, 0) - before
        if fitting >= parts:
            # What ends at the same moment adds to what is spare.
            if parts == 1 and choice.shadow == math.inf:
                choice.reserved = node
            choice.shadow = attempt.end
            choice.spare = fitting - parts
        n -= 1
        state.scratch[0] = state.scratch[n]
        _sift_end(state, 0, n)


@inner
def _ends_before(state, a, b):
    first = state.attempts[a]
    second = state.attempts[b]
    return first.end < second.end or (first.end == second.end and first.sequence < second.sequence)


@inner
def _sift_end(state, at, n):
    """Keep ``scratch[:n]`` a heap of attempts by estimated end."""
    heap = state.scratch
    moved = heap[at]
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and _ends_before(state, heap[child + 1], heap[child]):
            child += 1
        if not _ends_before(state, heap[child], moved):
            break
        heap[at] = heap[child]
        at = child
    if n > 0:
        heap[at] = moved


@inner
def cores(amount_u):
    """Millionths of a core to cores."""
    return amount_u / MICRO

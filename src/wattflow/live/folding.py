"""The first half of a compiled step: a step's events are folded in their fixed order, then the timers that are due."""

from __future__ import annotations

from wattflow.engine import agenda, fold, kinds, life, queue, reports, structure
from wattflow.engine.tables import DOWN, GIVE_UP, PARKED, READY, RETRY, UNKNOWN
from wattflow.kernel.jit import inner

# Statuses of the two halves of a step
OK, GROW_EDGES, GROW_ATTEMPTS, BAD_COST = 0, 1, 2, 3


@inner
def _generation(identity):
    return (identity >> kinds.ROW_BITS) & kinds.GENERATION_MASK


@inner
def _live_row(state, identity):
    """Find the row that an id names; −1, counted, when it is stale."""
    row = identity & kinds.ROW_MASK
    generation = _generation(identity)
    what = identity >> kinds.ID_SHIFT
    if what == kinds.ATTEMPT_ID:
        # A free row has the generation of its next life already: an id with it was never given.
        if state.attempts[row].generation & kinds.GENERATION_MASK == generation and state.attempts[row].task >= 0:
            return row
    elif what == kinds.TASK_ID:
        # A task of an open workflow stays in its row after its end: a late edge or CANCEL may name it.
        if state.marks[row].generation & kinds.GENERATION_MASK == generation:
            return row
    elif what == kinds.NODE_ID:
        if state.node_marks[row].generation & kinds.GENERATION_MASK == generation and state.nodes[row].pos >= 0:
            return row
    elif what == kinds.WORKFLOW_ID and state.workflows[row].generation & kinds.GENERATION_MASK == generation:
        return row
    state.counts[0].stale += 1
    return -1


@inner
def _sort(desk):
    """Order of the events: by kind, and within a kind as they were put."""
    n = desk.words[0].events
    # A counting sort: stable, so that events of one kind stay in the order of `put`, and without a comparison.
    for kind in range(kinds.KINDS):
        desk.tally[kind] = 0
    for i in range(n):
        desk.tally[desk.events[i].kind] += 1
    first = 0
    for kind in range(kinds.KINDS):
        count = desk.tally[kind]
        desk.tally[kind] = first
        first += count
    for i in range(n):
        kind = desk.events[i].kind
        desk.order[desk.tally[kind]] = i
        desk.tally[kind] += 1


@inner
def _reject(desk, i, reason):
    words = desk.words[0]
    row = desk.rejected[words.rejected]
    words.rejected += 1
    row.kind = desk.events[i].kind
    row.who = desk.events[i].who
    row.reason = reason


@inner
def _arrive_later(state, desk, task):
    """Let a new task arrive in this step, after all other events, or at its release."""
    words = desk.words[0]
    # A row may be given up and used again before its release: the generation says whose timer it is.
    if state.tasks[task].release > state.clock[0].now:
        agenda.push(state, state.tasks[task].release, agenda.RELEASE, task, state.marks[task].generation)
    else:
        desk.arrivals[words.arriving] = task
        words.arriving += 1


@inner
def _note_change(state, desk, w):
    """List a workflow whose tasks or edges changed in this step, once."""
    words = desk.words[0]
    if w > 0 and state.workflows[w].dirty == 1:
        # 1: it changed; 2: it changed and is listed. `Engine._note_places` sets it back once the policy has seen it.
        state.workflows[w].dirty = 2
        desk.changed[words.changed] = w
        words.changed += 1


@inner
def _fold_task(state, desk, i, row):
    w = state.tasks[row].workflow
    if w > 0 and state.workflows[w].sealed == 1:
        _reject(desk, i, kinds.WORKFLOW_SEALED)
        # It is entered and ended at once, so that the caller, who holds its id already, hears of its end.
        structure.add_task(state, row)
        structure.cancel(state, row)
        return
    structure.add_task(state, row)
    _note_change(state, desk, w)
    if w == 0:
        words = desk.words[0]
        desk.fresh[words.fresh] = row
        words.fresh += 1
    if state.tasks[row].form == 0:
        state.tasks[row].state = UNKNOWN
    else:
        _arrive_later(state, desk, row)


@inner
def _fold_edge(state, desk, i, parent):
    child = _live_row(state, desk.events[i].other)
    if child < 0:
        return OK
    answer = structure.add_edge(state, parent, child, desk.events[i].x)
    # Nothing of the edge is written yet; the same event is folded again when there is room.
    if answer == kinds.FULL:
        return GROW_EDGES
    if answer != kinds.ADDED:
        _reject(desk, i, answer)
        if answer == kinds.DEAD_PARENT:
            structure.cancel(state, child)
    else:
        _note_change(state, desk, state.tasks[child].workflow)
    return OK


@inner
def _fold_estimate(state, row, estimate_s, priority):
    task = state.tasks[row]
    task.estimate = estimate_s
    rules = state.rules[0]
    if task.state == READY and rules.has_priority == 1 and rules.dynamic == 0:
        # The key says where it stands: it must be out of the queue while the key changes.
        queue.take_out(state, row)
        task.key = priority(state, row)
        queue.reinsert(state, row)


@inner
def _fold_attempt(state, desk, event, a, priority):
    kind = event.kind
    if kind == kinds.STARTED:
        reports.started(state, a)
        return
    # Looked up first: a finished task without a workflow gives its row back.
    w = state.tasks[state.attempts[a].task].workflow
    if kind == kinds.FINISHED:
        life.finished(state, desk, a, priority)
    elif kind == kinds.FAILED:
        life.failed(state, desk, a, 0, RETRY if event.a == 1 else GIVE_UP, priority)
    elif kind == kinds.REFUSED:
        reports.refused(state, desk, a, event.x, priority)
    elif kind == kinds.PREEMPT:
        reports.preempt(state, a)
    elif kind == kinds.RESIZE:
        reports.resize(state, a, event.a, event.b)
    structure.close(state, w)


@inner
def _fold_node(state, desk, event, node, priority):
    kind = event.kind
    if kind == kinds.GONE:
        reports.node_state(state, desk, node, DOWN, priority)
    elif kind == kinds.COLD:
        reports.cold(state, desk, node, event.other)
    elif kind == kinds.LOAD and event.other > 0:
        # A node's own number of a resource changed (`Inbox.put_more`), not what others use of it.
        if event.b == 1:
            reports.add_count(state, node, event.other - 1, event.a)
        else:
            reports.load_count(state, node, event.other - 1, event.a)
    elif kind == kinds.LOAD:
        reports.load(state, node, event.a, event.b)
    else:
        if event.a >= 0 or event.b >= 0:
            reports.set_room(state, node, event.a, event.b)
        if event.other >= 0:
            reports.node_state(state, desk, node, event.other, priority)


@inner
def _fold_workflow(state, event, w):
    if event.kind == kinds.CANCEL:
        structure.cancel_workflow(state, w)
    else:
        state.workflows[w].sealed = 1
    structure.close(state, w)


@inner
def _fold_one(state, desk, i, priority):
    event = desk.events[i]
    row = _live_row(state, event.who)
    if row < 0:
        return OK
    what = event.who >> kinds.ID_SHIFT
    if what == kinds.ATTEMPT_ID:
        _fold_attempt(state, desk, event, row, priority)
    elif what == kinds.NODE_ID:
        _fold_node(state, desk, event, row, priority)
    elif what == kinds.WORKFLOW_ID:
        _fold_workflow(state, event, row)
    elif event.kind == kinds.TASK:
        _fold_task(state, desk, i, row)
    elif event.kind == kinds.EDGE:
        return _fold_edge(state, desk, i, row)
    elif event.kind == kinds.ESTIMATE:
        _fold_estimate(state, row, event.x, priority)
    elif event.kind == kinds.SEAL:
        structure.seal_placeholder(state, row)
    elif event.kind == kinds.CANCEL:
        w = state.tasks[row].workflow
        if not structure.cancel(state, row):
            state.counts[0].stale += 1
        structure.close(state, w)
    return OK


@inner
def _due(state, desk, priority):
    """Fold the timers that are due. Released tasks arrive after those of this step's events."""
    counts = state.counts[0]
    words = desk.words[0]
    while counts.timer_n > 0 and state.timers[0].time <= state.clock[0].now:
        timer = state.timers[0]
        what = timer.what
        who = timer.who
        generation = timer.generation
        if what == agenda.RELEASE:
            # The next step goes on here: the timer stays, and `wake_at` is its time, which has come.
            if words.arriving >= desk.arrivals.size:
                return
            if state.marks[who].generation == generation:
                desk.arrivals[words.arriving] = who
                words.arriving += 1
        elif what == agenda.PARK:
            if state.marks[who].generation == generation and state.tasks[who].state == PARKED:
                reports.unpark(state, who)
        elif what == agenda.SLEEP and state.nodes[who].pos >= 0 and fold.idles_still(state, who, generation):
            life.fall_asleep(state, desk, who)
        agenda.pop(state)
        if what == agenda.WARM and state.nodes[who].pos >= 0:
            life.warmed(state, desk, who, generation)  # may look at its node later: the room of this timer is free


@inner
def fold_events(state, desk, functions, now):
    """Fold all events, then the timers that are due. GROW_EDGES: make room and call again."""
    priority = functions.priority
    clock = state.clock[0]
    words = desk.words[0]
    # Called again after GROW_EDGES, it goes on with the event that did not fit: what was folded stays.
    if words.folded == 0:
        clock.now = now
        clock.instant += 1
        words.arriving = 0
        words.fresh = 0
        words.changed = 0
        words.placements = 0
        words.actions = 0
        words.rejected = 0
        state.counts[0].action_n = 0
        state.counts[0].ended_n = 0
        if words.events > 1:
            _sort(desk)
        else:
            desk.order[0] = 0
    while words.folded < words.events:
        status = _fold_one(state, desk, desk.order[words.folded], priority)
        if status != OK:
            return status
        words.folded += 1
    # Once all kinds are folded: a SEAL may come before the end of the last parent, or after it.
    structure.settle_placeholders(state, priority)
    _due(state, desk, priority)
    words.events = 0
    words.folded = 0
    return OK

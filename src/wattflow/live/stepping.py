"""The compiled step: events are folded in their fixed order, tasks arrive, decisions fall, results are listed."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import containers, decide, fold, queue, release, reports, rows, structure, timers
from wattflow.engine.tables import (
    ACT_CAP,
    ACT_FREQUENCY,
    ACT_SLEEP,
    ACT_TIMER,
    ACT_WAKE,
    ACT_WARM,
    GIVE_UP,
    ON,
    PARKED,
    READY,
    RETRY,
    UNKNOWN,
    WAITING,
)
from wattflow.kernel.jit import inner

# Statuses of the two halves of a step
OK, GROW_EDGES, GROW_ATTEMPTS, BAD_COST = 0, 1, 2, 3
# Kinds of events, as in `protocol.Kind`
TASK, EDGE, ESTIMATE, STARTED, FINISHED, FAILED, REFUSED, PREEMPT = 0, 1, 2, 3, 4, 5, 6, 7
NODE, GONE, LOAD, RESIZE, CANCEL, SEAL, KINDS = 8, 9, 10, 11, 12, 13, 14
_NODE_ID, _TASK_ID, _ATTEMPT_ID, _WORKFLOW_ID = 1, 2, 3, 5
_ROWS = 0xFFFFFFFF
_GENERATIONS = 0x7FFFFFF
# Reasons of rejections beyond those of `structure.add_edge`
WORKFLOW_SEALED = 7


@inner
def _generation(identity):
    return (identity >> 32) & _GENERATIONS


@inner
def _live_row(state, identity):
    """The row that an id names; −1, counted, when it is stale."""
    row = identity & _ROWS
    generation = _generation(identity)
    what = identity >> 59
    if what == _ATTEMPT_ID:
        if state.attempts[row].generation & _GENERATIONS == generation and state.attempts[row].task >= 0:
            return row
    elif what == _TASK_ID:
        if state.marks[row].generation & _GENERATIONS == generation:
            return row
    elif what == _NODE_ID:
        if state.node_marks[row].generation & _GENERATIONS == generation and state.nodes[row].pos >= 0:
            return row
    elif what == _WORKFLOW_ID and state.workflows[row].generation & _GENERATIONS == generation:
        return row
    state.counts[0].stale += 1
    return -1


@inner
def _sort(desk):
    """Order of the events: by kind, and within a kind as they were put."""
    n = desk.words[0].events
    for kind in range(KINDS):
        desk.tally[kind] = 0
    for i in range(n):
        desk.tally[desk.events[i].kind] += 1
    first = 0
    for kind in range(KINDS):
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
    """A new task arrives in this step, after all other events, or at its release."""
    words = desk.words[0]
    if state.tasks[task].release > state.clock[0].now:
        timers.push(state, state.tasks[task].release, timers.RELEASE, task, state.marks[task].generation)
    else:
        desk.arrivals[words.arriving] = task
        words.arriving += 1


@inner
def _note_change(state, desk, w):
    """List a workflow whose tasks or edges changed in this step, once."""
    words = desk.words[0]
    if w > 0 and state.workflows[w].dirty == 1:
        state.workflows[w].dirty = 2
        desk.changed[words.changed] = w
        words.changed += 1


@inner
def _fold_task(state, desk, i, row):
    w = state.tasks[row].workflow
    if w > 0 and state.workflows[w].sealed == 1:
        _reject(desk, i, WORKFLOW_SEALED)
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
    if answer == structure.FULL:
        return GROW_EDGES
    if answer != structure.ADDED:
        _reject(desk, i, answer)
        if answer == structure.DEAD_PARENT:
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
        queue.take_out(state, row)
        task.key = priority(state, row)
        queue.reinsert(state, row)


@inner
def _fold_attempt(state, event, a, priority):
    kind = event.kind
    if kind == STARTED:
        reports.started(state, a)
        return
    w = state.tasks[state.attempts[a].task].workflow
    if kind == FINISHED:
        reports.finished(state, a, priority)
    elif kind == FAILED:
        reports.failed(state, a, RETRY if event.a == 1 else GIVE_UP, priority)
    elif kind == REFUSED:
        reports.refused(state, a, event.x, priority)
    elif kind == PREEMPT:
        reports.preempt(state, a)
    elif kind == RESIZE:
        reports.resize(state, a, event.a, event.b)
    structure.close(state, w)


@inner
def _fold_node(state, event, node, priority):
    kind = event.kind
    if kind == GONE:
        reports.node_state(state, node, 4, priority)
    elif kind == LOAD and event.other > 0:
        if event.b == 1:
            reports.add_count(state, node, event.other - 1, event.a)
        else:
            reports.load_count(state, node, event.other - 1, event.a)
    elif kind == LOAD:
        reports.load(state, node, event.a, event.b)
    else:
        if event.a >= 0 or event.b >= 0:
            reports.set_room(state, node, event.a, event.b)
        if event.other >= 0:
            reports.node_state(state, node, event.other, priority)


@inner
def _fold_workflow(state, event, w):
    if event.kind == CANCEL:
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
    what = event.who >> 59
    if what == _ATTEMPT_ID:
        _fold_attempt(state, event, row, priority)
    elif what == _NODE_ID:
        _fold_node(state, event, row, priority)
    elif what == _WORKFLOW_ID:
        _fold_workflow(state, event, row)
    elif event.kind == TASK:
        _fold_task(state, desk, i, row)
    elif event.kind == EDGE:
        return _fold_edge(state, desk, i, row)
    elif event.kind == ESTIMATE:
        _fold_estimate(state, row, event.x, priority)
    elif event.kind == SEAL:
        structure.seal_placeholder(state, row)
    elif event.kind == CANCEL:
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
        if what == timers.RELEASE:
            if words.arriving >= desk.arrivals.size:
                return
            if state.marks[who].generation == generation:
                desk.arrivals[words.arriving] = who
                words.arriving += 1
        elif what == timers.PARK:
            if state.marks[who].generation == generation and state.tasks[who].state == PARKED:
                reports.unpark(state, who)
        elif what == timers.SLEEP:
            if state.nodes[who].pos >= 0 and fold.idles_still(state, who, generation):
                reports.fall_asleep(state, who)
        elif what == timers.WARM and state.nodes[who].pos >= 0 and state.nodes[who].power_state == ON:
            containers.keep(state, who, generation)
        timers.pop(state)


def fold_events(state, desk, functions, now):  # type: ignore[no-untyped-def]
    """The first half of a step, alone; see `_fold_events`."""
    return _fold_events(state, desk, functions, now)


def decide_all(state, desk, functions):  # type: ignore[no-untyped-def]
    """The second half of a step, alone; see `_decide_all`."""
    return _decide_all(state, desk, functions)


def run_step(state, desk, functions, now, events):  # type: ignore[no-untyped-def]
    """Both halves in one call, for policies that do not look at workflows between them."""
    desk.words[0].events = events
    status = _fold_events(state, desk, functions, now)
    return status if status != OK else _decide_all(state, desk, functions)


@inner
def _fold_events(state, desk, functions, now):
    """The first half: all events, then the timers that are due. GROW_EDGES: make room and call again."""
    priority = functions.priority
    clock = state.clock[0]
    words = desk.words[0]
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
    structure.settle_placeholders(state, priority)
    _due(state, desk, priority)
    words.events = 0
    words.folded = 0
    return OK


@inner
def _list_placements(state, desk):
    counts = state.counts[0]
    words = desk.words[0]
    for i in range(counts.placed_n):
        a = state.placed[i]
        attempt = state.attempts[a]
        reports.begin(state, a)
        row = desk.placements[words.placements]
        words.placements += 1
        node = attempt.node
        needs = state.variants[attempt.variant]
        row.attempt = rows.make_id(_ATTEMPT_ID, a, attempt.generation)
        row.task = structure.task_id(state, attempt.task)
        row.node = _node_id(state, node)
        row.tag = state.marks[attempt.task].tag
        row.part = attempt.part
        row.attempt_no = attempt.attempt
        row.variant = needs.origin
        row.devices = attempt.devices if attempt.device >= 0 else np.uint64(0)
        row.frequency = needs.frequency
        row.guarantee = needs.guarantee
    counts.placed_n = 0


@inner
def _node_id(state, node):
    return rows.make_id(_NODE_ID, node, state.node_marks[node].generation)


@inner
def _list_actions(state, desk):
    """Carry out in State what the policy asked for, and list what the driver has to do."""
    counts = state.counts[0]
    words = desk.words[0]
    for k in range(counts.action_n):
        action = state.actions[k]
        row = desk.actions[words.actions]
        row.kind = action.kind
        row.value = action.value
        if action.kind == 5:
            a = action.node
            if state.attempts[a].task < 0:
                continue  # it ended in the same step
            row.who = rows.make_id(_ATTEMPT_ID, a, state.attempts[a].generation)
        else:
            row.who = _node_id(state, action.node)
        words.actions += 1
    counts.action_n = 0


@inner
def _apply_policy_actions(state, first):
    """What `act` wrote from a row on: sleep and wake change the node's state and are asked for by that; others stay."""
    counts = state.counts[0]
    asked = counts.action_n
    kept = first
    # Sleep and wake append rows of their own, so the policy's rows are read first and then left out.
    for k in range(first, asked):
        kind = state.actions[k].kind
        node = state.actions[k].node
        value = state.actions[k].value
        if kind == ACT_TIMER:
            if state.actions[k].at > state.clock[0].now:
                timers.push(state, state.actions[k].at, timers.LOOK, 0, 0)
        elif kind == ACT_SLEEP:
            reports.fall_asleep(state, node)
        elif kind == ACT_WAKE:
            reports.wake(state, node)
        elif kind == ACT_WARM:
            if state.nodes[node].power_state == ON:
                seconds = state.functions[value].cold_start_s * state.classes[state.nodes[node].cls].cold_factor
                timers.push(state, state.clock[0].now + seconds, timers.WARM, node, value)
                reports.ask(state, kind, node, value)
        elif kind == ACT_FREQUENCY or kind == ACT_CAP:
            level = value if kind == ACT_FREQUENCY else fold.level_below(state, node, float(value))
            if fold.set_frequency(state, node, level):
                reports.ask(state, kind, node, value)
    for k in range(asked, counts.action_n):
        state.actions[kept].kind = state.actions[k].kind
        state.actions[kept].node = state.actions[k].node
        state.actions[kept].value = state.actions[k].value
        kept += 1
    counts.action_n = kept


@inner
def _decide_all(state, desk, functions):
    """The second half: arrivals, decisions, the policy's actions. GROW_ATTEMPTS: make room and call again."""
    priority = functions.priority
    score = functions.score
    clock = state.clock[0]
    counts = state.counts[0]
    words = desk.words[0]
    for i in range(words.arriving):
        if state.tasks[desk.arrivals[i]].state == WAITING:
            release.arrive(state, desk.arrivals[i], priority)
    words.arriving = 0
    clock.retry_at = math.inf
    grows = math.inf
    if counts.waiting > 0:
        if words.ramps == 1:
            fold.grow_platforms(state)
        status = decide.decide(state, priority, score)
        if words.placements + counts.placed_n > desk.placements.size:
            return GROW_ATTEMPTS
        _list_placements(state, desk)
        if status == decide.BAD_COST:
            return BAD_COST
        if status == decide.MORE:
            return GROW_ATTEMPTS
        if words.ramps == 1:
            grows = fold.next_growth(state)
    end_step(state, desk, functions, grows)
    return OK


@inner
def end_step(state, desk, functions, grows):
    """After the decisions: let the policy act, list the actions, say when to come back."""
    clock = state.clock[0]
    counts = state.counts[0]
    words = desk.words[0]
    if state.rules[0].has_act == 1:
        before = counts.action_n
        functions.act(state)
        _apply_policy_actions(state, before)
    _list_actions(state, desk)
    words.ended = counts.ended_n
    words.timers = counts.timer_n
    words.wake_at = min(timers.next_time(state), clock.retry_at, grows)


def enter_task(state, form, workflow, pinned, tag, estimate, release_s, deadline, input_bytes):
    """A filled row for a task that a TASK event will make known; its id, or −1 when the table is full."""
    task = rows.new_task(state)
    if task < 0:
        return np.int64(-1)
    row = state.tasks[task]
    row.form = form
    row.workflow = workflow
    row.pinned = pinned
    row.estimate = estimate
    row.release = release_s
    state.extra[task].deadline = deadline
    state.extra[task].input_bytes = input_bytes
    if input_bytes > 0.0:
        state.rules[0].has_data = 1
    state.marks[task].tag = tag
    state.shapes[form].tasks += 1
    return structure.task_id(state, task)


def open_workflow(state, submit, deadline, tag):  # type: ignore[no-untyped-def]
    """A new workflow; its id, or −1 when the table is full."""
    w = rows.new_workflow(state, submit)
    if w < 0:
        return np.int64(-1)
    state.workflows[w].deadline = deadline
    state.workflows[w].tag = tag
    return rows.make_id(_WORKFLOW_ID, w, state.workflows[w].generation)


def requeue(state, functions, tasks):  # type: ignore[no-untyped-def]
    """Make the queue anew from the given tasks, in order of entry, with their keys as the policy sees them now."""
    counts = state.counts[0]
    for at in range(counts.shapes_n):
        form = state.shapes[state.active_shapes[at]]
        form.waiting = 0
        form.failed = 0
        form.head = -1
        form.tail = -1
    for f in range(state.functions.size):
        state.functions[f].waiting = 0
    counts.shapes_n = 0
    counts.waiting = 0
    rules = state.rules[0]
    for i in range(tasks.size):
        row = state.tasks[tasks[i]]
        row.key = 0.0
        if rules.has_priority == 1 and rules.dynamic == 0:
            row.key = functions.priority(state, tasks[i])
        queue.push(state, tasks[i])


def add_lane(state, earlier, later):  # type: ignore[no-untyped-def]
    """A plan has one task of a workflow wait for another; False when the table of edges is full."""
    return structure.add_edge(state, earlier, later, 0.0) != structure.FULL

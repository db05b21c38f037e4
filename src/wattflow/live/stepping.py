"""The compiled step: events are folded, tasks arrive, decisions fall, results are listed."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import agenda, decide, fold, life, queue, release, reports, rows, structure, view
from wattflow.engine.kinds import ATTEMPT_ID, FULL, NODE_ID, WORKFLOW_ID
from wattflow.engine.tables import (
    ACT_CAP,
    ACT_FREQUENCY,
    ACT_SLEEP,
    ACT_STOP,
    ACT_TIMER,
    ACT_WAKE,
    ACT_WARM,
    ON,
    WAITING,
)
from wattflow.kernel.jit import inner
from wattflow.live import folding
from wattflow.live.folding import BAD_COST, GROW_ATTEMPTS, GROW_EDGES, OK


def fold_events(state, desk, functions, now):
    """The first half of a step, alone; see `folding`."""
    return folding.fold_events(state, desk, functions, now)


def decide_all(state, desk, functions):
    """The second half of a step, alone; see `_decide_all`."""
    return _decide_all(state, desk, functions)


def run_step(state, desk, functions, now, events):
    """Both halves in one call, for policies that do not look at workflows between them."""
    desk.words[0].events = events
    status = folding.fold_events(state, desk, functions, now)
    return status if status != OK else _decide_all(state, desk, functions)


@inner
def _list_placements(state, desk):
    counts = state.counts[0]
    words = desk.words[0]
    for i in range(counts.placed_n):
        a = state.placed[i]
        attempt = state.attempts[a]
        life.begin(state, None, a)
        row = desk.placements[words.placements]
        words.placements += 1
        node = attempt.node
        needs = state.variants[attempt.variant]
        row.attempt = rows.make_id(ATTEMPT_ID, a, attempt.generation)
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
    return rows.make_id(NODE_ID, node, state.node_marks[node].generation)


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
        if action.kind == ACT_STOP:
            a = action.node
            if state.attempts[a].task < 0:
                continue  # it ended in the same step
            row.who = rows.make_id(ATTEMPT_ID, a, state.attempts[a].generation)
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
                agenda.push(state, state.actions[k].at, agenda.LOOK, 0, 0)
        elif kind == ACT_SLEEP:
            life.fall_asleep(state, None, node)
        elif kind == ACT_WAKE:
            life.wake(state, None, node)
        elif kind == ACT_WARM:
            if state.nodes[node].power_state == ON:
                reports.warm(state, node, value, view.warming_s(state, node, value))
        elif kind == ACT_FREQUENCY or kind == ACT_CAP:
            level = value if kind == ACT_FREQUENCY else fold.level_below(state, node, float(value))
            if fold.set_frequency(state, node, level):
                life.ask(state, kind, node, value)
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
        status = decide.decide(state, None, priority, score)
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
    words.wake_at = min(agenda.next_time(state), clock.retry_at, grows)


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


def open_workflow(state, submit, deadline, tag):
    """A new workflow; its id, or −1 when the table is full."""
    w = rows.new_workflow(state, submit)
    if w < 0:
        return np.int64(-1)
    state.workflows[w].deadline = deadline
    state.workflows[w].tag = tag
    return rows.make_id(WORKFLOW_ID, w, state.workflows[w].generation)


def requeue(state, functions, tasks):
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


def add_lane(state, earlier, later):
    """A plan has one task of a workflow wait for another; False when the table of edges is full."""
    return structure.add_edge(state, earlier, later, 0.0) != FULL


def recheck(state):
    """After a change of time-outs: when idle nodes are looked at again. There must be room for a timer of each."""
    now = state.clock[0].now
    for n in range(state.nodes.size):
        row = state.nodes[n]
        if row.power_state == ON and row.running == 0 and row.pos >= 0:
            row.generation += 1
            after_s = state.classes[row.cls].sleep_after_s
            if after_s < math.inf:
                agenda.push(state, max(now, row.idle_since + after_s), agenda.SLEEP, n, row.generation)


__all__ = [
    "BAD_COST", "GROW_ATTEMPTS", "GROW_EDGES", "OK", "add_lane", "decide_all", "end_step", "enter_task", "fold_events",
    "open_workflow", "recheck", "requeue", "run_step",
]  # fmt: skip

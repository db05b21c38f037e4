"""The compiled step: events are folded, tasks arrive, decisions fall, results are listed."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import agenda, decide, fold, instant, life, queue, release, rows, structure
from wattflow.engine.kinds import ATTEMPT_ID, FULL, NODE_ID, WORKFLOW_ID
from wattflow.engine.tables import (
    ACT_STOP,
    WAITING,
)
from wattflow.kernel.jit import inner
from wattflow.live import folding
from wattflow.live.folding import BAD_COST, GROW_ATTEMPTS, GROW_EDGES, OK
from wattflow.live.step_buffers import Desk


def fold_events(state, desk, functions, now):
    """Run the first half of a step alone; see `folding`."""
    return folding.fold_events(state, desk, functions, now)


def decide_all(state, desk, functions):
    """Run the second half of a step alone; see `_decide_all`."""
    return _decide_all(state, desk, functions)


def run_step(state, desk, functions, now, events):
    """Run both halves in one call, for policies that do not look at workflows between them."""
    desk.words[0].events = events
    status = folding.fold_events(state, desk, functions, now)
    return status if status != OK else _decide_all(state, desk, functions)


@instant.arrive.of(Desk)
@inner
def _arrive(state, desk, priority):
    words = desk.words[0]
    for i in range(words.arriving):
        # It may have been cancelled, or got a parent, by another event of this step.
        if state.tasks[desk.arrivals[i]].state == WAITING:
            release.arrive(state, desk.arrivals[i], priority)
    words.arriving = 0
    # `come_back` may set it; a step without decisions must not see that of the step before.
    words.wake_at = math.inf


@instant.ramps.of(Desk)
@inner
def _ramps(state, desk):
    return desk.words[0].ramps == 1


@instant.come_back.of(Desk)
@inner
def _come_back(state, desk):
    """Say when a platform has grown. A hold needs no timer: `list_results` looks at ``retry_at``."""
    if desk.words[0].ramps == 1:
        desk.words[0].wake_at = fold.next_growth(state)


@instant.begun.of(Desk)
@inner
def _list_placements(state, desk):
    # There is room: placements are at most as many as attempts that run, and none ends within a step.
    counts = state.counts[0]
    words = desk.words[0]
    for i in range(counts.placed_n):
        a = state.placed[i]
        attempt = state.attempts[a]
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
        row.level = needs.level
        row.guarantee = needs.guarantee
    counts.placed_n = 0


@inner
def _node_id(state, node):
    return rows.make_id(NODE_ID, node, state.node_marks[node].generation)


@inner
def _list_actions(state, desk):
    """List what the driver has to do."""
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
def _decide_all(state, desk, functions):
    """Let tasks arrive, decide, and let the policy act. GROW_ATTEMPTS: make room and call again."""
    status = instant.run(state, desk, None, functions)
    if status == decide.ALL_TRIED:
        list_results(state, desk)
        return OK
    return BAD_COST if status == decide.BAD_COST else GROW_ATTEMPTS


@inner
def list_results(state, desk):
    """List the actions after an instant, and say when to come back."""
    words = desk.words[0]
    _list_actions(state, desk)
    words.ended = state.counts[0].ended_n
    words.timers = state.counts[0].timer_n
    words.wake_at = min(agenda.next_time(state), state.clock[0].retry_at, words.wake_at)


def enter_task(state, form, workflow, pinned, tag, estimate, release_s, deadline, input_bytes):
    """Make a filled row for a task that a TASK event will make known; its id, or −1 when the table is full."""
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
    """Make a new workflow; its id, or −1 when the table is full."""
    w = rows.new_workflow(state, submit)
    if w < 0:
        return np.int64(-1)
    state.workflows[w].deadline = deadline
    state.workflows[w].tag = tag
    return rows.make_id(WORKFLOW_ID, w, state.workflows[w].generation)


def requeue(state, functions, tasks):
    """Call `queue.refill` from Python."""
    queue.refill(state, tasks, functions.priority)


def add_lane(state, earlier, later):
    """Have one task of a workflow wait for another, by a plan; False when the table of edges is full."""
    return structure.add_edge(state, earlier, later, 0.0) != FULL


def recheck(state):
    """Call `life.recheck` from Python."""
    life.recheck(state, None)


__all__ = [
    "BAD_COST", "GROW_ATTEMPTS", "GROW_EDGES", "OK", "add_lane", "decide_all", "enter_task", "fold_events",
    "list_results", "open_workflow", "recheck", "requeue", "run_step",
]  # fmt: skip

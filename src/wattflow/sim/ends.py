"""How attempts end: well, by failure, by the time limit, or stopped; their records."""

from __future__ import annotations

import math

from wattflow.engine import fold, life
from wattflow.engine.parts import RICH
from wattflow.engine.tables import GIVE_UP, MICRO, RETRY
from wattflow.kernel import attempt_record
from wattflow.kernel.jit import copied, inner, optional
from wattflow.kernel.power_curve import COLD_J, LOST_J, RUN_J
from wattflow.sim import clocks, faults, running, stages
from wattflow.sim.world import (
    CANCELLED,
    COLD,
    DATA,
    HOLD,
    LATENCY,
    MESSAGE,
    NODE_LOST,
    OK,
    RUN,
    TIME_LIMIT,
    WAKE,
    World,
)


@inner
def run_ended(state, world, a, priority):
    """End a run stage, well or not; the attempt was taken out of its domain."""
    # First, while the attempt still holds its cores: its joules are booked at the watts up to now.
    running.leave_run(state, world, a)
    outcome = world.runs[a].outcome
    if outcome == OK:
        life.finished(state, world, a, priority)
    else:
        _run_failed(state, world, a, outcome, priority)


@optional(RICH)
def _run_failed(state, world, a, outcome, priority):
    faults.keep_checkpoint(state, world, a)
    life.failed(state, world, a, outcome, RETRY, priority)


@optional(RICH)
def time_is_up(state, world, a, priority):
    """Enforce the platform's time limit: an attempt that still runs is ended and its task given up."""
    leave(state, world, a)
    life.failed(state, world, a, TIME_LIMIT, GIVE_UP, priority)


@life.left_device.of(World)
@inner
def _left_device(state, world, node):
    running.follow_levels(state, world, node)


@life.fails.of(World)
@inner
def _fails(state, world, a, fate):
    return fate


@life.part_ended.of(World)
@inner
def _part_ended(state, world, task, priority):
    return True


@life.task_ended.of(World)
@inner
def _task_ended(state, world, task):
    world.pulse[0].last_end = state.clock[0].now


@life.lose_attempt.of(World)
@inner
def _lose_attempt(state, world, a):
    _stop(state, world, a, NODE_LOST)


@life.gone.of(World)
@inner
def _gone(state, world, task, lost, fate, priority):
    if state.shapes[state.tasks[task].form].parts > 1:
        _cancel_siblings(state, world, task, lost)
    _retry(state, world, task, fate, priority)


@optional(RICH)
def _retry(state, world, task, fate, priority):
    """Put a task back at the queue's end with one attempt less, or give it up."""
    if state.shapes[state.tasks[task].form].parts > 1:
        # Its parts that waited at the barrier are gone: the list of them must not lead to free rows.
        stages.forget_held(world, task)
    if fold.try_again(state, task, fate == GIVE_UP, priority) == 0:
        world.pulse[0].retries += 1
    else:
        # A task that is given up ends like one that is done: the makespan runs to the last of either.
        world.pulse[0].last_end = state.clock[0].now


@optional(RICH)
def _cancel_siblings(state, world, task, lost):
    """End the other parts of a gang of which one failed. ``lost`` is the node that took it along, or −1.

    By row, not by the ring of siblings: sums of joules depend on the order.
    """
    for b in range(state.attempts.size):
        if state.attempts[b].task == task:
            _stop(state, world, b, NODE_LOST if state.attempts[b].node == lost else CANCELLED)


@optional(RICH)
def _stop(state, world, a, outcome):
    """End an attempt in whatever stage it is; its joules are lost."""
    leave(state, world, a)
    life.close(state, world, a, outcome)


@optional(RICH)
def leave(state, world, a):
    """Take an attempt out of whatever stage it is in."""
    run = world.runs[a]
    stage = state.attempts[a].stage
    spent = state.clock[0].now - run.since
    if stage == MESSAGE:
        run.message_s = spent
    elif stage == WAKE:
        run.wake_s = spent
    elif stage == LATENCY or stage == DATA:
        run.data_s = spent
    elif stage == HOLD:
        run.hold_s = spent
    if stage == RUN:
        clocks.remove(state, world, a)
        faults.note_progress(state, world, a)
        running.leave_run(state, world, a)
    elif stage == COLD:
        run.cold_s = spent
        running.leave_cold(state, world, a)
    elif stage == DATA:
        clocks.remove(state, world, a)
        d = run.domain
        # An empty link keeps its rate: the next transfer sets it (`stages._enter_transfer`).
        if world.domains[d].count > 0:
            clocks.set_rate(state, world, d, 1.0 / world.domains[d].count)
    if stage != RUN:
        # It never ran; what stands here is the start of the row's last attempt.
        run.start = math.nan


@life.closes.of(World)
@copied  # as a call it costs every task of a plain run 5 % (`make bench-kernels`)
def _closes(state, world, a, outcome):
    """Write the record."""
    clock = state.clock[0]
    run = world.runs[a]
    pulse = world.pulse[0]
    attempt = state.attempts[a]
    node = attempt.node
    node_row = state.nodes[node]
    variant = attempt.variant
    needs = state.variants[variant]
    if outcome != OK:
        # Booked as a run while it ran; a bad end moves the same joules, so the accounts still sum to the node.
        world.energy[node, RUN_J] -= run.run_j
        world.energy[node, COLD_J] -= run.cold_j
        world.energy[node, LOST_J] += run.run_j + run.cold_j
    cls = node_row.cls
    kind = state.classes[cls]
    # Calls are paid for whatever became of them (docs/physics.md, section 7).
    if kind.serverless == 1:
        running = 0.0 if math.isnan(run.start) else clock.now - run.start
        used = needs.cores_u / MICRO * (running + run.hold_s)
        world.nodes[node].cost += used * kind.use_price + kind.call_price
    # `kernel._has_room` made sure of the row before the instant began.
    k = pulse.record_n
    pulse.record_n = k + 1
    records = world.records
    device = attempt.device
    on_node = device - node_row.device_first if device >= 0 else -1
    attempt_record.write_who(records, k, attempt.task, attempt.part, attempt.attempt, outcome)
    attempt_record.write_where(records, k, node, on_node, needs.origin, needs.guarantee)
    attempt_record.write_when(records, k, attempt.ready, attempt.placed, run.start, clock.now)
    attempt_record.write_stages(records, k, run.message_s, run.wake_s, run.cold_s, run.data_s, run.hold_s)
    attempt_record.write_joules(records, k, run.run_j, run.cold_j, run.transfer_j, attempt.marginal_j)

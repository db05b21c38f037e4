"""Failures, drawn from the run's seed by counter so that they do not depend on the policy, and checkpoints."""

from __future__ import annotations

import math

from numba import types

from wattflow.engine import agenda, devices, view
from wattflow.engine.parts import RICH
from wattflow.kernel.jit import inner, optional
from wattflow.kernel.random import at_counter
from wattflow.sim import clocks
from wattflow.sim.world import FAILED


@inner
def plan_work(state, world, a):
    """Return seconds of work of an attempt alone on its node, up to its end or to the failure that awaits it."""
    run = world.runs[a]
    attempt = state.attempts[a]
    task = attempt.task
    fn = state.shapes[state.tasks[task].form].function
    function = state.functions[fn]
    runtime = world.runtime[task]
    if world.saved.size > 1:
        runtime *= 1.0 - world.saved[task]
    work = runtime * _factor(state, a)
    interval = function.checkpoint_s
    if interval > 0.0:
        # None at the very end (docs/physics.md, section 9).
        work += max(0.0, math.ceil(work / interval) - 1.0) * function.checkpoint_cost_s
    fraction = _failure(state, world, a, fn)
    if fraction < 1.0:
        # Settled here, but nobody looks before the end: a policy cannot know that an attempt will fail.
        run.outcome = FAILED
        work *= fraction
    run.planned = work
    return work


@inner
def _factor(state, a):
    """Return seconds of work per second of the task's runtime, on the devices that the attempt holds."""
    attempt = state.attempts[a]
    shape = state.tasks[attempt.task].form
    if state.variants[attempt.variant].devices > 1:
        speed = devices.speed_taken(state, attempt.variant, attempt.node, attempt.devices)
        return view.factor_at(state, shape, attempt.variant, attempt.node, speed)
    factor = view.work_factor(state, shape, attempt.variant, attempt.node, attempt.device)
    if attempt.device >= 0:
        factor *= _clocked(state, attempt.variant, attempt.device)
    return factor


@optional(RICH, types.float64)
def _clocked(state, variant, device):
    """Return seconds at the clock that a device has, over those at the clock that a variant asked for."""
    own = state.variants[variant].level
    level = state.devices[device].level
    if level == own:
        return 1.0
    dcls = state.devices[device].cls
    return devices.seconds_at(state, variant, dcls, level) / devices.seconds_at(state, variant, dcls, own)


@inner
def _failure(state, world, a, fn):
    """Return the share of the work after which the attempt fails; 1 when it does not."""
    pulse = world.pulse[0]
    attempt_row = state.attempts[a]
    task = attempt_row.task
    attempt = attempt_row.attempt
    # A failure that was drawn strikes part 0: the others end with it, and each gang fails at most once a try.
    if attempt_row.part > 0:
        return 1.0
    for i in range(world.task_faults.size):
        if world.task_faults[i].task == task and world.task_faults[i].attempt == attempt:
            return world.task_faults[i].fraction
    rate = state.functions[fn].failure_rate
    # The last number keeps draws apart: 1 and 2 failures of attempts, 3 losses, 4 repairs, 41 lanes (`sim.running`).
    if rate > 0.0 and at_counter(pulse.seed, task, attempt, 1) < rate:
        return at_counter(pulse.seed, task, attempt, 2)
    return 1.0


@inner
def note_progress(state, world, a):
    """Keep what the last checkpoint of a running attempt holds that is ended from outside."""
    run = world.runs[a]
    d = run.domain
    left = run.finish_v - clocks.virtual(world, d, state.clock[0].now)
    # Rounding may leave a trifle more work than was planned.
    _save(state, world, a, max(0.0, run.planned - left))


@optional(RICH)
def keep_checkpoint(state, world, a):
    """Keep what the last checkpoint of an attempt holds that failed by itself."""
    _save(state, world, a, world.runs[a].planned)


@inner
def _save(state, world, a, done):
    attempt = state.attempts[a]
    task = attempt.task
    task_row = state.tasks[task]
    fn = state.shapes[task_row.form].function
    function = state.functions[fn]
    interval = function.checkpoint_s
    if interval <= 0.0 or state.shapes[task_row.form].parts > 1:
        return
    kept = math.floor(done / (interval + function.checkpoint_cost_s)) * interval
    whole = world.runtime[task] * _factor(state, a)
    if whole > 0.0:
        # In shares of the whole task, not of what this attempt had left: shares of several tries add up.
        world.saved[task] = min(1.0, world.saved[task] + kept / whole)


@inner
def schedule_failure(state, world, node):
    """Draw the node's next failure, and its notice where there is one."""
    load = world.nodes[node]
    clock = state.clock[0]
    cls = state.nodes[node].cls
    kind = state.classes[cls]
    mtbf = kind.mtbf_s
    if not mtbf < math.inf:
        return
    count = load.failures
    # By number, not by time: the n-th loss of a node is the same under every policy.
    load.failures = count + 1
    at = clock.now - mtbf * math.log(at_counter(world.pulse[0].seed, node, count, 3))
    notice = kind.notice_s
    if notice > 0.0:
        agenda.push(state, max(clock.now, at - notice), agenda.NOTICE, node, 0)
    agenda.push(state, at, agenda.LOST, node, 0)


@inner
def schedule_repair(state, world, node):
    """Draw when a lost node comes back."""
    cls = state.nodes[node].cls
    kind = state.classes[cls]
    # An outage that was asked for brings its own return (`world_build`).
    if not kind.mtbf_s < math.inf:
        return
    draw = at_counter(world.pulse[0].seed, node, world.nodes[node].failures, 4)
    at = state.clock[0].now - kind.repair_s * math.log(draw)
    agenda.push(state, at, agenda.BACK, node, 0)

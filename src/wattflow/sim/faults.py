"""Failures, drawn from the run's seed by counter so that they do not depend on the policy, and checkpoints."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import view
from wattflow.engine.jit import jit
from wattflow.sim import clocks
from wattflow.sim.world import BACK, FAILED, LOST, NODE, NOTICE, TIME_LIMIT

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)


@jit
def unit(seed, a, b, salt):
    """A number in (0, 1) that depends on its arguments alone (splitmix64)."""
    x = np.uint64(seed) * _A + np.uint64(a) * _B + np.uint64(b) * _C + np.uint64(salt) * _A
    for _ in range(2):
        x += _A
        x = (x ^ (x >> np.uint64(30))) * _B
        x = (x ^ (x >> np.uint64(27))) * _C
        x = x ^ (x >> np.uint64(31))
    return (np.int64(x >> np.uint64(11)) + 0.5) / 9007199254740992.0


@jit
def plan_work(state, world, a):
    """Seconds of work of an attempt alone on its node, up to its end or to the failure that awaits it."""
    task = state.attempts.task[a]
    node = state.attempts.node[a]
    shape = state.tasks.form[task]
    fn = state.shapes.function[shape]
    runtime = world.runtime[task]
    if world.saved.size > 1:
        runtime *= 1.0 - world.saved[task]
    factor = view.work_factor(state, shape, state.attempts.variant[a], node, state.attempts.device[a])
    work = runtime * factor
    interval = state.functions.checkpoint_s[fn]
    if interval > 0.0:
        work += max(0.0, math.ceil(work / interval) - 1.0) * state.functions.checkpoint_cost_s[fn]
    fraction = _failure(state, world, a, fn)
    if fraction < 1.0:
        world.runs.outcome[a] = FAILED
        work *= fraction
    limit = state.classes.limit_s[state.nodes.cls[node]]
    if work > limit:
        world.runs.outcome[a] = TIME_LIMIT
        work = limit
    world.runs.planned[a] = work
    return work


@jit
def _failure(state, world, a, fn):
    """Share of the work after which the attempt fails; 1 when it does not."""
    task = state.attempts.task[a]
    attempt = state.attempts.attempt[a]
    for i in range(world.task_faults.size):
        if world.task_faults.task[i] == task and world.task_faults.attempt[i] == attempt:
            return world.task_faults.fraction[i]
    rate = state.functions.failure_rate[fn]
    if rate > 0.0 and unit(world.clock.seed[0], task, attempt, 1) < rate:
        return unit(world.clock.seed[0], task, attempt, 2)
    return 1.0


@jit
def note_progress(state, world, a):
    """Called when a running attempt is ended from outside: keep what its last checkpoint holds."""
    d = world.runs.domain[a]
    left = world.runs.finish_v[a] - clocks.virtual(world, d, state.clock.now[0])
    _save(state, world, a, max(0.0, world.runs.planned[a] - left))


@jit
def keep_checkpoint(state, world, a):
    """Called when an attempt failed by itself: keep what its last checkpoint holds."""
    _save(state, world, a, world.runs.planned[a])


@jit
def _save(state, world, a, done):
    task = state.attempts.task[a]
    fn = state.shapes.function[state.tasks.form[task]]
    interval = state.functions.checkpoint_s[fn]
    if interval <= 0.0 or world.saved.size <= 1:
        return
    kept = math.floor(done / (interval + state.functions.checkpoint_cost_s[fn])) * interval
    factor = view.work_factor(
        state, state.tasks.form[task], state.attempts.variant[a], state.attempts.node[a], state.attempts.device[a]
    )
    whole = world.runtime[task] * factor
    if whole > 0.0:
        world.saved[task] = min(1.0, world.saved[task] + kept / whole)


@jit
def schedule_failure(state, world, node):
    """Draw the node's next failure, and its notice where there is one."""
    cls = state.nodes.cls[node]
    mtbf = state.classes.mtbf_s[cls]
    if not mtbf < math.inf:
        return
    count = world.nodes.failures[node]
    world.nodes.failures[node] = count + 1
    at = state.clock.now[0] - mtbf * math.log(unit(world.clock.seed[0], node, count, 3))
    notice = state.classes.notice_s[cls]
    if notice > 0.0:
        clocks.push_event(world, max(state.clock.now[0], at - notice), NODE, NOTICE, node, 0)
    clocks.push_event(world, at, NODE, LOST, node, 0)


@jit
def schedule_repair(state, world, node):
    """Draw when a lost node comes back."""
    cls = state.nodes.cls[node]
    if not state.classes.mtbf_s[cls] < math.inf:
        return
    draw = unit(world.clock.seed[0], node, world.nodes.failures[node], 4)
    at = state.clock.now[0] - state.classes.repair_s[cls] * math.log(draw)
    clocks.push_event(world, at, NODE, BACK, node, 0)

"""`advance`: from one instant to the next. The only loop of the simulator."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import types
from numba.core.types import FunctionType

from wattflow.engine import decide, groups, jit, release
from wattflow.engine.jit import jit as compile_later
from wattflow.engine.tables import (
    ACT_FREQUENCY,
    ACT_SLEEP,
    ACT_TIMER,
    ACT_WAKE,
    ACT_WARM,
    DOWN,
    DRAINING,
    MICRO,
    ON,
)
from wattflow.sim import clocks, containers, faults, power, sleep, stages
from wattflow.sim.world import (
    BACK,
    DATA,
    FALL_DONE,
    FINISH,
    LOST,
    NODE,
    NODE_LOST,
    NOTICE,
    RAMP,
    ROUND,
    SLEEP_CHECK,
    STAGE_END,
    TIMER,
    WAKE_DONE,
    WAKE_UP,
    WARM_DONE,
)

DONE, UNTIL, LIMIT, GROW, BAD_COST, STUCK = 0, 1, 2, 3, 4, 5
"""Statuses of `advance`. STUCK: tasks wait, but nothing will ever happen again."""


@compile_later
def _next_time(state, world):
    t = math.inf
    if world.clock.domain_n[0] > 0:
        t = world.domains.next_t[world.domain_heap[0]]
    if world.clock.event_n[0] > 0 and world.events.time[0] < t:
        t = world.events.time[0]
    at = world.clock.next_arrival[0]
    if at < world.arrivals.size:
        arrival = state.tasks.release[world.arrivals[at]]
        if arrival < t:
            t = arrival
    return t


@compile_later
def _has_room(state, world):
    """Whether one instant's records and events surely fit."""
    running = state.clock.running[0] + 1
    if world.clock.record_n[0] + running > world.records.size:
        return False
    if world.clock.event_n[0] + 2 * state.attempts.size + 2 * state.nodes.size + 16 > world.events.size:
        return False
    if world.clock.record_power[0] == 1:
        # Each attempt that ends or starts changes the watts of its node at most a few times.
        bound = 4 * (running + state.attempts.size + state.nodes.size)
        return world.clock.log_n[0] + bound <= world.power_log.size
    return True


@compile_later
def _finish_domain(state, world, priority):
    d = world.domain_heap[0]
    a = clocks.pop(state, world, d)
    if world.runs.stage[a] == DATA:
        stages.data_arrived(state, world, a)
    else:
        stages.run_ended(state, world, a, priority)


@compile_later
def _lose_node(state, world, node, priority):
    """Everything on the node ends; its tasks go back to the queue, oldest attempt first."""
    if state.nodes.power_state[node] == DOWN:
        return
    while True:
        a = state.nodes.first_attempt[node]
        oldest = -1
        while a >= 0:
            if oldest < 0 or state.attempts.sequence[a] < state.attempts.sequence[oldest]:
                oldest = a
            a = state.attempts.next[a]
        if oldest < 0:
            break
        task = state.attempts.task[oldest]
        stages.stop(state, world, oldest, NODE_LOST)
        if state.shapes.parts[state.tasks.form[task]] > 1:
            stages.cancel_siblings(state, world, task)
        stages.retry(state, world, task, NODE_LOST, priority)
    while state.nodes.first_container[node] >= 0:
        containers.drop(state, state.nodes.first_container[node])
    sleep.set_state(state, world, node, DOWN)
    faults.schedule_repair(state, world, node)


@compile_later
def _node_event(state, world, what, node, gen, priority):
    if what == WAKE_DONE:
        sleep.set_state(state, world, node, ON)
        stages.node_is_on(state, world, node)
        if state.nodes.running[node] == 0:
            sleep.node_idles(state, world, node)
    elif what == FALL_DONE:
        sleep.fall_done(state, world, node)
        if state.nodes.power_state[node] == ON:
            stages.node_is_on(state, world, node)
    elif what == SLEEP_CHECK:
        sleep.sleep_check(state, world, node, gen)
    elif what == LOST:
        _lose_node(state, world, node, priority)
    elif what == BACK:
        if state.nodes.power_state[node] == DOWN:
            sleep.set_state(state, world, node, ON)
            sleep.node_idles(state, world, node)
            faults.schedule_failure(state, world, node)
    elif what == NOTICE:
        if state.nodes.power_state[node] == ON:
            sleep.set_state(state, world, node, DRAINING)
    elif what == WARM_DONE:
        power.account(state, world, node)
        world.nodes.busy_u[node] -= MICRO
        world.nodes.cold_u[node] -= MICRO
        power.refresh(state, world, node)
        if state.nodes.power_state[node] == ON:
            containers.keep(state, node, gen)


@compile_later
def _fold(state, world, priority):
    """Fold all events of the present instant into the state, in their fixed order; returns how many."""
    now = state.clock.now[0]
    count = 0
    while True:
        domain = world.clock.domain_n[0] > 0 and world.domains.next_t[world.domain_heap[0]] <= now
        event = world.clock.event_n[0] > 0 and world.events.time[0] <= now
        order = world.events.order[0] if event else 99
        if domain and not (event and order == FINISH and _event_first(state, world)):
            _finish_domain(state, world, priority)
            count += 1
            continue
        if event and order < TIMER:
            what = world.events.what[0]
            who = world.events.who[0]
            gen = world.events.gen[0]
            clocks.pop_event(world)
            count += 1
            if what == STAGE_END:
                if state.attempts.task[who] >= 0 and state.attempts.sequence[who] == gen:
                    stages.stage_ended(state, world, who)
            else:
                _node_event(state, world, what, who, gen, priority)
            continue
        break
    at = world.clock.next_arrival[0]
    while at < world.arrivals.size and state.tasks.release[world.arrivals[at]] <= now:
        release.arrive(state, world.arrivals[at], priority)
        at += 1
        count += 1
    world.clock.next_arrival[0] = at
    while world.clock.event_n[0] > 0 and world.events.time[0] <= now and world.events.order[0] == TIMER:
        if world.events.what[0] == ROUND:
            world.clock.round_at[0] = math.inf
        clocks.pop_event(world)
        count += 1
    return count


@compile_later
def _event_first(state, world):
    """Whether the first timed stage end was created before the attempt that ends first."""
    who = world.events.who[0]
    return world.events.gen[0] < world.domains.next_seq[world.domain_heap[0]] and state.attempts.task[who] >= 0


@compile_later
def _start_placed(state, world):
    for i in range(state.clock.placed_n[0]):
        stages.begin(state, world, state.placed[i])
    state.clock.placed_n[0] = 0


@compile_later
def _ramp(state, world):
    """Serverless nodes offer more as time goes on."""
    now = state.clock.now[0]
    for n in range(state.nodes.size):
        cls = state.nodes.cls[n]
        if state.classes.serverless[cls] == 1 and state.nodes.capacity_u[n] < state.classes.request_u[cls]:
            offered = state.classes.burst_u[cls] + state.classes.ramp_u_s[cls] * now
            capacity = np.int64(min(float(state.classes.request_u[cls]), math.floor(offered + 0.5)))
            if capacity > state.nodes.capacity_u[n]:
                groups.leave(state, n)
                state.nodes.capacity_u[n] = capacity
                groups.rejoin(state, n)
                state.clock.epoch[0] += 1


@compile_later
def _schedule_ramp(state, world):
    """When tasks wait, come back as soon as a ramping node has grown enough for the smallest of them."""
    smallest = np.int64(1 << 60)
    for at in range(state.clock.shapes_n[0]):
        shape = state.active_shapes[at]
        first = state.shapes.variant_first[shape]
        for v in range(first, first + state.shapes.variant_n[shape]):
            smallest = min(smallest, state.variants.need_u[v])
    now = state.clock.now[0]
    soonest = math.inf
    for n in range(state.nodes.size):
        cls = state.nodes.cls[n]
        if state.classes.serverless[cls] == 0 or state.classes.ramp_u_s[cls] <= 0.0:
            continue
        wanted = state.nodes.used_u[n] + smallest
        if wanted <= state.classes.request_u[cls]:
            at_s = (wanted - state.classes.burst_u[cls]) / state.classes.ramp_u_s[cls]
            if at_s > now:
                soonest = min(soonest, at_s)
    if soonest < math.inf and not (now < world.clock.ramp_at[0] <= soonest):
        world.clock.ramp_at[0] = soonest
        clocks.push_event(world, soonest, TIMER, RAMP, 0, 0)


@compile_later
def _is_round(state, world):
    """Whether decisions may be taken now; asks for the next round when not."""
    period = world.clock.round_s[0]
    if period <= 0.0:
        return True
    now = state.clock.now[0]
    turn = math.floor(now / period + 1e-9) * period
    if now - turn <= 1e-9 * max(1.0, now):
        return True
    if state.clock.waiting[0] > 0 and world.clock.round_at[0] == math.inf:
        world.clock.round_at[0] = turn + period
        clocks.push_event(world, turn + period, TIMER, ROUND, 0, 0)
    return False


@compile_later
def _apply_actions(state, world):
    for k in range(state.clock.action_n[0]):
        kind = state.actions.kind[k]
        node = state.actions.node[k]
        if kind == ACT_TIMER:
            if state.actions.at[k] > state.clock.now[0]:
                clocks.push_event(world, state.actions.at[k], TIMER, WAKE_UP, 0, 0)
        elif kind == ACT_SLEEP:
            sleep.fall_asleep(state, world, node)
        elif kind == ACT_WAKE:
            sleep.wake(state, world, node)
        elif kind == ACT_WARM:
            _warm(state, world, node, state.actions.value[k])
        elif kind == ACT_FREQUENCY:
            _set_frequency(state, world, node, state.actions.value[k])
    state.clock.action_n[0] = 0


@compile_later
def _warm(state, world, node, fn):
    """Make a container ahead of need: one core is busy for the time of a cold start."""
    if state.nodes.power_state[node] != ON:
        return
    seconds = state.functions.cold_start_s[fn] * state.classes.cold_factor[state.nodes.cls[node]]
    power.account(state, world, node)
    world.nodes.busy_u[node] += MICRO
    world.nodes.cold_u[node] += MICRO
    power.refresh(state, world, node)
    world.clock.cold_starts[0] += 1
    clocks.push_event(world, state.clock.now[0] + seconds, NODE, WARM_DONE, node, fn)


@compile_later
def _set_frequency(state, world, node, level):
    cls = state.nodes.cls[node]
    if level < 0 or level >= state.classes.frequency_n[cls]:
        return
    power.account(state, world, node)
    groups.leave(state, node)
    state.nodes.frequency[node] = level
    groups.rejoin(state, node)
    clocks.set_rate(state, world, node, stages.cpu_rate(state, node, world.nodes.demand_u[node]))
    power.refresh(state, world, node)


@compile_later
def _decide_all(state, world, priority, score):
    """Decide and start until the queue is tried through; GROW when attempt rows ran out."""
    while True:
        status = decide.decide(state, priority, score)
        _start_placed(state, world)
        if status == decide.BAD_COST:
            return BAD_COST
        if status == decide.ALL_TRIED:
            return DONE
        if state.clock.free_attempt[0] < 0 or state.clock.running[0] + 1 >= state.attempts.size // 2:
            return GROW


def advance(state, world, priority, score, act, until, max_events):  # type: ignore[no-untyped-def]
    """Run until done, `until`, or about `max_events` events; stops only between instants (GROW: call again)."""
    folded = 0
    clock = state.clock
    while True:
        if world.clock.redo[0] == 0:
            if clock.open[0] == 0:
                return DONE
            t = _next_time(state, world)
            if t == math.inf:
                return STUCK
            if t > until:
                return UNTIL
            if folded >= max_events:
                return LIMIT
            if not _has_room(state, world):
                return GROW
            if t > clock.now[0]:
                clock.now[0] = t
            clock.instant[0] += 1
            folded += _fold(state, world, priority)
        world.clock.redo[0] = 0
        if clock.waiting[0] > 0 and _is_round(state, world):
            if world.clock.ramps[0] == 1:
                _ramp(state, world)
            status = _decide_all(state, world, priority, score)
            if status == BAD_COST:
                return BAD_COST
            if status == GROW:
                world.clock.redo[0] = 1
                return GROW
            if world.clock.ramps[0] == 1 and clock.waiting[0] > 0:
                _schedule_ramp(state, world)
            if clock.retry_at[0] < math.inf:
                if not (clock.now[0] < world.clock.timer_at[0] <= clock.retry_at[0]):
                    world.clock.timer_at[0] = clock.retry_at[0]
                    clocks.push_event(world, clock.retry_at[0], TIMER, WAKE_UP, 0, 0)
                clock.retry_at[0] = math.inf
        if clock.has_act[0] == 1 and _next_time(state, world) > clock.now[0]:
            act(state)
            _apply_actions(state, world)
        if world.clock.total_w[0] > world.clock.peak_w[0]:
            world.clock.peak_w[0] = world.clock.total_w[0]
        world.clock.events[0] += 1


@compile_later
def settle(state, world):
    """Close every node's open interval at the present time."""
    for n in range(state.nodes.size):
        power.account(state, world, n)


@compile_later
def open_world(state, world):
    """At the start: watts of every node, first failures, first sleep checks."""
    for n in range(state.nodes.size):
        cls = state.nodes.cls[n]
        world.nodes.idle_w[n] = state.classes.idle_w[cls] * world.watt_error[n]
        world.nodes.since[n] = state.clock.now[0]
        world.nodes.watts[n] = 0.0
        power.refresh(state, world, n)
        faults.schedule_failure(state, world, n)
        sleep.node_idles(state, world, n)
        if state.classes.serverless[cls] == 1:
            state.nodes.capacity_u[n] = min(state.nodes.capacity_u[n], np.int64(min(state.classes.burst_u[cls], 9e18)))
            groups.leave(state, n)
            groups.rejoin(state, n)
    world.clock.peak_w[0] = world.clock.total_w[0]


def function_types(state: Any) -> tuple[Any, Any, Any]:
    """Signatures of priority, score and act for this State's compiled type."""
    from numba import typeof

    if not jit.COMPILED:
        return None, None, None
    kind = typeof(state.handle())
    return (
        types.float64(kind, types.int64),
        types.void(kind, types.int64, types.int64, types.float64[::1]),
        types.void(kind),
    )


@functools.cache
def _compiled_advance(state_type: Any, world_type: Any) -> Any:
    signature = types.int64(
        state_type,
        world_type,
        FunctionType(types.float64(state_type, types.int64)),
        FunctionType(types.void(state_type, types.int64, types.int64, types.float64[::1])),
        FunctionType(types.void(state_type)),
        types.float64,
        types.int64,
    )
    return jit.compiled(signature, advance)


def kernel(state: Any, world: Any) -> Any:
    """`advance`, compiled once for the types of State and World (or as it is, uncompiled)."""
    if not jit.COMPILED:
        return advance
    from numba import typeof

    return _compiled_advance(typeof(state.handle()), typeof(world.handle()))


__all__ = ["BAD_COST", "DONE", "GROW", "LIMIT", "STUCK", "UNTIL", "advance", "kernel", "open_world", "settle"]

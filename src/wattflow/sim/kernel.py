"""`advance`: from one instant to the next. The only loop of the simulator."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import types

from wattflow.engine import agenda, containers, decide, fold, groups, life, release, view
from wattflow.engine.parts import RICH
from wattflow.engine.tables import (
    ACT_CAP,
    ACT_FREQUENCY,
    ACT_SLEEP,
    ACT_TIMER,
    ACT_WAKE,
    ACT_WARM,
    DOWN,
    DRAINING,
    MICRO,
    ON,
    RETRY,
    WAKING,
)
from wattflow.kernel import jit
from wattflow.kernel.jit import inner, optional
from wattflow.kernel.jit import jit as entry
from wattflow.sim import clocks, ends, faults, power, running, sleep, stages
from wattflow.sim.world import DATA, NODE_LOST

DONE, UNTIL, LIMIT, GROW, BAD_COST, STUCK = 0, 1, 2, 3, 4, 5
"""Statuses of `advance`. STUCK: tasks wait, but nothing will ever happen again."""


@inner
def _next_time(state, world):
    pulse = world.pulse[0]
    t = math.inf
    if pulse.domain_n > 0:
        t = world.domains[world.domain_heap[0]].next_t
    if state.counts[0].timer_n > 0 and state.timers[0].time < t:
        t = state.timers[0].time
    at = pulse.next_arrival
    if at < world.arrivals.size:
        arrival = state.tasks[world.arrivals[at]].release
        if arrival < t:
            t = arrival
    return t


@inner
def _has_room(state, world):
    """Whether one instant's records and events surely fit."""
    pulse = world.pulse[0]
    running = state.counts[0].running + 1
    if pulse.record_n + running > world.records.size:
        return False
    if state.counts[0].timer_n + 2 * state.attempts.size + 2 * state.nodes.size + 16 > state.timers.size:
        return False
    if pulse.record_power == 1:
        # Each attempt that ends or starts changes the watts of its node at most a few times.
        bound = 4 * (running + state.attempts.size + state.nodes.size)
        return pulse.log_n + bound <= world.power_log.size
    return True


@inner
def _finish_domain(state, world, priority):
    d = world.domain_heap[0]
    a = clocks.pop(state, world, d)
    if state.attempts[a].stage == DATA:
        stages.data_arrived(state, world, a)
    else:
        ends.run_ended(state, world, a, priority)


@inner
def _lose_node(state, world, node, priority):
    """Everything on the node ends; its tasks go back to the queue, oldest attempt first."""
    while True:
        oldest = fold.oldest_attempt(state, node)
        if oldest < 0:
            break
        task = state.attempts[oldest].task
        ends.stop(state, world, oldest, NODE_LOST)
        life.gone(state, world, task, node, NODE_LOST, RETRY, priority)
    fold.forget_contents(state, node)
    _stop_warming(state, world, node)
    life.set_power(state, world, node, DOWN)
    faults.schedule_repair(state, world, node)


@optional(RICH, types.boolean)
def _node_event(state, world, what, node, gen, priority):
    """Fold a change of a node; False if it is out of date."""
    node_row = state.nodes[node]
    if what == agenda.WAKE_DONE:
        # The node may have been lost, and even have begun to wake again, since this was announced.
        if node_row.power_state != WAKING or node_row.on_at > state.clock[0].now:
            return False
        life.set_power(state, world, node, ON)
        life.is_on(state, world, node)
        if node_row.running == 0:
            life.idles(state, world, node)
    elif what == agenda.FALL_DONE:
        if not sleep.fall_done(state, world, node, gen):
            return False
        if node_row.power_state == ON:
            life.is_on(state, world, node)
    elif what == agenda.SLEEP:
        return sleep.sleep_check(state, world, node, gen)
    elif what == agenda.LOST:
        if node_row.power_state == DOWN:
            return False
        _lose_node(state, world, node, priority)
    elif what == agenda.BACK:
        if node_row.power_state != DOWN:
            return False
        life.set_power(state, world, node, ON)
        life.idles(state, world, node)
        faults.schedule_failure(state, world, node)
    elif what == agenda.NOTICE:
        if node_row.power_state != ON:
            return False
        life.set_power(state, world, node, DRAINING)
    elif what == agenda.WARM:
        return _warm_done(state, world, node, gen)
    return True


@inner
def _fold(state, world, priority):
    """Fold all events of the present instant into the state, in their fixed order; returns how many still counted."""
    pulse = world.pulse[0]
    now = state.clock[0].now
    count = 0
    while True:
        domain = pulse.domain_n > 0 and world.domains[world.domain_heap[0]].next_t <= now
        event = state.counts[0].timer_n > 0 and state.timers[0].time <= now
        order = agenda.order(state.timers[0].what) if event else 99
        if domain and not (event and order == agenda.FINISH and _event_first(state, world)):
            _finish_domain(state, world, priority)
            count += 1
            continue
        if not event:
            break
        what = state.timers[0].what
        who = state.timers[0].who
        gen = state.timers[0].generation
        at_s = state.timers[0].time
        agenda.pop(state)
        if what in (agenda.STAGE_END, agenda.TIME_UP):
            if state.attempts[who].task < 0 or state.attempts[who].sequence != gen:
                continue
            if what == agenda.STAGE_END:
                stages.stage_ended(state, world, who)
            else:
                ends.time_is_up(state, world, who, priority)
            count += 1
        elif what in (agenda.LOOK, agenda.RAMP, agenda.ROUND):
            if what == agenda.ROUND:
                pulse.round_at = math.inf
            if what != agenda.RAMP or at_s == pulse.ramp_at:
                count += 1
        elif _node_event(state, world, what, who, gen, priority):
            count += 1
    at = pulse.next_arrival
    while at < world.arrivals.size and state.tasks[world.arrivals[at]].release <= now:
        release.arrive(state, world.arrivals[at], priority)
        at += 1
        count += 1
    pulse.next_arrival = at
    return count


@optional(RICH, types.boolean)
def _event_first(state, world):
    """Whether the first timed stage end was created before the attempt that ends first."""
    who = state.timers[0].who
    return state.timers[0].generation < world.domains[world.domain_heap[0]].next_seq and state.attempts[who].task >= 0


@inner
def _start_placed(state, world):
    counts = state.counts[0]
    for i in range(counts.placed_n):
        life.begin(state, world, state.placed[i])
    counts.placed_n = 0


@optional(RICH)
def _schedule_ramp(state, world):
    """When tasks wait, come back as soon as a ramping node has grown enough for one more of them or of their parts."""
    pulse = world.pulse[0]
    soonest = fold.next_growth(state)
    if soonest != pulse.ramp_at:
        pulse.ramp_at = soonest
        if soonest < math.inf:
            agenda.push(state, soonest, agenda.RAMP, 0, 0)


@inner
def _is_round(state, world):
    """Whether decisions may be taken now; asks for the next round when not."""
    clock = state.clock[0]
    counts = state.counts[0]
    pulse = world.pulse[0]
    period = pulse.round_s
    if period <= 0.0:
        return True
    now = clock.now
    turn = math.floor(now / period + 1e-9) * period
    if now - turn <= 1e-9 * max(1.0, now):
        return True
    if counts.waiting > 0 and pulse.round_at == math.inf:
        pulse.round_at = turn + period
        agenda.push(state, turn + period, agenda.ROUND, 0, 0)
    return False


@optional(RICH)
def _apply_actions(state, world):
    clock = state.clock[0]
    counts = state.counts[0]
    for k in range(counts.action_n):
        kind = state.actions[k].kind
        node = state.actions[k].node
        if kind == ACT_TIMER:
            if state.actions[k].at > clock.now:
                agenda.push(state, state.actions[k].at, agenda.LOOK, 0, 0)
        elif kind == ACT_SLEEP:
            life.fall_asleep(state, world, node)
        elif kind == ACT_WAKE:
            life.wake(state, world, node)
        elif kind == ACT_WARM:
            _warm(state, world, node, state.actions[k].value)
        elif kind == ACT_FREQUENCY:
            running.set_frequency(state, world, node, state.actions[k].value)
        elif kind == ACT_CAP:
            running.set_frequency(state, world, node, fold.level_below(state, node, float(state.actions[k].value)))
    counts.action_n = 0


@inner
def _warm(state, world, node, fn):
    """Make a container ahead of need: one core is busy for the time of a cold start. Its joules are no attempt's."""
    node_row = state.nodes[node]
    load = world.nodes[node]
    if node_row.power_state != ON:
        return
    seconds = view.warming_s(state, node, fn)
    power.account(state, world, node)
    load.busy_u += MICRO
    load.weight_u += MICRO
    load.warming_u += MICRO
    power.refresh(state, world, node)
    world.pulse[0].cold_starts += 1
    announced = load.warm_gen * (state.functions.size + 1) + fn + 1
    agenda.push(state, state.clock[0].now + seconds, agenda.WARM, node, announced)


@inner
def _warm_done(state, world, node, announced):
    """A container made ahead of need is ready; False if its node was lost while it was made."""
    load = world.nodes[node]
    node_row = state.nodes[node]
    kinds = state.functions.size + 1
    if announced // kinds != load.warm_gen:
        return False
    power.account(state, world, node)
    load.busy_u -= MICRO
    load.weight_u -= MICRO
    load.warming_u -= MICRO
    power.refresh(state, world, node)
    if node_row.power_state == ON:
        containers.keep(state, node, announced % kinds - 1)
        if node_row.running == 0 and load.warming_u == 0:
            life.idles(state, world, node)
    return True


@inner
def _stop_warming(state, world, node):
    """What is being warmed on a lost node is gone, and draws no watts from here on."""
    load = world.nodes[node]
    power.account(state, world, node)
    load.busy_u -= load.warming_u
    load.weight_u -= load.warming_u
    load.warming_u = 0
    load.warm_gen += 1


@inner
def _decide_all(state, world, priority, score):
    """Decide and start until the queue is tried through; GROW when attempt rows ran out."""
    counts = state.counts[0]
    while True:
        status = decide.decide(state, None, priority, score)
        _start_placed(state, world)
        if status == decide.BAD_COST:
            return BAD_COST
        if status == decide.ALL_TRIED:
            return DONE
        if counts.free_attempt < 0 or counts.running + 1 >= state.attempts.size // 2:
            return GROW


def advance(state, world, functions, until, max_events):
    """Run until done, `until`, or about `max_events` events; stops only between instants (GROW: call again)."""
    priority = functions.priority
    score = functions.score
    clock = state.clock[0]
    rules = state.rules[0]
    counts = state.counts[0]
    pulse = world.pulse[0]
    folded = 0
    while True:
        if pulse.redo == 0:
            if counts.open == 0:
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
            if t > clock.now:
                if pulse.total_w > pulse.peak_w:
                    pulse.peak_w = pulse.total_w
                clock.now = t
            clock.instant += 1
            count = _fold(state, world, priority)
            folded += max(1, count)
            if count == 0:
                continue
        pulse.redo = 0
        if counts.waiting > 0 and _is_round(state, world):
            if pulse.ramps == 1:
                fold.grow_platforms(state)
            status = _decide_all(state, world, priority, score)
            if status == BAD_COST:
                return BAD_COST
            if status == GROW:
                pulse.redo = 1
                return GROW
            if pulse.ramps == 1:
                _schedule_ramp(state, world)
            if clock.retry_at < math.inf:
                if not (clock.now < pulse.timer_at <= clock.retry_at):
                    pulse.timer_at = clock.retry_at
                    agenda.push(state, clock.retry_at, agenda.LOOK, 0, 0)
                clock.retry_at = math.inf
        if rules.has_act == 1 and _next_time(state, world) > clock.now:
            functions.act(state)
            _apply_actions(state, world)
        pulse.events += 1


@inner
def settle_all(state, world):
    """Close every node's open interval at the present time."""
    for n in range(state.nodes.size):
        power.account(state, world, n)


@inner
def begin_all(state, world):
    """At the start: watts of every node, first failures, first sleep checks."""
    for n in range(state.nodes.size):
        cls = state.nodes[n].cls
        world.nodes[n].idle_w = state.classes[cls].idle_w * world.watt_error[n]
        world.nodes[n].since = state.clock[0].now
        world.nodes[n].watts = 0.0
        power.refresh(state, world, n)
        faults.schedule_failure(state, world, n)
        life.idles(state, world, n)
        if state.classes[cls].serverless == 1:
            state.nodes[n].capacity_u = min(state.nodes[n].capacity_u, np.int64(min(state.classes[cls].burst_u, 9e18)))
            groups.leave(state, n)
            groups.rejoin(state, n)


@entry
def settle(state, world):
    """`settle_all`, called from Python."""
    settle_all(state, world)


@entry
def open_world(state, world):
    """`begin_all`, called from Python."""
    begin_all(state, world)


@functools.cache
def _compiled_advance(state_type: Any, world_type: Any, functions_type: Any, lacks: tuple[str, ...]) -> Any:
    state_type, world_type = state_type.without(*lacks), world_type.without(*lacks)
    signature = types.int64(state_type, world_type, functions_type, types.float64, types.int64)
    return jit.direct(jit.compiled(signature, advance))


def kernel(state: Any, world: Any, functions: Any, lacks: tuple[str, ...] = ()) -> Any:
    """`advance`, compiled once for the types of State and World, without the parts they lack (or uncompiled)."""
    return _compiled_advance(state.kind, world.kind, functions.kind, lacks) if jit.COMPILED else advance


__all__ = ["BAD_COST", "DONE", "GROW", "LIMIT", "STUCK", "UNTIL", "advance", "kernel", "open_world", "settle"]

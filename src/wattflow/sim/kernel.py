"""`run`: from one instant to the next, by the World's clocks and the State's agenda; `engine.instant` decides."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import types

from wattflow.engine import agenda, decide, fold, groups, instant, life, release
from wattflow.engine.parts import RICH
from wattflow.kernel import jit
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner, optional
from wattflow.kernel.jit import jit as entry
from wattflow.sim import clocks, ends, energy_accounts, faults, node_power, stages
from wattflow.sim.world import DATA, World

DONE, UNTIL, LIMIT, GROW, BAD_COST, STUCK, ASKED = 0, 1, 2, 3, 4, 5, 6
"""Statuses of `run`. STUCK: tasks wait, but nothing will ever happen again. ASKED: a hand is to answer."""


@inner
def _next_time(state, world):
    pulse = world.pulse[0]
    t = math.inf
    if pulse.domain_n > 0:
        t = world.domains[world.domain_heap[0]].next_t
    # All three sources must be asked: ends of work stand in the domains' heap, arrivals in their own list.
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
    """Tell whether one instant's records and events surely fit."""
    pulse = world.pulse[0]
    running = state.counts[0].running + 1
    # All that runs may end in one instant, each with a record.
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
def _fold(state, world, priority):
    """Fold all events of the present instant into the state, in their fixed order; returns how many still counted."""
    pulse = world.pulse[0]
    now = state.clock[0].now
    count = 0
    while True:
        # Also what was due before now: outages announced for a time before the start happen at the start.
        domain = pulse.domain_n > 0 and world.domains[world.domain_heap[0]].next_t <= now
        event = state.counts[0].timer_n > 0 and state.timers[0].time <= now
        # Ends come before all else, those of runs and those of timed stages in the order in which they began.
        if domain and not (event and state.timers[0].what == agenda.STAGE_END and _event_first(state, world)):
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
            # The row was freed, or serves another attempt by now: sequences are never used twice.
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
            # A ramp that was planned for another time was overtaken by `_schedule_ramp`.
            if what != agenda.RAMP or at_s == pulse.ramp_at:
                count += 1
        elif node_power.changed(state, world, what, who, gen, priority):
            count += 1
    # Arrivals come last (docs/physics.md, section 1): whoever arrives sees what has ended.
    at = pulse.next_arrival
    while at < world.arrivals.size and state.tasks[world.arrivals[at]].release <= now:
        release.arrive(state, world.arrivals[at], priority)
        at += 1
        count += 1
    pulse.next_arrival = at
    return count


@optional(RICH, types.boolean)
def _event_first(state, world):
    """Tell whether the attempt whose timed stage ends is older than the one whose run or transfer ends first."""
    who = state.timers[0].who
    return state.timers[0].generation < world.domains[world.domain_heap[0]].next_seq and state.attempts[who].task >= 0


@instant.ramps.of(World)
@inner
def _ramps(state, world):
    return world.pulse[0].ramps == 1


@instant.begun.of(World)
@inner
def _begun(state, world):
    state.counts[0].placed_n = 0


@instant.has_rows.of(World)
@inner
def _has_rows(state, world):
    counts = state.counts[0]
    # With more than half of the rows in use, tables grow before more is decided (GROW).
    return counts.free_attempt >= 0 and counts.running + 1 < state.attempts.size // 2


@instant.is_last.of(World)
@inner
def _is_last(state, world):
    # `act` waits until nothing is left at this time: zero-length tasks repeat the instant.
    return _next_time(state, world) > state.clock[0].now


@instant.come_back.of(World)
@inner
def _come_back(state, world):
    clock = state.clock[0]
    pulse = world.pulse[0]
    if pulse.ramps == 1:
        _schedule_ramp(state, world)
    if clock.retry_at < math.inf:
        # One look that is still to come and early enough does for all holds.
        if not (clock.now < pulse.timer_at <= clock.retry_at):
            pulse.timer_at = clock.retry_at
            agenda.push(state, clock.retry_at, agenda.LOOK, 0, 0)
        clock.retry_at = math.inf


@optional(RICH)
def _schedule_ramp(state, world):
    """While tasks wait, schedule the moment at which a ramping node has room for one more of them or of their parts."""
    pulse = world.pulse[0]
    soonest = fold.next_growth(state)
    if soonest != pulse.ramp_at:
        pulse.ramp_at = soonest
        if soonest < math.inf:
            agenda.push(state, soonest, agenda.RAMP, 0, 0)


@instant.may_decide.of(World)
@inner
def _may_decide(state, world):
    """Tell whether it is the time of a round; ask for the next one when not."""
    clock = state.clock[0]
    counts = state.counts[0]
    pulse = world.pulse[0]
    period = pulse.round_s
    if period <= 0.0:
        return True
    now = clock.now
    # Sums of floats fall short of a multiple of the period by a rounding.
    turn = math.floor(now / period + 1e-9) * period
    if now - turn <= 1e-9 * max(1.0, now):
        return True
    if counts.waiting > 0 and pulse.round_at == math.inf:
        pulse.round_at = turn + period
        agenda.push(state, turn + period, agenda.ROUND, 0, 0)
    return False


@hook
def passes(state, hand, joules):
    """Tell a hand that time goes on to the next instant; so many joules were drawn since the last."""


@inner
def run(state, world, hand, functions, until, max_events):
    """`advance` with a ``hand`` that is asked in the policy's place (ASKED: call again with its answer), or None."""
    clock = state.clock[0]
    pulse = world.pulse[0]
    folded = 0
    # In one piece: the compiler does not put a function of its own in the place of its call here.
    while True:
        # An instant that ran out of room, or in which a hand is being asked, is folded already.
        if pulse.redo == 0 and not decide.is_open(state, hand):
            if state.counts[0].open == 0:
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
                # Between instants only: within one, nodes change one after another and no watt flows.
                if pulse.total_w > pulse.peak_w:
                    pulse.peak_w = pulse.total_w
                passes(state, hand, pulse.total_w * (t - clock.now))
                clock.now = t
            clock.instant += 1
            count = _fold(state, world, functions.priority)
            # At least one, or events that no longer count would never reach the limit.
            folded += max(1, count)
            # Only events that no longer counted: nothing has changed, so there is nothing to decide.
            if count == 0:
                continue
        pulse.redo = 0
        status = instant.run(state, world, hand, functions)
        if status == decide.ASKED:
            return ASKED
        if status == decide.BAD_COST:
            return BAD_COST
        if status == decide.MORE:
            # The instant is folded; after the tables have grown its decisions go on without folding again.
            pulse.redo = 1
            return GROW
        pulse.events += 1


def advance(state, world, functions, until, max_events):
    """Run until done, `until`, or about `max_events` events; stops only between instants (GROW: call again)."""
    return run(state, world, None, functions, until, max_events)


@inner
def settle_all(state, world):
    """Close every node's open interval at the present time."""
    for n in range(state.nodes.size):
        energy_accounts.account(state, world, n)


@inner
def begin_all(state, world):
    """Begin a run: watts of every node, first failures, first sleep checks."""
    for n in range(state.nodes.size):
        cls = state.nodes[n].cls
        world.nodes[n].idle_w = state.classes[cls].idle_w * world.watt_error[n]
        world.nodes[n].since = state.clock[0].now
        # From 0: `refresh` adds the difference to the watts of the whole cluster.
        world.nodes[n].watts = 0.0
        energy_accounts.refresh(state, world, n)
        faults.schedule_failure(state, world, n)
        # Nodes idle from the start of the run: their time to sleep counts from there.
        life.idles(state, world, n)
        if state.classes[cls].serverless == 1:
            # A platform without a limit has inf, which no int64 can hold.
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


__all__ = [
    "ASKED", "BAD_COST", "DONE", "GROW", "LIMIT", "STUCK", "UNTIL", "advance", "begin_all", "kernel", "open_world",
    "passes", "run", "settle", "settle_all",
]  # fmt: skip

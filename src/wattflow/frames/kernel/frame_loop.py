"""`advance`: from one event to the next. The only loop of a frame's simulation."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import types

from wattflow.frames.kernel import attempt_ends, event_heap, host_power, hosts, jit, outages, placers, slots, stealing
from wattflow.frames.kernel.frame_tables import (
    DIRTY,
    DRAINING,
    E_ASK,
    E_ASK_AGAIN,
    E_AT_BROKER,
    E_AT_HOST,
    E_AT_PLACER,
    E_BIND,
    E_BOOTED,
    E_BROKER_DONE,
    E_COPY,
    E_EMPTIED,
    E_FINISH,
    E_FREED,
    E_HOST_BACK,
    E_HOST_DETECTED,
    E_HOST_LOST,
    E_NEXT,
    E_OFFER_DONE,
    E_PLACER_BACK,
    E_PLACER_DONE,
    E_PLACER_LOST,
    E_PLACER_STEAL,
    E_PLACER_WORK,
    E_PREEMPT,
    E_REBALANCE,
    E_REFRESH,
    E_RESUBMIT,
    E_SCALE,
    E_STAGE,
    E_STEAL,
    E_STEAL_TIMER,
    ELASTIC,
    EVENT_N,
    EVENTS,
    EXACT,
    FLOW,
    HOSTS,
    LATE,
    MARGIN,
    MESSAGES,
    NEXT_ARRIVAL,
    NOW,
    O_ARRIVAL,
    O_TIMER,
    ONE_SHAPE,
    OPEN,
    OWNERS,
    PLACER_STEAL_K,
    PLACERS,
    PULL,
    REBALANCE,
    REBALANCE_S,
    RECORD_N,
    REFRESH_S,
    RUNNING,
    SCALE_S,
    SLOTS,
    SOON_FIRST,
    SORTED,
    START,
    STEAL_K,
    STEAL_RETRY_S,
    TASKS,
)
from wattflow.frames.kernel.jit import jit as compile_later

DONE, LIMIT, GROW, STUCK = 0, 1, 2, 3
"""Statuses of `advance`. STUCK: tasks are open, but nothing will ever happen again."""


@compile_later
def _freed(s, h):
    """Act on the room that an attempt left on its host."""
    if s.h_state[h] == DRAINING:
        outages.drained(s, h)
    elif s.i[STEAL_K] > 0:
        stealing.steal(s, h)


@compile_later
def _refresh_views(s):
    """Tell every placer the load of every host: a message from each host to each placer."""
    for h in range(s.i[HOSTS]):
        taken = s.h_used[h] + s.h_queued[h]
        for p in range(s.i[PLACERS]):
            s.seen[p, h] = taken
    s.i[MESSAGES] += s.i[HOSTS] * s.i[PLACERS]
    placers.wake_all(s)
    event_heap.push(s, s.f[NOW] + s.f[REFRESH_S], O_TIMER, E_REFRESH, 0, 0)


@compile_later
def _of_attempt(s, what, a):
    """Handle an event of an attempt that is still there."""
    h = s.a_host[a]
    if what == E_FINISH:
        # Read before: `finish` closes the copy and frees its row.
        twin = s.a_twin[a]
        other = s.a_host[twin] if twin >= 0 else h
        attempt_ends.finish(s, a)
        if s.i[STEAL_K] > 0 or s.h_state[h] == DRAINING:
            event_heap.soon(s, E_FREED, h, 0)
        if other != h:
            event_heap.soon(s, E_FREED, other, 0)
    elif what == E_STAGE:
        hosts.stage_ended(s, a)
    elif what == E_COPY:
        attempt_ends.copy_straggler(s, a)
    elif what == E_PREEMPT:
        attempt_ends.check_preemption(s, a)


@compile_later
def _of_flow(s, what, who, other):
    """Handle an event between client, broker, placers and hosts."""
    if what == E_AT_BROKER:
        placers.at_broker(s, who)
    elif what == E_BROKER_DONE:
        placers.broker_done(s, who)
    elif what == E_AT_PLACER:
        if s.i[OWNERS] == 1:
            s.t_since[other] = s.f[NOW]
            slots.offer(s, who, other)
        else:
            placers.at_placer(s, who, other)
    elif what == E_PLACER_DONE:
        placers.decided(s, who, other)
    elif what == E_PLACER_WORK:
        placers.work(s, who)
    elif what == E_AT_HOST:
        if s.i[SLOTS] == 1:
            s.h_coming[who] -= s.s_need[s.shape[other]]
            s.t_since[other] = s.f[NOW]
            slots.arrive(s, who, other)
        else:
            hosts.arrive(s, who, other)
    elif what == E_NEXT:
        if s.i[SLOTS] == 1:
            # A host that waits has found no task; with a single shape more room does not change that.
            if s.h_asked[who] == 0 or s.i[ONE_SHAPE] == 0:
                slots.look(s, who)
        else:
            hosts.next_of_queue(s, who)
    elif what == E_BIND:
        placers.bind(s, who, other)
        # What it held for the probe is free again: the host may be draining, or idle.
        event_heap.soon(s, E_FREED, who, 0)
    elif what == E_STEAL:
        stealing.ask_victims(s, who)
    elif what == E_STEAL_TIMER:
        stealing.steal_again(s, who)
    elif what == E_PLACER_STEAL:
        if other == 0:
            stealing.placer_asks(s, who)
        else:
            s.p_stealing[who] = 0
    elif what == E_ASK:
        stealing.asked(s, who, other)
    elif what == E_ASK_AGAIN:
        stealing.ask_again(s, who, other)
    elif what == E_OFFER_DONE:
        placers.offer_done(s, who)


@compile_later
def _of_hosts(s, what, who):
    """Handle an event of hosts and placers as machines, or a timer."""
    if what == E_RESUBMIT:
        attempt_ends.retry(s, who)
    elif what == E_HOST_LOST:
        outages.host_lost(s, who)
    elif what == E_HOST_DETECTED:
        outages.host_detected(s, who)
    elif what == E_HOST_BACK:
        outages.host_back(s, who)
        event_heap.soon(s, E_FREED, who, 0)
    elif what == E_PLACER_LOST:
        outages.placer_lost(s, who)
    elif what == E_PLACER_BACK:
        outages.placer_back(s, who)
    elif what == E_SCALE:
        outages.scale(s)
    elif what == E_BOOTED:
        outages.booted(s, who)
        event_heap.soon(s, E_FREED, who, 0)
    elif what == E_FREED:
        _freed(s, who)
    elif what == E_EMPTIED:
        outages.emptied(s, who)
    elif what == E_REFRESH:
        _refresh_views(s)
    elif what == E_REBALANCE:
        stealing.rebalance(s)


@compile_later
def _handle(s, what, who, other):
    """Act on an event."""
    s.i[EVENTS] += 1
    if what <= E_PREEMPT:
        # The attempt may have ended, and its row serve another by now: numbers of attempts are never used twice.
        if s.a_task[who] >= 0 and s.a_seq[who] == other:
            _of_attempt(s, what, who)
    elif what < E_RESUBMIT:
        _of_flow(s, what, who, other)
    else:
        _of_hosts(s, what, who)


@compile_later
def _end_of_instant(s):
    """End an instant: placers that hold tasks back decide, idle placers steal, hosts with room ask for work."""
    if s.i[DIRTY] == 1:
        placers.decide_late(s)
    if s.i[PLACER_STEAL_K] > 0:
        stealing.placers_steal(s)
    if s.i[FLOW] == PULL:
        stealing.idle_hosts_ask(s)


@compile_later
def _arrival_s(s):
    at = s.i[NEXT_ARRIVAL]
    if at >= s.i[TASKS]:
        return math.inf
    return s.release[at] if s.i[SORTED] == 1 else s.release[s.arrivals[at]]


def advance(s, max_events):
    """Run until done or about ``max_events`` events (GROW: make room and call again)."""
    handled = 0
    held = s.i[LATE] == 1 or s.i[PLACER_STEAL_K] > 0 or s.i[FLOW] == PULL
    while True:
        # Before anything is handled, so that no handler runs out of rows half-way.
        if s.i[EVENT_N] + s.i[MARGIN] > s.e_time.size or s.i[RECORD_N] + s.i[RUNNING] + 4 > s.records.size:
            return GROW
        # What follows at once goes before all else of this instant.
        if event_heap.is_pending(s):
            at = s.i[SOON_FIRST]
            s.i[SOON_FIRST] = at + 1 if at + 1 < s.n_what.size else 0
            _handle(s, s.n_what[at], s.n_who[at], s.n_other[at])
            continue
        event_s = s.e_time[0] if s.i[EVENT_N] > 0 else math.inf
        arrival_s = _arrival_s(s)
        if event_s > s.f[NOW] and arrival_s > s.f[NOW]:
            # Who holds tasks back decides when all of the instant is known, as in the core.
            if held:
                _end_of_instant(s)
                if event_heap.is_pending(s) or (s.i[EVENT_N] > 0 and s.e_time[0] <= s.f[NOW]):
                    continue
                event_s = s.e_time[0] if s.i[EVENT_N] > 0 else math.inf
            if s.i[OPEN] == 0:
                return DONE
            if handled >= max_events:
                return LIMIT
            # Tasks may wait where no slot looks any more.
            if s.i[OWNERS] == 1 and event_s == math.inf and arrival_s == math.inf:
                slots.rescue(s)
                if event_heap.is_pending(s):
                    continue
            s.f[NOW] = min(event_s, arrival_s)
            if s.f[NOW] == math.inf:
                return STUCK
        handled += 1
        # Ends and changes of hosts before arrivals, messages and timers after them (orders of `frame_tables`).
        if event_s <= s.f[NOW] and (arrival_s > s.f[NOW] or event_heap.order_of(s) < O_ARRIVAL):
            what, who, other = s.e_what[0], s.e_who[0], s.e_other[0]
            event_heap.pop(s)
            _handle(s, what, who, other)
        else:
            at = s.i[NEXT_ARRIVAL]
            s.i[NEXT_ARRIVAL] = at + 1
            attempt_ends.arrive(s, at if s.i[SORTED] == 1 else s.arrivals[at])


def open_state(s):
    """Begin a run: watts, first failures, first timers."""
    s.f[NOW] = s.f[START]
    for h in range(s.i[HOSTS]):
        s.h_since[h] = s.f[NOW]
        host_power.refresh(s, h)
        outages.schedule_host(s, h)
        if s.i[SLOTS] == 1:
            event_heap.soon(s, E_NEXT, h, 0)
        # They begin with a pause: at the start nobody has a queue to steal from.
        if s.i[STEAL_K] > 0:
            s.h_stealing[h] = 1
            event_heap.push(s, s.f[NOW] + s.f[STEAL_RETRY_S], O_TIMER, E_STEAL_TIMER, h, 0)
    for p in range(s.i[PLACERS]):
        outages.schedule_placer(s, p)
    if s.i[EXACT] == 0:
        event_heap.push(s, s.f[NOW] + s.f[REFRESH_S], O_TIMER, E_REFRESH, 0, 0)
    if s.i[REBALANCE] > 0:
        event_heap.push(s, s.f[NOW] + s.f[REBALANCE_S], O_TIMER, E_REBALANCE, 0, 0)
    if s.i[ELASTIC] == 1:
        event_heap.push(s, s.f[NOW] + s.f[SCALE_S], O_TIMER, E_SCALE, 0, 0)


def settle(s):
    """Close every host's open interval at the present time."""
    for h in range(s.i[HOSTS]):
        host_power.account(s, h)


@functools.cache
def functions(kind: Any) -> tuple[Any, Any, Any]:
    # Compiled once for each type of state, however many runs follow.
    """(open_state, advance, settle) compiled for a state type; plain functions when compilation is off."""
    if kind is None:
        return open_state, advance, settle
    return (
        jit.compiled(types.void(kind), open_state),
        jit.compiled(types.int64(kind, types.int64), advance),
        jit.compiled(types.void(kind), settle),
    )


def type_of(state: Any) -> Any:
    """Return the compiled type of a state's handle."""
    return state.kind if jit.COMPILED else None

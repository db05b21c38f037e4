"""Hosts and placers that fail and come back, and hosts that are switched on and off by watermarks."""

from __future__ import annotations

import math

from wattflow.frames.kernel import (
    attempt_ends,
    data,
    draws,
    event_heap,
    host_choice,
    host_power,
    hosts,
    placers,
    queues,
)
from wattflow.frames.kernel.frame_tables import (
    BOOT_S,
    BOOTING,
    CACHE_N,
    CLIENT_S,
    DOWN,
    DRAINING,
    E_AT_PLACER,
    E_BOOTED,
    E_EMPTIED,
    E_HOST_BACK,
    E_HOST_DETECTED,
    E_HOST_LOST,
    E_PLACER_BACK,
    E_PLACER_LOST,
    E_RESUBMIT,
    E_SCALE,
    EPOCH,
    FAILOVER,
    FAILOVER_S,
    HEARTBEAT_S,
    HIGH,
    HOST_FAILURES,
    HOSTS,
    HOSTS_ADDED,
    HOSTS_REMOVED,
    KEEP_UNTIL,
    LEAST_HOSTS,
    LEAST_NEED,
    LOW,
    MOVE_DATA,
    MOVED_OBJECTS,
    NODE_LOST,
    NOW,
    O_HOST,
    O_MESSAGE,
    O_TIMER,
    OBJECT_BYTES,
    OFF,
    ON,
    PLACER_FAILURES,
    PLACER_MTBF_S,
    PLACER_REPAIR_S,
    PLACERS,
    SCALE_S,
    SEED,
    STARVED,
)
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import random
from wattflow.kernel.power_curve import TRANSFER_J


@jit
def schedule_host(s, h):
    """Draw a host's next failure, as the core does."""
    if s.h_mtbf[h] < math.inf:
        count = s.h_failures[h]
        s.h_failures[h] = count + 1
        at = s.f[NOW] - s.h_mtbf[h] * math.log(random.at_counter(s.i[SEED], h, count, 3))
        event_heap.push(s, at, O_HOST, E_HOST_LOST, h, 0)


@jit
def schedule_placer(s, p):
    """Draw a placer's next failure."""
    if s.f[PLACER_MTBF_S] < math.inf:
        event_heap.push(s, s.f[NOW] - s.f[PLACER_MTBF_S] * math.log(draws.unit(s)), O_HOST, E_PLACER_LOST, p, 0)


@jit
def _return_queue(s, h, delay):
    """Return a host's backlog to the placers it came from."""
    q = queues.of_host(s, h)
    while s.q_head[q] >= 0:
        entry = queues.pop(s, q)
        p = s.t_placer[queues.task_of(s, entry)]
        event_heap.push(s, s.f[NOW] + delay, O_MESSAGE, E_AT_PLACER, p, entry)


@jit
def host_lost(s, h):
    """Lose a host and its attempts; after the heartbeat's time-out somebody notices."""
    # A host that is off cannot fail now; its next failure is drawn from here.
    if not host_power.is_up(s, h):
        schedule_host(s, h)
        return
    s.i[HOST_FAILURES] += 1
    silence = s.f[HEARTBEAT_S]
    while s.h_first[h] >= 0:
        a = s.h_first[h]
        t = s.a_task[a]
        twin = s.a_twin[a]
        hosts.save_checkpoint(s, a)
        hosts.close(s, a, NODE_LOST, True)
        # The copy elsewhere goes on: the task is not lost.
        if twin >= 0:
            s.a_twin[twin] = -1
            continue
        if s.s_parts[s.shape[t]] > 1:
            attempt_ends.cancel_parts(s, t)
        event_heap.push(s, s.f[NOW] + silence, O_MESSAGE, E_RESUBMIT, t, 0)
    _return_queue(s, h, silence + draws.message(s, 1))
    host_power.set_state(s, h, DOWN)
    s.h_asked[h] = 0
    if s.i[CACHE_N] > 0:
        data.clear(s, h)
    event_heap.push(s, s.f[NOW] + silence, O_HOST, E_HOST_DETECTED, h, 0)
    # Salts 3 and 4 are the core's for losses and repairs.
    repair = -s.h_repair[h] * math.log(random.at_counter(s.i[SEED], h, s.h_failures[h], 4))
    event_heap.push(s, s.f[NOW] + repair, O_HOST, E_HOST_BACK, h, 0)


@jit
def host_detected(s, h):
    """Tell the placers that a host is gone, unless it is back already."""
    # It may be back before anybody noticed.
    if s.h_state[h] == DOWN and s.h_known[h] == 1:
        s.h_known[h] = 0
        s.i[EPOCH] += 1


@jit
def _appear(s, h):
    host_power.set_state(s, h, ON)
    s.h_known[h] = 1
    s.i[EPOCH] += 1
    for p in range(s.i[PLACERS]):
        # Everybody hears of a new host at once, with its true load.
        s.seen[p, h] = s.h_used[h]
    placers.wake_all(s)


@jit
def host_back(s, h):
    """Bring a repaired host back."""
    _appear(s, h)
    schedule_host(s, h)


@jit
def placer_lost(s, p):
    """Lose a placer. With failover a standby continues its queue; without, clients go to another placer."""
    s.i[PLACER_FAILURES] += 1
    s.p_up[p] = 0
    s.p_busy[p] = 0
    # The decision that was under way dies with the placer (`placers.decided`).
    s.p_gen[p] += 1
    n = s.i[PLACERS]
    if s.i[FAILOVER] == 1:
        event_heap.push(s, s.f[NOW] + s.f[FAILOVER_S], O_HOST, E_PLACER_BACK, p, 0)
        return
    if n > 1:
        while s.q_head[p] >= 0:
            t = queues.pop(s, p)
            after = placers.able(s, p + 1, t)
            s.t_placer[t] = after
            event_heap.push(s, s.f[NOW] + s.f[CLIENT_S], O_MESSAGE, E_AT_PLACER, after, t)
    repair = -s.f[PLACER_REPAIR_S] * math.log(draws.unit(s))
    event_heap.push(s, s.f[NOW] + repair, O_HOST, E_PLACER_BACK, p, 0)


@jit
def placer_back(s, p):
    """Bring a placer, or its standby, back."""
    s.p_up[p] = 1
    placers.wake(s, p)
    schedule_placer(s, p)


@jit
def _pressure(s):
    """Return cores used and waited for over the cores of hosts that are on."""
    wanted = 0.0
    there = 0.0
    for h in range(s.i[HOSTS]):
        wanted += s.h_used[h] + s.h_queued[h] + s.h_coming[h]
        if s.h_known[h] == 1:
            there += s.h_capacity[h]
    for p in range(s.i[PLACERS]):
        wanted += s.q_len[p] * s.i[LEAST_NEED]
    return wanted / there if there > 0.0 else math.inf


@jit
def scale(s):
    """Compare the load with the broker's watermarks, and add or remove one host."""
    load = _pressure(s)
    # Stored one higher by `placers.send_probe`, so that 0 is nobody.
    wanted = s.i[STARVED] - 1
    s.i[STARVED] = 0
    for p in range(s.i[PLACERS]):
        if s.q_head[p] >= 0:
            wanted = s.shape[s.q_head[p]]
    if wanted >= 0:
        # Whatever the load: a task that no host takes may need one that is off, and must find it before it goes again.
        load = math.inf
        s.f[KEEP_UNTIL] = s.f[NOW] + s.f[BOOT_S] + 10.0 * s.f[SCALE_S] + 5.0
    if load > s.f[HIGH]:
        _boot(s, wanted)
    elif load < s.f[LOW] and s.f[NOW] >= s.f[KEEP_UNTIL]:
        on = 0
        last = -1
        for h in range(s.i[HOSTS]):
            if s.h_state[h] == ON and s.h_known[h] == 1:
                on += 1
                if _is_spare(s, h):
                    last = h
        if on > s.i[LEAST_HOSTS] and last >= 0:
            _drain(s, last)
    event_heap.push(s, s.f[NOW] + s.f[SCALE_S], O_TIMER, E_SCALE, 0, 0)


@jit
def _boot(s, wanted):
    """Switch on the first host that is off, if possible one that could run the wanted shape."""
    chosen = -1
    for h in range(s.i[HOSTS]):
        if s.h_state[h] == OFF:
            if wanted >= 0 and s.s_fits[wanted, h] == 1:
                chosen = h
                break
            if chosen < 0:
                chosen = h
    if chosen >= 0:
        s.i[HOSTS_ADDED] += 1
        host_power.set_state(s, chosen, BOOTING)
        event_heap.push(s, s.f[NOW] + s.f[BOOT_S], O_HOST, E_BOOTED, chosen, 0)


@jit
def _is_spare(s, h):
    """Tell whether every placer that may use a host has another one."""
    for p in range(s.i[PLACERS]):
        others = 0
        for other in range(s.p_low[p], s.p_high[p]):
            if other != h and s.h_known[other] == 1:
                others += 1
        if s.p_low[p] <= h < s.p_high[p] and others == 0:
            return False
    return True


@jit
def _drain(s, h):
    s.i[HOSTS_REMOVED] += 1
    host_power.set_state(s, h, DRAINING)
    # First of all: what goes back to the placers must not be sent here again.
    s.h_known[h] = 0
    s.i[EPOCH] += 1
    s.h_asked[h] = 0
    _return_queue(s, h, draws.message(s, 1))
    drained(s, h)


@jit
def drained(s, h):
    """Move the data of a draining host on which nothing runs any more, then switch it off."""
    # Room without an attempt is held for a probe that is still asking.
    if s.h_state[h] != DRAINING or s.h_running[h] > 0 or s.h_used[h] > 0:
        return
    seconds = 0.0
    if s.i[CACHE_N] > 0:
        if s.i[MOVE_DATA] == 1:
            seconds = _move_objects(s, h)
        data.clear(s, h)
    event_heap.push(s, s.f[NOW] + seconds, O_HOST, E_EMPTIED, h, 0)


@jit
def _move_objects(s, h):
    """Objects go to the hosts that own them now, the least recent first so that the recent ones stay longest."""
    count = 0
    slot = s.c_tail[h]
    while slot >= 0:
        thing = s.c_object[slot]
        # As `host_choice.owner`: looked up again only after the known hosts changed.
        if s.owner_epoch[thing] != s.i[EPOCH]:
            s.owner_epoch[thing] = s.i[EPOCH]
            s.owner[thing] = host_choice.find_owner(s, thing)
        if s.owner[thing] >= 0:
            data.keep(s, s.owner[thing], thing)
            count += 1
        slot = s.c_previous[slot]
    s.i[MOVED_OBJECTS] += count
    size = count * s.f[OBJECT_BYTES]
    s.energy[h, TRANSFER_J] += size * s.h_j_byte[h]
    return size / s.h_bandwidth[h]


@jit
def emptied(s, h):
    """Switch a drained host off."""
    # It was looked at when its data set out; something may have begun since.
    if s.h_state[h] == DRAINING and s.h_running[h] == 0:
        host_power.set_state(s, h, OFF)


@jit
def booted(s, h):
    """Take a host in that was switched on."""
    if s.h_state[h] == BOOTING:
        _appear(s, h)

"""From the client through broker and placers to hosts."""

from __future__ import annotations

import numpy as np

from wattflow.frames.kernel import draws, event_heap, host_choice, hosts, queues
from wattflow.frames.kernel.frame_tables import (
    ARCHITECTURE,
    AT_RANDOM,
    BROKER,
    BY_PROBES,
    BY_SAMPLES,
    CENTRALISED,
    CLIENT,
    CLIENT_S,
    D_BROKER,
    D_CLIENT,
    D_METADATA,
    D_PLACER,
    DIRTY,
    E_AT_BROKER,
    E_AT_HOST,
    E_AT_PLACER,
    E_BROKER_DONE,
    E_NEXT,
    E_OFFER_DONE,
    E_PLACER_DONE,
    E_PLACER_WORK,
    EXACT,
    FAILOVER,
    FLOW,
    FREE_PROBE,
    HAS_BROKER,
    HINTS,
    HOLDER,
    HYBRID,
    LATE,
    LONG_S,
    METADATA,
    NOW,
    O_MESSAGE,
    OBJECTS,
    OF_HASH,
    OF_OBJECT,
    OFFERS,
    ONE_SHAPE,
    PLACERS,
    PROBES,
    PULL,
    ROUTE,
    SAMPLES,
    SCANS,
    SHAPES,
    SHORTEST,
    SJF,
    SPLIT,
    STARVED,
    STRICT,
    SUBMITTED,
    TASKS,
    TURN,
    WAIT_BROKER,
    WAIT_CLIENT,
    WAIT_MESSAGE,
    WAIT_PLACER,
)
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import random


@jit
def is_long(s, t):
    """Hybrid frames: whether a task is the central placer's."""
    return s.estimate[t] >= s.f[LONG_S]


@jit
def _spread(s, t, how, first, count):
    if count == 1:
        return first
    if how == AT_RANDOM:
        return first + draws.below(s, count)
    if how == OF_HASH:
        return first + np.int64(random.hashed(s.job[t] * np.int64(7919) + t, 17) % np.uint64(count))
    if how == SHORTEST:
        best = first
        for p in range(first, first + count):
            # Waiting tasks and cores in use, both in whole units.
            if s.q_len[p] + s.p_used[p] * 1e-6 < s.q_len[best] + s.p_used[best] * 1e-6:
                best = p
        return best
    if how == OF_OBJECT:
        return first + (s.object[t] if s.i[OBJECTS] > 0 and s.object[t] >= 0 else t) % count
    s.i[TURN] += 1
    return first + s.i[TURN] % count


@jit
def able(s, p, t):
    """Return the placer itself, or the next one whose hosts could ever run the task."""
    n = s.i[PLACERS]
    for k in range(n):
        other = (p + k) % n
        if s.s_served[s.shape[t], other] == 1:
            return np.int64(other)
    return np.int64(p)


@jit
def _route(s, t, how):
    """Return the placer of a task."""
    return able(s, _first_choice(s, t, how), t)


@jit
def _first_choice(s, t, how):
    if s.i[ARCHITECTURE] == CENTRALISED:
        return np.int64(0)
    if s.i[ARCHITECTURE] == HYBRID:
        if is_long(s, t):
            return np.int64(0)
        return np.int64(_spread(s, t, how, 1, s.i[PLACERS] - 1))
    return np.int64(_spread(s, t, how, 0, s.i[PLACERS]))


@jit
def submit(s, t):
    """Hand in a task that is ready now, as its client."""
    now = s.f[NOW]
    s.t_state[t] = SUBMITTED
    s.t_ready[t] = now
    seconds = draws.serve(s, CLIENT, D_CLIENT)
    s.f[WAIT_CLIENT] += seconds
    flight = draws.message(s, 1)
    s.f[WAIT_MESSAGE] += flight
    s.t_message[t] = flight
    seconds += flight
    if s.i[HAS_BROKER] == 1:
        event_heap.send(s, seconds, E_AT_BROKER, t, 0)
        return
    p = _route(s, t, s.i[ROUTE])
    s.t_placer[t] = p
    event_heap.send(s, seconds, E_AT_PLACER, p, t)


@jit
def at_broker(s, t):
    """Receive a task at the broker."""
    seconds = draws.serve(s, BROKER, D_BROKER)
    s.f[WAIT_BROKER] += seconds
    event_heap.send(s, seconds, E_BROKER_DONE, t, 0)


@jit
def broker_done(s, t):
    """Hand a task from the broker to a placer."""
    p = _route(s, t, s.i[SPLIT])
    s.t_placer[t] = p
    seconds = draws.message(s, 1)
    s.f[WAIT_MESSAGE] += seconds
    s.t_message[t] += seconds
    event_heap.send(s, seconds, E_AT_PLACER, p, t)


@jit
def at_placer(s, p, entry):
    """Receive a task (or a probe that found no host) at a placer."""
    t = queues.task_of(s, entry)
    # With failover a standby takes over the queue, so the task may wait in it.
    if s.p_up[p] == 0 and s.i[FAILOVER] == 0 and s.i[PLACERS] > 1:
        # Nobody answers: the client tries the next placer after its own time-out.
        after = able(s, p + 1, t)
        # A probe stays its batch's: the tasks are with the placer that sent it.
        if entry == t:
            s.t_placer[t] = after
        event_heap.push(s, s.f[NOW] + s.f[CLIENT_S], O_MESSAGE, E_AT_PLACER, after, entry)
        return
    s.t_since[t] = s.f[NOW]
    if entry != t:
        send_probe(s, p, entry)
        return
    queues.push(s, p, t)
    wake(s, p)


@jit
def wake(s, p):
    """Let a placer look at its queue."""
    if s.i[LATE] == 1:
        s.p_dirty[p] = 1
        s.i[DIRTY] = 1
    else:
        event_heap.soon(s, E_PLACER_WORK, p, 0)


@jit
def wake_all(s):
    """Let all placers look, since room or hosts have appeared."""
    for p in range(s.i[PLACERS]):
        if s.q_head[p] >= 0:
            wake(s, p)


@jit
def _service(s, p):
    """Return seconds of one decision: the placer's own, and asking the metadata service for hints."""
    seconds = draws.draw(s, D_PLACER)
    if s.i[HINTS] == 1:
        seconds += draws.message(s, 2) + draws.serve(s, METADATA, D_METADATA)
    return seconds


@jit
def work(s, p):
    """Decide on the queue's head under early binding, one decision after the other."""
    while s.p_busy[p] == 0 and s.p_up[p] == 1 and s.q_head[p] >= 0:
        seconds = _service(s, p)
        if seconds > 0.0:
            s.p_busy[p] = 1
            event_heap.push(s, s.f[NOW] + seconds, O_MESSAGE, E_PLACER_DONE, p, s.p_gen[p])
            return
        if not _decide_head(s, p):
            return


@jit
def decided(s, p, generation):
    """Make the decision whose service time is over."""
    if generation != s.p_gen[p]:
        return
    s.p_busy[p] = 0
    if s.p_up[p] == 0:
        return
    if s.i[LATE] == 1:
        # One decision for each time of service.
        if _scan(s, p, 1) > 0:
            s.p_dirty[p] = 1
        s.i[DIRTY] = 1
    elif s.q_head[p] >= 0 and _decide_head(s, p):
        event_heap.soon(s, E_PLACER_WORK, p, 0)


@jit
def _decide_head(s, p):
    """Send the head of the queue to a host; False when no host is known."""
    t = queues.pop(s, p)
    if s.p_rule[p] == BY_PROBES:
        s.f[WAIT_PLACER] += s.f[NOW] - s.t_since[t]
        _probe(s, p, t)
        return True
    h = host_choice.host(s, p, t, False)
    if h < 0:
        # It keeps its place and waits until a host is known.
        queues.push_front(s, p, t)
        return False
    s.f[WAIT_PLACER] += s.f[NOW] - s.t_since[t]
    send(s, p, t, h)
    return True


@jit
def send(s, p, t, h):
    """Send a task to a host, without a promise of room there."""
    need = s.s_need[s.shape[t]]
    host_choice.note(s, p, h, need)
    # Until it arrives (`hosts.arrive`): others see that the room is spoken for.
    s.h_coming[h] += need
    seconds = draws.ask(s, s.i[SAMPLES]) if s.p_rule[p] == BY_SAMPLES else 0.0
    seconds += draws.message(s, 1)
    s.f[WAIT_MESSAGE] += seconds
    s.t_message[t] += seconds
    event_heap.send(s, seconds, E_AT_HOST, h, t)


# Sparrow: several probes for each task; the first hosts to have room get the tasks of the batch.
@jit
def _probe(s, p, t):
    """Add a task to its batch (same job, same instant, same placer) and send its probes."""
    leader = s.p_batch[p]
    now = s.f[NOW]
    same = leader >= 0 and s.job[leader] == s.job[t] and s.p_batch_at[p] == now and s.shape[leader] == s.shape[t]
    s.t_next[t] = -1
    if not same:
        leader = t
        s.p_batch[p] = t
        s.p_batch_at[p] = now
    if s.t_bag[leader] >= 0:
        last = s.t_bag[leader]
        while s.t_next[last] >= 0:
            last = s.t_next[last]
        s.t_next[last] = t
    else:
        s.t_bag[leader] = t
    s.t_since[t] = now
    for _ in range(s.i[SAMPLES]):
        x = s.i[FREE_PROBE]
        entry = x + s.i[TASKS]
        s.i[FREE_PROBE] = s.t_next[entry]
        s.x_leader[x] = leader
        s.x_placer[x] = p
        send_probe(s, p, entry)


@jit
def send_probe(s, p, entry):
    """Send a probe to a random host; when none is known it waits at the placer and tries again."""
    h = host_choice.random_host(s, p, s.shape[queues.task_of(s, entry)])
    seconds = draws.message(s, 1)
    s.i[PROBES] += 1
    if h < 0:
        # One higher than the shape; `outages.scale` boots a host for it.
        s.i[STARVED] = s.shape[queues.task_of(s, entry)] + 1
        # After a second: without a pause a frame without delays would ask for ever in one instant.
        event_heap.push(s, s.f[NOW] + seconds + 1.0, O_MESSAGE, E_AT_PLACER, p, entry)
    else:
        event_heap.send(s, seconds, E_AT_HOST, h, entry)


@jit
def free_probe(s, entry):
    """Free the row of a probe that has done its part."""
    s.t_next[entry] = s.i[FREE_PROBE]
    s.i[FREE_PROBE] = entry - s.i[TASKS]


@jit
def bind(s, h, entry):
    """Answer a probe: with a task of the batch, or with nothing when all have been taken."""
    x = entry - s.i[TASKS]
    leader = s.x_leader[x]
    s.h_used[h] -= s.s_need[s.shape[leader]]
    t = s.t_bag[leader]
    # Neither on nor draining: a host that drains still runs what it asked for.
    if s.h_state[h] > 1:
        # The host went away while it asked; what it would have taken is probed for anew.
        event_heap.push(s, s.f[NOW], O_MESSAGE, E_AT_PLACER, s.x_placer[x], entry)
        return
    free_probe(s, entry)
    if t >= 0:
        s.t_bag[leader] = s.t_next[t]
        hosts.start_here(s, t, h)
    event_heap.soon(s, E_NEXT, h, 0)


# Late binding: tasks stay with the placer until a host has room.
@jit
def _try(s, p, t):
    """Place all parts of a task or none; True when it was placed."""
    shape = s.shape[t]
    if s.i[EXACT] == 0:
        h = host_choice.host(s, p, t, True)
        if h >= 0:
            s.f[WAIT_PLACER] += s.f[NOW] - s.t_since[t]
            send(s, p, t, h)
        return h >= 0
    parts = s.s_parts[shape]
    first = np.int64(-1)
    for part in range(parts):
        h = host_choice.host(s, p, t, True)
        if h < 0:
            while first >= 0:
                after = s.a_twin[first]
                hosts.release_room(s, first)
                first = after
            return False
        a = hosts.begin(s, t, h, part)
        # `a_twin` chains the parts until `_depart` clears it; no part has a copy yet.
        s.a_twin[a] = first
        first = a
    s.f[WAIT_PLACER] += s.f[NOW] - s.t_since[t]
    if s.t_parts.size > 1:
        s.t_parts[t] = parts
    # Each part has a message of its own; all of them set out with the mean delay.
    seconds = draws.message(s, parts) / parts
    s.t_message[t] += seconds
    _depart(s, first, seconds)
    return True


@jit
def _depart(s, last, seconds):
    """Send parts on their way, oldest first: they were chained newest first."""
    before = np.int64(-1)
    while last >= 0:
        after = s.a_twin[last]
        s.a_twin[last] = before
        before = last
        last = after
    while before >= 0:
        after = s.a_twin[before]
        s.a_twin[before] = -1
        if s.i[FLOW] == PULL:
            s.h_asked[s.a_host[before]] = 0
        hosts.travel(s, before, seconds)
        before = after


@jit
def _scan(s, p, most):
    """Try the queue in order, skipping what does not fit; at most ``most`` placements. Returns how many."""
    placed = 0
    failed = 0
    s.i[SCANS] += 1
    scan = s.i[SCANS]
    # Of a heap only the head can be had without taking it apart, so nobody overtakes a head that does not fit.
    if s.i[SJF] == 1:
        while s.q_head[p] >= 0 and placed < most:
            t = queues.pop(s, p)
            if not _try(s, p, t):
                queues.push_front(s, p, t)
                break
            placed += 1
        return placed
    before = np.int64(-1)
    t = np.int64(s.q_head[p])
    while t >= 0 and placed < most:
        after = np.int64(s.t_next[t])
        kind = s.s_class[s.shape[t]]
        taken = False
        # One of its kind found no room in this scan; nor will this one.
        if s.s_failed[kind] != scan:
            # Out of the queue first: on its way to a host it may enter another one.
            queues.remove_after(s, p, before, t)
            taken = _try(s, p, t)
            if not taken:
                queues.insert_after(s, p, before, t)
                s.s_failed[kind] = scan
                failed += 1
        if taken:
            placed += 1
        else:
            if s.i[STRICT] == 1 or s.i[ONE_SHAPE] == 1 or failed == s.i[SHAPES]:
                break
            before = t
        t = after
    return placed


@jit
def _anything_fits(s, p):
    """Tell whether the first task of the queue would find room; a placer does not start to decide before."""
    if s.i[ONE_SHAPE] == 0:
        return True
    shape = s.shape[s.q_head[p]]
    for h in range(s.p_low[p], s.p_high[p]):  # noqa: SIM110
        if s.h_known[h] == 1 and host_choice.has_room(s, p, h, shape):
            return True
    return False


@jit
def decide_late(s):
    """End of an instant: every placer that has something to look at looks at it."""
    s.i[DIRTY] = 0
    if s.i[FLOW] == OFFERS:
        _next_offer(s)
        return
    zero = draws.is_zero(s, D_PLACER) and s.i[HINTS] == 0
    for p in range(s.i[PLACERS]):
        if s.p_dirty[p] == 0 or s.p_busy[p] == 1:
            continue
        s.p_dirty[p] = 0
        if s.q_head[p] < 0 or s.p_up[p] == 0:
            continue
        if zero:
            # No limit: a placer that needs no time decides on all that fits.
            _scan(s, p, np.int64(1) << 60)
        elif _anything_fits(s, p):
            s.p_busy[p] = 1
            event_heap.push(s, s.f[NOW] + _service(s, p), O_MESSAGE, E_PLACER_DONE, p, s.p_gen[p])


# Mesos: the broker offers all free hosts to one placer at a time, the one with the smallest share first.
@jit
def _next_offer(s):
    if s.i[HOLDER] >= 0:
        return
    best = -1
    for p in range(s.i[PLACERS]):
        if s.p_dirty[p] == 1 and s.p_up[p] == 1 and s.q_head[p] >= 0 and (best < 0 or s.p_used[p] < s.p_used[best]):
            best = p
    if best < 0:
        return
    s.p_dirty[best] = 0
    s.i[HOLDER] = best
    seconds = draws.serve(s, BROKER, D_BROKER) + draws.message(s, 2) + _service(s, best)
    event_heap.push(s, s.f[NOW] + seconds, O_MESSAGE, E_OFFER_DONE, best, 0)


@jit
def offer_done(s, p):
    """Let a placer take what it wants of an offer; the rest goes to the next."""
    s.i[HOLDER] = -1
    if s.p_up[p] == 1:
        _scan(s, p, np.int64(1) << 60)
    s.i[DIRTY] = 1

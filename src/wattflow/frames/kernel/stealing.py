"""Work that moves: stealing by idle hosts and by idle placers, rebalancing, and hosts that ask for work."""

from __future__ import annotations

import numpy as np

from wattflow.frames.kernel import draws, event_heap, host_choice, hosts, placers, queues
from wattflow.frames.kernel.frame_tables import (
    BY_AGE,
    D_PLACER,
    E_ASK,
    E_ASK_AGAIN,
    E_AT_HOST,
    E_AT_PLACER,
    E_PLACER_STEAL,
    E_REBALANCE,
    E_STEAL,
    E_STEAL_TIMER,
    HOSTS,
    LONG_S,
    MESSAGES,
    NOW,
    O_MESSAGE,
    O_TIMER,
    ON,
    PLACER_STEAL_K,
    PLACER_STOLEN,
    PLACERS,
    PULL_S,
    QUEUED,
    REBALANCE,
    REBALANCE_AGE_S,
    REBALANCE_S,
    REBALANCED,
    SJF,
    STEAL_HALF,
    STEAL_K,
    STEAL_RETRY_S,
    STEAL_SHORT,
    STEAL_TRIES,
    STEALS,
    STOLEN,
    TASKS,
    WAIT_MESSAGE,
)
from wattflow.frames.kernel.jit import jit

_SEARCH = 32  # how far into a queue a thief looks for short work


@jit
def steal(s, h):
    """Send an idle host's request for work to k others; called whenever it may have become idle."""
    # One request at a time; `steal_again` allows the next.
    if s.h_stealing[h] == 1 or not hosts.is_idle(s, h):
        return
    s.h_stealing[h] = 1
    seconds = draws.message(s, 1)
    s.i[MESSAGES] -= 1  # the questions to all k are counted when they arrive
    event_heap.send(s, seconds, E_STEAL, h, 0)


@jit
def ask_victims(s, h):
    """Let the host with the longest queue of k answer a request for work. Goes on while that brings work."""
    taken = 1
    while taken > 0 and hosts.is_idle(s, h):
        s.i[STEAL_TRIES] += 1
        s.i[MESSAGES] += 2 * s.i[STEAL_K]
        victim = _victim(s, h)
        taken = _take(s, victim, h) if victim >= 0 else 0
        if taken > 0:
            s.i[STEALS] += 1
            s.i[STOLEN] += taken
    if taken == 0:
        # Nothing found: without a pause idle hosts would ask each other for ever.
        event_heap.push(s, s.f[NOW] + s.f[STEAL_RETRY_S], O_TIMER, E_STEAL_TIMER, h, 0)
    else:
        s.h_stealing[h] = 0


@jit
def _victim(s, h):
    """Return the one of k sampled hosts with the longest queue; −1 when none has one."""
    n = s.i[HOSTS]
    victim = np.int64(-1)
    longest = 0
    if s.i[QUEUED] == 0 or n < 2:
        return victim
    base = s.i[PLACERS]
    for _ in range(s.i[STEAL_K]):
        # Any other host: numbers from its own on move up by one.
        v = draws.below(s, n - 1)
        if v >= h:
            v += 1
        if s.q_len[base + v] > longest and s.h_state[v] == ON:
            victim = v
            longest = s.q_len[base + v]
    return victim


@jit
def steal_again(s, h):
    """Let an idle host ask again after its pause."""
    s.h_stealing[h] = 0
    steal(s, h)


@jit
def _take(s, victim, h):
    """Move the victim's first task that fits the thief (or half of the difference) to the thief."""
    q = queues.of_host(s, victim)
    count = 1
    if s.i[STEAL_HALF] == 1:
        count = max(1, (s.q_len[q] - s.q_len[queues.of_host(s, h)]) // 2)
    room = s.h_capacity[h] - s.h_used[h] - s.h_coming[h]
    moved = 0
    while moved < count and s.q_head[q] >= 0:
        entry = _first_wanted(s, q, h)
        # The first must fit at once; what else comes over may wait in the thief's queue.
        if entry < 0 or (moved == 0 and queues.need_of(s, entry) > room):
            if entry >= 0:
                queues.push_front(s, q, entry)
            break
        _move(s, entry, h)
        moved += 1
    return moved


@jit
def _first_wanted(s, q, h):
    """Take the first entry that the thief can run, only short ones where the frame says so; −1 without one."""
    before = np.int64(-1)
    entry = np.int64(s.q_head[q])
    # Of a heap only the head can be had.
    if s.i[SJF] == 1:
        t = queues.task_of(s, entry)
        return queues.pop(s, q) if s.s_fits[s.shape[t], h] == 1 else np.int64(-1)
    for _ in range(_SEARCH if s.i[STEAL_SHORT] == 1 else 1):
        if entry < 0:
            return np.int64(-1)
        t = queues.task_of(s, entry)
        if s.s_fits[s.shape[t], h] == 1 and (s.i[STEAL_SHORT] == 0 or s.estimate[t] < s.f[LONG_S]):
            queues.remove_after(s, q, before, entry)
            return entry
        before = entry
        entry = np.int64(s.t_next[entry])
    return np.int64(-1)


@jit
def _move(s, entry, h):
    """Move an entry from one host to another."""
    # Probes are not counted as coming (`hosts.arrive`).
    if entry < s.i[TASKS]:
        s.h_coming[h] += queues.need_of(s, entry)
    seconds = draws.message(s, 1)
    if entry < s.i[TASKS]:
        s.t_message[entry] += seconds
    s.f[WAIT_MESSAGE] += seconds
    event_heap.send(s, seconds, E_AT_HOST, h, entry)


@jit
def placers_steal(s):
    """Let every placer whose queue is empty ask k others for half of theirs."""
    n = s.i[PLACERS]
    for p in range(n):
        if s.q_head[p] >= 0 or s.p_stealing[p] == 1 or s.p_up[p] == 0 or s.p_busy[p] == 1:
            continue
        longest = 1
        for v in range(n):
            if v != p and s.q_len[v] > longest - 1 + (s.p_busy[v] == 1):
                longest = 2
                break
        if longest == 1 or not _could_place(s, p):
            continue
        s.p_stealing[p] = 1
        seconds = draws.message(s, 1)
        s.i[MESSAGES] += 2 * s.i[PLACER_STEAL_K] - 1  # a question and an answer of each that is asked
        event_heap.push(s, s.f[NOW] + seconds, O_MESSAGE, E_PLACER_STEAL, p, 0)


@jit
def _could_place(s, p):
    """Tell whether a placer would have something to do with more tasks: a host with room, or decisions to make."""
    if not draws.is_zero(s, D_PLACER):
        return True
    for h in range(s.p_low[p], s.p_high[p]):
        if s.h_known[h] == 1 and s.h_capacity[h] - s.h_used[h] - s.h_queued[h] - s.h_coming[h] > 0:
            return True
    return False


@jit
def placer_asks(s, p):
    """Move half of the longest queue of k placers to the idle placer whose request has reached them."""
    # It asks again after a pause: without one, two placers could pass a task that fits nowhere to and fro for ever.
    event_heap.push(s, s.f[NOW] + s.f[STEAL_RETRY_S], O_TIMER, E_PLACER_STEAL, p, 1)
    n = s.i[PLACERS]
    victim = np.int64(-1)
    longest = 0
    for _ in range(s.i[PLACER_STEAL_K]):
        v = draws.below(s, n - 1)
        if v >= p:
            v += 1
        # The task that is being decided on cannot be taken away.
        waiting = s.q_len[v] - (s.p_busy[v] == 1)
        if waiting > longest:
            victim = v
            longest = waiting
    if victim < 0:
        return
    seconds = draws.message(s, 1)
    for _ in range((longest + 1) // 2):
        t = _take_task(s, victim, p)
        if t < 0:
            break
        s.i[PLACER_STOLEN] += 1
        s.t_placer[t] = p
        event_heap.push(s, s.f[NOW] + seconds, O_MESSAGE, E_AT_PLACER, p, t)


@jit
def _take_task(s, victim, p):
    """Take the victim's first task that the thief's hosts could run (the head only); one being decided on stays."""
    if s.q_head[victim] < 0:
        return np.int64(-1)
    # In a list that is the head; in a heap the head may be another by the time of the decision, so it may go.
    if s.p_busy[victim] == 1 and s.i[SJF] == 0:
        head = np.int64(s.q_head[victim])
        t = np.int64(s.t_next[head])
        if t < 0 or s.s_served[s.shape[t], p] == 0:
            return np.int64(-1)
        queues.remove_after(s, victim, head, t)
        return t
    t = np.int64(s.q_head[victim])
    return np.int64(queues.pop(s, victim)) if s.s_served[s.shape[t], p] == 1 else np.int64(-1)


@jit
def _lightest(s, shape):
    """Return the usable host with the least load, −1 without one."""
    best = -1
    best_load = 1e300
    for h in range(s.i[HOSTS]):
        if host_choice.usable(s, h, shape) and s.h_state[h] == ON:
            taken = (s.h_used[h] + s.h_queued[h] + s.h_coming[h]) / s.h_capacity[h]
            if taken < best_load:
                best = h
                best_load = taken
    return best


@jit
def rebalance(s):
    """Move heads of queues to lighter hosts: every host's while it pays, or only those that have waited too long."""
    now = s.f[NOW]
    for h in range(s.i[HOSTS]):
        q = queues.of_host(s, h)
        for _ in range(s.q_len[q]):
            entry = s.q_head[q]
            if entry < 0:
                break
            t = queues.task_of(s, entry)
            if s.i[REBALANCE] == BY_AGE and now - s.t_since[t] < s.f[REBALANCE_AGE_S]:
                break
            to = _lightest(s, s.shape[t])
            need = queues.need_of(s, entry)
            # No lighter host for the head; queues are moved head first.
            if to < 0 or to == h:
                break
            # With the task there: it moves only if it then sees less load than here.
            there = (s.h_used[to] + s.h_queued[to] + s.h_coming[to] + need) / s.h_capacity[to]
            if there >= (s.h_used[h] + s.h_queued[h]) / s.h_capacity[h]:
                break
            queues.pop(s, q)
            s.i[REBALANCED] += 1
            _move(s, entry, to)
    event_heap.push(s, now + s.f[REBALANCE_S], O_TIMER, E_REBALANCE, 0, 0)


@jit
def ask(s, h, p):
    """Ask a placer for work as a host with room (pull)."""
    if s.h_asked[h] != 0 or s.h_state[h] != ON or not hosts.is_idle(s, h):
        return
    # −1: the request is on its way; p + 1 when it waits at placer p.
    s.h_asked[h] = -1
    event_heap.push(s, s.f[NOW] + draws.message(s, 1), O_MESSAGE, E_ASK, h, p)


@jit
def asked(s, h, p):
    """Receive a host's request at a placer, which keeps it until it has a task."""
    if s.h_state[h] != ON:
        s.h_asked[h] = 0
        return
    s.h_asked[h] = p + 1
    s.h_asked_at[h] = s.f[NOW]
    placers.wake(s, p)
    if s.i[PLACERS] > 1:
        # With one placer there is nowhere else to ask.
        event_heap.push(s, s.f[NOW] + s.f[PULL_S], O_TIMER, E_ASK_AGAIN, h, p)


@jit
def ask_again(s, h, p):
    """Move a host's request from a placer that had nothing to the next one."""
    # It may have got work meanwhile, or wait at another placer.
    if s.h_asked[h] == p + 1:
        s.h_asked[h] = 0
        ask(s, h, next_placer(s, h, p))


@jit
def next_placer(s, h, p):
    """Return the placer after p that may use the host."""
    n = s.i[PLACERS]
    for k in range(1, n + 1):
        other = (p + k) % n
        if s.p_low[other] <= h < s.p_high[other]:
            return np.int64(other)
    return np.int64(p)


@jit
def idle_hosts_ask(s):
    """Make sure, at the end of an instant, that every host with room has a request out (pull)."""
    for h in range(s.i[HOSTS]):
        if s.h_asked[h] == 0 and s.h_state[h] == ON and s.h_known[h] == 1:
            ask(s, h, next_placer(s, h, draws.below(s, s.i[PLACERS])))

"""Hosts: room, the stages of an attempt, its record, and the host's own queue."""

from __future__ import annotations

import math

import numpy as np

from wattflow.frames.kernel import data, draws, event_heap, host_power, queues
from wattflow.frames.kernel.frame_tables import (
    ATTEMPT_SEQ,
    CACHE_N,
    CACHED_AT_START,
    CHECKPOINT_COST_S,
    CHECKPOINT_S,
    CONFLICTS,
    COPY_AFTER,
    E_AT_PLACER,
    E_BIND,
    E_COPY,
    E_FINISH,
    E_NEXT,
    E_PREEMPT,
    E_STAGE,
    FAILED,
    FREE_ATTEMPT,
    HAS_DATA,
    HEARTBEAT_S,
    HOST_QUEUES,
    IN_DATA,
    IN_MESSAGE,
    IN_RUN,
    KEEP_RECORDS,
    LEAST_NEED,
    NOW,
    O_MESSAGE,
    O_TIMER,
    OK,
    ON,
    PREEMPT,
    PREEMPT_S,
    PREEMPTED,
    RECORD_N,
    RESUME_S,
    RUNNING,
    SEED,
    SLOW_FACTOR,
    SLOW_SHARE,
    SPECULATE,
    TASKS,
    WAIT_DATA,
    WAIT_HOST,
    WAIT_MESSAGE,
)
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import attempt_record, random
from wattflow.kernel.power_curve import LOST_J, RUN_J, TRANSFER_J


@jit
def fits(s, h, shape):
    """Tell whether a host has room for a shape now."""
    return (
        s.h_used[h] + s.s_need[shape] <= s.h_capacity[h]
        and s.h_used_memory[h] + s.s_memory[shape] <= s.h_memory[h]
        and s.h_state[h] == ON
        and s.s_fits[shape, h] == 1
    )


@jit
def begin(s, t, h, part):
    """Take a host's room for a task; returns the attempt, not yet in any stage."""
    # There is a row: as many attempts as the cores of all hosts hold, and some more (`frame_build._attempts`).
    a = s.i[FREE_ATTEMPT]
    s.i[FREE_ATTEMPT] = s.a_next[a]
    shape = s.shape[t]
    need = s.s_need[shape]
    s.a_task[a] = t
    s.a_part[a] = part
    s.a_host[a] = h
    s.i[ATTEMPT_SEQ] += 1
    s.a_seq[a] = s.i[ATTEMPT_SEQ]
    s.a_outcome[a] = OK
    s.a_twin[a] = -1
    s.a_copy[a] = 0
    s.a_placed[a] = s.f[NOW]
    s.a_since[a] = s.f[NOW]
    s.a_start[a] = math.nan
    s.a_extra[a] = 0.0
    s.a_message_s[a] = 0.0
    s.a_data_s[a] = 0.0
    s.a_transfer_j[a] = 0.0
    # Before the room is taken: the curve is read at what is allocated so far.
    if s.h_known_power[h] == 1:
        factor = s.s_factor[shape] / s.speed[h, s.s_function[shape]]
        s.a_marginal[a] = host_power.added_w(s, h, need) * (s.estimate[t] * factor)
    else:
        # NaN, not 0: unknown joules must not look like none.
        s.a_marginal[a] = math.nan
    first = s.h_first[h]
    s.a_previous[a] = -1
    s.a_next[a] = first
    if first >= 0:
        s.a_previous[first] = a
    s.h_first[h] = a
    s.h_used[h] += need
    s.h_used_memory[h] += s.s_memory[shape]
    s.h_running[h] += 1
    s.p_used[s.t_placer[t]] += need
    if s.j_used.size > 1:
        s.j_used[s.job[t]] += need
    s.i[RUNNING] += 1
    return a


@jit
def release_room(s, a):
    """Give back what an attempt held and free its row."""
    h = s.a_host[a]
    t = s.a_task[a]
    shape = s.shape[t]
    before = s.a_previous[a]
    after = s.a_next[a]
    if before >= 0:
        s.a_next[before] = after
    else:
        s.h_first[h] = after
    if after >= 0:
        s.a_previous[after] = before
    s.h_used[h] -= s.s_need[shape]
    s.h_used_memory[h] -= s.s_memory[shape]
    s.h_running[h] -= 1
    s.p_used[s.t_placer[t]] -= s.s_need[shape]
    if s.j_used.size > 1:
        s.j_used[s.job[t]] -= s.s_need[shape]
    # The number in `a_seq` stays until the row is used again: events that name it are stale from here on.
    s.a_task[a] = -1
    s.a_next[a] = s.i[FREE_ATTEMPT]
    s.i[FREE_ATTEMPT] = a
    s.i[RUNNING] -= 1


@jit
def travel(s, a, seconds):
    """Send the order to run to the host, which keeps the room."""
    s.a_stage[a] = IN_MESSAGE
    if seconds <= 0.0:
        event_heap.soon(s, E_STAGE, a, s.a_seq[a])
        return
    s.a_message_s[a] = seconds
    s.f[WAIT_MESSAGE] += seconds
    # The attempt's number as the key, under the first order: ends that tie go by placement, as in the core.
    event_heap.push_as(s, s.f[NOW] + seconds, s.a_seq[a], E_STAGE, a, s.a_seq[a])


@jit
def enter_data(s, a):
    """Fetch what the attempt needs, or run at once."""
    if s.i[CACHE_N] > 0 or s.i[HAS_DATA] == 1:
        seconds = data.fetch_s(s, a)
        if seconds > 0.0:
            s.a_stage[a] = IN_DATA
            s.a_since[a] = s.f[NOW]
            s.a_data_s[a] = seconds
            s.f[WAIT_DATA] += seconds
            event_heap.push_as(s, s.f[NOW] + seconds, s.a_seq[a], E_STAGE, a, s.a_seq[a])
            return
    enter_run(s, a)


@jit
def stage_ended(s, a):
    """Go on with an attempt whose message has arrived or whose data are there."""
    if s.a_stage[a] == IN_MESSAGE:
        enter_data(s, a)
        return
    # Into the cache when it is there; with CACHED_AT_START it went in with the request (`data.fetch_s`).
    if s.i[CACHE_N] > 0 and s.i[CACHED_AT_START] == 0 and s.object[s.a_task[a]] >= 0:
        data.keep(s, s.a_host[a], s.object[s.a_task[a]])
    enter_run(s, a)


@jit
def _plan_work(s, a):
    """Return seconds of an attempt on its host, up to its end or to the failure that awaits it."""
    t = s.a_task[a]
    h = s.a_host[a]
    shape = s.shape[t]
    fn = s.s_function[shape]
    runtime = s.runtime[t]
    if s.t_saved.size > 1:
        runtime *= 1.0 - s.t_saved[t]
    work = runtime * (s.s_factor[shape] / s.speed[h, fn])
    if s.f[SLOW_SHARE] > 0.0 and draws.unit(s) < s.f[SLOW_SHARE]:
        work *= s.f[SLOW_FACTOR]
    # None at the very end, as in the core.
    if s.f[CHECKPOINT_S] > 0.0:
        work += max(0.0, math.ceil(work / s.f[CHECKPOINT_S]) - 1.0) * s.f[CHECKPOINT_COST_S]
    if s.t_preempted.size > 1 and s.t_preempted[t] > 0:
        s.a_extra[a] = s.f[RESUME_S]
        work += s.f[RESUME_S]
    # The core's draws, by counter: the same seed fails the same tries, whatever the frame.
    rate = s.failure_rate[fn]
    # A gang fails with its first part.
    if rate > 0.0 and s.a_part[a] == 0 and random.at_counter(s.i[SEED], t, s.t_tries[t], 1) < rate:
        s.a_outcome[a] = FAILED
        work *= random.at_counter(s.i[SEED], t, s.t_tries[t], 2)
    return work


@jit
def enter_run(s, a):
    """Start to compute."""
    now = s.f[NOW]
    h = s.a_host[a]
    work = _plan_work(s, a)
    s.a_stage[a] = IN_RUN
    s.a_start[a] = now
    s.a_since[a] = now
    s.a_work[a] = work
    host_power.account(s, h)
    # After `account`: the integral reaches up to now.
    s.a_mark[a] = s.h_integral[h]
    s.h_busy[h] += s.s_need[s.shape[s.a_task[a]]]
    host_power.refresh(s, h)
    event_heap.push_as(s, now + work, s.a_seq[a], E_FINISH, a, s.a_seq[a])
    if s.i[SPECULATE] == 1 and s.a_copy[a] == 0:
        t = s.a_task[a]
        shape = s.shape[t]
        expected = s.f[COPY_AFTER] * s.estimate[t] * s.s_factor[shape] / s.speed[h, s.s_function[shape]]
        # A check that would come after the end can find nothing.
        if expected < work:
            event_heap.push(s, now + expected, O_TIMER, E_COPY, a, s.a_seq[a])
    if s.i[PREEMPT] > 0 and s.f[PREEMPT_S] < work:
        event_heap.push(s, now + s.f[PREEMPT_S], O_TIMER, E_PREEMPT, a, s.a_seq[a])


@jit
def _write(s, a, outcome, run_j):
    if s.i[KEEP_RECORDS] == 0:
        return
    k = s.i[RECORD_N]
    s.i[RECORD_N] = k + 1
    t = s.a_task[a]
    attempt_record.write_who(s.records, k, t, s.a_part[a], s.t_tries[t], outcome)
    # A frame runs the first CPU variant with its whole request.
    attempt_record.write_where(s.records, k, s.a_host[a], -1, 0, 1.0)
    attempt_record.write_when(s.records, k, s.t_ready[t], s.a_placed[a], s.a_start[a], s.f[NOW])
    attempt_record.write_stages(s.records, k, s.a_message_s[a], 0.0, 0.0, s.a_data_s[a], 0.0)
    attempt_record.write_joules(s.records, k, run_j, 0.0, s.a_transfer_j[a], s.a_marginal[a])


@jit
def close(s, a, outcome, wasted):
    """End an attempt in whatever stage: account, record, give back. ``wasted`` joules move to *lost*."""
    h = s.a_host[a]
    run_j = 0.0
    if s.a_stage[a] == IN_RUN:
        host_power.account(s, h)
        weight = s.s_need[s.shape[s.a_task[a]]]
        run_j = weight * (s.h_integral[h] - s.a_mark[a])
        s.h_busy[h] -= weight
        host_power.refresh(s, h)
    # Booked as run while it ran; the same joules move, so the accounts still sum to the host's.
    if wasted:
        s.energy[h, RUN_J] -= run_j
        s.energy[h, LOST_J] += run_j
    # Bytes did travel, whatever became of the attempt.
    s.energy[h, TRANSFER_J] += s.a_transfer_j[a]
    _write(s, a, outcome, run_j)
    release_room(s, a)
    return run_j


@jit
def progress(s, a):
    """Return the share of what was left of the task that a running attempt has done so far."""
    if s.a_stage[a] != IN_RUN:
        return 0.0
    # Seconds of resuming are no progress.
    whole = s.a_work[a] - s.a_extra[a]
    if whole <= 0.0:
        return 1.0
    return min(1.0, max(0.0, s.f[NOW] - s.a_start[a] - s.a_extra[a]) / whole)


@jit
def save_checkpoint(s, a):
    """Credit a lost attempt's task with the work up to its last checkpoint."""
    if s.f[CHECKPOINT_S] <= 0.0 or s.a_stage[a] != IN_RUN or s.a_work[a] <= 0.0:
        return
    done = s.f[NOW] - s.a_start[a] - s.a_extra[a]
    kept = math.floor(max(0.0, done) / (s.f[CHECKPOINT_S] + s.f[CHECKPOINT_COST_S])) * s.f[CHECKPOINT_S]
    share = min(1.0, kept / s.a_work[a])
    t = s.a_task[a]
    # A share of what was left, so that it never exceeds the whole.
    s.t_saved[t] += (1.0 - s.t_saved[t]) * share


@jit
def start_here(s, t, h):
    """Begin a task that stands at the host, without a message."""
    now = s.f[NOW]
    s.f[WAIT_HOST] += now - s.t_since[t]
    a = begin(s, t, h, 0)
    s.a_message_s[a] = s.t_message[t]
    s.a_stage[a] = IN_MESSAGE
    event_heap.soon(s, E_STAGE, a, s.a_seq[a])


@jit
def _head_fits(s, h):
    entry = s.q_head[queues.of_host(s, h)]
    return entry >= 0 and fits(s, h, s.shape[queues.task_of(s, entry)])


@jit
def next_of_queue(s, h):
    """Start from the host's queue while its head fits. A probe keeps the room while it asks for a task."""
    q = queues.of_host(s, h)
    while _head_fits(s, h):
        entry = queues.pop(s, q)
        if entry < s.i[TASKS]:
            start_here(s, entry, h)
            continue
        need = queues.need_of(s, entry)
        seconds = draws.message(s, 2)
        # No attempt holds this room yet: `placers.bind` gives it back.
        s.h_used[h] += need
        event_heap.push(s, s.f[NOW] + seconds, O_MESSAGE, E_BIND, h, entry)


@jit
def arrive(s, h, entry):
    """Receive a task or a probe at a host."""
    t = queues.task_of(s, entry)
    now = s.f[NOW]
    # Probes are not counted as coming: most of them find their batch taken.
    if entry == t:
        s.h_coming[h] -= s.s_need[s.shape[t]]
    if s.h_state[h] != ON:
        # Nobody answers, or the host refuses: the placer hears of it and looks for another.
        silence = s.f[HEARTBEAT_S] if not host_power.is_up(s, h) else 0.0
        _send_back(s, entry, silence)
        return
    s.t_since[t] = now
    q = queues.of_host(s, h)
    if s.i[HOST_QUEUES] == 1:
        # Not past those that wait already: a host's queue is first in, first out.
        if entry == t and s.q_head[q] < 0 and fits(s, h, s.shape[t]):
            start_here(s, t, h)
            return
        queues.push(s, q, entry)
        # Less free than the smallest task needs: nothing could start.
        if s.h_capacity[h] - s.h_used[h] >= s.i[LEAST_NEED]:
            event_heap.soon(s, E_NEXT, h, 0)
    elif fits(s, h, s.shape[t]):
        start_here(s, t, h)
    else:
        s.i[CONFLICTS] += 1
        _send_back(s, entry, 0.0)


@jit
def _send_back(s, entry, silence):
    seconds = silence + draws.message(s, 1)
    p = s.t_placer[queues.task_of(s, entry)]
    event_heap.push(s, s.f[NOW] + seconds, O_MESSAGE, E_AT_PLACER, p, entry)


@jit
def is_idle(s, h):
    """Tell whether a host could take more than it has: nothing queued and a core free."""
    return (
        s.h_state[h] == ON
        and s.q_head[queues.of_host(s, h)] < 0
        and s.h_capacity[h] - s.h_used[h] - s.h_coming[h] >= s.i[LEAST_NEED]
    )


@jit
def requeue_preempted(s, a, kill):
    """Suspend or kill a running attempt; returns its joules."""
    t = s.a_task[a]
    if not kill:
        s.t_saved[t] += (1.0 - s.t_saved[t]) * progress(s, a)
    # Frames count to 200 at most (`frame_build`).
    s.t_preempted[t] = np.int64(min(200, s.t_preempted[t] + 1))
    joules = close(s, a, PREEMPTED, kill)
    s.t_since[t] = s.f[NOW]
    return joules

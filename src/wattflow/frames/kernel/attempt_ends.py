"""Ends of attempts and what follows from them: completion, children, retries, copies of stragglers, preemption."""

from __future__ import annotations

import math

from wattflow.frames.kernel import draws, event_heap, hosts, placers, queues
from wattflow.frames.kernel.frame_tables import (
    ABANDONED,
    ARRIVED,
    CANCELLED,
    COMPLETED,
    COPIES,
    COPIES_WON,
    COPY_AFTER,
    COPY_J,
    E_COPY,
    E_NEXT,
    E_PREEMPT,
    FAILED,
    FAILED_TASKS,
    FAIR_SHARE,
    FREE_ATTEMPT,
    HAS_BARRIERS,
    HAS_DAG,
    HOST_QUEUES,
    HOSTS,
    LAST_END,
    LATE,
    MAX_RETRIES,
    NOW,
    O_TIMER,
    OK,
    OPEN,
    PREEMPT,
    PREEMPT_J,
    PREEMPT_KILL,
    PREEMPT_LIMIT,
    PREEMPT_S,
    PREEMPTIONS,
    RETRIES,
    SLOTS,
    SUPERSEDED,
    UNBORN,
)
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import dag


@jit
def arrive(s, t):
    """Release a task whose time has come."""
    # It was given up before its release came: an ancestor failed.
    if s.t_state[t] != UNBORN:
        return
    s.t_state[t] = ARRIVED
    # An array of one row means that no task waits for another (`frame_build`).
    if s.t_pending.size == 1 or s.t_pending[t] == 0:
        placers.submit(s, t)


@jit
def _one_less(s, t):
    """Count one less of what a task waits for; what was given up stays so."""
    if s.t_state[t] == ABANDONED:
        return
    s.t_pending[t] -= 1
    if s.t_pending[t] == 0 and s.t_state[t] == ARRIVED:
        placers.submit(s, t)


@jit
def _pass_barrier(s, t):
    """Open the next level of a workflow when the last task of a level has ended."""
    g = s.group[t]
    s.group_left[g] -= 1
    if s.group_left[g] == 0:
        # The group of the next level has the next number; `frame_build._gaps` leaves an empty one after each workflow.
        for at in range(s.group_start[g + 1], s.group_start[g + 2]):
            member = s.group_member[at]
            if s.group[member] == g + 1:
                _one_less(s, member)


@jit
def _edges(s, t):
    return s.child_start[t], s.child_start[t + 1]


_done = dag.release(_edges, _one_less)


@jit
def complete(s, t, h):
    """Complete a task; its children may become ready."""
    s.t_state[t] = COMPLETED
    s.i[OPEN] -= 1
    s.f[LAST_END] = s.f[NOW]
    if s.i[HAS_DAG] == 0:
        return
    # Only with a DAG: without one the array has a single row.
    s.t_node[t] = h
    _done(s, s.child, t)
    if s.i[HAS_BARRIERS] == 1:
        _pass_barrier(s, t)


@jit
def _abandon(s, t):
    s.t_state[t] = ABANDONED
    s.i[OPEN] -= 1
    s.i[FAILED_TASKS] += 1


@jit
def _is_abandoned(s, t):
    """Abandon a task that was not handed in yet; whether it was so."""
    # Handed in already, or reached by another path before: ABANDONED is a later state, too.
    if s.t_state[t] > ARRIVED:
        return False
    _abandon(s, t)
    return True


_walk = dag.downstream(_edges, _is_abandoned)


@jit
def give_up(s, t):
    """Give a task up with all its descendants: they leave the open tasks."""
    _abandon(s, t)
    s.f[LAST_END] = s.f[NOW]
    if s.i[HAS_DAG] == 0:
        return
    n = _walk(s, s.child, s.scratch, t)
    if s.i[HAS_BARRIERS] == 1:
        # Else the next level would wait for ever for tasks that no longer come.
        for at in range(n):
            _pass_barrier(s, s.scratch[at])


@jit
def retry(s, t):
    """Hand a task in again as its client does, or give it up."""
    # Counted before it is compared, as in the core: ``MAX_RETRIES`` are the tries after the first.
    s.t_tries[t] += 1
    if s.t_tries[t] <= s.i[MAX_RETRIES]:
        s.i[RETRIES] += 1
        placers.submit(s, t)
    else:
        give_up(s, t)


@jit
def _host_has_room(s, h):
    """Offer the room that an end left: to the host's queue first, then to placers that hold tasks back."""
    if s.i[SLOTS] == 1 or (s.i[HOST_QUEUES] == 1 and s.q_head[queues.of_host(s, h)] >= 0):
        event_heap.soon(s, E_NEXT, h, 0)
    if s.i[LATE] == 1:
        placers.wake_all(s)


@jit
def finish(s, a):
    """End the run stage of an attempt, well or not."""
    t = s.a_task[a]
    h = s.a_host[a]
    twin = s.a_twin[a]
    parts = s.s_parts[s.shape[t]]
    if s.a_outcome[a] != OK:
        # Before `close`, which frees the row.
        hosts.save_checkpoint(s, a)
        hosts.close(s, a, FAILED, True)
        # Its copy, or the original, still runs: no retry.
        if twin >= 0:
            s.a_twin[twin] = -1
        else:
            if parts > 1:
                cancel_parts(s, t)
            retry(s, t)
        _host_has_room(s, h)
        return
    if s.a_copy[a] == 1:
        s.i[COPIES_WON] += 1
    hosts.close(s, a, OK, False)
    if twin >= 0:
        other = s.a_host[twin]
        s.f[COPY_J] += hosts.close(s, twin, SUPERSEDED, True)
        _host_has_room(s, other)
    last = True
    if parts > 1:
        s.t_parts[t] -= 1
        last = s.t_parts[t] == 0
    if last:
        complete(s, t, h)
    _host_has_room(s, h)


@jit
def cancel_parts(s, t):
    """End the other parts of a gang of which one is lost."""
    # By row, as the core's `_cancel_siblings`: sums of joules depend on the order.
    for a in range(s.a_task.size):
        if s.a_task[a] == t:
            hosts.close(s, a, CANCELLED, True)


# Copies of stragglers: Dean and Ghemawat 2004, doi:10.1145/1327452.1327492
@jit
def copy_straggler(s, a):
    """Run a copy of an attempt that takes too long, on the least loaded other host that has room."""
    if s.a_twin[a] >= 0 or s.i[FREE_ATTEMPT] < 0:
        return
    t = s.a_task[a]
    shape = s.shape[t]
    if s.s_parts[shape] > 1:
        return
    best = -1
    best_load = math.inf
    for h in range(s.i[HOSTS]):
        if h != s.a_host[a] and s.h_known[h] == 1 and hosts.fits(s, h, shape):
            taken = s.h_used[h] / s.h_capacity[h]
            if taken < best_load:
                best = h
                best_load = taken
    if best < 0:
        wait = s.f[COPY_AFTER] * s.estimate[t] * s.s_factor[shape] / s.speed[s.a_host[a], s.s_function[shape]]
        # Later, even where the estimate is 0: else it would look for room in the same instant for ever.
        event_heap.push(s, s.f[NOW] + max(wait, 1e-3), O_TIMER, E_COPY, a, s.a_seq[a])
        return
    s.i[COPIES] += 1
    b = hosts.begin(s, t, best, 0)
    s.a_copy[b] = 1
    s.a_twin[b] = a
    s.a_twin[a] = b
    hosts.travel(s, b, draws.message(s, 1))


@jit
def _rival(s, a):
    """Return the entry that waits for the room of a running attempt; −1 without one."""
    h = s.a_host[a]
    if s.i[HOST_QUEUES] == 1:
        # Whoever waits at this very host goes first; else the head of the placer that holds tasks back.
        entry = s.q_head[queues.of_host(s, h)]
        if entry >= 0:
            return entry
    if s.i[LATE] == 1:
        return s.q_head[s.t_placer[s.a_task[a]]]
    return -1


@jit
def check_preemption(s, a):
    """Put a task that has had its turn back into the queue when another waits."""
    t = s.a_task[a]
    h = s.a_host[a]
    entry = _rival(s, a)
    # One with a copy is left alone: preempted, its task would be queued while the copy runs.
    if s.s_parts[s.shape[t]] > 1 or s.a_twin[a] >= 0 or s.t_preempted[t] >= s.i[PREEMPT_LIMIT]:
        return
    wanted = entry >= 0
    if wanted and s.i[PREEMPT] == FAIR_SHARE:
        other = s.job[queues.task_of(s, entry)]
        own = s.job[t]
        wanted = other != own and s.j_used[own] > s.j_used[other] + s.s_need[s.shape[t]]
    if not wanted:
        event_heap.push(s, s.f[NOW] + s.f[PREEMPT_S], O_TIMER, E_PREEMPT, a, s.a_seq[a])
        return
    s.i[PREEMPTIONS] += 1
    s.f[PREEMPT_J] += hosts.requeue_preempted(s, a, s.i[PREEMPT_KILL] == 1)
    if s.i[HOST_QUEUES] == 1:
        # To the queue's end: it has had its turn.
        queues.push(s, queues.of_host(s, h), t)
        event_heap.soon(s, E_NEXT, h, 0)
    else:
        queues.push(s, s.t_placer[t], t)
    if s.i[LATE] == 1:
        placers.wake_all(s)

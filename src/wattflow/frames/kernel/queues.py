"""Queues of placers and hosts: linked lists in order of entry, or skew heaps by key.

The key is the estimated runtime, or a policy's own.

An entry below TASKS is a task; the others are probes (Sparrow's reservations), which stand for a task of their batch.
"""

from __future__ import annotations

from wattflow.frames.kernel.frame_tables import PLACERS, QUEUED, SJF, TASKS
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import heaps


@jit
def task_of(s, entry):
    """Return the task that an entry stands for: itself, or the first of its probe's batch."""
    return entry if entry < s.i[TASKS] else s.x_leader[entry - s.i[TASKS]]


@jit
def need_of(s, entry):
    """Return cores of an entry, in millionths."""
    return s.s_need[s.shape[task_of(s, entry)]]


@jit
def of_host(s, h):
    """Return the queue of a host."""
    return s.i[PLACERS] + h


@jit
def _before(s, a, b):
    ta = task_of(s, a)
    tb = task_of(s, b)
    ea = s.t_key[ta]
    eb = s.t_key[tb]
    # Equal keys by number of the task, where the core goes by entry (docs/frames.md).
    return ea < eb or (ea == eb and ta < tb)


_merged = heaps.skew(_before)


@jit
def _merge(s, a, b):
    return _merged(s, s.t_next, s.t_right, a, b)


@jit
def _count(s, q, entry, sign):
    s.q_len[q] += sign
    h = q - s.i[PLACERS]
    if h >= 0:
        s.h_queued[h] += sign * need_of(s, entry)
        s.i[QUEUED] += sign


@jit
def push(s, q, entry):
    """Append to the queue, or insert where the key belongs."""
    s.t_next[entry] = -1
    if s.i[SJF] == 1:
        s.t_right[entry] = -1
        s.q_head[q] = _merge(s, s.q_head[q], entry)
    elif s.q_head[q] < 0:
        s.q_head[q] = entry
        s.q_tail[q] = entry
    else:
        s.t_next[s.q_tail[q]] = entry
        s.q_tail[q] = entry
    _count(s, q, entry, 1)


@jit
def push_front(s, q, entry):
    """Insert before all others."""
    if s.i[SJF] == 1 or s.q_head[q] < 0:
        push(s, q, entry)
        return
    s.t_next[entry] = s.q_head[q]
    s.q_head[q] = entry
    _count(s, q, entry, 1)


@jit
def pop(s, q):
    """Take the first entry; the queue is not empty."""
    entry = s.q_head[q]
    if s.i[SJF] == 1:
        s.q_head[q] = _merge(s, s.t_next[entry], s.t_right[entry])
    else:
        # The tail may name one that has left: `push` looks at the head first.
        s.q_head[q] = s.t_next[entry]
    _count(s, q, entry, -1)
    return entry


@jit
def remove_after(s, q, before, entry):
    """Take an entry out of a list; ``before`` is the one that points at it, −1 for the head."""
    after = s.t_next[entry]
    if before < 0:
        s.q_head[q] = after
    else:
        s.t_next[before] = after
    # −1 for an empty list, as `before` is then.
    if after < 0:
        s.q_tail[q] = before
    _count(s, q, entry, -1)


@jit
def insert_after(s, q, before, entry):
    """Undo `remove_after`."""
    after = s.q_head[q] if before < 0 else s.t_next[before]
    s.t_next[entry] = after
    if before < 0:
        s.q_head[q] = entry
    else:
        s.t_next[before] = entry
    if after < 0:
        s.q_tail[q] = entry
    _count(s, q, entry, 1)

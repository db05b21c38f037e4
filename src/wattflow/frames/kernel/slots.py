"""Slots that look for work themselves: in their host's queue, in other hosts' queues, in the placers' global queues.

After the simulator of ExDe's authors (Talluri et al., doi:10.1016/j.future.2023.11.013). The host that first takes a
task of an object owns the object. A task of a known object stands in its owner's queue, and with ``both`` in its
placer's global queue too, as a second entry; whoever takes one of the two takes the other away. One free slot of a host
looks at a time; when it finds nothing, it waits until something comes to where it looked last.
"""

from __future__ import annotations

import numpy as np

from wattflow.frames.kernel import draws, hosts, queues
from wattflow.frames.kernel.frame_tables import (
    BOTH,
    DECISIONS,
    FORGET_S,
    HOSTS,
    LOOK_HOSTS,
    MESSAGES,
    NOW,
    OBJECTS,
    OWNERS,
    PLACERS,
    QUEUED,
    SAMPLES,
    SEQUENCE,
    STEALS,
    STOLEN,
    TASKS,
)
from wattflow.frames.kernel.jit import jit

# In `h_asked`: 0 nobody waits, −2 a slot waits for its own queue, p + 1 at placer p.
_OWN_ONLY = -2


@jit
def _append(s, q, entry):
    # Queues of slots are lists in order of entry, never heaps (`frame_build` refuses
    # others): `t_right` links them backwards, so that an entry leaves from anywhere.
    s.t_right[entry] = s.q_tail[q] if s.q_head[q] >= 0 else -1
    queues.push(s, q, entry)


@jit
def _remove(s, q, entry):
    before = s.t_right[entry]
    after = s.t_next[entry]
    queues.remove_after(s, q, before, entry)
    if after >= 0:
        s.t_right[after] = before


@jit
def _take(s, t):
    """Take a task out of every queue that it stands in."""
    if s.t_home[t] >= 0:
        _remove(s, queues.of_host(s, s.t_home[t]), t)
        if s.i[BOTH] == 1:
            # The second entry of a task stands as number TASKS + t; `x_leader` leads back to the task.
            _remove(s, s.t_placer[t], s.i[TASKS] + t)
    else:
        _remove(s, s.t_placer[t], t)


@jit
def _owner(s, t):
    """Return the host that owns a task's object; −1 when nobody does (any more)."""
    if s.i[OBJECTS] == 0 or s.object[t] < 0:
        return np.int64(-1)
    thing = s.object[t]
    # Forgotten when somebody asks; no timer is needed.
    if s.owner[thing] >= 0 and s.f[FORGET_S] > 0.0 and s.f[NOW] - s.owner_since[thing] > s.f[FORGET_S]:
        s.owner[thing] = -1
    return np.int64(s.owner[thing])


@jit
def offer(s, p, t):
    """Give a placer a task: into its owner's queue, its own, or both; a slot that waits there takes it."""
    s.i[DECISIONS] += 1
    h = _owner(s, t)
    if h >= 0 and s.s_fits[s.shape[t], h] == 0:
        h = np.int64(-1)  # its owner could never run it
    s.t_home[t] = h
    if h < 0:
        _append(s, p, t)
        _serve(s, p, False)
        return
    s.i[MESSAGES] += 1
    _append(s, queues.of_host(s, h), t)
    if s.i[BOTH] == 1:
        _append(s, p, s.i[TASKS] + t)
    if s.h_asked[h] != 0:
        look(s, h)
    elif s.i[BOTH] == 1:
        _serve(s, p, False)


@jit
def arrive(s, h, t):
    """Add a task that was sent to a host to its queue."""
    s.t_home[t] = h
    _append(s, queues.of_host(s, h), t)
    if s.h_asked[h] != 0:
        look(s, h)


@jit
def _serve(s, p, anywhere):
    """Give the oldest task at a placer to the host that has waited longest there (or anywhere)."""
    best = -1
    shape = s.shape[queues.task_of(s, s.q_head[p])]
    for h in range(s.i[HOSTS]):
        waits = s.h_asked[h] == p + 1 or (anywhere and s.h_asked[h] != 0)
        if waits and (best < 0 or s.h_asked_at[h] < s.h_asked_at[best]) and hosts.fits(s, h, shape):
            best = h
    if best >= 0:
        s.h_asked[best] = 0
        hosts.start_here(s, _from_placer(s, p, best), best)
        look(s, best)
    return best >= 0


@jit
def rescue(s):
    """Give tasks at placers where no slot waits to slots that wait elsewhere, when nothing else will happen."""
    for p in range(s.i[PLACERS]):
        while s.q_head[p] >= 0 and _serve(s, p, True):
            pass


@jit
def _from_placer(s, p, h):
    """Take the oldest task of a placer's global queue; whose object nobody owns is the taker's from now on."""
    t = queues.task_of(s, s.q_head[p])
    _take(s, t)
    if s.i[OBJECTS] > 0 and s.object[t] >= 0:
        thing = s.object[t]
        if s.owner[thing] < 0:
            s.owner[thing] = h
            s.owner_since[thing] = s.f[NOW]
        elif s.owner[thing] != h:
            s.i[STOLEN] += 1
    return t


@jit
def _longest_host(s, h):
    """Return the host with the longer queue of two others drawn at random, the first of equal; −1: both empty."""
    n = s.i[HOSTS] - 1
    best = np.int64(-1)
    if n < 1 or s.i[QUEUED] == 0:
        return best
    s.i[MESSAGES] += 2 * s.i[LOOK_HOSTS]
    first = draws.below(s, n)
    longest = 0
    for k in range(min(n, s.i[LOOK_HOSTS])):
        v = first if k == 0 else draws.other_below(s, n, first)
        # Numbers from its own on move up by one: a host never looks into its own queue here.
        if v >= h:
            v += 1
        if s.q_len[queues.of_host(s, v)] > longest:
            best = v
            longest = s.q_len[queues.of_host(s, v)]
    return best


@jit
def _placer(s):
    """Return the placer whose global queue a slot looks at: the longer of two drawn at random, the first when equal."""
    n = s.i[PLACERS]
    if n == 1:
        return np.int64(0)
    p = draws.below(s, n)
    if s.i[SAMPLES] == 2:
        other = draws.other_below(s, n, p)
        if s.q_len[other] > s.q_len[p]:
            p = other
    return np.int64(p)


@jit
def look(s, h):
    """Fill the free slots of a host; when one finds nothing it waits, and the host looks no further."""
    s.h_asked[h] = 0
    while s.h_used[h] < s.h_capacity[h]:
        own = s.q_head[queues.of_host(s, h)]
        if own >= 0:
            if not hosts.fits(s, h, s.shape[own]):
                return
            _take(s, own)
            hosts.start_here(s, own, h)
            continue
        victim = _longest_host(s, h) if s.i[LOOK_HOSTS] > 0 else np.int64(-1)
        if victim >= 0 and hosts.fits(s, h, s.shape[s.q_head[queues.of_host(s, victim)]]):
            t = s.q_head[queues.of_host(s, victim)]
            _take(s, t)
            s.i[STEALS] += 1
            s.i[STOLEN] += 1
            hosts.start_here(s, t, h)
            continue
        # Before the placers are asked: without owners a slot waits for its own queue alone.
        s.h_asked[h] = _OWN_ONLY
        if s.i[OWNERS] == 1:
            p = _placer(s)
            s.i[MESSAGES] += 2 * min(s.i[PLACERS], s.i[SAMPLES])
            if s.q_head[p] >= 0 and hosts.fits(s, h, s.shape[queues.task_of(s, s.q_head[p])]):
                s.h_asked[h] = 0
                hosts.start_here(s, _from_placer(s, p, h), h)
                continue
            s.h_asked[h] = p + 1
        s.i[SEQUENCE] += 1
        # A number instead of the time: of two that began to wait in one instant the first is served first.
        s.h_asked_at[h] = s.i[SEQUENCE]
        return

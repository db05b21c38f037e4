"""Which host a placer takes: by the policy's score, at random, the best of a few samples, or by consistent hashing.

Ring: Karger et al. 1997, doi:10.1145/258533.258660. Rendezvous: Thaler and Ravishankar 1998, doi:10.1109/90.663936.
Multi-probe: Appleton and O'Reilly 2015, arXiv:1505.00062. Two choices: Mitzenmacher 2001, doi:10.1109/71.963420.
"""

from __future__ import annotations

import math

import numpy as np

from wattflow.frames.kernel import ask_policy, data, draws, host_power, hosts
from wattflow.frames.kernel.frame_tables import (
    ANY,
    ASKED,
    BY_HASH,
    BY_RANDOM,
    BY_SAMPLES,
    CACHE_N,
    DECISIONS,
    EPOCH,
    EXACT,
    FASTEST,
    FIRST,
    FLOW,
    HASH_KIND,
    HASH_PROBES,
    HINT_WEIGHT,
    HINTS,
    HOSTS,
    LEAST_ENERGY,
    LEAST_LOADED,
    MULTI_PROBE,
    OBJECTS,
    ON,
    OVERFLOW,
    PACK,
    PULL,
    RENDEZVOUS,
    RING_N,
    SAMPLES,
    SCORE,
)
from wattflow.frames.kernel.jit import jit
from wattflow.kernel import random

# Dearer than any host with room; among full ones the less loaded is cheaper.
_FULL = 1e9


@jit
def load(s, p, h):
    """Return cores that a placer believes are taken or waited for on a host, in millionths."""
    if s.i[EXACT] == 1:
        return s.h_used[h] + s.h_queued[h] + s.h_coming[h]
    return s.seen[p, h]


@jit
def note(s, p, h, need):
    """Note a placer's own placement, which counts until its view is refreshed."""
    if s.i[EXACT] == 0:
        s.seen[p, h] += need


@jit
def usable(s, h, shape):
    """Tell whether a host is known to be there and could ever run the shape."""
    return s.h_known[h] == 1 and s.s_fits[shape, h] == 1


@jit
def has_room(s, p, h, shape):
    """Tell whether a placer believes that the shape fits now."""
    if s.i[EXACT] == 1:
        return hosts.fits(s, h, shape)
    return s.seen[p, h] + s.s_need[shape] <= s.h_capacity[h]


@jit
def _score(s, p, h, t):
    """Cost of a host by the policy; smaller is better."""
    shape = s.shape[t]
    need = s.s_need[shape]
    taken = load(s, p, h)
    kind = s.i[SCORE]
    share = taken / s.h_capacity[h]
    cost = share
    if kind != LEAST_LOADED:
        if kind == PACK:
            cost = 1.0 - share
        elif kind == FIRST:
            cost = float(h)
        elif kind == FASTEST:
            cost = 1.0 / s.speed[h, s.s_function[shape]]
        elif kind == LEAST_ENERGY:
            busy = taken / 1e6
            added = host_power.watts(s, h, busy + need / 1e6) - host_power.watts(s, h, busy)
            # An unknown host loses to every known one with room, and wins over full ones.
            cost = added * s.estimate[t] / s.speed[h, s.s_function[shape]] if s.h_known_power[h] == 1 else 1e8
        elif kind == ANY:
            cost = draws.unit(s)
        # By least load a full host is dear by itself; the other scores would fill it further.
        if taken + need > s.h_capacity[h]:
            cost = _FULL * (1.0 + share)
    if s.i[HINTS] == 1 and not _data_here(s, h, t):
        cost += s.f[HINT_WEIGHT]
    return cost


@jit
def _data_here(s, h, t):
    if s.i[CACHE_N] > 0 and s.object[t] >= 0 and not data.holds(s, h, s.object[t]):
        return False
    for e in range(s.parent_start[t], s.parent_start[t + 1]):
        if s.parent_bytes[e] > 0.0 and s.t_node[s.parent[e]] != h:
            return False
    return True


@jit
def _least_loaded(s, p, shape):
    """`_by_score` for the plain case: the least share of cores in use among hosts with room, the lower index first."""
    need = s.s_need[shape]
    memory = s.s_memory[shape]
    best = -1
    # 1 / 0 stands for infinitely loaded: whoever comes first and has room is better.
    used = np.int64(1)
    whole = np.int64(0)
    for h in range(s.p_low[p], s.p_high[p]):
        taken = s.h_used[h]
        capacity = s.h_capacity[h]
        # No rounding, so that equal shares tie and the lower index stays.
        # taken / capacity < used / whole, in whole numbers
        if (
            taken + need <= capacity
            and taken * whole < used * capacity
            and s.h_state[h] == ON
            and s.h_known[h] == 1
            and s.s_fits[shape, h] == 1
            and s.h_used_memory[h] + memory <= s.h_memory[h]
        ):
            best = h
            used = taken
            whole = capacity
    return best


@jit
def _by_score(s, p, t, room):
    shape = s.shape[t]
    if room and s.i[SCORE] == LEAST_LOADED and s.i[EXACT] == 1 and s.i[HINTS] == 0:
        return _least_loaded(s, p, shape)
    best = -1
    best_cost = math.inf
    for h in range(s.p_low[p], s.p_high[p]):
        if not usable(s, h, shape) or (room and not has_room(s, p, h, shape)):
            continue
        cost = _score(s, p, h, t)
        if cost < best_cost:
            best = h
            best_cost = cost
    return best


@jit
def _by_request(s, p, t):
    """Pull: the host that has asked this placer for longest and has room."""
    shape = s.shape[t]
    best = -1
    for h in range(s.p_low[p], s.p_high[p]):
        if s.h_asked[h] == p + 1 and hosts.fits(s, h, shape) and (best < 0 or s.h_asked_at[h] < s.h_asked_at[best]):
            best = h
    return best


@jit
def random_host(s, p, shape):
    """Return a usable host of the placer's range at random; −1 when there is none."""
    low = s.p_low[p]
    width = s.p_high[p] - low
    # Mostly one of the first draws is usable; the walk below is for clusters where few hosts are.
    for _ in range(8):
        h = low + draws.below(s, width)
        if usable(s, h, shape):
            return h
    # From a random place: else the host after a gap would be taken more often.
    skip = draws.below(s, width)
    for k in range(width):
        h = low + (skip + k) % width
        if usable(s, h, shape):
            return h
    return -1


@jit
def _by_samples(s, p, t):
    """Return the least loaded of a few hosts, asked for their true load."""
    shape = s.shape[t]
    best = -1
    best_load = math.inf
    for _ in range(s.i[SAMPLES]):
        h = random_host(s, p, shape)
        if h < 0:
            return -1
        taken = (s.h_used[h] + s.h_queued[h] + s.h_coming[h]) / s.h_capacity[h]
        if taken < best_load:
            best = h
            best_load = taken
    return best


@jit
def _ring_search(s, point):
    low = np.int64(0)
    high = s.i[RING_N]
    while low < high:
        middle = (low + high) >> 1
        if s.ring[middle] < point:
            low = middle + 1
        else:
            high = middle
    # Past the last point of the ring comes the first.
    return low % s.i[RING_N]


@jit
def _ring_owner(s, point):
    """Return the first usable host at or after a point of the ring, and how far it is."""
    n = s.i[RING_N]
    at = _ring_search(s, point)
    for k in range(n):
        place = (at + k) % n
        h = s.ring_host[place]
        if s.h_known[h] == 1:
            # Unsigned: beyond the end of the ring the difference wraps round, as the ring does.
            return h, s.ring[place] - point
    return np.int64(-1), np.uint64(0)


@jit
def find_owner(s, key):
    """Return the host of a key among those that are known, by the frame's kind of hashing."""
    kind = s.i[HASH_KIND]
    if kind == RENDEZVOUS:
        best = -1
        most = np.uint64(0)
        for h in range(s.i[HOSTS]):
            if s.h_known[h] == 1:
                weight = random.hashed(key, h + 1)
                if best < 0 or weight > most:
                    best = h
                    most = weight
        return best
    if kind == MULTI_PROBE:
        best = -1
        least = np.uint64(0)
        for k in range(s.i[HASH_PROBES]):
            # The salt of objects in `frames.frame_rules`, which must find the same owners.
            h, distance = _ring_owner(s, random.hashed(key, 1000003 + k))
            if h >= 0 and (best < 0 or distance < least):
                best = h
                least = distance
        return best
    h, _ = _ring_owner(s, random.hashed(key, 1000003))
    return h


@jit
def owner(s, t):
    """Return the host that consistent hashing gives a task's object (or the task itself, where it has none)."""
    if s.i[OBJECTS] == 0 or s.object[t] < 0:
        return find_owner(s, t)
    thing = s.object[t]
    # Kept until the known hosts change: `outages` raises the epoch with each change.
    if s.owner_epoch[thing] != s.i[EPOCH]:
        s.owner_epoch[thing] = s.i[EPOCH]
        s.owner[thing] = find_owner(s, thing)
    return s.owner[thing]


@jit
def _by_hash(s, p, t):
    shape = s.shape[t]
    home = owner(s, t)
    if home < 0:
        return home
    n = s.i[HOSTS]
    if s.i[OVERFLOW] == 1:
        # OpenWhisk: when the home is full, step round the hosts from there.
        for k in range(n):
            h = (home + k) % n
            if usable(s, h, shape) and load(s, p, h) + s.s_need[shape] <= s.h_capacity[h]:
                return h
    for k in range(n):
        h = (home + k) % n
        if usable(s, h, shape):
            return h
    return -1


@jit
def host(s, p, t, room):
    """Return the host that a placer gives a task; −1 when there is none (``room``: none that has room now)."""
    s.i[DECISIONS] += 1
    if s.i[FLOW] == PULL:
        return _by_request(s, p, t)
    rule = s.p_rule[p]
    if rule == BY_HASH:
        h = _by_hash(s, p, t)
    elif rule == BY_SAMPLES:
        h = _by_samples(s, p, t)
    elif rule == BY_RANDOM:
        h = random_host(s, p, s.shape[t])
    elif s.i[ASKED] != 0:
        return ask_policy.host(s, p, t, room)
    else:
        return _by_score(s, p, t, room)
    # These rules choose without a look at room; a placer that holds tasks back must not send one to a full host.
    if room and h >= 0 and not has_room(s, p, h, s.shape[t]):
        return -1
    return h

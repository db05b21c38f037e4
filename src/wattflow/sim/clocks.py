"""Clocks of shared resources, and the heaps that say what happens next.

A domain (the cores of a node, a device, a link) has a virtual time V that all its attempts share: V' = rate. An attempt
that joins with work W ends when V has grown by W, so a change of rate costs O(log n) whatever runs there. While the
rate is 1, V(t) = t − lag and lag is 0 on a domain that was never crowded, so ends are exactly start + work.
"""

from __future__ import annotations

from wattflow.engine.jit import jit


@jit
def virtual(world, d, now):
    """Virtual time of a domain."""
    domains = world.domains
    if domains.rate[d] == 1.0:
        return now - domains.lag[d]
    return domains.v0[d] + (now - domains.t0[d]) * domains.rate[d]


@jit
def _real(world, d, v):
    domains = world.domains
    if domains.rate[d] == 1.0:
        return v + domains.lag[d]
    return domains.t0[d] + (v - domains.v0[d]) / domains.rate[d]


@jit
def _before(state, world, a, b):
    va = world.runs.finish_v[a]
    vb = world.runs.finish_v[b]
    return va < vb or (va == vb and state.attempts.sequence[a] < state.attempts.sequence[b])


@jit
def _merge(state, world, a, b):
    """Merge two skew heaps of attempts."""
    if a < 0:
        return b
    if b < 0:
        return a
    if _before(state, world, b, a):
        a, b = b, a
    root = a
    left = world.runs.left
    right = world.runs.right
    while b >= 0:
        r = right[a]
        right[a] = left[a]
        if r < 0:
            left[a] = b
            break
        if _before(state, world, b, r):
            left[a] = b
            a = b
            b = r
        else:
            left[a] = r
            a = r
    return root


@jit
def _earlier(world, a, b):
    d = world.domains
    return d.next_t[a] < d.next_t[b] or (d.next_t[a] == d.next_t[b] and d.next_seq[a] < d.next_seq[b])


@jit
def _up(world, at):
    heap = world.domain_heap
    d = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        if not _earlier(world, d, heap[parent]):
            break
        heap[at] = heap[parent]
        world.domains.place[heap[at]] = at
        at = parent
    heap[at] = d
    world.domains.place[d] = at
    return at


@jit
def _down(world, at):
    heap = world.domain_heap
    n = world.clock.domain_n[0]
    d = heap[at]
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and _earlier(world, heap[child + 1], heap[child]):
            child += 1
        if not _earlier(world, heap[child], d):
            break
        heap[at] = heap[child]
        world.domains.place[heap[at]] = at
        at = child
    heap[at] = d
    world.domains.place[d] = at


@jit
def reschedule(state, world, d):
    """Set when the domain's next attempt ends, and its place among all domains."""
    domains = world.domains
    root = domains.root[d]
    at = domains.place[d]
    if root < 0:
        if at >= 0:
            last = world.clock.domain_n[0] - 1
            world.clock.domain_n[0] = last
            domains.place[d] = -1
            moved = world.domain_heap[last]
            if moved != d:
                world.domain_heap[at] = moved
                domains.place[moved] = at
                _down(world, _up(world, at))
        return
    domains.next_t[d] = _real(world, d, world.runs.finish_v[root])
    domains.next_seq[d] = state.attempts.sequence[root]
    if at < 0:
        at = world.clock.domain_n[0]
        world.clock.domain_n[0] = at + 1
        world.domain_heap[at] = d
        domains.place[d] = at
        _up(world, at)
    else:
        _down(world, _up(world, at))


@jit
def set_rate(state, world, d, rate):
    """Change how fast a domain's attempts progress."""
    domains = world.domains
    if rate == domains.rate[d]:
        return
    now = state.clock.now[0]
    v = virtual(world, d, now)
    domains.v0[d] = v
    domains.t0[d] = now
    domains.rate[d] = rate
    domains.lag[d] = now - v
    if domains.root[d] >= 0:
        reschedule(state, world, d)


@jit
def join(state, world, d, a, work):
    """Start an attempt of this much work in a domain; the caller sets the rate afterwards."""
    domains = world.domains
    now = state.clock.now[0]
    if domains.count[d] == 0:
        domains.lag[d] = 0.0
        domains.v0[d] = now
        domains.t0[d] = now
    domains.count[d] += 1
    runs = world.runs
    runs.domain[a] = d
    runs.left[a] = -1
    runs.right[a] = -1
    runs.finish_v[a] = virtual(world, d, now) + work
    root = domains.root[d]
    new_root = _merge(state, world, root, a)
    domains.root[d] = new_root
    if new_root != root:
        reschedule(state, world, d)


@jit
def pop(state, world, d):
    """Take the attempt that ends first out of a domain."""
    domains = world.domains
    a = domains.root[d]
    domains.root[d] = _merge(state, world, world.runs.left[a], world.runs.right[a])
    domains.count[d] -= 1
    reschedule(state, world, d)
    return a


@jit
def remove(state, world, a):
    """Take any attempt out of its domain; O(n log n) in the attempts that end before it."""
    d = world.runs.domain[a]
    domains = world.domains
    runs = world.runs
    aside = -1
    while domains.root[d] != a:
        r = domains.root[d]
        domains.root[d] = _merge(state, world, runs.left[r], runs.right[r])
        runs.left[r] = aside
        aside = r
    domains.root[d] = _merge(state, world, runs.left[a], runs.right[a])
    while aside >= 0:
        after = runs.left[aside]
        runs.left[aside] = -1
        runs.right[aside] = -1
        domains.root[d] = _merge(state, world, domains.root[d], aside)
        aside = after
    domains.count[d] -= 1
    reschedule(state, world, d)


@jit
def _event_before(world, a, b):
    e = world.events
    if e.time[a] != e.time[b]:
        return e.time[a] < e.time[b]
    if e.order[a] != e.order[b]:
        return e.order[a] < e.order[b]
    return e.seq[a] < e.seq[b]


@jit
def _move_event(world, to, source):
    e = world.events
    e.time[to] = e.time[source]
    e.order[to] = e.order[source]
    e.seq[to] = e.seq[source]
    e.gen[to] = e.gen[source]
    e.what[to] = e.what[source]
    e.who[to] = e.who[source]


@jit
def push_event(world, time, order, what, who, gen):
    """Add an event. The row behind the last is scratch space, so capacity is one less than the table."""
    n = world.clock.event_n[0]
    world.clock.event_n[0] = n + 1
    hole = world.events.size - 1
    e = world.events
    e.time[hole] = time
    e.order[hole] = order
    e.seq[hole] = world.clock.sequence[0]
    e.gen[hole] = gen
    e.what[hole] = what
    e.who[hole] = who
    world.clock.sequence[0] += 1
    at = n
    while at > 0:
        parent = (at - 1) >> 1
        if not _event_before(world, hole, parent):
            break
        _move_event(world, at, parent)
        at = parent
    _move_event(world, at, hole)


@jit
def pop_event(world):
    """Remove the first event (row 0); read it before."""
    n = world.clock.event_n[0] - 1
    world.clock.event_n[0] = n
    at = 0
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and _event_before(world, child + 1, child):
            child += 1
        if not _event_before(world, child, n):
            break
        _move_event(world, at, child)
        at = child
    if at != n:
        _move_event(world, at, n)

"""Clocks of shared resources, and the heaps that say what happens next.

A domain (the cores of a node, a device, a link) has a virtual time V that all its attempts share: V' = rate. An attempt
that joins with work W ends when V has grown by W, so a change of rate costs O(log n) whatever runs there. While the
rate is 1, V(t) = t − lag and lag is 0 on a domain that was never crowded, so ends are exactly start + work.
"""

from __future__ import annotations

from wattflow.kernel import heaps
from wattflow.kernel.jit import inner


@inner
def virtual(world, d, now):
    """Virtual time of a domain."""
    domain = world.domains[d]
    # Exactly v0, without arithmetic: `pop` set it to the end of an attempt, and ties hang on equal bits.
    if domain.t0 == now:
        return domain.v0
    if domain.rate == 1.0:
        # Without a product: while the rate is 1 an attempt ends at exactly start + work, so that ties are ties.
        return now - domain.lag
    return domain.v0 + (now - domain.t0) * domain.rate


@inner
def _real(world, d, v):
    domain = world.domains[d]
    if domain.rate == 1.0:
        return v + domain.lag
    return domain.t0 + (v - domain.v0) / domain.rate


@inner
def _before(both, a, b):
    state, world = both
    va = world.runs[a].finish_v
    vb = world.runs[b].finish_v
    return va < vb or (va == vb and state.attempts[a].sequence < state.attempts[b].sequence)


_merged = heaps.skew(_before)


@inner
def _merge(state, world, a, b):
    """Merge two heaps of attempts."""
    return _merged((state, world), world.runs.left, world.runs.right, a, b)


@inner
def _earlier(world, a, b):
    domain_b = world.domains[b]
    domain_a = world.domains[a]
    # Across domains, too, ends of one instant are folded in the order of placement.
    return domain_a.next_t < domain_b.next_t or (
        domain_a.next_t == domain_b.next_t and domain_a.next_seq < domain_b.next_seq
    )


@inner
def _put(world, heap, at, d):
    heap[at] = d
    world.domains[d].place = at


_rise, _sink = heaps.of_numbers(_earlier, _put)


@inner
def _up(world, at):
    return _rise(world, world.domain_heap, at)


@inner
def _down(world, at):
    _sink(world, world.domain_heap, world.pulse[0].domain_n, at)


@inner
def reschedule(state, world, d):
    """Set when the domain's next attempt ends, and its place among all domains."""
    domain = world.domains[d]
    pulse = world.pulse[0]
    root = domain.root
    at = domain.place
    if root < 0:
        if at >= 0:
            last = pulse.domain_n - 1
            pulse.domain_n = last
            domain.place = -1
            moved = world.domain_heap[last]
            if moved != d:
                world.domain_heap[at] = moved
                world.domains[moved].place = at
                # What comes from the end of the heap may belong higher or lower here: one of the two does nothing.
                _down(world, _up(world, at))
        return
    domain.next_t = _real(world, d, world.runs[root].finish_v)
    domain.next_seq = state.attempts[root].sequence
    if at < 0:
        at = pulse.domain_n
        pulse.domain_n = at + 1
        world.domain_heap[at] = d
        domain.place = at
        _up(world, at)
    else:
        _down(world, _up(world, at))


@inner
def set_rate(state, world, d, rate):
    """Change how fast a domain's attempts progress."""
    domain = world.domains[d]
    # Without a change V stays what it is: closing the interval would round it.
    if rate == domain.rate:
        return
    now = state.clock[0].now
    v = virtual(world, d, now)
    domain.v0 = v
    domain.t0 = now
    domain.rate = rate
    # For the branch without a product (`virtual` at rate 1).
    domain.lag = now - v
    if domain.root >= 0:
        reschedule(state, world, d)


@inner
def join(state, world, d, a, work):
    """Start an attempt of this much work in a domain; the caller sets the rate afterwards."""
    run = world.runs[a]
    domain = world.domains[d]
    now = state.clock[0].now
    if domain.count == 0:
        # Empty: V may begin anew at the present, which keeps ends exact however long the run.
        domain.lag = 0.0
        domain.v0 = now
        domain.t0 = now
    domain.count += 1
    run.domain = d
    run.left = -1
    run.right = -1
    run.finish_v = virtual(world, d, now) + work
    root = domain.root
    new_root = _merge(state, world, root, a)
    domain.root = new_root
    # Whoever ends behind the first does not move the domain in the heap; the rate is set by the caller.
    if new_root != root:
        reschedule(state, world, d)


@inner
def pop(state, world, d):
    """Take the attempt that ends first out of a domain."""
    domain = world.domains[d]
    a = domain.root
    run = world.runs[a]
    now = state.clock[0].now
    # V is exactly the end of the one that ends, so that others with the same end tie with it whatever the rate becomes.
    domain.v0 = run.finish_v
    domain.t0 = now
    domain.lag = now - run.finish_v
    domain.root = _merge(state, world, run.left, run.right)
    domain.count -= 1
    reschedule(state, world, d)
    return a


@inner
def remove(state, world, a):
    """Take any attempt out of its domain; O(n log n) in the attempts that end before it."""
    run_a = world.runs[a]
    d = run_a.domain
    domain = world.domains[d]
    # A skew heap has no links upwards: those that end before this
    # one are set aside, linked by ``left``, and merged back.
    aside = -1
    while domain.root != a:
        r = domain.root
        domain.root = _merge(state, world, world.runs[r].left, world.runs[r].right)
        world.runs[r].left = aside
        aside = r
    domain.root = _merge(state, world, run_a.left, run_a.right)
    while aside >= 0:
        after = world.runs[aside].left
        world.runs[aside].left = -1
        world.runs[aside].right = -1
        domain.root = _merge(state, world, domain.root, aside)
        aside = after
    domain.count -= 1
    reschedule(state, world, d)

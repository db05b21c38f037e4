"""Jobs that keep their hardware thread until one falls idle: sharing by queue length instead of by speed.

A fair node gives all its CPU attempts the same rate. Linux balances the lengths of run queues, not how fast each goes
on: with nine jobs more than hardware threads, nine pairs take turns and the rest run alone, until a thread falls idle
and takes one of a pair (Hofmeyr et al., PPoPP 2010, doi:10.1145/1693453.1693475; Lozi et al., EuroSys 2016,
doi:10.1145/2901318.2901326). Each hardware thread of such a node is a domain of its own, a *lane*.

Queues are balanced by weight. An attempt without a guarantee (a BestEffort pod has weight 2 of 1,024) weighs next to
nothing: it takes an idle lane where there is one, and any of them otherwise.
"""

from __future__ import annotations

from wattflow.engine import view
from wattflow.engine.parts import RICH
from wattflow.engine.tables import MICRO
from wattflow.kernel.jit import optional
from wattflow.kernel.random import at_counter
from wattflow.sim import clocks

_SALT = 41
"""Tells this draw from those of failures."""


@optional(RICH)
def start(state, world, node, a, work):
    """Pin a run to the lowest of the lanes with the fewest jobs; one without a guarantee, with none idle, to any."""
    first = world.nodes[node].lane_first
    lane = first
    for d in range(first, first + world.nodes[node].lane_n):
        if world.domains[d].count < world.domains[lane].count:
            lane = d
    attempt = state.attempts[a]
    if attempt.need_u == 0 and world.domains[lane].count > 0:
        drawn = at_counter(world.pulse[0].seed, attempt.task, attempt.attempt, _SALT)
        # The draw may be 1 itself: that belongs to the last lane.
        lane = first + min(world.nodes[node].lane_n - 1, int(drawn * world.nodes[node].lane_n))
    clocks.join(state, world, lane, a, work)


@optional(RICH)
def balance(state, world, node, lane):
    """Rebalance after a run on a lane: if it is idle now, the job placed last on the longest lane moves over."""
    load = world.nodes[node]
    if world.domains[lane].count > 0:
        return
    longest = load.lane_first
    for d in range(load.lane_first, load.lane_first + load.lane_n):
        if world.domains[d].count > world.domains[longest].count:
            longest = d
    if world.domains[longest].count < 2:
        return
    pick = -1
    a = state.nodes[node].first_attempt
    while a >= 0:
        on_it = world.runs[a].in_lane == 1 and world.runs[a].domain == longest
        if on_it and (pick < 0 or state.attempts[a].sequence > state.attempts[pick].sequence):
            pick = a
        a = state.attempts[a].next
    left = max(0.0, world.runs[pick].finish_v - clocks.virtual(world, longest, state.clock[0].now))
    clocks.remove(state, world, pick)
    clocks.join(state, world, lane, pick, left)


@optional(RICH)
def set_rates(state, world, node):
    """Set the rates of a node: each busy thread at the speed for so many of them, the jobs on it taking turns."""
    load = world.nodes[node]
    busy = 0
    for d in range(load.lane_first, load.lane_first + load.lane_n):
        if world.domains[d].count > 0:
            busy += 1
    # Host threads of device attempts have no lane but take part of the cores' throughput.
    speed = view.share_rate(state, state.nodes[node].cls, busy + load.host_u / MICRO)
    for d in range(load.lane_first, load.lane_first + load.lane_n):
        if world.domains[d].count > 0:
            clocks.set_rate(state, world, d, speed / world.domains[d].count)

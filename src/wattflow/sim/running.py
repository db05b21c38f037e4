"""Count an attempt in while it holds cores: cold start, run, devices, frequency, and how it shares them.

On a *pinned* node jobs keep their hardware thread until one falls idle: shared by queue length, not by speed. A fair
node gives all its CPU attempts the same rate. Linux balances the lengths of run queues, not how fast each goes on: with
nine jobs more than hardware threads, nine pairs take turns and the rest run alone, until a thread falls idle and takes
one of a pair (Hofmeyr et al., PPoPP 2010, doi:10.1145/1693453.1693475; Lozi et al., EuroSys 2016,
doi:10.1145/2901318.2901326). Each hardware thread of such a node is a domain of its own, a *lane*.

Queues are balanced by weight. An attempt without a guarantee (a BestEffort pod has weight 2 of 1,024) weighs next to
nothing: it takes an idle lane where there is one, and any of them otherwise.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from wattflow.engine import agenda, devices, fold, view
from wattflow.engine.parts import RICH
from wattflow.engine.tables import MICRO, MPS, NO_DEVICE, TIME_SLICE
from wattflow.kernel.jit import inner, optional
from wattflow.kernel.random import at_counter
from wattflow.sim import clocks, energy_accounts, faults
from wattflow.sim.world import COLD, RUN

_SALT = 41
"""Tells this draw from those of failures."""


@optional(RICH)
def start_pinned(state, world, node, a, work):
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
def balance_lanes(state, world, node, lane):
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
def set_lane_rates(state, world, node):
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


@inner
def weight_of(state, a):
    """Return the busy cores that an attempt counts for in power at its frequency level, in millionths."""
    attempt = state.attempts[a]
    weight = state.variants[attempt.variant].cores_u
    level = view.level_at(state, attempt.variant, attempt.node)
    if level > 0:
        cls = state.nodes[attempt.node].cls
        # Whole millionths: weights that are added and taken away again leave exactly 0.
        return np.int64(round(weight * state.frequency_power[cls, level]))
    return weight


@inner
def leave_cold(state, world, a):
    run = world.runs[a]
    node = state.attempts[a].node
    load = world.nodes[node]
    # The integral must reach up to now before the difference to the mark is taken.
    energy_accounts.account(state, world, node)
    weight = run.weight_u
    run.cold_j += weight * (load.integral - run.mark)
    load.busy_u -= state.variants[state.attempts[a].variant].cores_u
    load.weight_u -= weight
    load.cold_u -= weight
    energy_accounts.refresh(state, world, node)


@inner
def _crowd(state, world, node, cores_u, beside_device):
    """Change how many cores run stages ask for on a node; its CPU attempts progress accordingly."""
    load = world.nodes[node]
    demand = load.demand_u + cores_u
    load.demand_u = demand
    if load.lane_first >= 0:
        if beside_device:
            load.host_u += cores_u
        set_lane_rates(state, world, node)
        return
    # A node's cores are the domain of its own number; devices, links and lanes follow (`world_build`).
    clocks.set_rate(state, world, node, view.share_rate(state, state.nodes[node].cls, demand / MICRO))


@inner
def device_rate(state, world, d):
    """Progress of each attempt on a device: turns under time slicing where duties exceed it, interference under MPS."""
    use = world.devices[d]
    dcls = state.devices[d].cls
    device_kind = state.device_classes[dcls]
    sharing = device_kind.sharing
    k = use.tasks
    if k <= 1:
        return 1.0
    if sharing == TIME_SLICE:
        return 1.0 / max(1.0, use.duty_u / MICRO * (1.0 + device_kind.switch_loss))
    if sharing == MPS:
        # The mean over its tasks of what the others keep busy: one clock for each device, not one for each task.
        others = use.busy_u / MICRO * (k - 1) / k
        return 1.0 / (1.0 + device_kind.interference * others)
    return 1.0


@inner
def start_run(state, world, a):
    run = world.runs[a]
    attempt = state.attempts[a]
    now = state.clock[0].now
    node = attempt.node
    load = world.nodes[node]
    variant = attempt.variant
    needs = state.variants[variant]
    state.attempts[a].stage = RUN
    run.since = now
    run.start = now
    attempt.started = now  # as drivers report it
    work = faults.plan_work(state, world, a)
    weight = weight_of(state, a)
    run.weight_u = weight
    energy_accounts.account(state, world, node)
    run.mark = load.integral
    load.busy_u += needs.cores_u
    load.weight_u += weight
    if needs.device != NO_DEVICE:
        _join_device(state, world, a, work)
    elif load.lane_first >= 0:
        run.in_lane = 1
        start_pinned(state, world, node, a, work)
    else:
        clocks.join(state, world, node, a, work)
    # After the join: the rate is that with one attempt more.
    _crowd(state, world, node, needs.cores_u, needs.device != NO_DEVICE)
    energy_accounts.refresh(state, world, node)
    limit = state.classes[state.nodes[node].cls].limit_s
    if limit < math.inf:
        agenda.push(state, now + limit, agenda.TIME_UP, a, attempt.sequence)


@optional(RICH)
def _join_device(state, world, a, work):
    """Begin the run on the attempt's device; it may hold others besides."""
    device = state.attempts[a].device
    _use_devices(state, world, a, 1)
    world.runs[a].device_mark = _device_integral(state, world, a)
    d = state.nodes.size + device
    clocks.join(state, world, d, a, work)
    clocks.set_rate(state, world, d, device_rate(state, world, device))


@optional(RICH, types.float64)
def _leave_device(state, world, a):
    """End the run on the attempt's devices; returns joules of theirs that are its own."""
    attempt = state.attempts[a]
    device = attempt.device
    joules = _device_joules(state, world, a)
    _use_devices(state, world, a, -1)
    clocks.set_rate(state, world, state.nodes.size + device, device_rate(state, world, device))
    return joules


@inner
def _use_devices(state, world, a, sign):
    """Count an attempt in or out on each device it holds."""
    attempt = state.attempts[a]
    node = attempt.node
    node_row = state.nodes[node]
    variant = attempt.variant
    first = node_row.device_first
    for d in range(first, first + node_row.device_n):
        if devices.holds(attempt.devices, d - first):
            energy_accounts.account_device(state, world, d)
            world.devices[d].tasks += sign
            world.devices[d].busy_u += sign * devices.busy_share(state, variant, state.devices[d].cls)
            world.devices[d].duty_u += sign * state.variants[variant].duty_u
            weight = devices.weight_at(state, variant, state.devices[d].cls, world.devices[d].level)
            world.devices[d].weight_u += sign * weight
            energy_accounts.refresh_device(state, world, d)


@inner
def _device_joules(state, world, a):
    """Return joules of its devices that are an attempt's own since its mark."""
    attempt = state.attempts[a]
    share = devices.busy_share(state, attempt.variant, state.devices[attempt.device].cls)
    return share * (_device_integral(state, world, a) - world.runs[a].device_mark)


@optional(RICH)
def follow_levels(state, world, node):
    """Have the devices of a node run at the levels that its attempts now ask for; who runs there goes on at them.

    To be called when an attempt with a device was placed or has left: `fit` says then which level a device has.
    """
    node_row = state.nodes[node]
    for d in range(node_row.device_first, node_row.device_first + node_row.device_n):
        level = state.devices[d].level
        if world.devices[d].level != level:
            _change_level(state, world, node, d, level)


@inner
def _change_level(state, world, node, device, level):
    """Change a device's level: joules so far are settled at the old one, work that is left takes as long as it says."""
    energy_accounts.account(state, world, node)
    energy_accounts.account_device(state, world, device)
    use = world.devices[device]
    dcls = state.devices[device].cls
    before = use.level
    use.level = level
    a = state.nodes[node].first_attempt
    while a >= 0:
        attempt = state.attempts[a]
        if attempt.stage == RUN and attempt.device == device:
            variant = attempt.variant
            use.level = before
            world.runs[a].run_j += _device_joules(state, world, a)
            use.level = level
            world.runs[a].device_mark = _device_integral(state, world, a)
            weight = devices.weight_at(state, variant, dcls, before)
            use.weight_u += devices.weight_at(state, variant, dcls, level) - weight
            old = devices.seconds_at(state, variant, dcls, before)
            _stretch(state, world, a, devices.seconds_at(state, variant, dcls, level) / old)
        a = attempt.next
    energy_accounts.refresh_device(state, world, device)
    energy_accounts.refresh(state, world, node)


@inner
def _weight(state, variant, device, level):
    """Return what a unit of a variant's share counts for in a device's watts at a level."""
    dcls = state.devices[device].cls
    share = devices.busy_share(state, variant, dcls)
    if level == 0 or share == 0:
        return 1.0
    return devices.weight_at(state, variant, dcls, level) / share


@optional(RICH, types.float64)
def _device_integral(state, world, a):
    """Return joules above idle so far that one unit of an attempt's share would have had, over all its devices."""
    attempt = state.attempts[a]
    node_row = state.nodes[attempt.node]
    first = node_row.device_first
    total = 0.0
    for d in range(first, first + node_row.device_n):
        if devices.holds(attempt.devices, d - first):
            energy_accounts.account_device(state, world, d)
            total += world.devices[d].integral * _weight(state, attempt.variant, d, world.devices[d].level)
    return total


@inner
def leave_run(state, world, a):
    """Stop counting an attempt in power and sharing; it was taken out of its domain."""
    run = world.runs[a]
    attempt = state.attempts[a]
    node = attempt.node
    load = world.nodes[node]
    variant = attempt.variant
    needs = state.variants[variant]
    weight = run.weight_u
    energy_accounts.account(state, world, node)
    joules = weight * (load.integral - run.mark)
    load.busy_u -= needs.cores_u
    load.weight_u -= weight
    if needs.device != NO_DEVICE:
        joules += _leave_device(state, world, a)
    if run.in_lane == 1:
        run.in_lane = 0
        balance_lanes(state, world, node, run.domain)
    # After `balance`: a job that moved over changes how many lanes are busy.
    _crowd(state, world, node, -needs.cores_u, needs.device != NO_DEVICE)
    energy_accounts.refresh(state, world, node)
    run.run_j += joules


@inner
def set_frequency(state, world, node, level):
    """Change a node's level: what runs there goes on at it, each as its compute-bound share says."""
    energy_accounts.account(state, world, node)
    before = state.nodes[node].frequency
    if not fold.set_frequency(state, node, level):
        return
    a = state.nodes[node].first_attempt
    while a >= 0:
        stage = state.attempts[a].stage
        if stage == RUN or stage == COLD:
            _reweigh(state, world, a)
        if stage == RUN:
            _rework(state, world, a, before, level)
        a = state.attempts[a].next
    energy_accounts.refresh(state, world, node)


@inner
def _reweigh(state, world, a):
    """Settle the joules so far and count the attempt at its new level from here on."""
    run = world.runs[a]
    load = world.nodes[state.attempts[a].node]
    joules = run.weight_u * (load.integral - run.mark)
    run.mark = load.integral
    weight = weight_of(state, a)
    load.weight_u += weight - run.weight_u
    if state.attempts[a].stage == COLD:
        run.cold_j += joules
        load.cold_u += weight - run.weight_u
    else:
        run.run_j += joules
    run.weight_u = weight


@inner
def _rework(state, world, a, before, after):
    """Rescale an attempt's remaining work to another frequency level of its node."""
    attempt = state.attempts[a]
    node_row = state.nodes[attempt.node]
    shape = state.tasks[attempt.task].form
    # Both factors come from the same function, so the old level is put back for one call; nobody looks meanwhile.
    node_row.frequency = before
    old = view.factor_at(state, shape, attempt.variant, attempt.node, 1.0)
    node_row.frequency = after
    _stretch(state, world, a, view.factor_at(state, shape, attempt.variant, attempt.node, 1.0) / old)


@optional(RICH)
def _stretch(state, world, a, ratio):
    """Make an attempt's remaining work so many times as long."""
    run = world.runs[a]
    if ratio != 1.0:
        d = run.domain
        left = max(0.0, run.finish_v - clocks.virtual(world, d, state.clock[0].now))
        clocks.remove(state, world, a)
        clocks.join(state, world, d, a, left * ratio)
        # `faults.note_progress` takes what is left from this: both must be seconds at the same level.
        run.planned *= ratio

"""The stages of an attempt: message, wake, cold start, data, run, end."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import decide, fit, release, view
from wattflow.engine.jit import jit
from wattflow.engine.tables import (
    ASLEEP,
    FALLING,
    MICRO,
    MPS,
    NO_DEVICE,
    ON,
    TIME_SLICE,
    WAKING,
)
from wattflow.sim import clocks, containers, faults, power, sleep
from wattflow.sim.world import (
    CANCELLED,
    COLD,
    COLD_J,
    DATA,
    FINISH,
    LATENCY,
    LOST_J,
    MESSAGE,
    OK,
    RUN,
    RUN_J,
    STAGE_END,
    TIME_LIMIT,
    TRANSFER_J,
    WAKE,
)


@jit
def begin(state, world, a):
    """A placement reaches its node."""
    runs = world.runs
    runs.outcome[a] = OK
    runs.run_j[a] = 0.0
    runs.cold_j[a] = 0.0
    runs.transfer_j[a] = 0.0
    runs.message_s[a] = 0.0
    runs.wake_s[a] = 0.0
    runs.cold_s[a] = 0.0
    runs.data_s[a] = 0.0
    runs.warm[a] = 0
    runs.since[a] = state.clock.now[0]
    runs.domain[a] = -1
    node = state.attempts.node[a]
    state.nodes.generation[node] += 1
    if world.clock.message_s[0] > 0.0:
        _timed(state, world, a, MESSAGE, world.clock.message_s[0])
    else:
        _enter_wake(state, world, a)


@jit
def _timed(state, world, a, stage, seconds):
    world.runs.stage[a] = stage
    world.runs.since[a] = state.clock.now[0]
    end = state.clock.now[0] + seconds
    clocks.push_event(world, end, FINISH, STAGE_END, a, state.attempts.sequence[a])


@jit
def stage_ended(state, world, a):
    """A timed stage is over."""
    runs = world.runs
    spent = state.clock.now[0] - runs.since[a]
    stage = runs.stage[a]
    if stage == MESSAGE:
        runs.message_s[a] = spent
        _enter_wake(state, world, a)
    elif stage == COLD:
        runs.cold_s[a] = spent
        _leave_cold(state, world, a)
        _enter_data(state, world, a)
    elif stage == LATENCY:
        _enter_transfer(state, world, a)


@jit
def _enter_wake(state, world, a):
    node = state.attempts.node[a]
    power_state = state.nodes.power_state[node]
    if power_state == ASLEEP or power_state == FALLING or power_state == WAKING:
        world.runs.stage[a] = WAKE
        world.runs.since[a] = state.clock.now[0]
        sleep.wake(state, world, node)
        if state.nodes.power_state[node] == ON:
            node_is_on(state, world, node)
    else:
        _enter_cold(state, world, a)


@jit
def node_is_on(state, world, node):
    """The attempts that waited for the node go on, oldest first."""
    last = np.int64(-1)
    while True:
        # The list is newest first and changes under us: pick the oldest waiting one each time.
        a = state.nodes.first_attempt[node]
        pick = -1
        while a >= 0:
            seq = state.attempts.sequence[a]
            if world.runs.stage[a] == WAKE and seq > last and (pick < 0 or seq < state.attempts.sequence[pick]):
                pick = a
            a = state.attempts.next[a]
        if pick < 0:
            return
        last = state.attempts.sequence[pick]
        world.runs.wake_s[pick] = state.clock.now[0] - world.runs.since[pick]
        _enter_cold(state, world, pick)


@jit
def _enter_cold(state, world, a):
    """Take a warm container, or make one; load the FPGA where another function's kernel is in it."""
    node = state.attempts.node[a]
    task = state.attempts.task[a]
    fn = state.shapes.function[state.tasks.form[task]]
    seconds = 0.0
    if state.functions.cold_start_s[fn] > 0.0:
        c = view.find_container(state, node, fn)
        if c >= 0:
            containers.drop(state, c)
            world.runs.warm[a] = 1
        else:
            seconds = state.functions.cold_start_s[fn] * state.classes.cold_factor[state.nodes.cls[node]]
    device = state.attempts.device[a]
    if device >= 0:
        dcls = state.devices.cls[device]
        if state.devices.loaded[device] != fn:
            seconds += state.device_classes.reconfigure_s[dcls]
            if state.device_classes.reconfigure_s[dcls] > 0.0:
                containers.load_device(state, node, device, fn)
    if seconds <= 0.0:
        _enter_data(state, world, a)
        return
    world.clock.cold_starts[0] += 1
    power.account(state, world, node)
    weight = _weight(state, a)
    world.runs.weight_u[a] = weight
    world.nodes.busy_u[node] += weight
    world.nodes.cold_u[node] += weight
    world.runs.mark[a] = world.nodes.integral[node]
    power.refresh(state, world, node)
    _timed(state, world, a, COLD, seconds)


@jit
def _leave_cold(state, world, a):
    node = state.attempts.node[a]
    power.account(state, world, node)
    weight = world.runs.weight_u[a]
    world.runs.cold_j[a] = weight * (world.nodes.integral[node] - world.runs.mark[a])
    world.nodes.busy_u[node] -= weight
    world.nodes.cold_u[node] -= weight
    power.refresh(state, world, node)


@jit
def _weight(state, a):
    """Busy cores that an attempt counts for in power, in millionths."""
    variant = state.attempts.variant[a]
    weight = state.variants.cores_u[variant]
    level = state.variants.frequency[variant]
    if level > 0:
        cls = state.nodes.cls[state.attempts.node[a]]
        return np.int64(round(weight * state.frequency_power[cls, level]))
    return weight


@jit
def _enter_data(state, world, a):
    world.runs.since[a] = state.clock.now[0]
    if state.clock.has_data[0] == 0:
        _enter_run(state, world, a)
        return
    node = state.attempts.node[a]
    task = state.attempts.task[a]
    size = view.bytes_to(state, task, node)
    if size <= 0.0:
        _enter_run(state, world, a)
        return
    world.runs.bytes[a] = size
    world.clock.transfers[0] += 1
    cls = state.nodes.cls[node]
    latency = state.classes.latency_s[cls]
    zone = state.classes.zone[cls]
    for e in range(state.parent_start[task], state.parent_start[task + 1]):
        at = state.tasks.node[state.parent[e]]
        if state.parent_bytes[e] > 0.0 and at >= 0 and state.classes.zone[state.nodes.cls[at]] != zone:
            latency += state.classes.zone_latency_s[cls]
            break
    if latency > 0.0:
        since = world.runs.since[a]
        _timed(state, world, a, LATENCY, latency)
        world.runs.since[a] = since
    else:
        _enter_transfer(state, world, a)


@jit
def _net_domain(state, node):
    return state.nodes.size + state.devices.size + node


@jit
def _enter_transfer(state, world, a):
    node = state.attempts.node[a]
    d = _net_domain(state, node)
    world.runs.stage[a] = DATA
    seconds = world.runs.bytes[a] / state.classes.bandwidth[state.nodes.cls[node]]
    clocks.join(state, world, d, a, seconds)
    clocks.set_rate(state, world, d, 1.0 / world.domains.count[d])


@jit
def data_arrived(state, world, a):
    """A transfer is over; it was taken out of its link's domain."""
    d = world.runs.domain[a]
    if world.domains.count[d] > 0:
        clocks.set_rate(state, world, d, 1.0 / world.domains.count[d])
    else:
        clocks.set_rate(state, world, d, 1.0)
    node = state.attempts.node[a]
    world.runs.data_s[a] = state.clock.now[0] - world.runs.since[a]
    world.clock.moved_bytes[0] += world.runs.bytes[a]
    joules = world.runs.bytes[a] * state.classes.j_per_byte[state.nodes.cls[node]]
    if joules > 0.0:
        world.runs.transfer_j[a] = joules
        world.energy[node, TRANSFER_J] += joules
        if world.clock.series[0] == 1:
            now = state.clock.now[0]
            power.charge(state, world, node, joules, now, now + 1.0)
    _enter_run(state, world, a)


@jit
def cpu_rate(state, node, demand_u):
    """Progress of each CPU attempt with this demand on the node's cores: X(D)/D."""
    cls = state.nodes.cls[node]
    demand = demand_u / MICRO
    cores = state.classes.cores[cls]
    rate = 1.0
    if demand > cores:
        threads = state.classes.threads[cls]
        rate = (cores + (min(demand, threads) - cores) * state.classes.smt_gain[cls]) / demand
    level = state.nodes.frequency[node]
    if level > 0:
        rate *= state.frequency_speed[cls, level]
    return rate


@jit
def device_rate(state, world, d):
    """Progress of each attempt on a device: turns under time slicing, interference under MPS."""
    dcls = state.devices.cls[d]
    sharing = state.device_classes.sharing[dcls]
    k = world.devices.tasks[d]
    if k <= 1:
        return 1.0
    if sharing == TIME_SLICE:
        return 1.0 / k
    if sharing == MPS:
        others = world.devices.share_u[d] / MICRO * (k - 1) / k
        return 1.0 / (1.0 + state.device_classes.interference[dcls] * others)
    return 1.0


@jit
def _enter_run(state, world, a):
    now = state.clock.now[0]
    node = state.attempts.node[a]
    variant = state.attempts.variant[a]
    runs = world.runs
    runs.stage[a] = RUN
    runs.since[a] = now
    runs.start[a] = now
    work = faults.plan_work(state, world, a)
    weight = _weight(state, a)
    runs.weight_u[a] = weight
    power.account(state, world, node)
    runs.mark[a] = world.nodes.integral[node]
    world.nodes.busy_u[node] += weight
    if state.variants.device[variant] != NO_DEVICE:
        _use_devices(state, world, a, 1)
        device = state.attempts.device[a]
        runs.device_mark[a] = world.devices.integral[device]
        d = state.nodes.size + device
        clocks.join(state, world, d, a, work)
        clocks.set_rate(state, world, d, device_rate(state, world, device))
    else:
        demand = world.nodes.demand_u[node] + state.variants.cores_u[variant]
        world.nodes.demand_u[node] = demand
        clocks.join(state, world, node, a, work)
        clocks.set_rate(state, world, node, cpu_rate(state, node, demand))
    power.refresh(state, world, node)


@jit
def _use_devices(state, world, a, sign):
    """Count an attempt in or out on each device it holds."""
    node = state.attempts.node[a]
    variant = state.attempts.variant[a]
    first = state.nodes.device_first[node]
    mask = state.attempts.devices[a]
    for d in range(first, first + state.nodes.device_n[node]):
        if (mask >> np.uint64(d - first)) & np.uint64(1) == np.uint64(1):
            power.account_device(state, world, d)
            world.devices.tasks[d] += sign
            world.devices.share_u[d] += sign * fit.share_on(state, variant, state.devices.cls[d])
            power.refresh_device(state, world, d)


@jit
def _leave_run(state, world, a):
    """Stop counting an attempt in power and sharing; it was taken out of its domain."""
    node = state.attempts.node[a]
    variant = state.attempts.variant[a]
    weight = world.runs.weight_u[a]
    power.account(state, world, node)
    joules = weight * (world.nodes.integral[node] - world.runs.mark[a])
    world.nodes.busy_u[node] -= weight
    if state.variants.device[variant] != NO_DEVICE:
        device = state.attempts.device[a]
        power.account_device(state, world, device)
        share = fit.share_on(state, variant, state.devices.cls[device]) * state.variants.devices[variant]
        joules += share * (world.devices.integral[device] - world.runs.device_mark[a])
        _use_devices(state, world, a, -1)
        clocks.set_rate(state, world, state.nodes.size + device, device_rate(state, world, device))
    else:
        demand = world.nodes.demand_u[node] - state.variants.cores_u[variant]
        world.nodes.demand_u[node] = demand
        clocks.set_rate(state, world, node, cpu_rate(state, node, demand))
    power.refresh(state, world, node)
    world.runs.run_j[a] = joules


@jit
def run_ended(state, world, a, priority):
    """The run stage is over, well or not; the attempt was taken out of its domain."""
    _leave_run(state, world, a)
    task = state.attempts.task[a]
    node = state.attempts.node[a]
    outcome = world.runs.outcome[a]
    if outcome == OK:
        fn = state.shapes.function[state.tasks.form[task]]
        if state.functions.cold_start_s[fn] > 0.0:
            containers.keep(state, node, fn)
        _close(state, world, a, OK)
        left = state.tasks.parts_left[task] - 1
        state.tasks.parts_left[task] = left
        if left == 0:
            where = node if state.classes.serverless[state.nodes.cls[node]] == 0 else -1
            release.complete(state, task, where, priority)
            world.clock.last_end[0] = state.clock.now[0]
        return
    faults.keep_checkpoint(state, world, a)
    _close(state, world, a, outcome)
    if state.shapes.parts[state.tasks.form[task]] > 1:
        cancel_siblings(state, world, task)
    retry(state, world, task, outcome, priority)


@jit
def retry(state, world, task, outcome, priority):
    """Back to the queue's end with one attempt less, or out for good."""
    state.tasks.attempt[task] += 1
    if state.tasks.attempt[task] <= state.clock.max_retries[0] and outcome != TIME_LIMIT:
        world.clock.retries[0] += 1
        release.enqueue(state, task, priority)
    else:
        release.give_up(state, task)
        world.clock.last_end[0] = state.clock.now[0]


@jit
def cancel_siblings(state, world, task):
    """One part failed: the others end too."""
    for b in range(state.attempts.size):
        if state.attempts.task[b] == task:
            stop(state, world, b, CANCELLED)


@jit
def stop(state, world, a, outcome):
    """End an attempt in whatever stage it is; its joules are lost."""
    stage = world.runs.stage[a]
    if stage == RUN:
        clocks.remove(state, world, a)
        faults.note_progress(state, world, a)
        _leave_run(state, world, a)
    elif stage == COLD:
        world.runs.cold_s[a] = state.clock.now[0] - world.runs.since[a]
        _leave_cold(state, world, a)
    elif stage == DATA:
        clocks.remove(state, world, a)
        d = world.runs.domain[a]
        if world.domains.count[d] > 0:
            clocks.set_rate(state, world, d, 1.0 / world.domains.count[d])
    if stage != RUN:
        world.runs.start[a] = math.nan
    _close(state, world, a, outcome)


@jit
def _close(state, world, a, outcome):
    """Write the record, give back what the attempt held, free its row."""
    attempts = state.attempts
    runs = world.runs
    node = attempts.node[a]
    variant = attempts.variant[a]
    if outcome != OK:
        world.energy[node, RUN_J] -= runs.run_j[a]
        world.energy[node, COLD_J] -= runs.cold_j[a]
        world.energy[node, LOST_J] += runs.run_j[a] + runs.cold_j[a]
    cls = state.nodes.cls[node]
    if state.classes.serverless[cls] == 1 and not math.isnan(runs.start[a]):
        used = state.variants.cores_u[variant] / MICRO * (state.clock.now[0] - runs.start[a])
        world.nodes.cost[node] += used * state.classes.use_price[cls] + state.classes.call_price[cls]
    k = world.clock.record_n[0]
    world.clock.record_n[0] = k + 1
    r = world.records
    r.task[k] = attempts.task[a]
    r.part[k] = attempts.part[a]
    r.attempt[k] = attempts.attempt[a]
    r.node[k] = node
    device = attempts.device[a]
    r.device[k] = device - state.nodes.device_first[node] if device >= 0 else -1
    r.variant[k] = state.variants.origin[variant]
    r.outcome[k] = outcome
    r.ready_s[k] = attempts.ready[a]
    r.placed_s[k] = attempts.placed[a]
    r.start_s[k] = runs.start[a]
    r.end_s[k] = state.clock.now[0]
    r.message_s[k] = runs.message_s[a]
    r.wake_s[k] = runs.wake_s[a]
    r.cold_s[k] = runs.cold_s[a]
    r.data_s[k] = runs.data_s[a]
    r.run_j[k] = runs.run_j[a]
    r.cold_j[k] = runs.cold_j[a]
    r.transfer_j[k] = runs.transfer_j[a]
    r.marginal_j[k] = attempts.marginal_j[a]
    r.guarantee[k] = state.variants.guarantee[variant]
    fit.give_back(state, variant, node, device, attempts.devices[a])
    decide.drop_attempt(state, a)
    if state.nodes.running[node] == 0:
        sleep.node_idles(state, world, node)

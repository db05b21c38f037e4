"""The stages of an attempt: message, wake, cold start, data, run, end."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine import devices, fold, view
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
from wattflow.kernel.jit import inner
from wattflow.sim import clocks, faults, pinned, power, sleep
from wattflow.sim.world import (
    CANCELLED,
    COLD,
    COLD_J,
    DATA,
    FAIL,
    FINISH,
    HOLD,
    LATENCY,
    LOST_J,
    MESSAGE,
    NODE_LOST,
    OK,
    RUN,
    RUN_J,
    STAGE_END,
    TIME_LIMIT,
    TIME_UP,
    TRANSFER_J,
    WAKE,
)


@inner
def begin(state, world, a):
    """A placement reaches its node."""
    run = world.runs[a]
    pulse = world.pulse[0]
    run.outcome = OK
    run.run_j = 0.0
    run.cold_j = 0.0
    run.transfer_j = 0.0
    run.message_s = 0.0
    run.wake_s = 0.0
    run.cold_s = 0.0
    run.data_s = 0.0
    run.hold_s = 0.0
    run.in_lane = 0
    run.warm = 0
    run.since = state.clock[0].now
    run.domain = -1
    node = state.attempts[a].node
    state.nodes[node].generation += 1
    if pulse.message_s > 0.0:
        _timed(state, world, a, MESSAGE, pulse.message_s)
    else:
        _enter_wake(state, world, a)


@inner
def _timed(state, world, a, stage, seconds):
    run = world.runs[a]
    clock = state.clock[0]
    run.stage = stage
    run.since = clock.now
    end = clock.now + seconds
    clocks.push_event(world, end, FINISH, STAGE_END, a, state.attempts[a].sequence)


@inner
def stage_ended(state, world, a):
    """A timed stage is over."""
    run = world.runs[a]
    spent = state.clock[0].now - run.since
    stage = run.stage
    if stage == MESSAGE:
        run.message_s = spent
        _enter_wake(state, world, a)
    elif stage == COLD:
        run.cold_s = spent
        _leave_cold(state, world, a)
        _enter_data(state, world, a)
    elif stage == LATENCY:
        _enter_transfer(state, world, a)


@inner
def _enter_wake(state, world, a):
    run = world.runs[a]
    node = state.attempts[a].node
    node_row = state.nodes[node]
    power_state = node_row.power_state
    if power_state == ASLEEP or power_state == FALLING or power_state == WAKING:
        run.stage = WAKE
        run.since = state.clock[0].now
        sleep.wake(state, world, node)
        if node_row.power_state == ON:
            node_is_on(state, world, node)
    else:
        _enter_cold(state, world, a)


@inner
def node_is_on(state, world, node):
    """The attempts that waited for the node go on, oldest first."""
    last = np.int64(-1)
    while True:
        # The list is newest first and changes under us: pick the oldest waiting one each time.
        a = state.nodes[node].first_attempt
        pick = -1
        while a >= 0:
            seq = state.attempts[a].sequence
            if world.runs[a].stage == WAKE and seq > last and (pick < 0 or seq < state.attempts[pick].sequence):
                pick = a
            a = state.attempts[a].next
        if pick < 0:
            return
        last = state.attempts[pick].sequence
        world.runs[pick].wake_s = state.clock[0].now - world.runs[pick].since
        _enter_cold(state, world, pick)


@inner
def _enter_cold(state, world, a):
    """Take a warm container, or make one; load the FPGA where another function's kernel is in it."""
    run = world.runs[a]
    attempt = state.attempts[a]
    node = attempt.node
    load = world.nodes[node]
    seconds = fold.enter(state, a)
    if seconds <= 0.0:
        _enter_data(state, world, a)
        return
    world.pulse[0].cold_starts += 1
    power.account(state, world, node)
    weight = _weight(state, a)
    run.weight_u = weight
    load.busy_u += state.variants[attempt.variant].cores_u
    load.weight_u += weight
    load.cold_u += weight
    run.mark = load.integral
    power.refresh(state, world, node)
    _timed(state, world, a, COLD, seconds)


@inner
def _leave_cold(state, world, a):
    run = world.runs[a]
    node = state.attempts[a].node
    load = world.nodes[node]
    power.account(state, world, node)
    weight = run.weight_u
    run.cold_j += weight * (load.integral - run.mark)
    load.busy_u -= state.variants[state.attempts[a].variant].cores_u
    load.weight_u -= weight
    load.cold_u -= weight
    power.refresh(state, world, node)


@inner
def _weight(state, a):
    """Busy cores that an attempt counts for in power at its frequency level, in millionths."""
    attempt = state.attempts[a]
    weight = state.variants[attempt.variant].cores_u
    level = view.level_at(state, attempt.variant, attempt.node)
    if level > 0:
        cls = state.nodes[attempt.node].cls
        return np.int64(round(weight * state.frequency_power[cls, level]))
    return weight


@inner
def set_frequency(state, world, node, level):
    """Change a node's level: what runs there goes on at it, each as its compute-bound share says."""
    power.account(state, world, node)
    before = state.nodes[node].frequency
    if not fold.set_frequency(state, node, level):
        return
    a = state.nodes[node].first_attempt
    while a >= 0:
        stage = world.runs[a].stage
        if stage == RUN or stage == COLD:
            _reweigh(state, world, a)
        if stage == RUN:
            _rework(state, world, a, before, level)
        a = state.attempts[a].next
    power.refresh(state, world, node)


@inner
def _reweigh(state, world, a):
    """Settle the joules so far and count the attempt at its new level from here on."""
    run = world.runs[a]
    load = world.nodes[state.attempts[a].node]
    joules = run.weight_u * (load.integral - run.mark)
    run.mark = load.integral
    weight = _weight(state, a)
    load.weight_u += weight - run.weight_u
    if run.stage == COLD:
        run.cold_j += joules
        load.cold_u += weight - run.weight_u
    else:
        run.run_j += joules
    run.weight_u = weight


@inner
def _rework(state, world, a, before, after):
    """What is left of an attempt's work, at another level of its node."""
    run = world.runs[a]
    attempt = state.attempts[a]
    node_row = state.nodes[attempt.node]
    shape = state.tasks[attempt.task].form
    node_row.frequency = before
    old = view.factor_at(state, shape, attempt.variant, attempt.node, 1.0)
    node_row.frequency = after
    ratio = view.factor_at(state, shape, attempt.variant, attempt.node, 1.0) / old
    if ratio != 1.0:
        d = run.domain
        left = max(0.0, run.finish_v - clocks.virtual(world, d, state.clock[0].now))
        clocks.remove(state, world, a)
        clocks.join(state, world, d, a, left * ratio)
        run.planned *= ratio


@inner
def _enter_data(state, world, a):
    attempt = state.attempts[a]
    run = world.runs[a]
    clock = state.clock[0]
    rules = state.rules[0]
    run.since = clock.now
    if rules.has_data == 0:
        _enter_run(state, world, a)
        return
    node = attempt.node
    task = attempt.task
    size = view.bytes_to(state, task, node)
    if size <= 0.0:
        _enter_run(state, world, a)
        return
    run.bytes = size
    world.pulse[0].transfers += 1
    latency = view.data_latency_s(state, task, node)
    if latency > 0.0:
        since = run.since
        _timed(state, world, a, LATENCY, latency)
        run.since = since
    else:
        _enter_transfer(state, world, a)


@inner
def _net_domain(state, node):
    return state.nodes.size + state.devices.size + node


@inner
def _enter_transfer(state, world, a):
    run = world.runs[a]
    node = state.attempts[a].node
    d = _net_domain(state, node)
    run.stage = DATA
    seconds = run.bytes / state.classes[state.nodes[node].cls].bandwidth
    clocks.join(state, world, d, a, seconds)
    clocks.set_rate(state, world, d, 1.0 / world.domains[d].count)


@inner
def data_arrived(state, world, a):
    """A transfer is over; it was taken out of its link's domain."""
    run = world.runs[a]
    clock = state.clock[0]
    pulse = world.pulse[0]
    d = run.domain
    domain = world.domains[d]
    if domain.count > 0:
        clocks.set_rate(state, world, d, 1.0 / domain.count)
    else:
        clocks.set_rate(state, world, d, 1.0)
    node = state.attempts[a].node
    run.data_s = clock.now - run.since
    pulse.moved_bytes += run.bytes
    joules = run.bytes * state.classes[state.nodes[node].cls].j_per_byte
    if joules > 0.0:
        run.transfer_j = joules
        world.energy[node, TRANSFER_J] += joules
        if pulse.series == 1:
            power.charge_at_once(state, world, node, joules)
    _enter_run(state, world, a)


@inner
def _crowd(state, world, node, cores_u, beside_device):
    """More or fewer cores are asked for in run stages on a node: its CPU attempts progress accordingly."""
    load = world.nodes[node]
    demand = load.demand_u + cores_u
    load.demand_u = demand
    if load.lane_first >= 0:
        if beside_device:
            load.host_u += cores_u
        pinned.set_rates(state, world, node)
        return
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
        others = use.busy_u / MICRO * (k - 1) / k
        return 1.0 / (1.0 + device_kind.interference * others)
    return 1.0


@inner
def _enter_run(state, world, a):
    """Start the run, or wait until the other parts of the gang are as far."""
    task = state.attempts[a].task
    parts = state.shapes[state.tasks[task].form].parts
    if parts == 1:
        _start_run(state, world, a)
        return
    run = world.runs[a]
    gang = world.gangs[task]
    run.stage = HOLD
    run.since = state.clock[0].now
    _note_held(state, world, task, a)
    gang.held += 1
    if gang.held < parts:
        return
    b = _oldest_first(world, gang.first_held)
    _forget_held(world, task)
    while b >= 0:
        after = world.runs[b].left  # joining a domain sets it anew
        world.runs[b].hold_s = state.clock[0].now - world.runs[b].since
        _start_run(state, world, b)
        b = after


@inner
def _note_held(state, world, task, a):
    """Add a part to those that wait, the one placed last first; parts mostly come in order, so this is short."""
    sequence = state.attempts[a].sequence
    before = -1
    b = world.gangs[task].first_held
    while b >= 0 and state.attempts[b].sequence > sequence:
        before = b
        b = world.runs[b].left
    world.runs[a].left = b
    if before < 0:
        world.gangs[task].first_held = a
    else:
        world.runs[before].left = a


@inner
def _oldest_first(world, b):
    """The list of waiting parts turned round: they start in the order in which they were placed."""
    after = -1
    while b >= 0:
        following = world.runs[b].left
        world.runs[b].left = after
        after = b
        b = following
    return after


@inner
def _forget_held(world, task):
    world.gangs[task].first_held = -1
    world.gangs[task].held = 0


@inner
def _start_run(state, world, a):
    run = world.runs[a]
    attempt = state.attempts[a]
    now = state.clock[0].now
    node = attempt.node
    load = world.nodes[node]
    variant = attempt.variant
    needs = state.variants[variant]
    run.stage = RUN
    run.since = now
    run.start = now
    work = faults.plan_work(state, world, a)
    weight = _weight(state, a)
    run.weight_u = weight
    power.account(state, world, node)
    run.mark = load.integral
    load.busy_u += needs.cores_u
    load.weight_u += weight
    if needs.device != NO_DEVICE:
        _use_devices(state, world, a, 1)
        device = attempt.device
        run.device_mark = _device_integral(state, world, a)
        d = state.nodes.size + device
        clocks.join(state, world, d, a, work)
        clocks.set_rate(state, world, d, device_rate(state, world, device))
    elif load.lane_first >= 0:
        run.in_lane = 1
        pinned.start(state, world, node, a, work)
    else:
        clocks.join(state, world, node, a, work)
    _crowd(state, world, node, needs.cores_u, needs.device != NO_DEVICE)
    power.refresh(state, world, node)
    limit = state.classes[state.nodes[node].cls].limit_s
    if limit < math.inf:
        clocks.push_event(world, now + limit, FAIL, TIME_UP, a, attempt.sequence)


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
            power.account_device(state, world, d)
            world.devices[d].tasks += sign
            world.devices[d].busy_u += sign * devices.busy_share(state, variant, state.devices[d].cls)
            world.devices[d].duty_u += sign * state.variants[variant].duty_u
            power.refresh_device(state, world, d)


@inner
def _device_integral(state, world, a):
    """Joules per share above idle so far, over all devices of an attempt."""
    attempt = state.attempts[a]
    node_row = state.nodes[attempt.node]
    first = node_row.device_first
    total = 0.0
    for d in range(first, first + node_row.device_n):
        if devices.holds(attempt.devices, d - first):
            power.account_device(state, world, d)
            total += world.devices[d].integral
    return total


@inner
def _leave_run(state, world, a):
    """Stop counting an attempt in power and sharing; it was taken out of its domain."""
    run = world.runs[a]
    attempt = state.attempts[a]
    node = attempt.node
    load = world.nodes[node]
    variant = attempt.variant
    needs = state.variants[variant]
    weight = run.weight_u
    power.account(state, world, node)
    joules = weight * (load.integral - run.mark)
    load.busy_u -= needs.cores_u
    load.weight_u -= weight
    if needs.device != NO_DEVICE:
        device = attempt.device
        share = devices.busy_share(state, variant, state.devices[device].cls)
        joules += share * (_device_integral(state, world, a) - run.device_mark)
        _use_devices(state, world, a, -1)
        clocks.set_rate(state, world, state.nodes.size + device, device_rate(state, world, device))
    if run.in_lane == 1:
        run.in_lane = 0
        pinned.balance(state, world, node, run.domain)
    _crowd(state, world, node, -needs.cores_u, needs.device != NO_DEVICE)
    power.refresh(state, world, node)
    run.run_j += joules


@inner
def run_ended(state, world, a, priority):
    """The run stage is over, well or not; the attempt was taken out of its domain."""
    attempt = state.attempts[a]
    _leave_run(state, world, a)
    task = attempt.task
    task_row = state.tasks[task]
    node = attempt.node
    outcome = world.runs[a].outcome
    if outcome == OK:
        fold.keep_container(state, a)
        _close(state, world, a, OK)
        if fold.part_done(state, task, node, priority):
            world.pulse[0].last_end = state.clock[0].now
        return
    faults.keep_checkpoint(state, world, a)
    _close(state, world, a, outcome)
    if state.shapes[task_row.form].parts > 1:
        cancel_siblings(state, world, task, -1)
    retry(state, world, task, outcome, priority)


@inner
def time_is_up(state, world, a, priority):
    """The platform's time limit has passed and the attempt still runs: its task is given up."""
    task = state.attempts[a].task
    stop(state, world, a, TIME_LIMIT)
    if state.shapes[state.tasks[task].form].parts > 1:
        cancel_siblings(state, world, task, -1)
    retry(state, world, task, TIME_LIMIT, priority)


@inner
def retry(state, world, task, outcome, priority):
    """Back to the queue's end with one attempt less, or out for good."""
    if state.shapes[state.tasks[task].form].parts > 1:
        _forget_held(world, task)
    if fold.try_again(state, task, outcome == TIME_LIMIT, priority) == 0:
        world.pulse[0].retries += 1
    else:
        world.pulse[0].last_end = state.clock[0].now


@inner
def cancel_siblings(state, world, task, lost):
    """One part failed: the others end too. ``lost`` is the node that took it along, or −1."""
    for b in range(state.attempts.size):
        if state.attempts[b].task == task:
            stop(state, world, b, NODE_LOST if state.attempts[b].node == lost else CANCELLED)


@inner
def stop(state, world, a, outcome):
    """End an attempt in whatever stage it is; its joules are lost."""
    run = world.runs[a]
    stage = run.stage
    spent = state.clock[0].now - run.since
    if stage == MESSAGE:
        run.message_s = spent
    elif stage == WAKE:
        run.wake_s = spent
    elif stage == LATENCY or stage == DATA:
        run.data_s = spent
    elif stage == HOLD:
        run.hold_s = spent
    if stage == RUN:
        clocks.remove(state, world, a)
        faults.note_progress(state, world, a)
        _leave_run(state, world, a)
    elif stage == COLD:
        run.cold_s = spent
        _leave_cold(state, world, a)
    elif stage == DATA:
        clocks.remove(state, world, a)
        d = run.domain
        if world.domains[d].count > 0:
            clocks.set_rate(state, world, d, 1.0 / world.domains[d].count)
    if stage != RUN:
        run.start = math.nan
    _close(state, world, a, outcome)


@inner
def _close(state, world, a, outcome):
    """Write the record, give back what the attempt held, free its row."""
    clock = state.clock[0]
    run = world.runs[a]
    pulse = world.pulse[0]
    attempt = state.attempts[a]
    node = attempt.node
    node_row = state.nodes[node]
    variant = attempt.variant
    needs = state.variants[variant]
    if outcome != OK:
        world.energy[node, RUN_J] -= run.run_j
        world.energy[node, COLD_J] -= run.cold_j
        world.energy[node, LOST_J] += run.run_j + run.cold_j
    cls = node_row.cls
    kind = state.classes[cls]
    if kind.serverless == 1:
        running = 0.0 if math.isnan(run.start) else clock.now - run.start
        used = needs.cores_u / MICRO * (running + run.hold_s)
        world.nodes[node].cost += used * kind.use_price + kind.call_price
    k = pulse.record_n
    record = world.records[k]
    pulse.record_n = k + 1
    record.task = attempt.task
    record.part = attempt.part
    record.attempt = attempt.attempt
    record.node = node
    device = attempt.device
    record.device = device - node_row.device_first if device >= 0 else -1
    record.variant = needs.origin
    record.outcome = outcome
    record.ready_s = attempt.ready
    record.placed_s = attempt.placed
    record.start_s = run.start
    record.end_s = clock.now
    record.message_s = run.message_s
    record.wake_s = run.wake_s
    record.cold_s = run.cold_s
    record.data_s = run.data_s
    record.hold_s = run.hold_s
    record.run_j = run.run_j
    record.cold_j = run.cold_j
    record.transfer_j = run.transfer_j
    record.marginal_j = attempt.marginal_j
    record.guarantee = needs.guarantee
    sleep.check_later(state, world, node, fold.end_attempt(state, a))

"""The stages of an attempt: message, wake, cold start, data, run."""

from __future__ import annotations

from wattflow.engine import agenda, life, view
from wattflow.engine.parts import RICH
from wattflow.kernel.jit import inner, optional
from wattflow.kernel.power_curve import TRANSFER_J
from wattflow.sim import clocks, energy_accounts, running
from wattflow.sim.world import COLD, DATA, HOLD, LATENCY, MESSAGE, OK, World


@inner
def note_held(state, world, task, a):
    """Add a part to those that wait, the one placed last first; parts mostly come in order, so this is short."""
    sequence = state.attempts[a].sequence
    before = -1
    b = world.gangs[task].first_held
    while b >= 0 and state.attempts[b].sequence > sequence:
        before = b
        b = world.runs[b].left
    # ``left`` links the heap of a domain otherwise; a part that holds is in none.
    world.runs[a].left = b
    if before < 0:
        world.gangs[task].first_held = a
    else:
        world.runs[before].left = a


@inner
def oldest_first(world, b):
    """Reverse the list of waiting parts: they start in the order in which they were placed."""
    after = -1
    while b >= 0:
        following = world.runs[b].left
        world.runs[b].left = after
        after = b
        b = following
    return after


@optional(RICH)
def forget_held(world, task):
    world.gangs[task].first_held = -1
    world.gangs[task].held = 0


@life.begun.of(World)
@inner
def _begun(state, world, a):
    """Begin an attempt's record: the placement is on its way to its node."""
    run = world.runs[a]
    pulse = world.pulse[0]
    # The row served another attempt before: every column that a record sums is set anew here.
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
    if state.attempts[a].device >= 0:
        running.follow_levels(state, world, state.attempts[a].node)
    if pulse.message_s > 0.0:
        _timed(state, world, a, MESSAGE, pulse.message_s)
        return True
    return False


@optional(RICH)
def _timed(state, world, a, stage, seconds):
    run = world.runs[a]
    clock = state.clock[0]
    state.attempts[a].stage = stage
    run.since = clock.now
    end = clock.now + seconds
    # With the sequence, by which a late event knows that its attempt is gone (`kernel._fold`).
    agenda.push(state, end, agenda.STAGE_END, a, state.attempts[a].sequence)


@optional(RICH)
def stage_ended(state, world, a):
    """End a timed stage."""
    run = world.runs[a]
    spent = state.clock[0].now - run.since
    stage = state.attempts[a].stage
    if stage == MESSAGE:
        run.message_s = spent
        life.arrive(state, world, a)
    elif stage == COLD:
        run.cold_s = spent
        running.leave_cold(state, world, a)
        _enter_data(state, world, a)
    elif stage == LATENCY:
        _enter_transfer(state, world, a)


@life.waits.of(World)
@inner
def _waits(state, world, a):
    world.runs[a].since = state.clock[0].now


@life.goes_on.of(World)
@inner
def _goes_on(state, world, a):
    world.runs[a].wake_s = state.clock[0].now - world.runs[a].since


@life.enters.of(World)
@inner
def _enters(state, world, a):
    """Nothing."""


@life.entered.of(World)
@inner
def _entered(state, world, a, seconds):
    if seconds <= 0.0:
        _enter_data(state, world, a)
    else:
        _start_cold(state, world, a, seconds)


@optional(RICH)
def _start_cold(state, world, a, seconds):
    """Begin a cold start, which keeps the attempt's cores busy."""
    run = world.runs[a]
    attempt = state.attempts[a]
    node = attempt.node
    load = world.nodes[node]
    world.pulse[0].cold_starts += 1
    energy_accounts.account(state, world, node)
    weight = running.weight_of(state, a)
    run.weight_u = weight
    load.busy_u += state.variants[attempt.variant].cores_u
    load.weight_u += weight
    load.cold_u += weight
    run.mark = load.integral
    energy_accounts.refresh(state, world, node)
    _timed(state, world, a, COLD, seconds)


@inner
def _enter_data(state, world, a):
    world.runs[a].since = state.clock[0].now
    if state.rules[0].has_data == 0:
        _enter_run(state, world, a)
    else:
        _fetch(state, world, a)


@optional(RICH)
def _fetch(state, world, a):
    """Bring the attempt's data to its node, where any lies elsewhere."""
    attempt = state.attempts[a]
    run = world.runs[a]
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
        # Latency and transfer are one stage of the record: its seconds count from the first byte asked for.
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
    state.attempts[a].stage = DATA
    # Seconds alone on the link; the rate shares it.
    seconds = run.bytes / state.classes[state.nodes[node].cls].bandwidth
    clocks.join(state, world, d, a, seconds)
    clocks.set_rate(state, world, d, 1.0 / world.domains[d].count)


@optional(RICH)
def data_arrived(state, world, a):
    """End a transfer that was taken out of its link's domain."""
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
            energy_accounts.charge_at_once(state, world, node, joules)
    _enter_run(state, world, a)


@inner
def _enter_run(state, world, a):
    """Start the run, or wait until the other parts of the gang are as far."""
    task = state.attempts[a].task
    parts = state.shapes[state.tasks[task].form].parts
    if parts == 1:
        running.start_run(state, world, a)
    else:
        _join_gang(state, world, a, task, parts)


@optional(RICH)
def _join_gang(state, world, a, task, parts):
    """Count a part of a gang as ready; the last one starts them all."""
    run = world.runs[a]
    gang = world.gangs[task]
    state.attempts[a].stage = HOLD
    run.since = state.clock[0].now
    note_held(state, world, task, a)
    gang.held += 1
    if gang.held < parts:
        return
    b = oldest_first(world, gang.first_held)
    forget_held(world, task)
    while b >= 0:
        after = world.runs[b].left  # joining a domain sets it anew
        world.runs[b].hold_s = state.clock[0].now - world.runs[b].since
        running.start_run(state, world, b)
        b = after

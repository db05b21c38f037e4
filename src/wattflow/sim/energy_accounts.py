"""Joules: every change of a node's load first closes the interval before it, then sets the new watts."""

from __future__ import annotations

from wattflow.engine import devices, view
from wattflow.engine.tables import ASLEEP, DOWN, DRAINING, FALLING, MICRO, ON, WAKING
from wattflow.kernel.jit import inner
from wattflow.kernel.power_curve import COLD_J, RUN_J, SLEEP_J, UNATTRIBUTED_J, WAKE_J, book


@inner
def _series_integral(world, first, count, step, t):
    """∫ of a repeated step series from 0 to t."""
    if count == 1:
        return world.series[first] * t
    period = step * count
    turns = int(t / period)
    rest = t - turns * period
    cell = int(rest / step)
    # A rest that rounds up to the whole period is still in its last step.
    if cell >= count:
        cell = count - 1
    partial = world.series_sum[first + cell] + (rest - cell * step) * world.series[first + cell]
    whole = world.series_sum[first + count - 1] + step * world.series[first + count - 1]
    return turns * whole + partial


@inner
def charge(state, world, n, joules_per_s, start, end):
    """Carbon and money for constant watts over an interval."""
    load = world.nodes[n]
    zone = state.classes[state.nodes[n].cls].zone
    place = world.zones[zone]
    pue = place.pue
    carbon = _series_integral(world, place.carbon_first, place.carbon_n, place.carbon_step, end)
    carbon -= _series_integral(world, place.carbon_first, place.carbon_n, place.carbon_step, start)
    price = _series_integral(world, place.price_first, place.price_n, place.price_step, end)
    price -= _series_integral(world, place.price_first, place.price_n, place.price_step, start)
    # Series are in grams and money per kWh.
    load.carbon += joules_per_s * carbon * pue / 3.6e6
    load.cost += joules_per_s * price * pue / 3.6e6


@inner
def _series_at(world, first, count, step, t):
    return world.series[first + int(t / step) % count]


@inner
def charge_at_once(state, world, n, joules):
    """Carbon and money for joules that are booked now."""
    load = world.nodes[n]
    now = state.clock[0].now
    place = world.zones[state.classes[state.nodes[n].cls].zone]
    paid = joules * place.pue / 3.6e6
    load.carbon += paid * _series_at(world, place.carbon_first, place.carbon_n, place.carbon_step, now)
    load.cost += paid * _series_at(world, place.price_first, place.price_n, place.price_step, now)


@inner
def account(state, world, n):
    """Close the interval since the node's last change: each joule into exactly one account."""
    load = world.nodes[n]
    now = state.clock[0].now
    since = load.since
    dt = now - since
    # Several changes in one instant: there is nothing between them.
    if dt <= 0.0:
        return
    power_state = state.nodes[n].power_state
    if power_state == ON or power_state == DRAINING:
        apart = load.cold_u + load.warming_u
        each = book(world.energy, n, load.idle_w, load.dynamic_w, load.weight_u, apart, dt)
        if apart > 0:
            if load.cold_u > 0:
                world.energy[n, COLD_J] += each * load.cold_u
            if load.warming_u > 0:
                world.energy[n, UNATTRIBUTED_J] += each * load.warming_u
        # Joules of one unit of weight so far: an attempt's own are its weight × the growth since its ``mark``.
        load.integral += each
        world.energy[n, RUN_J] += load.device_w * dt
    elif power_state == ASLEEP:
        world.energy[n, SLEEP_J] += load.watts * dt
    elif power_state == WAKING or power_state == FALLING:
        world.energy[n, WAKE_J] += load.watts * dt
    if world.pulse[0].series == 1:
        charge(state, world, n, load.watts, since, now)
    # Whatever the power state: an interval left open would be booked by the next one's watts.
    load.since = now


@inner
def refresh(state, world, n):
    """Set the node's watts from what it does now; call after `account` and the change."""
    load = world.nodes[n]
    node_row = state.nodes[n]
    pulse = world.pulse[0]
    cls = node_row.cls
    kind = state.classes[cls]
    power_state = node_row.power_state
    if power_state == ON or power_state == DRAINING:
        # In whole millionths, so that the sum of an empty node is exactly 0.
        if load.busy_u > 0:
            dynamic = view.watts(state, cls, load.busy_u / MICRO) - state.grid[kind.grid_first]
            if load.weight_u != load.busy_u:
                dynamic *= load.weight_u / load.busy_u
            load.dynamic_w = dynamic * world.watt_error[n]
        else:
            load.dynamic_w = 0.0
        watts = load.idle_w + load.dynamic_w + load.device_w
    elif power_state == ASLEEP:
        watts = kind.sleep_w * world.watt_error[n]
    elif power_state == DOWN:
        watts = 0.0
    else:
        watts = kind.wake_w * world.watt_error[n]
    # By difference: the cluster's watts cost O(1) at each change.
    pulse.total_w += watts - load.watts
    load.watts = watts
    if pulse.record_power == 1:
        k = pulse.log_n
        if k < world.power_log.size:
            world.power_log[k].time_s = state.clock[0].now
            world.power_log[k].node = n
            world.power_log[k].watts = watts
            pulse.log_n = k + 1


@inner
def account_device(state, world, d):
    """Close the interval since the device's last change; its joules go to the node's accounts by `account`."""
    use = world.devices[d]
    now = state.clock[0].now
    weight = use.weight_u
    if weight > 0:
        # As for a node: joules of one unit of weight so far. At full clock weights are shares.
        use.integral += use.dynamic_w * (now - use.since) / weight
    use.since = now


@inner
def refresh_device(state, world, d):
    """Set a device's watts above idle; call after both accounts were closed and the change was made."""
    use = world.devices[d]
    device_row = state.devices[d]
    dcls = device_row.cls
    device_kind = state.device_classes[dcls]
    busy = devices.busy_together(state, dcls, use.busy_u, use.duty_u)
    watts = 0.0
    if use.tasks > 0:
        watts = (view.device_watts(state, dcls, busy) - device_kind.idle_w) * world.watt_error[device_row.node]
        if use.weight_u != use.busy_u:
            watts *= use.weight_u / use.busy_u
    # By difference, as for the cluster: a node with many devices is not summed up at each change.
    world.nodes[device_row.node].device_w += watts - use.dynamic_w
    use.dynamic_w = watts

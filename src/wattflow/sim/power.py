"""Joules: every change of a node's load first closes the interval before it, then sets the new watts."""

from __future__ import annotations

from wattflow.engine import view
from wattflow.engine.jit import jit
from wattflow.engine.tables import ASLEEP, DOWN, DRAINING, EXCLUSIVE, FALLING, MICRO, ON, TIME_SLICE, WAKING
from wattflow.sim.world import COLD_J, IDLE_J, RUN_J, SLEEP_J, WAKE_J


@jit
def _series_integral(world, first, count, step, t):
    """∫ of a repeated step series from 0 to t."""
    if count == 1:
        return world.series[first] * t
    period = step * count
    turns = int(t / period)
    rest = t - turns * period
    cell = int(rest / step)
    if cell >= count:
        cell = count - 1
    partial = world.series_sum[first + cell] + (rest - cell * step) * world.series[first + cell]
    whole = world.series_sum[first + count - 1] + step * world.series[first + count - 1]
    return turns * whole + partial


@jit
def charge(state, world, n, joules_per_s, start, end):
    """Carbon and money for constant watts over an interval."""
    zone = state.classes.zone[state.nodes.cls[n]]
    zones = world.zones
    pue = zones.pue[zone]
    carbon = _series_integral(world, zones.carbon_first[zone], zones.carbon_n[zone], zones.carbon_step[zone], end)
    carbon -= _series_integral(world, zones.carbon_first[zone], zones.carbon_n[zone], zones.carbon_step[zone], start)
    price = _series_integral(world, zones.price_first[zone], zones.price_n[zone], zones.price_step[zone], end)
    price -= _series_integral(world, zones.price_first[zone], zones.price_n[zone], zones.price_step[zone], start)
    world.nodes.carbon[n] += joules_per_s * carbon * pue / 3.6e6
    world.nodes.cost[n] += joules_per_s * price * pue / 3.6e6


@jit
def account(state, world, n):
    """Close the interval since the node's last change: each joule into exactly one account."""
    now = state.clock.now[0]
    rows = world.nodes
    since = rows.since[n]
    dt = now - since
    if dt <= 0.0:
        return
    power_state = state.nodes.power_state[n]
    if power_state == ON or power_state == DRAINING:
        world.energy[n, IDLE_J] += rows.idle_w[n] * dt
        busy = rows.busy_u[n]
        if busy > 0:
            each = rows.dynamic_w[n] * dt / busy
            rows.integral[n] += each
            world.energy[n, RUN_J] += each * (busy - rows.cold_u[n])
            world.energy[n, COLD_J] += each * rows.cold_u[n]
        world.energy[n, RUN_J] += rows.device_w[n] * dt
    elif power_state == ASLEEP:
        world.energy[n, SLEEP_J] += rows.watts[n] * dt
    elif power_state == WAKING or power_state == FALLING:
        world.energy[n, WAKE_J] += rows.watts[n] * dt
    if world.clock.series[0] == 1:
        charge(state, world, n, rows.watts[n], since, now)
    rows.since[n] = now


@jit
def refresh(state, world, n):
    """Set the node's watts from what it does now; call after `account` and the change."""
    rows = world.nodes
    cls = state.nodes.cls[n]
    power_state = state.nodes.power_state[n]
    if power_state == ON or power_state == DRAINING:
        if rows.busy_u[n] > 0:
            dynamic = view.watts(state, cls, rows.busy_u[n] / MICRO) - state.grid[state.classes.grid_first[cls]]
            level = state.nodes.frequency[n]
            if level > 0:
                dynamic *= state.frequency_power[cls, level]
            rows.dynamic_w[n] = dynamic * world.watt_error[n]
        else:
            rows.dynamic_w[n] = 0.0
        watts = rows.idle_w[n] + rows.dynamic_w[n] + rows.device_w[n]
    elif power_state == ASLEEP:
        watts = state.classes.sleep_w[cls]
    elif power_state == DOWN:
        watts = 0.0
    else:
        watts = state.classes.wake_w[cls]
    world.clock.total_w[0] += watts - rows.watts[n]
    rows.watts[n] = watts
    if world.clock.record_power[0] == 1:
        k = world.clock.log_n[0]
        if k < world.power_log.size:
            world.power_log.time_s[k] = state.clock.now[0]
            world.power_log.node[k] = n
            world.power_log.watts[k] = watts
            world.clock.log_n[0] = k + 1


@jit
def account_device(state, world, d):
    """Close the interval since the device's last change; its joules go to the node's accounts by `account`."""
    now = state.clock.now[0]
    rows = world.devices
    share = rows.share_u[d]
    if share > 0:
        rows.integral[d] += rows.dynamic_w[d] * (now - rows.since[d]) / share
    rows.since[d] = now


@jit
def refresh_device(state, world, d):
    """Set a device's watts above idle; call after both accounts were closed and the change was made."""
    rows = world.devices
    dcls = state.devices.cls[d]
    busy = rows.share_u[d] / MICRO
    sharing = state.device_classes.sharing[dcls]
    if (sharing == EXCLUSIVE or sharing == TIME_SLICE) and rows.tasks[d] > 0:
        busy = 1.0
    watts = 0.0
    if rows.tasks[d] > 0:
        watts = view.device_watts(state, dcls, busy) - state.device_classes.idle_w[dcls]
    world.nodes.device_w[state.devices.node[d]] += watts - rows.dynamic_w[d]
    rows.dynamic_w[d] = watts

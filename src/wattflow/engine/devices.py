"""Devices: who has room on one, which share counts, and how fast several are together."""

from __future__ import annotations

import math

import numpy as np

from wattflow.engine.tables import EXCLUSIVE, MICRO, MIG, TIME_SLICE
from wattflow.kernel.jit import jit


@jit
def share_on(state, variant, dcls):
    """Return the share that a variant takes of a device of this class: sevenths under MIG, else as asked."""
    share = state.variants[variant].share_u
    # A MIG instance is made of whole sevenths: a smaller share still takes one.
    if state.device_classes[dcls].sharing == MIG:
        sevenths = (share * 7 + MICRO - 1) // MICRO
        return sevenths * MICRO // 7  # rounded down, so that seven slices fit
    return share


@jit
def busy_share(state, variant, dcls):
    """Return the share of a device that a variant keeps busy on average: its share times its duty, in every mode."""
    return share_on(state, variant, dcls) * state.variants[variant].duty_u // MICRO


@jit
def busy_together(state, dcls, busy_u, duty_u):
    """Return the busy share (0 … 1) of a device whose tasks have these sums: those that take turns overlap never."""
    if state.device_classes[dcls].sharing == TIME_SLICE and duty_u > MICRO:
        return busy_u / duty_u
    return busy_u / MICRO


@jit
def turns(state, variant, dcls):
    """Count a device's places that a variant takes: all slots of a time-sliced one if it takes several devices."""
    device_kind = state.device_classes[dcls]
    if state.variants[variant].devices > 1 and device_kind.sharing == TIME_SLICE:
        return np.int64(device_kind.slots)
    return np.int64(1)


@jit
def device_suits(state, variant, device):
    """Tell whether an empty device would take the variant: kind, model and memory."""
    needs = state.variants[variant]
    device_kind = state.device_classes[state.devices[device].cls]
    if device_kind.kind != needs.device:
        return False
    models = needs.models
    if models != np.uint64(0) and (models >> np.uint64(device_kind.model)) & np.uint64(1) == np.uint64(0):
        return False
    if needs.level > 0 and not knows_level(state, variant, state.devices[device].cls):
        return False
    return needs.device_memory <= device_kind.memory


@jit
def knows_level(state, variant, dcls):
    """Tell whether a device class has the variant's level, and what it does to the variant's function is known."""
    needs = state.variants[variant]
    if needs.level >= state.device_classes[dcls].level_n:
        return False
    return seconds_at(state, variant, dcls, needs.level) < math.inf


@jit
def seconds_at(state, variant, dcls, level):
    """Return a variant's seconds at a level of a device class, over those at full clock."""
    # Whoever runs at full clock names no function; a device with one of those is never below it.
    if level == 0:
        return 1.0
    return state.level_seconds[state.device_classes[dcls].level_first + state.variants[variant].function, level]


@jit
def weight_at(state, variant, dcls, level):
    """Return the busy share that a variant counts for in a device's watts at a level, in whole millionths."""
    busy = busy_share(state, variant, dcls)
    if level == 0 or busy == 0:
        return busy
    power = state.level_power[state.device_classes[dcls].level_first + state.variants[variant].function, level]
    return max(np.int64(1), np.int64(round(busy * power)))


@jit
def level_among(state, node, device, skip):
    """Return the highest clock that an attempt on a device asks for, one of them left out; 0 (full) without any."""
    first = state.nodes[node].device_first
    lowest = -1
    a = state.nodes[node].first_attempt
    while a >= 0:
        attempt = state.attempts[a]
        if a != skip and attempt.device >= 0 and holds(attempt.devices, device - first):
            level = state.variants[attempt.variant].level
            lowest = level if lowest < 0 else min(lowest, level)
        a = attempt.next
    return max(0, lowest)


@jit
def device_fits(state, variant, device):
    """Tell whether one device has room for the variant's share and memory."""
    needs = state.variants[variant]
    device_row = state.devices[device]
    dcls = device_row.cls
    device_kind = state.device_classes[dcls]
    if not device_suits(state, variant, device):
        return False
    if device_row.memory + needs.device_memory > device_kind.memory:
        return False
    # One clock for all: beside somebody who runs faster there is no slower place.
    if device_row.tasks > 0 and needs.level > device_row.level:
        return False
    sharing = device_kind.sharing
    if sharing == EXCLUSIVE:
        return device_row.tasks == 0
    if sharing == TIME_SLICE:
        return device_row.tasks < device_kind.slots
    return device_row.share_u + share_on(state, variant, dcls) <= MICRO


@jit
def whole_free(state, variant, device):
    """Tell whether a device is empty and suits the variant."""
    return state.devices[device].tasks == 0 and device_fits(state, variant, device)


@jit
def holds(taken, place):
    """Tell whether a bit mask of devices has the one at this place of its node."""
    return (taken >> np.uint64(place)) & np.uint64(1) == np.uint64(1)


@jit
def speed_ahead(state, variant, node, device):
    """Return the speed of a device, or of the slowest of those that a variant of several would take."""
    wanted = state.variants[variant].devices
    if wanted <= 1:
        return speed_at(state, variant, state.devices[device].cls)
    node_row = state.nodes[node]
    slowest = math.inf
    for d in range(node_row.device_first, node_row.device_first + node_row.device_n):
        if wanted > 0 and whole_free(state, variant, d):
            slowest = min(slowest, speed_at(state, variant, state.devices[d].cls))
            wanted -= 1
    return slowest


@jit
def speed_at(state, variant, dcls):
    """Return the speed of a device class at the variant's level."""
    speed = state.device_classes[dcls].speed
    level = state.variants[variant].level
    return speed / seconds_at(state, variant, dcls, level) if level > 0 else speed


@jit
def speed_taken(state, variant, node, taken):
    """Return the speed of the slowest of the devices that an attempt holds, at its level."""
    node_row = state.nodes[node]
    slowest = math.inf
    for place in range(node_row.device_n):
        if holds(taken, place):
            slowest = min(slowest, speed_at(state, variant, state.devices[node_row.device_first + place].cls))
    return slowest

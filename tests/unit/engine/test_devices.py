"""Devices by hand: shares, turns, room, and how fast several are together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import devices
from wattflow.engine.build import build_state
from wattflow.engine.tables import State
from wattflow.model.cluster import Device
from wattflow.model.workflow import Variant

EXCLUSIVE, SLICED, SHARED, SEVENTHS = range(4)
"""The places of the node's devices, one of each way of sharing; the sliced one has three slots."""
HALF, SMALL, PAIR, BUSY = range(4)
"""Variants: half a device, a seventh of one, two whole ones, and half of one for a quarter of the time."""


def four() -> State:
    cards = tuple(
        Device("gpu", "a", 100, sharing, 3, speed=speed)
        for sharing, speed in (("exclusive", 1.0), ("time-slice", 2.0), ("mps", 4.0), ("mig", 3.0))
    )
    offers = (
        Variant("half", 1, 0, "gpu", 1, 0.5, 40), Variant("small", 1, 0, "gpu", 1, 1 / 7, 10),
        Variant("pair", 1, 0, "gpu", 2, 1.0, 60), Variant("busy", 1, 0, "gpu", 1, 0.5, 0, device_duty=0.25),
    )  # fmt: skip
    return build_state(tasks([1.0], variants=offers), nodes(node(8, devices=cards)))


def kind(state: State, device: int) -> int:
    return int(state.devices.cls[device])


def test_shares_are_taken_in_sevenths_under_mig_and_else_as_asked() -> None:
    state = four()
    found = [[int(devices.share_on(state.handle(), v, kind(state, d))) for d in range(4)] for v in (HALF, SMALL)]
    assert found == [[500_000] * 3 + [571_428], [142_857] * 4]
    busy = [int(devices.busy_share(state.handle(), BUSY, kind(state, d))) for d in range(4)]
    assert busy == [125_000, 125_000, 125_000, 142_857]


def test_tasks_that_take_turns_are_never_busy_together() -> None:
    state = four()
    asked = ((500_000, 1_000_000), (600_000, 1_200_000), (300_000, 400_000))
    sliced = [devices.busy_together(state.handle(), kind(state, SLICED), *sums) for sums in asked]
    assert sliced == pytest.approx([0.5, 0.5, 0.3])
    shared = [devices.busy_together(state.handle(), kind(state, SHARED), *sums) for sums in asked]
    assert shared == pytest.approx([0.5, 0.6, 0.3])


def test_a_variant_of_several_devices_takes_all_turns_of_each() -> None:
    state = four()
    assert [int(devices.turns(state.handle(), PAIR, kind(state, d))) for d in range(4)] == [1, 3, 1, 1]
    assert [int(devices.turns(state.handle(), HALF, kind(state, d))) for d in range(4)] == [1] * 4


def fitting(state: State, variant: int) -> list[bool]:
    return [bool(devices.device_fits(state.handle(), variant, d)) for d in range(4)]


def test_room_on_a_device_is_by_task_turn_or_share_and_by_memory() -> None:
    state = four()
    assert fitting(state, HALF) == [True] * 4
    state.devices.tasks[:4] = 1
    state.devices.share_u[:4] = [0, 0, 500_000, 428_572]
    assert fitting(state, HALF) == [False, True, True, True]
    state.devices.tasks[SLICED] = 2
    state.devices.share_u[2:4] = [500_001, 428_573]
    assert fitting(state, HALF) == [False, True, False, False]
    assert fitting(state, SMALL) == [False, True, True, True]
    state.devices.tasks[SLICED] = 3
    assert fitting(state, SMALL) == [False, False, True, True]
    state.devices.tasks[:4], state.devices.share_u[:4] = 0, 0
    state.devices.memory[:4] = [60, 61, 60, 61]
    assert fitting(state, HALF) == [True, False, True, False]
    assert [bool(devices.whole_free(state.handle(), HALF, d)) for d in range(4)] == [True, False, True, False]
    state.devices.tasks[:4] = [1, 0, 1, 0]
    assert [bool(devices.whole_free(state.handle(), HALF, d)) for d in range(4)] == [False] * 4


def test_several_devices_are_as_fast_as_the_slowest_that_is_taken() -> None:
    """Of those that are free the first two are taken: speeds 1 and 2, or 2 and 4 where the first is in use."""
    state = four()
    assert devices.speed_ahead(state.handle(), PAIR, 0, 0) == 1.0
    state.devices.tasks[0] = 1
    assert devices.speed_ahead(state.handle(), PAIR, 0, 1) == 2.0
    state.devices.tasks[1] = 1
    assert devices.speed_ahead(state.handle(), PAIR, 0, 2) == 3.0
    assert [devices.speed_ahead(state.handle(), HALF, 0, d) for d in range(4)] == [1.0, 2.0, 4.0, 3.0]
    masks = (0b0001, 0b0110, 0b1100, 0b1111)
    assert [devices.speed_taken(state.handle(), PAIR, 0, np.uint64(mask)) for mask in masks] == [1.0, 2.0, 3.0, 1.0]
    assert devices.speed_taken(state.handle(), PAIR, 0, np.uint64(0)) == math.inf
    assert [bool(devices.holds(np.uint64(0b1010), place)) for place in range(4)] == [False, True, False, True]

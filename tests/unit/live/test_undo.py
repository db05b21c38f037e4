"""A refusal undone to the byte: an instant decided again leaves the same ledger, queue, devices and containers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from wattflow.engine.tables import State
from wattflow.live import FINISHED, REFUSED, STARTED, TASK, Engine, Placement
from wattflow.model.cluster import Device, Node, Sleep
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.policy import pricing, wattflow

GIB = 1 << 30
CURVE = PowerProfile((0.0, 4.0), (50.0, 130.0))
GPU = DeviceProfile((0.0, 1.0), (20.0, 120.0))
ORDER = {
    "clock": {"instant", "sequence", "epoch"},
    "counts": {"decisions", "scored", "ended_n", "group_n", "held"},
    "nodes": {"first_attempt"},
    "devices": set[str](),
    "shapes": {"failed", "place", "tail"},
    "tasks": {"next", "previous"},
}
"""Columns that count what was done, or link rows whose numbers may differ; the rest of these tables must be equal."""
ROWS_MAY_MOVE = {
    "attempts", "groups", "group_slots", "active_groups", "active_shapes", "candidates", "cost", "placed", "marks",
    "actions", "freed", "touches", "touched", "touched_words", "touch_ring",
}  # fmt: skip
"""Free rows are taken in another order, or hold only what the last decision needed; the placements tell what counts."""


def busy_engine(policy: str, seed: int) -> tuple[Engine, Sequence[Placement]]:
    """Some work under way, some placed in this instant, some waiting: cores, devices, cold starts, gangs."""
    rng = np.random.default_rng(seed)
    engine = Engine(policy)
    for i in range(4):
        device = (Device("gpu", memory_bytes=16 * GIB, sharing="mps", slots=4, power=GPU),) if i % 2 else ()
        cores = int(rng.integers(2, 5))
        engine.node(Node(f"n{i}", cores, 8 * GIB, power=CURVE, devices=device, sleep=Sleep(3.0, 5.0, 1.0, 40.0)))
    engine.step(0.0)
    cold = Function("cold", cold_start_s=4.0)
    shapes = [
        engine.shape([Variant(cores=1.0, memory_bytes=GIB)]),
        engine.shape([Variant(cores=2.0, memory_bytes=GIB)], function=cold),
        engine.shape([Variant(cores=1.0, memory_bytes=GIB)], parts=2),
        engine.shape([Variant(cores=1.0, memory_bytes=GIB, device="gpu", devices=1, device_share=0.5)]),
    ]

    def arrive(first: int, count: int) -> None:
        for tag in range(first, first + count):
            engine.put(TASK, shapes[int(rng.integers(len(shapes)))], estimate_s=float(rng.uniform(5, 50)), tag=tag)

    arrive(0, 5)
    early = engine.step(1.0).placements
    for one in early:
        engine.put(STARTED, one.attempt)
    arrive(5, 8)
    if early:
        engine.put(FINISHED, early[0].attempt)
    return engine, engine.step(2.0).placements


def where(placements: Sequence[Placement]) -> list[tuple[object, ...]]:
    return [(one.tag, one.node, one.devices, one.variant) for one in placements]


def lasting(state: State, name: str, policy: str) -> np.ndarray:
    """A table, but for prices of the last candidates: these are kept until the next are priced, for who asks again."""
    table = np.array(getattr(state, name))
    if (name, policy) == ("memory", "wattflow"):
        first = int(table[wattflow.NOTES.kept])
        table[first : first + pricing.SIZE] = 0.0
    return table


@pytest.mark.parametrize("policy", ["least-loaded", "sjf", "least-energy", "wfp3", "wattflow"])
def test_an_instant_refused_and_decided_again_is_the_same_to_the_byte(policy: str) -> None:
    refused = 0
    for seed in range(6):
        engine, placed = busy_engine(policy, seed)
        before = engine.state.copy()
        for one in placed:
            engine.put(REFUSED, one.attempt)
        assert where(engine.step(2.0).placements) == where(placed)
        for name in engine.state.NAMES:
            if name not in ROWS_MAY_MOVE:
                left_out = ORDER.get(name, set())
                then, now = (lasting(s, name, policy) for s in (before, engine.state))
                columns = [c for c in then.dtype.names or () if c not in left_out]
                pairs = [(then[c], now[c]) for c in columns] if then.dtype.names else [(then, now)]
                for (a, b), column in zip(pairs, columns or [""], strict=True):
                    assert a.tobytes() == b.tobytes(), f"{name}.{column} differs under {policy}, seed {seed}"
        refused += len(placed)
    assert refused > 6

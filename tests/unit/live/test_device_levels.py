"""Levels of devices in a live engine: chosen with the place, one clock for all on a device, learned while it runs."""

from __future__ import annotations

from dataclasses import replace

from wattflow.live import FINISHED, NODE, TASK, Engine, Power
from wattflow.live.fork import fork
from wattflow.model.cluster import Device, DeviceLevels, FunctionLevels, Node
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Variant

COPY = FunctionLevels("copy", (1.0, 1.005, 1.5), (1.0, 0.8, 0.75))
CARD = Device("gpu", "a", sharing="mps", power=DeviceProfile((0.0, 1.0), (100.0, 500.0)))
POWER = PowerProfile((0.0, 8.0), (10.0, 20.0))
HALF = Variant("gpu", 1, 0, "gpu", 1, 0.5)


def node(name: str, *rows: FunctionLevels) -> Node:
    levels = DeviceLevels("clock_mhz", (2000.0, 1500.0, 1000.0), rows)
    return Node(name, 8, 1 << 34, power=POWER, devices=(replace(CARD, levels=levels),))


def placed_level(engine: Engine, function: str, now_s: float) -> tuple[int, int]:
    """Put a task of 100 s and step: its attempt and the level it got."""
    engine.put(TASK, engine.shape([HALF], function), estimate_s=100.0)
    (placement,) = engine.step(now_s).placements
    return placement.attempt, placement.level


def test_a_known_function_gets_its_level_and_a_stranger_full_clock() -> None:
    engine = Engine("wattflow")
    engine.node(node("n", COPY))
    copy, level = placed_level(engine, "copy", 1.0)
    assert level == 1 and engine.state.devices.level[0] == 1
    # Somebody unknown comes to the same device: full clock for both, until it is gone.
    stranger, level = placed_level(engine, "stranger", 2.0)
    assert level == 0 and engine.state.devices.level[0] == 0
    engine.put(FINISHED, stranger)
    engine.step(3.0)
    assert engine.state.devices.level[0] == 1
    engine.put(FINISHED, copy)
    engine.step(4.0)
    assert engine.state.devices.level[0] == 0


def test_a_response_that_is_learned_counts_from_the_next_task_on() -> None:
    engine = Engine("wattflow")
    there = engine.node(node("n"))
    first, level = placed_level(engine, "copy", 1.0)
    assert level == 0
    engine.put(FINISHED, first)
    # The same node again, with what is known now; functions and devices that come later find it, too.
    assert engine.node(node("n", COPY)) == there
    attempt, level = placed_level(engine, "copy", 2.0)
    assert level == 1
    engine.put(FINISHED, attempt)
    for i in range(40):
        engine.node(replace(node(f"more-{i}"), devices=(replace(CARD, model=f"m{i}"),)))
        attempt, _ = placed_level(engine, f"f{i}", 3.0 + i)
        engine.put(FINISHED, attempt)
    for i in range(40):
        engine.put(
            NODE, engine.node(replace(node(f"more-{i}"), devices=(replace(CARD, model=f"m{i}"),))), state=Power.DOWN
        )
    assert placed_level(engine, "copy", 60.0)[1] == 1


def test_levels_off_offers_none() -> None:
    engine = Engine("wattflow:levels=off")
    engine.node(node("n", COPY))
    assert placed_level(engine, "copy", 1.0)[1] == 0


def test_a_copy_of_an_engine_has_its_levels() -> None:
    engine = Engine("wattflow")
    engine.node(node("n", COPY))
    placed_level(engine, "copy", 1.0)
    assert placed_level(fork(engine), "copy", 2.0)[1] == 1

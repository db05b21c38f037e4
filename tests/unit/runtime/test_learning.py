"""What meters and wakes teach the engine about nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wattflow.predict.online import ENOUGH, CurveCorrector
from wattflow.runtime import messages as m
from wattflow.runtime.learned_facts import Learning
from wattflow.runtime.records import NodeRecord

from .test_recovery import closed, opened, task

NODE = m.Node(name="n", cpus=4.0, memory_bytes=1, busy=[0.0, 2.0, 4.0], watts=[50.0, 100.0, 120.0], sleeps=True)


class Told:
    """A decider that keeps the nodes it was told."""

    def __init__(self) -> None:
        self.nodes: list[m.Node] = []

    def node(self, node: m.Node) -> int:
        self.nodes.append(node)
        return 0


def learning() -> tuple[Learning, Told]:
    told: Any = Told()
    return Learning(told), told


def test_a_curve_moves_to_what_the_counter_says() -> None:
    corrector = CurveCorrector.of([0.0, 2.0, 4.0], [50.0, 100.0, 120.0])
    for n in range(400):
        busy = (n % 9) / 2
        corrector.observe(busy, 80.0 + 30.0 * busy)
    assert corrector.curve == pytest.approx([80.0, 140.0, 200.0], rel=0.02)


def test_points_that_nothing_was_seen_near_go_with_the_others_and_few_observations_change_nothing() -> None:
    corrector = CurveCorrector.of([0.0, 2.0, 4.0], [50.0, 100.0, 120.0])
    for _ in range(ENOUGH - 1):
        corrector.observe(0.0, 100.0)
    assert corrector.curve is None
    for _ in range(100):
        corrector.observe(0.0, 100.0)
    assert corrector.curve == pytest.approx([100.0, 200.0, 240.0], rel=0.02)


def test_counted_watts_of_a_steady_load_reach_the_engine_once_they_differ() -> None:
    made, told = learning()
    for _ in range(60):
        made.drew(NODE, m.Load(cpu_busy=0.5, watts=150.0, provenance="attributed"), 7.0)
    assert told.nodes and told.nodes[-1].watts[1] == pytest.approx(150.0, rel=0.1)
    assert told.nodes[-1].provenance == "attributed" and len(told.nodes) < 12
    assert made.as_learned(NODE).watts == told.nodes[-1].watts


def test_a_learned_curve_has_the_band_of_its_readings_and_their_time() -> None:
    made, _ = learning()
    assert made.curve("n") is None
    for turn in range(200):
        watts = 150.0 + 5.0 * (-1) ** turn
        made.drew(NODE, m.Load(cpu_busy=0.5, watts=watts, provenance="attributed"), float(turn))
    found = made.curve("n")
    assert found is not None and found["measured_s"] == 199.0 and found["provenance"] == "attributed"
    assert found["source"] == "learned from 199 readings of the node's counter", "the first has no load before it"
    assert (found["low"][0], found["high"][0]) == (None, None), "nothing was read near idle"
    assert found["high"][1] - found["low"][1] == pytest.approx(10.0, rel=0.2), "readings lie 5 W to either side"
    assert found["low"][1] < found["watts"][1] < found["high"][1]


def test_modelled_watts_and_changing_loads_teach_nothing() -> None:
    made, told = learning()
    for n in range(100):
        made.drew(NODE, m.Load(cpu_busy=0.5, watts=500.0), 7.0)
        made.drew(m.Node(name="m", cpus=4.0, memory_bytes=1, busy=[0.0, 4.0], watts=[1.0, 2.0]),
                  m.Load(cpu_busy=float(n % 2), watts=500.0, provenance="attributed"), 7.0)  # fmt: skip
    assert told.nodes == []


def test_what_was_learned_of_a_node_is_told_together() -> None:
    made, told = learning()
    made.woke(NodeRecord(NODE, 1), 42.0)
    for _ in range(60):
        made.drew(NODE, m.Load(cpu_busy=0.0, watts=80.0, provenance="attributed"), 7.0)
    assert told.nodes[-1].wake_s == 42.0 and told.nodes[-1].watts[0] > 70.0


@pytest.mark.parametrize("kept", ["running", "journal"])
def test_what_was_learned_of_a_node_decides_where_the_next_task_goes(tmp_path: Path, kept: str) -> None:
    cheap, dear = (
        m.Node(name=name, cpus=1.0, memory_bytes=1 << 30, busy=[0.0, 1.0], watts=[10.0, full_w])
        for name, full_w in (("cheap", 25.0), ("dear", 30.0))
    )

    async def body() -> None:
        service, driver, writer = await opened(tmp_path, "least-energy")
        for node in (cheap, dear):
            service.announce(node)
        service.decider.node(msgspec.structs.replace(cheap, watts=[10.0, 80.0]))
        if kept == "journal":
            await closed(service, writer)
            service, driver, writer = await opened(tmp_path, "least-energy")
        await service.submit(m.Submission(workflow="w", tasks=[task("a", estimate_s=10.0)], seal=True), "me")
        await closed(service, writer)
        assert [lease.node for lease in driver.leases] == ["dear"]

    asyncio.run(body())

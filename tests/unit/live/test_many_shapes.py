"""Shapes beyond the table's first size."""

from __future__ import annotations

from wattflow.live import TASK, Engine
from wattflow.model.cluster import Node
from wattflow.model.workflow import Variant


def test_tasks_of_a_shape_made_after_the_table_grew_are_taken_at_once() -> None:
    engine = Engine("fifo")
    engine.node(Node("n", cores=64, memory_bytes=1 << 40))
    shapes = [engine.shape([Variant(cores=1.0 + n / 100)], function=f"f{n}") for n in range(40)]
    tasks = [engine.put(TASK, shape, tag=1 + n) for n, shape in enumerate(shapes)]
    placed = engine.step(0.0).placements
    assert [placement.task for placement in placed] == tasks[: len(placed)] and len(placed) > 30

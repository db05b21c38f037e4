"""Many shapes wait at once: nothing that fits is passed over, and nothing is placed where it does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.live import FINISHED, TASK, Engine
from wattflow.model.cluster import Node
from wattflow.model.workflow import Variant

NODES, CORES, MEMORY, SHAPES = 12, 16, 64, 60


@pytest.mark.parametrize("policy", ["least-energy", "fifo", "sjf"])
@pytest.mark.parametrize("at_once", [1, 5, 12])
def test_after_each_step_no_waiting_task_fits_any_node(policy: str, at_once: int) -> None:
    rng = np.random.default_rng(at_once)
    engine = Engine(policy)
    nodes = [engine.node(Node(f"n{n}", cores=CORES, memory_bytes=MEMORY << 30)) for n in range(NODES)]
    needs = [(int(rng.integers(1, CORES + 1)), int(rng.integers(1, MEMORY + 1))) for _ in range(SHAPES)]
    kinds = [engine.shape([Variant(cores=float(cores), memory_bytes=memory << 30)], function=f"f{s}")
             for s, (cores, memory) in enumerate(needs)]  # fmt: skip
    free = {node: [CORES, MEMORY] for node in nodes}
    waiting = [0] * SHAPES
    shape_of: dict[int, int] = {}
    running: dict[int, tuple[int, int]] = {}

    def add(shape: int) -> None:
        tag = len(shape_of) + 1
        shape_of[tag] = shape
        waiting[shape] += 1
        engine.put(TASK, kinds[shape], estimate_s=float(rng.integers(1, 100)), tag=tag)

    for n in range(10 * SHAPES):
        add(n % SHAPES)
    for n in range(150):
        for placement in engine.step(float(n)).placements:
            shape = shape_of[placement.tag]
            waiting[shape] -= 1
            running[placement.attempt] = (placement.node, shape)
            for kind in (0, 1):
                free[placement.node][kind] -= needs[shape][kind]
        assert all(left >= 0 for room in free.values() for left in room)
        for shape, (cores, memory) in enumerate(needs):
            fits = any(room[0] >= cores and room[1] >= memory for room in free.values())
            assert not (waiting[shape] and fits), f"step {n}: {waiting[shape]} of {cores} cores, {memory} GiB could run"
        for attempt in [int(a) for a in rng.permutation(list(running))[:at_once]]:
            node, shape = running.pop(attempt)
            engine.put(FINISHED, attempt)
            for kind in (0, 1):
                free[node][kind] += needs[shape][kind]
            add(int(rng.integers(SHAPES)))

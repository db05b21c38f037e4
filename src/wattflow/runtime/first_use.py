"""One task on one node of an engine that nobody needs, so that what is loaded at a first use is loaded by then."""

from __future__ import annotations

from wattflow.live import FINISHED, NODE, STARTED, TASK, Engine, Power
from wattflow.model.cluster import Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant


def rehearse(engine: Engine) -> int:
    """A node, a task, its end, and why another one waits; returns how many tasks were placed."""
    power = PowerProfile((0.0, 1.0), (10.0, 20.0))
    node = engine.node(Node("rehearsal", cores=1, memory_bytes=1 << 30, power=power, allocatable_cores=1.0))
    engine.put(NODE, node, state=int(Power.ON))
    shape = engine.shape((Variant(cores=1.0),), function="rehearsal")
    flow = engine.workflow(deadline_s=None, tag=1)
    tasks = [engine.put(TASK, shape, workflow=flow, estimate_s=1.0, tag=tag) for tag in (1, 2)]
    placed = engine.step(0.0).placements
    engine.why(tasks[-1])
    for placement in placed:
        engine.put(STARTED, placement.attempt)
        engine.put(FINISHED, placement.attempt)
    return len(placed) + len(engine.step(1.0).placements)

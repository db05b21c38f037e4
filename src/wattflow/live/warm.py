"""Compile what a simulation and a live engine need, by running a little of both: `python -m wattflow.live.warm`."""

from __future__ import annotations

import sys

from wattflow.clusters import load_cluster
from wattflow.generate import benchmark_workload
from wattflow.live.engine import Engine
from wattflow.live.protocol import FINISHED, STARTED, TASK, NotLive
from wattflow.model.errors import MissingExtra
from wattflow.model.workflow import Variant
from wattflow.policy import registry
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import sample_states


def warm(names: list[str]) -> list[str]:
    """Run one small simulation and one live task under each policy; those that need what is not installed here."""
    usual, device_sample, *_ = sample_states()
    # What a plain workload needs is a kernel of its own.
    Simulation(benchmark_workload(8), load_cluster("bench-64x4"), "fifo").run()
    left_out = []
    for name in names or registry.names():
        try:
            for sample in (usual, device_sample):
                Simulation(sample.workload, sample.cluster, name).run()
            _live(name)
        except NotLive:
            continue
        except MissingExtra as error:
            sys.stderr.write(f"left out: {error}\n")
            left_out.append(name)
    return left_out


def _live(name: str) -> None:
    engine = Engine(name, sample_states()[1].cluster)
    shape = engine.shape((Variant(cores=1),))
    flow = engine.workflow()
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0)
    for placement in engine.step(0.0).placements:
        engine.put(STARTED, placement.attempt)
        engine.put(FINISHED, placement.attempt)
    engine.step(1.0)


if __name__ == "__main__":
    asked = sys.argv[1:]
    if warm(asked) == asked and asked:
        sys.exit(1)  # nothing of what was asked for can run here

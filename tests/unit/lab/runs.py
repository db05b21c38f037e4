"""Small runs made by hand, so that every figure can be checked with a pencil."""

from __future__ import annotations

import numpy as np

from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile, Provenance
from wattflow.model.run import ACCOUNTS, ATTEMPT, Run
from wattflow.model.workload import Workload


def node(name: str, idle_w: float = 100.0, full_w: float = 200.0, **more: object) -> Node:
    """Two cores, linear from idle to full."""
    power = PowerProfile((0.0, 2.0), (idle_w, full_w), provenance=Provenance.MEASURED)
    return Node(name, 2, 2**30, **({"power": power} | more))  # type: ignore[arg-type]


def attempt(task: int, at: tuple[float, float, float, float], node: int = 0, **more: object) -> np.ndarray:
    """One row; ``at`` is (ready, placed, start, end)."""
    row = np.zeros(1, ATTEMPT)
    row["task"], row["node"], row["device"], row["guarantee"] = task, node, -1, 1.0
    row["ready_s"], row["placed_s"], row["start_s"], row["end_s"] = at
    for key, value in more.items():
        row[key] = value
    return row


def two_node_run(**changes: object) -> Run:
    """Three tasks of 10, 20 and 0 s; node b is twice as fast.

    Task 0 runs on a from 0 to 10; task 1 waits 5 s, takes 1 s of cold start and 2 s of data, and runs on b from 8 to
    18 with ideal time 10; task 2 has no length.
    """
    cluster = Cluster("pair", (node("a"), node("b", 50.0, 250.0, speed=2.0)))
    workload = Workload.of_columns("three", release_s=np.zeros(3), runtime_s=np.array([10.0, 20.0, 0.0]))
    attempts = np.concatenate([
        attempt(2, (0.0, 0.0, 0.0, 0.0)),
        attempt(0, (0.0, 0.0, 0.0, 10.0), run_j=500.0),
        attempt(1, (0.0, 5.0, 8.0, 18.0), node=1, cold_s=1.0, data_s=2.0, run_j=1000.0, cold_j=100.0),
    ])  # fmt: skip
    energy = np.zeros((2, len(ACCOUNTS)))
    energy[0, ACCOUNTS.index("idle")], energy[0, ACCOUNTS.index("run")] = 1800.0, 500.0
    energy[1, ACCOUNTS.index("idle")], energy[1, ACCOUNTS.index("run")] = 900.0, 1000.0
    energy[1, ACCOUNTS.index("cold_start")] = 100.0
    values: dict[str, object] = {
        "workload": workload, "cluster": cluster, "policy": "fifo", "attempts": attempts, "energy_j": energy,
        "carbon_g": np.zeros(2), "cost": np.zeros(2), "peak_w": 300.0, "makespan_s": 18.0,
        "scalars": {"decisions": 3.0, "decision_s": 2e-6},
    }  # fmt: skip
    return Run(**(values | changes))  # type: ignore[arg-type]

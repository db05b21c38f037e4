"""A policy in plain Python, without compilation: `state` holds numpy tables, and any library may be used."""

import numpy as np

from wattflow.clusters import load_cluster
from wattflow.model.workload import Workload
from wattflow.policy import policy
from wattflow.sim import simulate


@policy("frugal-idlers", compiled=False)
def frugal_idlers(state, task, variant, out):
    """Fill the nodes with the lowest idle watts per core first."""
    nodes = state.candidates["node"][: out.size]
    classes = state.classes[state.nodes["cls"][nodes]]
    out[:] = classes["idle_w"] / classes["cores"] + state.nodes["used_u"][nodes] / classes["request_u"]


workload = Workload.of_columns("jobs", release_s=np.arange(200.0), runtime_s=np.full(200, 45.0))
for chosen in ("fifo", frugal_idlers):
    run = simulate(workload, load_cluster("mixed"), chosen)
    print(f"{run.policy:18s} {run.makespan_s:7.1f} s {run.total_j / 3.6e6:7.3f} kWh")

"""A policy of your own, compiled: fewest joules, but never more than a minute of waking and data before the start."""

import numpy as np

from wattflow.clusters import load_cluster
from wattflow.engine import view
from wattflow.model.workload import Workload
from wattflow.policy import policy
from wattflow.sim import simulate


@policy("quick-and-frugal")
def quick_and_frugal(state, task, variant, out):
    """Joules, with a large penalty for a late start."""
    for c in range(out.size):
        joules = view.added_w(state, task, variant, c) * view.runtime_s(state, task, variant, c)
        late_s = max(0.0, view.ready_in_s(state, task, variant, c) - 60.0)
        out[c] = min(joules + 1e6 * late_s, 1e30)


workload = Workload.of_columns("jobs", release_s=np.arange(200.0), runtime_s=np.full(200, 45.0))
for chosen in ("fifo", quick_and_frugal):
    run = simulate(workload, load_cluster("mixed"), chosen)
    print(f"{run.policy:18s} {run.makespan_s:7.1f} s {run.total_j / 3.6e6:7.3f} kWh")

"""Lower bounds: no schedule is shorter, or takes fewer joules, than these.

Makespan: the larger of the critical path (each task on its quickest offer, data at hand) and the area (the work of
all CPU tasks, each where it is least, over the throughput of all nodes). Energy: what the nodes draw with nothing to
do for that long (asleep where they can sleep), plus each task's share of P(k) − P(0) on the thriftiest node at the
thriftiest load. Both hold for any policy, guarantee, frequency and sharing; failures only add.
"""

from __future__ import annotations

import numpy as np

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan.node_offers import Floats, least_by_task, offers


def quickest_s(workload: Workload, cluster: Cluster) -> Floats:
    """Return the least seconds that each task can run: best variant, node, device and frequency, alone."""
    offered = offers(workload, cluster)
    return least_by_task(workload, offered.seconds, offered)


def makespan_bound_s(workload: Workload, cluster: Cluster) -> float:
    """Return seconds from the first release to the last end that no schedule can undercut."""
    if not len(workload):
        return 0.0
    # Both hold for every schedule, so the larger one does.
    return max(critical_path_s(workload, cluster), _area_s(workload, cluster))


def critical_path_s(workload: Workload, cluster: Cluster) -> float:
    """Return the longest chain of tasks, release times included, each as quick as can be."""
    return float((heads_s(workload, quickest_s(workload, cluster))).max())


def heads_s(workload: Workload, run_s: Floats) -> Floats:
    """Return the earliest end of each task after the first release, if each takes ``run_s`` and nothing waits."""
    end_s = workload.release_s.copy()
    order = workload.topological_order() if workload.edge_count else np.arange(len(workload))
    for task in order.tolist():
        parents = workload.parents_of(task)
        ready = max(float(workload.release_s[task]), float(end_s[parents].max(initial=-np.inf)))
        end_s[task] = ready + run_s[task]
    return end_s - float(workload.release_s.min())


def energy_bound_j(workload: Workload, cluster: Cluster) -> float:
    """Return joules that no schedule can undercut, PUE not included."""
    offered = offers(workload, cluster)
    standing_w = float((offered.still_w * offered.nodes).sum())
    least_j = least_by_task(workload, offered.joules, offered)
    return standing_w * makespan_bound_s(workload, cluster) + float(least_j.sum())


def _area_s(workload: Workload, cluster: Cluster) -> float:
    offered = offers(workload, cluster)
    # Device tasks are not slowed by the CPU and count nothing.
    work = np.where((offered.device > 0)[:, None], 0.0, offered.cores[:, None] * offered.seconds)
    least = least_by_task(workload, work, offered)
    return float(least.sum()) / float((offered.throughput * offered.nodes).sum())

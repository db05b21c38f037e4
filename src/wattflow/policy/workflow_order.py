"""Orders by workflow: the workflow with the least work first, or the one with the shortest critical path first.

Both keep a stream of workflows moving as SJF keeps a stream of jobs moving. Estimates at the cluster's mean speed;
computed once per workload in O(tasks + edges). Ties in the queue go to the task that entered first (so a workflow's
own tasks are first in, first out), ties between nodes to the lower index.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import least_loaded, levels
from wattflow.policy.base import Policy, vectorised


@vectorised
def by_work(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Core seconds of the task's workflow."""
    return levels.levels(workflow, cluster).work


@vectorised
def by_path(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Critical path of the task's workflow."""
    return levels.levels(workflow, cluster).path


SHORTEST_WORKFLOW = Policy(
    "shortest-workflow", "workflows with the least work first", score=least_loaded.score, rank=by_work
)
SHORTEST_CRITICAL_PATH = Policy(
    "shortest-critical-path", "workflows with the shortest critical path first", score=least_loaded.score, rank=by_path
)

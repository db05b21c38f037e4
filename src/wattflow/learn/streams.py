"""Streams of recorded workflows: instances of one application, drawn again and again, at a load on a cluster.

Arrivals are Poisson; load is work that arrives over what the owned cores do. Deadlines are a multiple of a workflow's
critical path. Same stream, cluster and seed: same workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from wattflow import traces
from wattflow.files.data_folder import data_file
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.plan.joining import capacity, core_seconds, joined

LOADS = (0.3, 0.6, 0.8)
MOST_TASKS = 110
"""Larger instances are left out of streams: one of them would be most of a stream."""
WORKFLOWS = 20
FOLDS = (
    ("makeflow/blast", "pegasus/cycles", "pegasus/montage"),
    ("makeflow/bwa", "pegasus/1000genome"),
    ("nextflow", "pegasus/seismology", "pegasus/srasearch"),
    ("pegasus/epigenomics", "pegasus/soykb"),
)
"""Applications of WfInstances that are held out together."""
APPLICATIONS = tuple(sorted(name for fold in FOLDS for name in fold))


@dataclass(frozen=True, slots=True)
class Stream:
    """Workflows of one application that arrive at a load.

    Attributes:
        application: For tables and folds.
        instances: Files of recorded workflows, each equally likely.
        load: Share of what the cluster's owned cores do.
        workflows: How many arrive.
        slack: Deadline of a workflow in critical paths.
    """

    application: str
    instances: tuple[str, ...]
    load: float
    workflows: int = WORKFLOWS
    slack: float = 4.0

    def draw(self, cluster: Cluster, seed: int) -> Workload:
        """Draw the workload of this seed."""
        parts = [instance(path) for path in self.instances]
        rng = np.random.default_rng([seed, 0x57E])
        chosen = rng.integers(len(parts), size=self.workflows)
        mean = float(np.mean([core_seconds(part) for part in parts]))
        gaps = rng.exponential(mean / (self.load * capacity(cluster)), self.workflows)
        submit_s = np.concatenate([[0.0], np.cumsum(gaps)[:-1]])
        return joined([parts[i] for i in chosen.tolist()], submit_s, cluster, self.slack, self.application)


def instances_of(application: str) -> tuple[str, ...]:
    """List the recorded workflows of an application of WfInstances, small ones only."""
    folder = data_file("wfinstances", application)
    files = sorted(str(path) for path in folder.rglob("*.json*"))
    small = tuple(path for path in files if len(instance(path)) <= MOST_TASKS)
    if not small:
        raise InvalidInput(str(folder), f"holds no workflow of at most {MOST_TASKS} tasks")
    return small


@cache
def instance(path: str) -> Workload:
    """Read one recorded workflow, once in a process."""
    loaded: Workload = traces.load(path)
    if len(loaded.workflow_names) != 1:
        raise InvalidInput(path, f"holds {len(loaded.workflow_names)} workflows; a stream needs one in each file")
    return loaded


__all__ = [
    "APPLICATIONS", "FOLDS", "LOADS", "MOST_TASKS", "Stream", "capacity", "core_seconds", "instance",
    "instances_of", "joined",
]  # fmt: skip

"""Streams of recorded workflows: instances of one application, drawn again and again, at a load on a cluster.

Arrivals are Poisson; load is work that arrives over what the owned cores do. Deadlines are a multiple of a workflow's
critical path. Same stream, cluster and seed: same workload.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattflow import traces
from wattflow.files.data_folder import data_file
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Function
from wattflow.model.workload import Shape, Workload
from wattflow.policy.levels import levels

Floats = NDArray[np.float64]
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
        """The workload of this seed."""
        parts = [instance(path) for path in self.instances]
        rng = np.random.default_rng([seed, 0x57E])
        chosen = rng.integers(len(parts), size=self.workflows)
        mean = float(np.mean([core_seconds(part) for part in parts]))
        gaps = rng.exponential(mean / (self.load * capacity(cluster)), self.workflows)
        submit_s = np.concatenate([[0.0], np.cumsum(gaps)[:-1]])
        return joined([parts[i] for i in chosen.tolist()], submit_s, cluster, self.slack, self.application)


def capacity(cluster: Cluster) -> float:
    """Seconds of work per second that the owned cores do."""
    return sum(node.cores * node.speed for node in cluster.nodes if node.serverless is None)


def core_seconds(workload: Workload) -> float:
    """Work of a workload, each task in its first variant."""
    cores = np.array([shape.variants[0].cores * shape.parts for shape in workload.shapes])
    return float((workload.runtime_s * cores[workload.shape]).sum())


def instances_of(application: str, folder: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """Recorded workflows of an application (a folder below ``folder``, WfInstances by default), small ones only."""
    base = Path(folder) if folder is not None else data_file("wfinstances")
    files = sorted(str(path) for path in (base / application).rglob("*.json*"))
    small = tuple(path for path in files if len(instance(path)) <= MOST_TASKS)
    if not small:
        raise InvalidInput(str(base / application), f"holds no workflow of at most {MOST_TASKS} tasks")
    return small


@cache
def instance(path: str) -> Workload:
    """One recorded workflow, read once in a process."""
    loaded: Workload = traces.load(path)
    if len(loaded.workflow_names) != 1:
        raise InvalidInput(path, f"holds {len(loaded.workflow_names)} workflows; a stream needs one in each file")
    return loaded


def joined(parts: Sequence[Workload], submit_s: Floats, cluster: Cluster, slack: float, name: str) -> Workload:
    """Workflows one after the other, each submitted at its time, with a deadline of ``slack`` critical paths.

    Tasks of no length take a millisecond, so that every ratio is finite.
    """
    kinds = list(dict.fromkeys(map(id, parts)))
    first = {key: next(part for part in parts if id(part) == key) for key in kinds}
    shapes: list[Shape] = []
    functions: list[Function] = []
    shape_at: dict[int, int] = {}
    path_s: dict[int, float] = {}
    for key, part in first.items():
        shape_at[key] = len(shapes)
        shapes += [Shape(s.function + len(functions), s.variants, s.parts) for s in part.shapes]
        functions += list(part.functions)
        path_s[key] = float(levels(part, cluster).path.max())
    sizes = np.array([len(part) for part in parts])
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return Workload.of_columns(
        name,
        release_s=np.concatenate([np.full(len(p), at) for p, at in zip(parts, submit_s, strict=True)]),
        runtime_s=np.concatenate([np.maximum(p.runtime_s, 1e-3) for p in parts]),
        shapes=tuple(shapes),
        functions=tuple(functions),
        shape=np.concatenate([p.shape + shape_at[id(p)] for p in parts]).astype(np.int32),
        workflow=np.repeat(np.arange(len(parts)), sizes).astype(np.int32),
        workflow_submit_s=np.asarray(submit_s, np.float64),
        input_bytes=np.concatenate([p.input_bytes for p in parts]),
        output_bytes=np.concatenate([p.output_bytes for p in parts]),
        deadline_s=np.concatenate(
            [np.full(len(p), at + slack * path_s[id(p)]) for p, at in zip(parts, submit_s, strict=True)]
        ),
        edges=(
            np.concatenate([p.parent + at for p, at in zip(parts, base, strict=True)]).astype(np.int32),
            np.concatenate(
                [np.repeat(np.arange(len(p)), np.diff(p.parent_start)) + at for p, at in zip(parts, base, strict=True)]
            ).astype(np.int32),
        ),
        edge_bytes=np.concatenate([p.parent_bytes for p in parts]),
    )

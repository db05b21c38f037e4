"""Scenarios to train and judge on: a stream of recorded workflows on a cluster, with errors in what is known.

Random clusters have 2–64 nodes of 1–6 types; every number is drawn, within the ranges of servers that docs/clusters.md
lists. Seeds below 1000 are for judging, from 1000 on for training, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from wattflow import traces
from wattflow.files.data_folder import data_file
from wattflow.model.cluster import Cluster, Frequency, Network, Node, Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile
from wattflow.model.workload import Shape, Workload
from wattflow.plan.joining import capacity, core_seconds, joined
from wattflow.sim import SimOptions

# Streams of recorded workflows: instances of one application, drawn again and again, at a load on a cluster.
#
# Arrivals are Poisson; load is work that arrives over what the owned cores do. Deadlines are a multiple of a
# workflow's critical path. Same stream, cluster and seed: same workload.

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


GIB = 1 << 30
SLACKS = (1.5, 2.5, 4.0)
"""Deadlines of random scenarios, in critical paths."""
FEWEST, MOST = 8, 30
"""Workflows of a stream."""
MOST_NODES = 64


@dataclass(frozen=True, slots=True)
class Scenario:
    """A stream on a cluster; `draw` gives the workload of a seed."""

    name: str
    cluster: Cluster
    stream: Stream
    runtime_error: float = 0.0
    power_error: float = 0.0

    @property
    def options(self) -> SimOptions:
        return SimOptions(runtime_error=self.runtime_error, power_error=self.power_error)

    def draw(self, seed: int) -> Workload:
        """Draw the workload of a seed, its requests cut to the cluster's largest node."""
        drawn = self.stream.draw(self.cluster, seed)
        return replace(drawn, shapes=tuple(_within(shape, self.cluster) for shape in drawn.shapes))


def _within(shape: Shape, cluster: Cluster) -> Shape:
    """Cut requests, recorded on other machines, to the cores and bytes of the largest node."""
    cores = max(node.cores for node in cluster.nodes)
    memory = max(node.memory_bytes for node in cluster.nodes if node.cores == cores)
    variants = tuple(
        replace(v, cores=min(v.cores, cores), memory_bytes=min(v.memory_bytes, memory)) for v in shape.variants
    )
    return replace(shape, variants=variants)


def stream_of(application: str, load: float, tasks: int, files: Sequence[str] | None = None) -> Stream:
    """Draw about so many tasks of an application (WfInstances' or these files), in 8–30 workflows."""
    files = instances_of(application) if files is None else tuple(files)
    size = float(np.mean([len(instance(path)) for path in files]))
    return Stream(application, files, load, int(np.clip(tasks / size, FEWEST, MOST)))


def random_cluster(rng: np.random.Generator, name: str, sleep: bool = True) -> Cluster:
    """Draw 2–64 nodes of 1–6 types with about 8–400 cores in all."""
    kinds = int(rng.integers(1, 7))
    count = max(kinds, round(2.0 ** rng.uniform(1.0, 6.0)))
    budget = max(count * 2, int(2.0 ** rng.uniform(3.0, 8.6)))
    shares = rng.dirichlet(np.full(kinds, 2.0))
    nodes: list[Node] = []
    for kind, share in enumerate(shares):
        many = max(1, round(float(share) * count))
        size = np.log2(max(2.0, budget / count)) + rng.normal(0.0, 0.8)
        model = _node(rng, f"t{kind}", int(np.clip(2 ** round(float(size)), 2, 64)), sleep)
        nodes += [replace(model, name=f"t{kind}-{i}") for i in range(many)]
    return Cluster(name, tuple(nodes[:MOST_NODES]), about="drawn at random")


def _node(rng: np.random.Generator, name: str, cores: int, sleep: bool) -> Node:
    per_core_w = float(rng.uniform(1.5, 8.0))
    idle_w = 4.0 + cores * per_core_w * float(rng.uniform(0.15, 0.6))
    full_w = idle_w + cores * per_core_w * float(rng.uniform(0.5, 1.0))
    threads = int(rng.integers(1, 3))
    levels: tuple[Frequency, ...] = (Frequency(),)
    if rng.random() < 0.5:
        power = float(rng.uniform(1.5, 2.5))
        levels += tuple(Frequency(speed, speed**power) for speed in (0.8, 0.6)[: int(rng.integers(1, 3))])
    state = Sleep(
        idle_w * float(rng.uniform(0.02, 0.15)), float(rng.uniform(5.0, 120.0)), float(rng.uniform(0.0, 15.0)), idle_w
    )
    return Node(
        name,
        cores,
        cores * 8 * GIB,
        threads_per_core=threads,
        speed=float(rng.uniform(0.5, 1.6)),
        power=PowerProfile.from_form(str(rng.choice(["linear", "sqrt"])), cores * threads, idle_w, full_w),
        network=Network(1.25e9, energy_j_per_byte=1.6e-8),
        frequencies=levels,
        sleep=state if sleep and rng.random() < 0.9 else None,
    )


def draw(seed: int, applications: Sequence[str], tasks: int = 500, load: float | None = None) -> Scenario:
    """Draw a scenario: any application, load and deadline, errors of 0–30 %, on one cluster in six no node sleeps."""
    rng = np.random.default_rng([seed, 23])
    application = str(rng.choice(np.array(sorted(applications))))
    cluster = random_cluster(rng, f"random-{seed}", sleep=bool(rng.random() < 5 / 6))
    drawn = float(rng.choice(LOADS))
    runtime_error, power_error = rng.uniform(0.0, 0.3, 2).tolist()
    stream = stream_of(application, drawn if load is None else load, tasks)
    stream = replace(stream, slack=float(rng.choice(SLACKS)))
    return Scenario(f"{application}_{stream.load:g}_random-{seed}", cluster, stream, runtime_error, power_error)

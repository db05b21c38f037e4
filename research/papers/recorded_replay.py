"""A recorded workflow on its recorded machines.

A task runs for its recorded seconds on its recorded machine (on any where the file has no mapping), on as many cores
as the file says: ``coreCount``, else average CPU use where that exceeds one core, else one. Memory never limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wattflow import traces
from wattflow.model.cluster import Cluster, Network, Node
from wattflow.model.workflow import Task, Workflow
from wattflow.model.workload import Workload
from wattflow.policy import levels
from wattflow.policy.base import Committed, Plan, Policy
from wattflow.sim import simulate

AMPLE_BYTES = 1 << 50
"""Memory of a machine: never the limit."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One instance.

    Attributes:
        chain: Tasks on the longest chain.
        moved_gb: Input of all tasks together, each time anew.
        work_s: Core seconds, and ``cores`` those of its machines.
        zero: Tasks with a recorded runtime of 0.
        pinned: Tasks whose machine is recorded.
        simulated_s: Makespan with nothing but the tasks; ``data_s`` with transfers too; ``free_s`` where every task may
            take any machine.
    """

    file: str
    application: str
    tasks: int
    chain: int
    moved_gb: float
    work_s: float
    cores: int
    zero: int
    pinned: int
    recorded_s: float
    simulated_s: float
    data_s: float
    free_s: float

    @property
    def error(self) -> float:
        """(simulated − recorded) / recorded."""
        return (self.simulated_s - self.recorded_s) / self.recorded_s


def cores_of(task: Task) -> float:
    """Cores that a task keeps busy: as recorded, at least one; use above 100 % without a count says how many."""
    asked = task.variants[0].cores
    # Above 100 % it kept more than one core busy, whatever was asked for.
    return asked if asked > 1.0 else max(1.0, (task.avg_cpu_pct or 0.0) / 100.0)


def recorded_cluster(document: Workflow, bandwidth_bytes_per_s: float) -> Cluster:
    """The machines of a document; one of a core where it names none."""
    network = Network(bandwidth_bytes_per_s)
    nodes = tuple(
        Node(machine.name, max(1, machine.cores or 1), AMPLE_BYTES, network=network) for machine in document.machines
    )
    return Cluster(document.name, nodes or (Node("unknown", 1, AMPLE_BYTES, network=network),), storage=network)


def recorded_work(document: Workflow, cluster: Cluster) -> Workload:
    """The tasks with the cores that they kept busy, no more than a machine has."""
    # On any machine: the smallest one, so that a task without a mapping fits everywhere.
    most = min(node.cores for node in cluster.nodes)
    tasks = tuple(
        replace(task, variants=(replace(task.variants[0], cores=min(float(most), cores_of(task)), memory_bytes=0),))
        for task in document.tasks
    )
    return Workload.of(replace(document, tasks=tasks), allow_unknown_runtimes=True)


def without_data(workload: Workload) -> Workload:
    """The same without a byte to move."""
    return replace(
        workload,
        input_bytes=np.zeros_like(workload.input_bytes),
        parent_bytes=np.zeros_like(workload.parent_bytes),
    )


def as_recorded(workload: Workload, cluster: Cluster, committed: Committed) -> Plan:
    """Each task on its recorded machine, those without one anywhere; in order of the file."""
    number = {node.name: i for i, node in enumerate(cluster.nodes)}
    machines = workload.columns.get("machine")
    named = [""] * len(workload) if machines is None else [str(name) for name in machines]
    return Plan(
        # In order of the file, where nothing else says who comes first.
        np.array([number.get(name, -1) for name in named], np.int32),
        np.arange(len(workload), dtype=np.float64),
    )


RECORDED = Policy("as-recorded", "each task on the machine where it was recorded", plan=as_recorded, knows_future=True)


def replay(path: Path, application: str, bandwidth_bytes_per_s: float) -> Replay | None:
    """Simulate one file; None where it has no makespan to compare with."""
    (document,) = traces.load(path, "wfformat").documents
    if not document.makespan_s:
        return None
    cluster = recorded_cluster(document, bandwidth_bytes_per_s)
    workload = recorded_work(document, cluster)
    # Overheads are fitted to what data and systems add, so the base is tasks alone.
    bare = without_data(workload)
    found = levels.levels(bare, cluster)
    pins = as_recorded(bare, cluster, Committed(0.0, {})).node
    cores = np.array([shape.variants[0].cores for shape in bare.shapes])[bare.shape]
    return Replay(
        file=path.name.split(".")[0],
        application=application,
        tasks=len(bare),
        moved_gb=float(workload.input_bytes.sum() + workload.parent_bytes.sum()) / 1e9,
        chain=int(found.phase.max()) + 1,
        work_s=float(bare.runtime_s @ cores),
        cores=cluster.total_cores,
        zero=int(np.count_nonzero(bare.runtime_s == 0)),
        pinned=int(np.count_nonzero(pins >= 0)),
        recorded_s=document.makespan_s,
        simulated_s=simulate(bare, cluster, RECORDED).makespan_s,
        data_s=simulate(workload, cluster, RECORDED).makespan_s,
        free_s=simulate(bare, cluster, "fifo").makespan_s,
    )

"""An energy-labelled set: every workflow of WfInstances on several cluster presets, packaged for both archives.

Each workflow is simulated on each cluster; every task carries the node, start, runtime, joules and watts that the
simulation gave it. The joules are *modelled* (or *guessed*, where a node's watts are), and the data card says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wattflow import traces
from wattflow.clusters import load_cluster
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS, Run
from wattflow.model.units import kwh
from wattflow.model.workflow import Machine, Task, Workflow
from wattflow.model.workload import Workload
from wattflow.sim import simulate
from wattflow.traces import wfformat_write

PRESETS = ("mixed", "hpe", "ichnos")
POLICY = "fifo"


@dataclass(frozen=True, slots=True)
class SetRow:
    """One workflow on one cluster."""

    preset: str
    file: str
    tasks: int
    makespan_s: float
    task_j: float
    total_j: float


def build(
    source: Path,
    out: Path,
    presets: Sequence[str] = PRESETS,
    progress: Callable[[float, str], None] | None = None,
) -> list[SetRow]:
    """Label every WfFormat file under ``source`` into ``out``: ``wfinstances/PRESET/…json`` and ``wta/PRESET``.

    Raises:
        InvalidInput: There is no workflow under ``source``.
    """
    files = sorted(path for path in source.rglob("*.json.gz") if path.is_file())
    if not files:
        raise InvalidInput(str(source), "holds no WfFormat file (*.json.gz)")
    rows: list[SetRow] = []
    for number, preset in enumerate(presets):
        cluster = load_cluster(preset)
        labelled: list[Workflow] = []
        for i, file in enumerate(files):
            if progress is not None:
                progress((number + i / len(files)) / len(presets), f"{preset}: {file.name}")
            workload = traces.load(file)
            run = simulate(workload, cluster, POLICY)
            document = label(workload, run)
            relative = file.relative_to(source).with_suffix("")
            target = out / "wfinstances" / preset / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            wfformat_write.write_document(document, target)
            labelled.append(document)
            task_j = sum(task.energy_j or 0.0 for task in document.tasks)
            rows.append(SetRow(preset, str(relative), len(document.tasks), run.makespan_s, task_j, run.total_j))
        (out / "wta").mkdir(parents=True, exist_ok=True)
        traces.save(Workload.of(labelled, f"wfinstances-{preset}"), out / "wta" / preset, "wta")
    (out / "README.md").write_text(data_card(rows, presets), encoding="utf-8")
    return rows


def label(workload: Workload, run: Run) -> Workflow:
    """The one document of a workload as it went in a simulated run: nodes, times and joules of every task."""
    (document,) = workload.documents
    cluster = run.cluster
    done = run.attempts[run.attempts["outcome"] == 0]
    rows = {int(row["task"]): row for row in done}
    joules = run.energy_j_by_task()
    tasks = tuple(_task(task, rows.get(t), float(joules[t]), cluster) for t, task in enumerate(document.tasks))
    used = sorted({int(row["node"]) for row in done})
    machines = tuple(
        Machine(node.name, node.threads, node.memory_bytes, architecture=node.architecture)
        for node in (cluster.nodes[i] for i in used)
    )
    accounts = {name: float(value) for name, value in zip(ACCOUNTS, run.energy_j.sum(axis=0), strict=True)}
    about = {
        "simulated": True,
        "cluster": cluster.name,
        "policy": run.policy,
        "recorded_makespan_s": document.makespan_s,
        "energy_j_by_account": accounts,
    }
    return replace(
        document,
        tasks=tasks,
        machines=machines,
        makespan_s=run.makespan_s,
        executed_at=None,
        attributes={**document.attributes, "energy": about},
    )


def _task(task: Task, row: np.void | None, joules: float, cluster: Cluster) -> Task:
    if row is None:
        return task
    node = cluster.nodes[int(row["node"])]
    start_s, end_s = float(row["start_s"]), float(row["end_s"])
    if node.power is None:
        return replace(task, machine=node.name, start_s=start_s, runtime_s=end_s - start_s)
    guessed = node.power.provenance is Provenance.GUESSED
    return replace(
        task,
        machine=node.name,
        start_s=start_s,
        runtime_s=end_s - start_s,
        energy_j=joules,
        avg_power_w=joules / (end_s - start_s) if end_s > start_s else None,
        energy_provenance=Provenance.GUESSED if guessed else Provenance.MODELLED,
    )


def data_card(rows: Sequence[SetRow], presets: Sequence[str]) -> str:
    """What the set is and is not, in Markdown."""
    lines = [_CARD.format(policy=POLICY)]
    for preset in presets:
        chosen = [row for row in rows if row.preset == preset]
        task_kwh, all_kwh = (kwh(sum(values)) for values in ([r.task_j for r in chosen], [r.total_j for r in chosen]))
        tasks = sum(row.tasks for row in chosen)
        lines.append(f"| {preset} | {len(chosen)} | {tasks:,} | {task_kwh:.3f} | {all_kwh:.3f} |")
    return "\n".join(lines) + "\n"


_CARD = """# Energy-labelled WfInstances

**These joules are modelled, not measured.** Every workflow of WfInstances (wfcommons/WfInstances, LGPL-3.0) was
simulated on cluster presets of wattflow, task by task, the recorded runtimes taken as work on a node of speed 1. A
task's joules are its share of the watts above idle of the node it ran on, by busy threads at each moment, with its
transfers and cold starts. Idle, sleep and wake joules are no task's: they stand in each document by account. Nothing in
the set was read from a meter, and no error band is known for it.

- `wfinstances/PRESET/…json`: WfFormat 1.5, one file for each workflow, folders as upstream. `energyInKWh`,
  `avgPowerInW`, machine and runtime of a task are those of the simulated run; its provenance is in the `wattflow` part.
- `wta/PRESET/`: the same as one trace in the format of the Workflow Trace Archive (parquet), energy in joules.

Policy: {policy}. Runtimes, makespans and starts are simulated; recorded makespans are kept in the documents. The watts
of each preset, and what in it is assumed: its file, and docs/clusters.md of wattflow.

| cluster | workflows | tasks | tasks, kWh | whole cluster while they ran, kWh |
|---|---|---|---|---|"""

"""A finished workflow as a Run: the same rows, accounts and file as a simulated one."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa

from wattflow.clusters.toml_write import cluster_toml
from wattflow.lab.run.run_file import write_run
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS, ATTEMPT, OUTCOMES, Run
from wattflow.model.workflow import Machine, Workflow
from wattflow.model.workflow import Task as ModelTask
from wattflow.model.workload import Workload
from wattflow.runtime.facts import node_of, variant_of
from wattflow.runtime.messages import Node, Task
from wattflow.store import reads
from wattflow.store.reads import Found
from wattflow.traces import wfformat_write

_SPEC = msgspec.msgpack.Decoder(tuple[int, Task])
_NODE = msgspec.msgpack.Decoder(tuple[int, Node])


def run_bytes(database: sa.Engine, row: Found) -> bytes:
    """The Run file of a workflow that is over."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.parquet"
        write_run(path, make_run(database, row))
        return path.read_bytes()


def make_run(database: sa.Engine, row: Found) -> Run:
    """What really happened, on the workflow's own clock (0 is its submission)."""
    tasks = reads.tasks(database, row["id"])
    rows = [a for a in reads.attempts(database, row["id"]) if a["outcome"] is not None]
    if not rows:
        raise InvalidInput(f"workflow {row['id']}", "no attempt of it ever ran: there is no Run to write")
    nodes = [_NODE.decode(node["spec"])[1] for node in reads.nodes(database)]
    used = {attempt["node"] for attempt in rows}
    cluster = Cluster(name="live", nodes=tuple(node_of(node) for node in nodes if node.name in used))
    place = {node.name: index for index, node in enumerate(cluster.nodes)}
    number = {task["id"]: index for index, task in enumerate(tasks)}
    start_s = row["submitted_s"]
    attempts = np.zeros(len(rows), ATTEMPT)
    for target, found in zip(attempts, sorted(rows, key=lambda one: one["ended_s"] or 0.0), strict=True):
        _attempt(target, found, number[found["task"]], place[found["node"]], start_s)
    ended_s = max((found["ended_s"] for found in rows), default=start_s)
    windows = [w for w in reads.energy(database, start_s, ended_s) if w["node"] in place]
    energy_j = _energy(windows, place, rows, (start_s, ended_s))
    about = msgspec.msgpack.decode(row["about"])
    nothing = np.zeros(len(cluster.nodes))
    workflow = workflow_of(row, tasks, rows, cluster)
    return Run(
        workload=Workload.of(workflow), cluster=cluster, policy=str(about.get("policy")), attempts=attempts,
        energy_j=energy_j, carbon_g=nothing, cost=nothing.copy(), peak_w=peak_w(windows, set(place)),
        makespan_s=ended_s - start_s,
        scalars={"retries": float(sum(found["number"] > 1 for found in rows))},
        manifest={"workflow": row["id"], "owner": row["owner"], "objective": about.get("objective"),
                  "provenance": sorted({found["provenance"] for found in rows if found["provenance"]}),
                  "energy covers": _covered(windows, set(place)), "started_at_s": start_s,
                  "document": wfformat_write.dumps(workflow),
                  "cluster_toml": cluster_toml(cluster)}, simulated=False,
    )  # fmt: skip


def _attempt(target: Any, found: Found, task: int, node: int, start_s: float) -> None:
    for name in ("ready_s", "placed_s"):
        target[name] = found[name] - start_s
    target["start_s"] = (found["started_s"] or found["placed_s"]) - start_s
    target["end_s"] = (found["ended_s"] or found["placed_s"]) - start_s
    target["task"], target["node"], target["device"] = task, node, found["device"]
    target["attempt"], target["variant"] = found["number"] - 1, found["variant"]
    outcome = "failed" if found["outcome"] == "refused" else found["outcome"]
    target["outcome"] = OUTCOMES.index(outcome)
    target["cold_s"] = found["cold_s"] or 0.0
    target["run_j"] = found["energy_j"] or 0.0
    target["marginal_j"] = found["marginal_j"] or 0.0
    target["guarantee"] = 1.0


def _energy(windows: list[Found], place: dict[str, int], rows: list[Found], span: tuple[float, float]) -> Any:
    """Accounts of the nodes while the workflow ran; what other work used is ``unattributed``.

    Of a window that begins before the workflow or ends after it, idle and unattributed count by the time that is in it.
    """
    joules = np.zeros((len(place), len(ACCOUNTS)))
    run, idle, lost, other = (ACCOUNTS.index(name) for name in ("run", "idle", "lost", "unattributed"))
    for window in windows:
        node = place[window["node"]]
        within_s = min(window["ended_s"], span[1]) - max(window["began_s"], span[0])
        share = max(0.0, within_s) / max(1e-9, window["ended_s"] - window["began_s"])
        joules[node, idle] += share * window["idle_j"]
        joules[node, other] += share * window["unattributed_j"] + window["tasks_j"]
    for found in rows:
        account = run if found["outcome"] == "done" else lost
        joules[place[found["node"]], account] += found["energy_j"] or 0.0
        joules[place[found["node"]], other] -= found["energy_j"] or 0.0
    joules[:, other] = np.maximum(joules[:, other], 0.0)
    return joules


def peak_w(windows: list[Found], nodes: set[str]) -> float | None:
    """The most that the nodes drew together, by the means of their windows; None unless all of them were measured."""
    if {window["node"] for window in windows} != nodes:
        return None
    changes: list[tuple[float, float]] = []
    for window in windows:
        lasted_s = window["ended_s"] - window["began_s"]
        if lasted_s > 0:
            watts = window["counted_j"] / lasted_s
            changes += [(window["began_s"], watts), (window["ended_s"], -watts)]
    drawn_w = highest_w = 0.0
    for _, watts in sorted(changes):  # at the same moment what ends comes first: its sign sorts it so
        drawn_w += watts
        highest_w = max(highest_w, drawn_w)
    return highest_w if changes else None


def _covered(windows: list[Found], nodes: set[str]) -> str:
    """What the joules of a Run are the joules of."""
    unmeasured = sorted(nodes - {window["node"] for window in windows})
    return "nodes and tasks" if not unmeasured else f"tasks alone on {', '.join(unmeasured)}: nobody measures the node"


def document(database: sa.Engine, row: Found) -> str:
    """A workflow that is over, as WfFormat with the runtime and the joules of each task."""
    return str(make_run(database, row).manifest["document"])


def workflow_of(row: Found, tasks: list[Found], rows: list[Found], cluster: Cluster) -> Workflow:
    """The tasks as they turned out. Runtimes are those of a node of speed 1 and the plain variant."""
    speed = {node.name: node.speed for node in cluster.nodes}
    specs = {task["id"]: _SPEC.decode(task["spec"])[1] for task in tasks}
    runtime: dict[int, float] = {}
    for found in rows:
        lasted_s = (found["ended_s"] or 0.0) - (found["started_s"] or found["ended_s"] or 0.0)
        factor = specs[found["task"]].variants[found["variant"]].runtime_factor
        runtime[found["task"]] = lasted_s * speed[found["node"]] / factor
    of_task: dict[int, list[Found]] = {}
    for found in rows:
        of_task.setdefault(found["task"], []).append(found)
    started_s = row["submitted_s"]
    made = []
    for task in tasks:
        spec = specs[task["id"]]
        made.append(ModelTask(
            id=spec.key, name=spec.name, function=spec.function_name, runtime_s=runtime.get(task["id"], 0.0),
            variants=tuple(variant_of(variant) for variant in spec.variants),
            parents=tuple(dict.fromkeys([*spec.parents, *spec.results])),
            command=spec.command[0] if spec.command else None, arguments=tuple(spec.command[1:]) if spec.command else
            (),
            submit_s=max(0.0, task["submitted_s"] - started_s),
            **_recorded(of_task.get(task["id"], []), started_s),
        ))  # fmt: skip
    machines = tuple(
        Machine(node.name, cores=node.cores, memory_bytes=node.memory_bytes, architecture=node.architecture)
        for node in cluster.nodes
    )
    ended_s = max((found["ended_s"] for found in rows), default=started_s)
    return Workflow(name=row["name"], tasks=tuple(made), machines=machines, makespan_s=ended_s - started_s,
                    executed_at=datetime.fromtimestamp(started_s, UTC).isoformat())  # fmt: skip


def _recorded(rows: list[Found], origin_s: float) -> dict[str, Any]:
    """What was recorded of a task: of its last attempt, and joules of all."""
    if not rows:
        return {}
    last = rows[-1]
    lasted_s = (last["ended_s"] or 0.0) - (last["started_s"] or last["ended_s"] or 0.0)
    known = [found for found in rows if found["energy_j"] is not None]
    joules = sum(found["energy_j"] for found in known) if known else None
    found: dict[str, Any] = {
        "machine": last["node"],
        "energy_j": joules,
        "peak_memory_bytes": last["peak_bytes"] or None,
    }
    if last["started_s"] is not None:
        found["start_s"] = last["started_s"] - origin_s
    if lasted_s > 0 and last["cpu_s"] is not None:
        found["avg_cpu_pct"] = 100 * last["cpu_s"] / lasted_s
    if joules:
        found["energy_provenance"] = max((Provenance(one["provenance"]) for one in known), key=list(Provenance).index)
        band_j = sum((one["high_j"] or one["energy_j"]) - (one["low_j"] or one["energy_j"]) for one in known)
        found["energy_error"] = band_j / 2 / joules
    return found

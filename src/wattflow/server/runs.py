"""A workflow of the store as a Run: the same rows, accounts and file as a simulated one, under way or over.

All of this is for a process beside the server (`reader_process`): thousands of rows are decoded here.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from wattflow.lab.run.run_file import POWER, PROVENANCES, write_run
from wattflow.model.cluster import Cluster, Node, Zone
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS, ATTEMPT, BAND, OUTCOMES, SLEEP, SLEEPS, Run
from wattflow.model.units import J_PER_KWH
from wattflow.model.workflow import Function, Machine, Workflow
from wattflow.model.workflow import Task as ModelTask
from wattflow.model.workload import Shape, Workload
from wattflow.runtime.facts import node_of, variant_of
from wattflow.runtime.messages import Node as NodeMessage
from wattflow.runtime.messages import Task
from wattflow.server.energy import from_time
from wattflow.store import reads
from wattflow.store.reads import Found
from wattflow.traces import wfformat_write

_SPEC = msgspec.msgpack.Decoder(tuple[int, Task])
_NODE = msgspec.msgpack.Decoder(tuple[int, NodeMessage])
GAP_S = 1e-3
"""Windows of a meter that begin later than this after the one before leave a gap, in which nobody knows."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Rows of the store about one or several workflows.

    Attributes:
        tasks: By workflow, in the order of ``flows``.
        start_s: Time 0.
        until_s: What runs is drawn up to here; attempts that are not over are left out where it is infinite.
    """

    flows: Sequence[Found]
    tasks: Sequence[Found]
    attempts: Sequence[Found]
    start_s: float
    until_s: float

    @classmethod
    def of(cls, database: sa.Engine, row: Found, until_s: float = math.inf) -> RunRecord:
        """All of one workflow, from its submission on."""
        rows = reads.attempts(database, row["id"])
        return cls([row], reads.tasks(database, row["id"]), rows, row["submitted_s"], until_s)

    @property
    def end_s(self) -> float:
        """The last end, or the present while something runs."""
        ended = [found["ended_s"] for found in self.attempts if found["outcome"] is not None]
        open_ = [self.until_s] if len(ended) < len(self.attempts) and math.isfinite(self.until_s) else []
        return max([*ended, *open_], default=self.start_s)


def run_bytes(database: sa.Engine, row: Found, zone: Zone | None = None) -> bytes:
    """The Run file of a workflow that is over."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.parquet"
        write_run(path, make_run(database, row, zone))
        return path.read_bytes()


def make_run(database: sa.Engine, row: Found, zone: Zone | None = None) -> Run:
    """Make the Run of what really happened, on the workflow's own clock (0 is its submission)."""
    record = RunRecord.of(database, row)
    if not any(found["outcome"] is not None for found in record.attempts):
        raise InvalidInput(f"workflow {row['id']}", "no attempt of it ever ran: there is no Run to write")
    return run_of(database, record, zone)


def run_of(database: sa.Engine, record: RunRecord, zone: Zone | None = None, whole: bool = False) -> Run:
    """The Run of a record; of all nodes where ``whole``, else of those that were used."""
    rows = sorted(
        (a for a in record.attempts if a["outcome"] is not None or math.isfinite(record.until_s)),
        key=lambda one: one["ended_s"] or record.until_s,
    )
    there = from_time(zone or Zone(), record.start_s)
    cluster = _cluster(database, {attempt["node"] for attempt in rows}, there, whole)
    place = {node.name: index for index, node in enumerate(cluster.nodes)}
    start_s, end_s = record.start_s, record.end_s
    windows = sorted(
        (w for w in reads.energy(database, start_s, end_s) if w["node"] in place),
        key=lambda w: (place[w["node"]], w["began_s"]),
    )
    carbon_g, cost = _supply(windows, cluster, start_s)
    first = record.flows[0] if record.flows else {}
    about = msgspec.msgpack.decode(first["about"]) if first else {}
    return Run(
        workload=_workload(record, cluster), cluster=cluster, policy=str(about.get("policy")),
        attempts=_attempts(rows, record, place), energy_j=_energy(windows, place, rows, (start_s, end_s)),
        carbon_g=carbon_g, cost=cost, peak_w=peak_w(windows, set(place)), makespan_s=end_s - start_s,
        power_log=_power_log(windows, place, (start_s, end_s)), bands=_bands(rows),
        sleep_log=_sleep_log(database, place, (start_s, end_s)),
        scalars={"retries": float(sum(found["number"] > 1 for found in rows))},
        manifest={"workflow": first.get("id"), "owner": first.get("owner"), "objective": about.get("objective"),
                  "provenance": sorted({found["provenance"] for found in rows if found["provenance"]}),
                  "energy covers": _covered(windows, set(place)), "started_at_s": start_s},
        simulated=False,
    )  # fmt: skip


def _cluster(database: sa.Engine, used: set[str], zone: Zone, whole: bool) -> Cluster:
    nodes = [_NODE.decode(node["spec"])[1] for node in reads.nodes(database)]
    made = tuple(node_of(node) for node in nodes if whole or node.name in used)
    # Without a node there is nothing to draw on; a server without any still has a page.
    return Cluster(name="live", nodes=made or (Node("none yet", 1, 0),), zones=(zone,))


def _attempts(rows: Sequence[Found], record: RunRecord, place: dict[str, int]) -> NDArray[np.void]:
    number = {task["id"]: index for index, task in enumerate(record.tasks)}
    attempts = np.zeros(len(rows), ATTEMPT)
    for target, found in zip(attempts, rows, strict=True):
        _attempt(target, found, number[found["task"]], place[found["node"]], record.start_s)
        if found["outcome"] is None:
            target["end_s"] = max(record.until_s - record.start_s, float(target["start_s"]))
    return attempts


def _attempt(target: Any, found: Found, task: int, node: int, start_s: float) -> None:
    for name in ("ready_s", "placed_s"):
        target[name] = found[name] - start_s
    target["start_s"] = (found["started_s"] or found["placed_s"]) - start_s
    target["end_s"] = (found["ended_s"] or found["placed_s"]) - start_s
    target["task"], target["node"], target["device"] = task, node, found["device"]
    target["attempt"], target["variant"] = found["number"] - 1, found["variant"]
    # A Run knows no refusals: of an attempt that never began it tells that it did not end well.
    outcome = "failed" if found["outcome"] == "refused" else found["outcome"]
    target["outcome"] = -1 if outcome is None else OUTCOMES.index(outcome)
    target["cold_s"] = found["cold_s"] or 0.0
    target["run_j"] = found["energy_j"] or 0.0
    target["marginal_j"] = found["marginal_j"] or 0.0
    target["guarantee"] = 1.0


def _bands(rows: Sequence[Found]) -> NDArray[np.void]:
    bands = np.zeros(len(rows), BAND)
    for target, found in zip(bands, rows, strict=True):
        known = found["energy_j"] is not None
        target["low_j"] = found["low_j"] if known and found["low_j"] is not None else math.nan
        target["high_j"] = found["high_j"] if known and found["high_j"] is not None else math.nan
        target["provenance"] = PROVENANCES.index(found["provenance"]) if known and found["provenance"] else -1
    return bands


def _power_log(windows: Sequence[Found], place: dict[str, int], span: tuple[float, float]) -> NDArray[np.void] | None:
    """Watts from each window on; NaN where a gap begins. None where nobody measured anything."""
    if not windows:
        return None
    start_s, end_s = span
    rows: list[tuple[float, int, float, float]] = []
    until = dict.fromkeys(place.values(), start_s)
    for window in windows:
        node, began_s = place[window["node"]], max(window["began_s"], start_s)
        if began_s > until[node] + GAP_S:
            rows.append((until[node] - start_s, node, math.nan, math.nan))
        lasted_s = window["ended_s"] - window["began_s"]
        if lasted_s > 0:
            rows.append((began_s - start_s, node, window["counted_j"] / lasted_s, window["idle_j"] / lasted_s))
            until[node] = max(until[node], window["ended_s"])
    rows += [(t - start_s, node, math.nan, math.nan) for node, t in until.items() if t < end_s - GAP_S]
    return np.array(sorted(rows, key=lambda row: (row[1], row[0])), POWER)


def _sleep_log(database: sa.Engine, place: dict[str, int], span: tuple[float, float]) -> NDArray[np.void]:
    start_s, end_s = span
    found: list[tuple[int, float, float, int]] = []
    rows = [row for row in reads.node_states(database, end_s) if row["node"] in place]
    for row, following in itertools.zip_longest(rows, rows[1:]):
        until_s = following["at_s"] if following is not None and following["node"] == row["node"] else end_s
        from_s, to_s = max(row["at_s"], start_s), min(until_s, end_s)
        if row["state"] in SLEEPS and to_s > from_s:
            found.append((place[row["node"]], from_s - start_s, to_s - start_s, SLEEPS.index(row["state"])))
    return np.array(sorted(found), SLEEP)


def _supply(windows: Sequence[Found], cluster: Cluster, start_s: float) -> tuple[Any, Any]:
    """Grams and money of each node's windows, by the series of its zone (which begin with the run)."""
    zones = {zone.name: zone for zone in cluster.zones}
    zone_of = {node.name: zones[node.zone] for node in cluster.nodes}
    carbon_g, cost = (dict.fromkeys(zone_of, 0.0) for _ in range(2))
    for window in windows:
        name, zone = window["node"], zone_of[window["node"]]
        at_s = max(0.0, window["began_s"] - start_s)
        kwh = window["counted_j"] * zone.pue / J_PER_KWH
        carbon_g[name] += kwh * zone.carbon.at(at_s)
        cost[name] += kwh * zone.price.at(at_s)
    return np.array(list(carbon_g.values())), np.array(list(cost.values()))


def _workload(record: RunRecord, cluster: Cluster) -> Workload:
    """The tasks as they turned out. Runtimes are those of a node of speed 1 and the plain variant."""
    specs = [_SPEC.decode(task["spec"])[1] for task in record.tasks]
    runtime = _runtimes(record, {task["id"]: spec for task, spec in zip(record.tasks, specs, strict=True)}, cluster)
    flow = {row["id"]: index for index, row in enumerate(record.flows)}
    start_s = record.start_s
    due_s = [msgspec.msgpack.decode(row["about"]).get("deadline_s") for row in record.flows]
    deadline_s = [
        task["submitted_s"] + spec.deadline_s if spec.deadline_s else due_s[flow[task["workflow"]]] or math.inf
        for task, spec in zip(record.tasks, specs, strict=True)
    ]
    seconds = np.array([runtime.get(task["id"], 0.0) for task in record.tasks])
    estimates = np.array([spec.estimate_s or math.nan for spec in specs])
    return Workload.of_columns(
        record.flows[0]["name"] if len(record.flows) == 1 else "live",
        release_s=np.array([max(0.0, task["submitted_s"] - start_s) for task in record.tasks], np.float64),
        runtime_s=seconds,
        estimate_s=np.where(np.isfinite(estimates), estimates, seconds),
        **structure([(task["workflow"], spec) for task, spec in zip(record.tasks, specs, strict=True)]),
        workflow=np.array([flow[task["workflow"]] for task in record.tasks], np.int32),
        workflow_names=tuple(row["name"] for row in record.flows),
        workflow_submit_s=np.array([row["submitted_s"] - start_s for row in record.flows]),
        deadline_s=np.array(deadline_s, np.float64) - start_s,
        ids=tuple(task["key"] for task in record.tasks),
    )


def structure(tasks: Sequence[tuple[object, Task]]) -> dict[str, Any]:
    """Columns of a workload that tasks have by what they are: functions, shapes, edges; each has its workflow."""
    forms: dict[Any, int] = {}
    shape = [forms.setdefault((spec.function_name, tuple(spec.variants)), len(forms)) for _, spec in tasks]
    names = list(dict.fromkeys(name for name, _ in forms))
    at = {(flow, spec.key): index for index, (flow, spec) in enumerate(tasks)}
    edges = [
        (at[flow, key], index)
        for index, (flow, spec) in enumerate(tasks)
        for key in dict.fromkeys([*spec.parents, *spec.results])
        if (flow, key) in at
    ]
    shapes = [Shape(names.index(name), tuple(variant_of(v) for v in variants)) for name, variants in forms]
    return {
        "shapes": shapes or [Shape(0, ())],
        "shape": np.array(shape, np.int32),
        "functions": [Function(name) for name in names] or [Function("task")],
        "edges": tuple(np.array([edge[end] for edge in edges], np.int32) for end in (0, 1)),
    }


def _runtimes(record: RunRecord, specs: dict[int, Task], cluster: Cluster) -> dict[int, float]:
    speed = {node.name: node.speed for node in cluster.nodes}
    runtime: dict[int, float] = {}
    for found in record.attempts:
        if found["ended_s"] is not None:
            lasted_s = found["ended_s"] - (found["started_s"] or found["ended_s"])
            factor = specs[found["task"]].variants[found["variant"]].runtime_factor
            runtime[found["task"]] = lasted_s * speed.get(found["node"], 1.0) / factor
    return runtime


def _energy(windows: Sequence[Found], place: dict[str, int], rows: Sequence[Found], span: tuple[float, float]) -> Any:
    """Accounts of the nodes while the workflow ran; what other work used is ``unattributed``.

    Of a window that begins before the workflow or ends after it, idle and unattributed count by the time that is in it.
    """
    joules = np.zeros((max(1, len(place)), len(ACCOUNTS)))
    run, idle, lost, other = (ACCOUNTS.index(name) for name in ("run", "idle", "lost", "unattributed"))
    for window in windows:
        node = place[window["node"]]
        within_s = min(window["ended_s"], span[1]) - max(window["began_s"], span[0])
        share = max(0.0, within_s) / max(1e-9, window["ended_s"] - window["began_s"])
        joules[node, idle] += share * window["idle_j"]
        # All tasks' joules first, and each attempt of this run taken out below: what is left is other people's work.
        joules[node, other] += share * window["unattributed_j"] + window["tasks_j"]
    for found in rows:
        account = run if found["outcome"] in ("done", None) else lost
        joules[place[found["node"]], account] += found["energy_j"] or 0.0
        joules[place[found["node"]], other] -= found["energy_j"] or 0.0
    # Attempts at the edge of the first window may have joules of before it.
    joules[:, other] = np.maximum(joules[:, other], 0.0)
    return joules


def peak_w(windows: Sequence[Found], nodes: set[str]) -> float | None:
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


def _covered(windows: Sequence[Found], nodes: set[str]) -> str:
    """Say what the joules of a Run are the joules of."""
    unmeasured = sorted(nodes - {window["node"] for window in windows})
    return "nodes and tasks" if not unmeasured else f"tasks alone on {', '.join(unmeasured)}: nobody measures the node"


def document(database: sa.Engine, row: Found) -> str:
    """A workflow that is over, as WfFormat with the runtime and the joules of each task."""
    record = RunRecord.of(database, row)
    if not any(found["outcome"] is not None for found in record.attempts):
        raise InvalidInput(f"workflow {row['id']}", "no attempt of it ever ran: there is nothing to write")
    cluster = _cluster(database, {found["node"] for found in record.attempts}, Zone(), whole=False)
    return wfformat_write.dumps(workflow_of(record, cluster))


def workflow_of(record: RunRecord, cluster: Cluster) -> Workflow:
    """The tasks of a workflow as they turned out. Runtimes are those of a node of speed 1 and the plain variant."""
    row = record.flows[0]
    specs = {task["id"]: _SPEC.decode(task["spec"])[1] for task in record.tasks}
    runtime = _runtimes(record, specs, cluster)
    of_task: dict[int, list[Found]] = {}
    for found in record.attempts:
        if found["outcome"] is not None:
            of_task.setdefault(found["task"], []).append(found)
    started_s = row["submitted_s"]
    made = []
    for task in record.tasks:
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
    return Workflow(name=row["name"], tasks=tuple(made), machines=machines, makespan_s=record.end_s - started_s,
                    executed_at=datetime.fromtimestamp(started_s, UTC).isoformat())  # fmt: skip


def _recorded(rows: list[Found], origin_s: float) -> dict[str, Any]:
    """Give what was recorded of a task: of its last attempt, and joules of all."""
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
    if joules is not None:
        found["energy_provenance"] = max((Provenance(one["provenance"]) for one in known), key=list(Provenance).index)
    if joules:
        band_j = sum((one["high_j"] or one["energy_j"]) - (one["low_j"] or one["energy_j"]) for one in known)
        found["energy_error"] = band_j / 2 / joules
    return found

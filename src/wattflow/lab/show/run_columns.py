"""A run as the document that the dashboard draws: attempts, tasks, edges, power and sleep as columns.

docs/page-routes.md is the contract. Any Run will do, simulated, saved or made of a server's store.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.files.columns import Column, pack, rounded
from wattflow.lab.figures.metrics import METRICS, carbon_g, energy_figures, metrics, node_provenance
from wattflow.lab.figures.power_series import PowerCurve, idle_w, idle_watts, power_curve, sleeps
from wattflow.lab.run.run_file import PROVENANCES, WAITS, SavedRun, bands_of, waits
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import InvalidInput
from wattflow.model.run import ACCOUNTS, OUTCOMES, SLEEPS, Run

STATES = ("waiting", "running", "done", "failed", "cancelled", "unborn")
_STAGES = ("message", "wake", "cold", "data", "hold")
Ints = NDArray[np.int64]
Tables = dict[str, dict[str, Column]]


@dataclass(frozen=True, slots=True)
class More:
    """Facts that a Run does not say of itself.

    Attributes:
        about: Keys of the document's ``about`` that are set or changed.
        states: State of each task, by name; those of a finished run are read off its attempts.
        numbers: The server's number of each task.
        flows: Of each workflow (id, owner, state).
        nodes: By name, keys of a node that are set: when it announced itself, and a curve that was learned of it.
    """

    about: Mapping[str, Any] = field(default_factory=dict)
    states: Sequence[str] | None = None
    numbers: Sequence[int] | None = None
    flows: Sequence[tuple[str, str, str]] | None = None
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def run_columns(run: Run, more: More | None = None) -> bytes:
    """Return the document of a run."""
    more = more or More()
    curve = power_curve(run)
    strings: dict[str, Sequence[str]] = {
        "outcomes": OUTCOMES,
        "waits": WAITS,
        "provenances": PROVENANCES,
        "states": STATES,
        "sleeps": SLEEPS,
        "kinds": machine_kinds(run.cluster)[0],
        "functions": [one.name for one in run.workload.functions],
        # Sorted: the same run gives the same bytes.
        "variants": sorted({v.name for shape in run.workload.shapes for v in shape.variants}),
        "owners": sorted({owner for _, owner, _ in more.flows or ()}),
    }
    tables = {
        "attempts": _attempts(run, strings["variants"]),
        "tasks": _tasks(run, more),
        "edges": _edges(run),
        "workflows": _workflows(run, more, strings["owners"]),
        "power": _power(run, curve),
        "sleep": _sleep(run, curve),
    }
    return pack(_about(run, curve, more), strings, tables)


def view_of(saved: SavedRun, title: str = "") -> bytes:
    """Return the document of a run that was read from a file.

    Raises:
        InvalidInput: The file is of version 1, which holds too little to draw.
    """
    if saved.run is None:
        raise InvalidInput(title or "run", saved.notes[0])
    about = {"id": title, "title": title} if title else {}
    return run_columns(saved.run, More(about={**about, "notes": list(saved.notes)}))


def _attempts(run: Run, variants: Sequence[str]) -> dict[str, Column]:
    # By node and start, as they are drawn: columns of differences are then small.
    order = np.lexsort((run.attempts["end_s"], run.attempts["start_s"], run.attempts["node"]))
    rows, workload = run.attempts[order], run.workload
    shape = workload.shape[rows["task"]]
    functions = np.array([one.function for one in workload.shapes], np.int64)
    start = _ms(rows["start_s"])
    bands = bands_of(run)[order]
    joules = rows["run_j"] + rows["cold_j"] + rows["transfer_j"]
    columns = {
        "task": Column(rows["task"]), "number": Column(rows["attempt"]), "part": Column(rows["part"]),
        "node": Column(rows["node"].astype(np.int64), form="delta"), "device": Column(rows["device"]),
        "lane": Column(_lanes(rows)), "variant": Column(_variants(run, rows, variants), "variants"),
        "function": Column(functions[shape], "functions"), "workflow": Column(workload.workflow[rows["task"]]),
        "outcome": Column(rows["outcome"], "outcomes"), "wait": Column(waits(rows), "waits"),
        "start": Column(start, form="delta"),
        **{name: Column(_ms(rows[f"{name}_s"]), form="after", of="start") for name in ("placed", "end")},
        "ready": _ready(_ms(rows["ready_s"]), start),
        # Joules of a node whose watts nobody knows are no joules.
        "energy_j": Column(rounded(np.where(bands["provenance"] < 0, np.nan, joules))),
        "marginal_j": Column(rounded(rows["marginal_j"])), "provenance": Column(bands["provenance"], "provenances"),
    }  # fmt: skip
    for name in _STAGES:
        # Stages that nobody had take no column.
        if rows[f"{name}_s"].any():
            columns[name] = Column(_ms(rows[f"{name}_s"]))
    for name in ("low_j", "high_j"):
        if np.isfinite(bands[name]).any():
            columns[name] = Column(rounded(bands[name]))
    return columns


def _ready(ready: Ints, start: Ints) -> Column:
    """Beside the start where tasks run when they come, else beside each other: whichever differs less."""
    beside = np.abs(np.diff(ready)).sum() < np.abs(start - ready).sum()
    return Column(ready, form="delta") if beside else Column(ready, form="after", of="start")


def _lanes(rows: NDArray[np.void]) -> Ints:
    lane = np.zeros(len(rows), np.int64)
    bounds = np.searchsorted(rows["node"], np.arange(int(rows["node"].max()) + 2)) if len(rows) else np.zeros(1, int)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        # From placed to end: cores are held before a task runs.
        lane[first:last] = lanes(rows["placed_s"][first:last], rows["end_s"][first:last])
    return lane


def _variants(run: Run, rows: NDArray[np.void], names: Sequence[str]) -> Ints:
    shapes = run.workload.shapes
    start = np.cumsum([0, *(len(shape.variants) for shape in shapes)])[:-1]
    # By name: shapes may share a variant's name, and the page shows names.
    flat = np.array([names.index(variant.name) for shape in shapes for variant in shape.variants], np.int64)
    named: Ints = flat[start[run.workload.shape[rows["task"]]] + rows["variant"]]
    return named


def _tasks(run: Run, more: More) -> dict[str, Column]:
    workload = run.workload
    functions = np.array([one.function for one in workload.shapes], np.int64)
    states = more.states if more.states is not None else _states(run)
    numbers = more.numbers if more.numbers is not None else [-1] * len(workload)
    named = {} if workload.ids is None else {"id": Column(workload.ids)}
    return {
        **named,
        "function": Column(functions[workload.shape], "functions"),
        "workflow": Column(workload.workflow.astype(np.int64), form="delta"),
        "release": Column(_ms(workload.release_s), form="delta"),
        "state": Column(np.array([STATES.index(state) for state in states], np.int64), "states"),
        "number": Column(np.array(numbers, np.int64)),
    }


def _states(run: Run) -> list[str]:
    """Of a run that is over: done, failed, or never begun."""
    tried = np.zeros(len(run.workload), bool)
    tried[run.attempts["task"]] = True
    # Never begun: an ancestor failed, or the run ended before.
    return [
        "done" if done else "failed" if begun else "cancelled"
        for done, begun in zip(run.finished.tolist(), tried.tolist(), strict=True)
    ]


def _edges(run: Run) -> dict[str, Column]:
    child = np.repeat(np.arange(len(run.workload), dtype=np.int64), np.diff(run.workload.parent_start))
    return {
        "child": Column(child, form="delta"),
        "parent": Column(run.workload.parent.astype(np.int64), form="after", of="child"),
    }


def _workflows(run: Run, more: More, owners: Sequence[str]) -> dict[str, Column]:
    workload = run.workload
    count = len(workload.workflow_names)
    flows = more.flows or [("", "", _whole_state(run))] * count
    deadline_s = np.full(count, -np.inf)
    # The last deadline of its tasks is the workflow's.
    np.maximum.at(deadline_s, workload.workflow, workload.deadline_s)
    due = np.where(np.isfinite(deadline_s), np.rint(1000.0 * deadline_s), np.nan)
    return {
        "name": Column(list(workload.workflow_names)),
        "id": Column([identity for identity, _, _ in flows]),
        "owner": Column(np.array([owners.index(o) if o in owners else -1 for _, o, _ in flows], np.int64), "owners"),
        "state": Column(np.array([STATES.index(s) if s in STATES else 1 for _, _, s in flows], np.int64), "states"),
        "submit": Column(_ms(workload.workflow_submit_s), form="delta"),
        "deadline": Column(due),
    }


def _whole_state(run: Run) -> str:
    return "done" if bool(run.finished.all()) else "failed"


def _power(run: Run, curve: PowerCurve) -> dict[str, Column]:
    steps, idle = curve.steps, idle_watts(run, curve)
    # A dark node's watts are 0 in the log, which means "unknown", unless somebody logged its idle watts.
    dark = np.array([node.power is None for node in run.cluster.nodes])[steps.group] & np.isnan(idle)
    watts = np.where(dark, np.nan, steps.value)
    return {
        "node": Column(steps.group, form="delta"),
        "time": Column(_ms(steps.time_s), form="delta"),
        "idle_w": Column(rounded(idle)),
        "dynamic_w": Column(rounded(watts - idle)),
    }


def _sleep(run: Run, curve: PowerCurve) -> dict[str, Column]:
    rows = sleeps(run, curve)
    return {
        "node": Column(rows["node"]),
        "from": Column(_ms(rows["from_s"])),
        "to": Column(_ms(rows["to_s"])),
        "state": Column(rows["state"], "sleeps"),
    }


def _about(run: Run, curve: PowerCurve, more: More) -> dict[str, Any]:
    from wattflow import __version__

    known = energy_figures(run)
    # Of a forecast or a live view not all tasks have ended: figures would change as one looks.
    is_over = more.about.get("kind", "run") == "run"
    figures = {name: value for name, value in metrics(run).items() if value is not None} if is_over else {}
    known_power = any(node.power is not None for node in run.cluster.nodes) or not curve.rebuilt
    about = {
        "kind": "run", "id": run.workload.name, "title": f"{run.workload.name} under {run.policy}",
        "workload": run.workload.name, "policy": run.policy, "simulated": run.simulated, "state": _whole_state(run),
        "owner": None, "origin_s": None, "start_ms": 1000.0 * run.start_s,
        "end_ms": 1000.0 * (run.start_s + run.span_s), "makespan_s": run.makespan_s, "peak_w": known["peak_w"],
        "carbon_g": carbon_g(run), "cost": figures.get("cost"),
        "energy_j": {account: known[f"energy_{account}_j"] for account in ACCOUNTS},
        "energy_total_j": known["energy_j"], "figures": figures,
        "figure_labels": {name: [METRICS[name].label, METRICS[name].unit] for name in figures},
        "power": "none" if not known_power else "rebuilt" if curve.rebuilt else "log",
        "energy_covers": run.manifest.get("energy covers"), "sequence": None, "notes": [], "wattflow": __version__,
        "cluster": cluster_about(run.cluster, more.nodes),
    }  # fmt: skip
    # Last: whoever has more to say wins.
    return about | dict(more.about)


def cluster_about(cluster: Cluster, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return nodes with their curves and what else is known of them, and zones, as plain data."""
    _, kinds = machine_kinds(cluster)
    return {
        "name": cluster.name,
        "nodes": [
            _node(node, int(kind)) | dict(known.get(node.name, {}))
            for node, kind in zip(cluster.nodes, kinds, strict=True)
        ],
        "zones": [
            {"name": zone.name, "carbon_known": zone.carbon_known, "price_known": zone.price_known}
            for zone in cluster.zones
        ],
    }


def _node(node: Node, kind: int) -> dict[str, Any]:
    power = node.power
    curve = power and {
        "busy": list(power.busy),
        "watts": list(power.watts),
        "scope": str(power.scope),
        "provenance": str(power.provenance),
        "source": power.source,
    }
    devices = [
        {
            "kind": d.kind,
            "model": d.model,
            "memory_bytes": d.memory_bytes,
            "sharing": d.sharing,
            "slots": d.slots,
            "power": {
                "share": list(d.power.share),
                "watts": list(d.power.watts),
                "provenance": str(d.power.provenance),
                "source": d.power.source,
            },
        }
        for d in node.devices
    ]
    return {
        "name": node.name, "cores": node.cores, "threads": node.threads, "memory_bytes": node.memory_bytes,
        "architecture": node.architecture, "zone": node.zone, "speed": node.speed, "idle_w": idle_w(node),
        "sleep_w": node.sleep.watts if node.sleep else None, "provenance": node_provenance(node), "kind": kind,
        "power": curve, "devices": devices,
    }  # fmt: skip


def _ms(seconds: NDArray[np.floating]) -> Ints:
    # Whole milliseconds: finer than any screen, and differences pack well.
    return np.rint(1000.0 * seconds.astype(np.float64)).astype(np.int64)


__all__ = ["STATES", "More", "cluster_about", "run_columns", "view_of"]


GROUPS = 8


def machine_kinds(cluster: Cluster) -> tuple[list[str], NDArray[np.int64]]:
    """Kinds of machine by name, and the kind of each node: equal hardware and watts are one, wherever they stand.

    A kind is called by what its nodes' names share; kinds beyond ``GROUPS`` are one, the last.
    """
    keys = [_machine(node) for node in cluster.nodes]
    known = list(dict.fromkeys(keys))
    most = len(known) if len(known) <= GROUPS else GROUPS - 1
    # The last kind gathers all that are left.
    kind_of = np.array([min(known.index(key), most) for key in keys], np.int64)
    names = []
    for kind in range(int(kind_of.max()) + 1):
        mine = [node.name for node, which in zip(cluster.nodes, kind_of.tolist(), strict=True) if which == kind]
        # Trailing digits are numbers of nodes, not part of what they share.
        shared = _shared(mine).rstrip("-_.0123456789") if len(mine) > 1 else mine[0]
        names.append("others" if kind == most else shared or f"{mine[0]} …")
    return names, kind_of


def _shared(names: list[str]) -> str:
    """Find the longest common prefix of the names."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def _machine(node: Node) -> tuple[object, ...]:
    devices = tuple((device.kind, device.model) for device in node.devices)
    return node.cores, node.threads_per_core, node.memory_bytes, node.speed, node.architecture, node.power, devices


def lanes(start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the lowest free lane for each interval in order of start, so that no two in a lane overlap. O(n log n)."""
    lane = np.zeros(len(start_s), np.int64)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    used = 0
    # By start, then end: of equal starts the shorter one first, so that lanes are the same each time.
    for i in np.lexsort((end_s, start_s)).tolist():
        # An interval that ends where another starts leaves its lane free.
        while busy and busy[0][0] <= start_s[i]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane[i] = heapq.heappop(free)
        else:
            lane[i], used = used, used + 1
        heapq.heappush(busy, (float(end_s[i]), int(lane[i])))
    return lane

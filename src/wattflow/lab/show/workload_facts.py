"""Facts of a workload, on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wattflow.lab.run.run_file import SavedRun
from wattflow.lab.show.result_tables import Row, new_table
from wattflow.model.units import human_energy, human_time
from wattflow.model.workload import Workload

if TYPE_CHECKING:
    from rich.table import Table


def describe_workload(workload: Workload) -> list[Row]:
    """Return rows of (what, value); times in seconds, sizes in bytes. Unknown is None."""
    count = len(workload)
    rows: list[Row] = [
        {"what": "tasks", "value": count},
        {"what": "workflows", "value": len(workload.workflow_names)},
        {"what": "functions", "value": len(workload.functions)},
        {"what": "edges", "value": workload.edge_count},
    ]
    if count:
        rows += _structure(workload) + _quantiles(workload)
    variants = sorted({v.device or "cpu" for shape in workload.shapes for v in shape.variants})
    most = max((v.cores for shape in workload.shapes for v in shape.variants), default=None)
    parts = max((shape.parts for shape in workload.shapes), default=1)
    rows += [
        {"what": "variants on", "value": ", ".join(variants)},
        {"what": "most cores of a task", "value": most},
        {"what": "most parts of a task", "value": parts},
        {"what": "bytes read from storage", "value": float(workload.input_bytes.sum())},
        {"what": "bytes handed to children", "value": float(workload.parent_bytes.sum())},
        {"what": "tasks with a deadline", "value": int(np.isfinite(workload.deadline_s).sum())},
        {"what": "tasks with unknown estimate", "value": int(np.isnan(workload.estimate_s).sum())},
        {"what": "recorded machines", "value": len(workload.machines)},
        {"what": "recorded columns", "value": ", ".join(sorted(workload.columns)) or None},
    ]
    return rows


def describe_run(run: SavedRun) -> list[Row]:
    """Return rows of (what, value) of a finished run: what came out, what it cost, and what it was made with."""
    about, made = run.about, run.about.get("manifest", {})
    outcomes: dict[str, int] = {}
    for name in run.names["outcome_name"]:
        outcomes[name] = outcomes.get(name, 0) + 1
    joules = run.energy_j()
    known = [value for value in joules.values() if value is not None]
    rows: list[Row] = [
        {"what": "simulated", "value": "yes" if about.get("simulated") else "no, real"},
        {"what": "makespan", "value": human_time(run.makespan_s)},
        # A sum that leaves out what is unknown is no total.
        {"what": "energy", "value": human_energy(sum(known)) if len(known) == len(joules) else None},
        {"what": "peak power", "value": None if about.get("peak_w") is None else f"{float(about['peak_w']):,.0f} W"},
        {"what": "nodes", "value": len(about["nodes"])},
        {"what": "attempts", "value": len(run.attempts)},
    ]
    rows += [{"what": f"attempts {name}", "value": count} for name, count in sorted(outcomes.items())]
    rows += [
        {"what": f"energy, {name.replace('_', ' ')}", "value": human_energy(value)} for name, value in joules.items()
    ]
    for key in ("energy covers", "cap", "seed", "params", "options", "versions", "python"):
        if key in made:
            rows.append({"what": key, "value": _plain(made[key])})
    rows.append({"what": "wattflow", "value": about.get("wattflow")})
    return rows


def _plain(value: object) -> object:
    if isinstance(value, dict):
        # Options at their defaults say nothing.
        return ", ".join(f"{key}={item}" for key, item in value.items() if item not in (None, [], 0.0, False)) or "–"
    return value


def description_table(rows: list[Row], title: str) -> Table:
    """Return the rows for a reader."""
    table = new_table(title)
    table.show_header = False
    table.add_column("")
    table.add_column("", justify="right")
    for row in rows:
        table.add_row(str(row["what"]), _text(str(row["what"]), row["value"]))
    return table


def _structure(workload: Workload) -> list[Row]:
    """Depth, width and critical path, in one pass over the tasks in topological order."""
    order = workload.topological_order().tolist()
    level, end_s = [0] * len(workload), [0.0] * len(workload)
    start, parent, runtime_s = workload.parent_start.tolist(), workload.parent.tolist(), workload.runtime_s.tolist()
    for task in order:
        parents = parent[start[task] : start[task + 1]]
        level[task] = 1 + max((level[p] for p in parents), default=0)
        end_s[task] = runtime_s[task] + max((end_s[p] for p in parents), default=0.0)
    widths = np.bincount(np.array(level))
    return [
        {"what": "levels", "value": max(level)},
        {"what": "tasks of the widest level", "value": int(widths.max())},
        {"what": "longest path, s", "value": max(end_s)},
        {"what": "all runtimes, s", "value": float(workload.runtime_s.sum())},
        {"what": "first to last release, s", "value": float(np.ptp(workload.release_s))},
    ]


def _quantiles(workload: Workload) -> list[Row]:
    names = ("least", "median", "95th percentile", "most")
    values = np.quantile(workload.runtime_s, [0.0, 0.5, 0.95, 1.0]).tolist()
    rows: list[Row] = [
        {"what": f"runtime, {name}, s", "value": value} for name, value in zip(names, values, strict=True)
    ]
    rows.append({"what": "tasks with runtime 0", "value": int(np.count_nonzero(workload.runtime_s == 0))})
    return rows


def _text(what: str, value: object) -> str:
    if value is None:
        return "–"
    if what.endswith(", s") and isinstance(value, float):
        return human_time(value) if value >= 0.1 or value == 0 else f"{value:.2g} s"
    if what.startswith("bytes") and isinstance(value, float):
        return _bytes(value)
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:,.3g} {unit}"
        size /= 1000
    return ""

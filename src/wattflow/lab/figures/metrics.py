"""Figures of merit of a run, from its attempts and accounts. A million attempts take about a second.

Definitions: docs/metrics.md. Unknown is None: no power profile, no carbon series, nothing finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.lab.figures.ideal import ideal_s
from wattflow.model.cluster import Node
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS, Run

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepSeries:
    """A piecewise-constant value per group: from ``time_s[i]`` on, group ``group[i]`` has ``value[i]``.

    Rows are ordered by group, then time; one row per distinct time.
    """

    group: Ints
    time_s: Floats
    value: Floats

    def held_s(self, end_s: float) -> Floats:
        """Return how long each row's value holds; the last one of a group until ``end_s``."""
        if not len(self.time_s):
            return np.zeros(0)
        following = np.append(self.time_s[1:], end_s)
        last = np.append(self.group[1:] != self.group[:-1], True)
        # A row may lie behind the end that is asked for: it holds for no time, never for less.
        following[last] = np.maximum(end_s, self.time_s[last])
        return following - self.time_s


def sweep(group: NDArray[np.integer], start_s: Floats, end_s: Floats, weight: Floats) -> StepSeries:
    """Sum the weights of the intervals [start, end) that cover each moment, for each group. O(n log n)."""
    # Intervals without length would leave a step up and down at one moment.
    used = end_s > start_s
    group, start_s, end_s, weight = group[used], start_s[used], end_s[used], weight[used]
    return accumulate(
        np.concatenate([group, group]), np.concatenate([start_s, end_s]), np.concatenate([weight, -weight])
    )


def accumulate(group: NDArray[np.integer], time_s: Floats, change: Floats) -> StepSeries:
    """Running sum over time of the changes of each group; values within 1e-9 of 0 are 0."""
    order = np.lexsort((time_s, group))
    groups, times = group[order].astype(np.int64), time_s[order]
    if not len(groups):
        return StepSeries(groups, times, np.zeros(0))
    total = np.cumsum(change[order])
    first = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    # One running sum over all groups, less what stood before each: no loop over groups.
    before = np.where(first > 0, total[first - 1], 0.0)
    total -= np.repeat(before, np.diff(np.append(first, len(groups))))
    last = np.append((groups[1:] != groups[:-1]) | (times[1:] != times[:-1]), True)
    value = total[last]
    # Floats that are added and taken away again leave a trifle.
    value[np.abs(value) < 1e-9] = 0.0
    return StepSeries(groups[last], times[last], value)


# Joules and watts of a run as far as they are known: the one place where unknown watts become unknown figures.
#
# Nodes without a power profile (dark nodes) draw watts that nobody knows. A sum that leaves them out is no total:
# where there is one, totals, accounts, peak, mean and product are None, and what the other nodes used stands under
# its own name, as a lower bound.

TOTALS = ("energy_j", "peak_w", "mean_w", "edp_js")
AT_LEAST = "known_energy_j"
"""Joules of the nodes with a profile, where some have none; None where the total itself is known."""


def dark_nodes(run: Run) -> list[int]:
    """Return nodes without a power profile."""
    return [number for number, node in enumerate(run.cluster.nodes) if node.power is None]


def energy_figures(run: Run) -> dict[str, float | None]:
    """Total, accounts, peak and mean watts, energy-delay product, and the lower bound where the total is unknown."""
    dark, span = dark_nodes(run), run.span_s
    values: dict[str, float | None] = dict.fromkeys(
        (*TOTALS, *(f"energy_{account}_j" for account in ACCOUNTS), AT_LEAST)
    )
    values["unknown_power_nodes"] = float(len(dark))
    if dark:
        # Nothing is known at all where every node is dark: then not even a lower bound.
        if len(dark) < len(run.cluster.nodes):
            values[AT_LEAST] = run.total_j
        return values
    values |= {f"energy_{account}_j": run.account_j(account) for account in ACCOUNTS}
    return values | {
        "energy_j": run.total_j,
        "peak_w": None if run.peak_w is None else float(run.peak_w),
        "mean_w": run.total_j / span if span > 0 else None,
        "edp_js": run.total_j * run.makespan_s,
    }


def carbon_g(run: Run) -> float | None:
    """Grams of operation; None where a node has no profile or its zone no carbon series."""
    zones = {zone.name: zone for zone in run.cluster.zones}
    known = all(node.power is not None and zones[node.zone].carbon_known for node in run.cluster.nodes)
    return float(run.carbon_g.sum()) if known else None


Floats = NDArray[np.float64]
BOUND_S = 10.0
"""Shortest ideal time that bounded slowdown divides by."""

STAGES = ("queue", "message", "wake", "cold_start", "data", "hold", "run", "retries")
"""Where a task's response time went. They sum to it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """How a figure is shown: its label, unit, and whether less of it is better (None: neither)."""

    label: str
    unit: str
    less_is_better: bool | None = True


METRICS: dict[str, Metric] = {
    "makespan_s": Metric("makespan", "s"),
    "energy_j": Metric("energy", "J"),
    AT_LEAST: Metric("energy, at least (nodes without a profile left out)", "J"),
    **{f"energy_{account}_j": Metric(f"energy, {account.replace('_', ' ')}", "J") for account in ACCOUNTS},
    **{f"energy_{kind}_j": Metric(f"energy from {kind} power", "J", None) for kind in Provenance},
    "peak_w": Metric("peak power", "W"),
    "mean_w": Metric("mean power", "W"),
    "edp_js": Metric("energy-delay product", "J·s"),
    "utilisation": Metric("utilisation of hardware threads", "", False),
    "device_utilisation": Metric("utilisation of devices", "", False),
    "slowdown_p50": Metric("slowdown, median", ""),
    "slowdown_p95": Metric("slowdown, 95th percentile", ""),
    "slowdown_p99": Metric("slowdown, 99th percentile", ""),
    "bounded_slowdown_mean": Metric("bounded slowdown (10 s), mean, as published tables of job logs have it", ""),
    "bounded_slowdown_p50": Metric("bounded slowdown (10 s), median", ""),
    "bounded_slowdown_p95": Metric("bounded slowdown (10 s), 95th percentile", ""),
    "bounded_slowdown_p99": Metric("bounded slowdown (10 s), 99th percentile", ""),
    "stretch_mean": Metric("stretch of the run stage, mean", ""),
    "stretch_max": Metric("stretch of the run stage, largest", ""),
    "cost": Metric("cost of electricity, rent and calls, in the cluster's currency", ""),
    "electricity_cost": Metric("cost of electricity, in the cluster's currency", ""),
    "carbon_g": Metric("carbon, operation", "g"),
    "embodied_g": Metric("carbon, embodied share", "g"),
    "decision_us": Metric("time per decision, its events included", "µs"),
    **{f"wait_{stage}_s": Metric(f"mean {stage.replace('_', ' ')} time of a task", "s") for stage in STAGES},
    "wait_mean_s": Metric("wait of a task until it runs, mean", "s"),
    "wait_p95_s": Metric("wait of a task until it runs, 95th percentile", "s"),
    "wait_p99_s": Metric("wait of a task until it runs, 99th percentile", "s"),
    "response_mean_s": Metric("mean response time", "s"),
    "workflow_response_mean_s": Metric("response of a workflow, mean", "s"),
    "workflow_response_p95_s": Metric("response of a workflow, 95th percentile", "s"),
    "deadlines_missed": Metric("tasks past their deadline", ""),
    "tasks": Metric("tasks", "", None),
    "unfinished": Metric("tasks not finished", ""),
    "ideal_zero": Metric("tasks with ideal time 0, left out of slowdown", "", None),
    "unknown_power_nodes": Metric("nodes without a power profile", "", None),
}

HEADLINE = (
    "makespan_s", "energy_j", AT_LEAST, "mean_w", "peak_w", "edp_js", "utilisation", "slowdown_p50", "slowdown_p95",
    "slowdown_p99", "stretch_mean", "cost", "carbon_g", "decision_us",
)  # fmt: skip
"""Figures of the terminal's table."""

NARROW = ("makespan_s", "energy_j", "peak_w", "slowdown_p95")
"""Figures of that table for many policies on a narrow terminal."""

HOST_MEASURED = frozenset({"decision_us"})
"""Measured on the machine that decides, so it differs from run to run even with one seed."""

Values = Mapping[str, float | None]


def metrics(run: Run, ideal: Floats | None = None) -> dict[str, float | None]:
    """Compute all figures of ``METRICS`` for one run; pass ``ideal_s`` of the workload where it is known already."""
    ideal = ideal_s(run.workload, run.cluster) if ideal is None else ideal
    tasks = TaskTimes.of(run)
    values: dict[str, float | None] = dict.fromkeys(METRICS)
    values["makespan_s"] = float(run.makespan_s)
    values["tasks"] = float(len(run.workload))
    values["unfinished"] = float(len(run.workload) - np.count_nonzero(tasks.done))
    values |= _energy(run)
    values |= _shares(run)
    values |= _slowdowns(tasks, ideal)
    values |= _waits(tasks)
    values |= response_values(run, tasks.end_s)
    values |= _money(run)
    decision_s = run.scalars.get("decision_s")
    values["decision_us"] = None if decision_s is None else decision_s * 1e6
    # Sums of floats: an end that is the deadline itself is in time.
    late = tasks.end_s > run.workload.deadline_s + 1e-9
    has_deadline = bool(np.isfinite(run.workload.deadline_s).any())
    values["deadlines_missed"] = float(np.count_nonzero(late)) if has_deadline else None
    return values


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """Per task: its release, its end, and how the time between splits into ``STAGES``. NaN if unfinished."""

    done: NDArray[np.bool_]
    release_s: Floats
    end_s: Floats
    stages: dict[str, Floats]

    @property
    def response_s(self) -> Floats:
        return self.end_s - self.release_s

    @classmethod
    def of(cls, run: Run) -> TaskTimes:
        """Of a task with several parts, the part that ends last is followed; release is the first time it was ready."""
        rows, count = run.attempts, len(run.workload)
        task, end_s = np.ascontiguousarray(rows["task"]), np.ascontiguousarray(rows["end_s"])
        release_s = np.full(count, np.inf)
        np.minimum.at(release_s, task, rows["ready_s"])
        done = run.finished
        # Of tasks that finished only: an attempt that ended well may belong to a gang whose other part failed.
        good = np.flatnonzero((rows["outcome"] == 0) & done[task])
        # In order of end, so that the last one written below is the one that ended last.
        good = good[np.argsort(end_s[good], kind="stable")]
        followed = np.zeros(count, np.int64)
        followed[task[good]] = good  # of repeated tasks the last, in order of end, is kept
        last, at = rows[followed[done]], np.flatnonzero(done)

        def column(values: NDArray[np.floating]) -> Floats:
            out = np.full(count, np.nan)
            out[at] = values
            return out

        stages = {
            "queue": column(last["placed_s"] - last["ready_s"]),
            "message": column(last["message_s"]),
            "wake": column(last["wake_s"]),
            "cold_start": column(last["cold_s"]),
            "data": column(last["data_s"]),
            "hold": column(last["hold_s"]),
            "run": column(last["end_s"] - last["start_s"]),
            "retries": column(last["ready_s"] - release_s[at]),
        }
        return cls(done, np.where(done, release_s, np.nan), column(last["end_s"]), stages)


def slowdown(tasks: TaskTimes, ideal: Floats) -> Floats:
    """Response over ideal time of each task; NaN where it did not finish or its ideal time is 0 or unknown."""
    return _over(tasks.response_s, ideal)


def bounded_slowdown(tasks: TaskTimes, ideal: Floats, bound_s: float = BOUND_S) -> Floats:
    """max(1, response / max(ideal, bound)): short tasks do not dominate it. Feitelson & Rudolph, 1998."""
    return np.maximum(1.0, _over(tasks.response_s, np.maximum(ideal, bound_s)))


def stretch(tasks: TaskTimes, ideal: Floats) -> Floats:
    """Run stage over ideal time: what sharing, slower nodes and lower clocks cost, without any waiting."""
    return _over(tasks.stages["run"], ideal)


def node_provenance(node: Node) -> Provenance | None:
    """Return the weakest source among the power profiles of a node and its devices; None without a profile."""
    if node.power is None:
        return None
    order = list(Provenance)
    # A device without watts adds nothing that could be wrong.
    kinds = [node.power.provenance, *(d.power.provenance for d in node.devices if max(d.power.watts) > 0)]
    return max(kinds, key=order.index)


def _over(above: Floats, below: Floats) -> Floats:
    known = np.isfinite(above) & (below > 0)
    out: Floats = np.full(len(above), np.nan)
    np.divide(above, below, out=out, where=known)
    return out


def _energy(run: Run) -> dict[str, float | None]:
    by_node = run.energy_j.sum(axis=1)
    kinds = [node_provenance(node) for node in run.cluster.nodes]
    values = energy_figures(run)
    for kind in Provenance:
        chosen = np.array([k == kind for k in kinds], bool)
        values[f"energy_{kind}_j"] = float(by_node[chosen].sum())
    return values


def _shares(run: Run) -> dict[str, float | None]:
    """Return the busy hardware threads and devices over what the fixed nodes have, from first release to last end."""
    rows, nodes, span = run.attempts, run.cluster.nodes, run.span_s
    fixed = np.array([node.serverless is None for node in nodes])
    threads = np.array([node.threads for node in nodes], float)
    capacity = float(threads[fixed].sum()) * span
    cores, share, devices = variant_columns(run)
    length_s = rows["end_s"] - rows["start_s"]
    inside = fixed[rows["node"]]
    # Only then can more cores be asked for than threads are there.
    over = any(node.request_cores > node.threads for node in nodes) or bool((rows["guarantee"] < 1).any())
    if over:
        steps = sweep(rows["node"], rows["start_s"], rows["end_s"], cores)
        busy = np.minimum(steps.value, threads[steps.group]) * fixed[steps.group]
        used = float((busy * steps.held_s(0.0)).sum())
    else:
        # Nothing is cut off, so plain sums do.
        used = float((cores * length_s)[inside].sum())
    count = sum(len(node.devices) for node in nodes)
    on_device = float((share * devices * length_s).sum())
    return {
        "utilisation": used / capacity if capacity > 0 else None,
        "device_utilisation": on_device / (count * span) if count and span > 0 else None,
    }


def variant_columns(run: Run) -> tuple[Floats, Floats, Floats]:
    """For each attempt: its cores, the share of a device that it keeps busy, and its number of devices (0 without)."""
    shapes = run.workload.shapes
    start = np.cumsum([0, *(len(shape.variants) for shape in shapes)])[:-1]
    flat = [variant for shape in shapes for variant in shape.variants]
    row = start[run.workload.shape[run.attempts["task"]]] + run.attempts["variant"]
    cores = np.array([variant.cores for variant in flat], float)[row]
    share = np.array([variant.device_share * variant.device_duty if variant.device else 0.0 for variant in flat])[row]
    devices = np.array([max(1, variant.devices) if variant.device else 0 for variant in flat], float)[row]
    return cores, share, devices


def _slowdowns(tasks: TaskTimes, ideal: Floats) -> dict[str, float | None]:
    values: dict[str, float | None] = {"ideal_zero": float(np.count_nonzero(tasks.done & (ideal == 0)))}
    figures = {"slowdown": slowdown(tasks, ideal), "bounded_slowdown": bounded_slowdown(tasks, ideal)}
    for name, each in figures.items():
        each = each[np.isfinite(each)]
        quantiles = np.quantile(each, [0.5, 0.95, 0.99]).tolist() if len(each) else [None] * 3
        values |= dict(zip((f"{name}_p50", f"{name}_p95", f"{name}_p99"), quantiles, strict=True))
        if name == "bounded_slowdown":
            values["bounded_slowdown_mean"] = float(each.mean()) if len(each) else None
    each = stretch(tasks, ideal)
    each = each[np.isfinite(each)]
    values["stretch_mean"] = float(each.mean()) if len(each) else None
    values["stretch_max"] = float(each.max()) if len(each) else None
    return values


def _waits(tasks: TaskTimes) -> dict[str, float | None]:
    if not tasks.done.any():
        return {}
    means = {f"wait_{stage}_s": float(seconds[tasks.done].mean()) for stage, seconds in tasks.stages.items()}
    waited = (tasks.response_s - tasks.stages["run"])[tasks.done]
    p95, p99 = np.quantile(waited, [0.95, 0.99]).tolist()
    means |= {"wait_mean_s": float(waited.mean()), "wait_p95_s": p95, "wait_p99_s": p99}
    return {**means, "response_mean_s": float(tasks.response_s[tasks.done].mean())}


def _electricity(run: Run) -> float:
    """Sum the electricity of owned nodes in money, without rent; a function platform is paid by the call."""
    owned = [n for n, node in enumerate(run.cluster.nodes) if node.serverless is None]
    rent = np.array([node.price_per_hour / 3600.0 * run.span_s for node in run.cluster.nodes])
    return float((run.cost - rent)[owned].sum())


def _money(run: Run) -> dict[str, float | None]:
    nodes, zones = run.cluster.nodes, {zone.name: zone for zone in run.cluster.zones}
    priced = any(zones[node.zone].price_known or node.price_per_hour or node.serverless for node in nodes)
    # Electricity that has a price but no known watts: a sum without it would be too low.
    unpaid = any(node.power is None and zones[node.zone].price_known for node in nodes)
    year_s = 365.25 * 86400.0
    embodied = sum(1000.0 * node.embodied_kg * run.span_s / (node.lifetime_years * year_s) for node in nodes)
    return {
        "cost": float(run.cost.sum()) if priced and not unpaid else None,
        "electricity_cost": _electricity(run)
        if not unpaid and any(zone.price_known for zone in zones.values())
        else None,
        "carbon_g": carbon_g(run),
        "embodied_g": embodied if any(node.embodied_kg for node in nodes) else None,
    }


def workflow_response_s(run: Run, end_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Response of each workflow, given the end of each task; NaN where a task of it was not finished."""
    workload = run.workload
    last = np.full(len(workload.workflow_submit_s), -np.inf)
    # inf marks a workflow with an open task through the maximum.
    np.maximum.at(last, workload.workflow, np.where(np.isnan(end_s), np.inf, end_s))
    response = last - workload.workflow_submit_s
    return np.asarray(np.where(np.isfinite(response), response, np.nan), np.float64)


def response_values(run: Run, end_s: NDArray[np.float64]) -> dict[str, float | None]:
    """Return the mean and 95th percentile over workflows; unknown where one was not finished."""
    response = workflow_response_s(run, end_s)
    if not len(response) or np.isnan(response).any():
        return {"workflow_response_mean_s": None, "workflow_response_p95_s": None}
    return {
        "workflow_response_mean_s": float(response.mean()),
        "workflow_response_p95_s": float(np.quantile(response, 0.95)),
    }

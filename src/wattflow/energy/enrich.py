"""Energy into recorded workloads: each task's joules through its node's curve, with provenance and error band.

A recorded task kept ``avg_cpu_pct``/100 threads busy (its cores where that was not recorded) for its runtime. Where
starts are recorded, the tasks of one machine share P(k) − P(0) of each moment by busy threads; where they are not, each
task is taken to have run alone. Idle watts are no task's: they stand beside, for the whole run. Joules are *modelled*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.model.profile import PowerProfile, Provenance
from wattflow.model.workload import Workload

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BusyStretch:
    """One stretch of work: who, from when to when, how many threads."""

    task: str
    start_s: float
    end_s: float
    threads: float


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """Joules of one node over a stretch of time. ``total_j`` = ``idle_j`` + the tasks'."""

    total_j: float
    idle_j: float
    task_j: Mapping[str, float]


def node_energy(work: Sequence[BusyStretch], curve: PowerProfile, begin_s: float, end_s: float) -> RunEnergy:
    """Integrate P(k) between two moments; P(k) − P(0) is shared by busy threads. O(n log n) in the stretches."""
    events: list[tuple[float, float]] = []
    for stretch in work:
        start, end = max(stretch.start_s, begin_s), min(stretch.end_s, end_s)
        # A stretch of no length or no threads has no joules and would divide by zero.
        if end > start and stretch.threads > 0:
            events += [(start, stretch.threads), (end, -stretch.threads)]
    # Ends sort before starts at the same moment, since a negative change is smaller: no false overlap.
    events.sort()
    # One running integral of watts per busy thread: a task's joules are its threads times the difference over it.
    moments, integral = [begin_s], [0.0]
    now_s, busy, active_j, per_thread = begin_s, 0.0, 0.0, 0.0
    for time_s, change in events:
        # Sums of starts and ends leave rounding behind; below this the node is idle.
        above_w = curve.at(busy) - curve.idle_w if busy > 1e-9 else 0.0
        active_j += above_w * (time_s - now_s)
        per_thread += above_w / busy * (time_s - now_s) if busy > 1e-9 else 0.0
        busy = busy + change
        now_s = time_s
        moments.append(time_s)
        integral.append(per_thread)
    task_j: dict[str, float] = {}
    # Keys are the very floats of the events, so lookups are exact. Of equal moments the last integral
    # counts, which adds nothing to the one before.
    at = dict(zip(moments, integral, strict=True))
    for stretch in work:
        start, end = max(stretch.start_s, begin_s), min(stretch.end_s, end_s)
        if end > start and stretch.threads > 0:
            joules = stretch.threads * (at[end] - at[start])
            task_j[stretch.task] = task_j.get(stretch.task, 0.0) + joules
    idle_j = curve.idle_w * (end_s - begin_s)
    return RunEnergy(idle_j + active_j, idle_j, task_j)


def enrich(
    workload: Workload,
    curves: Mapping[str, PowerProfile],
    default: PowerProfile | None = None,
    error: float | None = None,
) -> Workload:
    """Return the workload with joules, watts, provenance and error band for every task whose machine has a curve.

    Joules that the trace already has are kept: what was measured is not replaced by a model.

    Args:
        curves: By machine name; ``default`` stands for machines that have none, and for tasks without a machine.
        error: Relative error band to write; None where it is not known.
    """
    count = len(workload)
    energy_j = _numbers(workload, "energy_j")
    power_w = _numbers(workload, "avg_power_w")
    band = _numbers(workload, "energy_error")
    provenance = workload.columns.get("energy_provenance", np.full(count, "")).astype(object)
    # Decided once, before anything is written: a trace's own joules stay.
    kept = np.isfinite(energy_j)
    for tasks, curve in _groups(workload, curves, default):
        # A guessed curve makes guessed joules.
        kind = Provenance.GUESSED if curve.provenance is Provenance.GUESSED else Provenance.MODELLED
        modelled_j = _machine_j(workload, tasks, curve)
        fresh = ~kept[tasks] & np.isfinite(modelled_j)
        chosen = tasks[fresh]
        runtime_s = workload.runtime_s[chosen]
        energy_j[chosen] = modelled_j[fresh]
        power_w[chosen] = np.divide(modelled_j[fresh], runtime_s, out=np.full(len(chosen), np.nan), where=runtime_s > 0)
        provenance[chosen] = kind.value
        band[chosen] = np.nan if error is None else error
    labelled = {"energy_j": energy_j, "avg_power_w": power_w, "energy_provenance": provenance.astype(np.str_)}
    if np.isfinite(band).any():
        labelled["energy_error"] = band
    return replace(workload, columns={**workload.columns, **labelled})


def _groups(
    workload: Workload, curves: Mapping[str, PowerProfile], default: PowerProfile | None
) -> Iterator[tuple[Indices, PowerProfile]]:
    """Yield tasks of one workflow on one machine, with the machine's curve."""
    machine = workload.columns.get("machine", np.full(len(workload), ""))
    groups: dict[tuple[int, str], list[int]] = {}
    for task, key in enumerate(zip(workload.workflow.tolist(), machine.tolist(), strict=True)):
        groups.setdefault(key, []).append(task)
    for (_, name), tasks in groups.items():
        curve = curves.get(name, default)
        if curve is not None:
            yield np.array(tasks, np.int64), curve


def _machine_j(workload: Workload, tasks: Indices, curve: PowerProfile) -> Floats:
    """Return joules of the tasks of one machine: together where all starts are known, else each alone."""
    start_s, runtime_s = _numbers(workload, "start_s")[tasks], workload.runtime_s[tasks]
    cores = np.array([shape.variants[0].cores for shape in workload.shapes])[workload.shape[tasks]]
    threads = _numbers(workload, "avg_cpu_pct")[tasks] / 100.0
    threads = np.where(np.isfinite(threads), threads, cores)
    # One unknown start and nobody's overlap is known: each is then taken to have run alone.
    if np.isfinite(start_s).all():
        rows = zip(start_s.tolist(), (start_s + runtime_s).tolist(), threads.tolist(), strict=True)
        work = [BusyStretch(str(i), *row) for i, row in enumerate(rows)]
        shared = node_energy(work, curve, float(start_s.min()), float((start_s + runtime_s).max())).task_j
        return np.array([shared.get(str(i), 0.0) for i in range(len(tasks))])
    return np.array([curve.at(k) - curve.idle_w for k in threads.tolist()]) * runtime_s


def _numbers(workload: Workload, name: str) -> Floats:
    column = workload.columns.get(name)
    return np.full(len(workload), np.nan) if column is None else np.array(column, np.float64)

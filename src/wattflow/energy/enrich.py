"""Energy into recorded workflows: each task's joules through its node's curve, with provenance and error band.

A recorded task kept ``avg_cpu_pct``/100 threads busy (its cores where that was not recorded) for its runtime. Where
starts are recorded, the tasks of one machine share P(k) − P(0) of each moment by busy threads; where they are not, each
task is taken to have run alone. Idle watts are no task's: they stand beside, for the whole run. Joules are *modelled*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wattflow.model.profile import PowerProfile, Provenance
from wattflow.model.workflow import Task, Workflow

ERROR_KNOWN_CURVE = 0.07
"""Relative error to expect of a whole run on a node whose own curve was measured (Ichnos runs: `make bench-enrich`)."""


@dataclass(frozen=True, slots=True)
class Busy:
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


def node_energy(work: Sequence[Busy], curve: PowerProfile, begin_s: float, end_s: float) -> RunEnergy:
    """Joules between two moments: P(k) of each, P(k) − P(0) shared by busy threads. O(n log n) in the stretches."""
    events: list[tuple[float, float]] = []
    for stretch in work:
        start, end = max(stretch.start_s, begin_s), min(stretch.end_s, end_s)
        if end > start and stretch.threads > 0:
            events += [(start, stretch.threads), (end, -stretch.threads)]
    events.sort()
    # One running integral of watts per busy thread: a task's joules are its threads times the difference over it.
    moments, integral = [begin_s], [0.0]
    now_s, busy, active_j, per_thread = begin_s, 0.0, 0.0, 0.0
    for time_s, change in events:
        above_w = curve.at(busy) - curve.idle_w if busy > 1e-9 else 0.0
        active_j += above_w * (time_s - now_s)
        per_thread += above_w / busy * (time_s - now_s) if busy > 1e-9 else 0.0
        busy = busy + change
        now_s = time_s
        moments.append(time_s)
        integral.append(per_thread)
    task_j: dict[str, float] = {}
    at = dict(zip(moments, integral, strict=True))
    for stretch in work:
        start, end = max(stretch.start_s, begin_s), min(stretch.end_s, end_s)
        if end > start and stretch.threads > 0:
            joules = stretch.threads * (at[end] - at[start])
            task_j[stretch.task] = task_j.get(stretch.task, 0.0) + joules
    idle_j = curve.idle_w * (end_s - begin_s)
    return RunEnergy(idle_j + active_j, idle_j, task_j)


def threads_of(task: Task) -> float:
    """Busy threads of a recorded task: measured CPU percent, else the cores of its first variant."""
    if task.avg_cpu_pct is not None:
        return task.avg_cpu_pct / 100.0
    return task.variants[0].cores


def enrich(
    workflow: Workflow,
    curves: Mapping[str, PowerProfile],
    default: PowerProfile | None = None,
    error: float | None = None,
) -> Workflow:
    """The workflow with joules, watts, provenance and error band on every task whose machine has a curve.

    Args:
        curves: By machine name; ``default`` stands for machines that have none.
        error: Relative error band to write; None where it is not known.
    """
    by_machine: dict[str, list[Task]] = {}
    for task in workflow.tasks:
        by_machine.setdefault(task.machine or "", []).append(task)
    joules: dict[str, tuple[float, Provenance]] = {}
    for machine, tasks in by_machine.items():
        curve = curves.get(machine, default)
        if curve is not None:
            provenance = Provenance.GUESSED if curve.provenance is Provenance.GUESSED else Provenance.MODELLED
            joules |= {name: (value, provenance) for name, value in _machine_j(tasks, curve).items()}
    return replace(workflow, tasks=tuple(_labelled(task, joules.get(task.id), error) for task in workflow.tasks))


def _machine_j(tasks: Iterable[Task], curve: PowerProfile) -> dict[str, float]:
    """Joules of the tasks of one machine: together where all starts are known, else each alone."""
    known = [task for task in tasks if task.runtime_s is not None]
    if known and all(task.start_s is not None for task in known):
        work = [Busy(task.id, task.start_s, task.start_s + task.runtime_s, threads_of(task)) for task in known]  # type: ignore[arg-type, operator]
        begin_s, end_s = min(b.start_s for b in work), max(b.end_s for b in work)
        shared = node_energy(work, curve, begin_s, end_s).task_j
        return {task.id: shared.get(task.id, 0.0) for task in known}
    return {task.id: (curve.at(threads_of(task)) - curve.idle_w) * (task.runtime_s or 0.0) for task in known}


def _labelled(task: Task, energy: tuple[float, Provenance] | None, error: float | None) -> Task:
    if energy is None:
        return task
    joules, provenance = energy
    watts = joules / task.runtime_s if task.runtime_s else None
    return replace(task, energy_j=joules, avg_power_w=watts, energy_provenance=provenance, energy_error=error)

"""What has arrived at a live engine of late, and how long its tasks took: what a look back replays.

An engine forgets a workflow when its last task has ended, so this is told of after every step (`note`): it reads the
step's events and placements off the engine's desk. Seconds on a node become seconds on a node of speed 1 by what the
engine expected there. Memory is bounded: the latest workflows, and so many tasks in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import PARKED, READY, UNKNOWN, WAITING
from wattflow.live import protocol as p
from wattflow.live.engine import Engine
from wattflow.live.places import open_flows, tasks_of
from wattflow.live.protocol import Kind
from wattflow.model.workload import Shape, Workload

Floats = NDArray[np.float64]
MOST_FLOWS, MOST_TASKS = 256, 2_000
"""What is kept: a replay of so many tasks takes some tens of milliseconds."""
_LEAST_S = 1e-3
_TENTH = 10
"""A workflow that grows task by task is read again when it has changed as often as a tenth of its tasks."""


@dataclass(slots=True)
class _Flow:
    """A workflow, or a task without one.

    Attributes:
        rows: Of its tasks in the engine, as long as it is open.
        known: As it was read last.
        runtime_s: Of its tasks where known, else NaN.
        row, generation: In the engine, of the workflow or of the task that has none.
        changes: Since it was read.
    """

    rows: list[int]
    known: Workload
    runtime_s: Floats
    loose: bool
    row: int
    generation: int
    changes: int = 0
    open: bool = True


@dataclass(frozen=True, slots=True)
class _Running:
    """An attempt: its task's id, and seconds on its node per second of the task's runtime."""

    task: int
    factor: float
    began_s: float = math.nan


class Arrived:
    """Workflows of late, the latest last.

    Attributes:
        ended: Workflows that have ended, also those that are not kept any more.
    """

    def __init__(self, most_flows: int = MOST_FLOWS, most_tasks: int = MOST_TASKS) -> None:
        self.ended = 0
        self._most_flows, self._most_tasks = most_flows, most_tasks
        self._flows: dict[tuple[bool, int, int], _Flow] = {}
        self._of_task: dict[int, tuple[_Flow, int]] = {}
        self._running: dict[int, _Running] = {}
        self._begun = False

    def __len__(self) -> int:
        return len(self._flows)

    def note(self, engine: Engine, now_s: float) -> None:
        """After each step: who has come, what began and what ended."""
        if not self._begun:  # what is there already when watching begins
            self._begun = True
            flows, loose = open_flows(engine.state)
            self._read(engine, flows, loose)
        events = np.asarray(engine._desk.events[: engine._told_last])
        if len(events):
            self._hear(engine, events, now_s)
        for row in np.asarray(engine._desk.placements[: int(engine._desk.words.placements[0])]):
            self._place(engine, row)
        ended = engine.state.ended[: int(engine.state.counts.ended_n[0])]
        if len(ended):
            self._close(engine, ended["task"].tolist())

    def _hear(self, engine: Engine, events: NDArray[np.void], now_s: float) -> None:
        """The events that the step folded, in its order: kinds after kinds."""
        kinds = events["kind"]
        came = [*events["who"][kinds == Kind.TASK].tolist(), *events["other"][kinds == Kind.EDGE].tolist()]
        if came:
            self._come(engine, came)
        for attempt in events["who"][kinds == Kind.STARTED].tolist():
            if attempt in self._running:
                one = self._running[attempt]
                self._running[attempt] = _Running(one.task, one.factor, now_s)
        for attempt in events["who"][kinds == Kind.FINISHED].tolist():
            self._finish(attempt, now_s)
        for attempt in events["who"][(kinds == Kind.FAILED) | (kinds == Kind.REFUSED)].tolist():
            self._running.pop(attempt, None)

    def _come(self, engine: Engine, tasks: Sequence[int]) -> None:
        """Tasks were put or got another parent: their workflows are read, those that grow bit by bit now and then."""
        generations, owners = engine.state.marks["generation"], engine.state.tasks["workflow"]
        there = [
            p.row_of(task)
            for task in dict.fromkeys(tasks)
            if int(generations[p.row_of(task)]) & p.GENERATION_MASK == (task >> p.ROW_BITS) & p.GENERATION_MASK
        ]
        flows = list(dict.fromkeys(int(owners[row]) for row in there if owners[row] > 0))
        due = []
        for flow in flows:
            known = self._flows.get((False, flow, int(engine.state.workflows["generation"][flow])))
            if known is not None:
                known.changes += 1
            if known is None or known.changes * _TENTH >= len(known.rows):
                due.append(flow)
        self._read(engine, due, [row for row in there if owners[row] == 0])

    def _read(self, engine: Engine, flows: Sequence[int], loose: Sequence[int]) -> None:
        state = engine.state
        parts = [(False, flow, int(state.workflows["generation"][flow]), tasks_of(state, flow)) for flow in flows]
        parts += [(True, row, int(state.marks["generation"][row]), [row]) for row in loose]
        for alone, row, generation, rows in parts:
            found = engine.known([], [row]) if alone else engine.known([row])
            if found is None:
                continue
            before = self._flows.get((alone, row, generation))
            runtime_s = np.full(len(rows), np.nan)
            if before is not None:  # tasks are listed in the order in which they came
                runtime_s[: len(before.runtime_s)] = before.runtime_s
            flow = _Flow(rows, found, runtime_s, alone, row, generation)
            self._flows[alone, row, generation] = flow
            for i, task in enumerate(rows):
                self._of_task[p.make_id(p.TASK_ID, task, int(state.marks["generation"][task]))] = (flow, i)
        self._forget()

    def _forget(self) -> None:
        """The oldest, where there are too many."""
        tasks = sum(len(flow.rows) for flow in self._flows.values())
        while len(self._flows) > self._most_flows or (tasks > self._most_tasks and len(self._flows) > 1):
            gone = self._flows.pop(next(iter(self._flows)))
            tasks -= len(gone.rows)
            self._of_task = {task: where for task, where in self._of_task.items() if where[0] is not gone}

    def _place(self, engine: Engine, placement: np.void) -> None:
        identity, task = int(placement["attempt"]), int(placement["task"])
        attempt = engine.state.attempts[p.row_of(identity)]
        estimate_s = float(engine.state.tasks["estimate"][p.row_of(task)])
        planned_s = float(attempt["end"]) - float(attempt["placed"])
        known = math.isfinite(planned_s) and planned_s > 0 and estimate_s > 0
        self._running[identity] = _Running(task, planned_s / estimate_s if known else 1.0)

    def _finish(self, attempt: int, now_s: float) -> None:
        one = self._running.pop(attempt, None)
        where = None if one is None else self._of_task.get(one.task)
        if one is None or where is None or math.isnan(one.began_s):
            return
        flow, i = where
        seconds = max(_LEAST_S, (now_s - one.began_s) / one.factor)
        flow.runtime_s[i] = np.fmax(flow.runtime_s[i], seconds)  # of a gang the longest part

    def _close(self, engine: Engine, ended: Sequence[int]) -> None:
        """Workflows whose last task has ended, and tasks without one."""
        for task in ended:
            flow, _ = self._of_task.get(task, (None, 0))
            if flow is None or not flow.open:
                continue
            if flow.loose or int(engine.state.workflows["generation"][flow.row]) != flow.generation:
                flow.open = False
                self.ended += 1

    def workload(self, engine: Engine, left: Floats) -> Workload | None:
        """All that is kept, when it came, with the runtimes that are known by now; None where there is nothing.

        Args:
            left: What is left of every task in the engine, as drawn: taken for what has not begun. What runs takes as
                long as is estimated, since what is left of it is no runtime.
        """
        parts = [_seen(flow, engine, left) for flow in self._flows.values()]
        return together(parts) if parts else None


def _seen(flow: _Flow, engine: Engine, left: Floats) -> Workload:
    """With the runtimes that are known by now. What was cancelled and placeholders without an estimate take no time."""
    known, tasks = flow.known, engine.state.tasks
    estimate_s = np.where(known.estimate_s > 0, known.estimate_s, np.nan)
    guess_s = np.where(np.isfinite(estimate_s), estimate_s, _LEAST_S)
    if flow.open:
        rows = np.array(flow.rows, np.int64)
        told, states = np.asarray(tasks["estimate"])[rows], np.asarray(tasks["state"])[rows]
        estimate_s = np.where(np.isfinite(told) & (told > 0), told, estimate_s)
        guess_s = np.where(np.isfinite(estimate_s), estimate_s, np.where(states == UNKNOWN, _LEAST_S, left[rows]))
        guess_s = np.where(np.isin(states, (WAITING, READY, PARKED)), left[rows], guess_s)
    runtime_s = np.where(np.isfinite(flow.runtime_s), flow.runtime_s, guess_s)
    return replace(known, runtime_s=runtime_s, estimate_s=estimate_s)


def together(parts: Sequence[Workload]) -> Workload:
    """Workflows of one engine as one workload, in their order, each when it came."""
    shapes: dict[Shape, int] = {}
    number = [np.array([shapes.setdefault(one, len(shapes)) for one in part.shapes], np.int32) for part in parts]
    sizes = np.array([len(part) for part in parts])
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    flows = np.concatenate([[0], np.cumsum([len(part.workflow_names) for part in parts])[:-1]])
    child = [np.repeat(np.arange(len(part)), np.diff(part.parent_start)) for part in parts]
    return Workload.of_columns(
        "arrived",
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("release_s", "runtime_s", "estimate_s", "input_bytes", "output_bytes", "deadline_s",
                         "workflow_submit_s")
        },
        shapes=tuple(shapes),
        functions=max((part.functions for part in parts), key=len),  # an engine only learns of more
        shape=np.concatenate([which[part.shape] for which, part in zip(number, parts, strict=True)]),
        workflow=np.concatenate([part.workflow + at for part, at in zip(parts, flows, strict=True)]),
        edges=(
            np.concatenate([part.parent + at for part, at in zip(parts, base, strict=True)]),
            np.concatenate([one + at for one, at in zip(child, base, strict=True)]),
        ),
        edge_bytes=np.concatenate([part.parent_bytes for part in parts]),
    )  # fmt: skip


__all__ = ["MOST_FLOWS", "MOST_TASKS", "Arrived", "together"]

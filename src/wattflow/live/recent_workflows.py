"""Workflows that arrived at a live engine of late, and how long their tasks took: a look back replays them.

An engine forgets a workflow when its last task has ended, so this is told of after every step (`note`): it reads the
step's events and placements off the engine's desk. Seconds on a node become seconds on a node of speed 1 by what the
engine expected there. Memory is bounded: the latest workflows, and so many tasks in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import PARKED, PLACED, READY, UNKNOWN, WAITING
from wattflow.live import protocol as p
from wattflow.live.engine import Engine
from wattflow.live.protocol import Kind
from wattflow.live.step_buffers import WORDS
from wattflow.live.workflow_notes import tasks_of
from wattflow.model.workload import Workload
from wattflow.policy import arrivals
from wattflow.policy.base import Seen

Floats = NDArray[np.float64]
MOST_FLOWS, MOST_TASKS = 256, 2_000
"""Workflows and tasks that are kept: a replay of so many tasks takes some tens of milliseconds."""
# As plain integers: members of an enumeration take ten times as long to compare.
_HEARD = _TASK, _EDGE, _STARTED, _FINISHED, _FAILED, _REFUSED, _SEAL = tuple(
    int(kind) for kind in (Kind.TASK, Kind.EDGE, Kind.STARTED, Kind.FINISHED, Kind.FAILED, Kind.REFUSED, Kind.SEAL)
)
_PLACED_N, _ENDED_N = (list(WORDS.names or ()).index(name) for name in ("placements", "ended"))
_OPEN = (WAITING, READY, PLACED, PARKED, UNKNOWN)
_LEAST_S = 1e-3
_TOGETHER = 64
"""Tasks without a workflow that are read and forgotten together."""
_SPARE = 64
"""Attempts that may be remembered beyond twice those that run, before lost ones are looked for."""
_TENTH = 10
"""A workflow that grows task by task is read again when it has changed as often as a tenth of its tasks."""


@dataclass(slots=True, eq=False)
class _Part:
    """A workflow, or some tasks without one that came together.

    Attributes:
        rows: Of its tasks in the engine.
        known: As it was read last.
        runtime_s: Of its tasks where known, else NaN.
        gone: Whose rows are not theirs any more.
        end_s: When its tasks left the engine: those of a workflow together, with the workflow; NaN before.
        flow: The workflow's row and generation in the engine; None without one.
        changes: Since it was read.
        told: Its workflows as they are told, and which of its tasks are theirs; found when they are first asked for.
    """

    rows: NDArray[np.int64]
    known: Workload
    runtime_s: Floats
    gone: NDArray[np.bool_]
    end_s: Floats
    flow: tuple[int, int] | None
    changes: int = 0
    told: list[tuple[NDArray[np.int64], Workload]] = field(default_factory=list)


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
        forgotten: Workflows that are not kept any more.
    """

    def __init__(self, most_flows: int = MOST_FLOWS, most_tasks: int = MOST_TASKS) -> None:
        self.ended = self.forgotten = 0
        self._most_flows, self._most_tasks = most_flows, most_tasks
        self._parts: list[_Part] = []
        self._of_flow: dict[tuple[int, int], _Part] = {}
        self._of_task: dict[int, tuple[_Part, int]] = {}
        self._running: dict[int, _Running] = {}
        self._begun, self._since_s = False, -math.inf

    def __len__(self) -> int:
        return len(self._parts)

    def note(self, engine: Engine, now_s: float) -> None:
        """Note after each step who has come, what began and what ended."""
        events, sealed = np.asarray(engine._desk.events[: engine._told_last]), False
        if not self._begun:  # what is there already when watching begins, this step's among it
            self._begun = True
            rows = np.flatnonzero(np.isin(np.asarray(engine.state.tasks["state"]), _OPEN))
            owners = np.asarray(engine.state.tasks["workflow"])[rows]
            self._read(engine, np.unique(owners[owners > 0]).tolist(), rows[owners == 0].tolist())
        elif len(events):
            sealed = self._hear(engine, events, now_s)
        words = engine._words.item()  # in one call: a field of a record takes as long as the rest of a quiet step
        placed_n, ended_n = words[_PLACED_N], words[_ENDED_N]
        if placed_n:
            placed = np.asarray(engine._desk.placements[:placed_n])
            self._place(engine, placed["attempt"], placed["task"])
        if ended_n:
            self._close_loose(engine.state.ended["task"][:ended_n].tolist(), now_s)
        if ended_n or sealed:
            self._close_flows(engine, now_s)
        # Twice what runs: the search is paid by as many placements.
        if len(self._running) > _SPARE and len(self._running) > _SPARE + 2 * int(engine.state.counts.running[0]):
            self._drop_lost(engine)

    def begin_anew(self, now_s: float) -> None:
        """Forget all, and watch only workflows that come from now on: what steps decided meanwhile is nobody's here."""
        self.forgotten = self.arrived
        for kept in (self._parts, self._of_flow, self._of_task, self._running):
            kept.clear()
        self._begun, self._since_s = True, now_s

    def _hear(self, engine: Engine, events: NDArray[np.void], now_s: float) -> bool:
        """Read the events that the step folded, in its order: kinds after kinds. Tell whether a workflow was sealed."""
        who: dict[int, list[int]] = {kind: [] for kind in _HEARD}
        # Most steps have an event or two: a loop over them takes a third of what masks by kind do.
        for kind, whom, other, *_ in events.tolist():
            if kind in who:
                who[kind].append(other if kind == _EDGE else whom)
        came = who[_TASK] + who[_EDGE]
        if came:
            self._come(engine, came)
        for attempt in who[_STARTED]:
            if attempt in self._running:
                one = self._running[attempt]
                self._running[attempt] = _Running(one.task, one.factor, now_s)
        for attempt in who[_FINISHED]:
            self._finish(attempt, now_s)
        for attempt in who[_FAILED] + who[_REFUSED]:
            self._running.pop(attempt, None)
        return bool(who[_SEAL])

    def _come(self, engine: Engine, tasks: Sequence[int]) -> None:
        """Read the workflows of tasks that were put or got another parent; those that grow bit by bit now and then."""
        generations, owners = engine.state.marks["generation"], engine.state.tasks["workflow"]
        there = [
            p.row_of(task)
            for task in dict.fromkeys(tasks)
            if int(generations[p.row_of(task)]) & p.GENERATION_MASK == (task >> p.ROW_BITS) & p.GENERATION_MASK
        ]
        submit_s = engine.state.workflows["submit"]
        flows = [
            flow
            for flow in dict.fromkeys(int(owners[row]) for row in there if owners[row] > 0)
            if submit_s[flow] >= self._since_s
        ]
        due = []
        for flow in flows:
            known = self._of_flow.get((flow, int(engine.state.workflows["generation"][flow])))
            if known is not None:
                known.changes += 1
            if known is None or known.changes * _TENTH >= len(known.rows):
                due.append(flow)
        self._read(engine, due, [row for row in there if owners[row] == 0])

    def _read(self, engine: Engine, flows: Sequence[int], loose: Sequence[int]) -> None:
        for flow in flows:
            known = engine.known([flow])
            if known is not None:
                key = (flow, int(engine.state.workflows["generation"][flow]))
                self._keep(engine, np.array(tasks_of(engine.state, flow), np.int64), known, key)
        for first in range(0, len(loose), _TOGETHER):
            some = loose[first : first + _TOGETHER]
            known = engine.known([], some)
            assert known is not None
            self._keep(engine, np.array(some, np.int64), known, None)
        self._forget()

    def _keep(self, engine: Engine, rows: NDArray[np.int64], known: Workload, flow: tuple[int, int] | None) -> None:
        part = _Part(
            rows, known, np.full(len(rows), np.nan), np.zeros(len(rows), np.bool_), np.full(len(rows), np.nan), flow
        )
        before = None if flow is None else self._of_flow.get(flow)
        if before is None:
            self._parts.append(part)
        else:  # tasks are listed in the order in which they came
            part.runtime_s[: len(before.runtime_s)] = before.runtime_s
            self._parts[self._parts.index(before)] = part
        if flow is not None:
            self._of_flow[flow] = part
        for i, (row, generation) in enumerate(zip(rows.tolist(), engine.state.marks["generation"][rows], strict=True)):
            self._of_task[p.make_id(p.TASK_ID, row, int(generation))] = (part, i)

    def _forget(self) -> None:
        """Forget the oldest, where there are too many."""
        tasks, many = sum(len(part.rows) for part in self._parts), 0
        while len(self._parts) - many > self._most_flows or (tasks > self._most_tasks and len(self._parts) - many > 1):
            tasks -= len(self._parts[many].rows)
            many += 1
        if many:
            gone = {id(part) for part in self._parts[:many]}
            self.forgotten += sum(len(part.known.workflow_names) for part in self._parts[:many])
            del self._parts[:many]
            self._of_task = {task: where for task, where in self._of_task.items() if id(where[0]) not in gone}
            self._of_flow = {flow: part for flow, part in self._of_flow.items() if id(part) not in gone}

    def _place(self, engine: Engine, attempt: NDArray[np.int64], task: NDArray[np.int64]) -> None:
        """Note what began to hold a place: how long it was expected to be there says how fast its node is for it."""
        rows = attempt & p.ROW_MASK
        estimates_s = engine.state.tasks["estimate"][task & p.ROW_MASK]
        planned_s = engine.state.attempts["end"][rows] - engine.state.attempts["placed"][rows]
        found = zip(attempt.tolist(), task.tolist(), planned_s.tolist(), estimates_s.tolist(), strict=True)
        for identity, whose, taken_s, estimate_s in found:
            known = 0 < taken_s < math.inf and estimate_s > 0
            self._running[identity] = _Running(whose, taken_s / estimate_s if known else 1.0)

    def _finish(self, attempt: int, now_s: float) -> None:
        one = self._running.pop(attempt, None)
        where = None if one is None else self._of_task.get(one.task)
        if one is None or where is None or math.isnan(one.began_s):
            return
        part, i = where
        seconds = max(_LEAST_S, (now_s - one.began_s) / one.factor)
        # fmax: NaN is no runtime yet.
        part.runtime_s[i] = np.fmax(part.runtime_s[i], seconds)  # of a gang the longest member

    def _close_loose(self, ended: Sequence[int], now_s: float) -> None:
        """Close tasks without a workflow that have ended."""
        for task in ended:
            part, i = self._of_task.get(task, (None, 0))
            if part is not None and part.flow is None and not part.gone[i]:
                part.gone[i], part.end_s[i] = True, now_s
                self.ended += 1

    def _close_flows(self, engine: Engine, now_s: float) -> None:
        """Close workflows that are over: their rows are others' now. One may be sealed after its last end."""
        generations = engine.state.workflows["generation"]
        for flow, part in list(self._of_flow.items()):
            if int(generations[flow[0]]) != flow[1]:
                del self._of_flow[flow]
                part.gone[:], part.end_s[:] = True, now_s
                self.ended += 1

    def _drop_lost(self, engine: Engine) -> None:
        """Drop attempts of which no end was told: lost with their nodes, or preempted."""
        generations = engine.state.attempts["generation"]
        self._running = {
            attempt: one
            for attempt, one in self._running.items()
            if int(generations[p.row_of(attempt)]) & p.GENERATION_MASK == (attempt >> p.ROW_BITS) & p.GENERATION_MASK
        }

    @property
    def arrived(self) -> int:
        """Return workflows that have arrived, also those that are not kept any more."""
        return self.forgotten + sum(len(part.known.workflow_names) for part in self._parts)

    def seen(self) -> Seen:
        """List all that is kept, for what steers a policy: a task without a workflow is a workflow of its own."""
        flows, runtime_s, end_s = [], [], []
        for part in self._parts:
            if not part.told:
                known = part.known.with_estimates(np.where(part.known.estimate_s > 0, part.known.estimate_s, np.nan))
                part.told = list(arrivals.workflows(known))
            for rows, one in part.told:
                flows.append(one)
                runtime_s.append(part.runtime_s[rows])
                end_s.append(float(part.end_s[rows].max()))
        return Seen(self.forgotten, flows, runtime_s, np.array(end_s))


__all__ = ["MOST_FLOWS", "MOST_TASKS", "Arrived"]

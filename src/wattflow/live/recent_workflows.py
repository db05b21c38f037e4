"""Workflows that arrived at a live engine of late, and how long their tasks took: a look back replays them.

An engine forgets a workflow when its last task has ended, so this is told of every step, in two halves. `note` copies
what the step folded and decided, within the step; `read` goes through the copies when what was decided has been handed
out. Seconds on a node become seconds on a node of speed 1 by what the engine expected there. Memory is bounded: the
latest workflows, and so many tasks in all. `told` is what has changed since it was asked last, each workflow packed
once, when it came; `ArrivedWindow` puts that together again, in another process.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import PARKED, PLACED, READY, UNKNOWN, WAITING
from wattflow.live import protocol as p
from wattflow.live.engine import Engine
from wattflow.live.protocol import Kind, Step
from wattflow.live.step_buffers import EVENT
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
        number: Of its arrival among parts; a workflow that is read again keeps it.
        count: Workflows in it.
        packed: As it was read last, as it is told.
        tasks: Their ids.
        runtime_s: Of its tasks where known, else NaN.
        gone: Whose rows are not theirs any more.
        end_s: When its tasks left the engine: those of a workflow together, with the workflow; NaN before.
        flow: The workflow's row and generation in the engine; None without one.
        changes: Since it was read.
    """

    number: int
    count: int
    packed: bytes
    tasks: list[int]
    runtime_s: Floats
    gone: NDArray[np.bool_]
    end_s: Floats
    flow: tuple[int, int] | None
    changes: int = 0

    def __len__(self) -> int:
        return len(self.runtime_s)


@dataclass(frozen=True, slots=True)
class _Running:
    """An attempt: its task's id, and seconds on its node per second of the task's runtime."""

    task: int
    factor: float
    began_s: float = math.nan


class _Noted(NamedTuple):
    """A step: when, the events that it folded as bytes of `EVENT`, and what it decided."""

    now_s: float
    events: bytes
    step: Step


@dataclass(frozen=True, slots=True)
class ArrivedNews:
    """Tell an `ArrivedWindow` of all that has changed since the last news.

    Attributes:
        forgotten: Workflows that are not kept any more.
        first: The first part that is kept.
        came: Parts that came or were read again, packed, by number.
        times: Runtimes and ends of the tasks of parts that changed, by number.
        anew: All that is kept is told; what was told before counts no longer.
    """

    forgotten: int
    first: int
    came: dict[int, bytes]
    times: dict[int, tuple[Floats, Floats]]
    anew: bool


class Arrived:
    """Workflows of late, the latest last.

    Attributes:
        arrived: Workflows that have arrived, also those that are not kept any more.
        ended: Workflows that have ended, also those that are not kept any more.
        forgotten: Workflows that are not kept any more.
    """

    def __init__(self, most_flows: int = MOST_FLOWS, most_tasks: int = MOST_TASKS) -> None:
        self.arrived = self.ended = self.forgotten = 0
        self._most_flows, self._most_tasks = most_flows, most_tasks
        self._noted: list[_Noted] = []
        self._parts: dict[int, _Part] = {}
        self._parts_n = self._tasks_n = 0
        self._came, self._changed = set[int](), set[int]()
        self._of_flow: dict[tuple[int, int], _Part] = {}
        self._of_task: dict[int, tuple[_Part, int]] = {}
        self._running: dict[int, _Running] = {}
        self._begun, self._since_s = False, -math.inf

    def __len__(self) -> int:
        return len(self._parts)

    def note(self, engine: Engine, now_s: float, step: Step) -> None:
        """Copy what a step told, before the next event is put in its place: the rest is `read` later."""
        if engine._told_last or step.placements or step.ended or not self._begun:
            self._noted.append(_Noted(now_s, engine._inbox.copy_of(engine._told_last), step))

    def read(self, engine: Engine) -> None:
        """Read who has come, what began and what ended in the steps that were noted."""
        noted, self._noted = self._noted, []
        for one in noted:
            self._read_step(engine, one)
        # Twice what runs: the search is paid by as many placements.
        if len(self._running) > _SPARE and len(self._running) > _SPARE + 2 * int(engine.state.counts.running[0]):
            self._drop_lost(engine)

    def _read_step(self, engine: Engine, noted: _Noted) -> None:
        sealed, now_s, step = False, noted.now_s, noted.step
        if not self._begun:  # what is there already when watching begins, this step's among it
            self._begun = True
            rows = np.flatnonzero(np.isin(np.asarray(engine.state.tasks["state"]), _OPEN))
            owners = np.asarray(engine.state.tasks["workflow"])[rows]
            self._take_in(engine, np.unique(owners[owners > 0]).tolist(), rows[owners == 0].tolist())
        elif noted.events:
            sealed = self._hear(engine, np.frombuffer(noted.events, EVENT), now_s)
        if step.placements:
            self._place(engine, [one.attempt for one in step.placements], [one.task for one in step.placements])
        if step.ended:
            self._close_loose([one.task for one in step.ended], now_s)
        if step.ended or sealed:
            self._close_flows(engine, now_s)

    def begin_anew(self, now_s: float) -> None:
        """Forget all, and watch only workflows that come from now on: what steps decided meanwhile is nobody's here."""
        self.forgotten, self._tasks_n = self.arrived, 0
        for kept in (self._noted, self._parts, self._came, self._changed, self._of_flow, self._of_task, self._running):
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
            # One without a workflow was read when watching began, if steps were noted before.
            and not (owners[p.row_of(task)] == 0 and task in self._of_task)
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
            if known is None or known.changes * _TENTH >= len(known):
                due.append(flow)
        self._take_in(engine, due, [row for row in there if owners[row] == 0])

    def _take_in(self, engine: Engine, flows: Sequence[int], loose: Sequence[int]) -> None:
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
        before = None if flow is None else self._of_flow.get(flow)
        number, count, packed = self._parts_n, len(known.workflow_names), pickle.dumps(known, pickle.HIGHEST_PROTOCOL)
        runtime_s, end_s = np.full((2, len(rows)), np.nan)
        if before is None:
            self._parts_n, self.arrived = self._parts_n + 1, self.arrived + count
        else:  # tasks are listed in the order in which they came
            number = before.number
            runtime_s[: len(before)] = before.runtime_s
            self._tasks_n -= len(before)
        generations = engine.state.marks["generation"][rows].tolist()
        tasks = [p.make_id(p.TASK_ID, *task) for task in zip(rows.tolist(), generations, strict=True)]
        part = _Part(number, count, packed, tasks, runtime_s, np.zeros(len(rows), np.bool_), end_s, flow)
        self._parts[number] = part
        self._tasks_n += len(rows)
        self._came.add(number)
        self._changed.add(number)
        if flow is not None:
            self._of_flow[flow] = part
        self._of_task.update((task, (part, i)) for i, task in enumerate(tasks))

    def _forget(self) -> None:
        """Forget the oldest, where there are too many."""
        while (left := len(self._parts)) > self._most_flows or (self._tasks_n > self._most_tasks and left > 1):
            part = self._parts.pop(next(iter(self._parts)))
            self._tasks_n -= len(part)
            self.forgotten += part.count
            for told in (self._came, self._changed):
                told.discard(part.number)
            for task in part.tasks:
                self._of_task.pop(task, None)
            if part.flow is not None:
                self._of_flow.pop(part.flow, None)

    def _place(self, engine: Engine, attempts: Sequence[int], tasks: Sequence[int]) -> None:
        """Note what began to hold a place: how long it was expected to be there says how fast its node is for it."""
        rows = np.array(attempts, np.int64) & p.ROW_MASK
        estimates_s = engine.state.tasks["estimate"][np.array(tasks, np.int64) & p.ROW_MASK]
        planned_s = engine.state.attempts["end"][rows] - engine.state.attempts["placed"][rows]
        generations = engine.state.attempts["generation"][rows].tolist()
        found = zip(attempts, tasks, generations, planned_s.tolist(), estimates_s.tolist(), strict=True)
        for identity, whose, generation, taken_s, estimate_s in found:
            # Its row may be another's by now, where several steps were made before this is read.
            if generation & p.GENERATION_MASK == (identity >> p.ROW_BITS) & p.GENERATION_MASK:
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
        self._changed.add(part.number)

    def _close_loose(self, ended: Sequence[int], now_s: float) -> None:
        """Close tasks without a workflow that have ended."""
        for task in ended:
            part, i = self._of_task.get(task, (None, 0))
            if part is not None and part.flow is None and not part.gone[i]:
                part.gone[i], part.end_s[i] = True, now_s
                self._changed.add(part.number)
                self.ended += 1

    def _close_flows(self, engine: Engine, now_s: float) -> None:
        """Close workflows that are over: their rows are others' now. One may be sealed after its last end."""
        generations = engine.state.workflows["generation"]
        for flow, part in list(self._of_flow.items()):
            if int(generations[flow[0]]) != flow[1]:
                del self._of_flow[flow]
                part.gone[:], part.end_s[:] = True, now_s
                self._changed.add(part.number)
                self.ended += 1

    def _drop_lost(self, engine: Engine) -> None:
        """Drop attempts of which no end was told: lost with their nodes, or preempted."""
        generations = engine.state.attempts["generation"]
        self._running = {
            attempt: one
            for attempt, one in self._running.items()
            if int(generations[p.row_of(attempt)]) & p.GENERATION_MASK == (attempt >> p.ROW_BITS) & p.GENERATION_MASK
        }

    def told(self, anew: bool = False) -> ArrivedNews:
        """Tell what has changed since this was asked last, or all that is kept."""
        came, changed = (set(self._parts), set(self._parts)) if anew else (self._came, self._changed)
        self._came, self._changed = set(), set()
        return ArrivedNews(
            self.forgotten,
            next(iter(self._parts), self._parts_n),
            {number: self._parts[number].packed for number in sorted(came)},
            # Copies: they are packed in another thread, while the next step is read.
            {n: (self._parts[n].runtime_s.copy(), self._parts[n].end_s.copy()) for n in sorted(changed)},
            anew,
        )


class ArrivedWindow:
    """Hold a copy of what an `Arrived` keeps, made from its news."""

    def __init__(self) -> None:
        self._flows: dict[int, list[tuple[NDArray[np.int64], Workload]]] = {}
        self._times: dict[int, tuple[Floats, Floats]] = {}

    def take(self, told: ArrivedNews) -> Seen:
        """List all that is kept, for what steers a policy: a task without a workflow is a workflow of its own."""
        kept = {} if told.anew else {number: one for number, one in self._flows.items() if number >= told.first}
        # A workflow that is read again keeps its place.
        self._flows = kept | {number: _unpacked(packed) for number, packed in told.came.items()}
        times = self._times | told.times
        self._times = {number: times[number] for number in self._flows}
        flows, runtime_s, end_s = [], [], []
        for number, parts in self._flows.items():
            times_s, ends_s = self._times[number]
            for rows, flow in parts:
                flows.append(flow)
                runtime_s.append(times_s[rows])
                end_s.append(float(ends_s[rows].max()))
        return Seen(told.forgotten, flows, runtime_s, np.array(end_s))


def _unpacked(packed: bytes) -> list[tuple[NDArray[np.int64], Workload]]:
    """List the workflows of a part as they are told, each with which of its tasks are theirs."""
    known: Workload = pickle.loads(packed)
    return list(arrivals.workflows(known.with_estimates(np.where(known.estimate_s > 0, known.estimate_s, np.nan))))


__all__ = ["MOST_FLOWS", "MOST_TASKS", "Arrived", "ArrivedNews", "ArrivedWindow"]

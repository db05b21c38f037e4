"""Records as scenarios to learn from: journals of a live engine, and attempts of finished runs.

A journal (`wattflow.live.journal`) is replayed: the engine is deterministic, so its steps say where every attempt ran,
and reports say when. Seconds on a node become seconds on a node of speed 1 by what the engine knew of the node; how
crowded the node was is not taken out. Tasks whose end is not in the journal are left out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.live import fork, journal
from wattflow.live.engine import Engine
from wattflow.live.object_codec import Decoder
from wattflow.live.protocol import LOOSE, Kind, Placement, row_of
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions

Floats = NDArray[np.float64]
FEWEST = 4
"""Workflows of a block."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Workflows that came one after the other on a cluster: a scenario whose workload is what was recorded.

    Attributes:
        runtime_error, power_error: How wrong estimates and watts are taken to be when it is replayed.
    """

    name: str
    cluster: Cluster
    workload: Workload
    runtime_error: float = 0.2
    power_error: float = 0.0

    @property
    def options(self) -> SimOptions:
        return SimOptions(runtime_error=self.runtime_error, power_error=self.power_error)

    def draw(self, seed: int) -> Workload:
        """Draw the same work for every seed: what differs is by how much estimates err."""
        return self.workload


@dataclass(slots=True)
class _Task:
    shape: int
    workflow: int
    release_s: float
    estimate_s: float
    deadline_s: float
    input_bytes: float
    runtime_s: float = math.nan


class _Tape:
    """Takes the calls of a journal down, as the engine carries them out."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shapes: dict[int, tuple[tuple[Variant, ...], str, int]] = {}
        self.tasks: dict[int, _Task] = {}
        self.edges: list[tuple[int, int, float]] = []
        self.submit_s: dict[int, float] = {}
        self._placed: dict[int, tuple[Placement, float]] = {}
        self._began: dict[int, float] = {}
        self._new: list[_Task] = []
        self._reports: list[tuple[Kind, int]] = []

    def take(self, name: str, given: Sequence[Any], fields: Mapping[str, Any], told: Any) -> None:
        """Note one call and what it gave."""
        if name == "shape" and told is not None:
            named = dict(zip(("variants", "function", "parts"), given, strict=False)) | dict(fields)
            function = named.get("function", "task")
            title = function.name if isinstance(function, Function) else str(function)
            self.shapes[told] = (tuple(named["variants"]), title, int(named.get("parts", 1)))
        elif name == "workflow" and told is not None:
            submit = given[0] if given else fields.get("submit_s")
            self.submit_s[told] = self._now() if submit is None else float(submit)
        elif name == "put":
            self._put(Kind(given[0]), given[1:], fields, told)
        elif name == "step":
            self._step(float(given[0] if given else fields["now_s"]), told)

    def _now(self) -> float:
        return float(self.engine.state.clock["now"][0])

    def _put(self, kind: Kind, who: Sequence[Any], fields: Mapping[str, Any], told: Any) -> None:
        if kind == Kind.TASK and told is not None and who[0] in self.shapes:
            named = dict(zip(("shape", "workflow"), who, strict=False)) | dict(fields)
            numbers = [named.get(one) for one in ("release_s", "estimate_s", "deadline_s", "input_bytes")]
            release, estimate, deadline, size = numbers
            made = _Task(
                named["shape"],
                named.get("workflow", LOOSE) or -int(told),
                math.nan if release is None else float(release),
                math.nan if estimate is None else float(estimate),
                math.inf if deadline is None else float(deadline),
                float(size or 0.0),
            )
            self.tasks[told] = made
            self._new.append(made)
        elif kind == Kind.EDGE and len(who) >= 2:
            self.edges.append((who[0], who[1], float(who[2] if len(who) > 2 else fields.get("size_bytes", 0.0))))
        elif kind == Kind.ESTIMATE and who[0] in self.tasks:
            self.tasks[who[0]].estimate_s = float(who[1] if len(who) > 1 else fields["estimate_s"])
        elif kind in (Kind.STARTED, Kind.FINISHED):
            self._reports.append((kind, who[0]))

    def _step(self, now_s: float, told: Any) -> None:
        """Read a step: reports count from the step that folds them; placements are this step's."""
        for task in self._new:
            task.release_s = now_s if math.isnan(task.release_s) else task.release_s
        self._new.clear()
        for kind, attempt in self._reports:
            if kind == Kind.STARTED:
                self._began[attempt] = now_s
            elif attempt in self._placed:
                placement, factor = self._placed[attempt]
                if placement.task in self.tasks:
                    seconds = now_s - self._began.get(attempt, now_s)
                    self.tasks[placement.task].runtime_s = max(1e-3, seconds / factor)
        self._reports.clear()
        for placement in getattr(told, "placements", ()):
            self._placed[placement.attempt] = placement, self._factor(placement)

    def _factor(self, placement: Placement) -> float:
        """Return seconds on the node per second of the task's runtime, alone there, by what the engine knows."""
        state = self.engine.state
        shape = state.shapes[int(state.tasks["form"][row_of(placement.task)])]
        cls = int(state.nodes["cls"][row_of(placement.node)])
        factor = 1.0 / float(state.speed[cls, int(shape["function"])])
        task = self.tasks.get(placement.task)
        if task is not None:
            factor *= self.shapes[task.shape][0][placement.variant].runtime_factor
        if placement.frequency > 0:
            bound = float(state.functions["compute_bound"][int(shape["function"])])
            factor *= (1.0 - bound) + bound / float(state.frequency_speed[cls, placement.frequency])
        return factor

    def workload(self, name: str) -> Workload:
        """List all that ended, in the order in which it came."""
        known = {one: task for one, task in self.tasks.items() if math.isfinite(task.runtime_s)}
        if not known:
            raise InvalidInput(name, "no task that began and ended is in this journal: there is nothing to learn from")
        flows = list(dict.fromkeys(task.workflow for task in known.values()))
        at = {identity: i for i, identity in enumerate(known)}
        used = list(dict.fromkeys(task.shape for task in known.values()))
        titles = list(dict.fromkeys(self.shapes[one][1] for one in used))
        shapes = tuple(
            Shape(titles.index(title), variants, parts) for variants, title, parts in (self.shapes[u] for u in used)
        )
        edges = [(at[a], at[b], size) for a, b, size in self.edges if a in at and b in at]
        first = min(task.release_s for task in known.values())
        rows = list(known.values())
        submit = [min(t.release_s for t in rows if t.workflow == flow) for flow in flows]
        submit = [self.submit_s.get(flow, early) - first for flow, early in zip(flows, submit, strict=True)]
        runtime = np.array([t.runtime_s for t in rows])
        estimate = np.array([t.estimate_s for t in rows])
        return Workload.of_columns(
            name,
            release_s=np.array([t.release_s for t in rows]) - first,
            runtime_s=runtime,
            estimate_s=np.where(np.isfinite(estimate), estimate, runtime),
            shapes=shapes,
            functions=tuple(Function(title) for title in titles),
            edges=(np.array([e[0] for e in edges], np.int32), np.array([e[1] for e in edges], np.int32)),
            edge_bytes=np.array([e[2] for e in edges]),
            shape=np.array([used.index(t.shape) for t in rows], np.int32),
            workflow=np.array([flows.index(t.workflow) for t in rows], np.int32),
            workflow_submit_s=np.array(submit),
            input_bytes=np.array([t.input_bytes for t in rows]),
            deadline_s=np.array([t.deadline_s - first for t in rows]),
        )


def from_journal(
    folder: str | os.PathLike[str], policies: Mapping[str, Policy] | None = None
) -> tuple[Workload, Cluster]:
    """Read what an engine was told since its last snapshot as a workload, and the cluster as it is at the end.

    Raises:
        InvalidInput: No journal is there, or nothing of it ended.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InvalidInput(str(folder), "no such folder: the journal of an engine is a folder")
    engine, _ = fork.load(journal.last_snapshot(place), policies)
    tape = _Tape(engine)
    decoder = Decoder({}, "journal")
    for call in journal.told(place):
        name, arguments, fields = call
        told = journal.tell(engine, call, policies)
        if name in ("shape", "workflow", "put", "step"):
            given = [decoder.decode(one) for one in arguments]
            tape.take(name, given, {key: decoder.decode(one) for key, one in fields.items()}, told)
    return tape.workload(place.name or "journal"), engine.cluster


def with_attempts(
    workload: Workload, attempts: NDArray[np.void], cluster: Cluster, names: Mapping[str, Sequence[str]] | None = None
) -> Workload:
    """Give a workload the runtimes that a run of it had: the last attempt that was done, by the node's speed.

    ``names``: what the run calls the task (``task_id``) and the node (``node_name``) of each row, where that is known.

    Raises:
        InvalidInput: The run was of another workload, or on another cluster.
    """
    most = max((len(shape.variants) for shape in workload.shapes), default=0)
    for name, count in (("task", len(workload)), ("node", len(cluster.nodes)), ("variant", most)):
        if len(attempts) and not 0 <= attempts[name].min() <= attempts[name].max() < count:
            raise InvalidInput("attempts", f"{name} {attempts[name].max()} is none of the {count} of this workload")
    _check_same(workload, attempts, cluster, names or {})
    runtime_s = workload.runtime_s.copy()
    for row in attempts[attempts["outcome"] == 0]:
        task, node = int(row["task"]), cluster.nodes[int(row["node"])]
        variant = workload.shapes[int(workload.shape[task])].variants[int(row["variant"])]
        runtime_s[task] = max(1e-3, float(row["end_s"] - row["start_s"])) * node.speed / variant.runtime_factor
    return replace(workload, runtime_s=runtime_s)


def _check_same(
    workload: Workload, attempts: NDArray[np.void], cluster: Cluster, names: Mapping[str, Sequence[str]]
) -> None:
    """Raise InvalidInput with all that says that the run was of something else."""
    problems = []
    tried = len(np.unique(attempts["task"]))
    if tried < len(workload):
        problems.append(f"the run has {tried} tasks, the workload {len(workload)}")
    known = {"node_name": ("node", [node.name for node in cluster.nodes])}
    if workload.ids is not None:
        known["task_id"] = ("task", list(workload.ids))
    for column, (what, ours) in known.items():
        told = zip(names.get(column, ()), attempts[what].tolist(), strict=False)
        other = next(((theirs, ours[i]) for theirs, i in told if theirs != ours[i]), None)
        if other is not None:
            problems.append(f"the run has a {what} {other[0]!r} where {other[1]!r} is meant")
    child = np.repeat(np.arange(len(workload)), np.diff(workload.parent_start))
    ended_s, began_s = np.full(len(workload), -np.inf), np.full(len(workload), np.inf)
    done = attempts[attempts["outcome"] == 0]
    ended_s[done["task"]], began_s[done["task"]] = done["end_s"], done["start_s"]
    early = int((began_s[child] < ended_s[workload.parent] - 1e-6).sum())
    if early:
        problems.append(f"{early} tasks began before one that they wait for had ended")
    if problems:
        raise InvalidInput("attempts", f"are not of this workload on this cluster: {'; '.join(problems)}")


def blocks(name: str, workload: Workload, cluster: Cluster, most: int = 12) -> list[Recorded]:
    """Cut the workflows, in the order of their arrival, into at most so many blocks of `FEWEST` or more."""
    order = np.argsort(workload.workflow_submit_s, kind="stable")
    count = max(1, min(most, len(order) // FEWEST))
    return [
        Recorded(f"{name}-{i}", cluster, only(workload, some)) for i, some in enumerate(np.array_split(order, count))
    ]


def only(workload: Workload, flows: NDArray[np.int64]) -> Workload:
    """Cut out some of the workflows, from the first of them on."""
    number = np.full(len(workload.workflow_submit_s), -1, np.int64)
    number[np.sort(flows)] = np.arange(len(flows))
    kept = np.flatnonzero(number[workload.workflow] >= 0)
    at = np.full(len(workload), -1, np.int64)
    at[kept] = np.arange(len(kept))
    child = np.repeat(np.arange(len(workload)), np.diff(workload.parent_start))
    inside = at[child] >= 0
    first = float(workload.workflow_submit_s[flows].min())
    return Workload.of_columns(
        workload.name,
        release_s=workload.release_s[kept] - first,
        runtime_s=workload.runtime_s[kept],
        estimate_s=workload.estimate_s[kept],
        shapes=workload.shapes,
        functions=workload.functions,
        edges=(at[workload.parent[inside]].astype(np.int32), at[child[inside]].astype(np.int32)),
        edge_bytes=workload.parent_bytes[inside],
        shape=workload.shape[kept],
        workflow=number[workload.workflow[kept]].astype(np.int32),
        workflow_submit_s=workload.workflow_submit_s[np.sort(flows)] - first,
        workflow_names=tuple(workload.workflow_names[int(i)] for i in np.sort(flows)),
        input_bytes=workload.input_bytes[kept],
        output_bytes=workload.output_bytes[kept],
        deadline_s=workload.deadline_s[kept] - first,
    )

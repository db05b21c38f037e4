"""Workflows that an engine tells by REST, in the shape of the Common Workflow Scheduler: a graph of processes that may
grow and shrink, tasks of those processes, and batches of tasks.

Lehmann et al., How Workflow Engines Should Talk to Resource Managers (CCGrid 2023, arXiv 2302.07652). A task is the pod
whose name is the task's ``runName``. What is told is kept in a folder, one file per execution, and read again at start.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from wattflow.kube import objects
from wattflow.model.errors import WattflowError

PROCESS = "PROCESS"
STRATEGIES = ("fifo", "rank", "rank_min", "rank_max")
# `EngineDecider._level` multiplies priorities by it and adds an order: the product must stay within
# 32 bits.
ORDERS = 10_000
"""Orders within one priority are 0 to this, less one; higher goes first."""
# (600 + 1) * 16 < ORDERS: rank and size share one number, the rank first.
_MOST_RANK, _SIZES = 600, 16


class NoExecution(WattflowError):
    """No execution of this name is registered."""


class BadExecution(WattflowError):
    """Refuse what does not fit: a name taken, an edge without its vertex, a cycle."""


class NoStrategy(BadExecution):
    """A strategy that there is not."""


@dataclass(slots=True)
class Task:
    """One task: which process it runs, the name of its pod, the bytes that it reads."""

    process: str
    pod: str
    input_bytes: float = 0.0
    batch: int = 0
    state: str = "RECEIVED_CONFIG"


@dataclass(slots=True)
class Execution:
    """One run of a workflow. ``edges`` are (from, to) by edge id; ``batches`` tell how many tasks each waits for."""

    name: str
    namespace: str
    strategy: str
    vertices: dict[int, tuple[str, str]] = field(default_factory=dict)
    edges: dict[int, tuple[int, int]] = field(default_factory=dict)
    tasks: dict[int, Task] = field(default_factory=dict)
    batch: int = 0
    batches: dict[int, int | None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)

    def rank_again(self) -> None:
        """Rank each process: the most processes on a way from it to the end, itself included. Raises on a cycle."""
        after: dict[int, list[int]] = {uid: [] for uid in self.vertices}
        missing = dict.fromkeys(self.vertices, 0)
        for source, target in self.edges.values():
            after[source].append(target)
            missing[target] += 1
        ready = [uid for uid, count in missing.items() if not count]
        order: list[int] = []
        while ready:
            order.append(ready.pop())
            for target in after[order[-1]]:
                missing[target] -= 1
                if not missing[target]:
                    ready.append(target)
        if len(order) < len(self.vertices):
            raise BadExecution(f"{self.name}: the edges close a cycle")
        rank: dict[int, int] = {}
        for uid in reversed(order):
            below = max((rank[target] for target in after[uid]), default=0)
            # Channels and other vertices between processes connect them, but are no work of their own.
            rank[uid] = below + (self.vertices[uid][1] == PROCESS)
        self.ranks = {self.vertices[uid][0]: value for uid, value in rank.items()}

    def order_of(self, task: Task) -> int:
        """Return a task's order; of two tasks the higher goes first."""
        if self.strategy == "fifo":
            return 0
        # Each step is a factor of 8, the last begins at 2**45 bytes; equal steps are ties, left to the
        # policy.
        size = min(_SIZES - 1, int(math.log2(task.input_bytes + 1) / 3))
        ties = {"rank": 0, "rank_max": size, "rank_min": _SIZES - 1 - size}[self.strategy]
        return min(_MOST_RANK, self.ranks.get(task.process, 0)) * _SIZES + ties


@dataclass(slots=True)
class Executions:
    """All executions. ``on_released`` is called when pods that were kept back may go."""

    folder: Path | None = None
    known: dict[str, Execution] = field(default_factory=dict)
    on_released: Callable[[], None] = lambda: None
    _by_pod: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def restore(self) -> None:
        """Read what was told before. Raises BadExecution on a file that is none."""
        for path in sorted(self.folder.glob("*.json")) if self.folder is not None else ():
            try:
                one = _read(json.loads(path.read_text(encoding="utf-8")))
                one.rank_again()
            except (ValueError, KeyError, TypeError) as error:
                raise BadExecution(f"{path}: is no execution that was kept here: {error}") from None
            self.known[one.name] = one
            for id, task in one.tasks.items():
                self._by_pod[one.namespace, task.pod] = (one.name, id)

    # what the engine of workflows tells

    def register(self, name: str, namespace: str, strategy: str) -> None:
        """Register a new execution."""
        if name in self.known:
            raise BadExecution(f"{name} is registered already; delete it first")
        order, _, assign = strategy.lower().partition("-")
        if order not in STRATEGIES:
            raise NoStrategy(f"no strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
        if assign:
            raise NoStrategy(f"{strategy!r}: nodes are chosen by this scheduler's policy; leave out '-{assign}'")
        self.known[name] = Execution(name, namespace, order)
        self._keep(name)

    def delete(self, name: str) -> None:
        """End an execution; pods that it kept back may go."""
        gone = self.of_name(name)
        del self.known[name]
        for task in gone.tasks.values():
            self._by_pod.pop((gone.namespace, task.pod), None)
        if self.folder is not None:
            self._path(name).unlink(missing_ok=True)
        self.on_released()

    def add_vertices(self, name: str, vertices: Iterable[tuple[int, str, str]]) -> None:
        """Add vertices as (uid, label, type); only those of type PROCESS count for ranks."""
        one = self.of_name(name)
        for uid, label, kind in vertices:
            one.vertices[uid] = (label, kind.upper())
        self._changed(one)

    def drop_vertices(self, name: str, uids: Iterable[int]) -> None:
        """Remove vertices with their edges."""
        one, gone = self.of_name(name), set(uids)
        one.vertices = {uid: vertex for uid, vertex in one.vertices.items() if uid not in gone}
        one.edges = {uid: edge for uid, edge in one.edges.items() if not gone & set(edge)}
        self._changed(one)

    def add_edges(self, name: str, edges: Iterable[tuple[int, int, int]]) -> None:
        """Add edges as (uid, from, to). Nothing changes where one does not fit."""
        one = self.of_name(name)
        before, more = dict(one.edges), list(edges)
        lost = sorted({end for _, *ends in more for end in ends if end not in one.vertices})
        if lost:
            raise BadExecution(f"{name}: edges name vertices that there are not: {lost[:10]}")
        one.edges |= {uid: (source, target) for uid, source, target in more}
        try:
            self._changed(one)
        except BadExecution:
            # The edges that made the cycle: ranks stay those of before.
            one.edges = before
            raise

    def drop_edges(self, name: str, uids: Iterable[int]) -> None:
        """Remove edges."""
        one = self.of_name(name)
        for uid in uids:
            one.edges.pop(uid, None)
        self._changed(one)

    def add_task(self, name: str, id: int, process: str, pod: str, input_bytes: float) -> None:
        """Add a task whose pod is about to be made, to the open batch if there is one."""
        one = self.of_name(name)
        # None while the batch is open (`end_batch` tells the number), so a task told afterwards waits for
        # nobody.
        one.tasks[id] = Task(process, pod, input_bytes, one.batch if one.batches.get(one.batch, 0) is None else 0)
        self._by_pod[one.namespace, pod] = (name, id)
        self._keep(name)

    def drop_task(self, name: str, id: int) -> bool:
        """Remove a task whose pod will not be made; returns whether there was one."""
        one = self.of_name(name)
        task = one.tasks.pop(id, None)
        if task is None:
            return False
        self._by_pod.pop((one.namespace, task.pod), None)
        count = one.batches.get(task.batch)
        if count is not None:
            # One fewer to wait for; what it kept back may be complete now.
            one.batches[task.batch] = count - 1
        self._keep(name)
        self.on_released()
        return True

    def start_batch(self, name: str) -> None:
        """Open a batch: tasks told from now on wait for each other."""
        one = self.of_name(name)
        one.batch += 1
        one.batches[one.batch] = None
        self._keep(name)

    def end_batch(self, name: str, count: int) -> None:
        """Close the batch at so many tasks: when their pods are all there, they are decided together."""
        one = self.of_name(name)
        one.batches[one.batch] = count
        self._keep(name)
        self.on_released()

    # what the scheduler asks

    def of_name(self, name: str) -> Execution:
        """Return an execution; raises NoExecution."""
        if name not in self.known:
            raise NoExecution(f"no execution {name!r} is registered")
        return self.known[name]

    def of(self, pod: objects.Pod) -> tuple[Execution, Task] | None:
        """Return the task that a pod is."""
        found = self._by_pod.get((pod.metadata.namespace, pod.metadata.name))
        return None if found is None else (self.known[found[0]], self.known[found[0]].tasks[found[1]])

    def order_of(self, pod: objects.Pod) -> int:
        """Return a pod's place among pods of equal priority; 0 where nobody told of it."""
        found = self.of(pod)
        return 0 if found is None else found[0].order_of(found[1])

    def keeps_back(self, pod: objects.Pod) -> bool:
        """Tell whether it waits for the rest of its batch."""
        found = self.of(pod)
        if found is None or not found[1].batch or found[1].batch not in found[0].batches:
            return False
        one, task = found
        task.state = "UNSCHEDULED"
        count = one.batches[task.batch]
        # A task leaves RECEIVED_CONFIG when its pod is first seen.
        there = sum(other.batch == task.batch and other.state != "RECEIVED_CONFIG" for other in one.tasks.values())
        if count is None or there < count:
            return True
        # Once complete it is forgotten: members that are seen again must not wait anew.
        del one.batches[task.batch]
        self._keep(one.name)
        self.on_released()
        return False

    def seen(self, pod: objects.Pod) -> None:
        """Take a pod's progress over into its task."""
        found = self.of(pod)
        if found is not None:
            ended = {"Succeeded": "FINISHED", "Failed": "FINISHED_WITH_ERROR"}.get(pod.status.phase)
            found[1].state = ended or ("SCHEDULED" if pod.spec.node_name else "UNSCHEDULED")

    # inside

    def _changed(self, one: Execution) -> None:
        one.rank_again()
        self._keep(one.name)

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        # Quoted: a name from the network must not leave the folder.
        return self.folder / f"{quote(name, safe='')}.json"

    def _keep(self, name: str) -> None:
        """Write an execution so that a half-written file never takes its place."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(name)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self.known[name])), encoding="utf-8")
        draft.replace(path)


def _read(raw: Mapping[str, Any]) -> Execution:
    """Read an execution as `_keep` wrote it: JSON makes texts of keys and lists of pairs."""
    table: dict[str, dict[str, Any]] = {key: dict(raw[key]) for key in ("vertices", "edges", "tasks", "batches")}
    return Execution(
        str(raw["name"]),
        str(raw["namespace"]),
        str(raw["strategy"]),
        {int(uid): (str(one[0]), str(one[1])) for uid, one in table["vertices"].items()},
        {int(uid): (int(one[0]), int(one[1])) for uid, one in table["edges"].items()},
        {int(id): Task(**one) for id, one in table["tasks"].items()},
        int(raw["batch"]),
        {int(id): None if count is None else int(count) for id, count in table["batches"].items()},
    )

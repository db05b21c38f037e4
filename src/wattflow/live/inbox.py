"""Events as they come in: ids and amounts are checked, and each becomes one row of the desk."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wattflow.engine import kinds
from wattflow.engine.build import micro
from wattflow.engine.tables import State
from wattflow.live import growth
from wattflow.live import protocol as p
from wattflow.live import step_buffers as desks
from wattflow.live.kernels import Kernels
from wattflow.live.nodebook import NodeBook
from wattflow.live.protocol import Kind
from wattflow.live.shapebook import ShapeBook
from wattflow.live.step_buffers import Desk

_EVENT_BYTES = desks.EVENT.itemsize
_UNTOLD = -1
"""In an event: this stays as it is."""


class Inbox:
    """Events that one engine was told since its last step.

    Attributes:
        count: Events on the desk.
        gone: Nodes that leave with the next step.
    """

    def __init__(self, state: State, desk: Desk, nodes: NodeBook, shapes: ShapeBook, kernels: Kernels) -> None:
        self.state, self.desk, self.nodes, self.shapes, self.kernels = state, desk, nodes, shapes, kernels
        self.count = 0
        self.gone: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """Look up columns anew after tables have grown."""
        state = self.state
        self.task_generation = state.marks["generation"].view(np.ndarray)
        self.attempt_generation = state.attempts["generation"].view(np.ndarray)
        self.node_generation = state.node_marks["generation"].view(np.ndarray)
        self.shape_generation = state.shapes["generation"].view(np.ndarray)
        self.workflow_generation = state.workflows["generation"].view(np.ndarray)
        self._events = self.desk.events.view(np.uint8).view(np.ndarray).data
        self._room = len(self.desk.events)

    def put(self, kind: Kind, *who: Any, **fields: Any) -> int:
        """Take an event, folded by the next step; docs/driving.md lists the fields of each kind. TASK gives an id."""
        try:
            made: int | None = _KINDS[kind](self, *who, **fields)
        except TypeError as problem:
            raise p.BadEvent(f"{Kind(kind).name}: {problem}") from None
        except KeyError:
            raise p.BadEvent(f"{kind!r} is no kind of event; see wattflow.live.Kind") from None
        return made or 0

    def write(self, kind: Kind, who: int, other: int = 0, a: int = 0, b: int = 0, x: float = 0.0) -> None:
        """Append an event to the desk; which kind has what in ``other``, ``a``, ``b`` and ``x`` says `folding`."""
        n = self.count
        if n >= self._room:
            self._double_events()
        struct.pack_into(desks.EVENT_FORMAT, self._events, n * _EVENT_BYTES, kind, who, other, a, b, x)
        self.count = n + 1

    def copy_of(self, count: int) -> bytes:
        """Copy the first events on the desk, also those that a step has folded: a tenth of a microsecond."""
        return bytes(self._events[: count * _EVENT_BYTES])

    def _put_task(
        self,
        shape: int,
        workflow: int = p.LOOSE,
        estimate_s: float | None = None,
        release_s: float | None = None,
        deadline_s: float | None = None,
        input_bytes: float = 0.0,
        node: int | None = None,
        tag: int = 0,
    ) -> int:
        form = self.current(shape, p.SHAPE_ID, self.shape_generation) if shape else 0
        flow = self.current(workflow, p.WORKFLOW_ID, self.workflow_generation) if workflow else 0
        pinned = -1 if node is None else self.current(node, p.NODE_ID, self.node_generation)
        arguments = (
            form, flow, pinned, tag, math.nan if estimate_s is None else estimate_s,
            -math.inf if release_s is None else release_s, math.inf if deadline_s is None else deadline_s, input_bytes,
        )  # fmt: skip
        task = self.kernels.enter_task(self.state.handle(), *arguments)
        if task < 0:
            # Doubled, so that n tasks cost O(n) in all; every view of a column is void after it.
            growth.grow_tasks(self.state, 2 * len(self.state.tasks))
            self.refresh()
            task = self.kernels.enter_task(self.state.handle(), *arguments)
        self.write(Kind.TASK, task)
        return int(task)

    def _put_edge(self, parent: int, child: int, size_bytes: float = 0.0) -> None:
        self.row(parent, p.TASK_ID, self.task_generation)
        self.row(child, p.TASK_ID, self.task_generation)
        self.write(Kind.EDGE, parent, child, x=size_bytes)

    def _put_estimate(self, task: int, estimate_s: float) -> None:
        self.row(task, p.TASK_ID, self.task_generation)
        self.write(Kind.ESTIMATE, task, x=estimate_s)

    def _put_started(self, attempt: int) -> None:
        self.row(attempt, p.ATTEMPT_ID, self.attempt_generation)
        self.write(Kind.STARTED, attempt)

    def _put_finished(self, attempt: int) -> None:
        self.row(attempt, p.ATTEMPT_ID, self.attempt_generation)
        self.write(Kind.FINISHED, attempt)

    def _put_failed(self, attempt: int, retry: bool = True) -> None:
        self.row(attempt, p.ATTEMPT_ID, self.attempt_generation)
        self.write(Kind.FAILED, attempt, a=int(retry))

    def _put_refused(self, attempt: int, until_s: float = 0.0) -> None:
        self.row(attempt, p.ATTEMPT_ID, self.attempt_generation)
        self.write(Kind.REFUSED, attempt, x=until_s)

    def _put_preempt(self, attempt: int) -> None:
        self.row(attempt, p.ATTEMPT_ID, self.attempt_generation)
        self.write(Kind.PREEMPT, attempt)

    def _put_node(
        self, node: int, state: int | None = None, cores: float | None = None, memory_bytes: int | None = None
    ) -> None:
        self.row(node, p.NODE_ID, self.node_generation)
        if state is not None and state not in set(p.Power):
            raise p.BadEvent(f"NODE: {state!r} is no state of a node; see wattflow.live.Power")
        cores_u = _UNTOLD if cores is None else _amount("cores", micro(cores))
        memory = _UNTOLD if memory_bytes is None else _amount("memory_bytes", memory_bytes)
        if max(cores_u, memory) >= 0:
            # Here, not when it is folded: variants suit a class by its greatest node, which is worked out in Python.
            self.nodes.raise_room(p.row_of(node), cores_u, memory)
        self.write(Kind.NODE, node, _UNTOLD if state is None else int(state), cores_u, memory)

    def _put_gone(self, node: int) -> None:
        row = self.row(node, p.NODE_ID, self.node_generation)
        if p.make_id(p.NODE_ID, row, int(self.node_generation[row])) == node:
            # Pins are by row, which will be another node's: without this a task would wait for ever, or go there.
            self.state.tasks.pinned[self.state.tasks.pinned == row] = -1
        self.gone.append(node)
        self.write(Kind.GONE, node)

    def _put_load(
        self, node: int, cores: float = 0.0, memory_bytes: int = 0, counts: Mapping[str, int] | None = None
    ) -> None:
        self.row(node, p.NODE_ID, self.node_generation)
        self.write(Kind.LOAD, node, a=_amount("cores", micro(cores)), b=_amount("memory_bytes", memory_bytes))
        for name, count in (counts or {}).items():
            self.write(Kind.LOAD, node, 1 + self.nodes.resource(name), _amount(name, count))

    def put_more(self, node: int, name: str, more: int) -> None:
        """Note that a node offers so many more (or fewer) of a countable resource than before, whatever is in use."""
        self.write(Kind.LOAD, node, 1 + self.nodes.resource(name), more, b=1)

    def _put_resize(self, attempt: int, cores: float | None = None, memory_bytes: int | None = None) -> None:
        self.row(attempt, p.ATTEMPT_ID, self.attempt_generation)
        cores_u = _UNTOLD if cores is None else _amount("cores", micro(cores))
        memory = _UNTOLD if memory_bytes is None else _amount("memory_bytes", memory_bytes)
        self.write(Kind.RESIZE, attempt, a=cores_u, b=memory)

    def _put_cancel(self, what: int) -> None:
        self._task_or_workflow(what)
        self.write(Kind.CANCEL, what)

    def _put_seal(self, what: int) -> None:
        self._task_or_workflow(what)
        self.write(Kind.SEAL, what)

    def _put_cold(self, node: int, function: str) -> None:
        self.row(node, p.NODE_ID, self.node_generation)
        known = self.nodes.functions.get(function)
        if known is None:
            raise p.BadEvent(f"COLD: no function named {function!r} is known here")
        if self.state.rules.cold[0]:  # else there is nothing that could be warm
            self.write(Kind.COLD, node, known)

    def _task_or_workflow(self, what: int) -> None:
        if p.what_of(what) == p.WORKFLOW_ID:
            self.row(what, p.WORKFLOW_ID, self.workflow_generation)
        else:
            self.row(what, p.TASK_ID, self.task_generation)

    def row(self, identity: int, what: int, generations: Any) -> int:
        """Return the row that an id names, stale or not; UnknownId when this engine cannot have given it."""
        row = identity & p.ROW_MASK
        if identity >> kinds.ID_SHIFT != what or row >= len(generations):
            raise p.UnknownId(f"{identity} is no id of a {p.ID_NAMES[what]} that this engine gave")
        # Generations only rise: a greater one was never given out. A smaller one is a stale id, which is no error.
        if (identity >> p.ROW_BITS) & p.GENERATION_MASK > generations[row]:
            raise p.UnknownId(f"{identity} is no id of a {p.ID_NAMES[what]} that this engine gave")
        return row

    def current(self, identity: int, what: int, generations: Any) -> int:
        """Return the row that an id names now. A stale one is refused: its row may be somebody else's by now."""
        row = self.row(identity, what, generations)
        if int(generations[row]) & p.GENERATION_MASK != (identity >> p.ROW_BITS) & p.GENERATION_MASK:
            raise p.UnknownId(f"{p.ID_NAMES[what]} {identity} is gone: it was dropped, closed or forgotten")
        return row

    def _double_events(self) -> None:
        made, rows = self.desk, 2 * self._room
        made.replace(
            events=growth.grown(made.events, rows),
            order=np.zeros(rows, np.int32),
            arrivals=np.zeros(rows, np.int32),
            fresh=np.zeros(rows, np.int32),
            changed=np.zeros(rows, np.int32),
            rejected=growth.grown(made.rejected, rows),
        )
        self.refresh()


# Functions, not bound methods: an inbox that held those would hold itself, and a fork's memory would wait for a
# collection instead of being free at once.
_KINDS: dict[Kind, Callable[..., int | None]] = {kind: getattr(Inbox, f"_put_{kind.name.lower()}") for kind in Kind}


def _amount(name: str, value: int) -> int:
    if value < 0:
        raise p.BadEvent(f"{name} must not be negative, not {value}")
    return value

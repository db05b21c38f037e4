"""The ledger's commits told again, as numbered events for whoever watches; each entry is committed with its rows.

The store keeps the last ``RING`` entries in a ring: a viewer that was away, or whose server was killed, goes on where
it was. An event has an owner, who may see it, or none, when everybody may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from wattflow.runtime.records import TaskRecord, WorkflowRecord
from wattflow.store.schema import Row
from wattflow.store.statements import Change

RING = 1 << 16
"""Entries that the store keeps; one is written by every turn that changes something."""
Event = tuple[str, str, Mapping[str, Any]]
"""A list of the batch (`attempts`, …), the owner ("" for everybody), and the fields."""
_FIELDS = {
    Change.WORKFLOW: ("workflows", ("id", "name", "owner", "submitted_s", "state")),
    Change.WORKFLOW_STATE: ("workflows", ("b_id", "state", "ended_s")),
    Change.TASK: ("tasks", ("id", "workflow", "key", "name", "submitted_s", "state")),
    Change.TASK_STATE: ("tasks", ("b_id", "state", "attempts", "ended_s", "reason")),
    Change.ATTEMPT: ("attempts", ("task", "number", "node", "device", "variant", "ready_s", "placed_s")),
    Change.ATTEMPT_STARTED: ("attempts", ("b_task", "b_number", "started_s", "cold_s")),
    Change.ATTEMPT_ENDED: ("attempts", ("b_task", "b_number", "outcome", "started_s", "ended_s", "cold_s", "reason")),
    Change.ATTEMPT_ENERGY: ("attempts", ("b_task", "b_number", "energy_j", "low_j", "high_j", "marginal_j",
                            "provenance")),
    Change.NODE: ("nodes", ("name", "state", "seen_s")),
    Change.ENERGY: ("windows", ("node", "began_s", "ended_s", "counted_j", "idle_j", "tasks_j", "unattributed_j",
                    "provenance")),
}  # fmt: skip
"""Of each change, the list of a batch that it goes to and the columns that are told."""
_TOLD = {"b_id": "id", "b_task": "task", "b_number": "number", "seen_s": "at_s"}


class Feed:
    """Events of the batch under way.

    Args:
        tasks, workflows: Those that are open: whose a change is.

    Attributes:
        next: Number of the next entry.
        listener: Called with the number and the bytes of each entry that is handed to the writer.
    """

    def __init__(self, tasks: Mapping[int, TaskRecord], workflows: Mapping[str, WorkflowRecord]) -> None:
        self.next = 1
        self.listener: Callable[[int, bytes], None] | None = None
        self._tasks, self._workflows = tasks, workflows
        self._states: dict[str, str] = {}

    def rows(self, batch: Iterable[tuple[Change, Row]]) -> list[tuple[Change, Row]]:
        """Make the rows that are written beside a batch: its events, and nodes whose state is another one."""
        events: list[Event] = []
        rows: list[tuple[Change, Row]] = []
        for change, row in batch:
            event = self._event(change, row)
            if event is not None:
                events.append(event)
            if change is Change.NODE and self._states.get(str(row["name"])) != row["state"]:
                self._states[str(row["name"])] = str(row["state"])
                rows.append((Change.NODE_STATE, {"node": row["name"], "at_s": row["seen_s"], "state": row["state"]}))
        if not events:
            return rows
        number, self.next = self.next, self.next + 1
        entry = msgspec.msgpack.encode(events)
        if self.listener is not None:
            self.listener(number, entry)
        return [*rows, (Change.EVENT, {"slot": number % RING, "sequence": number, "entry": entry})]

    def _event(self, change: Change, row: Row) -> Event | None:
        kind = _FIELDS.get(change)
        if kind is None:
            return None
        name, columns = kind
        told = {_TOLD.get(column, column): row[column] for column in columns}
        if name in ("nodes", "windows"):
            return name, "", told
        if name == "workflows":
            workflow = self._workflows.get(str(told["id"]))
            return None if workflow is None else (name, workflow.owner, told)
        task = self._tasks.get(int(told["id" if name == "tasks" else "task"]))  # type: ignore[call-overload]
        if task is None:  # long over: whoever looks at it asks the store
            return None
        if change is Change.TASK:
            told |= {"function": task.spec.function_name, "parents": [*task.spec.parents, *task.spec.results]}
        elif change is Change.ATTEMPT:
            told["workflow"] = task.workflow.id
        return name, task.workflow.owner, told


def decoded(entry: bytes) -> list[Event]:
    """The events of an entry."""
    events: list[Event] = msgspec.msgpack.decode(entry, type=list[tuple[str, str, dict[str, Any]]])
    return events

"""Rows that the service writes: they gather during a turn and go to the writer together with the engine's calls.

Joules that nodes report are believed within bounds, counted once and written. The bounds are wide, for they tell lies
and broken counters from readings, not good readings from better ones.

The audit log is appended and never changed. Each entry's hash covers the entry before it: whoever changes, drops or
inserts one must change every hash after it, and the last one can be kept elsewhere.

Commits are told again as numbered events for whoever watches; each entry is committed with its rows. The store keeps
the last ``RING`` entries in a ring: a viewer that was away, or whose server was killed, goes on where it was. An event
has an owner, who may see it, or none, when everybody may.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from wattflow.runtime import messages as m
from wattflow.runtime.accounts import Accounts, Usage
from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.gate import Gate
from wattflow.runtime.logs import storable
from wattflow.runtime.messages import Energy, Node, Window
from wattflow.runtime.records import AttemptRecord, NodeRecord, Nodes, TaskRecord, Trace, WorkflowRecord
from wattflow.store import journal
from wattflow.store.schema import Row
from wattflow.store.statements import Write
from wattflow.store.writer import Writer

Entry = Mapping[str, Any]
FIRST = "0" * 64


class Chain:
    """The end of the log, to which entries are appended."""

    def __init__(self, sequence: int = 0, last: str = FIRST) -> None:
        self.sequence, self.last = sequence, last

    def append(self, at_s: float, who: str, action: str, about: Mapping[str, object]) -> dict[str, object]:
        """Make the next entry."""
        self.sequence += 1
        # ASCII alone: a name that is no Unicode must not keep the entry out of the store.
        row: dict[str, object] = {
            "sequence": self.sequence,
            "at_s": at_s,
            "who": json.dumps(who)[1:-1],
            "action": action,
            "about": json.dumps(dict(about), sort_keys=True),
        }
        self.last = chained(self.last, row)
        return row | {"hash": self.last}


def chained(before: str, entry: Entry) -> str:
    """The hash of an entry after another's."""
    words = [before, *(entry[key] for key in ("sequence", "at_s", "who", "action", "about"))]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def first_fault(entries: Iterable[Entry], after: int = 0, last: str = FIRST) -> str | None:
    """Say where a log was tampered with, oldest entry first; None where all hashes are right."""
    for entry in entries:
        after += 1
        if entry["sequence"] != after:
            return f"entry {after} is missing"
        last = chained(last, entry)
        if entry["hash"] != last:
            return f"entry {after} is not what was written"
    return None


RING = 1 << 16
"""Entries that the store keeps; one is written by every turn that changes something."""
Event = tuple[str, str, Mapping[str, Any]]
"""A list of the batch (`attempts`, …), the owner ("" for everybody), and the fields."""
_FIELDS = {
    Write.WORKFLOW: ("workflows", ("id", "name", "owner", "submitted_s", "state")),
    Write.WORKFLOW_STATE: ("workflows", ("b_id", "state", "ended_s")),
    Write.TASK: ("tasks", ("id", "workflow", "key", "name", "submitted_s", "state")),
    Write.TASK_STATE: ("tasks", ("b_id", "state", "attempts", "ended_s", "reason")),
    Write.ATTEMPT: ("attempts", ("task", "number", "node", "device", "variant", "ready_s", "placed_s")),
    Write.ATTEMPT_STARTED: ("attempts", ("b_task", "b_number", "started_s", "cold_s")),
    Write.ATTEMPT_ENDED: ("attempts", ("b_task", "b_number", "outcome", "started_s", "ended_s", "cold_s", "reason")),
    Write.ATTEMPT_ENERGY: ("attempts", ("b_task", "b_number", "energy_j", "low_j", "high_j", "marginal_j",
                            "provenance")),
    Write.NODE: ("nodes", ("name", "state", "seen_s")),
    Write.ENERGY: ("windows", ("node", "began_s", "ended_s", "counted_j", "idle_j", "tasks_j", "unattributed_j",
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

    def rows(self, batch: Iterable[tuple[Write, Row]]) -> list[tuple[Write, Row]]:
        """Make the rows that are written beside a batch: its events, and nodes whose state is another one."""
        events: list[Event] = []
        rows: list[tuple[Write, Row]] = []
        for change, row in batch:
            event = self._event(change, row)
            if event is not None:
                events.append(event)
            if change is Write.NODE and self._states.get(str(row["name"])) != row["state"]:
                self._states[str(row["name"])] = str(row["state"])
                rows.append((Write.NODE_STATE, {"node": row["name"], "at_s": row["seen_s"], "state": row["state"]}))
        if not events:
            return rows
        number, self.next = self.next, self.next + 1
        entry = msgspec.msgpack.encode(events)
        if self.listener is not None:
            self.listener(number, entry)
        return [*rows, (Write.EVENT, {"slot": number % RING, "sequence": number, "entry": entry})]

    def _event(self, change: Write, row: Row) -> Event | None:
        kind = _FIELDS.get(change)
        if kind is None:
            return None
        name, columns = kind
        told: dict[str, Any] = {_TOLD.get(column, column): row[column] for column in columns}
        if name in ("nodes", "windows"):
            return name, "", told
        if name == "workflows":
            workflow = self._workflows.get(str(told["id"]))
            return None if workflow is None else (name, workflow.owner, told)
        task = self._tasks.get(int(told["id" if name == "tasks" else "task"]))
        if task is None:  # long over: whoever looks at it asks the store
            return None
        if change is Write.TASK:
            told |= {"function": task.spec.function_name, "parents": [*task.spec.parents, *task.spec.results]}
        elif change is Write.ATTEMPT:
            told["workflow"] = task.workflow.id
        return name, task.workflow.owner, told


def decoded(entry: bytes) -> list[Event]:
    """The events of an entry."""
    events: list[Event] = msgspec.msgpack.decode(entry, type=list[tuple[str, str, dict[str, Any]]])
    return events


BASE_W, CPU_W, DEVICE_W = 1000.0, 100.0, 2000.0
"""More than a board, a processor and a device of any machine draw."""
SLACK_S = 10.0
"""Seconds that clocks of two machines may differ by, and that a meter may lag behind."""
SLACK_J = 1e-6
"""Rounding: an account that should be 0 may be a little less."""


def most_w(node: Node) -> float:
    """Watts that a node of this size cannot exceed."""
    return BASE_W + CPU_W * node.cpus + DEVICE_W * len(node.devices)


class Plausible:
    """Judges what nodes report. What it does not believe is counted and not taken.

    Args:
        refused: Counts what was not believed, by reason.
    """

    def __init__(self, refused: Counter[str]) -> None:
        self._refused = refused
        self._windows_until_s: dict[str, float] = {}
        self._attempts: dict[str, tuple[float, float]] = {}

    def seen_until(self, node: str, ended_s: float) -> None:
        """Remember that a node's windows were taken up to a time."""
        self._windows_until_s[node] = max(ended_s, self._windows_until_s.get(node, -math.inf))

    def window(self, node: Node, window: Window, now_s: float) -> bool:
        """Believe a window that is over, comes after the one before it, and holds no more than the node can draw."""
        length_s = window.ended_s - window.began_s
        # Joules told twice for one time would be booked twice; a second node of the same name could do that, too.
        in_order = window.began_s >= self._windows_until_s.get(node.name, -math.inf) - SLACK_S
        if not (length_s > 0 and in_order and window.ended_s <= now_s + SLACK_S):
            return self._refuse("a window out of time")
        most_j = most_w(node) * (length_s + 1.0)
        parts = (window.counted_j, window.idle_j, window.tasks_j, window.unattributed_j)
        if not all(abs(joules) <= most_j for joules in parts) or min(window.counted_j, window.tasks_j) < -SLACK_J:
            return self._refuse("implausible joules of a node")
        self.seen_until(node.name, window.ended_s)
        return True

    def attempt(self, node: Node, energy: Energy, placed_s: float, now_s: float) -> bool:
        """Believe an attempt's joules that its node can have drawn since, beside all its other attempts' joules."""
        watts = most_w(node)
        most_j = watts * (now_s - placed_s + SLACK_S)
        since_s, sum_j = self._attempts.get(node.name, (placed_s, 0.0))
        since_s = min(since_s, placed_s)
        # Half of the upper end: a band holds a share of what nobody claims, which may double what the node drew.
        parts = (energy.energy_j, energy.low_j, energy.high_j / 2, energy.marginal_j)
        if not all(abs(joules) <= most_j for joules in parts) or energy.energy_j < -SLACK_J:
            return self._refuse("implausible joules of an attempt")
        # Each attempt alone may be plausible and all of them together not: a node has no more than its watts.
        if sum_j + energy.energy_j > watts * (now_s - since_s + SLACK_S):
            return self._refuse("implausible joules of all attempts of a node")
        self._attempts[node.name] = (since_s, sum_j + energy.energy_j)
        return True

    def _refuse(self, reason: str) -> bool:
        self._refused[reason] += 1
        return False


log = logging.getLogger(__name__)


@dataclass(slots=True)
class WriteCounts:
    """Count what was written since the start, for whoever watches the server.

    Attributes:
        attempts: Attempts that ended, by outcome.
        energy_j: Their joules, by provenance.
        node_j: Joules of nodes, by node and account.
        refused: Reports of agents that were not taken, by reason.
    """

    attempts: Counter[str] = field(default_factory=Counter)
    energy_j: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    node_j: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    refused: Counter[str] = field(default_factory=Counter)


class RowLedger:
    """Rows of the turn under way. All that is committed at once is written at once, or not at all.

    Attributes:
        next_entry: Number of the journal's next entry.
        checksum: That of the journal's last entry.
        counts: What was written so far.
        feed: Tells what is committed to whoever watches.
        chain: End of the audit log.
        usage: The books of the month; what changed in them is written with the next rows.
        gate: Hears what opens, runs and ends; set by the service.
    """

    gate: Gate

    def __init__(self, decider: JournaledEngine, writer: Writer) -> None:
        self.next_entry, self.checksum = 1, 0
        self.counts, self.chain, self.usage = WriteCounts(), Chain(), Usage()
        self._decider, self._writer = decider, writer
        self._batch: list[tuple[Write, Row]] = []
        self._late: list[tuple[Write, Row]] = []
        self.feed: Feed | None = None

    def commit(self) -> None:
        """Hand the turn's rows and the engine's calls to the writer."""
        # Joules first: a task's end must not be on disk without the joules that were told before it.
        self._write_late()
        if self._decider.entries:
            # Engine's calls and the rows that follow from them share one batch: after a crash both are there, or
            # neither.
            number, entry = self.next_entry, m.pack(self._decider.entries)
            self.checksum = journal.chained(self.checksum, number, entry)
            self._put(Write.JOURNAL, {"sequence": number, "entry": entry, "checksum": self.checksum})
            self._put(Write.META, journal.head(number, self.checksum))
            self.next_entry += 1
            self._decider.entries.clear()
        if self._batch:
            self._writer.put(*self._batch, *(self.feed.rows(self._batch) if self.feed else ()))
            self._batch = []

    def audit(self, at_s: float, who: str, action: str, **about: object) -> None:
        """Somebody did something; written with what it changes."""
        self._put(Write.AUDIT, self.chain.append(at_s, who, action, about))

    def setting(self, key: str, value: str) -> None:
        """Write a setting of the server's own, in the place of what it was."""
        self._put(Write.META, {"key": key, "value": value})

    def token(self, row: Row) -> None:
        """A token is given out; its audit entry is in the same commit."""
        self._put(Write.TOKEN, row)

    def token_revoked(self, digest: str, at_s: float) -> None:
        """A token is not valid any more."""
        self._put(Write.TOKEN_REVOKED, {"b_digest": digest, "revoked_s": at_s})

    def alert(self, at_s: float, account: tuple[str, str], said: str) -> None:
        """A budget is nearly, or quite, used up."""
        log.warning("%s: %s", " ".join(account), said, extra={"user": account[1]})
        self.audit(at_s, "wattflow", "alert", account=" ".join(account), said=said)

    def account(self, scope: str, name: str, limits: object) -> None:
        """Write what a user or a project may use."""
        self._put(Write.ACCOUNT, {"scope": scope, "name": name, "limits": m.pack(limits)})

    def workflow(self, workflow: WorkflowRecord) -> None:
        """A workflow opens."""
        self._put(Write.WORKFLOW, {
            "id": workflow.id, "name": workflow.name, "owner": workflow.owner, "about": m.pack(workflow.about),
            "submitted_s": workflow.submitted_s, "state": workflow.state,
        })  # fmt: skip

    def workflow_state(self, workflow: WorkflowRecord, ended_s: float | None = None) -> None:
        """A workflow is sealed, or over."""
        self._put(
            Write.WORKFLOW_STATE,
            {"b_id": workflow.id, "state": workflow.state, "ended_s": ended_s, "about": m.pack(workflow.about)},
        )

    def task(self, task: TaskRecord) -> None:
        """A task is taken."""
        self.gate.opened(task)
        self._put(Write.TASK, {
            "id": task.id, "workflow": task.workflow.id, "key": task.spec.key, "name": task.spec.name,
            "spec": m.pack((task.engine, task.spec)), "submitted_s": task.submitted_s, "state": task.state,
            "attempts": task.attempts,
        })  # fmt: skip

    def task_state(self, task: TaskRecord, ended_s: float | None = None, sequence: int | None = None) -> None:
        """A task runs, waits again, or is over."""
        if sequence is not None:
            self.gate.closed(task)
        self._put(Write.TASK_STATE, {
            "b_id": task.id, "state": task.state, "attempts": task.attempts, "ended_s": ended_s, "sequence": sequence,
            "result": m.pack(task.result) if task.result is not None else None, "reason": task.reason,
        })  # fmt: skip

    def task_engine(self, task: TaskRecord) -> None:
        """A task is another one in the engine."""
        self._put(Write.TASK_ENGINE, {"b_id": task.id, "spec": m.pack((task.engine, task.spec))})

    def attempt(self, attempt: AttemptRecord) -> None:
        """An attempt is placed."""
        self.gate.began(attempt)
        lease = attempt.lease
        self._put(Write.ATTEMPT, {
            "task": attempt.task.id, "number": attempt.number, "fence": attempt.fence, "node": attempt.node,
            "device": lease.device, "variant": lease.variant, "ready_s": attempt.task.ready_s,
            "placed_s": attempt.placed_s, "engine": attempt.engine, "reserved_j": attempt.trace.reserved_j,
        })  # fmt: skip

    def attempt_started(self, attempt: AttemptRecord) -> None:
        """An attempt runs."""
        self._put(Write.ATTEMPT_STARTED, _key(attempt) | {"started_s": attempt.started_s, "cold_s": attempt.cold_s})

    def attempt_ended(self, attempt: AttemptRecord, end: m.Ended, started_s: float, ended_s: float) -> None:
        """An attempt is over, at times that were made sane."""
        self.counts.attempts[end.outcome] += 1
        self.usage.ended(attempt.trace, end.cpu_s, ended_s)
        self.gate.ended(attempt, done=end.outcome == "done")
        self._put(Write.ATTEMPT_ENDED, _key(attempt) | {
            "outcome": end.outcome, "started_s": started_s, "ended_s": ended_s, "cold_s": end.cold_s or attempt.cold_s,
            "cpu_s": end.cpu_s, "peak_bytes": end.peak_bytes, "reason": end.reason,
            "gpu_duty": end.gpu.duty if end.gpu else None, "gpu_beside": end.gpu.beside if end.gpu else None,
            "gpu_samples": end.gpu.samples if end.gpu else None,
        })  # fmt: skip

    def attempt_energy(self, task: int, number: int, energy: m.Energy) -> None:
        """Joules of an attempt. Nothing waits for them, and no turn is taken for them."""
        self._aside(Write.ATTEMPT_ENERGY, {
            "b_task": task, "b_number": number, "energy_j": energy.energy_j, "low_j": energy.low_j,
            "high_j": energy.high_j, "marginal_j": energy.marginal_j, "provenance": energy.provenance,
        })  # fmt: skip

    def window(self, node: str, window: m.Window) -> None:
        """A node's joules between two moments."""
        for account in ("idle", "tasks", "unattributed"):
            self.counts.node_j[node, account] += getattr(window, f"{account}_j")
        row = {"node": node} | {name: getattr(window, name) for name in window.__struct_fields__}
        self._aside(Write.ENERGY, row)

    def node(self, node: NodeRecord, seen_s: float) -> None:
        """A node and its state."""
        self._put(
            Write.NODE,
            {"name": node.spec.name, "spec": m.pack((node.engine, node.spec)), "state": node.state, "seen_s": seen_s},
        )

    def _put(self, change: Write, row: Row) -> None:
        self._batch.append((change, {name: storable(value) for name, value in row.items()}))

    def _aside(self, change: Write, row: Row) -> None:
        # Joules wait for no turn of the engine (they decide nothing), and a thousand nodes' come in one commit.
        if not self._late:
            asyncio.get_running_loop().call_soon(self._write_late)
        self._late.append((change, {name: storable(value) for name, value in row.items()}))

    def _write_late(self) -> None:
        late, self._late = self._late, []
        # The books go with the joules that changed them, so ledger and meters agree at every commit.
        for row in self.usage.rows():
            late.append((Write.USAGE, {name: storable(value) for name, value in row.items()}))
        if late:
            self._writer.put(*late, *(self.feed.rows(late) if self.feed else ()))


def _key(attempt: AttemptRecord) -> dict[str, object]:
    return {"b_task": attempt.task.id, "b_number": attempt.number}


class Joules:
    """Takes what nodes report about energy.

    Args:
        accounts: Whose reservations they settle.
        now: Seconds on the service's clock.
    """

    def __init__(self, nodes: Nodes, ledger: RowLedger, accounts: Accounts, now: Callable[[], float]) -> None:
        self.plausible = Plausible(ledger.counts.refused)
        self._nodes, self._ledger, self._accounts, self._now = nodes, ledger, accounts, now

    def attempt(self, trace: Trace, energy: Energy) -> float:
        """Take an attempt's joules; returns those that were not known yet: none of what is told twice or a lie."""
        # By the trace, not by who reports: `AgentsDriver._is_its` has already refused reports about others' attempts.
        node = self._nodes.get(trace.node)
        if node is None or not self.plausible.attempt(node.spec, energy, trace.placed_s, self._now()):
            return 0.0
        # An agent tells an attempt's joules so far, again where an answer was lost: only what is new is booked.
        more_j, trace.energy_j = energy.energy_j - trace.energy_j, energy.energy_j
        self._accounts.settle(trace, more_j)
        self._ledger.attempt_energy(trace.task, trace.number, energy)
        self._ledger.counts.energy_j[energy.provenance] += more_j
        return more_j

    def window(self, node: str, window: Window) -> None:
        """Take a node's joules between two moments."""
        known = self._nodes.get(node)
        if known is not None and self.plausible.window(known.spec, window, self._now()):
            self._ledger.window(node, window)

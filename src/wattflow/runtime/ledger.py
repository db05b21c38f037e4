"""Rows that the service writes: they gather during a turn and go to the writer together with the engine's calls."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from wattflow.runtime import messages as m
from wattflow.runtime.audit import Chain
from wattflow.runtime.decider import Decider
from wattflow.runtime.feed import Feed
from wattflow.runtime.gate import Gate
from wattflow.runtime.nodes import NodeRecord
from wattflow.runtime.records import AttemptRecord, TaskRecord, WorkflowRecord
from wattflow.runtime.texts import storable
from wattflow.runtime.usage import Usage
from wattflow.store import journal
from wattflow.store.schema import Row
from wattflow.store.statements import Change
from wattflow.store.writer import Writer

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
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


class Ledger:
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

    def __init__(self, decider: Decider, writer: Writer) -> None:
        self.next_entry, self.checksum = 1, 0
        self.counts, self.chain, self.usage = Counts(), Chain(), Usage()
        self._decider, self._writer = decider, writer
        self._batch: list[tuple[Change, Row]] = []
        self._late: list[tuple[Change, Row]] = []
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
            self._put(Change.JOURNAL, {"sequence": number, "entry": entry, "checksum": self.checksum})
            self._put(Change.META, journal.head(number, self.checksum))
            self.next_entry += 1
            self._decider.entries.clear()
        if self._batch:
            self._writer.put(*self._batch, *(self.feed.rows(self._batch) if self.feed else ()))
            self._batch = []

    def audit(self, at_s: float, who: str, action: str, **about: object) -> None:
        """Somebody did something; written with what it changes."""
        self._put(Change.AUDIT, self.chain.append(at_s, who, action, about))

    def token(self, row: Row) -> None:
        """A token is given out; its audit entry is in the same commit."""
        self._put(Change.TOKEN, row)

    def token_revoked(self, digest: str, at_s: float) -> None:
        """A token is not valid any more."""
        self._put(Change.TOKEN_REVOKED, {"b_digest": digest, "revoked_s": at_s})

    def alert(self, at_s: float, account: tuple[str, str], said: str) -> None:
        """A budget is nearly, or quite, used up."""
        log.warning("%s: %s", " ".join(account), said, extra={"user": account[1]})
        self.audit(at_s, "wattflow", "alert", account=" ".join(account), said=said)

    def account(self, scope: str, name: str, limits: object) -> None:
        """Write what a user or a project may use."""
        self._put(Change.ACCOUNT, {"scope": scope, "name": name, "limits": m.pack(limits)})

    def workflow(self, workflow: WorkflowRecord) -> None:
        """A workflow opens."""
        self._put(Change.WORKFLOW, {
            "id": workflow.id, "name": workflow.name, "owner": workflow.owner, "about": m.pack(workflow.about),
            "submitted_s": workflow.submitted_s, "state": workflow.state,
        })  # fmt: skip

    def workflow_state(self, workflow: WorkflowRecord, ended_s: float | None = None) -> None:
        """A workflow is sealed, or over."""
        self._put(Change.WORKFLOW_STATE, {"b_id": workflow.id, "state": workflow.state, "ended_s": ended_s,
                                          "about": m.pack(workflow.about)})  # fmt: skip

    def task(self, task: TaskRecord) -> None:
        """A task is taken."""
        self.gate.opened(task)
        self._put(Change.TASK, {
            "id": task.id, "workflow": task.workflow.id, "key": task.spec.key, "name": task.spec.name,
            "spec": m.pack((task.engine, task.spec)), "submitted_s": task.submitted_s, "state": task.state,
            "attempts": task.attempts,
        })  # fmt: skip

    def task_state(self, task: TaskRecord, ended_s: float | None = None, sequence: int | None = None) -> None:
        """A task runs, waits again, or is over."""
        if sequence is not None:
            self.gate.closed(task)
        self._put(Change.TASK_STATE, {
            "b_id": task.id, "state": task.state, "attempts": task.attempts, "ended_s": ended_s, "sequence": sequence,
            "result": m.pack(task.result) if task.result is not None else None, "reason": task.reason,
        })  # fmt: skip

    def task_engine(self, task: TaskRecord) -> None:
        """A task is another one in the engine."""
        self._put(Change.TASK_ENGINE, {"b_id": task.id, "spec": m.pack((task.engine, task.spec))})

    def attempt(self, attempt: AttemptRecord) -> None:
        """An attempt is placed."""
        self.gate.began(attempt)
        lease = attempt.lease
        self._put(Change.ATTEMPT, {
            "task": attempt.task.id, "number": attempt.number, "fence": attempt.fence, "node": attempt.node,
            "device": lease.device, "variant": lease.variant, "ready_s": attempt.task.ready_s,
            "placed_s": attempt.placed_s, "engine": attempt.engine, "reserved_j": attempt.trace.reserved_j,
        })  # fmt: skip

    def attempt_started(self, attempt: AttemptRecord) -> None:
        """An attempt runs."""
        self._put(Change.ATTEMPT_STARTED, _key(attempt) | {"started_s": attempt.started_s, "cold_s": attempt.cold_s})

    def attempt_ended(self, attempt: AttemptRecord, end: m.Ended, started_s: float, ended_s: float) -> None:
        """An attempt is over, at times that were made sane."""
        self.counts.attempts[end.outcome] += 1
        self.usage.ended(attempt.trace, end.cpu_s, ended_s)
        self.gate.ended(attempt, done=end.outcome == "done")
        self._put(Change.ATTEMPT_ENDED, _key(attempt) | {
            "outcome": end.outcome, "started_s": started_s, "ended_s": ended_s, "cold_s": end.cold_s or attempt.cold_s,
            "cpu_s": end.cpu_s, "peak_bytes": end.peak_bytes, "reason": end.reason,
            "gpu_duty": end.gpu.duty if end.gpu else None, "gpu_beside": end.gpu.beside if end.gpu else None,
            "gpu_samples": end.gpu.samples if end.gpu else None,
        })  # fmt: skip

    def attempt_energy(self, task: int, number: int, energy: m.Energy) -> None:
        """Joules of an attempt. Nothing waits for them, and no turn is taken for them."""
        self._aside(Change.ATTEMPT_ENERGY, {
            "b_task": task, "b_number": number, "energy_j": energy.energy_j, "low_j": energy.low_j,
            "high_j": energy.high_j, "marginal_j": energy.marginal_j, "provenance": energy.provenance,
        })  # fmt: skip

    def window(self, node: str, window: m.Window) -> None:
        """A node's joules between two moments."""
        for account in ("idle", "tasks", "unattributed"):
            self.counts.node_j[node, account] += getattr(window, f"{account}_j")
        row = {"node": node} | {name: getattr(window, name) for name in window.__struct_fields__}
        self._aside(Change.ENERGY, row)

    def node(self, node: NodeRecord, seen_s: float) -> None:
        """A node and its state."""
        self._put(Change.NODE, {"name": node.spec.name, "spec": m.pack((node.engine, node.spec)), "state": node.state,
                                "seen_s": seen_s})  # fmt: skip

    def _put(self, change: Change, row: Row) -> None:
        self._batch.append((change, {name: storable(value) for name, value in row.items()}))

    def _aside(self, change: Change, row: Row) -> None:
        # Joules wait for no turn of the engine (they decide nothing), and a thousand nodes' come in one commit.
        if not self._late:
            asyncio.get_running_loop().call_soon(self._write_late)
        self._late.append((change, {name: storable(value) for name, value in row.items()}))

    def _write_late(self) -> None:
        late, self._late = self._late, []
        # The books go with the joules that changed them, so ledger and meters agree at every commit.
        for row in self.usage.rows():
            late.append((Change.USAGE, {name: storable(value) for name, value in row.items()}))
        if late:
            self._writer.put(*late, *(self.feed.rows(late) if self.feed else ()))


def _key(attempt: AttemptRecord) -> dict[str, object]:
    return {"b_task": attempt.task.id, "b_number": attempt.number}

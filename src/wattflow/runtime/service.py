"""The service: requests and reports in, leases and answers out; the engine decides and the store knows first.

Everything here runs in one event loop and never waits for a disk. A *turn* steps the engine once for everything that
came in since the last; what it decided goes to the writer, and takes effect when the writer says that it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from wattflow.live import EDGE, FAILED, FINISHED, NODE, REFUSED, SEAL, STARTED, TASK, Power
from wattflow.live.protocol import Action, Placement
from wattflow.live.protocol import Ended as EngineEnded
from wattflow.live.protocol import Outcome as EngineOutcome
from wattflow.runtime import messages as m
from wattflow.runtime.accounts import Accounts
from wattflow.runtime.actions import Actions
from wattflow.runtime.capping import Capping, plain_policy
from wattflow.runtime.checks import check_submission, unmet
from wattflow.runtime.clock import Clock
from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.gate import Gate
from wattflow.runtime.learned_facts import Learning
from wattflow.runtime.ledger import Joules, RowLedger
from wattflow.runtime.logs import Logs, plain
from wattflow.runtime.records import (
    AttemptRecord,
    Attempts,
    Broken,
    Nodes,
    TaskRecord,
    WorkflowRecord,
    judge,
    met,
    waits_for,
)
from wattflow.runtime.turns import PIECE, Turns, UnderWay, call_in, on_disk, settle
from wattflow.store.epochs import Fences
from wattflow.store.schema import Row
from wattflow.store.writer import Writer

log = logging.getLogger(__name__)
STOP_S = 15.0
"""Longest wait for a driver that is told to stop."""
State = Literal["done", "failed", "cancelled"]
STATE_OF: dict[EngineOutcome, State] = {
    EngineOutcome.DONE: "done",
    EngineOutcome.FAILED: "failed",
    EngineOutcome.CANCELLED: "cancelled",
}


class Service:
    """Workflows, tasks and attempts that are open, and everything that may be done with them.

    Args:
        decider: The engine, empty or replayed.
        writer: Where changes are written; its commits release what was decided.
        driver: Where work runs.
        folder: Where logs are kept.

    Attributes:
        fault: What ended the turns, if something did: what the store holds is right, what memory holds is not.
        on_fault: Called then, once; whoever owns the service must end it, and a start mends it.
    """

    def __init__(self, decider: JournaledEngine, writer: Writer, driver: Driver, folder: Path, clock: Clock) -> None:
        self.decider, self.writer, self.driver, self.clock = decider, writer, driver, clock
        self.workflows: dict[str, WorkflowRecord] = {}
        self.tasks: dict[int, TaskRecord] = {}
        self.attempts, self.fences = Attempts(), Fences()
        self.nodes, self.aside = Nodes(), decider.aside
        self.logs, self.ledger = Logs(folder), RowLedger(decider, writer)
        self.learning = Learning(decider, self.ledger.setting)
        self.learning.ahead.held_back = getattr(driver, "queues", False)  # drivers of others may not say it
        self.accounts = Accounts(self.ledger.usage, self.now, self.ledger.alert)
        self.gate = self.ledger.gate = Gate(self.accounts, self.nodes, decider, self.learning.estimates.runtime_s)
        self.joules = Joules(self.nodes, self.ledger, self.accounts, self.now)
        self.next_task = self.next_workflow = self.sequence = 1
        self._waiters: list[asyncio.Future[None]] = []
        self.listeners: list[Callable[[str, Row], None]] = []
        self.turns = Turns(self._begin_turn, self._make_leases, self.gate.goes_on, self._end_turn, self._failed)
        self.actions = Actions(
            decider, driver, self, self.nodes, self.tasks, self.attempts, self.turns.soon, self._node_state
        )
        self.capping = Capping(decider, self.now, self.ledger.setting, self.stored, self.turns.soon)
        self.fault: str | None = None
        self.on_fault: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Start the driver and decide what is there to decide."""
        await self.driver.start(self)
        here = [node.spec.name for node in self.nodes if node.state == "on"]
        self.driver.resume(here, [attempt.lease for attempt in self.attempts.values()])
        for node in (one.spec for one in self.nodes if one.state == "waking"):
            self.actions.waking.order(node.name, node.wake_s)
        for name in here:
            self.actions.level_again(name)
        self.capping.look()

    async def stop(self) -> None:
        """Let the driver go; what is open stays open in the store."""
        self.turns.finish()
        self.turns.close()
        self.actions.waking.close()
        self.capping.close()
        self.decider.close()
        with self.aside.guard("end of driver", self.driver.name):
            await asyncio.wait_for(self.driver.stop(), STOP_S)
        if self.fault is None:  # else a start would take the same turn again and fail in it
            self.ledger.commit()
        if self.writer.alive:  # else nothing more can be written: another server may have the store
            await asyncio.wait_for(on_disk(self.writer), 30)
        self.logs.close()

    def now(self) -> float:
        """Seconds on the service's clock."""
        return self.clock.now()

    # ---- requests

    async def submit(self, submission: m.Submission, owner: str, project: str = "") -> m.Accepted:
        """Take tasks into a workflow; answered when they are on disk. What is known already is not taken twice."""
        Broken.check(self.fault)
        workflow = self.workflows.get(submission.workflow)
        new = [task for task in submission.tasks if workflow is None or task.key not in workflow.keys]
        check_submission(submission, new, workflow, owner, self.nodes.specs)
        self.gate.check(owner, project, len(new))
        self.ledger.audit(self.now(), owner, "submit", workflow=submission.workflow, tasks=len(new), project=project)
        objective = submission.objective if workflow is None else workflow.objective
        self.decider.serve({w.objective for w in self.workflows.values() if w.open} | {objective})
        if workflow is None:
            workflow = self._open(submission, owner, project)
        for function in submission.functions:
            self.decider.function(function)
        for number, task in enumerate(new, start=1):
            if task.key not in workflow.keys:  # the same submission, sent again while the first was taken
                self._add(task, workflow, submission)
            if number % PIECE == 0:
                self.turns.soon()
                await asyncio.sleep(0)
        if submission.seal:
            self._seal(workflow)
        await self.stored()
        return m.Accepted(workflow.id, len(new), len(submission.tasks) - len(new))

    async def cancel(self, workflow: str, key: str | None = None, *, only_waiting: bool = False) -> int:
        """Cancel a workflow or one task of it; returns how many open tasks it was asked for."""
        record, states = self.workflows[workflow], ("waiting",) if only_waiting else ("waiting", "running")
        ids = [record.keys[key]] if key is not None else list(record.keys.values())
        open_tasks = [self.tasks[i] for i in ids if self.tasks[i].state in states]
        await self.actions.cancelling.cancel(open_tasks, "cancelled before it started" if only_waiting else None)
        if key is None and not only_waiting:
            self._seal(record)
        await self.stored()
        return len(open_tasks)

    async def outcomes(self, workflow: str, after: int, wait_s: float) -> m.Outcomes:
        """Ends after a sequence number; waits for one while the workflow has open tasks."""
        return await self.workflows[workflow].ends_after(after, wait_s)

    def why(self, task: TaskRecord) -> str:
        """Why a task is not running, in a sentence that names counts of nodes."""
        if task.state != "waiting":
            return task.reason or task.state
        if self.writer.message is not None:
            return f"the store does not take changes: {self.writer.message}"
        said = waits_for(self._parents(task)) or str(self.decider.why(task.engine))
        return "; ".join(one for one in (said, met(task), task.held, self.capping.sentence()) if one)

    async def use(self, policy: str) -> None:
        """Another policy from now on."""
        await self.capping.use(policy)
        await self.stored()

    async def stored(self) -> None:
        """Take a turn and wait until everything so far is on disk."""
        Broken.check(self.fault)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(done)
        self.turns.soon()
        await done

    # ---- reports of the driver (`drivers.base.Sink`)

    def announce(self, node: m.Node) -> None:
        """A node is here, changed, or on again."""
        known = self.nodes.get(node.name)
        if known is None or known.spec != node:
            known = self.nodes.add(node, self.decider.node(self.learning.as_learned(node)))
        self.learning.woke(known, self.actions.waking.awake(node.name))
        self.decider.put(NODE, known.engine, state=int(Power.ON))
        self.actions.level_again(node.name)
        self._node_state(node.name, "on")
        log.info("node %s is here", node.name, extra={"node": node.name})

    def gone(self, node: str, reason: str) -> None:
        """A node is lost. Its attempts end as lost; the engine queues their tasks again."""
        if (known := self.nodes.get(node)) is None or known.state == "down":
            return
        self.turns.finish()
        log.warning("node %s is lost: %s", node, reason, extra={"node": node})
        self.actions.waking.forget(node)
        now_s = self.now()
        for attempt in [a for a in self.attempts.values() if a.node == node]:
            attempt.task.lost = attempt
            self._badly(attempt, m.Ended(fence=attempt.fence, outcome="node_lost", ended_s=now_s, reason=reason))
        known.warm.clear()
        self.decider.put(NODE, known.engine, state=int(Power.DOWN))
        self._node_state(node, "down")

    def returned(self, node: str, fences: Sequence[int]) -> None:
        """A lost node is back with attempts that were given up: what still waits goes on there."""
        self.turns.finish()
        self.actions.adopting.returned(node, fences)

    def asleep(self, node: str) -> None:
        """A node sleeps."""
        self.decider.put(NODE, self.nodes[node].engine, state=int(Power.ASLEEP))
        self._node_state(node, "asleep")

    def started(self, fence: int, started_s: float, cold_s: float) -> None:
        """An attempt runs."""
        attempt = self.attempts.get(fence)
        if attempt is None or attempt.started_s is not None:
            return
        attempt.started_s = self.clock.sane(started_s, attempt.placed_s)
        self.learning.began(attempt, cold_s)
        self.decider.put(STARTED, attempt.engine)
        self.ledger.attempt_started(attempt)
        self.turns.soon()

    def ended(self, end: m.Ended) -> None:
        """An attempt is over. A second report, or one about an attempt that was lost before, changes nothing."""
        attempt = self.attempts.get(end.fence)
        if attempt is None:
            return
        if end.outcome == "done":
            self._end_attempt(attempt, end)
            attempt.task.result = end.result
            self.decider.put(FINISHED, attempt.engine)
            if attempt.lease.adopts is None:  # else its beginning is not known
                with self.aside.guard("lesson of attempt", end.fence):
                    self.learning.finished(attempt, end, self.nodes[attempt.node].spec)
        else:
            self._badly(attempt, replace(end, reason=plain(end.reason or end.outcome)))
        self.turns.soon()

    def _badly(self, attempt: AttemptRecord, end: m.Ended) -> None:
        """An attempt ended, but not well: its task is tried again, or has failed for good (`records.judge`)."""
        task, now_s = attempt.task, self.now()
        self._end_attempt(attempt, end)
        for_good = end.outcome == "refused" and any(unmet([task.spec], self.nodes.specs))
        verdict = judge(task, end, attempt.node, attempt.stopping or for_good)
        task.reason, task.result = verdict.reason, end.result
        if end.outcome == "refused" and verdict.again:
            self.decider.put(REFUSED, attempt.engine, until_s=now_s + verdict.wait_s)
        else:
            self.decider.put(FAILED, attempt.engine, retry=verdict.again)
        if verdict.again:
            task.state, task.ready_s = "waiting", now_s
            self.ledger.task_state(task)

    def energy(self, joules: m.TaskEnergy) -> None:
        """Joules of an attempt, open or over."""
        if (trace := self.attempts.trace(joules.fence)) is not None:
            self._spend(self.tasks.get(trace.task), self.joules.attempt(trace, joules.energy))

    def window(self, node: str, window: m.Window) -> None:
        """A node's joules between two moments."""
        self.joules.window(node, window)

    def load(self, node: str, load: m.Load) -> None:
        """Take how a node looks."""
        if node in self.nodes:
            self.nodes[node].load = load
            self.learning.drew(self.nodes[node].spec, load, self.now())

    def warmed(self, node: str, told: m.Warmed) -> None:
        """A function is held ready on a node, or is not (any more)."""
        self.actions.warming.told(node, told)
        self.turns.soon()

    def log(self, fence: int, offset: int, data: bytes) -> Future[None] | None:
        """Output of an attempt."""
        trace = self.attempts.trace(fence)
        return self.logs.put(trace.task, trace.number, offset, data) if trace is not None else None

    # ---- taking tasks in

    def _open(self, submission: m.Submission, owner: str, project: str) -> WorkflowRecord:
        now_s = self.now()
        deadline_s = None if submission.deadline_s is None else now_s + submission.deadline_s
        engine = self.decider.workflow(self.next_workflow, deadline_s, submission.objective)
        self.next_workflow += 1
        workflow = WorkflowRecord.opened(
            submission, owner, engine, deadline_s, plain_policy(self.decider.policy), now_s
        )
        workflow.about["project"] = project
        self.workflows[workflow.id] = workflow
        self.ledger.workflow(workflow)
        return workflow

    def _add(self, spec: m.Task, workflow: WorkflowRecord, submission: m.Submission) -> None:
        now_s = self.now()
        deadline_s = submission.deadline_s if spec.deadline_s is None else spec.deadline_s
        known_s = self.learning.estimates.runtime_s(spec.function_name) if spec.estimate_s is None else spec.estimate_s
        duties = self.learning.gpus.duties(spec.function_name, spec.variants)
        shape = self.decider.shape(self.learning.ahead.counted(spec), spec.function_name, duties)
        engine = self.decider.put(
            TASK,
            shape,
            workflow=workflow.engine,
            tag=self.next_task,
            estimate_s=known_s,
            release_s=now_s + spec.submit_s if spec.submit_s else None,
            input_bytes=float(spec.input_bytes),
            deadline_s=None if deadline_s is None else now_s + deadline_s,
        )
        assert engine is not None
        task = TaskRecord(
            self.next_task, workflow, spec, engine, now_s, now_s, tuple(workflow.keys[key] for key in spec.results)
        )
        self.next_task += 1
        for parent in self._parents(task):
            self.decider.put(EDGE, parent.engine, engine, size_bytes=float(spec.handed_bytes.get(parent.spec.key, 0)))
        self.actions.warming.seen(spec, workflow.owner)
        self.tasks[task.id], workflow.keys[spec.key] = task, task.id
        workflow.open += 1
        self.ledger.task(task)

    # ---- the turn: the engine steps, what it decided is written, and acted on once that is on disk

    def _begin_turn(self) -> UnderWay:
        now_s = self.now()
        return UnderWay(self.decider.step(now_s), now_s)

    def _failed(self, error: Exception) -> None:
        """A turn that fails is the last one: whoever waits, and whoever comes, is told why."""
        log.critical("a turn failed; nothing of it is written", exc_info=error)
        broken = Broken.under(self.decider.policy, error)
        self.fault = str(broken)
        self.turns.close()
        waiters, self._waiters = self._waiters, []
        settle(waiters, broken)
        for workflow in self.workflows.values():
            workflow.fault = self.fault
            workflow.told()
        self.on_fault()

    def _end_turn(self, turn: UnderWay) -> None:
        step = turn.step
        outcomes = []
        for end in step.ended:
            with self.aside.guard("end of task", end.tag):
                outcomes += self._end_task(end, turn.now_s)
        for rejected in step.rejected:
            log.error("the engine rejected %s of %s: %s", rejected.kind.name, rejected.who, rejected.reason)
        self.actions.adopting.settle()
        self.ledger.commit()
        waiters, self._waiters = self._waiters, []
        if turn.leases or outcomes or step.actions or waiters:
            loop = asyncio.get_running_loop()
            self.writer.settled(lambda: call_in(loop, self._release, waiters, turn.leases, outcomes, step.actions))
        else:
            self._look_ahead()
        self.turns.alarm.set(turn.wake_at - turn.now_s)

    def _release(
        self,
        waiters: Iterable[asyncio.Future[None]],
        placed: Sequence[AttemptRecord],
        outcomes: Iterable[tuple[WorkflowRecord, m.Outcome]],
        actions: Iterable[Action],
    ) -> None:
        """Answer and act: what was decided is on disk."""
        settle(waiters)
        for attempt in placed:
            attempt.released = True
        if not self.turns.closed:  # else they are begun by the next start
            self.actions.launch([a.lease for a in placed if a.fence in self.attempts and not a.stopping])
        for workflow, outcome in outcomes:
            workflow.outcomes.append(outcome)
            workflow.told()
        for action in actions:
            with self.aside.guard("action", action):
                self.actions.do(action)
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Let the shield read what the turns told, now that nobody waits for what they decided."""
        if not self.turns.closed and self.decider.look_ahead(self.now()):
            self.turns.soon()

    def _make_leases(self, turn: UnderWay, most: int) -> None:
        """Leases for the next placements. Where one cannot be made, the engine hears that the attempt failed."""
        for placement in turn.next_placements(most):
            try:
                if not self.gate.keeps(self.tasks[placement.tag], placement, turn):
                    turn.leases.append(self._place(placement, turn.now_s))
            except Exception as error:
                reason = self.aside.put("placement of task", placement.tag, error)
                if (task := self.tasks.get(placement.tag)) is not None:
                    task.reason = f"it could not be placed: {reason}"
                self.decider.put(FAILED, placement.attempt, retry=False)
                turn.wake_at = turn.now_s

    def _place(self, placement: Placement, now_s: float) -> AttemptRecord:
        task, node = self.tasks[placement.tag], self.nodes.by_engine(placement.node)
        assert node is not None
        inputs = [self.tasks[parent].result or m.Blob() for parent in task.parents]
        adopts = self.actions.adopting.adopted(task, node.spec.name, placement)
        attempt = AttemptRecord.begun(task, placement, self.fences.next(), node.spec.name, inputs, now_s, adopts)
        self.learning.clock(attempt, placement, node.spec)
        self.attempts.add(attempt)
        self.ledger.attempt(attempt)
        self.ledger.task_state(task)
        return attempt

    def _end_task(self, end: EngineEnded, now_s: float) -> list[tuple[WorkflowRecord, m.Outcome]]:
        task = self.tasks.get(end.tag)
        if task is None or task.state in STATE_OF.values():
            return []
        workflow = task.workflow
        state = STATE_OF[end.outcome]
        if state != "done" and task.attempts == 0 and any(p.state == "failed" for p in self._parents(task)):
            state, task.reason = "failed", "a task that it waits for failed"
        task.state, reason = state, task.reason if state != "done" else None
        self.sequence += 1
        outcome = m.Outcome(
            key=task.spec.key, task=task.id, state=state, sequence=self.sequence, result=task.result, reason=reason
        )
        self.ledger.task_state(task, now_s, self.sequence)
        workflow.open -= 1
        for listener in self.listeners:
            with self.aside.guard("event of task", task.id):
                listener("task", {"id": task.id, "workflow": workflow.id, "state": task.state})
        self._close_if_over(workflow)
        return [(workflow, outcome)]

    def _spend(self, task: TaskRecord | None, joules: float) -> None:
        """Count against the workflow's budget; beyond it what has not started is cancelled."""
        if task is None or (reason := task.workflow.spend(joules)) is None:
            return
        waiting = [other for i in task.workflow.keys.values() if (other := self.tasks[i]).state == "waiting"]
        self.actions.cancelling.start(waiting, reason)

    def _seal(self, workflow: WorkflowRecord) -> None:
        """No further tasks come; once."""
        if not workflow.sealed:
            workflow.sealed = True
            workflow.about["sealed"] = True
            self.decider.put(SEAL, workflow.engine)
            self.ledger.workflow_state(workflow)
            self._close_if_over(workflow)

    def _close_if_over(self, workflow: WorkflowRecord) -> None:
        if workflow.over():
            workflow.close({self.tasks[i].state for i in workflow.keys.values()}, self.now())
            self.ledger.workflow_state(workflow, self.now())

    def _parents(self, task: TaskRecord) -> list[TaskRecord]:
        keys = dict.fromkeys([*task.spec.parents, *task.spec.results])
        return [self.tasks[task.workflow.keys[key]] for key in keys]

    def _end_attempt(self, attempt: AttemptRecord, end: m.Ended) -> None:
        self.attempts.remove(attempt)
        self.learning.began(attempt, end.cold_s)
        started_s = self.clock.sane(end.started_s or attempt.started_s or attempt.placed_s, attempt.placed_s)
        ended_s = self.clock.sane(end.ended_s or self.now(), started_s)
        self.ledger.attempt_ended(attempt, end, started_s, ended_s)

    def _node_state(self, node: str, state: str) -> None:
        known = self.nodes[node]
        known.state = state
        self.ledger.node(known, self.now())
        self.turns.soon()

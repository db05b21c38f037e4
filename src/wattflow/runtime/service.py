"""The service: requests and reports in, leases and answers out; the engine decides and the store knows first.

Everything here runs in one event loop and never waits for a disk. A *turn* steps the engine once for everything that
came in since the last; what it decided goes to the writer, and takes effect when the writer says that it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

from wattflow.live import EDGE, FAILED, FINISHED, NODE, REFUSED, SEAL, STARTED, TASK, Act, Power
from wattflow.live.protocol import Action, Placement, Step
from wattflow.live.protocol import Ended as EngineEnded
from wattflow.live.protocol import Outcome as EngineOutcome
from wattflow.runtime import messages as m
from wattflow.runtime.cancelling import Cancelling
from wattflow.runtime.checks import check_submission
from wattflow.runtime.clock import Clock
from wattflow.runtime.decider import POLICY_OF, Decider
from wattflow.runtime.drivers.base import Driver
from wattflow.runtime.learning import Learning
from wattflow.runtime.ledger import Ledger
from wattflow.runtime.logs import Logs
from wattflow.runtime.nodes import Nodes
from wattflow.runtime.records import AttemptRecord, Broken, Recent, TaskRecord, WorkflowRecord, waits_for
from wattflow.runtime.turns import Alarm, UnderWay, call_in, guarded, settle
from wattflow.runtime.waking import Waking
from wattflow.runtime.warming import Warming
from wattflow.store.durations import Durations
from wattflow.store.schema import Row
from wattflow.store.writer import Writer

log = logging.getLogger(__name__)
PIECE = 16
"""Tasks of one submission that are taken in before others have a turn of the loop."""
REFUSED_FOR_S = 1.0
"""A refused attempt's task is tried again after this long."""
STATE_OF = {EngineOutcome.DONE: "done", EngineOutcome.FAILED: "failed", EngineOutcome.CANCELLED: "cancelled"}


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

    def __init__(self, decider: Decider, writer: Writer, driver: Driver, folder: Path, clock: Clock) -> None:
        self.decider, self.writer, self.driver, self.clock = decider, writer, driver, clock
        self.workflows: dict[str, WorkflowRecord] = {}
        self.tasks: dict[int, TaskRecord] = {}
        self.attempts: dict[int, AttemptRecord] = {}
        self.recent = Recent()
        self.nodes = Nodes()
        self.learning = Learning(decider)
        self.logs, self.ledger = Logs(folder), Ledger(decider, writer)
        self.next_task = self.next_workflow = self.sequence = 1
        self._waiters: list[asyncio.Future[None]] = []
        self.listeners: list[Callable[[str, Row], None]] = []
        self.turn_s, self.turn_cpu_s = Durations(), Durations()
        self.waking = Waking(self.now, lambda node: driver.power(node, on=True), self.gone)
        self.warming = Warming(decider, driver, self.nodes)
        self._cancelling = Cancelling(decider, self._soon)
        self._under_way: UnderWay | None = None
        self._turn_planned = self._closed = False
        self._alarm = Alarm(self._soon)
        self.fault: str | None = None
        self.on_fault: Callable[[], None] = lambda: None

    # ---- life

    async def start(self) -> None:
        """Start the driver and decide what is there to decide."""
        await self.driver.start(self)
        here = [node.spec.name for node in self.nodes if node.state == "on"]
        self.driver.resume(here, [attempt.lease for attempt in self.attempts.values()])
        for node in self.nodes:
            if node.state == "waking":
                self.waking.order(node.spec.name, node.spec.wake_s)
        self._soon()

    async def stop(self) -> None:
        """Let the driver go; what is open stays open in the store."""
        self._finish_turn()
        self._closed = True
        self.waking.close()
        self._alarm.cancel()
        await self.driver.stop()
        if self.fault is None:  # else a start would take the same turn again and fail in it
            self.ledger.commit()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self.writer.settled(lambda: call_in(loop, settle, [done]))
        await asyncio.wait_for(done, 30)
        self.logs.close()

    def now(self) -> float:
        """Seconds on the service's clock."""
        return self.clock.now()

    # ---- requests

    async def submit(self, submission: m.Submission, owner: str) -> m.Accepted:
        """Take tasks into a workflow; answered when they are on disk. What is known already is not taken twice."""
        Broken.check(self.fault)
        workflow = self.workflows.get(submission.workflow)
        new = [task for task in submission.tasks if workflow is None or task.key not in workflow.keys]
        check_submission(submission, new, workflow, owner, self._policy_of_others(workflow))
        self._adopt(submission.objective)
        if workflow is None:
            workflow = self._open(submission, owner)
        for function in submission.functions:
            self.decider.function(function)
        for number, task in enumerate(new, start=1):
            if task.key not in workflow.keys:  # the same submission, sent again while the first was taken
                self._add(task, workflow, submission)
            if number % PIECE == 0:
                self._soon()
                await asyncio.sleep(0)
        if submission.seal:
            self._seal(workflow)
        await self.stored()
        return m.Accepted(workflow.id, len(new), len(submission.tasks) - len(new))

    async def cancel(self, workflow: str, key: str | None = None) -> int:
        """Cancel a workflow or one task of it; returns how many open tasks it was asked for."""
        record = self.workflows[workflow]
        ids = [record.keys[key]] if key is not None else list(record.keys.values())
        open_tasks = [self.tasks[i] for i in ids if self.tasks[i].state in ("waiting", "running")]
        await self._cancelling.cancel(open_tasks)
        if key is None:
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
        return waits_for(self._parents(task)) or str(self.decider.why(task.engine))

    async def use(self, policy: str) -> None:
        """Another policy from now on."""
        self.decider.use(policy)
        await self.stored()

    async def stored(self) -> None:
        """Take a turn and wait until everything so far is on disk."""
        Broken.check(self.fault)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(done)
        self._soon()
        await done

    # ---- reports of the driver (`drivers.base.Sink`)

    def announce(self, node: m.Node) -> None:
        """A node is here, changed, or on again."""
        known = self.nodes.get(node.name)
        if known is None or known.spec != node:
            identity = self.decider.node(self.learning.as_learned(node))
            known = self.nodes.add(node, identity)
        self.learning.woke(known, self.waking.awake(node.name))
        self.decider.put(NODE, known.engine, state=int(Power.ON))
        self._node_state(node.name, "on")
        log.info("node %s is here", node.name)

    def gone(self, node: str, reason: str) -> None:
        """A node is lost. Its attempts end as lost; the engine queues their tasks again."""
        if (known := self.nodes.get(node)) is None or known.state == "down":
            return
        self._finish_turn()
        log.warning("node %s is lost: %s", node, reason)
        self.waking.forget(node)
        now_s = self.now()
        for attempt in [a for a in self.attempts.values() if a.node == node]:
            self._end_attempt(attempt, m.Ended(fence=attempt.fence, outcome="node_lost", ended_s=now_s, reason=reason))
            self._back_in_queue(attempt.task, now_s)
        known.warm.clear()
        self.decider.put(NODE, known.engine, state=int(Power.DOWN))
        self._node_state(node, "down")

    def asleep(self, node: str) -> None:
        """A node sleeps."""
        self.decider.put(NODE, self.nodes[node].engine, state=int(Power.ASLEEP))
        self._node_state(node, "asleep")

    def started(self, fence: int, started_s: float, cold_s: float) -> None:
        """An attempt runs."""
        attempt = self.attempts.get(fence)
        if attempt is None or attempt.started_s is not None:
            return
        attempt.started_s = self._sane(started_s, attempt.placed_s)
        self.learning.began(attempt, cold_s)
        self.decider.put(STARTED, fence)
        self.ledger.attempt_started(attempt)
        self._soon()

    def ended(self, end: m.Ended) -> None:
        """An attempt is over. A second report, or one about an attempt that was lost before, changes nothing."""
        attempt = self.attempts.get(end.fence)
        if attempt is None:
            return
        task = attempt.task
        self._end_attempt(attempt, end)
        now_s = self.now()
        if end.outcome == "done":
            task.result = end.result
            self.decider.put(FINISHED, end.fence)
            self.learning.finished(attempt, end, self.nodes[attempt.node].spec)
        elif end.outcome == "refused":
            task.reason = end.reason
            self.decider.put(REFUSED, end.fence, until_s=now_s + REFUSED_FOR_S)
            self._back_in_queue(task, now_s)
        else:
            task.reason, task.result = end.reason, end.result
            task.failures += end.outcome not in ("node_lost", "cancelled")
            again = task.failures <= task.spec.retries and not attempt.stopping
            self.decider.put(FAILED, end.fence, retry=again)
            if again:
                self._back_in_queue(task, now_s)
        self._soon()

    def energy(self, joules: m.TaskEnergy) -> None:
        """Joules of an attempt, open or over."""
        if (key := self._key_of(joules.fence)) is None:
            return
        self._spend(self.tasks.get(key[0]), joules.energy.energy_j)
        self.ledger.attempt_energy(*key, joules.energy)

    def window(self, node: str, window: m.Window) -> None:
        """A node's joules between two moments."""
        self.ledger.window(node, window)

    def load(self, node: str, load: m.Load) -> None:
        """What a node looks like."""
        if node in self.nodes:
            self.nodes[node].load = load
            self.learning.drew(self.nodes[node].spec, load)

    def warmed(self, node: str, told: m.Warmed) -> None:
        """A function is held ready on a node, or is not (any more)."""
        self.warming.told(node, told)
        self._soon()

    def log(self, fence: int, offset: int, data: bytes) -> Future[None] | None:
        """Output of an attempt."""
        key = self._key_of(fence)
        return self.logs.put(*key, offset, data) if key is not None else None

    # ---- taking tasks in

    def _policy_of_others(self, workflow: WorkflowRecord | None) -> str | None:
        """The policy that open workflows run under; None where there is no other one."""
        others = any(w.state == "open" and w is not workflow for w in self.workflows.values())
        return self.decider.policy if others else None

    def _adopt(self, objective: str | None) -> None:
        """The policy that serves an objective; `check_submission` has seen that nobody else is in its way."""
        wanted = POLICY_OF.get(objective or "")
        if wanted is not None and wanted != self.decider.policy:
            self.decider.use(wanted)

    def _open(self, submission: m.Submission, owner: str) -> WorkflowRecord:
        now_s = self.now()
        deadline_s = None if submission.deadline_s is None else now_s + submission.deadline_s
        engine = self.decider.workflow(self.next_workflow, deadline_s)
        self.next_workflow += 1
        workflow = WorkflowRecord.opened(submission, owner, engine, deadline_s, self.decider.policy, now_s)
        self.workflows[workflow.id] = workflow
        self.ledger.workflow(workflow)
        return workflow

    def _add(self, spec: m.Task, workflow: WorkflowRecord, submission: m.Submission) -> None:
        now_s = self.now()
        deadline_s = submission.deadline_s if spec.deadline_s is None else spec.deadline_s
        known_s = self.learning.estimates.runtime_s(spec.function_name) if spec.estimate_s is None else spec.estimate_s
        duties = self.learning.gpus.duties(spec.function_name, spec.variants)
        shape = self.decider.shape(list(spec.variants), spec.function_name, duties)
        engine = self.decider.put(
            TASK, shape, workflow=workflow.engine, tag=self.next_task, estimate_s=known_s,
            release_s=now_s + spec.submit_s if spec.submit_s else None, input_bytes=float(spec.input_bytes),
            deadline_s=None if deadline_s is None else now_s + deadline_s,
        )  # fmt: skip
        assert engine is not None
        task = TaskRecord(self.next_task, workflow, spec, engine, now_s, now_s,
                          tuple(workflow.keys[key] for key in spec.results))  # fmt: skip
        self.next_task += 1
        for parent in self._parents(task):
            self.decider.put(EDGE, parent.engine, engine, size_bytes=float(spec.handed_bytes.get(parent.spec.key, 0)))
        self.warming.seen(spec)
        self.tasks[task.id], workflow.keys[spec.key] = task, task.id
        workflow.open += 1
        self.ledger.task(task)

    # ---- the turn

    def _soon(self) -> None:
        if not self._turn_planned and not self._closed:
            self._turn_planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Step the engine; write what it decided; act once that is on disk."""
        if self._closed:
            return
        began = time.perf_counter(), time.thread_time()
        now_s = self.now()
        with guarded(self._failed):
            self._under_way = UnderWay(self.decider.step(now_s), now_s)
        self._go_on(*began)

    def _failed(self, error: Exception) -> None:
        """A turn that fails is the last one: whoever waits, and whoever comes, is told why."""
        log.critical("a turn failed; nothing of it is written", exc_info=error)
        broken = Broken.under(self.decider.policy, error)
        self.fault, self._closed, self._under_way = str(broken), True, None
        waiters, self._waiters = self._waiters, []
        settle(waiters, broken)
        for workflow in self.workflows.values():
            workflow.fault = self.fault
            workflow.told()
        self.on_fault()

    def _go_on(self, began: float, began_cpu: float, most: int = PIECE) -> None:
        """Place a piece at a time: a node that joins while thousands wait must not hold up the loop."""
        turn = self._under_way
        if turn is None:
            return
        with guarded(self._failed):
            turn.leases += [self._place(placement, turn.now_s) for placement in turn.next_placements(most)]
            if turn.all_placed:
                self._under_way, self._turn_planned = None, False
                self._end_turn(turn)
            else:
                asyncio.get_running_loop().call_soon(lambda: self._go_on(time.perf_counter(), time.thread_time()))
        self.turn_s.add(time.perf_counter() - began)
        self.turn_cpu_s.add(time.thread_time() - began_cpu)

    def _finish_turn(self) -> None:
        """Bring a turn to its end at once: what comes next must see all of it."""
        self._go_on(time.perf_counter(), time.thread_time(), sys.maxsize)

    def _end_turn(self, turn: UnderWay) -> None:
        step = turn.step
        outcomes = [outcome for end in step.ended if (outcome := self._end_task(end, turn.now_s)) is not None]
        for rejected in step.rejected:
            log.error("the engine rejected %s of %s: %s", rejected.kind.name, rejected.who, rejected.reason)
        self.ledger.commit()
        self._act(step, turn.leases, outcomes)
        self._alarm.set(step.wake_at - turn.now_s)

    def _act(
        self, step: Step, leases: Sequence[AttemptRecord], outcomes: Sequence[tuple[WorkflowRecord, m.Outcome]]
    ) -> None:
        waiters, self._waiters = self._waiters, []
        if not (leases or outcomes or step.actions or waiters):
            return
        loop = asyncio.get_running_loop()
        self.writer.settled(lambda: call_in(loop, self._release, waiters, leases, outcomes, step.actions))

    def _release(
        self,
        waiters: Iterable[asyncio.Future[None]],
        placed: Sequence[AttemptRecord],
        outcomes: Iterable[tuple[WorkflowRecord, m.Outcome]],
        actions: Iterable[Action],
    ) -> None:
        """What was decided is on disk: answer and act."""
        settle(waiters)
        for attempt in placed:
            attempt.released = True
        if not self._closed:  # else they are begun by the next start
            self.driver.launch([a.lease for a in placed if a.fence in self.attempts and not a.stopping])
        for workflow, outcome in outcomes:
            workflow.outcomes.append(outcome)
            workflow.told()
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        if action.kind == Act.STOP:
            attempt = self.attempts.get(action.who)
            if attempt is not None:
                attempt.stopping = True
                self.driver.cancel([action.who])
        elif action.kind in (Act.SLEEP, Act.WAKE):
            node = self.nodes.by_engine(action.who)
            if node is not None and action.kind == Act.WAKE:
                self._node_state(node.spec.name, "waking")
                self.waking.order(node.spec.name, node.spec.wake_s)
            elif node is not None:
                self.driver.power(node.spec.name, on=False)
        elif action.kind == Act.WARM:
            self.warming.order(action)

    def _place(self, placement: Placement, now_s: float) -> AttemptRecord:
        task = self.tasks[placement.tag]
        node = self.nodes.by_engine(placement.node)
        assert node is not None
        inputs = [self.tasks[parent].result or m.Blob() for parent in task.parents]
        attempt = AttemptRecord.begun(task, placement, node.spec.name, inputs, now_s)
        self.attempts[attempt.fence] = attempt
        self.ledger.attempt(attempt)
        self.ledger.task_state(task)
        return attempt

    def _end_task(self, end: EngineEnded, now_s: float) -> tuple[WorkflowRecord, m.Outcome] | None:
        task = self.tasks.get(end.tag)
        if task is None or task.state in STATE_OF.values():
            return None
        workflow = task.workflow
        task.state = STATE_OF[end.outcome]
        if task.state != "done" and task.attempts == 0 and any(p.state == "failed" for p in self._parents(task)):
            task.state, task.reason = "failed", "a task that it waits for failed"
        self.sequence += 1
        outcome = m.Outcome(key=task.spec.key, task=task.id, state=task.state, sequence=self.sequence,  # type: ignore[arg-type]
                            result=task.result, reason=task.reason if task.state != "done" else None)  # fmt: skip
        self.ledger.task_state(task, now_s, self.sequence)
        workflow.open -= 1
        for listener in self.listeners:
            listener("task", {"id": task.id, "workflow": workflow.id, "state": task.state})
        self._close_if_over(workflow)
        return workflow, outcome

    def _spend(self, task: TaskRecord | None, joules: float) -> None:
        """Count against the workflow's budget; beyond it what has not started is cancelled."""
        if task is None:
            return
        reason = task.workflow.spend(joules)
        if reason is None:
            return
        waiting = [other for i in task.workflow.keys.values() if (other := self.tasks[i]).state == "waiting"]
        self._cancelling.start(waiting, reason)

    def _seal(self, workflow: WorkflowRecord) -> None:
        """No further tasks come; once."""
        if not workflow.sealed:
            workflow.sealed = True
            workflow.about["sealed"] = True
            self.decider.put(SEAL, workflow.engine)
            self.ledger.workflow_state(workflow)
            self._close_if_over(workflow)

    def _close_if_over(self, workflow: WorkflowRecord) -> None:
        if workflow.sealed and workflow.open == 0 and workflow.state == "open":
            states = {self.tasks[i].state for i in workflow.keys.values()}
            workflow.state = "failed" if "failed" in states else "cancelled" if "cancelled" in states else "done"
            workflow.about["ended_s"] = self.now()
            self.ledger.workflow_state(workflow, self.now())

    # ---- small parts

    def _parents(self, task: TaskRecord) -> list[TaskRecord]:
        keys = dict.fromkeys([*task.spec.parents, *task.spec.results])
        return [self.tasks[task.workflow.keys[key]] for key in keys]

    def _end_attempt(self, attempt: AttemptRecord, end: m.Ended) -> None:
        del self.attempts[attempt.fence]
        self.recent.add(attempt)
        self.learning.began(attempt, end.cold_s)
        started_s = self._sane(end.started_s or attempt.started_s or attempt.placed_s, attempt.placed_s)
        ended_s = self._sane(end.ended_s or self.now(), started_s)
        self.ledger.attempt_ended(attempt, end, started_s, ended_s)

    def _key_of(self, fence: int) -> tuple[int, int] | None:
        """Task and number of an attempt, open or lately over."""
        attempt = self.attempts.get(fence)
        return (attempt.task.id, attempt.number) if attempt is not None else self.recent.get(fence)

    def _back_in_queue(self, task: TaskRecord, now_s: float) -> None:
        task.state, task.ready_s = "waiting", now_s
        self.ledger.task_state(task)

    def _node_state(self, node: str, state: str) -> None:
        known = self.nodes[node]
        known.state = state
        self.ledger.node(known, self.now())
        self._soon()

    def _sane(self, time_s: float, at_least_s: float) -> float:
        """Another machine's time, kept within what can be: not before its cause, not in the future."""
        return max(at_least_s, min(time_s, self.now()))

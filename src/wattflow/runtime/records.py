"""Records of open workflows, tasks, attempts and nodes, as the service remembers them; the store has all of it too.

The verdict on a task after an attempt that did not end well: a refusal and a lost node are not the task's own doing at
first sight, so they do not use up its ``retries``; but a payload that no node can load, or one that takes its node
down, must not go round for ever. Each has a cap.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import structs

from wattflow.model.errors import WattflowError, own_fault
from wattflow.runtime.messages import Blob, Ended, Lease, Level, Load, Node, Outcome, Outcomes, Submission, Task


@dataclass(slots=True)
class NodeRecord:
    """A node: what it announced, its id in the engine, its state (on, down, asleep, waking, falling).

    ``warm`` are the functions that were ordered to be held ready there, and are.
    """

    spec: Node
    engine: int
    state: str = "on"
    load: Load | None = None
    warm: set[str] = field(default_factory=set)


class Nodes:
    """All nodes, the lost ones included."""

    def __init__(self) -> None:
        self._by_name: dict[str, NodeRecord] = {}
        self._by_engine: dict[int, NodeRecord] = {}

    def add(self, spec: Node, engine: int, state: str = "on") -> NodeRecord:
        """A node is known from now on, or has changed."""
        record = NodeRecord(spec, engine, state)
        self._by_name[spec.name] = self._by_engine[engine] = record
        return record

    @property
    def specs(self) -> list[Node]:
        """Return what all of them announced."""
        return [record.spec for record in self]

    def get(self, name: str) -> NodeRecord | None:
        """A node by name."""
        return self._by_name.get(name)

    def by_engine(self, engine: int) -> NodeRecord | None:
        """A node by the engine's id."""
        return self._by_engine.get(engine)

    def __getitem__(self, name: str) -> NodeRecord:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[NodeRecord]:
        return iter(self._by_name.values())


if TYPE_CHECKING:
    from wattflow.live.protocol import Placement  # the engine with it, which agents and clients do without

T = TypeVar("T")


class Broken(WattflowError):
    """A turn of the service failed, and nothing more is decided until it is started again."""

    @classmethod
    def under(cls, policy: str, error: Exception) -> Broken:
        """Name the fault and the policy that met it."""
        said = (
            str(error) if isinstance(error, WattflowError) else own_fault(error) or f"{type(error).__name__}: {error}"
        )
        return cls(f"the server cannot go on under {policy}: {said}")

    @classmethod
    def check(cls, fault: str | None) -> None:
        """Raise it where there is a fault."""
        if fault is not None:
            raise cls(fault)


@dataclass(slots=True)
class TaskRecord:
    """A task of an open workflow.

    Attributes:
        engine: Its id in the engine.
        parents: Ids of the tasks whose results it wants, in the order of ``spec.results``.
        failures: Attempts that ended badly by its own doing.
        refusals, losses: Attempts that were refused, and that were lost with their node; each has a cap (`judge`).
        history: The latest bad ends, in words.
        remade: How often it ran again because its result was lost.
        lost: Its last attempt, where that was lost with its node and may still run there.
        held: Why it is not begun although it could be placed (`gate`).
    """

    id: int
    workflow: WorkflowRecord
    spec: Task
    engine: int
    submitted_s: float
    ready_s: float
    parents: tuple[int, ...] = ()
    state: str = "waiting"
    attempts: int = 0
    failures: int = 0
    result: Blob | None = None
    reason: str | None = None
    held: str | None = None
    refusals: int = 0
    losses: int = 0
    history: list[str] = field(default_factory=list)
    remade: int = 0
    lost: AttemptRecord | None = None


@dataclass(slots=True)
class WorkflowRecord:
    """A workflow that is open: more tasks may come, or some have not ended."""

    id: str
    name: str
    owner: str
    engine: int
    about: dict[str, object]
    submitted_s: float
    keys: dict[str, int] = field(default_factory=dict)
    open: int = 0
    sealed: bool = False
    state: str = "open"
    spent_j: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    fault: str | None = None

    @property
    def objective(self) -> str | None:
        """Return the objective it was opened with; None where none was named."""
        said = self.about.get("objective")
        return None if said is None else str(said)

    @property
    def project(self) -> str:
        """Whose budget pays beside the owner's; empty where nobody's."""
        return str(self.about.get("project") or "")

    @classmethod
    def opened(
        cls, submission: Submission, owner: str, engine: int, deadline_s: float | None, policy: str, now_s: float
    ) -> WorkflowRecord:
        """As it is asked for."""
        about: dict[str, object] = {
            "engine": engine, "sealed": False, "objective": submission.objective, "deadline_s": deadline_s,
            "energy_budget_j": submission.energy_budget_j, "policy": policy,
        }  # fmt: skip
        return cls(submission.workflow, submission.name, owner, engine, about, now_s)

    async def ends_after(self, after: int, wait_s: float) -> Outcomes:
        """Ends beyond a sequence number; waits for one while the workflow has open tasks.

        Raises:
            Broken: There are none, and the service decides nothing any more.
        """
        # The loop's clock, not the service's: a wall clock that is set back must not hold a client's poll.
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            found = outcomes_after(self.outcomes, after)
            if not found:
                Broken.check(self.fault)
            left_s = deadline - asyncio.get_running_loop().time()
            if found or left_s <= 0:
                return Outcomes(found, found[-1].sequence if found else after, self.open)
            try:
                await asyncio.wait_for(self.changed.wait(), left_s)
            except TimeoutError:
                continue

    def spend(self, joules: float) -> str | None:
        """Count joules; says so when the budget of an open workflow is used up."""
        self.spent_j += joules
        budget_j = self.about.get("energy_budget_j")
        if not isinstance(budget_j, float) or self.spent_j <= budget_j or self.state != "open":
            return None
        return f"the energy budget of {budget_j:g} J is used up ({self.spent_j:.4g} J)"

    def over(self) -> bool:
        """Return whether nothing more comes and all that came has ended, for the first time."""
        return self.sealed and self.open == 0 and self.state == "open"

    def close(self, states: Container[str], now_s: float) -> None:
        """Close it, given the states that its tasks ended in."""
        self.state = "failed" if "failed" in states else "cancelled" if "cancelled" in states else "done"
        self.about["ended_s"] = now_s

    def told(self) -> None:
        """Wake whoever waits for outcomes."""
        # A new event for whoever waits next: clearing the old one would lose those who have not woken yet.
        event, self.changed = self.changed, asyncio.Event()
        event.set()


@dataclass(slots=True)
class Trace:
    """Remember an attempt when it is over: its joules and last lines come after its end.

    Attributes:
        energy_j: Joules that were told of it so far; a second report replaces the first.
        reserved_j: Joules that its owner's budgets hold ready for it until then.
    """

    task: int
    number: int
    node: str
    placed_s: float
    owner: str
    project: str
    function: str
    energy_j: float = 0.0
    reserved_j: float = 0.0


@dataclass(slots=True)
class AttemptRecord:
    """An attempt that is placed and not over.

    Attributes:
        fence: Its number in every message about it, of an epoch's own.
        engine: Its id in the engine, which gives it again in another life of the store.
    """

    fence: int
    engine: int
    task: TaskRecord
    number: int
    node: str
    placed_s: float
    lease: Lease
    started_s: float | None = None
    cold_s: float = 0.0
    released: bool = False
    stopping: bool = False
    trace: Trace = field(init=False)

    def __post_init__(self) -> None:
        flow = self.task.workflow
        function = self.task.spec.function_name
        self.trace = Trace(self.task.id, self.number, self.node, self.placed_s, flow.owner, flow.project, function)

    @staticmethod
    def device_of(placement: Placement) -> int:
        """The first device of a placement; -1 for none."""
        return (placement.devices & -placement.devices).bit_length() - 1

    @classmethod
    def begun(
        cls,
        task: TaskRecord,
        placement: Placement,
        fence: int,
        node: str,
        inputs: Sequence[Blob],
        now_s: float,
        adopts: int | None = None,
    ) -> AttemptRecord:
        """The task's next attempt, with the lease that the node gets."""
        task.attempts += 1
        task.state = "running"
        lease = Lease(
            fence=fence, task=task.id, number=task.attempts, node=node, workflow=task.workflow.id,
            spec=task.spec, variant=placement.variant, device=cls.device_of(placement),
            share=task.spec.variants[placement.variant].gpu, inputs=list(inputs), owner=task.workflow.owner,
            adopts=adopts,
        )  # fmt: skip
        return cls(fence, placement.attempt, task, task.attempts, node, now_s, lease)

    def adopt(self, before: int | None) -> None:
        """Go on with an attempt that was given up; None where it begins anew."""
        if before is not None:
            # A lease is frozen: it may be on its way to an agent already, which must not see half of a change.
            self.lease = structs.replace(self.lease, adopts=before)

    def slow_down(self, placement: Placement, node: Node) -> None:
        """Give its lease the clock or limit of its device's or cores' level, where its node announced that level."""
        level, values, device, caps = placement.frequency, node.clocks_mhz, -1, False
        if placement.level > 0 and 0 <= self.device_of(placement) < len(node.devices):
            level, device = placement.level, self.device_of(placement)
            told = node.devices[device]
            values, caps = told.clocks_mhz or told.caps_w, not told.clocks_mhz
        if 0 < level < len(values):
            asked = Level("cap_w" if caps else "clock_mhz", values[level], device)
            self.lease = structs.replace(self.lease, level=asked)


class Attempts(dict[int, AttemptRecord]):
    """Attempts that are open, by fence; the engine's ids lead there, too. Of those that are over a trace stays."""

    def __init__(self) -> None:
        super().__init__()
        self._of_engine: dict[int, int] = {}
        self._recent: Recent[Trace] = Recent()

    def add(self, attempt: AttemptRecord) -> None:
        """An attempt is placed."""
        self[attempt.fence] = attempt
        self._of_engine[attempt.engine] = attempt.fence

    def remove(self, attempt: AttemptRecord) -> None:
        """An attempt is over."""
        del self[attempt.fence]
        del self._of_engine[attempt.engine]
        self._recent.add(attempt.fence, attempt.trace)

    def by_node(self) -> Counter[str]:
        """How many run on each node."""
        return Counter(attempt.node for attempt in self.values())

    def trace(self, fence: int) -> Trace | None:
        """Which one it is or lately was; None for one that is long over or unknown."""
        attempt = self.get(fence)
        return attempt.trace if attempt is not None else self._recent.get(fence)

    def of_engine(self, engine: int) -> AttemptRecord | None:
        """The attempt that the engine knows by this id."""
        return self.get(self._of_engine.get(engine, -1))


class Recent(Generic[T]):
    """Remember something of the latest attempts that are over, by fence.

    It is bounded by age, not only by number: a number large enough for thousands of ends a second would be minutes of
    a slower server's memory, which then grows for as long as that. Joules come last: a counter that is renewed seldom
    is waited for up to a minute (`node_energy.STILL_S`).
    """

    def __init__(self, most: int = 65_536, for_s: float = 90.0, now: Callable[[], float] = time.monotonic) -> None:
        self._most, self._for_s, self._now = most, for_s, now
        self._kept: OrderedDict[int, tuple[float, T]] = OrderedDict()

    def add(self, fence: int, kept: T) -> None:
        """An attempt is over."""
        now_s = self._now()
        self._kept[fence] = now_s, kept
        # In the order of their ends, so the first one that is young enough ends the search.
        while len(self._kept) > self._most or next(iter(self._kept.values()))[0] < now_s - self._for_s:
            self._kept.popitem(last=False)

    def get(self, fence: int) -> T | None:
        """Give what is remembered of one; None where it is long over or unknown."""
        found = self._kept.get(fence)
        return None if found is None else found[1]


def outcomes_after(outcomes: Sequence[Outcome], sequence: int, most: int = 1000) -> list[Outcome]:
    """Outcomes beyond a sequence number; they are in order."""
    low, high = 0, len(outcomes)
    while low < high:
        middle = (low + high) // 2
        if outcomes[middle].sequence <= sequence:
            low = middle + 1
        else:
            high = middle
    return list(outcomes[low : low + most])


def waits_for(parents: Sequence[TaskRecord], most: int = 3) -> str | None:
    """Which of these a task still waits for, in words; None where all have ended."""
    waiting = [parent for parent in parents if parent.state in ("waiting", "running")]
    if not waiting:
        return None
    named = ", ".join(f"{parent.spec.key} ({parent.state})" for parent in waiting[:most])
    more = len(waiting) - most
    return f"it waits for {named}" + (f" and {more} {'other' if more == 1 else 'others'}" if more > 0 else "")


REFUSALS, LOSSES = 6, 8
"""So many refusals, or lost nodes, and the task has failed. Six refusals take half a minute (see `wait_s`)."""
LONGEST_WAIT_S = 30.0
KEPT = 10
"""Bad ends that a task's history names; the store has all attempts."""


@dataclass(frozen=True, slots=True)
class RetryVerdict:
    """Return whether the task is tried again, and after how long; ``reason`` is what the task is told to have met."""

    again: bool
    wait_s: float = 0.0
    reason: str | None = None


def judge(task: TaskRecord, end: Ended, node: str, stopping: bool = False) -> RetryVerdict:
    """Count a bad end against its task and say what follows from it."""
    said = end.reason or end.outcome
    if end.outcome != "cancelled":
        task.history = [*task.history[1 - KEPT :], f"{end.outcome} on {node}: {said}"]
    if end.outcome == "refused":
        task.refusals += 1
        # Doubled each time: what a node lacks now (an object on its way, a daemon that restarts) it may have in a
        # while.
        again, wait_s = task.refusals < REFUSALS, min(LONGEST_WAIT_S, 2.0 ** (task.refusals - 1))
        return RetryVerdict(again and not stopping, wait_s, said if again else _given_up(task))
    if end.outcome == "node_lost":
        task.losses += 1
        again = task.losses < LOSSES
        return RetryVerdict(again and not stopping, reason=said if again else _given_up(task))
    # Not the task's fault and not asked for: its agent stopped it as an orphan, or made room for somebody else.
    if end.outcome == "cancelled":
        return RetryVerdict(not stopping and task.failures <= task.spec.retries, reason=said)
    task.failures += 1
    return RetryVerdict(task.failures <= task.spec.retries and not stopping, reason=said)


def met(task: TaskRecord) -> str | None:
    """Tell what a task that waits has met so far, in words; None where nothing was in its way."""
    counts = ((task.refusals, REFUSALS, "refused"), (task.losses, LOSSES, "lost with its node"))
    told = [f"{what} {count} of {most} times" for count, most, what in counts if count]
    return f"{' and '.join(told)} (last: {task.history[-1]})" if told and task.history else None


def _given_up(task: TaskRecord) -> str:
    """The reason of a task that is given up, with what it met, the same in a row once."""
    times: dict[str, int] = {}
    for one in task.history:
        times[one] = times.get(one, 0) + 1
    listed = "; ".join(one if count == 1 else f"{one} ({count} times)" for one, count in times.items())
    tried = f"refused {task.refusals} times, lost with its node {task.losses} times"
    return f"given up after {task.attempts} attempts ({tried}): {listed}"

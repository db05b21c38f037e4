"""Protocol between a driver and the live engine: kinds of events, results of a step, ids, errors.

Nothing here decides anything; `wattflow.live.engine.Engine` takes the events and gives the results.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from wattflow.engine import kinds, tables
from wattflow.model.errors import WattflowError


class Kind(enum.IntEnum):
    """Kinds of events, in the order in which one step folds them; within a kind, in the order of `put`."""

    TASK = kinds.TASK
    EDGE = kinds.EDGE
    ESTIMATE = kinds.ESTIMATE
    STARTED = kinds.STARTED
    FINISHED = kinds.FINISHED
    FAILED = kinds.FAILED
    REFUSED = kinds.REFUSED
    PREEMPT = kinds.PREEMPT
    NODE = kinds.NODE
    GONE = kinds.GONE
    LOAD = kinds.LOAD
    RESIZE = kinds.RESIZE
    CANCEL = kinds.CANCEL
    SEAL = kinds.SEAL
    COLD = kinds.COLD


TASK, EDGE, ESTIMATE, STARTED, FINISHED = Kind.TASK, Kind.EDGE, Kind.ESTIMATE, Kind.STARTED, Kind.FINISHED
FAILED, REFUSED, PREEMPT, NODE, GONE = Kind.FAILED, Kind.REFUSED, Kind.PREEMPT, Kind.NODE, Kind.GONE
LOAD, RESIZE, CANCEL, SEAL, COLD = Kind.LOAD, Kind.RESIZE, Kind.CANCEL, Kind.SEAL, Kind.COLD

PLACEHOLDER = 0
"""In place of a shape: a task that stands for work not known yet. It is never placed; SEAL ends it."""
LOOSE = 0
"""In place of a workflow: the task belongs to none, has no edges, and its row is free as soon as it ends."""


class Power(enum.IntEnum):
    """States of a node, as NODE events and `Engine.describe` name them."""

    ON = tables.ON
    ASLEEP = tables.ASLEEP
    WAKING = tables.WAKING
    FALLING = tables.FALLING
    DOWN = tables.DOWN
    DRAINING = tables.DRAINING


class Act(enum.IntEnum):
    """Kinds of actions."""

    SLEEP = tables.ACT_SLEEP
    """Put the node to sleep; report NODE with ASLEEP when it is, or with ON when it will not."""
    WAKE = tables.ACT_WAKE
    """Wake the node; report NODE with ON when it is on."""
    WARM = tables.ACT_WARM
    """Make a warm container of function ``value`` on the node; −1 is one that can take any function.

    It counts as warm after the function's cold start; report COLD when it could not be made or is gone early."""
    FREQUENCY = tables.ACT_FREQUENCY
    """Set the node's frequency level to ``value``."""
    STOP = tables.ACT_STOP
    """End the attempt ``who``; report FINISHED or FAILED when it is gone. Until then it holds what it took."""
    CAP = tables.ACT_CAP
    """Keep the node's watts at or below ``value`` (powercap, NVML); the engine reckons with that frequency's speed."""


class Outcome(enum.IntEnum):
    """How a task left the engine."""

    DONE = tables.DONE
    FAILED = tables.FAILED
    CANCELLED = tables.CANCELLED


class Placement(NamedTuple):
    """One part of a task goes to a node. Assumed at once; STARTED confirms it, REFUSED undoes it.

    Attributes:
        attempt: The id to report about; it fences: once the attempt is over, reports with it change nothing.
        task, node: Ids.
        tag: The number that the driver gave the task.
        part: Which part of the task, from 0.
        attempt_no: How often the task was tried before.
        variant: Which of the shape's variants, from 0.
        devices: Bit mask of the node's devices that it holds; 0 without any.
        frequency: Frequency level of the node's list.
        guarantee: Share of the asked cores that is guaranteed; 1 unless the policy offers less.
        level: Level of its device's list, 0 for full clock.
    """

    attempt: int
    task: int
    node: int
    tag: int
    part: int
    attempt_no: int
    variant: int
    devices: int
    frequency: int
    guarantee: float
    level: int = 0


class Action(NamedTuple):
    """Something to do that is no placement. ``who`` is a node's id, or an attempt's for STOP."""

    kind: Act
    who: int
    value: int


class Ended(NamedTuple):
    """A task left the engine; its id is stale from now on (of a workflow's task: once the workflow is closed)."""

    task: int
    tag: int
    outcome: Outcome


REJECTIONS = {
    kinds.CYCLE: "the edge closes a cycle",
    kinds.CHILD_STARTED: "the child was placed or has ended already",
    kinds.STRANGERS: "parent and child are not tasks of one workflow",
    kinds.DEAD_PARENT: "the parent will not end well; the child is cancelled",
    kinds.WORKFLOW_SEALED: "the workflow is sealed; the task is cancelled",
}
"""Reasons of rejected events, by the number that the engine gives."""


class Rejected(NamedTuple):
    """An event that had no effect, and why. Stale ids are only counted (`Engine.counts`)."""

    kind: Kind
    who: int
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """Decisions of one step. Unpacks as ``placements, actions, wake_at``.

    Attributes:
        wake_at: Call `step` again by then even if nothing happens; `inf` when only events matter.
        ended: Tasks that are done, failed for good, or cancelled.
        rejected: Events that broke a rule (a cycle by a late edge, an edge to a task that runs already).
    """

    placements: Sequence[Placement]
    actions: Sequence[Action]
    wake_at: float
    ended: Sequence[Ended] = ()
    rejected: Sequence[Rejected] = ()

    def __iter__(self) -> Iterator[object]:
        yield self.placements
        yield self.actions
        yield self.wake_at


class Event(NamedTuple):
    """An event as data, for drivers that collect them: ``engine.put(event.kind, *event.who, **event.fields)``."""

    kind: Kind
    who: tuple[int, ...]
    fields: dict[str, object] = {}  # noqa: RUF012


class Driver(Protocol):
    """Owner of time and effects. `wattflow.live.loop.run` joins one to an Engine; asyncio drivers have their own loop.

    All methods return at once. What happened later comes back through `events`.
    """

    def now(self) -> float:
        """Return seconds on the driver's clock; never goes back."""

    def start(self, placement: Placement) -> None:
        """Begin an attempt. Answer with STARTED, then FINISHED or FAILED; or with REFUSED."""

    def stop(self, attempt: int) -> None:
        """End an attempt. Answer with FINISHED or FAILED once it holds nothing any more."""

    def act(self, action: Action) -> None:
        """Carry out an action on a node (sleep, wake, warm, frequency). One that it cannot do it may leave."""

    def events(self, until_s: float) -> Sequence[Event]:
        """Wait until something happened or the time has come; what happened, oldest first."""


@dataclass(frozen=True, slots=True)
class Match:
    """One condition on a node's labels.

    Attributes:
        op: ``in``, ``not-in``, ``exists``, ``absent``, ``gt`` or ``lt`` (the last two compare whole numbers).
    """

    key: str
    op: str = "exists"
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints do not matter. Empty ``key`` means any; empty ``effect`` means both; ``value`` None means any."""

    key: str = ""
    value: str | None = None
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark on a node that keeps tasks away that do not tolerate it (``hard``: never; else only when avoidable)."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Apart:
    """Not in a domain (nodes that share a value of ``topology``) where a task of ``group`` is."""

    group: str
    topology: str = "node"


@dataclass(frozen=True, slots=True)
class Together:
    """Only in a domain where a task of ``group`` is."""

    group: str
    topology: str = "node"


@dataclass(frozen=True, slots=True)
class Spread:
    """Counts of ``group`` in the domains of ``topology`` differ by at most ``max_skew``."""

    group: str
    topology: str
    max_skew: int = 1


@dataclass(frozen=True, slots=True)
class Constraint:
    """Where tasks of a shape may go. All of it holds together; a group is a name that shapes carry (`Engine.shape`).

    Attributes:
        any_of: At least one of these lists of matches holds in full; empty: any node.
        nodes: Names of nodes; empty: any.
        tolerates: Taints that do not matter.
        apart, together, spread: Counted rules; a port is ``Apart("port/tcp/8080")`` on shapes that carry that group.
        prefer: (weight, matches): nodes that hold the matches are tried before the others of equal cost.
    """

    any_of: tuple[tuple[Match, ...], ...] = ()
    nodes: tuple[str, ...] = ()
    tolerates: tuple[Toleration, ...] = ()
    apart: tuple[Apart, ...] = ()
    together: tuple[Together, ...] = ()
    spread: tuple[Spread, ...] = ()
    prefer: tuple[tuple[float, tuple[Match, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Why:
    """Why a task is not placed.

    Attributes:
        state: ``pending`` (parents are open), ``not arrived``, ``waiting``, ``held`` (by the policy), ``parked``,
            ``placed``, ``placeholder``, or how it ended.
        nodes: All nodes known.
        reasons: Nodes by the first filter that refuses them: ``cores``, ``memory``, ``asleep``, a resource's name, …
        until_s: When a parked or held task is tried again; `inf` without a time.
        unplanned: Why the planner in use could not plan its workflow; empty where it could, or none is in use.
    """

    state: str
    nodes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    until_s: float = float("inf")
    unplanned: str = ""

    def __str__(self) -> str:
        said = self.state
        if self.reasons:
            fitting = self.nodes - sum(self.reasons.values())
            parts = [f"{n} {name}" for name, n in sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))]
            said = f"{fitting}/{self.nodes}: {', '.join(parts)}"
        return f"{said}; {self.unplanned}" if self.unplanned else said


@dataclass(frozen=True, slots=True)
class Explained:
    """One candidate of a decision: its cost, and terms that sum to it where the policy names them.

    ``moved``: how far each feature that a learned policy looks at moved the logarithm of the cost, largest first.
    """

    node: int
    variant: int
    cost: float
    alike: int
    terms: dict[str, float] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)

    def against(self, other: Explained) -> dict[str, float]:
        """Tell how far each feature moved the log of this cost over another's, largest first; below 0: to this one."""
        both = dict.fromkeys([*self.moved, *other.moved])
        return largest_first({name: self.moved.get(name, 0.0) - other.moved.get(name, 0.0) for name in both})


def largest_first(moves: dict[str, float]) -> dict[str, float]:
    """Sort those that are not 0 by size, without regard to the sign; ties keep their order."""
    found = sorted(((name, move) for name, move in moves.items() if move), key=lambda pair: -abs(pair[1]))
    return dict(found)


class LiveError(WattflowError):
    """Base of the live engine's typed errors. The engine is unchanged after any of them."""


class UnknownId(LiveError):
    """An id that this engine never gave, or of another kind than the call takes."""


class TimeWentBack(LiveError):
    """`step` was called with a time before the last one, or one that is not a number."""


class BadEvent(LiveError):
    """`put` was called with fields that the kind does not take, or with values out of range."""


class NotLive(LiveError):
    """The policy needs the whole workload and cannot run live; the message says why."""


class Busy(LiveError):
    """Another thread is inside this engine."""


# Ids: row, generation and what it names, in one integer that fits 63 bits.
NODE_ID, TASK_ID, ATTEMPT_ID = kinds.NODE_ID, kinds.TASK_ID, kinds.ATTEMPT_ID
SHAPE_ID, WORKFLOW_ID, CONSTRAINT_ID = kinds.SHAPE_ID, kinds.WORKFLOW_ID, kinds.CONSTRAINT_ID
ID_NAMES = {
    NODE_ID: "node", TASK_ID: "task", ATTEMPT_ID: "attempt", SHAPE_ID: "shape", WORKFLOW_ID: "workflow",
    CONSTRAINT_ID: "constraint",
}  # fmt: skip
ROW_BITS, ROW_MASK, GENERATION_MASK = kinds.ROW_BITS, kinds.ROW_MASK, kinds.GENERATION_MASK


def make_id(what: int, row: int, generation: int) -> int:
    """Return the id of a row in its present generation."""
    return what << kinds.ID_SHIFT | (generation & GENERATION_MASK) << ROW_BITS | row


def row_of(identity: int) -> int:
    """Return the row that an id names, stale or not."""
    return identity & ROW_MASK


def what_of(identity: int) -> int:
    """Tell what an id names: NODE_ID, TASK_ID, …"""
    return identity >> kinds.ID_SHIFT

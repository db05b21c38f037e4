"""A policy: functions without effects plus a few settings.

@policy("greenest")
def greenest(state, task, variant, out):
    for c in range(out.size):
        out[c] = view.added_w(state, task, variant, c) * view.runtime_s(state, task, variant, c)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, Problem, unknown_name
from wattflow.model.workload import Workload

Score = Callable[[Any, int, int, NDArray[np.float64]], None]
Priority = Callable[[Any, int], float]
Act = Callable[[Any], None]
Rank = Callable[[Workload, Cluster], NDArray[np.float64]]
Prepare = Callable[[Any, Cluster], None]

HOLD = np.dtype([
    ("task", "i8"), ("node", "i8"), ("need_u", "i8"), ("need_bytes", "i8"), ("taken", "i8"), ("share_u", "i8"),
    ("device_bytes", "i8"), ("start_s", "f8"), ("end_s", "f8"),
])  # fmt: skip
"""A planned task's holdings: millionths of cores and bytes of a node, and of each device whose bit is in ``taken``,
between two times. ``task`` is the driver's own number of it."""


def vectorised(rank: Rank) -> Rank:
    """Say that a rank function answers for many workflows at once, each on its own, as if they came one by one.

    `check_policy` holds it to that; a driver may then ask for many arrivals in one call.
    """
    rank.vectorised = True  # type: ignore[attr-defined]
    return rank


@dataclass(slots=True)
class Committed:
    """Facts that a planner may know beside the workflow that arrives.

    Attributes:
        now_s: The time of the arrival.
        params: The policy's numbers.
        holds: Rows of HOLD: what tasks planned earlier are expected to hold from now on.
        cache: A planner's own notes between its calls in one run.
    """

    now_s: float
    params: Mapping[str, float]
    holds: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, HOLD))
    cache: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule that the engine follows.

    Attributes:
        node: Node of each task; −1 leaves the choice to the policy's score.
        order: Rank of each task in the queue; smaller first (usually the planned start).
        after: Pairs (earlier, later) of rows that share a lane: the later one waits for the earlier one's end. The
            rows of ``committed.holds`` come first, then the workflow's own tasks.
        variant: Variant of each task, or None for the first.
        holds: A row of HOLD for each task that has a place (``task`` in the workflow's own numbers); what the next
            plan finds committed. None: nothing is foreseen.
    """

    node: NDArray[np.int32]
    order: NDArray[np.float64]
    after: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None
    variant: NDArray[np.int32] | None = None
    holds: NDArray[np.void] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that a score looks at and how far each of them moved a cost, for `Engine.explain`.

    Attributes:
        size: Facts of a candidate.
        write: Called as a score is, with an ``out`` of ``size`` numbers for each candidate, one candidate after
            another; nan for one that they say nothing of.
        names: What ``moved`` tells of.
        moved: The State, the facts as rows (of all variants) and the variant of each row, to how far each of ``names``
            moved the logarithm of each row's cost.
    """

    size: int
    write: Score
    names: Sequence[str]
    moved: Callable[[Any, NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Seen:
    """Workflows that have arrived of late, as a driver tells them: a bounded window, the latest last.

    Attributes:
        number: How many arrived before the first of these.
        flows: Each alone, as estimated.
        runtime_s: For each, seconds at speed 1 of the tasks that have ended, free of crowding; NaN for others.
        end_s: When each ended; NaN while it is open.
    """

    number: int
    flows: Sequence[Workload]
    runtime_s: Sequence[NDArray[np.float64]]
    end_s: NDArray[np.float64]


class Steering(Protocol):
    """Changes a policy's numbers by what is observed. It may simulate, so a live driver keeps it in another process.

    Attributes:
        notes: What it did and why, oldest first: plain values, for reports and `explain`.
    """

    notes: list[dict[str, object]]

    def is_due(self, arrived: int) -> bool:
        """Tell whether it wants to be asked, by the number of workflows that have arrived."""

    def consider(self, now_s: float, seen: Seen) -> Policy | None:
        """Return the policy to go on with; None leaves it as it is."""

    def summary(self) -> dict[str, object]:
        """Figures of the whole run so far: plain values, for reports."""


Planner = Callable[[Workload, Cluster, Committed], Plan]
Steer = Callable[["Policy", Cluster], Steering]


@dataclass(frozen=True, slots=True)
class Policy:
    """One scheduling algorithm.

    Attributes:
        name, summary, paper: For tables; ``paper`` is a DOI or empty.
        score: One cost per candidate; lower is better, `inf` is not here, `nan` is a bug. Absent: lowest index.
        priority: Smaller first; absent: first in, first out.
        act: Called last in each instant; may append to the action table.
        rank: One workflow at its arrival, and the cluster, to one number per task; smaller first (`view.rank`).
        plan: One workflow at its arrival, the cluster and what is committed, to a schedule that the engine follows.
        knows_future: ``plan`` is given the whole workload at once, before the first arrival. Such a policy is marked
            in every table and does not run live.
        slack: The driver computes each task's place on its workflow's DAG at its arrival (`view.slack_s`,
            `view.latest_start_s`, `view.typical_s`, `view.path_s`).
        settings: What is offered and how the queue works.
        params: Tunable numbers with their defaults, in order: ``state.params[i]``.
        limits: Least and most of numbers that have them, both allowed.
        one_of: Numbers of which one at least must be above 0.
        sleep_after_s: Sleep by time-out that this policy carries; None leaves the cluster's own.
        compiled: False runs the functions as plain Python inside the compiled kernel.
        prepare: Called with the State and the cluster before the first event and whenever nodes or classes change;
            fills the policy's memory.
        steer: The policy and the cluster, to what changes its numbers by what is observed as the work goes on. A driver
            that cannot ask uses the policy as it stands.
        ready: Raises InvalidInput where something that the policy needs is not there, such as a file of weights; a live
            engine asks when it takes the policy up.
        terms: Named scores that sum to ``score``, for `Engine.explain`; what they leave is shown too.
        facts: What the score looks at and how far each of it moved a cost, for `Engine.explain`.
    """

    name: str
    summary: str = ""
    paper: str = ""
    score: Score | None = None
    priority: Priority | None = None
    act: Act | None = None
    rank: Rank | None = None
    plan: Planner | None = None
    settings: PolicySettings = PolicySettings()
    params: Mapping[str, float] = field(default_factory=dict)
    sleep_after_s: float | None = None
    compiled: bool = True
    prepare: Prepare | None = None
    slack: bool = False
    knows_future: bool = False
    steer: Steer | None = None
    ready: Callable[[], None] | None = None
    terms: Mapping[str, Score] = field(default_factory=dict)
    facts: Facts | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    one_of: Sequence[str] = ()

    @property
    def fields(self) -> Mapping[str, float]:
        """Tunable numbers and their values."""
        return self.params

    def with_params(self, **values: float) -> Policy:
        """Return the same policy with other numbers; an unknown name, or a number out of its limits, is an error."""
        for name in values:
            if name not in self.params:
                raise unknown_name(f"parameter of {self.name}", name, self.params)
        # Defaults first: `state.params` is read by place, so the order must stay theirs.
        params = {**self.params, **values}
        problems = [
            Problem("", f"{name} = {value:g} is out of range; {_range(*self.limits[name])}")
            for name, value in values.items()
            if name in self.limits and not self.limits[name][0] <= value <= self.limits[name][1]
        ]
        # Only where every number is in range: else the same mistake would be told twice.
        if not problems and self.one_of and not any(params[name] > 0 for name in self.one_of):
            problems.append(Problem("", f"one of {', '.join(self.one_of)} must be above 0: they say what counts"))
        if problems:
            raise InvalidInput(f"policy {self.name}", problems)
        return replace(self, params=params)

    def with_settings(self, **values: Any) -> Policy:
        """Return the same policy with other settings, for example ``queue="easy-backfill"``."""
        return replace(self, settings=replace(self.settings, **values))


def _range(least: float, most: float) -> str:
    return f"it is at least {least:g}" if math.isinf(most) else f"it is {least:g} to {most:g}"


def policy(
    name: str,
    *,
    priority: Priority | None = None,
    act: Act | None = None,
    compiled: bool = True,
    settings: PolicySettings | None = None,
    params: Mapping[str, float] | None = None,
) -> Callable[[Score], Policy]:
    """Make a policy from a score function: ``@policy("mine") def mine(state, task, variant, out): …``."""

    def make(score: Score) -> Policy:
        text = (score.__doc__ or "").strip().splitlines()
        return Policy(
            name=name,
            summary=text[0] if text else "a user's own policy",
            score=score,
            priority=priority,
            act=act,
            compiled=compiled,
            settings=settings or PolicySettings(),
            params=params or {},
        )

    return make

"""What a policy is: functions without effects plus a few settings.

@policy("greenest")
def greenest(state, task, variant, out):
    for c in range(out.size):
        out[c] = view.added_w(state, task, variant, c) * view.runtime_s(state, task, variant, c)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.settings import Settings
from wattflow.model.cluster import Cluster
from wattflow.model.errors import unknown_name
from wattflow.model.workload import Workload

Score = Callable[[Any, int, int, NDArray[np.float64]], None]
Priority = Callable[[Any, int], float]
Act = Callable[[Any], None]
Rank = Callable[[Workload, Cluster], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule that the engine follows.

    Attributes:
        node: Node of each task; −1 leaves the choice to the policy's score.
        order: Rank of each task in the queue; smaller first (usually the planned start).
        after: Pairs (earlier, later) of tasks that share a lane: the later one waits for the earlier one's end.
        variant: Variant of each task, or None for the first.
    """

    node: NDArray[np.int32]
    order: NDArray[np.float64]
    after: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None
    variant: NDArray[np.int32] | None = None


Planner = Callable[[Workload, Cluster, Mapping[str, float]], Plan]


@dataclass(frozen=True, slots=True)
class Policy:
    """One scheduling algorithm.

    Attributes:
        name, summary, paper: For tables; ``paper`` is a DOI or empty.
        score: One cost per candidate; lower is better, `inf` is not here, `nan` is a bug. Absent: lowest index.
        priority: Smaller first; absent: first in, first out.
        act: Called last in each instant; may append to the action table.
        rank: Once per workload, numpy; ``state.extra.rank[task]`` in compiled code.
        plan: Returns a schedule that the engine follows instead.
        settings: What is offered and how the queue works.
        params: Tunable numbers with their defaults, in order: ``state.params[i]``.
        sleep_after_s: Sleep by time-out that this policy carries; None leaves the cluster's own.
        compiled: False runs the functions as plain Python inside the compiled kernel.
        prepare: Called with the built State before the run; fills ``state.memory`` and ``state.params``.
    """

    name: str
    summary: str = ""
    paper: str = ""
    score: Score | None = None
    priority: Priority | None = None
    act: Act | None = None
    rank: Rank | None = None
    plan: Planner | None = None
    settings: Settings = Settings()
    params: Mapping[str, float] = field(default_factory=dict)
    sleep_after_s: float | None = None
    compiled: bool = True
    prepare: Callable[[Any, Workload, Cluster], None] | None = None

    @property
    def fields(self) -> Mapping[str, float]:
        """Tunable numbers and their values."""
        return self.params

    def with_params(self, **values: float) -> Policy:
        """The same policy with other numbers; an unknown name is an error."""
        for name in values:
            if name not in self.params:
                raise unknown_name(f"parameter of {self.name}", name, self.params)
        return replace(self, params={**self.params, **values})

    def with_settings(self, **values: Any) -> Policy:
        """The same policy with other settings, for example ``queue="easy-backfill"``."""
        return replace(self, settings=replace(self.settings, **values))


def policy(
    name: str,
    *,
    priority: Priority | None = None,
    act: Act | None = None,
    compiled: bool = True,
    settings: Settings | None = None,
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
            settings=settings or Settings(),
            params=params or {},
        )

    return make

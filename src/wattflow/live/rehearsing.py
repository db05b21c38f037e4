"""The policy `rehearsed` on a live engine: dials are chosen in another process, from the workflows that are open.

A rehearsal takes a second or two of simulation (`wattflow.plan.rehearsal`), which an event loop cannot spare, so it is
handed to a process of its own; until it answers, the dials before it hold. It is held again when twice as many
workflows have been seen (at every new one, if the policy is told that what is there is all: ``load`` = 0), with the
last of those seen. Drivers call `consider` after a step.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Protocol

import numpy as np

from wattflow.live import shielding
from wattflow.live.engine import Engine
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import rehearsal
from wattflow.policy import arrivals, learned, registry
from wattflow.policy.base import Policy


def is_meant(policy: str | Policy) -> bool:
    """Tell whether a driver that is told this policy should rehearse."""
    return (policy if isinstance(policy, str) else policy.name).split(":")[0] == rehearsal.REHEARSED.name


def chosen_dials(policy: str, known: Sequence[Workload], cluster: Cluster) -> str:
    """The learned policy as it is typed, with the dials that did best; ``lean`` = 0 is the flagship, by the same
    compiled rules. Runs in the other process."""
    fitted = rehearsal.tailored(registry.load(policy), known, cluster)
    numbers = {name: fitted.params[name] for name in learned.DIAL.defaults}
    return ":".join(["learned", *(f"{name}={value!r}" for name, value in numbers.items())])


class Rehearsing:
    """Chooses dials by rehearsal.

    Args:
        policy: As it is typed: ``rehearsed`` with its load and dials.
        executor: Where rehearsals are held; by default one process, started with the first.
    """

    def __init__(self, policy: str = rehearsal.REHEARSED.name, executor: Executor | None = None) -> None:
        self.policy = policy
        self._executor = executor
        self._answer: Future[str] | None = None
        self._told = registry.load(policy)
        self._seen: dict[int, int] = {}  # row of a workflow -> the generation of it that was counted last
        self._arrived = 0
        self._recent: dict[tuple[int, int], Workload] = {}
        self._next = 1

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        """After a step: the policy to use from the next step on, if a rehearsal has found one."""
        if self._answer is not None:
            return self._answered(engine)
        self._look(engine)
        if self._arrived < self._next or sum(map(len, self._recent.values())) < rehearsal.LEAST:
            return None
        self._next = rehearsal.next_at(self._told, self._arrived)
        self._answer = self._process().submit(chosen_dials, self.policy, list(self._recent.values()), engine.cluster)
        return None

    def _look(self, engine: Engine) -> None:
        """Count who has arrived since the last look. Rows of ended workflows come again, with another generation."""
        rows = engine.state.workflows
        flows = sorted((np.flatnonzero(rows.open[1:] > 0) + 1).tolist(), key=lambda row: float(rows.submit[row]))
        ids = [(row, int(rows.generation[row])) for row in flows]
        new = [one for one in ids if self._seen.get(one[0]) != one[1]]
        if new:
            self._seen.update(new)
            self._arrived += len(new)
            self._remember(engine, ids[-rehearsal.RECENT :])

    def _remember(self, engine: Engine, ids: Sequence[tuple[int, int]]) -> None:
        """The last workflows, those that are open as they are known by now."""
        for one in ids:
            self._recent.pop(one, None)
            for known in known_workflows(engine, [one[0]]):
                self._recent[one] = known
        for one in list(self._recent)[: -rehearsal.RECENT]:
            del self._recent[one]

    def _answered(self, engine: Engine) -> Policy | None:
        assert self._answer is not None
        if not self._answer.done():
            return None
        typed, self._answer = self._answer.result(), None
        return None if typed == engine.policy.name else registry.load(typed)

    def _process(self) -> Executor:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        return self._executor

    def close(self) -> None:
        """End the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


class Adviser(Protocol):
    """Looks at an engine after each step, and may choose another policy. What it chooses is journalled."""

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        """The policy to use from the next step on, if it is another."""

    def close(self) -> None:
        """End what runs aside."""


def adviser(policy: str) -> Adviser | None:
    """The shield or the rehearsal that a policy asks for, as it is typed; None where it asks for neither."""
    if shielding.is_meant(policy):
        return shielding.Shielding(policy)
    return Rehearsing(policy) if is_meant(policy) else None


def known_workflows(engine: Engine, flows: Sequence[int]) -> list[Workload]:
    """Open workflows as they are estimated, each alone."""
    found = engine.known(flows)
    if found is None:
        return []
    # A task without an estimate has 0 seconds here.
    found = found.with_estimates(np.where(found.estimate_s > 0, found.estimate_s, np.nan))
    return [one for _, one in arrivals.workflows(found)]


__all__ = ["Adviser", "Rehearsing", "adviser", "chosen_dials", "is_meant", "known_workflows"]

"""The shield on a live engine: it watches in another process, and its choices come back as policies to use.

A look replays a window of some thousand tasks and now and then races candidates (`wattflow.plan.shield`): tens of
milliseconds to seconds, which an event loop cannot spare. So what has arrived and ended is noted after each step
(`recent_workflows`), and every few arrivals handed to a process of its own, which keeps the ledger; until it answers,
the numbers before hold. It is asked so seldom that it takes at most `SHARE` of a core. A process that is lost, or a
server that starts anew, begins with an empty ledger and so with the reference. Drivers call `consider` after a step and
journal what it gives.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor

from wattflow.live.engine import Engine
from wattflow.live.recent_workflows import Arrived
from wattflow.model.cluster import Cluster
from wattflow.plan.shield import Shield, told
from wattflow.policy import registry
from wattflow.policy.base import Policy, Seen
from wattflow.policy.portfolio import DIAL, PORTFOLIO

SHARE = 0.05
"""Of one core, at most."""
FAILED_S = 1.0
"""Seconds that a look counts that failed."""
LOOK_EVERY = 4
"""Arrivals between two looks, at least."""
NOTES = 64
"""Notes that are kept."""
log = logging.getLogger(__name__)
_shields: dict[str, Shield] = {}
"""In the other process: the shield of each policy that it was asked about."""
Answer = tuple[str, list[dict[str, object]], float]


def is_meant(policy: str | Policy) -> bool:
    """Tell whether a driver that is told this policy should shield it."""
    return ":shield=" in (policy if isinstance(policy, str) else policy.name)


def typed(policy: Policy) -> str:
    """A choice as it is typed and journalled: numbers that are not the defaults."""
    told = {name: policy.params[name] for name in DIAL.defaults if policy.params[name] != DIAL.defaults[name]}
    return ":".join([PORTFOLIO.name, *(f"{name}={value!r}" for name, value in told.items())])


def advise(policy: str, now_s: float, seen: Seen, cluster: Cluster) -> Answer:
    """The choice that holds now, the notes on it, and the seconds of processor that it took. In the other process."""
    began = time.process_time()
    shield = _shields.get(policy)
    if shield is None:
        steer = registry.load(policy).steer
        assert steer is not None
        made = steer(registry.load(policy), cluster)
        assert isinstance(made, Shield)
        shield = _shields.setdefault(policy, made)
    shield.move_to(cluster)
    shield.consider(now_s, seen)
    del shield.notes[:-NOTES]
    return typed(shield.choice), list(shield.notes), time.process_time() - began


class Shielding:
    """Asks the shield as workflows arrive.

    Args:
        policy: As it is typed: ``wattflow:shield=kubernetes``.
        executor: Where the shield is kept; by default one process, started with the first look.

    Attributes:
        notes: What was chosen and why, oldest first.
    """

    def __init__(self, policy: str, executor: Executor | None = None) -> None:
        self.policy = policy
        self.notes: list[dict[str, object]] = []
        self._executor = executor
        self._answer: Future[Answer] | None = None
        self._arrived = Arrived()
        self._looked, self._not_before_s = 0, 0.0

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        """After a step: the policy to use from the next step on, if the shield has chosen another."""
        self._arrived.note(engine, now_s)
        if self._answer is not None:
            return self._answered(engine, now_s)
        arrived = self._arrived.arrived
        if arrived - self._looked < LOOK_EVERY or now_s < self._not_before_s:
            return None
        self._looked = arrived
        self._answer = self._process().submit(advise, self.policy, now_s, self._arrived.seen(), engine.cluster)
        return None

    def _answered(self, engine: Engine, now_s: float) -> Policy | None:
        assert self._answer is not None
        if not self._answer.done():
            return None
        answer, self._answer = self._answer, None
        before = len(self.notes) and self.notes[-1]["at_s"]
        try:
            chosen, self.notes, took_s = answer.result()
            if self.notes and self.notes[-1]["at_s"] != before:
                log.info("shield: %s", told(self.notes[-1]))
        except Exception as error:  # advice that fails must not end a scheduler
            log.warning(
                "the shield failed (%s: %s); the reference decides until it answers", type(error).__name__, error
            )
            if isinstance(error, BrokenExecutor):
                self.close()
            chosen, took_s = typed(registry.load(self.policy)), FAILED_S
        self._not_before_s = now_s + took_s / SHARE
        return None if chosen == engine.policy.name else registry.load(chosen)

    def _process(self) -> Executor:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        return self._executor

    def close(self) -> None:
        """End the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


__all__ = ["Shielding", "advise", "is_meant", "typed"]

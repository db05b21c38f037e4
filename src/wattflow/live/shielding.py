"""The shield on a live engine: it watches in another process, and its choices come back as policies to use.

A look replays a window of some thousand tasks and now and then races candidates (`wattflow.plan.shield`): tens of
milliseconds to seconds, which an event loop cannot spare. So what has arrived and ended is told to a process of its own
every few arrivals (`recent_workflows`), which keeps window and ledger; until it answers, the numbers before hold. It is
asked so seldom that it takes at most `SHARE` of a core. Nor does a decision wait for what is told: drivers call `note`
with each step, which copies its events, and `consider` when they have handed out what the step decided. They journal
what it gives, and what it `remembers` after an answer: ledger, figures and the last note. So a process that is lost, or
a server that starts anew, goes on with the ledger as it was.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from wattflow.engine.settings import PolicySettings
from wattflow.live.engine import Engine
from wattflow.live.protocol import Step
from wattflow.live.recent_workflows import Arrived, ArrivedNews, ArrivedWindow
from wattflow.model.cluster import Cluster
from wattflow.plan.shield import Shield, told
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.policy.portfolio import DIAL, PORTFOLIO, REFERENCE

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
_windows: dict[str, ArrivedWindow] = {}
"""In the other process: the shield of each policy that it was asked about, and what it was told of."""


@dataclass(slots=True)
class Remembered:
    """State that outlives the process: plain values, as they are journalled.

    Attributes:
        rows: Response and shadow of the workflows of the ledger, the oldest first.
        summary: `Shield.summary`; empty before the first answer.
        note: The last choice and why; empty while nothing was chosen.
        processor_s: Seconds of processor that the shield took.
    """

    rows: list[list[float]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    note: dict[str, Any] = field(default_factory=dict)
    processor_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the other process: the choice as it is typed, notes, ledger, figures, seconds of processor."""

    chosen: str
    notes: list[dict[str, object]]
    took_s: float
    rows: list[list[float]] = field(default_factory=list)
    summary: dict[str, object] = field(default_factory=dict)


class Adviser(Protocol):
    """Looks at an engine's steps, and may choose another policy. What it chooses is journalled."""

    def note(self, engine: Engine, now_s: float, step: Step) -> None:
        """Note a step before its decisions are handed out, by copies alone."""

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        """The policy to use from the next step on, if it is another; asked when decisions have been handed out."""

    def skip(self, now_s: float) -> None:
        """Let a step pass that is not the policy's doing: whoever is there by then is not judged by what it decided."""

    def news(self) -> Remembered | None:
        """Return the news to journal since the last call, if any."""

    def close(self) -> None:
        """End what runs aside."""


def adviser(policy: str, before: Remembered | None = None) -> Shielding | None:
    """The shield that a policy asks for, as it is typed; None where it asks for none."""
    return Shielding(policy, before=before) if is_meant(policy) else None


def is_meant(policy: str | Policy) -> bool:
    """Tell whether a driver that is told this policy should shield it."""
    return (registry.load(policy) if isinstance(policy, str) else policy).steer is not None


def typed(policy: Policy) -> str:
    """A choice as it is typed and journalled: numbers that are not the defaults; a guarded policy by its own name."""
    if policy.score is not PORTFOLIO.score:
        after_s = policy.sleep_after_s
        same = registry.load(policy.name).sleep_after_s == after_s
        return policy.name if same else f"{policy.name}:sleep={after_s!r}"
    told = {name: policy.params[name] for name in DIAL.defaults if policy.params[name] != DIAL.defaults[name]}
    return ":".join([PORTFOLIO.name, *(f"{name}={value!r}" for name, value in told.items())])


def advise(
    policy: str,
    now_s: float,
    told: ArrivedNews,
    cluster: Cluster | None,
    before: list[list[float]],
    settings: PolicySettings,
) -> Answer:
    """Return the choice that holds now and what it rests on. In the other process; a shield that is made anew takes up
    the ledger from ``before``, and races by what the engine's ``settings`` offer. No ``cluster``: as it was told."""
    began = time.process_time()
    window = _windows.setdefault(policy, ArrivedWindow())
    shield = _shields.get(policy)
    if shield is None:
        assert cluster is not None and told.anew
        meant = registry.load(policy)
        assert meant.steer is not None
        # Kubernetes offers whole requests at full speed only: a race that cuts them would choose what cannot be had.
        offered = meant.with_settings(guarantees=settings.guarantees, frequencies=settings.frequencies)
        made = meant.steer(offered, cluster)
        assert isinstance(made, Shield)
        shield = _shields.setdefault(policy, made)
        shield.ledger.restore(before)
    if cluster is not None:
        shield.move_to(cluster)
    shield.consider(now_s, window.take(told))
    del shield.notes[:-NOTES]
    took_s = time.process_time() - began
    return Answer(typed(shield.choice), list(shield.notes), took_s, shield.ledger.rows(), shield.summary())


class Shielding:
    """Asks the shield as workflows arrive.

    Args:
        policy: As it is typed: ``wattflow:shield=kubernetes``.
        executor: Where the shield is kept; by default one process, started with the first look.
        before: What a server before this one remembered.

    Attributes:
        notes: What was chosen and why, oldest first.
        remembered: What is known by now, and outlives this process.
    """

    def __init__(self, policy: str, executor: Executor | None = None, before: Remembered | None = None) -> None:
        self.policy = policy
        self.notes: list[dict[str, object]] = []
        self.remembered = before or Remembered()
        self._has_news = False
        self._executor = executor
        self._answer: Future[Answer] | None = None
        self._arrived = Arrived()
        # What the other process knows: nothing before the first answer, and after one that failed.
        self._cluster: Cluster | None = None
        self._looked, self._not_before_s = 0, 0.0

    def note(self, engine: Engine, now_s: float, step: Step) -> None:
        """Note a step, within it: some microseconds."""
        self._arrived.note(engine, now_s, step)

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        """After steps: the policy to use from the next one on, if the shield has chosen another."""
        self._arrived.read(engine)
        if self._answer is not None:
            return self._answered(engine, now_s)
        arrived = self._arrived.arrived
        if arrived - self._looked < LOOK_EVERY or now_s < self._not_before_s:
            return None
        self._looked, anew, cluster = arrived, self._cluster is None, engine.cluster
        changed = None if cluster is self._cluster else cluster  # a large one takes milliseconds to tell
        self._cluster = cluster
        self._answer = self._process().submit(
            advise, self.policy, now_s, self._arrived.told(anew), changed, self.remembered.rows if anew else [],
            engine.policy.settings,
        )  # fmt: skip
        return None

    def skip(self, now_s: float) -> None:
        """Forget who is there: the ledger judges our choices, not a cap that slows everything down."""
        self._arrived.begin_anew(now_s)
        self._looked = self._arrived.arrived

    def news(self) -> Remembered | None:
        """Return the news to journal since the last call, if any."""
        if not self._has_news:
            return None
        self._has_news = False
        return self.remembered

    def _answered(self, engine: Engine, now_s: float) -> Policy | None:
        assert self._answer is not None
        if not self._answer.done():
            return None
        answer, self._answer = self._answer, None
        try:
            told_now = answer.result()
            chosen, took_s = told_now.chosen, told_now.took_s
            self._remember(told_now)
        except Exception as error:  # advice that fails must not end a scheduler
            log.warning(
                "the shield failed (%s: %s); the reference decides until it answers", type(error).__name__, error
            )
            if isinstance(error, BrokenExecutor):
                self.close()
            self._cluster = None
            # All nodes on, whatever a stream begins with: nobody watches now.
            chosen, took_s = typed(PORTFOLIO.with_params(**REFERENCE)), FAILED_S
        self._not_before_s = now_s + took_s / SHARE
        return None if chosen == engine.policy.name else registry.load(chosen)

    def _remember(self, answer: Answer) -> None:
        before = len(self.notes) and self.notes[-1]["at_s"]
        self.notes = answer.notes
        note = answer.notes[-1] if answer.notes else {}
        if note and note["at_s"] != before:
            log.info("shield: %s", told(note))
        processor_s = self.remembered.processor_s + answer.took_s
        self.remembered = Remembered(answer.rows, answer.summary, note or self.remembered.note, processor_s)
        self._has_news = True

    def _process(self) -> Executor:
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent)
        return self._executor

    def close(self) -> None:
        """End the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def end_with_parent() -> None:
    """End this process once its parent has ended, SIGKILL included: a worker of a pool would wait for work for ever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


__all__ = ["Adviser", "Answer", "Remembered", "Shielding", "advise", "adviser", "is_meant", "typed"]

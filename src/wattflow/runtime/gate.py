"""Who may start now: budgets, quotas, priorities and fair shares, asked for each placement of the engine's.

The engine decides where; the gate may say *not yet*. What it holds comes back to the engine after a second or more. An
owner is held for another only while that one wants to run and has less than its share, and only while holding helps:
where the other's tasks are not placed within `HELP_S` (they wait for their parents, or for a GPU), nobody waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from wattflow.live import FAILED, REFUSED
from wattflow.live.protocol import Placement
from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime.accounts import NONE, Account, Accounts, Limits
from wattflow.runtime.decider import Decider
from wattflow.runtime.nodes import Nodes
from wattflow.runtime.records import AttemptRecord, TaskRecord

HOLD_S = 1.0
HELD_A_SECOND = 1000
"""Tasks that come back from being held in a second, at most: the engine looks at each anew."""
HELP_S, IGNORE_S = 2.0, 10.0
RECKON_S = 0.1
LEAST_J = 1e-6
"""What any task uses."""


@dataclass(frozen=True, slots=True)
class Held:
    """Why a placement is not begun: for a while, or (``for_s`` None) for good."""

    reason: str
    for_s: float | None = HOLD_S


@dataclass(slots=True)
class _Party:
    """Who shares the nodes with others: a project, or a user without one. ``since_s`` is since when others are held
    for it in vain."""

    open: int = 0
    running: int = 0
    cpus: float = 0.0
    since_s: float | None = None
    ignored_until_s: float = 0.0

    @property
    def waits(self) -> bool:
        return self.open > self.running


class Gate:
    """Counts what runs and waits, and decides who may start.

    Args:
        runtime_s: Seconds that a function usually takes; None where nobody knows.
    """

    def __init__(
        self, accounts: Accounts, nodes: Nodes, decider: Decider, runtime_s: Callable[[str], float | None]
    ) -> None:
        self._accounts, self._nodes, self._decider, self._runtime_s = accounts, nodes, decider, runtime_s
        self._now = accounts.now
        self._parties: defaultdict[Account, _Party] = defaultdict(_Party)
        self._running: defaultdict[Account, int] = defaultdict(int)
        self._open: defaultdict[Account, int] = defaultdict(int)
        self._fair: tuple[float, dict[Account, float]] = (-1.0, {})

    # ---- what happens

    def opened(self, task: TaskRecord) -> None:
        """A task is taken."""
        self._parties[_party(task)].open += 1
        for account, _ in self._accounts.of(*_whose(task)):
            self._open[account] += 1

    def closed(self, task: TaskRecord) -> None:
        """A task is over."""
        party = _party(task)
        self._parties[party].open -= 1
        if self._parties[party].open <= 0 and self._parties[party].running <= 0:
            del self._parties[party]
        for account, _ in self._accounts.of(*_whose(task)):
            self._open[account] -= 1

    def began(self, attempt: AttemptRecord) -> None:
        """An attempt is placed; what it will probably use is reserved."""
        task, node = attempt.task, self._nodes[attempt.node].spec
        party = self._parties[_party(task)]
        party.running, party.cpus, party.since_s = party.running + 1, party.cpus + _cpus(attempt), None
        for account, _ in self._accounts.of(*_whose(task)):
            self._running[account] += 1
        self._accounts.reserve(attempt.trace, self._predicted_j(task, attempt.lease.variant, node))

    def ended(self, attempt: AttemptRecord) -> None:
        """An attempt is over."""
        party = self._parties[_party(attempt.task)]
        party.running, party.cpus = party.running - 1, party.cpus - _cpus(attempt)
        for account, _ in self._accounts.of(*_whose(attempt.task)):
            self._running[account] -= 1
        self._accounts.ended(attempt.trace)

    # ---- what may be

    def check(self, owner: str, project: str, more: int) -> None:
        """Refuse tasks beyond a quota, or of an account whose hard budget is used up, before any is taken."""
        for account, limits in self._accounts.of(owner, project):
            if limits.waiting is not None and self._open[account] + more > limits.waiting:
                said = f"{self._open[account]} tasks are open, {more} more would exceed its quota of {limits.waiting}"
                raise InvalidInput(" ".join(account), f"{said}; wait until some have ended")
        for said, limits, later in self._accounts.beyond(owner, project, LEAST_J):
            if limits.mode == "hard" and not later:
                raise InvalidInput("budget", f"{said}; its owner or an operator can raise it, or wait for next month")

    def keeps(self, task: TaskRecord, placement: Placement) -> bool:
        """Keep a placement from being begun, where it must not be: its task comes back later, or has failed."""
        node = self._nodes.by_engine(placement.node)
        held = None if node is None else self.holds(task, placement.variant, node.spec)
        task.held = None if held is None else held.reason
        if held is None:
            return False
        if held.for_s is None:
            task.reason = held.reason
            self._decider.put(FAILED, placement.attempt, retry=False)
        else:
            self._decider.put(REFUSED, placement.attempt, until_s=self._now() + held.for_s)
        return True

    def holds(self, task: TaskRecord, variant: int, node: m.Node) -> Held | None:
        """Say why a placement must not be begun now; None where it may."""
        owner, project = _whose(task)
        weakest = 0
        predicted_j = self._predicted_j(task, variant, node)
        for said, limits, later in self._accounts.beyond(owner, project, predicted_j):
            if limits.mode == "hard":
                return Held(said, self._pause_s(task) if later else None)
            weakest = min(weakest, -2000 if limits.mode == "soft" else 0)
        for account, limits in self._accounts.of(owner, project):
            if limits.running is not None and self._running[account] >= limits.running:
                return Held(f"{' '.join(account)} may run {limits.running} at a time", self._pause_s(task))
        return self._for_others(task, task.spec.variants[variant].cpus, weakest)

    def _for_others(self, task: TaskRecord, cpus: float, weakest: int) -> Held | None:
        """Hold it for somebody who goes first; None where nobody does."""
        mine = _party(task)
        if len(self._parties) < 2:
            return None
        now_s = self._now()
        fair = self._fair_cpus()
        over = self._parties[mine].cpus + cpus > max(fair[mine], cpus)
        priority = self._priority(mine) + weakest
        for other, party in self._parties.items():
            if other == mine or not party.waits or now_s < party.ignored_until_s:
                continue
            theirs = self._priority(other)
            if theirs > priority or (theirs == priority and over and party.cpus < fair[other]):
                if party.since_s is None:
                    party.since_s = now_s
                elif now_s - party.since_s > HELP_S:
                    party.since_s, party.ignored_until_s = None, now_s + IGNORE_S
                    continue
                return Held(f"{' '.join(other)} goes first", self._pause_s(task))
        return None

    def _fair_cpus(self) -> dict[Account, float]:
        """Processors that each party may have while others want them, by their shares; reckoned now and then."""
        now_s = self._now()
        if now_s - self._fair[0] > RECKON_S or self._fair[1].keys() != self._parties.keys():
            shares = {party: self._limits(party).share for party in self._parties}
            cpus = sum(node.spec.cpus for node in self._nodes if node.state == "on")
            total = sum(shares.values())
            self._fair = now_s, {party: cpus * share / total for party, share in shares.items()}
        return self._fair[1]

    def _limits(self, party: Account) -> Limits:
        return self._accounts.limits.get(party, NONE)

    def _priority(self, party: Account) -> int:
        return self._limits(party).priority

    def _pause_s(self, task: TaskRecord) -> float:
        """Longer where many are held, so that the engine is not busy with them alone."""
        return max(HOLD_S, self._parties[_party(task)].open / HELD_A_SECOND)

    def _predicted_j(self, task: TaskRecord, variant: int, node: m.Node) -> float:
        return self._accounts.predicted_j(task.spec, variant, node, self._runtime_s(task.spec.function_name))


def _whose(task: TaskRecord) -> tuple[str, str]:
    return task.workflow.owner, task.workflow.project


def _party(task: TaskRecord) -> Account:
    owner, project = _whose(task)
    return ("project", project) if project else ("user", owner)


def _cpus(attempt: AttemptRecord) -> float:
    return attempt.task.spec.variants[attempt.lease.variant].cpus

"""Who may start now: budgets, quotas, priorities and fair shares, asked for each placement of the engine's.

The engine decides where; the gate may say *not yet*. What it holds comes back to the engine after a while, and the
engine decides again at once, with the tasks of whoever goes first at the head of its queue (behind thousands of others'
they would be reached one hold after the other, and those held first be back before that). An owner is
held for another only while that one wants to run and has less than its share, and only while holding helps: where
nothing is placed in the room that was kept free (the other's tasks wait for their parents, or for a GPU), nobody waits
for it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from wattflow.live import FAILED, REFUSED
from wattflow.live.protocol import Placement
from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime.accounts import NONE, Account, Accounts, Limits
from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.records import AttemptRecord, Nodes, TaskRecord
from wattflow.runtime.turns import UnderWay

HOLD_S = 0.25
HELD_A_SECOND = 250
"""A party's tasks that come back from being held in a second, at most: the engine looks at each anew."""
STEPS = 256
"""Steps of the engine in one turn, at most: others wait for its commit."""
IGNORE_S = 2.0
RECKON_S = 0.1
PREFERRED = 64
"""Waiting tasks of a party that are put first at a time."""
LEAST_J = 1e-6
"""Joules that any task uses."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Why a placement is not begun: not now, or (``for_good``) not at all."""

    reason: str
    for_good: bool = False


@dataclass(slots=True)
class _Party:
    """Who shares the nodes with others: a project, or a user without one. Until ``ignored_until_s`` nobody is held for
    it: it has nothing that could be placed."""

    open: int = 0
    running: int = 0
    cpus: float = 0.0
    ignored_until_s: float = 0.0
    back_s: deque[float] = field(default_factory=deque)
    ending: set[int] = field(default_factory=set)
    tasks: dict[int, TaskRecord] = field(default_factory=dict)

    def waits(self, now_s: float) -> bool:
        """Say whether it has tasks that wait, and neither are held nor have ended without the engine knowing yet."""
        while self.back_s and self.back_s[0] <= now_s:
            self.back_s.popleft()
            self.ignored_until_s = 0.0
        waiting = self.open - self.running - len(self.back_s) - len(self.ending)
        return waiting > 0 and now_s >= self.ignored_until_s

    def held_until_s(self, now_s: float) -> float:
        """Hold one more: they come back one after the other, so that room that is free then finds some."""
        self.back_s.append(max(now_s + HOLD_S, (self.back_s[-1] if self.back_s else 0.0) + 1 / HELD_A_SECOND))
        return self.back_s[-1]


class Gate:
    """Counts what runs and waits, and decides who may start.

    Args:
        runtime_s: Seconds that a function usually takes; None where nobody knows.
    """

    def __init__(
        self, accounts: Accounts, nodes: Nodes, decider: JournaledEngine, runtime_s: Callable[[str], float | None]
    ) -> None:
        self._accounts, self._nodes, self._decider, self._runtime_s = accounts, nodes, decider, runtime_s
        self._now = accounts.now
        self._parties: defaultdict[Account, _Party] = defaultdict(_Party)
        self._running: defaultdict[Account, int] = defaultdict(int)
        self._open: defaultdict[Account, int] = defaultdict(int)
        self._just_held: set[Account] = set()
        self._held = False
        self._steps = 0
        self._fair: tuple[float, dict[Account, float]] = (-1.0, {})

    # ---- what happens

    def opened(self, task: TaskRecord) -> None:
        """A task is taken."""
        party = self._parties[_party(task)]
        party.open, party.ignored_until_s = party.open + 1, 0.0
        party.tasks[task.id] = task
        for account, _ in self._accounts.of(*_whose(task)):
            self._open[account] += 1

    def closed(self, task: TaskRecord) -> None:
        """A task is over."""
        party = _party(task)
        self._parties[party].open -= 1
        self._parties[party].tasks.pop(task.id, None)
        self._parties[party].ending.discard(task.id)
        if self._parties[party].open <= 0 and self._parties[party].running <= 0:
            del self._parties[party]
        for account, _ in self._accounts.of(*_whose(task)):
            self._open[account] -= 1

    def began(self, attempt: AttemptRecord) -> None:
        """An attempt is placed; what it will probably use is reserved."""
        task, node = attempt.task, self._nodes[attempt.node].spec
        party = self._parties[_party(task)]
        party.running, party.cpus = party.running + 1, party.cpus + _cpus(attempt)
        for account, _ in self._accounts.of(*_whose(task)):
            self._running[account] += 1
        self._accounts.reserve(attempt.trace, self._predicted_j(task, attempt.lease.variant, node))

    def ended(self, attempt: AttemptRecord, done: bool = True) -> None:
        """An attempt is over, and (``done``) its task with it as soon as the engine knows."""
        party = self._parties[_party(attempt.task)]
        if done:
            party.ending.add(attempt.task.id)
        party.running, party.cpus, party.ignored_until_s = party.running - 1, party.cpus - _cpus(attempt), 0.0
        # `running` of an account counts attempts, not tasks: a task that is tried again counts each time it runs.
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

    def keeps(self, task: TaskRecord, placement: Placement, turn: UnderWay) -> bool:
        """Keep a placement from being begun, where it must not be: its task comes back later, or has failed."""
        node = self._nodes.by_engine(placement.node)
        # An attempt that was lost with its node and may still run there is not new work: holding it would run it
        # twice.
        begun = node is not None and task.lost is not None and task.lost.node == node.spec.name  # it may go on there
        held = None if node is None or begun else self.holds(task, placement.variant, node.spec)
        task.held = None if held is None else held.reason
        if held is None:
            return False
        # The engine took the placement for done; it must be asked again in this very turn, or the room stays free.
        self._held, turn.wake_at = True, turn.now_s
        if held.for_good:
            task.reason = held.reason
            self._decider.put(FAILED, placement.attempt, retry=False)
        else:
            until_s = self._parties[_party(task)].held_until_s(self._now())
            self._decider.put(REFUSED, placement.attempt, until_s=until_s)
        return True

    def goes_on(self, turn: UnderWay) -> bool:
        """Let the engine decide again where something was held; says whether it placed something for that."""
        # A cap on steps: with many parties over their shares each step may hold again, and nobody's commit would
        # come.
        if not self._held or self._steps >= STEPS:
            self._held, self._steps = False, 0
            return False
        self._held, self._steps = False, self._steps + 1
        just, self._just_held = self._just_held, set()
        for account in sorted(just):
            waiting = (task.engine for task in self._parties[account].tasks.values() if task.state == "waiting")
            self._decider.prefer(list(islice(waiting, PREFERRED)))
        step = self._decider.step(turn.now_s)
        turn.add(step)
        if not step.placements:  # there is room, and those who go first have nothing for it
            for account in just:
                self._parties[account].ignored_until_s = turn.now_s + IGNORE_S
        return bool(step.placements)

    def holds(self, task: TaskRecord, variant: int, node: m.Node) -> HeldBack | None:
        """Say why a placement must not be begun now; None where it may."""
        owner, project = _whose(task)
        weakest = 0
        predicted_j = self._predicted_j(task, variant, node)
        for said, limits, later in self._accounts.beyond(owner, project, predicted_j):
            # Hard budgets come before quotas and shares: what can never start must fail now, not after its turn in a
            # queue.
            if limits.mode == "hard":
                return HeldBack(said, for_good=not later)
            weakest = min(weakest, -2000 if limits.mode == "soft" else 0)
        for account, limits in self._accounts.of(owner, project):
            if limits.running is not None and self._running[account] >= limits.running:
                return HeldBack(f"{' '.join(account)} may run {limits.running} at a time")
        return self._for_others(task, task.spec.variants[variant].cpus, weakest)

    def _for_others(self, task: TaskRecord, cpus: float, weakest: int) -> HeldBack | None:
        """Hold it for somebody who goes first; None where nobody does."""
        mine = _party(task)
        if len(self._parties) < 2:
            return None
        now_s = self._now()
        fair = self._fair_cpus()
        # Compared after adding this task, but never below its own need: a task larger than a share must run some
        # time.
        over = self._parties[mine].cpus + cpus > max(fair[mine], cpus)
        priority = self._priority(mine) + weakest
        for other, party in self._parties.items():
            # Only who could start something counts; a party whose tasks all run or are held needs no room.
            if other == mine or not party.waits(now_s):
                continue
            theirs = self._priority(other)
            if theirs > priority or (theirs == priority and over and party.cpus < fair[other]):
                self._just_held.add(other)
                return HeldBack(f"{' '.join(other)} goes first")
        return None

    def _fair_cpus(self) -> dict[Account, float]:
        """Processors that each party may have while others want them, by their shares; reckoned now and then."""
        now_s = self._now()
        # Asked for every placement: reckoned anew only when parties came or went, or after a while (nodes may have).
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

    def _predicted_j(self, task: TaskRecord, variant: int, node: m.Node) -> float:
        return self._accounts.predicted_j(task.spec, variant, node, self._runtime_s(task.spec.function_name))


def _whose(task: TaskRecord) -> tuple[str, str]:
    return task.workflow.owner, task.workflow.project


def _party(task: TaskRecord) -> Account:
    owner, project = _whose(task)
    return ("project", project) if project else ("user", owner)


def _cpus(attempt: AttemptRecord) -> float:
    return attempt.task.spec.variants[attempt.lease.variant].cpus

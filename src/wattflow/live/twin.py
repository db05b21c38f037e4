"""Simulate before commit: at planning points a portfolio is rolled forward from the live State, and the best is used.

Every member decides about the same open tasks under the same draws of their runtimes (`roll`), and whoever is wanted
must also be borne out by a look back (`recent_workflows`). When the member in use is changed is the rule's
to say (`looking`), which is also the one of the simulator's foresight. So the outcome is no worse than the reference's,
the first member's, up to the error of the model: estimates, unknown arrivals.

Roll-outs go to the end of all that is known; on more than 64 nodes or 2,000 open tasks as far as `HORIZON_S`. A look
back is two to four simulations, which an event loop need not wait for: they run on a thread, and their answer is taken
after the step that finds it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.live.engine import Engine
from wattflow.live.looking import SPREAD, USUAL, Ends, Look, Rule
from wattflow.live.protocol import Kind
from wattflow.live.recent_workflows import Arrived
from wattflow.live.roll import Forecast, draw_left, roll
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim.simulate import Simulation

log = logging.getLogger(__name__)
Mark = tuple[str, tuple[tuple[str, float], ...]]
MEMBERS = (
    "wattflow",
    "learned",
    "learned:lean=0.5",
    "learned:wait=0.1",
    "wattflow:second=20",
    "wattflow:wait=0.1",
    "scp-wattflow",
)
"""The flagship, dials of the learned policy, and settings of the tuned portfolio. None but the learned ones has other
time-outs than the flagship: a look ahead that knows no arrivals finds that sleeping at once is always best."""
EVERY_S = 30.0
SEEDS = (0, 1, 2)
HORIZON_S = 600.0
MOST_NODES, MOST_TASKS = 64, 2_000


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided at a planning point: the member, and everybody's forecast (the reference first)."""

    policy: Policy
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What a look back is asked: whether one of those wanted would not have been worse than the member in use."""

    rule: Rule
    members: tuple[Policy, ...]
    present: int
    wanted: Sequence[int]
    workload: Workload | None
    cluster: Cluster

    def answer(self) -> int:
        """The number of the member to use. Where nothing can be looked back on it is the reference."""
        if self.workload is None:
            return 0
        workload, cluster = self.workload, self.cluster
        try:
            return self.rule.back(
                self.present, self.wanted, lambda i: hindsight(workload, cluster, self.members[i])
            )  # fmt: skip
        except Exception as error:  # looking is optional: what goes wrong in it must end nobody's work
            log.warning("no look back, so the reference stays: %s", error, exc_info=_unexpected(error))
            return 0


class AtOnce(Executor):
    """Carries out what it is given before it returns: for tests, and for whoever has the time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The answer, or its exception."""
        answer: Future[Any] = Future()
        try:
            answer.set_result(fn(*args, **kwargs))
        except Exception as error:
            answer.set_exception(error)
        return answer


class Twin:
    """Chooses among policies by looking ahead and back.

    Args:
        members: Policies, or as they are typed; the first is the reference.
        every_s: Least time between planning points.
        seeds: Draws of the runtimes; members × seeds roll-outs at each point.
        spread: σ of the logarithm of runtimes around their estimates.
        rule: When the member in use is changed.
        executor: Where looks back are held; by default one thread, started with the first.
    """

    def __init__(
        self,
        members: Sequence[str | Policy] = MEMBERS,
        every_s: float = EVERY_S,
        seeds: Sequence[int] = SEEDS,
        spread: float = SPREAD,
        rule: Rule = USUAL,
        executor: Executor | None = None,
    ) -> None:
        if not members or not seeds:
            raise InvalidInput("twin", "needs at least one policy and one seed")
        if not every_s >= 0 or not 0 <= spread < 5:
            raise InvalidInput("twin", f"every_s {every_s} and spread {spread} must not be negative")
        self.members = tuple(registry.load(m) if isinstance(m, str) else m for m in members)
        self.every_s, self.seeds, self.spread, self.rule = every_s, tuple(seeds), spread, rule
        self.arrived = Arrived()
        self._executor = executor
        self._answer: Future[int] | None = None
        self._next_s = -math.inf
        self._used: Mark | None = None

    @classmethod
    def beside(cls, reference: str | Policy, as_run: Callable[[Policy], Policy] = lambda policy: policy) -> Twin:
        """The usual members with another reference: the policy that a driver was told to use.

        Args:
            as_run: What a driver makes of a policy before it uses it; roll-outs must be of the same.
        """
        first = registry.load(reference) if isinstance(reference, str) else reference
        others = [registry.load(member) for member in MEMBERS if member != first.name]
        return cls([as_run(member) for member in (first, *others)])

    def warm(self) -> None:
        """Load, or compile, all that looks need, in a cluster of one node: no planning point need wait for it."""
        node = Node("n", 4, 8 << 30, power=PowerProfile((0.0, 4.0), (10.0, 40.0)), sleep=Sleep(1.0, 5.0))
        engine = Engine(self.members[0], Cluster("warm", (node,)))
        engine.put(Kind.TASK, engine.shape((Variant(cores=1, memory_bytes=1 << 20),)), estimate_s=1.0)
        engine.step(0.0)
        trial = Twin(self.members, seeds=(0,))
        trial.arrived.note(engine, 0.0)
        trial.choose(engine)
        seen = trial.arrived.workload(engine, draw_left(engine.state, 0.0, 0))
        assert seen is not None
        for member in self.members:
            hindsight(seen, engine.cluster, member)

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        """After every step: the policy to use from the next step on, if another.

        Before a step the engine has not folded what was put, so a look ahead would miss it.
        """
        self.arrived.note(engine, now_s)
        self._follow(engine)
        if self._answer is None and self._is_point(engine, now_s):
            self._answer = self._ask(engine)
        if self._answer is None or not self._answer.done():
            return None
        answer, self._answer = self._answer, None
        chosen = self.members[answer.result()]
        self._used = _mark(chosen)
        if _mark(chosen) == _mark(engine.policy):
            return None
        log.info("looking ahead: %s instead of %s from now on", chosen.name, engine.policy.name)
        return chosen

    def _is_point(self, engine: Engine, now_s: float) -> bool:
        """Whether to look now; before there is anything to look back on, only whether the reference is in use."""
        if self.arrived.ended < self.rule.learnt:
            return _mark(engine.policy) != _mark(self.members[0])
        if now_s < self._next_s or int(engine.state.counts.open[0]) == 0 or not engine.nodes:
            return False
        self._next_s = now_s + self.every_s
        return True

    def _follow(self, engine: Engine) -> None:
        """Who chooses another policy than the twin's says which one is the reference from now on."""
        mark = _mark(engine.policy)
        if mark == self._used:
            return
        told, self._used = self._used is not None, mark
        if told or mark not in map(_mark, self.members):  # at a start it may be what a twin of before chose
            others = tuple(member for member in self.members[1:] if member.name != engine.policy.name)
            self.members = (engine.policy, *others)
            self._answer = None

    def _ask(self, engine: Engine) -> Future[int]:
        """Look ahead; what it takes to look back is done elsewhere."""
        if self.arrived.ended < self.rule.learnt or len(self.members) == 1:
            return AtOnce().submit(int)
        try:
            question, _ = self.look(engine)
        except Exception as error:
            log.warning("no look ahead, so the reference stays: %s", error, exc_info=_unexpected(error))
            return AtOnce().submit(int)
        if question.present == 0 and not question.wanted:
            return AtOnce().submit(int)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="wattflow-twin")
        return self._executor.submit(question.answer)

    def choose(self, engine: Engine) -> Choice:
        """The member to use now, looked ahead and back at once; the engine does not change.

        Until enough has ended it is the reference, whatever the forecasts say.
        """
        question, found = self.look(engine)
        number = question.answer() if self.arrived.ended >= self.rule.learnt else 0
        return Choice(self.members[number], found)

    def look(self, engine: Engine) -> tuple[Question, tuple[Forecast, ...]]:
        """Everybody's forecast, and what a look back is to be asked."""
        found = tuple(roll(engine, self.members, self.until_s(engine), self.seeds, self.spread))
        marks = [_mark(member) for member in self.members]
        present = marks.index(_mark(engine.policy)) if _mark(engine.policy) in marks else 0
        stays, wanted = self.rule.ahead(present, [each.looks for each in found])
        seen = None
        if stays or wanted:
            seen = self.arrived.workload(engine, draw_left(engine.state, self.spread, self.seeds[0]))
        return Question(self.rule, self.members, stays, wanted, seen, engine.cluster), found

    def until_s(self, engine: Engine) -> float:
        """How far roll-outs go: to the end, or to the horizon where that would take too long."""
        small = len(engine.nodes) <= MOST_NODES and int(engine.state.counts.open[0]) <= MOST_TASKS
        return math.inf if small else float(engine.state.clock.now[0]) + HORIZON_S

    def close(self) -> None:
        """End the thread."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def _mark(policy: Policy) -> Mark:
    """What tells a policy from another: a driver may change its numbers under the same name."""
    return policy.name, tuple(policy.params.items())


def _unexpected(error: Exception) -> Exception | None:
    """For the log: where it came from, unless it is a message of ours."""
    return None if isinstance(error, WattflowError) else error


def hindsight(workload: Workload, cluster: Cluster, policy: Policy) -> Look:
    """What has arrived, from the start, under a policy."""
    run = Simulation(workload, cluster, policy).run()
    due_s, end_s = np.full(len(workload.workflow_names), np.inf), np.zeros(len(workload.workflow_names))
    np.minimum.at(due_s, workload.workflow, workload.deadline_s)
    done = run.attempts[run.attempts["outcome"] == 0]
    np.maximum.at(end_s, workload.workflow[done["task"]], done["end_s"])
    ends = Ends(workload.workflow_submit_s, due_s, end_s)
    return Look.of(float(run.energy_j.sum()), ends, 0.0, float(len(done)))


__all__ = ["EVERY_S", "MEMBERS", "AtOnce", "Choice", "Question", "Twin", "hindsight"]

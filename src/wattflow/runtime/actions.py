"""Orders to the driver, and what becomes of them: attempts launched, stopped, adopted; nodes asleep or woken; warmth.

A node that is silent is lost, and its tasks wait again. Where its agent was only cut off or paused, it comes back with
the processes of those attempts. A task that still waits by then is placed there before anything else may be made of it;
its lease names the attempt that it *adopts*, and the agent goes on with that process under the new fence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattflow.live import CANCEL, COLD, Act
from wattflow.live.protocol import Action, Placement
from wattflow.runtime import messages as m
from wattflow.runtime.aside import Background
from wattflow.runtime.decider import JournaledEngine
from wattflow.runtime.drivers.base import Driver, Levelling, Sink
from wattflow.runtime.messages import Ended, Lease, Level
from wattflow.runtime.records import AttemptRecord, Attempts, Nodes, TaskRecord
from wattflow.runtime.turns import PIECE


class Cancelling:
    """Asks the engine to cancel.

    Args:
        soon: Plans a turn.
    """

    def __init__(self, decider: JournaledEngine, soon: Callable[[], None]) -> None:
        self._decider, self._soon = decider, soon
        self._under_way = Background()

    def start(self, tasks: Sequence[TaskRecord], reason: str) -> None:
        """Cancel what has not started of these, while the caller goes on."""
        self._under_way.begin(self.cancel(tasks, reason))

    async def cancel(self, tasks: Sequence[TaskRecord], reason: str | None = None) -> None:
        """Cancel what is still open of these; with a reason, only what has not started."""
        for number, task in enumerate(tasks, start=1):
            # Looked at again: between two pieces a task may have begun, or ended.
            if task.state == "waiting" or (task.state == "running" and reason is None):
                task.reason = reason or task.reason
                self._decider.put(CANCEL, task.engine)
            if number % PIECE == 0:
                self._soon()
                await asyncio.sleep(0)
        self._soon()


class Adopting:
    """Lost attempts whose tasks wait.

    Args:
        tasks: Of open workflows, by number.
        attempts: Knows which tasks attempts that are over belonged to.
    """

    def __init__(
        self, decider: JournaledEngine, nodes: Nodes, tasks: Mapping[int, TaskRecord], attempts: Attempts
    ) -> None:
        self._decider, self._nodes, self._tasks, self._attempts = decider, nodes, tasks, attempts
        self._pinned: list[TaskRecord] = []

    def returned(self, node: str, fences: Iterable[int]) -> None:
        """The agent of a node is back, with these attempts. Their tasks, as far as they wait, may go there only, until
        the next step is over (`settle`)."""
        found = []
        for fence in fences:
            trace = self._attempts.trace(fence)
            task = self._tasks.get(trace.task) if trace is not None else None
            # Placed elsewhere meanwhile, or over: then the old process is an orphan, and the driver stops it.
            if task is not None and task.state == "waiting" and task.lost is not None and task.lost.fence == fence:
                found.append(task)
        if found and (record := self._nodes.get(node)) is not None:
            self._decider.pin([task.engine for task in found], record.engine)
            self._pinned += found

    def adopted(self, task: TaskRecord, node: str, placement: Placement) -> int | None:
        """The attempt that a new one goes on with; None where it begins anew. Asked once for a placement."""
        # Whatever is decided now, there is one chance: a second adoption of the same process would run it under two
        # fences.
        lost, task.lost = task.lost, None
        if lost is None or task not in self._pinned or lost.node != node or lost.lease.variant != placement.variant:
            return None
        # A process cannot move to another device; begun anew there, the old one is stopped as an orphan.
        if lost.lease.device != AttemptRecord.device_of(placement):
            return None
        task.losses -= 1  # it was none
        return lost.fence

    def settle(self) -> None:
        """Let what was not placed go anywhere again."""
        left = [task.engine for task in self._pinned if task.state == "waiting"]
        if left:
            self._decider.pin(left, None)
        self._pinned = []


log = logging.getLogger(__name__)
TRIES = 3
LEAST_S = 30.0
"""Nobody is given up sooner, however quick it was before."""
SLACK = 3.0
"""A node may take so many times its learned time."""
WEIGHT = 0.3


@dataclass(slots=True)
class _Order:
    """A node on its way: since when, how often it was told, when it is told again."""

    began_s: float
    tries: int
    timer: asyncio.TimerHandle


class Waking:
    """Orders to wake that have not been followed by the node itself.

    Args:
        now: The service's clock.
        wake: Tells the driver to wake a node.
        give_up: Marks a node that did not wake, with the reason.
        least_s: Shortest wait for a node.
    """

    def __init__(
        self,
        now: Callable[[], float],
        wake: Callable[[str], None],
        give_up: Callable[[str, str], None],
        least_s: float = LEAST_S,
    ) -> None:
        self._now, self._wake, self._give_up, self._least_s = now, wake, give_up, least_s
        self._orders: dict[str, _Order] = {}
        self._learned_s: dict[str, float] = {}

    def order(self, node: str, expected_s: float) -> None:
        """Wake a node; one that is on its way already is left alone."""
        if node in self._orders:
            return
        # Before the driver is told: it may answer at once, and `awake` must find the order.
        self._orders[node] = _Order(self._now(), 1, self._later(node, expected_s))
        self._wake(node)

    def awake(self, node: str) -> float | None:
        """The node is here: seconds that waking takes it, learned over its wakes; None where nobody had woken it."""
        order = self._orders.pop(node, None)
        if order is None:
            return None
        order.timer.cancel()
        took_s, before_s = self._now() - order.began_s, self._learned_s.get(node)
        # A moving mean: firmware updates and disks change it, one slow boot should not.
        self._learned_s[node] = took_s if before_s is None else before_s + WEIGHT * (took_s - before_s)
        return self._learned_s[node]

    def forget(self, node: str) -> None:
        """The node is lost for another reason."""
        order = self._orders.pop(node, None)
        if order is not None:
            order.timer.cancel()

    def close(self) -> None:
        """Wait for nobody any more."""
        for node in list(self._orders):
            self.forget(node)

    def wake_s(self, node: str) -> float | None:
        """Return what was learned of a node."""
        return self._learned_s.get(node)

    def _later(self, node: str, expected_s: float) -> asyncio.TimerHandle:
        # By what this node took before: a rack of slow firmware must not be taken for dead, nor a dead one waited
        # for.
        wait_s = max(self._least_s, SLACK * self._learned_s.get(node, expected_s))
        return asyncio.get_running_loop().call_later(wait_s, self._again, node, expected_s)

    def _again(self, node: str, expected_s: float) -> None:
        order = self._orders[node]
        if order.tries >= TRIES:
            del self._orders[node]
            self._give_up(node, f"did not wake: told {TRIES} times in {self._now() - order.began_s:.0f} s")
            return
        log.warning("node %s has not woken; telling it again", node)
        order.tries += 1
        order.timer = self._later(node, expected_s)
        self._wake(node)


class Warming:
    """Turns WARM actions into orders to the driver. What a node cannot hold ready is cold there for the engine, too.

    Functions are known by the last task that named them; after a restart, by the tasks that are open.
    """

    def __init__(self, decider: JournaledEngine, driver: Driver, nodes: Nodes) -> None:
        self._decider, self._driver, self._nodes = decider, driver, nodes
        self._orders: dict[str, m.Warm | None] = {}

    def seen(self, spec: m.Task, owner: str = "") -> None:
        """A task was submitted: this is what its function is made of, and whose it is."""
        own = [spec.function, *(variant.function for variant in spec.variants if not variant.fpga)]
        objects = list(dict.fromkeys(name for name in own if name is not None))
        order = m.Warm(spec.function_name, objects, spec.python or "", owner)
        # None for a command, so that `order` can tell it from a function that was not seen since the start.
        self._orders[spec.function_name] = order if objects else None

    def order(self, action: Action) -> None:
        """The policy wants a container of a function on a node, or one that can take any: all that start cold."""
        node = self._nodes.by_engine(action.who)
        if node is None:
            return
        names = [self._decider.function_name(action.value)] if action.value >= 0 else self._slow()
        for name in names:
            order = self._orders.get(name)
            if order is not None:
                self._driver.warm(node.spec.name, order)
            elif action.value >= 0:
                # The engine hears of it with the next event: until then nothing can be placed there.
                self.told(node.spec.name, m.Warmed(name, False, reason="it is a command, or not seen since the start"))

    def told(self, node: str, told: m.Warmed) -> None:
        """A node says what became of an order, or that what was warm is not any more."""
        record = self._nodes.get(node)
        if record is None:
            return
        if told.ready:
            record.warm.add(told.function_name)
            log.info("%s is warm on %s after %.3g s", told.function_name, node, told.seconds)
            return
        record.warm.discard(told.function_name)
        log.info("%s is not warm on %s: %s", told.function_name, node, told.reason)
        # A report of a function that the engine never saw would be an unknown id to it, and end the turn.
        if self._decider.knows(told.function_name):
            self._decider.put(COLD, record.engine, function=told.function_name)

    def _slow(self) -> list[str]:
        return [name for name in self._orders if self._decider.cold_start_s(name) > 0]


class Actions:
    """Turns actions into orders to the driver.

    Args:
        sink: The service, for what cannot be launched.
        tasks: Of open workflows, by number.
        soon: Plans a turn.
        node_state: Notes a node's new state.
    """

    def __init__(
        self,
        decider: JournaledEngine,
        driver: Driver,
        sink: Sink,
        nodes: Nodes,
        tasks: Mapping[int, TaskRecord],
        attempts: Attempts,
        soon: Callable[[], None],
        node_state: Callable[[str, str], None],
    ) -> None:
        self._driver, self._sink, self._nodes, self._attempts = driver, sink, nodes, attempts
        self._decider, self._node_state = decider, node_state
        self._levels: dict[str, Level] = {}
        self._stood_in: set[str] = set()
        self.waking = Waking(sink.now, lambda node: driver.power(node, on=True), sink.gone)
        self.warming = Warming(decider, driver, nodes)
        self.adopting = Adopting(decider, nodes, tasks, attempts)
        self.cancelling = Cancelling(decider, soon)

    def launch(self, leases: Sequence[Lease]) -> None:
        """Have attempts run. Where the driver raises, all of them are refused: fences keep those that run apart."""
        try:
            self._driver.launch(leases)
        except Exception as error:
            # Some of them may have been launched: their reports carry fences of attempts that are over, and change
            # nothing.
            reason = self._sink.aside.put("launch of attempts", [lease.fence for lease in leases], error)
            for lease in leases:
                self._sink.ended(Ended(fence=lease.fence, outcome="refused", reason=f"not launched: {reason}"))

    def do(self, action: Action) -> None:
        """Have one done; what it names may be gone by now."""
        if action.kind == Act.STOP:
            attempt = self._attempts.of_engine(action.who)
            if attempt is not None:
                # From here on a bad end is the end: what was cancelled is not tried again.
                attempt.stopping = True
                self._driver.cancel([attempt.fence])
        elif action.kind in (Act.SLEEP, Act.WAKE):
            self._power(action)
        elif action.kind == Act.WARM:
            self.warming.order(action)
        elif action.kind in (Act.FREQUENCY, Act.CAP):
            self._level(action)

    def _level(self, action: Action) -> None:
        """Order what the node announced that it can do; of others the engine knows one level, and nothing is done."""
        node = self._nodes.by_engine(action.who)
        if node is None or not isinstance(self._driver, Levelling):
            return
        name = node.spec.name
        if action.kind == Act.CAP and node.spec.caps:
            # A clock that stood for a cap of before the start would stay for ever.
            if name in self._stood_in:
                self._stood_in.discard(name)
                self._order(name, Level("clock_mhz"))
            self._order(name, Level("cap_w", float(max(0, action.value))))
        elif action.kind == Act.FREQUENCY and (level := _clock(node.spec, action.value)) is not None:
            before = self._levels.get(name)
            # Another policy decides now: nobody else would lift the limit.
            if before is not None and before.kind == "cap_w" and before.value > 0:
                self._order(name, Level("cap_w"))
            self._order(name, level)

    def _order(self, node: str, level: Level) -> None:
        assert isinstance(self._driver, Levelling)
        self._levels[node] = level
        self._driver.level(node, level)

    def level_again(self, node: str) -> None:
        """Order the level that the engine reckons with on a node: whoever comes back has full clock, or has not heard
        of it, if it was ordered just before the server ended."""
        record = self._nodes.get(node)
        if record is None or not isinstance(self._driver, Levelling):
            return
        known, number = self._levels.get(node), self._decider.level_of(record.engine)
        # Of before the start only the engine knows, and it knows the clock alone.
        level = known if known is not None and known.kind == "cap_w" else _clock(record.spec, number)
        if level is not None:
            self._order(node, level)
            self._stood_in |= {node} if number and known is None else set()

    def _power(self, action: Action) -> None:
        node = self._nodes.by_engine(action.who)
        if node is not None and action.kind == Act.WAKE:
            # Before it is ordered: after a restart in between, the node is woken again rather than forgotten.
            self._node_state(node.spec.name, "waking")
            self.waking.order(node.spec.name, node.spec.wake_s)
        elif node is not None:
            self._driver.power(node.spec.name, on=False)


def _clock(node: m.Node, level: int) -> Level | None:
    """Return the order for a frequency level, or None where the node announced no such level."""
    if level >= len(node.clocks_mhz):
        return None
    return Level("clock_mhz", node.clocks_mhz[level] if level else 0.0)

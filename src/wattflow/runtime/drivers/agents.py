"""Agents that pull: each turn of an agent brings what happened there and takes leases home.

A lease is sent again when the agent does not say that it holds it; the agent knows attempts by their fence and takes
none twice. An agent that has not been heard of for ``lost_after_s`` is lost. Only time in which this process listened
counts for that: a server that was paused, or held up, does not take its own absence for everybody else's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from wattflow.levels.power_hooks import HookFailed, PowerHook
from wattflow.model.errors import WattflowError
from wattflow.runtime.aside import Background
from wattflow.runtime.drivers.base import Reporting, Sink
from wattflow.runtime.messages import Ended, Lease, Level, Node, Orders, Sync, Warm
from wattflow.runtime.processes import lineage_of
from wattflow.runtime.records import Recent

log = logging.getLogger(__name__)
LOST_AFTER_S = 3.0
LOOK_EVERY_S = 0.1
"""How often the driver looks for lost agents; adds to the time until a loss is noticed."""
LATE = 3.0
"""A look that comes later than so many times its interval tells of the server's own lateness, which is discounted."""
RESEND_AFTER_S = 2.0
PIECE = 16
"""Reports that are taken in before others have a turn of the loop."""
FALLING_S = 10.0
"""An agent that calls so soon after its node was told to sleep is not awake again."""
WAKING_EVERY_S, WATCH_WAKING_S = 1.0, 600.0
"""How often and for how long a waking node's watts are asked for, where somebody outside it measures them."""
ASLEEP_WAIT_S = 5.0
"""Longest wait for what a sleeping node draws, before it is woken."""
WAKE_S = 60.0
"""Seconds that waking is taken to last before it was ever seen."""


class NameTaken(WattflowError):
    """Another machine's agent has the name of a node; both cannot be it."""


@dataclass(slots=True)
class _LevelOrder:
    """A level, told a few times: its agent may have given up the turn that is answered. Twice is the same as once."""

    order: Level
    left: int = 3
    sent_s: float = -math.inf

    def sent(self, now_s: float) -> Level:
        """Count that it is told now."""
        self.left, self.sent_s = self.left - 1, now_s
        return self.order


@dataclass(slots=True)
class _Agent:
    """An agent as the driver sees it. ``leases`` are placed there and not over, by fence, with when each was sent;
    ``silent_s`` is how long the driver has listened since it heard of the agent,
    ``token`` names the one that it calls with."""

    boot: str
    silent_s: float = 0.0
    node: Node | None = None
    leases: dict[int, Lease] = field(default_factory=dict)
    sent_s: dict[int, float] = field(default_factory=dict)
    stops: set[int] = field(default_factory=set)
    stopped_s: dict[int, float] = field(default_factory=dict)
    sleep: bool = False
    warm: list[Warm] = field(default_factory=list)
    levels: dict[tuple[int, str], _LevelOrder] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    token: str = ""

    def tell(self) -> None:
        """Wake the agent's waiting turn."""
        event, self.news = self.news, asyncio.Event()
        event.set()


class AgentsDriver(Reporting):
    """Nodes are agents that call in; `sync` is one turn of one of them.

    An attempt belongs to the node that it was leased to: whatever another node reports about it is refused.

    Attributes:
        refused: Reports that were refused, by reason.
    """

    name = "agents"
    queues = True

    def __init__(self, lost_after_s: float = LOST_AFTER_S, hook: PowerHook | None = None) -> None:
        self._lost_after_s, self._hook = lost_after_s, hook
        self._falling_s: dict[str, float] = {}
        self._waking_w: dict[str, list[float]] = {}
        self._woke_w: dict[str, float] = {}
        self._asleep_w: dict[str, float] = {}
        self._telling = Background()
        self._agents: dict[str, _Agent] = {}
        self._waiting: dict[str, list[Lease]] = {}
        self._where: dict[int, str] = {}
        self._over: Recent[str] = Recent()  # nodes of attempts whose joules and last lines are still to come
        self._given_up: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self.refused: Counter[str] = Counter()

    async def start(self, sink: Sink) -> None:
        """Wait for agents to call; watch for those that stop."""
        self._sink = sink
        self._watch = asyncio.create_task(self._look_for_lost())

    async def stop(self) -> None:
        """Agents keep what they run and call again later."""
        for task in [*self._telling, *([self._watch] if self._watch is not None else [])]:
            task.cancel()
        for agent in self._agents.values():
            agent.tell()

    def resume(self, nodes: Sequence[str], leases: Sequence[Lease]) -> None:
        """Agents that were here have their time to call again; the boot that calls first is taken for theirs."""
        for node in nodes:
            # No boot yet: `knows` takes the first that calls for theirs, so a restart of the server loses nobody.
            self._agents[node] = _Agent("")
        self.launch(leases)

    def launch(self, leases: Sequence[Lease]) -> None:
        """Keep them for their agents' next turn."""
        for lease in leases:
            agent = self._agents.get(lease.node)
            if agent is None:
                self.sink.ended(Ended(fence=lease.fence, outcome="node_lost", reason="its node has gone"))
                continue
            agent.leases[lease.fence] = lease
            self._where[lease.fence] = lease.node
            agent.tell()

    def cancel(self, fences: Sequence[int]) -> None:
        """Tell the agents to stop them. One that was never sent is over at once."""
        for fence in fences:
            agent = self._agents.get(self._where.get(fence, ""))
            if agent is None:
                self.sink.ended(Ended(fence=fence, outcome="cancelled", reason="cancelled"))
                continue
            agent.stops.add(fence)
            agent.tell()

    def power(self, node: str, *, on: bool) -> None:
        """Through the hook where there is one (see `hooks`); else sleep is the agent's own doing."""
        if self._hook is not None and self._hook.covers(node):
            self._telling.begin(self._resume(node) if on else self._suspend(node))
            return
        agent = self._agents.get(node)
        if agent is not None and not on:
            agent.sleep = True
            agent.tell()

    def level(self, node: str, order: Level) -> None:
        """Its agent is told at its next turn; of two orders for one thing the later counts."""
        agent = self._agents.get(node)
        if agent is not None:
            agent.levels[order.device, order.kind] = _LevelOrder(order)
            agent.tell()

    def warm(self, node: str, order: Warm) -> None:
        """Its agent is told at its next turn."""
        agent = self._agents.get(node)
        if agent is not None and order not in agent.warm:
            agent.warm.append(order)
            agent.tell()

    async def _suspend(self, node: str) -> None:
        """Put a node to sleep. One that holds work, or that cannot be told, stays on."""
        assert self._hook is not None
        agent = self._agents.get(node)
        if agent is None:
            return
        try:
            if agent.leases:
                raise HookFailed("it has work")
            self._falling_s[node] = self.sink.now()
            # Not an agent's any more while it falls asleep: its silence is no loss.
            self._agents.pop(node)
            await self._hook.suspend(node)
            self._falling_s[node] = self.sink.now()
            self.sink.asleep(node)
        except HookFailed as error:
            log.warning("node %s does not go to sleep: %s", node, error)
            self._falling_s.pop(node, None)
            if agent.node is not None:
                self._agents[node] = agent
                agent.silent_s = 0.0
                self.sink.announce(agent.node)

    async def _resume(self, node: str) -> None:
        """Begin to wake a node; it is on when its agent calls. Whoever waits for it tells it again."""
        assert self._hook is not None
        self._falling_s.pop(node, None)
        # Once for a wake: told again, it is not asleep any more, and its watts would be those of booting.
        if node not in self._waking_w:
            self._waking_w[node] = []
            await self._read_asleep(node)
        try:
            await self._hook.resume(node)
            await self._watch_waking(node)
        except HookFailed as error:
            log.warning("node %s was not woken: %s", node, error)

    async def _read_asleep(self, node: str) -> None:
        """Note what it draws asleep, the moment before it is woken, where somebody outside it measures that."""
        assert self._hook is not None
        try:
            watts = await asyncio.wait_for(self._hook.watts(node), ASLEEP_WAIT_S)
        except (HookFailed, TimeoutError) as error:
            log.info("what node %s draws asleep is not known: %s", node, error)
            return
        if watts is not None:
            self._asleep_w[node] = watts

    async def _watch_waking(self, node: str) -> None:
        """Note what it draws until it is here, where somebody outside it measures that."""
        assert self._hook is not None
        end_s = self.sink.now() + WATCH_WAKING_S
        while node in self._waking_w and self.sink.now() < end_s:
            try:
                watts = await self._hook.watts(node)
            except HookFailed as error:
                log.info("what node %s draws while it wakes is not known: %s", node, error)
                return
            if watts is None:
                return
            self._waking_w.get(node, []).append(watts)
            await asyncio.sleep(WAKING_EVERY_S)

    def announce(self, node: Node, boot: str, token: str = "") -> None:
        """An agent says what its node is. ``token`` names the one that it came with, where it needed one.

        Raises:
            PermissionError: An agent with another token is that node.
        """
        self.check_token(node.name, token)
        if node.name in self._agents and not self.knows(node.name, boot):
            # The same lineage is the same agent started anew; another one is a second machine that took its name.
            if lineage_of(self._agents[node.name].boot) != lineage_of(boot):
                raise NameTaken(
                    f"a node named {node.name!r} is here already, with an agent of another machine or folder: end that "
                    f"one, or give this one another --name"
                )
            self._lose(node.name, "its agent was started anew")
        if self.sink.now() - self._falling_s.get(node.name, -math.inf) < FALLING_S:
            return  # its last words before it sleeps
        self._falling_s.pop(node.name, None)
        if self._hook is not None and self._hook.covers(node.name):
            drawn = self._waking_w.pop(node.name, [])
            wake_w = sum(drawn) / len(drawn) if drawn else self._woke_w.get(node.name, node.wake_w)
            if wake_w is not None:
                self._woke_w[node.name] = wake_w
            asleep_w = self._asleep_w.get(node.name, node.sleep_w)
            node = msgspec.structs.replace(
                node, sleeps=True, wake_s=node.wake_s or WAKE_S, wake_w=wake_w, sleep_w=asleep_w
            )
        agent = self._agents.setdefault(node.name, _Agent(boot))
        agent.node, agent.token = node, token
        self.sink.announce(node)
        gone_boot, fences = self._given_up.pop(node.name, ("", ()))
        if boot == gone_boot:  # it was only silent: what it ran may run on
            agent.stopped_s.update(dict.fromkeys(fences, self.sink.now()))  # no orphans before that is decided
            self.sink.returned(node.name, fences)

    def check_token(self, node: str, token: str) -> None:
        """Refuse a node's name that an agent with another token has."""
        agent = self._agents.get(node)
        if agent is not None and not agent.token:  # not heard of since the server's start
            agent.token = token
        if agent is not None and token and agent.token != token:
            self.refused["another agent's node"] += 1
            raise PermissionError(f"an agent with another token is node {node}; give this one another --name")

    def has(self, fence: int, token: str) -> bool:
        """Say whether an attempt is, or lately was, that of an agent with this token."""
        agent = self._agents.get(self._node_of(fence))
        return agent is not None and agent.token in ("", token)

    def _node_of(self, fence: int) -> str:
        return self._where.get(fence) or self._over.get(fence) or ""

    def knows(self, node: str, boot: str) -> bool:
        """Say whether this agent has announced itself in this life; not asked again after a restart of the server."""
        agent = self._agents.get(node)
        if agent is not None and not agent.boot:
            agent.boot = boot
        return agent is not None and agent.boot == boot

    async def report(self, sync: Sync) -> None:
        """Take in what happened on a node, a piece at a time: thousands of short tasks must not hold up the loop."""
        agent = self._agents[sync.node]
        agent.silent_s = 0.0
        for number, tell in enumerate(self._news_of(agent, sync), start=1):
            with self.sink.aside.guard("news of node", sync.node):
                tell()
            if number % PIECE == 0:
                await asyncio.sleep(0)

    def _news_of(self, agent: _Agent, sync: Sync) -> Iterator[Callable[[], None]]:
        if sync.load is not None:
            yield partial(self.sink.load, sync.node, sync.load)
        for window in sync.windows:
            yield partial(self.sink.window, sync.node, window)
        for fence, started_s, cold_s in sync.started:
            # Fences carry the epoch, so a report from before a restored backup names no attempt of today.
            if self._is_its(fence, sync.node):
                yield partial(self.sink.started, fence, started_s, cold_s)
        for end in sync.ended:
            if self._is_its(end.fence, sync.node):
                self._forget(agent, end.fence)
                self._over.add(end.fence, sync.node)
                yield partial(self.sink.ended, end)
        for told in sync.warmed:
            yield partial(self.sink.warmed, sync.node, told)
        for joules in sync.energy:
            if self._is_its(joules.fence, sync.node):
                yield partial(self.sink.energy, joules)

    def _is_its(self, fence: int, node: str) -> bool:
        """Say whether a report is about the node's own attempt. An orphan's is not: it was leased anew since."""
        if (owner := self._node_of(fence)) == node:
            return True
        self.refused["another node's attempt"] += 1
        if owner:
            log.warning("node %s reports about attempt %d, which is %s's: refused", node, fence, owner,
                        extra={"node": node, "attempt": fence})  # fmt: skip
        return False

    async def orders(self, sync: Sync) -> Orders:
        """Tell the agent what to do; waits for something while its turn allows."""
        loop = asyncio.get_running_loop()
        # Only a call counts as a sign of life, so nobody waits here for as long as it takes to be given up.
        deadline = loop.time() + min(sync.wait_s, self._lost_after_s / 2)
        held = set(sync.holding)
        while True:
            if not self.knows(sync.node, sync.boot):
                return Orders(announce=True)
            agent = self._agents[sync.node]
            orders = self._due(agent, held)
            left_s = deadline - loop.time()
            if orders is not None or left_s <= 0:
                return orders or Orders()
            try:
                await asyncio.wait_for(agent.news.wait(), left_s)
            except TimeoutError:
                continue
            finally:
                held &= set(agent.leases)  # what ended while the turn waited is no orphan

    def _due(self, agent: _Agent, held: set[int]) -> Orders | None:
        now_s = self.sink.now()
        leases = []
        for fence, lease in agent.leases.items():
            if fence in held:
                agent.sent_s[fence] = now_s
            # An answer with leases may be lost on its way; agents take no fence twice, so sending again is safe.
            elif now_s - agent.sent_s.get(fence, 0.0) > RESEND_AFTER_S:
                agent.sent_s[fence] = now_s
                leases.append(lease)
        # An attempt that the agent holds and nobody knows is an orphan of an earlier life of the server.
        stop = [fence for fence in held if fence in agent.stops or fence not in agent.leases]
        stop = [fence for fence in stop if now_s - agent.stopped_s.get(fence, 0.0) > RESEND_AFTER_S]
        agent.stopped_s.update(dict.fromkeys(stop, now_s))
        for fence in agent.stops - held:
            # Never sent, so no agent can run it: it is over at once. One that was sent must be stopped there first.
            if fence in agent.leases and fence not in agent.sent_s:
                self._forget(agent, fence)
                self.sink.ended(Ended(fence=fence, outcome="cancelled", reason="cancelled before it started"))
        agent.stops &= set(agent.leases)
        sleep, agent.sleep = agent.sleep, False
        warm, agent.warm = agent.warm, []
        levels = [one.sent(now_s) for one in agent.levels.values() if now_s - one.sent_s > RESEND_AFTER_S]
        agent.levels = {place: one for place, one in agent.levels.items() if one.left > 0}
        if not (leases or stop or sleep or warm or levels):
            return None
        return Orders(leases, stop, power="sleep" if sleep else "", warm=warm, levels=levels)

    def _forget(self, agent: _Agent, fence: int) -> None:
        agent.leases.pop(fence, None)
        agent.sent_s.pop(fence, None)
        agent.stops.discard(fence)
        agent.stopped_s.pop(fence, None)
        self._where.pop(fence, None)

    def _lose(self, node: str, reason: str) -> None:
        agent = self._agents.pop(node, None)
        if agent is None:
            return
        # The attempts themselves are ended by `gone`; their fences stay in `_given_up` in case the node was only
        # silent.
        for fence in agent.leases:
            self._where.pop(fence, None)
        self._given_up[node] = (agent.boot, tuple(agent.leases))
        agent.tell()
        self.sink.gone(node, reason)

    async def _look_for_lost(self) -> None:
        every_s, before_s = min(LOOK_EVERY_S, self._lost_after_s / 6), time.monotonic()
        while True:
            await asyncio.sleep(every_s)
            now_s = time.monotonic()
            # What is beyond the limit is this process's own lateness: calls that came meanwhile lie unread.
            listened_s, before_s = min(now_s - before_s, LATE * every_s), now_s
            for name, agent in list(self._agents.items()):
                agent.silent_s += listened_s
                if agent.silent_s > self._lost_after_s:
                    with self.sink.aside.guard("loss of node", name):
                        self._lose(name, f"not heard of for {self._lost_after_s:g} s")

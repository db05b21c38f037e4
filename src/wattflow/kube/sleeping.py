"""Nodes put to sleep and woken: by a command, Redfish, wake-on-LAN or a cloud (`wattflow.kube.node_switches`).

The engine asks; here it is carried out. A node that holds nothing but daemons gets our taint, is looked at once more
after what others had under way has shown itself, and is then switched. Nothing is ever evicted: a node that turns out
to be in use stays on. A woken node is used when its kubelet says ready *after* the order: what it said before it fell
asleep does not count. Cordons are the operator's alone: none is set, none is taken off, and a node that has one is left
as it is. Only nodes with the label ``wattflow.io/sleep: "true"`` take part.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field

import aiohttp
import msgspec

from wattflow.kube import late_pods, objects, sleep_facts
from wattflow.kube.allowance import OF_SLEEP, SWITCH, Allowance, held, windows
from wattflow.kube.book import Book
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.filters import snapshot
from wattflow.kube.given_back import GivenBack
from wattflow.kube.kubelet_word import Sign, is_open, ready, sign_of, spoke_since
from wattflow.kube.leader import Lease
from wattflow.kube.reflect import DELETED
from wattflow.kube.settings import SchedulerSettings
from wattflow.kube.taint_writer import drop_taint, put_taint
from wattflow.kube.tenant import PREFIX
from wattflow.levels.power_hooks import HookFailed, PowerHook
from wattflow.live.protocol import Power

log = logging.getLogger(__name__)
MAY_SLEEP = f"{PREFIX}sleep"
ASLEEP = f"{PREFIX}asleep"
"""Annotation and taint of a node that sleeps by our order; their value is the scheduler's name."""
_LEASE_S = 2.0
_LEASES_PER_S = 25
"""Leases read in a second for all nodes that wake: a thousand at once would else keep the API server from the rest."""
_TRIES = 3
_TAINTS_S = 30.0
"""A woken node's taints of sleep are waited for so long: the controller that puts them there looks every five."""
_FOUND_S, _LEFT_ON_S = 120.0, 3600.0
"""A kubelet that speaks so long after it should sleep is that of a machine that is on; it is left on for so long."""
_WATTS_S = 60.0
"""A machine that was told to sleep draws as much as one that sleeps after this long."""
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_UNREAD = "it cannot be read"


def may_sleep(node: objects.Node) -> bool:
    """Tell whether its owner lets us put it to sleep."""
    return node.metadata.labels.get(MAY_SLEEP) == "true"


def is_daemon(pod: objects.Pod) -> bool:
    """Tell whether a pod belongs to its node, and sleeps with it: of a DaemonSet, or of the kubelet itself."""
    return any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)


class _Held(Exception):
    """A node that was to be switched is somebody else's business; the message says why."""


@dataclass(slots=True)
class Sleeper:
    """Sleep of the nodes of one scheduler.

    Attributes:
        hook: What switches nodes.
        busy: Whether a node holds pods that would be lost.
        tell: Called with a node and its state when it has changed: ON, ASLEEP.
        failed: Called with a node that did not wake, or is gone: what waits for it goes elsewhere.
        told: Called with a node and a sentence for its events.
        replay: Called with a change of a node that was held back while it was away, after all.
        allowance: What the operator allows.
        expected: Tells whether pods that do not exist yet are about to need a node; see `wattflow.kube.queued_work`.
        dry_run: Whether what would be switched is only told.
        usual_s: How long a wake takes of which nothing was learned.
        states: Nodes that are not simply on.
    """

    client: Client
    owner: str
    hook: PowerHook
    busy: Callable[[str], bool]
    tell: Callable[[str, Power], None]
    failed: Callable[[str], None] = lambda name: None
    settle_s: float = 2.0
    wake_limit_s: float = 900.0
    told: Callable[[objects.Metadata, str, str], None] = lambda node, reason, text: None
    replay: Callable[[str, objects.Node], None] = lambda kind, node: None
    allowance: Allowance | None = None
    expected: Callable[[objects.Node], bool] = lambda node: False
    dry_run: bool = False
    usual_s: float = 120.0
    states: dict[str, Power] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _nodes: dict[str, objects.Node] = field(default_factory=dict)
    _before: dict[str, Sign] = field(default_factory=dict)
    _ready: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _tidying: set[str] = field(default_factory=set)
    _away: dict[str, tuple[str, objects.Node] | None] = field(default_factory=dict)
    """Nodes that are given back while they sleep, and the last change that was not passed on."""
    _first: dict[str, tuple[float, Sign]] = field(default_factory=dict)
    """Of nodes that sleep: when each was first seen to, and what its kubelet had said by then."""
    _left_on_s: dict[str, float] = field(default_factory=dict)

    def seen(self, kind: str, node: objects.Node) -> objects.Node | None:
        """Return a node as we look at it: one that sleeps by our order lacks what sleep alone put there.

        None where the change is of a node that is given back while it sleeps: for us it stays as it was. A cordon, and
        whatever else makes the node somebody's business, stays in sight, and our taint with it: such a node takes no
        pods, asleep or not, since nobody would wake it.
        """
        name = node.metadata.name
        if name in self._away:
            self._away[name] = kind, node
            return None
        if kind == DELETED:
            self._nodes.pop(name, None)
            if self.states.pop(name, None) is not None:
                self.failed(name)  # who waits for it to wake would wait for good
            if name in self._ready:
                self._ready[name].set()
            return node
        first = name not in self._nodes
        self._nodes[name] = node
        spoke = ready(node) and spoke_since(sign_of(node), self._before.get(name))
        if name in self._ready and spoke and is_open(node):
            self._ready[name].set()
        if node.metadata.annotations.get(ASLEEP) != self.owner:
            return node
        # only of a node that is new to us: the watch may tell of our own mark after we have taken it off
        if first and name not in self.states:
            self.states[name] = Power.ASLEEP
        self._look_whether_on(name, node)
        keep_off = self.held(node) is not None
        rest = [one for one in node.spec.taints if keep_off or (one.key != ASLEEP and one.key not in OF_SLEEP)]
        return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=rest))

    def _look_whether_on(self, name: str, node: objects.Node) -> None:
        """Use a node again that is on although it should sleep: by somebody's hand, or by a leader that was killed
        between its mark and its order."""
        if self.states.get(name) is not Power.ASLEEP:
            self._first.pop(name, None)
            return
        now_s, said = self.clock(), sign_of(node)
        first_s, before = self._first.setdefault(name, (now_s, said))
        if now_s - first_s > _FOUND_S and ready(node) and spoke_since(said, before):
            self._left_on_s[name] = now_s + _LEFT_ON_S
            self._say(name, "FoundAwake", "it is on although it was put to sleep; it is used, and left on for an hour")
            self._on(name)

    def awake(self, name: str) -> bool:
        """Return whether pods may be bound to it."""
        return name not in self.states

    def sleep(self, name: str) -> None:
        """Put a node to sleep if nothing would be lost and nobody objects; `tell` says what became of it."""
        covered = self.hook.covers(name)
        if not covered or self.busy(name) or name in self.states or self._against(name) is not None:
            self.tell(name, self.states.get(name, Power.ON))
            return
        if self.dry_run:
            self._say(name, "WouldSleep", "it would be put to sleep now (dry run)")
            self.tell(name, Power.ON)
            return
        self.states[name] = Power.FALLING
        self._start(self._sleep(name))

    def wake(self, name: str) -> None:
        """Wake a node that sleeps. One that is on is told to be so, lest the engine waits for it."""
        if name in self._nodes and self.held(self._nodes[name]) is not None:
            self.failed(name)
            return
        if self.states.get(name) in (Power.ASLEEP, Power.FALLING):
            was = self.states[name]
            self.states[name] = Power.WAKING
            if was is Power.ASLEEP:  # one that is falling asleep is woken when it has
                self._start(self._wake(name))
        elif name not in self.states and name in self._nodes:
            self.tell(name, Power.ON)

    def on_namespace(self, namespace: objects.Namespace) -> None:
        """Look at the operator's switch; `keep_on` of whoever leads carries it out."""
        if self.allowance is not None:
            self.allowance.off = namespace.metadata.annotations.get(SWITCH) == "off"

    def keep_on(self) -> list[str]:
        """Wake what the operator wants on now: all by the switch or the schedule, else minimum and headroom.

        Called again and again, since what is short may be so because of a cordon, a full node or the time of day; a
        node that somebody holds is passed over until they let go of it.
        """
        self._tidy_marks()
        if self.allowance is None:
            return []
        asleep = [name for name in sorted(self.states) if self.states[name] is Power.ASLEEP]
        free = [name for name in asleep if name in self._nodes and self.held(self._nodes[name]) is None]
        woken = self.allowance.wanted(free)
        for name in woken:
            self.wake(name)
        return woken

    def _tidy_marks(self) -> None:
        """Take our mark off nodes that are on: writing that may have failed while the API server was away."""
        for name, node in self._nodes.items():
            ours = node.metadata.annotations.get(ASLEEP) == self.owner
            if ours and name not in self.states and name not in self._tidying:
                self._tidying.add(name)
                self._start(self._tidy(name))

    async def _tidy(self, name: str) -> None:
        await self._mark(name, asleep=False)
        await asyncio.sleep(_LEASE_S)  # for the watch to tell of it
        self._tidying.discard(name)

    def wake_ahead(self, missing_m: int, late: late_pods.Late, now_s: float) -> list[str]:
        """Wake nodes for so many milli-cores that are about to be wanted, and for pods that are late; returns which."""
        pods = late.pods(now_s)
        if missing_m <= 0 and not pods:
            return []
        views = late.book.cluster.nodes
        asleep = late_pods.asleep(self.states, lambda view: self.held(view.node) is None, late.book)
        woken = late_pods.for_cores(missing_m, views, self.states, asleep)
        states = {**self.states, **dict.fromkeys(woken, Power.WAKING)}
        for name, helped in late_pods.for_pods(pods, views, states, asleep).items():
            woken.append(name)
            late.helped(helped)
        for name in woken:
            self.wake(name)
        return woken

    def wake_for(self, pods: list[objects.Pod], book: Book) -> list[str]:
        """Wake nodes for pods that no node which is on or waking takes; returns which."""
        asleep = late_pods.asleep(self.states, lambda view: self.held(view.node) is None, book)
        woken = list(late_pods.for_pods(pods, book.cluster.nodes, self.states, asleep))
        for name in woken:
            self.wake(name)
        return woken

    async def begin(self) -> list[objects.Node]:
        """Take up what sleeps by the order of whoever led before; returns nodes that exist nowhere but with us.

        Who only stood by has seen nodes fall asleep and wake without a say in it: what stands on them now counts.
        """
        self.states.clear()
        for name, known in self._nodes.items():
            if known.metadata.annotations.get(ASLEEP) == self.owner:
                self.states[name] = Power.ASLEEP
        if not isinstance(self.hook, GivenBack):
            return []
        found = []
        for node in await self.hook.remembered():
            name = node.metadata.name
            if name in self._nodes:  # the claim was not deleted: the scheduler before us ended in between
                await self.hook.forget(name)
                continue
            self.states[name], self._nodes[name], self._away[name] = Power.ASLEEP, node, None
            found.append(node)
        return found

    def held(self, node: objects.Node) -> str | None:
        """Return why a node is somebody else's business now."""
        other = node.metadata.annotations.get(ASLEEP, self.owner)
        if other != self.owner:
            return f"it sleeps by the order of {other}"
        return held(node) if self.allowance is None else self.allowance.held(node)

    def _against(self, name: str) -> str | None:
        node = self._nodes.get(name)
        if node is not None and isinstance(self.hook, GivenBack) and self.hook.awaited(node):
            return "it comes for pods that wait"
        if node is not None and self.expected(node):
            return "Kueue is about to admit pods that need it"
        if self.clock() < self._left_on_s.get(name, 0.0):
            return "it was on although it should have slept"
        return None if self.allowance is None else self.allowance.against(name)

    def _say(self, name: str, reason: str, text: str) -> None:
        log.info("node %s: %s", name, text)
        metadata = self._nodes[name].metadata if name in self._nodes else objects.Metadata(name=name)
        self.told(metadata, reason, text)

    # inside

    def _start(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sleep(self, name: str) -> None:
        if not await self._mark(name, asleep=True):
            self._on(name)
            return
        await asyncio.sleep(self.settle_s)
        # Nothing is awaited between these looks and the order. By the state it was woken meanwhile, or deleted and made
        # anew, which is another node.
        held = await self._held_now(name)
        wanted = held is not None or self.states.get(name) is not Power.FALLING or self._against(name) is not None
        if wanted or self.busy(name) or not await self._suspend(name):
            await self._mark(name, asleep=False)
            self._on(name)
            return
        self._switched(name, "Sleeping", "it was put to sleep: nothing but daemons ran there")
        if self.states.get(name) is Power.WAKING:
            await self._wake(name)
            return
        if name not in self.states:  # deleted meanwhile
            return
        self.states[name] = Power.ASLEEP
        self.tell(name, Power.ASLEEP)
        self._start(self._read_watts(name))

    async def _suspend(self, name: str) -> bool:
        """Switch a node off; one that is given back stays in our book as it is at this moment."""
        if isinstance(self.hook, GivenBack):
            self._away[name] = None
        if await self._order("sleep", self.hook.suspend, name):
            return True
        missed = self._away.pop(name, None)
        if missed is not None:
            self.replay(*missed)
        return False

    async def _wake(self, name: str) -> None:
        if name in self._nodes:
            self._before[name] = sign_of(self._nodes[name])
        told = self._ready[name] = asyncio.Event()
        renewed = await self._renewed(name)
        try:
            async with asyncio.timeout(self.wake_limit_s):
                began_s = await self._resume(name)
                if isinstance(self.hook, GivenBack):
                    await self._succeeded(name, self.hook, began_s)
                    return
                await self._until_ready(name, told, renewed)
        except (TimeoutError, _Held) as error:
            if name in self.states:
                why = str(error) or "it did not wake"
                self._say(name, "NotWoken", f"{why}; its pods go elsewhere, and it is tried again when needed")
                self.states[name] = Power.ASLEEP
                self.tell(name, Power.ASLEEP)
                self.failed(name)
            return
        finally:
            if isinstance(self.hook, GivenBack):
                self.hook.coming.pop(name, None)
            if self._ready.get(name) is told:  # a node that was made anew meanwhile may be on its way itself
                del self._ready[name]
        if name not in self._nodes or self.states.get(name) is not Power.WAKING:  # deleted while it woke
            return
        took_s = asyncio.get_running_loop().time() - began_s
        await self._mark(name, asleep=False, notes=sleep_facts.learn(self._nodes[name], took_s, self.usual_s))
        self._switched(name, "Awake", f"it is on again, {took_s:.0f} s after the order")
        self._on(name)

    async def _resume(self, name: str) -> float:
        """Order a node to wake; returns when. Raises _Held where it is somebody's by now, TimeoutError if it fails."""
        for attempt in range(_TRIES):
            # of one that was given back there is no node now that anybody could hold
            held = None if isinstance(self.hook, GivenBack) else await self._held_now(name)
            if held is not None and held is not _UNREAD:
                raise _Held(held)
            if name in self._ready:
                self._ready[name].clear()  # a word that the watch told late, from before this look
            ordered_s = asyncio.get_running_loop().time()
            if held is None and await self._order("wake", self.hook.resume, name):
                return ordered_s
            await asyncio.sleep(2.0**attempt)
        raise TimeoutError

    async def _held_now(self, name: str) -> str | None:
        """Read a node right before it is switched: why it is somebody's, by what stands there now.

        The watch may be behind, and a cordon that it has not told of yet wins. A kubelet's last word is taken from here
        too: what the watch tells later may have been said before.
        """
        try:
            node = await self.client.get(f"/api/v1/nodes/{name}", objects.Node)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            log.warning("node %s: not read before it is switched: %s", name, error)
            return _UNREAD
        said = sign_of(node)
        if any(said) and spoke_since(said, self._before.get(name)):
            self._before[name] = said
        return self.held(node)

    async def _succeeded(self, name: str, back: GivenBack, began_s: float) -> None:
        """A node that was given back has come as another one: the old one leaves our book, its pods choose anew."""
        # the watch has to tell of it first
        while (new := back.arrived(name, self._nodes)) is None or not ready(self._nodes[new]):
            await asyncio.sleep(_LEASE_S / 10)
        back.successors.pop(name, None)
        took_s = asyncio.get_running_loop().time() - began_s
        await self._note(new, sleep_facts.learn(self._nodes[name], took_s, self.usual_s))
        await back.forget(name)
        self._switched(new, "Awake", f"it came in the place of {name}, {took_s:.0f} s after the order")
        old = self._nodes.pop(name)
        self._away.pop(name, None)
        self.states.pop(name, None)
        self.failed(name)
        self.replay(DELETED, old)

    async def _until_ready(self, name: str, told: asyncio.Event, renewed: str | None) -> None:
        """Wait for a word of the kubelet that is newer than the order: its status, or its lease while it says ready.

        A machine that slept shortly comes back with the same boot id, and tells its status only every few minutes. The
        taints of its sleep go after its first word: who is told before that sends the next pods to other nodes.
        """
        clock, spoke_s = asyncio.get_running_loop().time, math.inf
        while not told.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(_LEASE_S, len(self._ready) / _LEASES_PER_S)):
                    await told.wait()
            node = self._nodes.get(name)
            if told.is_set() or node is None or not ready(node):
                continue
            if spoke_s == math.inf and not spoke_since(sign_of(node), self._before.get(name)):
                again = await self._renewed(name)
                if None in (renewed, again) or again == renewed:
                    continue
            spoke_s = min(spoke_s, clock())
            if is_open(node) or clock() - spoke_s >= _TAINTS_S:
                return

    async def _renewed(self, name: str) -> str | None:
        """Return when a kubelet last renewed its lease; None where that cannot be read."""
        try:
            lease = await self.client.get(f"{_LEASES}/{name}", Lease)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
            return None
        return lease.spec.renew_time

    async def _read_watts(self, name: str) -> None:
        """Learn what a sleeping node draws, where its controller measures it."""
        await asyncio.sleep(_WATTS_S)
        with contextlib.suppress(HookFailed):
            drawn_w = await self.hook.watts(name)
            if drawn_w is not None and self.states.get(name) is Power.ASLEEP:
                await self._note(name, {sleep_facts.SLEEP_W: f"{drawn_w:.1f}"})

    def _switched(self, name: str, reason: str, text: str) -> None:
        if self.allowance is not None:
            self.allowance.switched(name)
        self._say(name, reason, text)

    def _on(self, name: str) -> None:
        self.states.pop(name, None)
        self.tell(name, Power.ON)

    async def _order(self, what: str, act: Callable[[str], Coroutine[None, None, None]], name: str) -> bool:
        """Give one order; whether it was taken."""
        try:
            await act(name)
        except (HookFailed, TimeoutError, aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
            log.error("%s %s: %s", what, name, error or type(error).__name__)
            return False
        return True

    async def _note(self, name: str, notes: Mapping[str, str]) -> None:
        """Write annotations of ours on a node; what cannot be written is learned another time."""
        try:
            body = {"metadata": {"annotations": dict(notes)}}
            await self.client.call("PATCH", f"/api/v1/nodes/{name}", body, content=MERGE)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("node %s: %s not written: %s", name, ", ".join(notes), error)

    async def _mark(self, name: str, asleep: bool, notes: Mapping[str, str] | None = None) -> bool:
        """Put our taint and annotation on a node, or take both off; cordons and others' taints stay as they are."""
        noted = {ASLEEP: self.owner if asleep else None, **(notes or {})}
        if not asleep:
            return await drop_taint(self.client, name, ASLEEP, self.owner, notes=noted)
        # the watch may be behind: what stands in the object that is written decides
        taken = lambda node: self.held(msgspec.convert(node, objects.Node)) is not None  # noqa: E731
        return await put_taint(self.client, name, ASLEEP, self.owner, taken, noted)


def allow(
    sleeper: Sleeper, chosen: SchedulerSettings, views: Mapping[str, snapshot.NodeView], clock: Callable[[], float]
) -> None:
    """Give a sleeper what the configuration allows."""
    sleeper.dry_run, sleeper.usual_s = chosen.dry_run, chosen.wake_s
    sleeper.allowance = Allowance(
        views, sleeper.states, clock, min_on=chosen.min_on, headroom_m=round(chosen.headroom_cores * 1000),
        cooldown_s=chosen.cooldown_s, per_hour=chosen.switches_per_hour, never=windows(chosen.never),
        dedicated=frozenset(chosen.dedicated.split()),
    )  # fmt: skip

"""Nodes put to sleep and woken through a command of the operator's: an autoscaler, Redfish, wake-on-LAN.

The engine asks; here it is carried out. A node that holds nothing but daemons is cordoned with our mark, looked at once
more after what others had under way has shown itself, and handed to ``HOOK sleep NODE``. Nothing is ever evicted: a
node that turns out to be in use stays on. ``HOOK wake NODE`` brings it back; it is used when its kubelet says ready.
Only nodes with the label ``wattflow.io/sleep: "true"`` take part.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.reflect import DELETED
from wattflow.kube.tenant import PREFIX
from wattflow.live.protocol import Power

log = logging.getLogger(__name__)
MAY_SLEEP = f"{PREFIX}sleep"
ASLEEP = f"{PREFIX}asleep"
_OF_SLEEP = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_HOOK_S = 300.0
_TRIES = 3


def may_sleep(node: objects.Node) -> bool:
    """Whether its owner lets us put it to sleep."""
    return node.metadata.labels.get(MAY_SLEEP) == "true"


def ready(node: objects.Node) -> bool:
    """Whether its kubelet says so."""
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def is_daemon(pod: objects.Pod) -> bool:
    """Whether a pod belongs to its node, and sleeps with it: of a DaemonSet, or of the kubelet itself."""
    return any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)


@dataclass(slots=True)
class Sleeper:
    """Sleep of the nodes of one scheduler.

    Attributes:
        busy: Whether a node holds pods that would be lost.
        tell: Called with a node and its state when it has changed: ON, ASLEEP.
        failed: Called with a node that did not wake.
        states: Nodes that are not simply on.
    """

    client: Client
    owner: str
    hook: str
    busy: Callable[[str], bool]
    tell: Callable[[str, Power], None]
    failed: Callable[[str], None] = lambda name: None
    settle_s: float = 2.0
    wake_limit_s: float = 900.0
    states: dict[str, Power] = field(default_factory=dict)
    _ready: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def seen(self, kind: str, node: objects.Node) -> objects.Node:
        """The node as we look at it: one that sleeps by our order has no cordon, and is not missed."""
        name = node.metadata.name
        if kind == DELETED:
            self.states.pop(name, None)
            return node
        if node.metadata.annotations.get(ASLEEP) != self.owner:
            return node
        if name not in self.states:  # of a scheduler before us
            self.states[name] = Power.ASLEEP
        if ready(node) and name in self._ready:
            self._ready[name].set()
        rest = [one for one in node.spec.taints if one.key not in _OF_SLEEP]
        return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=rest, unschedulable=False))

    def awake(self, name: str) -> bool:
        """Whether pods may be bound to it."""
        return name not in self.states

    def sleep(self, name: str) -> None:
        """Put a node to sleep if nothing would be lost; `tell` says what became of it."""
        if self.busy(name) or name in self.states:
            self.tell(name, self.states.get(name, Power.ON))
            return
        self.states[name] = Power.FALLING
        self._start(self._sleep(name))

    def wake(self, name: str) -> None:
        """Wake a node; nothing where it is on or on its way."""
        if self.states.get(name) in (Power.ASLEEP, Power.FALLING):
            was = self.states[name]
            self.states[name] = Power.WAKING
            if was is Power.ASLEEP:  # one that is falling asleep is woken when it has
                self._start(self._wake(name))

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
        wanted = self.states.get(name) is Power.WAKING
        if wanted or self.busy(name) or not await self._run("sleep", name):
            await self._mark(name, asleep=False)
            self._on(name)
            return
        if self.states.get(name) is Power.WAKING:
            await self._wake(name)
            return
        self.states[name] = Power.ASLEEP
        self.tell(name, Power.ASLEEP)

    async def _wake(self, name: str) -> None:
        self._ready[name] = asyncio.Event()
        try:
            async with asyncio.timeout(self.wake_limit_s):
                for attempt in range(_TRIES):
                    if await self._run("wake", name):
                        break
                    await asyncio.sleep(2.0**attempt)
                else:
                    raise TimeoutError
                await self._ready[name].wait()
        except TimeoutError:
            log.error("node %s did not wake", name)
            self.states[name] = Power.ASLEEP
            self.tell(name, Power.ASLEEP)
            self.failed(name)
            return
        finally:
            self._ready.pop(name, None)
        await self._mark(name, asleep=False)
        self._on(name)

    def _on(self, name: str) -> None:
        self.states.pop(name, None)
        self.tell(name, Power.ON)

    async def _run(self, what: str, name: str) -> bool:
        """Run the hook; whether it succeeded. Its output goes to our log."""
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self.hook), what, name,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            log.error("power hook %s: %s", self.hook, error)
            return False
        try:
            async with asyncio.timeout(_HOOK_S):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            log.error("power hook: %s %s took more than %g s", what, name, _HOOK_S)
            return False
        if process.returncode:
            log.error("power hook: %s %s: exit %d: %s", what, name, process.returncode, said.decode(errors="replace"))
        return process.returncode == 0

    async def _mark(self, name: str, asleep: bool) -> bool:
        """Cordon the node with our mark, or take both off."""
        notes = {ASLEEP: self.owner if asleep else None}
        body = {"metadata": {"annotations": notes}, "spec": {"unschedulable": asleep}}
        try:
            await self.client.call("PATCH", f"/api/v1/nodes/{name}", body, content=MERGE)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.error("node %s: cordon not written: %s", name, error)
            return False
        return True

"""Nodes shared with another scheduler, used in turn: a taint keeps the other away before we place anything.

Two optimistic schedulers that look at the same free cores both take them; a binding checks no amounts, and only a
kubelet would refuse the second pod. So, where asked for, a node is *claimed* first: our taint (``NoSchedule``, which
running pods do not mind) stops others from choosing it, and after ``settle_s``, when what they had under way has shown
itself, the room that is left is ours alone. A node that we have not used for ``release_s`` is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import aiohttp
import msgspec

from wattflow.kube import objects
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.power import PREFIX
from wattflow.kube.reflect import DELETED

log = logging.getLogger(__name__)
CLAIM = f"{PREFIX}claimed"
_TRIES = 8


@dataclass(slots=True)
class Claims:
    """Claims of one scheduler.

    Attributes:
        owner: Value of the taint; a claim of another owner stays a taint like any other.
        since_s: When our taint was first seen on each claimed node.
        used_s: When each was last chosen.
    """

    client: Client
    owner: str
    clock: Callable[[], float]
    settle_s: float = 2.0
    release_s: float = 30.0
    since_s: dict[str, float] = field(default_factory=dict)
    used_s: dict[str, float] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def seen(self, kind: str, node: objects.Node) -> objects.Node:
        """The node as we look at it: without our own claim, which is noted."""
        name, taints = node.metadata.name, node.spec.taints
        ours = [one for one in taints if one.key == CLAIM and one.value == self.owner]
        if kind == DELETED or not ours:
            self.since_s.pop(name, None)
            return node
        self._asked.discard(name)
        self.since_s.setdefault(name, self.clock())
        self.used_s.setdefault(name, self.clock())
        rest = [one for one in taints if one not in ours]
        return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=rest))

    def wait_until_s(self, name: str) -> float:
        """When the node may be used; a node that is not ours yet is asked for. 0 means now."""
        now_s = self.clock()
        self.used_s[name] = now_s
        if name in self.since_s:
            settled_s = self.since_s[name] + self.settle_s
            return settled_s if settled_s > now_s else 0.0
        if name not in self._asked:
            self._asked.add(name)
            self._start(self._write(name, claimed=True))
        return now_s + self.settle_s

    def release_idle(self, busy: Callable[[str], bool]) -> None:
        """Give back nodes that nobody needs any more."""
        now_s = self.clock()
        for name in list(self.since_s):
            if now_s - self.used_s.get(name, now_s) > self.release_s and not busy(name):
                self.used_s[name] = now_s  # once is enough; the watch will tell
                self._start(self._write(name, claimed=False))

    def _start(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, name: str, claimed: bool) -> None:
        """Put our taint on a node or take it off. Taints are one list for all, so it is written only as it was read."""
        path = f"/api/v1/nodes/{name}"
        try:
            for _ in range(_TRIES):
                node = await self.client.get(path, dict)
                rest = [one for one in node["spec"].get("taints") or [] if one["key"] != CLAIM]
                if len(rest) < len(node["spec"].get("taints") or []) and claimed:
                    return  # it is there, ours or another's
                mine = [{"key": CLAIM, "value": self.owner, "effect": "NoSchedule"}] if claimed else []
                version = node["metadata"]["resourceVersion"]
                body = {"metadata": {"resourceVersion": version}, "spec": {"taints": rest + mine}}
                try:
                    await self.client.call("PATCH", path, body, content=MERGE)
                    return
                except ApiError as error:
                    if error.code != 409:
                        raise
            log.warning("node %s: changes too often to be claimed now", name)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.error("node %s: claim not written: %s", name, error)
        self._asked.discard(name)

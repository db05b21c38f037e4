"""Nodes shared with another scheduler, used in turn: a taint keeps the other away before we place anything.

Two optimistic schedulers that look at the same free cores both take them; a binding checks no amounts, and only a
kubelet would refuse the second pod. So, where asked for, a node is *claimed* first: our taint (``NoSchedule``, which
running pods do not mind) stops others from choosing it, and when what they had under way has shown itself, the room
that is left is ours alone. A node that we have not used for ``release_s`` is given back.

What is under way can take long: kube-scheduler as shipped decides some hundred pods a second and binds fifty, so a
decision from before the claim may be written minutes later. So a claim is settled when it is ``settle_s`` old and none
of the pods of others that were waiting then waits still, except those that their scheduler has said to fit nowhere: it
has nothing under way for them, and will see the taint when it tries again. Pods that nobody decides about (their
scheduler does not run) would hold us up for ever; ``patience_s`` ends that.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec

from wattflow.kube import objects
from wattflow.kube.client import ApiError, Client
from wattflow.kube.leader import Lease
from wattflow.kube.reflect import DELETED
from wattflow.kube.taint_writer import drop_taint, put_taint, taints_of
from wattflow.kube.tenant import PREFIX

CLAIM = f"{PREFIX}claimed"
_AGAIN_S = 1.0


@dataclass(slots=True)
class Claims:
    """Claims of one scheduler.

    Attributes:
        owner: Value of the taint; a claim of another owner stays a taint like any other.
        since_s: When our taint was first seen on each claimed node.
        used_s: When each was last chosen.
        patience_s: How long pods of others that wait may hold a claim up.
    """

    client: Client
    owner: str
    clock: Callable[[], float]
    settle_s: float = 2.0
    release_s: float = 30.0
    patience_s: float = 600.0
    since_s: dict[str, float] = field(default_factory=dict)
    used_s: dict[str, float] = field(default_factory=dict)
    _undecided: dict[str, int] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _first_after: dict[str, int] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def seen(self, kind: str, node: objects.Node) -> objects.Node:
        """Return the node as we look at it: without our own claim, which is noted."""
        name, taints = node.metadata.name, node.spec.taints
        ours = [one for one in taints if one.key == CLAIM and one.value == self.owner]
        if kind == DELETED or not ours:
            self.since_s.pop(name, None)
            self._first_after.pop(name, None)
            return node
        self._asked.discard(name)
        self.since_s.setdefault(name, self.clock())
        # Also after a restart: a claim that we find has not been used by us yet, and must not be released
        # at once.
        self.used_s.setdefault(name, self.clock())
        rest = [one for one in taints if one not in ours]
        return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=rest))

    def pod_seen(self, kind: str, pod: objects.Pod) -> None:
        """Note whether a decision about another scheduler's pod may be under way."""
        said = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
        decided = pod.spec.node_name or pod.ended or kind == DELETED or pod.spec.scheduling_gates
        # PodScheduled=False is written after a try: its scheduler has nothing under way for it.
        if decided or (said is not None and said.status == "False"):
            self._undecided.pop(pod.metadata.uid, None)
        # Numbered when first seen waiting, and never again: the number tells who came before a claim was
        # settled. A dict keeps them in that order, which `wait_until_s` relies on.
        elif pod.metadata.uid not in self._undecided:
            self._undecided[pod.metadata.uid] = next(self._numbers)

    def wait_until_s(self, name: str) -> float:
        """Return when the node may be used (0: now); a node that is not ours yet is asked for."""
        now_s = self.clock()
        self.used_s[name] = now_s
        if name in self.since_s:
            settled_s = self.since_s[name] + self.settle_s
            if settled_s > now_s:
                return settled_s
            # by now everybody has seen the taint: who comes after this does not count
            # `setdefault`, although a number is drawn each time: only the first counts, and gaps do no harm.
            first_after = self._first_after.setdefault(name, next(self._numbers))
            # Numbers rise in the order of insertion, so the first is the oldest.
            oldest = next(iter(self._undecided.values()), first_after)
            waits = oldest < first_after and now_s < self.since_s[name] + self.patience_s
            return now_s + max(_AGAIN_S, self.settle_s) if waits else 0.0
        if name not in self._asked:
            self._asked.add(name)
            self._start(self._write(name, claimed=True))
        return now_s + self.settle_s

    def release_idle(self, busy: Callable[[str], bool]) -> None:
        """Give back nodes that nobody needs any more."""
        now_s = self.clock()
        # A list: the watch may change it between two turns of the loop.
        for name in list(self.since_s):
            if now_s - self.used_s.get(name, now_s) > self.release_s and not busy(name):
                self.used_s[name] = now_s  # once is enough; the watch will tell
                self._start(self._write(name, claimed=False))

    async def give_back(self) -> None:
        """Take all our claims off: without us nobody would, and another scheduler's pods would wait for ever."""
        # A claim on its way would be written after we took it off.
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*(self._write(name, claimed=False) for name in sorted(self.since_s)))

    def _start(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, name: str, claimed: bool) -> None:
        """Put our taint on a node or take it off."""
        if claimed:
            done = await put_taint(self.client, name, CLAIM, self.owner, unless=_claimed)
        else:
            done = await drop_taint(self.client, name, CLAIM, self.owner)
        if not done:
            # Asked again at the next wish for it.
            self._asked.discard(name)


def _claimed(node: dict[str, Any]) -> bool:
    return any(one["key"] == CLAIM for one in taints_of(node))


async def expired(client: Client, namespace: str, silent_s: float, now: datetime.datetime) -> dict[str, str]:
    """Return the nodes whose claim's owner has not renewed its lease for so long, or has none; with that owner.

    ``deploy/claims`` runs `wattflow kube claims --release-expired` by it every minute: a claim ends without its owner.
    """
    nodes = (await client.list_all("/api/v1/nodes", objects.Node, fresh=True)).items
    # One claim at most stands on a node: `Claims` adds none where one is.
    owners = {one.metadata.name: t.value for one in nodes for t in one.spec.taints if t.key == CLAIM}
    gone = {owner for owner in set(owners.values()) if await _silent(client, namespace, owner, silent_s, now)}
    return {name: owner for name, owner in sorted(owners.items()) if owner in gone}


async def _silent(client: Client, namespace: str, owner: str, silent_s: float, now: datetime.datetime) -> bool:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{owner}"
    try:
        lease = await client.get(path, Lease)
    except ApiError as error:
        if error.code == 404:
            return True
        raise
    renewed = lease.spec.renew_time
    # Released in order: whoever held it has gone.
    if not renewed or not lease.spec.holder_identity:
        return True
    return (now - datetime.datetime.fromisoformat(renewed.replace("Z", "+00:00"))).total_seconds() > silent_s

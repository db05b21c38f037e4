"""Cloud nodes that sleep by being given back: node groups of cluster-autoscaler's external gRPC provider.

A node that sleeps is deleted from its group, which is one smaller then; waking makes the group one larger and takes the
instance that comes. Minimum and maximum of a group are held here, as cluster-autoscaler itself holds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from wattflow.kube import given_back, objects
from wattflow.kube.client import ApiError, Client
from wattflow.kube.given_back import GivenBack
from wattflow.kube.provider_calls import Fields, Provider, messages, nested, one_text, one_whole, pairs, text, whole
from wattflow.kube.tenant import PREFIX
from wattflow.levels.power_hooks import HookFailed

_CREATING, _DELETING = 2, 3  # states of an instance; 0 is unspecified, 1 is running
_OF_LEAVING = (PREFIX, "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


@dataclass(frozen=True, slots=True)
class Group:
    """A node group and its bounds."""

    id: str
    least: int
    most: int

    @staticmethod
    def of(fields: Fields) -> Group:
        """Read a ``NodeGroup``."""
        return Group(one_text(fields, 1), one_whole(fields, 2), one_whole(fields, 3))


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine of a group; its id is the ``providerID`` of its node."""

    id: str
    state: int
    error: str

    @staticmethod
    def of(fields: Fields) -> Instance:
        """Read an ``Instance``."""
        status: Fields = next(iter(messages(fields, 2)), {})
        error: Fields = next(iter(messages(status, 2)), {})
        code = one_text(error, 1)
        return Instance(one_text(fields, 1), one_whole(status, 1), f"{code}: {one_text(error, 2)}" if code else "")


class NodeOrder(msgspec.Struct, frozen=True):
    """Describe an order for one more node: the group's size, with other instances than those before."""

    size: int
    before: frozenset[str]


class NodeGroups(GivenBack):
    """Deletes nodes from their groups and makes groups larger. Fulfils `PowerHook`; `coming` holds ids of instances."""

    def __init__(self, client: Client, owner: str, namespace: str, provider: Provider) -> None:
        super().__init__(client, owner, namespace)
        self._provider = provider
        self._ordering = asyncio.Lock()
        self._taken: set[str] = set()
        """Instances that came for one of our orders: another that waits in the same group gets another."""

    def awaited(self, node: objects.Node) -> bool:
        """Tell by its instance, which the provider lists before a kubelet starts on it."""
        return bool(node.spec.provider_id) and node.spec.provider_id in self.coming.values()

    def arrived(self, node: str, known: Mapping[str, objects.Node]) -> str | None:
        """Return the node of the instance that came."""
        instance = self.coming.get(node)
        return next((name for name, one in known.items() if instance and one.spec.provider_id == instance), None)

    async def suspend(self, node: str) -> None:
        """Keep the node's facts, delete it from its group and wait until the cluster has let it go."""
        path = f"/api/v1/nodes/{node}"
        try:
            facts = await self.client.get(path, dict)
            answer = await self._ask("NodeGroupForNode", nested(1, _about(facts)))
            group = Group.of(next(iter(messages(answer, 1)), {}))
            if not group.id:
                raise HookFailed(f"{node} belongs to no node group of the provider")
            async with self._ordering:  # two at once would both be above the minimum
                await self._delete(node, facts, group)
            await self.until_gone(path)
        except ApiError as error:
            raise HookFailed(f"node group of {node}: {error}") from None

    async def _delete(self, node: str, facts: Any, group: Group) -> None:
        if await self._size(group.id) <= group.least:
            raise HookFailed(f"its node group {group.id} has its minimum of {group.least} nodes")
        about = _about(facts)  # before it is kept, without what it says of its leaving
        taints = [one for one in facts["spec"].get("taints") or [] if not one["key"].startswith(_OF_LEAVING)]
        await self.keep(node, facts, taints, {"group": group.id})
        try:
            await self._ask("NodeGroupDeleteNodes", nested(1, about) + text(2, group.id))
        except HookFailed:
            await self.forget(node)
            raise

    async def resume(self, node: str) -> None:
        """Make the group one larger and wait until the instance that comes for it runs."""
        group = (await self.kept(node, "group"))["group"]
        async with self._ordering:
            before = await self._order(node, group)
        try:
            while True:
                found = await self._instances(group)
                mine = self.coming.get(node)
                if mine is None:
                    new = sorted(one for one in found if one not in before and one not in self._taken)
                    if new:
                        mine = self.coming[node] = new[0]
                        self._taken.add(mine)
                if mine is not None and await self._runs(group, node, found.get(mine)):
                    return
                await asyncio.sleep(given_back.POLL_S)
        except HookFailed:
            self.coming.pop(node, None)
            raise

    async def _order(self, node: str, group: str) -> frozenset[str]:
        """Ask for one more, unless it was asked for already (a restart in between); instances that were there before.

        What is expected is written down first. Where an order got lost the size says so, and it is given again.
        """
        noted = (await self.kept(node, "group")).get("asked")
        size, there = await self._size(group), frozenset(await self._instances(group))
        if noted is None:
            asked = NodeOrder(size=size + 1, before=there)
            await self.note(node, {"asked": msgspec.json.encode(asked).decode()})
        else:
            asked = msgspec.json.decode(noted, type=NodeOrder)
        if size < asked.size and not there - asked.before - self._taken:
            most = await self._most(group)
            if size >= most:
                await self.note(node, {"asked": None})
                raise HookFailed(f"the node group {group} has its maximum of {most} nodes")
            await self._ask("NodeGroupIncreaseSize", whole(1, 1) + text(2, group))
        return asked.before

    async def _runs(self, group: str, node: str, instance: Instance | None) -> bool:
        """Tell whether the instance that came is there; one that failed is deleted, and asked for anew by the next try.

        Raises:
            HookFailed: The provider could not make it, or it is gone again.
        """
        if instance is not None and not instance.error and instance.state != _DELETING:
            return instance.state != _CREATING
        await self.note(node, {"asked": None})
        if instance is None or not instance.error:
            raise HookFailed(f"the instance that came to the node group {group} is gone again")
        # as cluster-autoscaler does: what failed would count to the group's size for good
        await self._ask("NodeGroupDeleteNodes", nested(1, text(1, instance.id)) + text(2, group))
        raise HookFailed(f"the node group {group} got no node: {instance.error}")

    async def _instances(self, group: str) -> dict[str, Instance]:
        answer = await self._ask("NodeGroupNodes", text(1, group))
        return {one.id: one for one in map(Instance.of, messages(answer, 1)) if one.id}

    async def _size(self, group: str) -> int:
        return one_whole(await self._ask("NodeGroupTargetSize", text(1, group)), 1)

    async def _most(self, group: str) -> int:
        found = [Group.of(one) for one in messages(await self._ask("NodeGroups", b""), 1)]
        for one in found:
            if one.id == group:
                return one.most
        raise HookFailed(f"the provider has no node group {group}: {', '.join(one.id for one in found) or 'none'}")

    async def _ask(self, method: str, message: bytes) -> Fields:
        return await self._provider.call(method, message)


def _about(facts: Any) -> bytes:
    """Write an ``ExternalGrpcNode``."""
    metadata = facts["metadata"]
    return (
        text(1, facts["spec"].get("providerID", ""))
        + text(2, metadata["name"])
        + pairs(3, metadata.get("labels") or {})
        + pairs(4, metadata.get("annotations") or {})
    )

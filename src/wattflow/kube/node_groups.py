"""Cloud nodes that sleep by being given back: node groups of cluster-autoscaler's external gRPC provider.

A node that sleeps is deleted from its group, which is one smaller then; waking makes the group one larger and takes the
instance that comes. Minimum and maximum of a group are held here, as cluster-autoscaler itself holds them. The few
messages of the provider that switch nodes are written by hand, without generated code.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from wattflow.kube import given_back, objects
from wattflow.kube.client import ApiError, Client
from wattflow.kube.given_back import GivenBack
from wattflow.kube.tenant import PREFIX
from wattflow.levels.power_hooks import HookFailed
from wattflow.model.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from grpclib.client import Channel

SERVICE = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"
Fields = dict[int, list[int | bytes]]
"""Values of a message by field number, in the order in which they came."""
_CALL_S = 30.0
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LOCAL = ("127.0.0.1", "::1", "localhost")
_KEYS = frozenset({"address", "key", "cert", "cacert", "grpc_timeout"})


def text(number: int, value: str) -> bytes:
    """Write a text; an empty one is left out, as everywhere in these messages."""
    return nested(number, value.encode()) if value else b""


def nested(number: int, value: bytes) -> bytes:
    """Write a message within a message."""
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def whole(number: int, value: int) -> bytes:
    """Write a whole number that is not negative."""
    return _varint(number << 3 | _VARINT) + _varint(value) if value else b""


def pairs(number: int, value: Mapping[str, str]) -> bytes:
    """Write a map of texts: a message with key and value for each."""
    return b"".join(nested(number, text(1, key) + text(2, one)) for key, one in value.items())


def read(message: bytes) -> Fields:
    """Return the values of a message. Raises HookFailed for what is none."""
    found: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        value: int | bytes
        if tag & 7 == _VARINT:
            value, at = _read_varint(message, at)
        else:
            size, at = _read_varint(message, at) if tag & 7 == _BYTES else ({_EIGHT: 8, _FOUR: 4}.get(tag & 7, -1), at)
            if size < 0 or at + size > len(message):
                raise HookFailed(f"the provider's answer is none: byte {at} begins no field")
            value, at = message[at : at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def one_text(fields: Fields, number: int) -> str:
    """Return a text field; empty where it is not there."""
    value = fields.get(number, [b""])[-1]
    if not isinstance(value, bytes):
        raise HookFailed(f"field {number} of the provider's answer is not a text")
    return value.decode(errors="replace")


def one_whole(fields: Fields, number: int) -> int:
    """Return a whole number (32 bits, with sign); 0 where it is not there."""
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise HookFailed(f"field {number} of the provider's answer is not a number")
    return value - (1 << 64) if value >> 63 else value


def messages(fields: Fields, number: int) -> Iterable[Fields]:
    """Return the messages within one."""
    return [read(value) for value in fields.get(number, []) if isinstance(value, bytes)]


def _varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; the highest bit says that more follows."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise HookFailed(f"the provider's answer is none: byte {at} ends no number")


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a provider answers, and by what both sides know each other. Files are read for each call: they rotate."""

    host: str
    port: int
    cacert: str = ""
    cert: str = ""
    key: str = ""

    async def call(self, method: str, message: bytes = b"") -> Fields:
        """Ask once. Raises HookFailed with what the provider says."""
        from grpclib.client import UnaryUnaryMethod
        from grpclib.exceptions import GRPCError, StreamTerminatedError

        try:
            channel = self._channel()
            try:
                asked = UnaryUnaryMethod[bytes, bytes](channel, f"/{SERVICE}/{method}", bytes, bytes)
                return read(await asked(message, timeout=_CALL_S))
            finally:
                channel.close()
        except GRPCError as error:
            raise HookFailed(f"{method} of {self.host}: {error.status.name}: {error.message or 'no reason'}") from None
        except (OSError, TimeoutError, StreamTerminatedError) as error:
            raise HookFailed(f"{method} of {self.host}:{self.port}: {error or type(error).__name__}") from None

    def context(self) -> ssl.SSLContext | None:
        """Return what a connection is made with; None in the clear. Raises OSError (ssl.SSLError is one)."""
        if not self.cacert:
            return None
        made = ssl.create_default_context(cafile=self.cacert)
        made.load_cert_chain(self.cert, self.key)
        made.set_alpn_protocols(["h2"])
        return made

    def _channel(self) -> Channel:
        from grpclib.client import Channel
        from grpclib.encoding.base import CodecBase

        class Written(CodecBase):
            """Messages as they are: we write them ourselves."""

            __content_subtype__ = "proto"

            def encode(self, message: Any, message_type: Any) -> bytes:
                return bytes(message)

            def decode(self, data: bytes, message_type: Any) -> Any:
                return data

        return Channel(self.host, self.port, ssl=self.context(), codec=Written())


def provider_of(path: Path) -> Provider:
    """Read cluster-autoscaler's own configuration of such a provider (``--cloud-config``). Raises InvalidInput."""
    try:
        import grpclib  # noqa: F401  # said now, not at the first node that sleeps
    except ImportError:
        raise MissingExtra("[sleep] node_groups needs grpclib: pip install 'wattflow[kube]'") from None
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise InvalidInput(str(path), f"must say address, cacert, cert and key as texts, not {found!r:.80}")
    if set(found) - _KEYS:
        raise InvalidInput(str(path), f"unknown: {', '.join(sorted(set(found) - _KEYS))}; there are {sorted(_KEYS)}")
    host, _, port = found.get("address", "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InvalidInput(str(path), f"address must be HOST:PORT, not {found.get('address', '')!r}")
    made = Provider(host, int(port), *(found.get(key, "") for key in ("cacert", "cert", "key")))
    given = [one for one in (made.cacert, made.cert, made.key) if one]
    if len(given) not in (0, 3) or (not given and host not in _LOCAL):
        raise InvalidInput(str(path), "whoever may delete nodes must be known: cacert, cert and key are needed")
    try:
        made.context()
    except OSError as error:
        raise InvalidInput(str(path), f"cacert, cert or key: {error}") from None
    return made


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

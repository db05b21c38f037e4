"""Calls of cluster-autoscaler's external gRPC provider: the few messages that switch nodes, written by hand.

The service is ``clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider``. A message is fields with numbers
(protocol buffers' wire format), of which only text, whole numbers and messages within messages are needed here.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

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

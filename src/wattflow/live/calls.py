"""Calls of an engine as bytes: the one codec of journals, whoever keeps them.

The engine is deterministic: the same calls give the same ids and placements. So what it was told is all that a journal
holds; `live.journal` keeps the calls as lines of files, the server beside what it stores (`runtime.decider`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from wattflow.live import fork
from wattflow.live.engine import Engine
from wattflow.live.object_codec import Decoder, Encoder
from wattflow.live.protocol import Kind, Power
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.policy.base import Policy

RECORDED = (
    "use", "room", "node", "shape", "function", "workflow", "drop", "constraint", "resource", "put", "pin", "prefer",
    "step", "step_on",
)  # fmt: skip
"""Calls that change an engine; `room` too, since which row is free next, and so every id, depends on it."""
_as_json = json.JSONEncoder(separators=(",", ":")).encode
Call = tuple[str, list[Any], dict[str, Any]]


def encode(name: str, arguments: tuple[Any, ...], fields: Mapping[str, Any]) -> bytes:
    """Encode a call as one line of JSON without a line end."""
    told = [_plain(item) for item in arguments], {key: _plain(item) for key, item in fields.items()}
    return _as_json([name, *told]).encode()


def decode(data: bytes) -> Call:
    """Name, arguments and named arguments, not made into objects yet."""
    name, arguments, fields = json.loads(data)
    return name, arguments, fields


def tell(engine: Engine, call: Call, policies: Mapping[str, Policy] | None = None) -> Any:
    """Make a call again; what it gave, or None where it was refused. ``policies`` are those that no registry knows."""
    name, arguments, fields = call
    if name not in RECORDED:
        raise InvalidInput("journal", f"{name!r} is no call of an engine")

    def told(item: Any) -> Any:
        if isinstance(item, dict) and item.get("!") == "policy":
            return fork.policy_of(item["v"], policies or {}, "journal")
        return Decoder({}, "journal").decode(item)

    given, named = [told(item) for item in arguments], {key: told(item) for key, item in fields.items()}
    try:
        return getattr(engine, name)(*given, **named)
    except WattflowError:
        # The call was refused when it was made, and is refused again; the engine did not change.
        return None


def _plain(item: Any) -> Any:
    if item is None or type(item) in (int, bool, str) or (type(item) is float and math.isfinite(item)):
        return item  # nearly everything, and a server's every event passes here
    if isinstance(item, Kind | Power):
        return int(item)
    if isinstance(item, Policy):
        return {"!": "policy", "v": fork.described(item)}
    return Encoder({}).encode(item)


__all__ = ["RECORDED", "Call", "decode", "encode", "tell"]

"""Our taints on nodes: claimed, asleep, being emptied.

Taints are one list for all, so it is written only as it was read: a change in between is answered with 409, and the
node is read again. It is handled as plain JSON, so that fields of others' taints which we do not read survive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from wattflow.kube.client import MERGE, ApiError, Client

log = logging.getLogger(__name__)
_TRIES = 8


async def put_taint(
    client: Client, name: str, key: str, value: str,
    unless: Callable[[dict[str, Any]], bool] = lambda node: False, notes: Mapping[str, str | None] | None = None,
) -> bool:  # fmt: skip
    """Taint a node with a key of ours (NoSchedule); returns whether it was written.

    Args:
        client: Access to the cluster.
        name: The node.
        key: Its key; a taint with the same key is replaced.
        value: Its value.
        unless: Tells of the node, as it is when it is written, that it must be left alone.
        notes: Annotations written along with it.
    """
    taint = {"key": key, "value": value, "effect": "NoSchedule"}
    return await _rewrite(client, name, key, [taint], unless, notes)


async def drop_taint(
    client: Client, name: str, key: str, owner: str | None = None, notes: Mapping[str, str | None] | None = None
) -> bool:
    """Take a taint of ours off, of one owner (its value) or whosever; returns whether it is off now."""
    return await _rewrite(client, name, key, [], lambda node: _of_another(node, key, owner), notes)


def _of_another(node: dict[str, Any], key: str, owner: str | None) -> bool:
    return owner is not None and any(one["key"] == key and one.get("value", "") != owner for one in taints_of(node))


def taints_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the taints of a node as it came."""
    found: list[dict[str, Any]] = node["spec"].get("taints") or []
    return found


async def _rewrite(
    client: Client, name: str, key: str, mine: list[dict[str, str]],
    unless: Callable[[dict[str, Any]], bool], notes: Mapping[str, str | None] | None,
) -> bool:  # fmt: skip
    path = f"/api/v1/nodes/{name}"
    try:
        for _ in range(_TRIES):
            node = await client.get(path, dict)
            if unless(node):
                return False
            rest = [one for one in taints_of(node) if one["key"] != key]
            metadata: dict[str, object] = {"resourceVersion": node["metadata"]["resourceVersion"]}
            if notes:
                metadata["annotations"] = dict(notes)
            try:
                body = {"metadata": metadata, "spec": {"taints": rest + mine}}
                await client.call("PATCH", path, body, content=MERGE)
                return True
            except ApiError as error:
                if error.code != 409:
                    raise
        log.error("node %s: changes too often for %s to be written now", name, key)
    except (ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
        log.error("node %s: %s not written: %s", name, key, error)
    return False

"""Asks a running scheduler for its metrics and explanations: at its address, or through the API server's proxy.

Through the proxy the caller's own rights decide: to reach the Service, and to read the Secret with the token.
"""

from __future__ import annotations

import base64
import re

import aiohttp
import msgspec

from wattflow.kube.client import ApiError, Client
from wattflow.kube.http_endpoints import TOKEN_HEADER
from wattflow.model.errors import InvalidInput

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


async def ask(client: Client, path: str, url: str = "", release: str = "wattflow/wattflow") -> bytes:
    """Return what a scheduler answers. ``release`` is NAMESPACE/NAME of its installation, for where there is no URL.

    Raises:
        InvalidInput: it does not answer, or wants a token.
    """
    space, _, name = release.partition("/")
    where = url.rstrip("/") or f"{client.access.server}/api/v1/namespaces/{space}/services/{name}-scheduler:http/proxy"
    headers = {} if url else {"Authorization": f"Bearer {client.access.bearer()}"}
    if not url:
        headers[TOKEN_HEADER] = await _token(client, space, f"{name}-http")
    wait = aiohttp.ClientTimeout(total=10)
    try:
        async with client.session.get(where + path, headers=headers, timeout=wait) as answer:
            raw = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise InvalidInput(where, f"does not answer: {error or type(error).__name__}") from None
    if answer.status != 200:
        raise InvalidInput(where + path, f"answers {answer.status}: {raw[:200].decode(errors='replace').strip()}")
    return raw


async def _token(client: Client, space: str, name: str) -> str:
    try:
        found = msgspec.json.decode(
            await client.call("GET", f"/api/v1/namespaces/{space}/secrets/{name}"), type=_Secret
        )
        return base64.b64decode(found.data.get("token", "")).decode().strip()
    except (ApiError, ValueError):  # it may be at loopback, or refuse us with a reason of its own
        return ""


def metrics(page: bytes) -> dict[str, dict[str, float]]:
    """Read a page of metrics: by name, then by labels as they stand."""
    found: dict[str, dict[str, float]] = {}
    for line in page.decode().splitlines():
        match = _LINE.fullmatch(line)
        if match is not None:
            found.setdefault(match[1], {})[match[2] or ""] = float(match[3])
    return found

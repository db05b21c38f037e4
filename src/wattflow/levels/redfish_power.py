"""Machines put to sleep and woken by their board's controller, over Redfish (DMTF DSP0266).

The system is found from the service's root, and what it is told is taken from what it says it allows: a graceful
shutdown where there is one, else power off; power on. "Asleep" is therefore off, and waking takes a whole start.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from wattflow.levels.power_hooks import HookFailed
from wattflow.model.errors import InvalidInput

_TIMEOUT_S = 30.0
_OFF_S, _POLL_S = 240.0, 1.0
_SLEEP, _WAKE = ("GracefulShutdown", "ForceOff"), ("On", "ForceOn")
_LOCAL = ("127.0.0.1", "::1", "localhost")
_DONE = (200, 202, 204)


class RedfishHook:
    """Tells controllers at ``url``, in which ``{node}`` is the node's name: ``https://{node}-bmc``.

    Args:
        login: A file with one line ``USER:PASSWORD``, readable by its owner alone.
        ca: Certificates that the controllers' are checked by, where the system's do not do.
        closed_to: Permission bits that the login's file must not have.
    """

    def __init__(self, url: str, login: Path, ca: Path | None = None, closed_to: int = 0o077) -> None:
        parts = urlsplit(url.replace("{node}", "node"))
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise InvalidInput("--redfish", f"{url!r} is not a URL such as https://{{node}}-bmc")
        if parts.scheme == "http" and parts.hostname not in _LOCAL:
            raise InvalidInput("--redfish", "a password must not travel in the clear: use https")
        self._url, self._authorization = url, _authorization(login, closed_to)
        self._context = ssl.create_default_context(cafile=str(ca) if ca else None) if parts.scheme == "https" else None

    def covers(self, node: str) -> bool:
        """Every node."""
        return True

    async def suspend(self, node: str) -> None:
        """Shut the machine down; returns when its controller says that it is off."""
        await asyncio.to_thread(self._reset, node, _SLEEP)
        # a graceful shutdown is answered at once and takes a minute: "on" in that minute would be lost, and what the
        # machine still says of itself would be taken for the word of one that has come back
        ends_s = time.monotonic() + _OFF_S
        while await asyncio.to_thread(self._connected, node, self._is_on):
            if time.monotonic() > ends_s:
                raise HookFailed(f"Redfish of {node}: told to shut down, still on after {_OFF_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def resume(self, node: str) -> None:
        """Power it on."""
        await asyncio.to_thread(self._reset, node, _WAKE)

    async def watts(self, node: str) -> float | None:
        """Read what its chassis draws, where the controller measures it."""
        drawn: float | None = await asyncio.to_thread(self._connected, node, self._drawn)
        return drawn

    def _reset(self, node: str, wished: tuple[str, ...]) -> None:
        self._connected(node, lambda connection, base: self._act(connection, base, wished))

    def _connected(self, node: str, act: Callable[[http.client.HTTPConnection, str], Any]) -> Any:
        """Do something over a connection to a node's controller; what goes wrong is told."""
        address = urlsplit(self._url.replace("{node}", node))
        try:
            connection = (
                http.client.HTTPConnection(address.netloc, timeout=_TIMEOUT_S)
                if self._context is None
                else http.client.HTTPSConnection(address.netloc, timeout=_TIMEOUT_S, context=self._context)
            )
            try:
                return act(connection, address.path.rstrip("/"))
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise HookFailed(f"Redfish of {node} at {address.netloc}: {error}") from None
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise HookFailed(f"Redfish of {node} at {address.netloc} answers in another shape: {error!r}") from None

    def _act(self, connection: http.client.HTTPConnection, base: str, wished: tuple[str, ...]) -> None:
        system = self._system(connection, base)
        action = system["Actions"]["#ComputerSystem.Reset"]
        allowed = action.get("ResetType@Redfish.AllowableValues", wished)
        chosen = next((one for one in wished if one in allowed), None)
        if chosen is None:
            raise HookFailed(f"Redfish allows {', '.join(allowed)}, and none of {', '.join(wished)}")
        self._ask(connection, "POST", base + action["target"], {"ResetType": chosen})

    def _system(self, connection: http.client.HTTPConnection, base: str) -> Any:
        root = self._ask(connection, "GET", f"{base}/redfish/v1/")
        systems = self._ask(connection, "GET", base + root["Systems"]["@odata.id"])
        return self._ask(connection, "GET", base + systems["Members"][0]["@odata.id"])

    def _is_on(self, connection: http.client.HTTPConnection, base: str) -> bool:
        """Tell whether the machine still runs; controllers that do not say are believed to be quick."""
        return str(self._system(connection, base).get("PowerState", "Off")) in ("On", "PoweringOff")

    def _drawn(self, connection: http.client.HTTPConnection, base: str) -> float | None:
        for link in self._system(connection, base).get("Links", {}).get("Chassis", []):
            chassis = self._ask(connection, "GET", base + link["@odata.id"])
            if "Power" not in chassis:
                continue
            power = self._ask(connection, "GET", base + chassis["Power"]["@odata.id"])
            for control in power.get("PowerControl", []):
                if isinstance(control.get("PowerConsumedWatts"), int | float):
                    return float(control["PowerConsumedWatts"])
        return None

    def _ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status not in _DONE:
            why = {401: "the login is refused", 403: "this login may not do it"}.get(answer.status, "")
            raise HookFailed(f"Redfish answers {answer.status} to {method} {path}{': ' + why if why else ''}")
        return json.loads(data) if data and method == "GET" else {}


def _authorization(login: Path, closed_to: int) -> str:
    try:
        text = login.read_text(encoding="utf-8").strip()
        if login.stat().st_mode & closed_to:
            raise InvalidInput(str(login), "can be read by others; chmod 600 makes it private")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(login), f"the login cannot be read: {error}") from None
    user, colon, _ = text.partition(":")
    if not (user and colon) or "\n" in text:
        raise InvalidInput(str(login), "holds no line USER:PASSWORD")
    return f"Basic {base64.b64encode(text.encode()).decode()}"

"""Sleep and waking through a machine's own controller, by DMTF's Redfish (DSP0266): one action on its system resource.

A controller says which kinds of reset it takes; the gentlest that fits is used. Certificates are checked; those of
controllers are often their own, so ``WATTFLOW_REDFISH_CA`` may name a file. User and password come from
``WATTFLOW_REDFISH_USER`` and ``WATTFLOW_REDFISH_PASSWORD``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from wattflow.model.errors import InvalidInput
from wattflow.runtime.hooks import HookFailed

TIMEOUT_S = 20.0
SLEEP = ("Suspend", "GracefulShutdown")
"""Kinds of reset that put a machine to sleep, the better first. Power is never cut from a machine that runs."""
WAKE = ("Resume", "On", "ForceOn")
ASLEEP_STATES = ("Off", "PoweringOff", "Paused")


class RedfishHook:
    """Machines by their system resource: ``{"node1": "https://bmc1/redfish/v1/Systems/1"}``."""

    def __init__(self, systems: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> None:
        for node, url in systems.items():
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or "/redfish/" not in parts.path:
                what = f"{url!r} of {node!r} is not a system such as https://bmc1/redfish/v1/Systems/1"
                raise InvalidInput("--redfish", what)
        self._systems = {node: url.rstrip("/") for node, url in systems.items()}
        user, password = environment.get("WATTFLOW_REDFISH_USER"), environment.get("WATTFLOW_REDFISH_PASSWORD", "")
        self._headers = {"accept": "application/json", "content-type": "application/json", "OData-Version": "4.0"}
        if user:
            self._headers["authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._context = ssl.create_default_context(cafile=environment.get("WATTFLOW_REDFISH_CA") or None)

    def covers(self, node: str) -> bool:
        """Machines whose controller is known."""
        return node in self._systems

    async def suspend(self, node: str) -> None:
        """Put it to sleep, or off where it cannot sleep."""
        await asyncio.to_thread(self._reset, node, SLEEP, asleep=True)

    async def resume(self, node: str) -> None:
        """Begin to wake it."""
        await asyncio.to_thread(self._reset, node, WAKE, asleep=False)

    async def watts(self, node: str) -> float | None:
        """What its chassis draws, where the controller measures it."""
        return await asyncio.to_thread(self._drawn, node)

    def _drawn(self, node: str) -> float | None:
        system = self._systems[node]
        for chassis in self._call("GET", system).get("Links", {}).get("Chassis", []):
            about = self._call("GET", urllib.parse.urljoin(system, chassis["@odata.id"]))
            if "Power" not in about:
                continue
            power = self._call("GET", urllib.parse.urljoin(system, about["Power"]["@odata.id"]))
            for control in power.get("PowerControl", []):
                if isinstance(control.get("PowerConsumedWatts"), int | float):
                    return float(control["PowerConsumedWatts"])
        return None

    def _reset(self, node: str, kinds: tuple[str, ...], *, asleep: bool) -> None:
        system = self._call("GET", self._systems[node])
        state = str(system.get("PowerState", ""))
        if state and (state in ASLEEP_STATES) == asleep:
            return
        action = system.get("Actions", {}).get("#ComputerSystem.Reset", {})
        if "target" not in action:
            raise HookFailed(f"{self._systems[node]} offers no reset")
        allowed = action.get("ResetType@Redfish.AllowableValues") or list(kinds[1:2])
        if state == "Off":  # nothing to go on with
            kinds = tuple(kind for kind in kinds if kind != "Resume")
        kind = next((kind for kind in kinds if kind in allowed), None)
        if kind is None:
            raise HookFailed(f"{self._systems[node]} takes {', '.join(allowed)}; wanted one of {', '.join(kinds)}")
        self._call("POST", urllib.parse.urljoin(self._systems[node], action["target"]), {"ResetType": kind})

    def _call(self, method: str, url: str, body: object = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context) as answer:
                text = answer.read(1 << 20)
            found = json.loads(text) if text.strip() else {}
        except urllib.error.HTTPError as error:
            error.close()
            raise HookFailed(f"{url} answered {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise HookFailed(f"{url}: {getattr(error, 'reason', error)}") from None
        if not isinstance(found, dict):
            raise HookFailed(f"{url} answered no resource")
        return found

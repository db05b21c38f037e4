"""Switch nodes: by a command of the operator's, boards' controllers, magic packets, Karpenter or node groups.

All fulfil `wattflow.levels.power_hooks.PowerHook`, so that the scheduler, `wattflow kube power` and the server's agents
use the same code. Exactly one is chosen under ``[sleep]``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from wattflow.kube.client import Client
from wattflow.kube.given_back import NodeClaims
from wattflow.kube.node_groups import NodeGroups, provider_of
from wattflow.kube.settings import SchedulerSettings
from wattflow.levels.power_hooks import WAKE_PORT, CommandHook, PowerHook, WakeOnLan
from wattflow.levels.redfish_power import RedfishHook
from wattflow.model.errors import InvalidInput

_HOOK_S = 300.0
_CLOSED_TO = 0o007
"""A Secret's files belong to root and to the pod's group (``fsGroup``): that group is us, so it may read them."""


def make(chosen: SchedulerSettings, client: Client) -> PowerHook | None:
    """Return what the configuration asks for; None where nodes do not sleep. Raises InvalidInput."""
    if chosen.hook:
        words = shlex.join(_words(chosen.hook))
        return CommandHook(f"{words} sleep {{node}}", f"{words} wake {{node}}", longest_s=_HOOK_S)
    if chosen.redfish:
        if not chosen.redfish_login:
            raise InvalidInput("sleep.redfish", "needs redfish_login, a file with one line USER:PASSWORD")
        ca = Path(chosen.redfish_ca) if chosen.redfish_ca else None
        return RedfishHook(chosen.redfish, Path(chosen.redfish_login), ca, _CLOSED_TO)
    if chosen.wake_on_lan:
        if not chosen.suspend:
            raise InvalidInput("sleep.wake_on_lan", "only wakes: suspend must be the command that puts {node} to sleep")
        host, _, port = chosen.broadcast.partition(":")
        if (port and not port.isascii()) or (port and not port.isdigit()):
            raise InvalidInput("sleep.broadcast", f"{chosen.broadcast!r} is not ADDRESS or ADDRESS:PORT")
        return WakeOnLan(chosen.suspend, _addresses(Path(chosen.wake_on_lan)), host, int(port or WAKE_PORT))
    if chosen.node_groups:
        provider = provider_of(Path(chosen.node_groups))
        return NodeGroups(client, chosen.name, chosen.lease_namespace, provider)
    return NodeClaims(client, chosen.name, chosen.lease_namespace) if chosen.karpenter else None


def _words(hook: str) -> list[str]:
    try:
        return shlex.split(hook)
    except ValueError as error:
        raise InvalidInput("sleep.hook", f"{hook!r}: {error}") from None


def _addresses(path: Path) -> dict[str, str]:
    """Read lines ``NODE HARDWARE-ADDRESS``; empty ones and those that begin with # are left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidInput(f"{path}:{number}", f"{line[:80]!r} is not NODE HARDWARE-ADDRESS")
        found[words[0]] = words[1]
    return found

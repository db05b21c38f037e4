"""Read what a node's kubelet last said of itself, and whether that is newer than an order to wake."""

from __future__ import annotations

from wattflow.kube import objects
from wattflow.kube.allowance import OF_SLEEP

Sign = tuple[str, str | None]
"""Boot id and heartbeat of a kubelet: either is another one once it has spoken again."""


def ready(node: objects.Node) -> bool:
    """Tell whether its kubelet says so."""
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def is_open(node: objects.Node) -> bool:
    """Tell whether nothing that sleep put there keeps pods off a node, our own mark aside."""
    return not any(one.key in OF_SLEEP for one in node.spec.taints)


def sign_of(node: objects.Node) -> Sign:
    """Return what a kubelet last said of itself."""
    beats = (one.last_heartbeat_time for one in node.status.conditions if one.type == "Ready")
    return node.status.node_info.boot_id, next(beats, None)


def spoke_since(said: Sign, before: Sign | None) -> bool:
    """Tell whether a kubelet has spoken since: another boot, or a later heartbeat (a late watch tells earlier ones)."""
    return before is None or said[0] != before[0] or (said[1] or "") > (before[1] or "")

"""Say what keeps a pod waiting and what it asks for, in the words of whoever reads its events."""

from __future__ import annotations

from collections.abc import Mapping

from wattflow.kube import accounting
from wattflow.live.protocol import Why

_LACK = {
    "cores": "lack cores",
    "memory": "lack memory",
    "kind of node": "are of another kind",
    "devices": "lack devices",
}
_PLAIN = ("asleep", "down", "draining")


def waiting(why: Why) -> str:
    """Write one line as kube-scheduler does: how many nodes can take the pod, and what is against the others."""
    if not why.reasons:
        return why.state
    fitting = why.nodes - sum(why.reasons.values())
    # Most frequent first, then by name: equal states must give equal texts, or each would be a new
    # event.
    against = sorted(why.reasons.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{count} {_words(reason)}" for reason, count in against)
    return f"{fitting}/{why.nodes} nodes are available: {said}"


def _words(reason: str) -> str:
    if reason in _LACK:
        return _LACK[reason]
    return f"are {reason}" if reason in _PLAIN else f"({reason})"


def asked(amounts: Mapping[str, int]) -> str:
    """Spell amounts for a person: cores, bytes, pieces."""
    parts = []
    for name, value in amounts.items():
        if name == accounting.CPU:
            parts.append(f"{value / 1000:g} cores")
        elif name in (accounting.MEMORY, accounting.EPHEMERAL):
            parts.append(f"{value / 2**20:,.4g} MiB of {name}")
        # Every pod is one pod.
        elif name != accounting.PODS:
            parts.append(f"{value} {name}")
    return ", ".join(parts) or "nothing"

"""How long each node takes to wake and what it draws asleep: learned, and kept as annotations of the node itself.

Annotations outlive the scheduler, are seen by ``kubectl describe`` and travel with the node, so a restart or another
leader begins with what was learned, and no store of ours can disagree with the cluster.
"""

from __future__ import annotations

import math

from wattflow.kube import objects, tenant
from wattflow.kube.tenant import PREFIX
from wattflow.model.cluster import Sleep

WAKE_S = f"{PREFIX}wake-s"
SLEEP_W = f"{PREFIX}sleep-w"
_WEIGHT = 0.3
"""Of the newest wake: a single slow start (a disk check) must not double what is expected of the node."""
_MOST_TIMES = 2.0
"""Multiple of the expected time that a wake counts as, at most: many nodes that wake together wait for hooks, the API
server and one another, which is no fact of a node. One that really is slower is learned in a few wakes."""
_STEP = math.log(1.15)
_LONGEST_S, _MOST_W = 86_400.0, 1e6


def of(node: objects.Node, usual: Sleep) -> Sleep:
    """Return a node's sleep state: what was learned of it, else what the configuration says."""
    wake_s, watts = _read(node, WAKE_S, _LONGEST_S), _read(node, SLEEP_W, _MOST_W)
    # the engine scores nodes that are alike as one: exact times would make each of a thousand nodes a kind of its own
    return Sleep(
        usual.watts if watts is None else _stepped(watts),
        usual.wake_s if wake_s is None else _stepped(wake_s),
        usual.enter_s,
    )


def learn(node: objects.Node, took_s: float, usual_s: float) -> dict[str, str]:
    """Return the annotation that says how long a node takes to wake, this wake counted in; ``usual_s`` at first."""
    known_s = _read(node, WAKE_S, _LONGEST_S)
    before_s = usual_s if known_s is None else known_s
    wake_s = before_s + _WEIGHT * (min(took_s, _MOST_TIMES * before_s) - before_s)
    return {WAKE_S: f"{wake_s:.1f}"}


def _read(node: objects.Node, key: str, most: float) -> float | None:
    """A kubelet may write its own node's annotations, so these are read like anybody's: out of bounds is unknown."""
    found = tenant.number(node.metadata.annotations.get(key, ""))
    return found if found is not None and found <= most else None


def _stepped(value: float) -> float:
    """Round up to a grid of 15 %: a node is rather believed to be slower than it is."""
    return round(math.exp(math.ceil(math.log(value) / _STEP) * _STEP), 3) if value > 1e-3 else 0.0

"""Round robin: each task goes to the next node in turn that has room.

The turn passes on with every decision: the node after the last one chosen is asked first. O(nodes) per task; no two
candidates cost the same but devices of one node, of which the lower index wins.
"""

from __future__ import annotations

from typing import Any

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.policy import effects, view
from wattflow.policy.base import Policy

# The last node chosen + 1, then the decision under way: task, number, distance and node + 1 of its best
NOTES = view.notes("last", "task", "number", "distance", "node")


def score(state, task, variant, out):
    """(node − last − 1) mod nodes."""
    count = view.nodes_n(state)
    number = float(view.decision(state))
    # A number and the task: two tasks may be asked about between the same two placements.
    if view.recall(state, NOTES.task, 0) != task + 1.0 or view.recall(state, NOTES.number, 0) != number:
        # A new decision: the last one ended at its best. Several variants of one task are one decision.
        if view.recall(state, NOTES.node, 0) > 0.0:
            effects.note(state, NOTES.last, 0, view.recall(state, NOTES.node, 0))
        effects.note(state, NOTES.task, 0, task + 1.0)
        effects.note(state, NOTES.number, 0, number)
        effects.note(state, NOTES.distance, 0, count)
    last = int(view.recall(state, NOTES.last, 0))
    for c in range(out.size):
        node = view.node_of(state, c)
        # Not "− 1": ``last`` is noted one higher, so that 0 means that nobody was chosen.
        distance = float((node - last + count) % count)
        out[c] = distance
        if distance < view.recall(state, NOTES.distance, 0):
            effects.note(state, NOTES.distance, 0, distance)
            effects.note(state, NOTES.node, 0, node + 1.0)


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay the memory out: nothing was chosen yet."""
    view.lay_out(state, NOTES, last=[0], task=[0], number=[0], distance=[0], node=[0])


ROUND_ROBIN = Policy(
    "round-robin",
    "the next node in turn that has room",
    score=score,
    prepare=prepare,
    settings=PolicySettings(grouped=False),
)

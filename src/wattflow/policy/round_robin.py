"""Round robin: each task goes to the next node in turn that has room.

The turn passes on with every decision: the node after the last one chosen is asked first. O(nodes) per task; no two
candidates cost the same but devices of one node, of which the lower index wins.
"""

from __future__ import annotations

from wattflow.engine.settings import Settings
from wattflow.policy.base import Policy

# state.memory: the last node chosen + 1, then the decision under way: task, sequence, distance and node + 1 of its best
LAST, TASK, SEQUENCE, DISTANCE, NODE = 0, 1, 2, 3, 4


def score(state, task, variant, out):  # type: ignore[no-untyped-def]
    """(node − last − 1) mod nodes."""
    note = state.memory
    count = state.nodes.size
    sequence = float(state.clock.sequence[0])
    if note[TASK] != task + 1.0 or note[SEQUENCE] != sequence:
        # A new decision: the last one ended at its best. Several variants of one task are one decision.
        if note[NODE] > 0.0:
            note[LAST] = note[NODE]
        note[TASK] = task + 1.0
        note[SEQUENCE] = sequence
        note[DISTANCE] = count
    for c in range(out.size):
        node = state.candidates.node[c]
        distance = float((node - int(note[LAST]) + count) % count)
        out[c] = distance
        if distance < note[DISTANCE]:
            note[DISTANCE] = distance
            note[NODE] = node + 1.0


ROUND_ROBIN = Policy(
    "round-robin", "the next node in turn that has room", score=score, settings=Settings(grouped=False)
)

"""Where tasks may go: labels, taints and names as one bit per place of a node, a row of ``masks`` per constraint."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.engine.tables import State
from wattflow.live.growth import grown
from wattflow.live.protocol import BadEvent, Constraint, Match, Taint, Toleration
from wattflow.model.cluster import Node

_HARD = ("NoSchedule", "NoExecute")
_ANYWHERE = Constraint()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What Python keeps of a node: description, labels, taints, countable resources. Forks share it: it is replaced."""

    node: Node
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    counts: dict[str, int]


def holds(match: Match, labels: dict[str, str]) -> bool:
    """Whether a node's labels meet one condition."""
    value = labels.get(match.key)
    if match.op == "exists":
        return value is not None
    if match.op == "absent":
        return value is None
    if match.op == "in":
        return value in match.values
    if match.op == "not-in":
        return value not in match.values
    if match.op in ("gt", "lt"):
        return value is not None and _compares(match, value)
    raise BadEvent(f"match on {match.key!r}: {match.op!r} is none of in, not-in, exists, absent, gt, lt")


def _compares(match: Match, value: str) -> bool:
    try:
        have, than = int(value), int(match.values[0])
    except (ValueError, IndexError):
        return False
    return have > than if match.op == "gt" else have < than


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Whether a taint does not matter to someone with these tolerations."""
    return any(
        (not one.key or one.key == taint.key)
        and (one.value is None or one.value == taint.value)
        and (not one.effect or one.effect == taint.effect)
        for one in tolerations
    )


def allows(constraint: Constraint, facts: NodeFacts) -> bool:
    """Whether a node may be used, as far as the node itself says."""
    if constraint.nodes and facts.node.name not in constraint.nodes:
        return False
    if constraint.any_of and not any(all(holds(m, facts.labels) for m in term) for term in constraint.any_of):
        return False
    return all(taint.effect not in _HARD or tolerates(constraint.tolerates, taint) for taint in facts.taints)


class ConstraintBook:
    """Rows of ``masks``: row 0 is for tasks without a constraint, and counts once a node has a taint."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.rows: dict[Constraint, int] = {_ANYWHERE: 0}
        self.generations = np.ones(1, np.int64)
        self._names: dict[Constraint, frozenset[str]] = {}
        self._free: list[int] = []
        self._nodes: dict[int, NodeFacts] = {}
        self._dropped: set[int] = set()

    def add(self, constraint: Constraint) -> int:
        """The row of a constraint, made when it is new."""
        row = self.rows.get(constraint)
        if row is not None:
            self._dropped.discard(row)
            return row
        if constraint.apart or constraint.together or constraint.spread:
            raise BadEvent(
                "rules that count other tasks (apart, together, spread) are the driver's: name the nodes left"
            )
        for term in constraint.any_of:
            for match in term:
                holds(match, {})  # an unknown operator is refused here
        if not self._free:
            old = len(self.state.masks)
            self.state.replace(masks=grown(self.state.masks, 2 * old))
            self.generations = grown(self.generations, 2 * old, 1)
            self._free = list(range(old, 2 * old))
        row = heapq.heappop(self._free)
        self.state.masks[row] = 0
        self.rows[constraint] = row
        self._fill(row, constraint)
        return row

    def _fill(self, row: int, constraint: Constraint) -> None:
        state = self.state
        named = set(constraint.nodes)
        rows = [n for n, facts in self._nodes.items() if (not named or facts.node.name in named)]
        kept = np.array([n for n in rows if allows(constraint, self._nodes[n])], np.int64)
        if not len(kept):
            return
        places = state.classes.first[state.nodes.cls[kept]].astype(np.int64) + state.nodes.pos[kept]
        bits = np.uint64(1) << (places % 64).astype(np.uint64)
        np.bitwise_or.at(state.masks[row], places // 64, bits)

    def node_added(self, node: int, facts: NodeFacts, first: int) -> None:
        """A node is there, or its labels or taints are others now."""
        self._nodes[node] = facts
        if any(taint.effect in _HARD for taint in facts.taints):
            self.state.rules["tainted"] = 1
        place = first + int(self.state.nodes.pos[node])
        word, bit = place // 64, np.uint64(1) << np.uint64(place % 64)
        masks = self.state.masks
        for constraint, row in self.rows.items():
            if allows(constraint, facts):
                masks[row, word] |= bit
            else:
                masks[row, word] &= ~bit

    def node_removed(self, node: int) -> None:
        """A node is no longer there."""
        self._nodes.pop(node, None)

    def drop(self, row: int) -> None:
        """A constraint is not needed any more; its row is free when no shape names it."""
        self._dropped.add(row)

    def sweep(self, used: set[int]) -> None:
        """Free the rows of dropped constraints that no shape names."""
        for row in [r for r in self._dropped if r not in used and r > 0]:
            self._dropped.discard(row)
            constraint = next(c for c, r in self.rows.items() if r == row)
            del self.rows[constraint]
            self.generations[row] += 1
            heapq.heappush(self._free, row)

    @property
    def dropped(self) -> Any:
        """Whether rows wait to be freed."""
        return self._dropped

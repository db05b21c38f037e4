"""Soft preferences: each level of liking is a bit set over the nodes' places, so that a group is split by them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wattflow.engine.tables import State
from wattflow.live.growth import Extents, grown
from wattflow.live.matching import HARD, NodeFacts, holds, tolerates
from wattflow.live.protocol import Constraint


def liking(constraint: Constraint, facts: NodeFacts) -> float:
    """Weights of the preferences that a node meets, less one for each soft taint that is not tolerated."""
    weight = sum(weight for weight, matches in constraint.prefer if all(holds(m, facts.labels) for m in matches))
    for taint in facts.taints:
        if taint.effect not in HARD and not tolerates(constraint.tolerates, taint):
            weight -= 1
    return float(weight)


class WishBook:
    """Levels of preference of each row of masks; none where no constraint prefers and no node is softly tainted."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.soft = False
        self._levels: dict[int, tuple[float, ...]] = {}
        self._rows = Extents(used=1)

    def fill(self, row: int, constraint: Constraint, nodes: Mapping[int, NodeFacts]) -> None:
        """Write a row's levels for the nodes that it allows."""
        self.drop(row)
        if not constraint.prefer and not self.soft:
            return
        likings = {node: liking(constraint, facts) for node, facts in nodes.items()}
        levels = tuple(sorted(set(likings.values()), reverse=True))
        if not levels:
            levels = (0.0,)
        state = self.state
        first, end = self._rows.take(len(levels)), self._rows.used
        if end > len(state.wishes):
            state.replace(wishes=grown(state.wishes, 2 * end), wish_weights=grown(state.wish_weights, 2 * end))
        state.wishes[first : first + len(levels)] = 0
        state.wish_weights[first : first + len(levels)] = levels
        state.mask_rows.wish_first[row], state.mask_rows.wish_n[row] = first, len(levels)
        self._levels[row] = levels
        if nodes:
            rows = np.array(list(likings), np.int64)
            places = state.classes.first[state.nodes.cls[rows]].astype(np.int64) + state.nodes.pos[rows]
            at = first + np.array([levels.index(value) for value in likings.values()], np.int64)
            np.bitwise_or.at(state.wishes, (at, places // 64), np.uint64(1) << (places % 64).astype(np.uint64))
        self._note()

    def node_changed(self, row: int, constraint: Constraint, facts: NodeFacts, place: int) -> bool:
        """Write a node's level; False when the row has no such level and must be filled anew."""
        levels = self._levels.get(row)
        if levels is None:
            return not constraint.prefer and not self.soft
        value = liking(constraint, facts)
        if value not in levels:
            return False
        first, bit = int(self.state.mask_rows.wish_first[row]), np.uint64(1) << np.uint64(place % 64)
        self.state.wishes[first : first + len(levels), place // 64] &= ~bit
        self.state.wishes[first + levels.index(value), place // 64] |= bit
        return True

    def drop(self, row: int) -> None:
        """A row has no levels any more."""
        levels = self._levels.pop(row, None)
        if levels is not None:
            self._rows.give(int(self.state.mask_rows.wish_first[row]), len(levels))
        self.state.mask_rows.wish_first[row] = self.state.mask_rows.wish_n[row] = 0
        self._note()

    def _note(self) -> None:
        self.state.rules["wishes"] = int(any(len(levels) > 1 for levels in self._levels.values()))


__all__ = ["WishBook", "liking"]

"""Where tasks may go: one bit per place of a node, a row of ``masks`` per constraint and groups of its tasks.

``bases`` holds what the nodes alone allow; ``masks`` that and the rules that count other tasks.
"""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np

from wattflow.engine import tallies
from wattflow.engine.tables import State
from wattflow.live.counting import CountBook, Rule
from wattflow.live.growth import grown, widened
from wattflow.live.matching import HARD, NodeFacts, allows, holds
from wattflow.live.preferences import WishBook
from wattflow.live.protocol import Constraint

_ANYWHERE = Rule(Constraint(), ())
_BITS = ("masks", "bases", "wishes")
"""Tables with a bit for each place of a node."""


class ConstraintBook:
    """Rows of ``masks``: row 0 is for tasks without a constraint, and counts once a node has a taint."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.rows: dict[Rule, int] = {_ANYWHERE: 0}
        self.rules: dict[int, Rule] = {0: _ANYWHERE}
        self.generations = np.ones(1, np.int64)
        self.counts, self.wishes = CountBook(state), WishBook(state)
        self._free: list[int] = []
        self._nodes: dict[int, NodeFacts] = {}
        self._dropped: set[int] = set()
        self._stale: set[int] = set()

    def add(self, constraint: Constraint) -> int:
        """The row of a constraint, made when it is new."""
        for term in (*constraint.any_of, *(matches for _, matches in constraint.prefer)):
            for match in term:
                holds(match, {})  # an unknown operator is refused here
        self.counts.check(constraint)
        return self._row(Rule(constraint, ()))

    def bound(self, row: int, groups: tuple[str, ...]) -> int:
        """The row of a constraint for tasks that carry groups; it is free when no shape uses it."""
        if not groups:
            return row
        made = self._row(Rule(self.rules[row].constraint, groups))
        self._dropped.add(made)
        return made

    def _row(self, rule: Rule) -> int:
        row = self.rows.get(rule)
        if row is not None:
            self._dropped.discard(row)
            return row
        state = self.state
        if not self._free:
            old = len(state.masks)
            state.replace(**{name: grown(getattr(state, name), 2 * old) for name in ("masks", "bases", "mask_rows")})
            self.generations = grown(self.generations, 2 * old, 1)
            self._free = list(range(old, 2 * old))
        row = self._free[0]
        state.masks[row] = state.bases[row] = 0
        state.mask_rows.condition[row] = state.mask_rows.wish_n[row] = 0
        touched = self.counts.row_added(row, rule)
        heapq.heappop(self._free)
        self.rows[rule], self.rules[row] = row, rule
        self._fill(row, rule.constraint)
        self.counts.lay_bits()
        for one in touched:
            tallies.refresh(state.handle(), one)
        return row

    def _fill(self, row: int, constraint: Constraint) -> None:
        state = self.state
        named = set(constraint.nodes)
        rows = [n for n, facts in self._nodes.items() if (not named or facts.node.name in named)]
        rest = dataclasses.replace(constraint, nodes=())  # names are looked at already, by a set
        kept = [n for n in rows if allows(rest, self._nodes[n])]
        if kept:
            found = np.array(kept, np.int64)
            places = state.classes.first[state.nodes.cls[found]].astype(np.int64) + state.nodes.pos[found]
            bits = np.uint64(1) << (places % 64).astype(np.uint64)
            np.bitwise_or.at(state.bases[row], places // 64, bits)
        state.masks[row] = state.bases[row]
        self.wishes.fill(row, constraint, {n: self._nodes[n] for n in kept})

    def node_added(self, node: int, facts: NodeFacts, first: int) -> None:
        """A node is there, or its labels or taints are others now; `freshen` must follow before the next decision."""
        self._nodes[node] = facts
        self.counts.places_moved()
        self.counts.node_changed(node, facts.labels)
        if facts.taints:
            self.state.rules["tainted"] = 1
        if not self.wishes.soft and any(taint.effect not in HARD for taint in facts.taints):
            self.wishes.soft = True
        place = first + int(self.state.nodes.pos[node])
        word, bit = place // 64, np.uint64(1) << np.uint64(place % 64)
        for row, (constraint, _) in self.rules.items():
            fits = allows(constraint, facts)
            for masks in (self.state.masks, self.state.bases):
                masks[row, word] = masks[row, word] | bit if fits else masks[row, word] & ~bit
            if fits and not self.wishes.node_changed(row, constraint, facts, place):
                own = {n: known for n, known in self._nodes.items() if allows(constraint, known)}
                self.wishes.fill(row, constraint, own)
        self._stale.update(self.counts.rows)

    def node_removed(self, node: int) -> None:
        """A node is no longer there."""
        self._nodes.pop(node, None)
        self.counts.places_moved()
        self.counts.node_removed(node)
        self._stale.update(self.counts.rows)

    def freshen(self) -> None:
        """Make the masks of counted rules anew, after nodes have changed."""
        self.counts.lay_bits()
        for row in sorted(self._stale & self.counts.rows.keys()):
            tallies.refresh(self.state.handle(), row)
        self._stale.clear()

    def why_not(self, row: int, node: int) -> str:
        """The counted rule that keeps a node out; empty without one."""
        self.freshen()
        return self.counts.why_not(row, node)

    def drop(self, row: int) -> None:
        """A constraint is not needed any more; its row is free when no shape names it."""
        self._dropped.add(row)

    def sweep(self, used: set[int]) -> None:
        """Free the rows of dropped constraints that no shape uses."""
        for row in [r for r in self._dropped if r not in used and r > 0]:
            self._dropped.discard(row)
            del self.rows[self.rules.pop(row)]
            self.counts.row_dropped(row)
            self.wishes.drop(row)
            self.generations[row] += 1
            heapq.heappush(self._free, row)

    @property
    def dropped(self) -> bool:
        """Tell whether rows wait to be freed."""
        return bool(self._dropped)

    # Places of nodes

    def widen(self, words: int) -> None:
        """Room for more places."""
        self.counts.places_moved()
        self.state.replace(**{name: widened(getattr(self.state, name), words) for name in _BITS})

    def move_bit(self, source: int, target: int) -> None:
        """Every row's bit of one place goes to another."""
        for name in _BITS:
            table = getattr(self.state, name)
            bits = (table[:, source // 64] >> np.uint64(source % 64)) & np.uint64(1)
            at = np.uint64(target % 64)
            table[:, target // 64] = table[:, target // 64] & ~(np.uint64(1) << at) | bits << at

    def move_words(self, source: int, target: int, words: int) -> None:
        """Every row's bits of whole words of places go to others."""
        for name in _BITS:
            table = getattr(self.state, name)
            table[:, target : target + words] = table[:, source : source + words]

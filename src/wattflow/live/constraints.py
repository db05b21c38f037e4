"""Where tasks may go: what a node says itself, what tasks would like, and one bit per place of a node.

A row of ``masks`` stands for a constraint and the groups of its tasks: ``bases`` holds what the nodes alone allow,
``masks`` that and the rules that count other tasks (`counting`). Each level of liking is a bit set of its own, so that
a group of equal nodes is split by it.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wattflow.engine import tallies
from wattflow.engine.tables import State
from wattflow.live.counting import CountBook, Rule
from wattflow.live.growth import Extents, grown, widened
from wattflow.live.protocol import BadEvent, Constraint, Match, Taint, Toleration
from wattflow.model.cluster import Node

HARD = ("NoSchedule", "NoExecute")
"""Effects of taints that keep tasks away; another effect only makes a node less liked."""
_ANYWHERE = Rule(Constraint(), ())
_BITS = ("masks", "bases", "wishes")
"""Tables with a bit for each place of a node."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Python's record of a node: description, labels, taints, countable resources. Forks share it: it is replaced."""

    node: Node
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    counts: dict[str, int]


def holds(match: Match, labels: dict[str, str]) -> bool:
    """Tell whether a node's labels meet one condition."""
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
    """Tell whether a taint does not matter to someone with these tolerations."""
    return any(
        (not one.key or one.key == taint.key)
        and (one.value is None or one.value == taint.value)
        and (not one.effect or one.effect == taint.effect)
        for one in tolerations
    )


def allows(constraint: Constraint, facts: NodeFacts) -> bool:
    """Tell whether a node may be used, as far as the node itself says."""
    if constraint.nodes and facts.node.name not in constraint.nodes:
        return False
    if constraint.any_of and not any(all(holds(m, facts.labels) for m in term) for term in constraint.any_of):
        return False
    return all(taint.effect not in HARD or tolerates(constraint.tolerates, taint) for taint in facts.taints)


def liking(constraint: Constraint, facts: NodeFacts) -> float:
    """Return weights of the preferences that a node meets, less one for each soft taint that is not tolerated."""
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
        # A level more for a row moves all of them: it is rarer than a node that changes.
        if value not in levels:
            return False
        first, bit = int(self.state.mask_rows.wish_first[row]), np.uint64(1) << np.uint64(place % 64)
        self.state.wishes[first : first + len(levels), place // 64] &= ~bit
        self.state.wishes[first + levels.index(value), place // 64] |= bit
        return True

    def drop(self, row: int) -> None:
        """Note that a row has no levels any more."""
        levels = self._levels.pop(row, None)
        if levels is not None:
            self._rows.give(int(self.state.mask_rows.wish_first[row]), len(levels))
        self.state.mask_rows.wish_first[row] = self.state.mask_rows.wish_n[row] = 0
        self._note()

    def _note(self) -> None:
        self.state.rules["wishes"] = int(any(len(levels) > 1 for levels in self._levels.values()))


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
        """Return the row of a constraint, made when it is new."""
        for term in (*constraint.any_of, *(matches for _, matches in constraint.prefer)):
            for match in term:
                holds(match, {})  # an unknown operator is refused here
        self.counts.check(constraint)
        return self._row(Rule(constraint, ()))

    def bound(self, row: int, groups: tuple[str, ...]) -> int:
        """Return the row of a constraint for tasks that carry groups; it is free when no shape uses it."""
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
        """Note a node, or its other labels and taints; `freshen` must follow before the next decision."""
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
            # Both: where no rule counts tasks, the mask is its base and `freshen` never touches it.
            for masks in (self.state.masks, self.state.bases):
                masks[row, word] = masks[row, word] | bit if fits else masks[row, word] & ~bit
            if fits and not self.wishes.node_changed(row, constraint, facts, place):
                own = {n: known for n, known in self._nodes.items() if allows(constraint, known)}
                self.wishes.fill(row, constraint, own)
        # Counted rows are made anew together, once for all nodes of a step.
        self._stale.update(self.counts.rows)

    def node_removed(self, node: int) -> None:
        """Note that a node is no longer there."""
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
        """Return the counted rule that keeps a node out; empty without one."""
        self.freshen()
        return self.counts.why_not(row, node)

    def drop(self, row: int) -> None:
        """Note that a constraint is not needed any more; its row is free when no shape names it."""
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
        """Make room for more places."""
        self.counts.places_moved()
        self.state.replace(**{name: widened(getattr(self.state, name), words) for name in _BITS})

    def move_bit(self, source: int, target: int) -> None:
        """Move every row's bit of one place to another."""
        for name in _BITS:
            table = getattr(self.state, name)
            bits = (table[:, source // 64] >> np.uint64(source % 64)) & np.uint64(1)
            at = np.uint64(target % 64)
            table[:, target // 64] = table[:, target // 64] & ~(np.uint64(1) << at) | bits << at

    def move_words(self, source: int, target: int, words: int) -> None:
        """Move every row's bits of whole words of places to others."""
        for name in _BITS:
            table = getattr(self.state, name)
            table[:, target : target + words] = table[:, source : source + words]

"""Rules that count other tasks, as rows of the engine's counters; `engine.tallies` keeps them while tasks move.

Who counts where: a task enters the counter of each of its groups (`Apart`, `Together`, `Spread` ask them), and a task
that must be apart from a group enters a counter of such tasks, which those of the group ask: being apart is mutual.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wattflow.engine import tallies
from wattflow.engine.tables import TOPOLOGIES, State
from wattflow.live.growth import Extents, grown
from wattflow.live.protocol import BadEvent, Constraint

NODE = "node"
"""The topology in which each node is a domain of its own."""
_RULES = {tallies.APART: "apart from", tallies.TOGETHER: "together with", tallies.SPREAD: "spread of"}


class Rule(NamedTuple):
    """Purpose of a row of masks: a constraint, for tasks that carry these groups."""

    constraint: Constraint
    groups: tuple[str, ...]


class Term(NamedTuple):
    """A counter: tasks of a group, or (``holders``) tasks that must be apart from it, by domains of a topology."""

    group: str
    topology: str
    holders: bool = False

    def counts(self, rule: Rule) -> bool:
        """Tell whether tasks under this rule enter the counter."""
        if not self.holders:
            return self.group in rule.groups
        return any(one.group == self.group and one.topology == self.topology for one in rule.constraint.apart)


class CountBook:
    """Counters, conditions and domains of one engine."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.terms: dict[Term, int] = {}
        self.rows: dict[int, Rule] = {}
        self.shapes: dict[int, Rule] = {}
        self._columns: dict[str, int] = {}
        self._values: list[dict[str, int]] = []
        self._labels: dict[int, tuple[tuple[str, str], ...]] = {}  # tuples: forks share them
        self._blocks: dict[int, tuple[int, int]] = {}
        self._places = Extents(used=1)
        self._used = {"terms": 1, "conditions": 1, "counted": 1}
        self._waste = 0
        self._moved = False

    # Nodes

    def node_changed(self, node: int, labels: dict[str, str]) -> None:
        """Note that a node is there, or its labels are others now; counters by labels that changed are counted anew."""
        # Only labels whose value changed: a recount walks over all attempts.
        moved = {t for t, c in self._columns.items() if self._domain(t, labels) != self.state.domains[node, c]}
        self._labels[node] = tuple(labels.items())
        for topology in moved:
            self.state.domains[node, self._columns[topology]] = self._domain(topology, labels)
        for term, row in self.terms.items():
            if term.topology == NODE or term.topology in moved:
                self._make_room(row, term)
                if term.topology in moved:
                    self._recount(row, term)

    def places_moved(self) -> None:
        """Note that nodes stand elsewhere, or in other domains: `lay_bits` must follow before the next decision."""
        self._moved = True

    def lay_bits(self) -> None:
        """Write the nodes of each domain, as bits by their places."""
        if not self._moved or not self._columns:
            return
        self._moved, state = False, self.state
        counts = [len(values) for values in self._values]
        firsts = np.concatenate([[0], np.cumsum(counts)])
        bits = np.zeros((max(1, int(firsts[-1])), state.masks.shape[1]), np.uint64)
        nodes = np.flatnonzero(state.nodes.pos >= 0)
        places = state.classes.first[state.nodes.cls[nodes]].astype(np.int64) + state.nodes.pos[nodes]
        for column, first in enumerate(firsts[:-1].tolist()):
            domains = state.domains[nodes, column]
            there = domains >= 0
            at = first + domains[there], places[there] // 64
            np.bitwise_or.at(bits, at, np.uint64(1) << (places[there] % 64).astype(np.uint64))
        state.replace(domain_bits=bits)
        for term, row in self.terms.items():
            if term.topology != NODE:
                column = self._columns[term.topology]
                state.terms.bits[row], state.terms.domains[row] = firsts[column], counts[column]

    def node_removed(self, node: int) -> None:
        """Note that a node is no longer there."""
        self._labels.pop(node, None)
        self.state.domains[node] = -1
        # Numbers of values are never taken back one by one: a number may still stand in a tally.
        for topology, column in self._columns.items():
            if len(self._values[column]) > 64 + 2 * len(self._labels):
                self._number_again(topology, column)

    def _number_again(self, topology: str, column: int) -> None:
        """Give new numbers to the values of a label: most belong to nodes that are gone."""
        self._values[column] = {}
        for node, labels in self._labels.items():
            self.state.domains[node, column] = self._domain(topology, dict(labels))
        for term, row in self.terms.items():
            if term.topology == topology:
                self._recount(row, term)

    def _domain(self, topology: str, labels: dict[str, str]) -> int:
        value = labels.get(topology)
        if value is None:
            return -1
        values = self._values[self._columns[topology]]
        return values.setdefault(value, len(values))

    def _column(self, topology: str) -> int:
        if topology == NODE:
            return -1
        if topology not in self._columns:
            self._columns[topology] = len(self._columns)
            self._values.append({})
            column = self._columns[topology]
            for node, labels in self._labels.items():
                self.state.domains[node, column] = self._domain(topology, dict(labels))
        return self._columns[topology]

    # Shapes and rows of masks

    def check(self, constraint: Constraint) -> None:
        """Refuse what cannot be counted."""
        for spread in constraint.spread:
            if spread.max_skew < 1:
                raise BadEvent(f"spread of {spread.group!r}: max_skew must be at least 1, not {spread.max_skew}")
        asked = {one.topology for one in constraint.apart} | {one.topology for one in constraint.together}
        asked |= {one.topology for one in constraint.spread}
        labels = {*self._columns, *asked} - {NODE}
        if len(labels) > TOPOLOGIES:
            raise BadEvent(f"at most {TOPOLOGIES} labels make domains, not {len(labels)}: {', '.join(sorted(labels))}")

    def shape_added(self, shape: int, rule: Rule) -> None:
        """Count the tasks of a shape from now on, where a counter asks for them."""
        self.state.shapes.counted[shape] = 0
        if not rule.groups and not rule.constraint.apart:
            return
        self.shapes[shape] = rule
        for term, row in self.terms.items():
            if term.counts(rule):
                self._link(shape, row)

    def shape_dropped(self, shape: int) -> None:
        """Note that no task of the shape is left."""
        if self.shapes.pop(shape, None) is not None:
            self._wasted(1)

    def row_added(self, row: int, rule: Rule) -> list[int]:
        """Write a row's conditions; the rows whose masks must be made anew."""
        constraint = rule.constraint
        touched = []
        for one in constraint.apart:
            touched += self._ask_holders(Term(one.group, one.topology, True))
        if not (rule.groups or constraint.apart or constraint.together or constraint.spread):
            return touched
        self.rows[row] = rule
        for apart in constraint.apart:
            self._condition(row, tallies.APART, Term(apart.group, apart.topology))
        for together in constraint.together:
            self._condition(row, tallies.TOGETHER, Term(together.group, together.topology))
        for spread in constraint.spread:
            self._condition(row, tallies.SPREAD, Term(spread.group, spread.topology), spread.max_skew)
        for term in [t for t in self.terms if t.holders and t.group in rule.groups]:
            self._condition(row, tallies.APART, term)
        return [*touched, row]

    def _ask_holders(self, term: Term) -> list[int]:
        """Have those of a group look out for tasks that must be apart from it, when the first of these comes."""
        # Whoever carries the group already asks this counter, or will when its row is made.
        if term in self.terms:
            return []
        self._term(term)
        members = [row for row, rule in self.rows.items() if term.group in rule.groups]
        for row in members:
            self._condition(row, tallies.APART, term)
        return members

    def row_dropped(self, row: int) -> None:
        """Note that no shape uses a row any more."""
        if self.rows.pop(row, None) is not None:
            c, rows = int(self.state.mask_rows.condition[row]), 0
            while c > 0:
                # Conditions are links of two lists; out of both it would take a search, so it only stops to count.
                self.state.conditions.kind[c] = tallies.NOTHING
                c = int(self.state.conditions.next_row[c])
                rows += 1
            self._wasted(rows)

    def why_not(self, row: int, node: int) -> str:
        """Return the rule of a row that keeps a node out, in words; empty when all hold."""
        c = tallies.broken(self.state.handle(), row, node)
        if not c:
            return ""
        condition = self.state.conditions[c]
        term = next(t for t, r in self.terms.items() if r == int(condition.term))
        return f"{_RULES[int(condition.kind)]} {term.group}"

    # Tables

    def _new(self, table: str) -> int:
        at = self._used[table]
        if at >= len(getattr(self.state, table)):
            self.state.replace(**{table: grown(getattr(self.state, table), 2 * at)})
        self._used[table] = at + 1
        return at

    def _term(self, term: Term) -> int:
        if term not in self.terms:
            column = self._column(term.topology)
            row = self._new("terms")
            entry = self.state.terms[row]
            entry.total, entry.topology, entry.condition, entry.first = 0, column, 0, 0
            self.terms[term] = row
            self._moved = True
            self._make_room(row, term)
            for shape, rule in self.shapes.items():
                if term.counts(rule):
                    self._link(shape, row)
            self._recount(row, term)
        return self.terms[term]

    def _make_room(self, row: int, term: Term) -> None:
        """Make a block of tallies for all domains there are."""
        need = len(self.state.nodes) if term.topology == NODE else len(self._values[self._columns[term.topology]])
        first, room = self._blocks.get(row, (0, 0))
        if need <= room and room:
            return
        place, size = self._places.take(need), self._places.room(need)
        if self._places.used > len(self.state.tallies):
            self.state.replace(tallies=grown(self.state.tallies, 2 * self._places.used))
        # Zeroed first: the block may have been another counter's.
        self.state.tallies[place : place + size] = 0
        self.state.tallies[place : place + room] = self.state.tallies[first : first + room]
        if room:
            self._places.give(first, room)
        self.state.terms.first[row] = place
        self._blocks[row] = (place, size)

    def _recount(self, row: int, term: Term) -> None:
        """Count the tasks that run now."""
        state, (first, room) = self.state, self._blocks[row]
        counting = [shape for shape, rule in self.shapes.items() if term.counts(rule)]
        # By attempts, as `tallies` counts them: each part of a gang is one.
        running = np.flatnonzero(state.attempts.task >= 0)
        running = running[np.isin(state.tasks.form[state.attempts.task[running]], counting)]
        nodes = state.attempts.node[running]
        domains = nodes if term.topology == NODE else state.domains[nodes, self._columns[term.topology]]
        domains = np.asarray(domains)[np.asarray(domains) >= 0]
        state.tallies[first : first + room] = np.bincount(domains, minlength=room)
        state.terms.total[row] = len(domains)

    def _condition(self, row: int, kind: int, term: Term, skew: int = 0) -> None:
        at, of = self._term(term), self.rows[row]
        c = self._new("conditions")
        entry = self.state.conditions[c]
        entry.kind, entry.term, entry.row, entry.skew = kind, at, row, skew
        entry.own = int(term.counts(of))
        entry.next_term, self.state.terms.condition[at] = self.state.terms.condition[at], c
        entry.next_row, self.state.mask_rows.condition[row] = self.state.mask_rows.condition[row], c

    def _link(self, shape: int, term: int) -> None:
        link = self._new("counted")
        entry = self.state.counted[link]
        entry.term, entry.next = term, self.state.shapes.counted[shape]
        self.state.shapes.counted[shape] = link

    def _wasted(self, rows: int) -> None:
        """Leave rows out of use where they are, and write all anew when they are many."""
        self._waste += rows
        if self._waste > 64 and 2 * self._waste > self._used["conditions"] + self._used["counted"]:
            self._write_again()

    def _write_again(self) -> None:
        rows, shapes = dict(self.rows), dict(self.shapes)
        self.terms, self.rows, self.shapes, self._blocks = {}, {}, {}, {}
        self._places, self._waste = Extents(used=1), 0
        self._used = dict.fromkeys(self._used, 1)
        for row in rows:
            self.state.mask_rows.condition[row] = 0
        # Shapes before rows: a counter is made by the first row that asks it and then counts the shapes it knows.
        for shape, rule in shapes.items():
            self.shape_added(shape, rule)
        for row, rule in rows.items():
            self.row_added(row, rule)
        self.lay_bits()
        for row in rows:
            tallies.refresh(self.state.handle(), row)


__all__ = ["CountBook", "Rule", "Term"]

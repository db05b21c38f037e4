"""Shapes, their variants and functions as rows that come and go. Equal shapes are one row; offers are the policy's."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattflow.engine import build
from wattflow.engine.build import Names, container_table
from wattflow.engine.offer_rows import MOST_LEVELS, Offer, offers_of
from wattflow.engine.settings import PolicySettings
from wattflow.engine.tables import State
from wattflow.live.growth import Extents, grown
from wattflow.live.nodebook import NodeBook, intern_bit
from wattflow.live.protocol import BadEvent
from wattflow.model.workflow import Function, Variant


@dataclass(frozen=True, slots=True)
class ShapeFacts:
    """Facts of a shape: the same facts give the same row."""

    variants: tuple[Variant, ...]
    function: str
    parts: int
    level: int
    constraint: int
    counts: tuple[tuple[str, int], ...]
    groups: tuple[str, ...]


class ShapeBook:
    """Rows of shapes, variants and functions."""

    def __init__(self, state: State, names: Names, nodes: NodeBook, settings: PolicySettings) -> None:
        self.state, self.names, self.nodes, self.settings = state, names, nodes, settings
        self.facts: dict[int, ShapeFacts] = {}
        self.functions: list[Function] = []
        self.dropped: set[int] = set()
        self._rows_of: dict[ShapeFacts, int] = {}
        self._free = list(range(1, len(state.shapes)))  # row 0 is the placeholder's
        self._variants = Extents()
        state.shapes.generation[:] = 1

    def add(self, facts: ShapeFacts) -> int:
        """Return the row of a shape, made when it is new."""
        row = self._rows_of.get(facts)
        if row is not None:
            self.dropped.discard(row)
            return row
        if not facts.variants or facts.parts < 1:
            raise BadEvent(f"a shape needs at least one variant and one part, not {facts}")
        for name, _ in facts.counts:
            self.nodes.resource(name)
        if not self._free:
            self._grow()
        row = heapq.heappop(self._free)
        entry = self.state.shapes[row]
        entry.function, entry.parts = self._function(facts.function), facts.parts
        rules = self.nodes.rules
        bound = rules.bound(facts.constraint, facts.groups)
        entry.level, entry.constraint, entry.tasks = facts.level, bound, 0
        entry.head = entry.tail = -1
        entry.waiting = entry.failed = entry.ghosts = 0
        self.facts[row] = facts
        self._rows_of[facts] = row
        rules.counts.shape_added(row, rules.rules[bound])
        self._offer(row)
        return row

    def _grow(self) -> None:
        old = len(self.state.shapes)
        shapes = grown(self.state.shapes, 2 * old)
        shapes.generation[old:] = 1
        self.state.replace(shapes=shapes, active_shapes=grown(self.state.active_shapes, 2 * old))
        self._free = list(range(old, 2 * old))

    def function(self, function: Function | str) -> str:
        """Note a function's facts; its name stands for it."""
        if isinstance(function, str):
            known = function in self.nodes.functions
            function = Function(function)
            if known:
                return function.name
        f = self._function(function.name)
        self.functions[f] = function
        row = self.state.functions[f]
        for name in ("cold_start_s", "compute_bound", "failure_rate", "checkpoint_s", "checkpoint_cost_s"):
            row[name] = getattr(function, name)
        if function.cold_start_s > 0 and not self.state.rules.cold[0]:
            self.state.replace(containers=container_table(1 << 16))
            self.state.counts["free_container"] = 0
            self.state.rules["cold"] = 1
        return function.name

    def _function(self, name: str) -> int:
        f = self.nodes.functions.get(name)
        if f is not None:
            return f
        f = len(self.functions)
        if f >= len(self.state.functions):
            functions = grown(self.state.functions, 2 * f)
            functions.first_container[f:] = -1
            self.state.replace(functions=functions)
            self.nodes.changed = True  # notes that policies keep by function must grow too
        self.functions.append(Function(name))
        self.state.functions.compute_bound[f] = 1.0
        self.nodes.function_added(name, f)
        return f

    def _offer(self, row: int) -> None:
        """Write a shape's variants as the policy offers them."""
        facts, settings, state = self.facts[row], self.settings, self.state
        function = int(state.shapes.function[row])
        # Whatever levels its devices have: nodes come and go, and `class_ok` says which of them take an offer.
        offers = offers_of(facts.variants, function, settings, MOST_LEVELS)
        first = self._variants.take(len(offers))
        if self._variants.used > len(state.variants):
            rows = 2 * self._variants.used
            state.replace(
                variants=grown(state.variants, rows),
                class_ok=grown(state.class_ok, rows),
                variant_counts=grown(state.variant_counts, rows),
            )
        state.shapes.variant_first[row], state.shapes.variant_n[row] = first, len(offers)
        for v, offer in enumerate(offers, first):
            self._write(v, offer, facts)
        self.nodes.variants_used = self._variants.used
        self.nodes.fill_class_ok(first, first + len(offers))

    def _write(self, v: int, offer: Offer, facts: ShapeFacts) -> None:
        state, variant = self.state, offer.variant
        for model in variant.device_models:
            intern_bit(self.names.models, model, "device models")
        # The block may have been another shape's: whatever `fill_variant` does not write must be 0.
        state.variants[v : v + 1].view(np.uint8)[:] = 0
        row = state.variants[v]
        build.fill_variant(row, offer, self.names)
        row.board = -1
        if build.is_bare(row) and not state.rules.bare[0]:
            state.rules["bare"] = 1
            state.boards["owner"] = 0  # pods without requests count otherwise
        row.architecture = -1
        if variant.architecture is not None:
            known = self.names.architectures
            row.architecture = known.setdefault(variant.architecture, len(known))
        row.features = sum(1 << intern_bit(self.names.features, f, "feature tags") for f in variant.features)
        state.variant_counts[v] = 0
        for name, count in facts.counts:
            state.variant_counts[v, self.nodes.resources[name]] = count
        row.counts_n = len(facts.counts)
        row.likeness = _likeness(row, state.variant_counts[v])

    def offer_again(self, settings: PolicySettings) -> None:
        """Write another policy's offers for all shapes; attempts that run keep what they took and are named anew."""
        state = self.state
        old = {row: (int(state.shapes.variant_first[row]), int(state.shapes.variant_n[row])) for row in self.facts}
        # Blocks are given back and taken again below, so the old offers are compared from a copy.
        before = state.variants.copy()
        for first, count in old.values():
            self._variants.give(first, count)
        self.settings = settings
        moved = np.zeros(len(before), np.int64)
        for row, (first, count) in old.items():
            self._offer(row)
            now = int(state.shapes.variant_first[row])
            offers = range(now, now + int(state.shapes.variant_n[row]))
            for v in range(first, first + count):
                distances = [_distance(before[v], self.state.variants[n]) for n in offers]
                moved[v] = now + distances.index(min(distances))
        running = np.flatnonzero(state.attempts.task >= 0)
        state.attempts.variant[running] = moved[state.attempts.variant[running]]

    @property
    def constraints(self) -> set[int]:
        """Return rows of masks that a shape names or uses."""
        rows = list(self.facts)
        return {facts.constraint for facts in self.facts.values()} | set(self.state.shapes.constraint[rows].tolist())

    def drop(self, row: int) -> None:
        """Note that a shape is not needed any more; its row is free when no task uses it."""
        self.dropped.add(row)
        self.sweep()

    def sweep(self) -> None:
        """Free the rows of dropped shapes that no task uses."""
        shapes = self.state.shapes
        # Ghosts are cancelled tasks that still stand in the queue: they name the shape until they are passed over.
        for row in [r for r in self.dropped if not shapes.tasks[r] and not shapes.ghosts[r]]:
            self.dropped.discard(row)
            del self._rows_of[self.facts.pop(row)]
            self.nodes.rules.counts.shape_dropped(row)
            self._variants.give(int(shapes.variant_first[row]), int(shapes.variant_n[row]))
            shapes.generation[row] += 1
            heapq.heappush(self._free, row)


def _likeness(row: Any, counts: Any) -> int:
    """Return a hash of what a variant needs, the same for variants of other shapes that need the same; never 0."""
    needs = np.array(row).reshape(1).copy()  # of a record, an array alone may be a view
    needs["origin"] = needs["likeness"] = needs["board"] = 0
    return int.from_bytes(hashlib.blake2b(needs.tobytes() + counts.tobytes(), digest_size=8).digest(), "little") | 1


def _distance(a: Any, b: Any) -> tuple[bool, float, bool]:
    """Tell how far an offer is from another: other variant, other guarantee, other level of cores or device."""
    other = bool(a.frequency != b.frequency or a.level != b.level)
    return (bool(a.origin != b.origin), abs(float(a.guarantee - b.guarantee)), other)


def shape_facts(
    variants: Sequence[Variant], function: str, parts: int, level: int, constraint: int,
    counts: Mapping[str, int], groups: Sequence[str],
) -> ShapeFacts:  # fmt: skip
    """Put facts in one order, so that equal shapes are equal."""
    return ShapeFacts(
        tuple(variants), function, parts, level, constraint, tuple(sorted(counts.items())), tuple(sorted(groups))
    )


__all__ = ["ShapeBook", "ShapeFacts", "shape_facts"]

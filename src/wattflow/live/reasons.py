"""Why a task waits, and what each candidate would cost: asked on demand, without effects."""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import Any

import numpy as np
from numba import types

from wattflow.engine import devices, tables
from wattflow.engine.tables import State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.live import candidate_scores
from wattflow.live import protocol as p
from wattflow.live.matching import HARD, NodeFacts, holds, tolerates
from wattflow.live.nodebook import NodeBook
from wattflow.live.shapebook import ShapeBook
from wattflow.policy import bind
from wattflow.policy.base import Policy
from wattflow.policy.terms import REST

STATES = {
    tables.WAITING: "pending", tables.READY: "waiting", tables.PLACED: "placed", tables.DONE: "done",
    tables.FAILED: "failed", tables.CANCELLED: "cancelled", tables.GHOST: "cancelled", tables.PARKED: "parked",
    tables.UNKNOWN: "placeholder",
}  # fmt: skip
"""A task's states in words."""
_POWER = {tables.DOWN: "down", tables.DRAINING: "draining"}


def _is_stale(state: State, row: int, task: int) -> bool:
    generation = (task >> p.ROW_BITS) & p.GENERATION_MASK
    return int(state.marks.generation[row]) & p.GENERATION_MASK != generation


def why(state: State, nodes: NodeBook, shapes: ShapeBook, row: int, task: int) -> p.Why:
    """What keeps a task from being placed, node by node where it is in the queue."""
    if _is_stale(state, row, task):
        return p.Why("ended")
    code = int(state.tasks.state[row])
    if code == tables.PARKED:
        return p.Why("parked", until_s=float(state.marks.until[row]))
    if code == tables.WAITING and state.tasks.pending[row] == 0:
        return p.Why("not arrived", until_s=float(state.tasks.release[row]))
    if code != tables.READY:
        return p.Why(STATES.get(code, "ended"))
    found: Counter[str] = Counter()
    for node, facts in nodes.facts.items():
        reason = _reason(state, nodes, shapes, row, node, facts)
        if reason:
            found[reason] += 1
    held = sum(found.values()) < len(nodes.facts)
    until = float(state.clock.retry_at[0]) if held else math.inf
    return p.Why("held" if held else "waiting", len(nodes.facts), dict(found), until)


def _reason(state: State, nodes: NodeBook, shapes: ShapeBook, task: int, node: int, facts: NodeFacts) -> str:
    """The first filter that keeps every variant of a task from a node; empty when one fits."""
    power = int(state.nodes.power_state[node])
    if power in _POWER:
        return _POWER[power]
    pinned = int(state.tasks.pinned[task])
    if pinned not in (-1, node):
        return "pinned to another"
    form = int(state.tasks.form[task])
    kept = _kept_away(shapes, nodes, form, facts) or nodes.rules.why_not(int(state.shapes.constraint[form]), node)
    if kept:
        return kept
    first = int(state.shapes.variant_first[form])
    reasons = [_lacks(state, nodes, v, node) for v in range(first, first + int(state.shapes.variant_n[form]))]
    return "" if "" in reasons else reasons[0]


def _kept_away(shapes: ShapeBook, nodes: NodeBook, form: int, facts: NodeFacts) -> str:
    """The taint, label or name by which a constraint keeps a shape from a node."""
    constraint = nodes.rules.rules[int(shapes.state.shapes.constraint[form])].constraint
    for taint in facts.taints:
        if taint.effect in HARD and not tolerates(constraint.tolerates, taint):
            return taint.key
    if constraint.nodes and facts.node.name not in constraint.nodes:
        return "another node is named"
    if constraint.any_of and not any(all(holds(m, facts.labels) for m in term) for term in constraint.any_of):
        return next(m.key for m in constraint.any_of[0] if not holds(m, facts.labels))
    return ""


def _lacks(state: State, nodes: NodeBook, variant: int, node: int) -> str:
    """What a node lacks for a variant; empty when it fits."""
    needs, row = state.variants[variant], state.nodes[node]
    if row.used_u + needs.need_u > row.capacity_u:
        return "cores"
    if row.used_mem + needs.memory > row.capacity_mem:
        return "memory"
    if not state.class_ok[variant, row.cls]:
        return "kind of node"
    for name, k in nodes.resources.items():
        if state.variant_counts[variant, k] > state.node_counts[node, k]:
            return name
    if needs.device != tables.NO_DEVICE:
        handle, first = state.handle(), int(row.device_first)
        check = devices.device_fits if needs.devices <= 1 else devices.whole_free
        fitting = sum(check(handle, variant, d) for d in range(first, first + int(row.device_n)))
        if fitting < max(1, int(needs.devices)):
            return "devices"
    return ""


@functools.cache
def _explain(state: Any) -> Any:
    rows = types.Array(candidate_scores.ROW_TYPE, 1, "C")
    signature = types.int64(state, bind.functions_type(state), types.int64, rows)
    return jit.compiled(signature, candidate_scores.explain, folder=jit.cache_folder("kernel", "engine", "live"))


def explain(state: State, policy: Policy, functions: Any, row: int, task: int) -> list[p.Explained]:
    """Candidates of a task in the queue with their costs and the terms of these, asked of a copy; cheapest first."""
    if _is_stale(state, row, task) or int(state.tasks.state[row]) != tables.READY:
        return []
    copy = state.copy()
    count = int(state.shapes.variant_n[state.tasks.form[row]]) * len(state.candidates)
    rows: Any = np.zeros(count, candidate_scores.ROW) if jit.COMPILED else record_table(candidate_scores.ROW, count)
    kernel = _explain(state.kind) if jit.COMPILED else candidate_scores.explain
    found = np.asarray(rows[: kernel(copy.handle(), functions, row, rows)])
    generations = state.node_marks.generation
    terms, moved = _terms(copy, policy, row, found), _moved(copy, policy, row, found)
    listed = [
        p.Explained(p.make_id(p.NODE_ID, n, int(generations[n])), v, cost, alike, named, moves)
        for (n, v, alike, _, _, cost), named, moves in zip(found.tolist(), terms, moved, strict=True)
    ]
    return sorted(listed, key=lambda one: one.cost)


def _terms(copy: State, policy: Policy, task: int, rows: Any) -> list[dict[str, float]]:
    """Terms of each row's cost, which they sum to."""
    made: list[dict[str, float]] = [{} for _ in range(len(rows))]
    for offer in np.unique(rows["offer"]).tolist():
        at = _shown(copy, rows, offer)
        values = np.zeros(len(at))
        for name, part in bind.terms(policy, copy).items():
            part(copy.handle(), task, offer, values)
            for i, value in zip(at.tolist(), values.tolist(), strict=True):
                made[i][name] = value
    for named, cost in zip(made, rows["cost"].tolist(), strict=True):
        rest = cost - sum(named.values()) if math.isfinite(cost) else cost
        if not named or not math.isfinite(rest) or abs(rest) > 1e-9 * max(1.0, abs(cost)):
            named[REST] = rest
    return made


def _shown(copy: State, rows: Any, offer: int) -> Any:
    """Make the rows of one offer the candidates, as a score finds them; their numbers."""
    at = np.flatnonzero(rows["offer"] == offer)
    copy.candidates.node[: len(at)], copy.candidates.device[: len(at)] = rows["node"][at], rows["device"][at]
    copy.counts["candidate_n"] = len(at)
    return at


def _moved(copy: State, policy: Policy, task: int, rows: Any) -> list[dict[str, float]]:
    """How far each fact that the policy names moved each row's cost."""
    made: list[dict[str, float]] = [{} for _ in range(len(rows))]
    if policy.facts is None or not len(rows):
        return made
    write, names = bind.facts(policy, copy), policy.facts.names
    facts = np.zeros((len(rows), policy.facts.size))
    for offer in np.unique(rows["offer"]).tolist():
        at = _shown(copy, rows, offer)
        values = np.zeros(len(at) * policy.facts.size)
        write(copy.handle(), task, offer, values)
        facts[at] = values.reshape(len(at), -1)
    known = np.flatnonzero(np.isfinite(facts).all(axis=1))
    if len(known):
        moves = policy.facts.moved(copy, facts[known], rows["offer"][known])
        for i, row in zip(known.tolist(), moves.tolist(), strict=True):
            made[i] = p.largest_first(dict(zip(names, row, strict=True)))
    return made

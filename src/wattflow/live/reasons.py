"""Answers of an engine about itself, on demand and without effects: why a task waits, what each candidate would cost,
and the present facts of a row in plain words and SI units."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from wattflow.engine import devices, tables
from wattflow.engine.tables import MICRO, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.live import candidate_rows
from wattflow.live import protocol as p
from wattflow.live.constraints import HARD, NodeFacts, holds, tolerates
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
    """Tell what keeps a task from being placed, node by node where it is in the queue."""
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
    # A node is left that no filter refuses, and the task waits all the same: the policy holds it.
    held = sum(found.values()) < len(nodes.facts)
    until = float(state.clock.retry_at[0]) if held else math.inf
    return p.Why("held" if held else "waiting", len(nodes.facts), dict(found), until)


def _reason(state: State, nodes: NodeBook, shapes: ShapeBook, task: int, node: int, facts: NodeFacts) -> str:
    """Return the first filter that keeps every variant of a task from a node; empty when one fits."""
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
    """Return the taint, label or name by which a constraint keeps a shape from a node."""
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
    """Tell what a node lacks for a variant; empty when it fits."""
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
    rows = types.Array(candidate_rows.SCORED_ROW_TYPE, 1, "C")
    signature = types.int64(state, bind.functions_type(state), types.int64, rows)
    return jit.compiled(signature, candidate_rows.explain, folder=jit.cache_folder("kernel", "engine", "live"))


def explain(state: State, policy: Policy, functions: Any, row: int, task: int) -> list[p.Explained]:
    """List candidates of a task in the queue with their costs and the terms of these, cheapest first, by a copy."""
    if _is_stale(state, row, task) or int(state.tasks.state[row]) != tables.READY:
        return []
    # Of a copy: a score may write notes into the policy's memory, and a question must have no effect.
    copy = state.copy()
    count = int(state.shapes.variant_n[state.tasks.form[row]]) * len(state.candidates)
    kind = candidate_rows.SCORED_ROW
    rows: Any = np.zeros(count, kind) if jit.COMPILED else record_table(kind, count)
    kernel = _explain(state.kind) if jit.COMPILED else candidate_rows.explain
    found = np.asarray(rows[: kernel(copy.handle(), functions, row, rows)])
    generations = state.node_marks.generation
    terms, moved = _terms(copy, policy, row, found), _moved(copy, policy, row, found)
    listed = [
        p.Explained(p.make_id(p.NODE_ID, n, int(generations[n])), v, cost, alike, named, moves)
        for (n, v, alike, _, _, cost), named, moves in zip(found.tolist(), terms, moved, strict=True)
    ]
    return sorted(listed, key=lambda one: one.cost)


def _terms(copy: State, policy: Policy, task: int, rows: Any) -> list[dict[str, float]]:
    """Return the terms of each row's cost, which they sum to."""
    made: list[dict[str, float]] = [{} for _ in range(len(rows))]
    for offer in np.unique(rows["offer"]).tolist():
        at = _shown(copy, rows, offer)
        values = np.zeros(len(at))
        for name, part in bind.terms(policy, copy).items():
            part(copy.handle(), task, offer, values)
            for i, value in zip(at.tolist(), values.tolist(), strict=True):
                made[i][name] = value
    for named, cost in zip(made, rows["cost"].tolist(), strict=True):
        # Shown only where it is more than rounding: a term that nobody names is worth a line.
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
    """Tell how far each fact that the policy names moved each row's cost."""
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


# Present facts of rows

_STAGES = {tables.ASSUMED: "assumed", tables.WAITS: "waits for its node", tables.STARTED: "started"}


def describe(state: State, nodes: NodeBook, shapes: ShapeBook, identity: int) -> dict[str, Any]:
    """Return facts of a row; ``{"what": …, "gone": True}`` for an id that is stale."""
    what, row = p.what_of(identity), p.row_of(identity)
    found = _KINDS.get(what)
    table, tell = found if found is not None else ("", None)
    if tell is None or row >= len(getattr(state, table)):
        raise p.UnknownId(f"{identity} is no id that this engine gave to a node, task, attempt, shape or workflow")
    now, asked = int(getattr(state, table)["generation"][row]), (identity >> p.ROW_BITS) & p.GENERATION_MASK
    if asked > now & p.GENERATION_MASK:
        raise p.UnknownId(f"{identity} is no id of a {p.ID_NAMES[what]} that this engine gave")
    head = {"what": p.ID_NAMES[what], "id": identity}
    if asked != now & p.GENERATION_MASK:
        return head | {"gone": True}
    return head | tell(state, nodes, shapes, row)


def _known(value: Any) -> float | None:
    """Return a number, or None where it is not known or has no end."""
    return float(value) if math.isfinite(value) else None


def _node_id(state: State, node: int) -> int:
    return p.make_id(p.NODE_ID, node, int(state.node_marks.generation[node]))


def _node(state: State, nodes: NodeBook, shapes: ShapeBook, row: int) -> dict[str, Any]:
    entry, facts = state.nodes[row], nodes.facts.get(row)
    if facts is None:
        return {"gone": True}
    return {
        "name": facts.node.name, "state": p.Power(int(entry.power_state)).name, "labels": dict(facts.labels),
        "taints": list(facts.taints), "cores": float(entry.capacity_u) / MICRO,
        "cores_used": float(entry.used_u) / MICRO, "memory_bytes": int(entry.capacity_mem),
        "memory_used_bytes": int(entry.used_mem), "others_cores": float(state.node_marks.other_u[row]) / MICRO,
        "counts_free": {name: int(state.node_counts[row, k]) for name, k in nodes.resources.items()},
        "running": int(entry.running), "frequency": int(entry.frequency),
    }  # fmt: skip


def _task(state: State, nodes: NodeBook, shapes: ShapeBook, row: int) -> dict[str, Any]:
    entry, mark, extra = state.tasks[row], state.marks[row], state.extra[row]
    flow, form, pinned = int(entry.workflow), int(entry.form), int(entry.pinned)
    return {
        "state": STATES.get(int(entry.state), "ended"), "tag": int(mark.tag),
        "shape": p.make_id(p.SHAPE_ID, form, int(state.shapes.generation[form])) if form else p.PLACEHOLDER,
        "workflow": p.make_id(p.WORKFLOW_ID, flow, int(state.workflows.generation[flow])) if flow else p.LOOSE,
        "estimate_s": _known(entry.estimate), "release_s": _known(entry.release), "deadline_s": _known(extra.deadline),
        "parents_open": int(entry.pending), "tries": int(entry.attempt), "parts_running": int(mark.running),
        "node": _node_id(state, pinned) if pinned >= 0 else None, "input_bytes": float(extra.input_bytes),
    }  # fmt: skip


def _attempt(state: State, nodes: NodeBook, shapes: ShapeBook, row: int) -> dict[str, Any]:
    entry = state.attempts[row]
    if entry.task < 0:
        return {"gone": True}
    task, node = int(entry.task), int(entry.node)
    return {
        "task": p.make_id(p.TASK_ID, task, int(state.marks.generation[task])), "node": _node_id(state, node),
        "stage": _STAGES[int(entry.stage)], "stopping": bool(entry.stopping), "part": int(entry.part),
        "attempt_no": int(entry.attempt), "variant": int(state.variants.origin[int(entry.variant)]),
        "cores": float(entry.need_u) / MICRO, "memory_bytes": int(entry.memory), "devices": int(entry.devices),
        "placed_s": float(entry.placed), "started_s": _known(entry.started), "expected_end_s": _known(entry.end),
        "marginal_j": _known(entry.marginal_j),
    }  # fmt: skip


def _shape(state: State, nodes: NodeBook, shapes: ShapeBook, row: int) -> dict[str, Any]:
    facts, entry = shapes.facts.get(row), state.shapes[row]
    if facts is None:
        return {"gone": True}
    return {
        "function": facts.function, "parts": facts.parts, "level": facts.level, "variants": list(facts.variants),
        "counts": dict(facts.counts), "groups": list(facts.groups),
        "constraint": nodes.rules.rules[facts.constraint].constraint, "tasks": int(entry.tasks),
        "waiting": int(entry.waiting),
    }  # fmt: skip


def _workflow(state: State, nodes: NodeBook, shapes: ShapeBook, row: int) -> dict[str, Any]:
    entry = state.workflows[row]
    return {
        "tag": int(entry.tag), "submit_s": float(entry.submit), "deadline_s": _known(entry.deadline),
        "open": int(entry.open), "sealed": bool(entry.sealed), "started": bool(entry.started),
    }  # fmt: skip


_Tell = Callable[[State, NodeBook, ShapeBook, int], dict[str, Any]]
_KINDS: dict[int, tuple[str, _Tell]] = {
    p.NODE_ID: ("node_marks", _node),
    p.TASK_ID: ("marks", _task),
    p.ATTEMPT_ID: ("attempts", _attempt),
    p.SHAPE_ID: ("shapes", _shape),
    p.WORKFLOW_ID: ("workflows", _workflow),
}

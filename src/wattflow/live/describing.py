"""`Engine.describe`: what the tables say of one row, in plain words and SI units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wattflow.engine import tables
from wattflow.engine.tables import MICRO, State
from wattflow.live import protocol as p
from wattflow.live.nodebook import NodeBook
from wattflow.live.reasons import STATES
from wattflow.live.shapebook import ShapeBook

_STAGES = {tables.ASSUMED: "assumed", tables.WAITS: "waits for its node", tables.STARTED: "started"}


def describe(state: State, nodes: NodeBook, shapes: ShapeBook, identity: int) -> dict[str, Any]:
    """Facts of a row; ``{"what": …, "gone": True}`` for an id that is stale."""
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
    """A number, or None where it is not known or has no end."""
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
    p.NODE_ID: ("node_marks", _node), p.TASK_ID: ("marks", _task), p.ATTEMPT_ID: ("attempts", _attempt),
    p.SHAPE_ID: ("shapes", _shape), p.WORKFLOW_ID: ("workflows", _workflow),
}  # fmt: skip

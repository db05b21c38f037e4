"""Joules of nodes over time, from the windows that the store keeps: sums stay those of the windows."""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa

from wattflow.model.errors import InvalidInput
from wattflow.store import events

MOST_STEPS = 10_000
HOUR_S = 3600.0


def energy(database: sa.Engine, from_s: float, to_s: float, step_s: float) -> dict[str, Any]:
    """Joules by node, account and step; None where nobody measured. A window longer than a step is spread over those
    it touches by time, any other belongs to the step of its middle."""
    count = steps(from_s, to_s, step_s)
    nodes: dict[str, dict[str, list[float | None]]] = {}

    def add(node: str, step: int, joules: dict[str, Any], share: float) -> None:
        series = nodes.setdefault(node, {name: [None] * count for name in events.JOULES})
        for name in events.JOULES:
            series[name][step] = (series[name][step] or 0.0) + share * joules[name]

    for row in events.joules(database, from_s, to_s, step_s):
        if 0 <= row["step"] < count:
            add(row["node"], row["step"], row, 1.0)
    for row in events.long_windows(database, from_s, to_s, step_s):
        lasted_s = row["ended_s"] - row["began_s"]
        first = max(0, int((row["began_s"] - from_s) // step_s))
        last = min(count - 1, int((row["ended_s"] - from_s) // step_s))
        for step in range(first, last + 1):
            begin_s, end_s = from_s + step * step_s, from_s + (step + 1) * step_s
            inside_s = min(end_s, row["ended_s"]) - max(begin_s, row["began_s"])
            if inside_s > 0:
                add(row["node"], step, row, inside_s / lasted_s)
    return {"from_s": from_s, "to_s": from_s + count * step_s, "step_s": step_s, "nodes": nodes}


def steps(from_s: float, to_s: float, step_s: float) -> int:
    """How many steps a span has.

    Raises:
        InvalidInput: It ends before it begins, or has too many.
    """
    if not to_s > from_s:
        raise InvalidInput("to", f"{to_s:g} is not after from, {from_s:g}")
    count = math.ceil((to_s - from_s) / step_s)
    if count > MOST_STEPS:
        raise InvalidInput(
            "step", f"{count} steps are more than {MOST_STEPS}; take one of {(to_s - from_s) / MOST_STEPS:g} s or more"
        )
    return count

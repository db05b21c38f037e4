"""The desk of an environment: what passes over it, and what is kept on it between two decisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.engine.tables import ORDERED, SKIP
from wattflow.kernel.handle import Tables
from wattflow.kernel.records import record_table
from wattflow.live import wanted

ASK = np.dtype([*wanted.ASK.descr, ("slow", "i8"), ("apart", "i8"), ("sequence", "i8"), ("key", "f8")])
"""As of `wanted`; ``slow``: a queue that is not known here and left to `wanting`; ``apart``: tasks of closed shapes
that the flagship would have set aside by now, in this instant; ``key`` and ``sequence``: the task looked at last."""


class Desk(Tables):
    """What passes between the caller who chooses and the compiled code that asks, and what this keeps.

    ``closed``: the epoch up to which a shape is known to have no open place. ``follows``: 1 for a variant whose
    candidates are among those of the variant before it. ``stack``: room for a walk through a queue.
    """

    __slots__ = ("ask", "closed", "follows", "rows", "stack")
    NAMES = ("ask", "rows", "closed", "follows", "stack")

    def clear(self) -> None:
        """Before the first event."""
        slow = int(self.ask["slow"][0])
        self.ask[:] = np.zeros(1, ASK)
        self.ask["slow"] = slow
        self.closed[:] = 0


def desk(state: Any, rows: int) -> Desk:
    """A desk for the decisions of a State."""
    made = Desk(
        ask=record_table(ASK, 1),
        rows=record_table(wanted.ROW, rows),
        closed=np.zeros(len(state.shapes), np.int64),
        follows=_follows(state),
        stack=np.zeros(len(state.tasks) + 2, np.int32),
    )
    made.ask["slow"] = int(not _is_known(state))
    return made


def _is_known(state: Any) -> bool:
    """Whether the queue goes by static priority, passes over what does not fit, and no task has a place of its own."""
    rules, tasks = state.rules[0], state.tasks
    ordered = rules.queue == SKIP and rules.selection == ORDERED and rules.dynamic == 0 and rules.has_priority == 1
    alike = (tasks["pinned"] < 0).all() and (tasks["pinned_variant"] < 0).all() and (state.shapes["level"] == 0).all()
    return bool(ordered and alike)


def _follows(state: Any) -> Any:
    """Variants that differ from the one before them in their frequency alone, on classes that take that one too."""
    rules, variants = state.rules[0], state.variants
    found = np.zeros(len(variants), np.int8)
    if rules.wakes != 1 or rules.limits == 1 or rules.score_limit > 0 or rules.samples == 1:
        return found
    alike = np.ones(max(0, len(variants) - 1), bool)
    for name in ("cores_u", "need_u", "memory"):
        alike &= variants[name][1:] == variants[name][:-1]
    for name in ("device", "counts_n"):
        alike &= (variants[name][1:] == 0) & (variants[name][:-1] == 0)
    alike &= (state.class_ok[1:] <= state.class_ok[:-1]).all(axis=1)
    found[1:] = alike
    found[state.shapes["variant_first"]] = 0
    return found

"""The desk of an environment: what passes over it, and what is kept on it between two decisions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from wattflow.engine.tables import NO_DEVICE, ORDERED, SKIP
from wattflow.kernel.records import record_table
from wattflow.live import caller_choice
from wattflow.policy import pricing

ASK = np.dtype([
    *caller_choice.ASK.descr, ("slow", "i8"), ("apart", "i8"), ("sequence", "i8"), ("key", "f8"), ("joules", "f8"),
])  # fmt: skip
"""As of `wanted`; ``slow``: a queue that is not known here and left to `live.hand`; ``apart``: tasks of closed shapes
that the flagship would have set aside by now, in this instant; ``key`` and ``sequence``: the task looked at last;
``joules``: drawn so far."""

ROW = np.dtype([*caller_choice.ROW.descr, ("price", "f8")])
"""As of `wanted`; ``price``: of a row that is described, the cost before what was learned and what others lose."""

NEEDS = np.dtype([("need_u", "i8"), ("memory", "i8"), ("variant", "i4"), ("plain", "i4")])
"""Needs of a shape, in one place. ``plain``: `ONE` where all its variants need the same cores and memory of any
node (``variant`` is the first), `SEVERAL` where each needs its own, 0 where there is more to it than that."""
ONE, SEVERAL = 1, 2
FOLLOWS, SLOWER = 1, 2
VARIANT, NODE = 0, 1
"""Columns of ``awaited``."""


class EpisodeBuffers(caller_choice.Ask):
    """Buffers between the caller who chooses and the compiled code that asks, and what that code keeps.

    ``closed``: the epoch up to which a shape is known to have no open place. ``opening``: the node where a shape was
    last seen to have one, or −1. ``follows``: `FOLLOWS` for a variant whose candidates are among those of the variant
    before it, `SLOWER` where it also is nowhere faster. ``needs``: a row of `NEEDS` for each shape. ``stack``: room for
    a walk through a queue. ``parts``: what the price of each row is made of (`pricing`). ``awaited``: the variant and
    the node for whose room a task of the shape last waited, or −1.
    """

    __slots__ = ("awaited", "closed", "follows", "needs", "opening", "parts", "stack")
    NAMES: ClassVar[tuple[str, ...]] = (
        "ask",
        "rows",
        "closed",
        "follows",
        "needs",
        "stack",
        "opening",
        "parts",
        "awaited",
    )

    def clear(self) -> None:
        """Clear all, as before the first event."""
        slow, joint = int(self.ask["slow"][0]), int(self.ask["joint"][0])
        self.ask[:] = np.zeros(1, ASK)
        self.ask["slow"], self.ask["joint"] = slow, joint
        self.closed[:] = 0
        self.opening[:] = -1
        self.awaited[:] = -1


def desk(state: Any, rows: int, joint: bool = False) -> EpisodeBuffers:
    """Make a desk for the decisions of a State; ``joint``: all shapes' first tasks together."""
    follows = _follows(state)
    made = EpisodeBuffers(
        ask=record_table(ASK, 1),
        rows=record_table(ROW, rows),
        closed=np.zeros(len(state.shapes), np.int64),
        follows=follows,
        needs=_needs(state, follows),
        stack=np.zeros(len(state.tasks) + 2, np.int32),
        opening=np.full(len(state.shapes), -1, np.int64),
        parts=np.zeros((rows, pricing.WIDTH)),
        awaited=np.full((len(state.shapes), 2), -1, np.int64),
    )
    made.ask["slow"], made.ask["joint"] = int(not _is_known(state)), int(joint)
    return made


def _is_known(state: Any) -> bool:
    """Tell whether the queue goes by static priority, passes over misfits, and no task has a place of its own."""
    rules, tasks = state.rules[0], state.tasks
    ordered = rules.queue == SKIP and rules.selection == ORDERED and rules.dynamic == 0 and rules.has_priority == 1
    alike = (tasks["pinned"] < 0).all() and (tasks["pinned_variant"] < 0).all() and (state.shapes["level"] == 0).all()
    return bool(ordered and alike)


def _follows(state: Any) -> Any:
    """Find variants that differ from the one before in their frequency alone, on classes that take that one too."""
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
    found[1:] = alike * np.where(_nowhere_faster(state), SLOWER, FOLLOWS)
    found[state.shapes["variant_first"]] = 0
    return found


def _nowhere_faster(state: Any) -> Any:
    """Tell whether a variant takes at least as long as the one before it on every class, for each but the first."""
    variants, speeds = state.variants, state.frequency_speed
    level = np.minimum(variants["frequency"], speeds.shape[1] - 1)  # no class takes one beyond its levels
    speed = np.where(level == 0, 1.0, speeds[:, level])
    longer = variants["factor"][1:] >= variants["factor"][:-1]
    return longer & (speed[:, 1:] <= speed[:, :-1]).all(axis=0)


def _needs(state: Any, follows: Any) -> Any:
    """Write a row of `NEEDS` for each shape."""
    rules, variants = state.rules[0], state.variants
    found = record_table(NEEDS, len(state.shapes))
    if rules.tainted == 1 or rules.pods > 0 or rules.limits == 1:
        return found
    bare = (variants["device"] == NO_DEVICE) & (variants["counts_n"] == 0)
    for row, form in zip(found, state.shapes, strict=True):
        first, last = int(form.variant_first), int(form.variant_first + form.variant_n)
        if first < last and form.parts == 1 and form.constraint == 0 and bare[first:last].all():
            row.need_u, row.memory, row.variant = variants["need_u"][first], variants["memory"][first], first
            row.plain = ONE if follows[first + 1 : last].all() else SEVERAL
    return found

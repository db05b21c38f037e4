"""Placement policies inside a frame: an order of queues and a score of hosts, as ``order+score`` or ``engine:NAME``.

The six scores are compiled into the frame. ``engine:NAME`` is any policy of the engine that scores task by task, seen
through the placers' views (`frames.deciding`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattflow.frames.kernel import frame_tables
from wattflow.model.errors import unknown_name
from wattflow.policy import registry
from wattflow.policy.base import Policy

ORDERS = ("fifo", "sjf")
SCORES = {
    "least-loaded": frame_tables.LEAST_LOADED,
    "pack": frame_tables.PACK,
    "first": frame_tables.FIRST,
    "fastest": frame_tables.FASTEST,
    "least-energy": frame_tables.LEAST_ENERGY,
    "random": frame_tables.ANY,
}
DEFAULT = "fifo+least-loaded"
ENGINE = "engine:"


@dataclass(frozen=True, slots=True)
class FramePolicy:
    """How queues are ordered and hosts are scored."""

    order: str = "fifo"
    score: str = "least-loaded"
    engine: Policy | None = None
    # Not compared: `==` of arrays has no single answer.
    keys: NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return f"{ENGINE}{self.engine.name}" if self.engine is not None else f"{self.order}+{self.score}"


def names() -> list[str]:
    """Return all policies, the default first."""
    return [f"{order}+{score}" for order in ORDERS for score in SCORES]


def load(name: str) -> FramePolicy:
    """Return a policy by name; ``fifo`` and ``sjf`` alone mean least loaded."""
    if name.startswith(ENGINE):
        return of_engine(registry.load(name.removeprefix(ENGINE)))
    order, _, score = name.partition("+")
    policy = FramePolicy(order, score or "least-loaded")
    if policy.order not in ORDERS or policy.score not in SCORES:
        raise unknown_name("frame policy", name, names(), "(an order and a score joined by '+', or engine:NAME)")
    return policy


def of_engine(policy: Policy) -> FramePolicy:
    """Return one of the engine's policies; its score stands behind the name ``first`` until the placers ask it."""
    return FramePolicy("fifo", "first", policy)

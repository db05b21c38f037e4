"""Placement policies inside a frame: an order of queues and a score of hosts, written ``order+score``."""

from __future__ import annotations

from dataclasses import dataclass

from wattflow.frames.kernel import tables
from wattflow.model.errors import unknown_name

ORDERS = ("fifo", "sjf")
SCORES = {
    "least-loaded": tables.LEAST_LOADED,
    "pack": tables.PACK,
    "first": tables.FIRST,
    "fastest": tables.FASTEST,
    "least-energy": tables.LEAST_ENERGY,
    "random": tables.ANY,
}
DEFAULT = "fifo+least-loaded"


@dataclass(frozen=True, slots=True)
class FramePolicy:
    """How queues are ordered and hosts are scored."""

    order: str = "fifo"
    score: str = "least-loaded"

    @property
    def name(self) -> str:
        return f"{self.order}+{self.score}"


def names() -> list[str]:
    """All policies, the default first."""
    return [f"{order}+{score}" for order in ORDERS for score in SCORES]


def load(name: str) -> FramePolicy:
    """A policy by name; ``fifo`` and ``sjf`` alone mean least loaded."""
    order, _, score = name.partition("+")
    policy = FramePolicy(order, score or "least-loaded")
    if policy.order not in ORDERS or policy.score not in SCORES:
        raise unknown_name("frame policy", name, names(), "(an order and a score joined by '+')")
    return policy

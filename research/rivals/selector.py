"""An actor–critic that selects which scheduling rule decides, after Koslovski, Pereira and Albuquerque.

DAG-based workflows scheduling using actor–critic deep reinforcement learning, FGCS 150, 2024,
https://doi.org/10.1016/j.future.2023.09.018. Taken: the agent places nothing itself; it looks at the queue of DAGs and
at how the machines are used, and names one of a pool of established rules, which then decides; advantage actor–critic.
Different: the pool (seven placement rules in the flagship's order of tasks; the flagship's own is one of them), the
features, and the reward, which is the environment's (joules and the bound on waiting, not slowdown).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from research.rivals.agent import POOLED, Agent, Look, column, flat, pooled
from research.rivals.network import Floats, Net, Whole, best

RULES = ("flagship", "earliest finish", "fastest", "fewest joules", "fullest", "emptiest", "awake first")
"""Rules of the pool."""


def picks(rows: Floats, starts: Whole) -> Whole:
    """The row that each rule takes in each decision (decisions × rules)."""
    price, sleeps = rows[:, column("dearer")], rows[:, column("sleeps")]
    joules = np.log(np.maximum(1e-6, rows[:, column("run share")])) + price
    costs = (
        rows[:, column("ends after")],
        rows[:, column("runtime")],
        joules,
        -rows[:, column("filled")],
        rows[:, column("filled")],
        10.0 * sleeps + price,
    )
    first = np.zeros(len(starts), np.int64)
    return np.column_stack([first, *(best(-cost, starts) for cost in costs)])


class Selector(Agent):
    """Names a rule by the state of queue and cluster."""

    name = "actor-critic-selector"
    paper = "10.1016/j.future.2023.09.018"

    @classmethod
    def start(cls, seed: int) -> Selector:
        """Random weights."""
        rng = np.random.default_rng([seed, 53])
        return cls(Net.start((POOLED, 64, 64, len(RULES)), rng), Net.start((POOLED, 64, 64, 1), rng))

    def look(self, seen: Floats, shown: Whole, asks: Sequence[Any]) -> Look:
        rows, starts, _ = flat(seen, shown)
        chosen = picks(rows, starts)
        return Look(pooled(seen, shown), np.arange(len(shown)) * len(RULES), chosen.reshape(-1))

    def scores(self, look: Look) -> Floats:
        return self.net.forward(look.inputs).reshape(-1)

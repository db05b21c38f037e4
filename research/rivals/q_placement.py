"""A deep Q network that places functions, in the manner of Mampage, Karunasekera and Buyya.

Deep reinforcement learning for application scheduling in resource-constrained, multi-tenant serverless computing
environments, FGCS 143, 2023, https://doi.org/10.1016/j.future.2023.02.006. Taken: one step for each function that is
to be placed, an action for each machine that could host it, a state of what the function wants and how the machines
are used, a reward that weighs waiting against what the provider pays for, and a Q network with replay, a slowly
following target and ε-greedy exploration. Different: the network reads a machine at a time with shared weights (theirs
has one output for each of a fixed number of machines and could not be used on another cluster), and the reward is the
environment's: joules, and the bound on waiting at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from research.rivals.agent import POOLED, Agent, Look, flat, pooled
from research.rivals.network import Floats, Net, Whole, sizes_of
from wattflow.learn import episode


class QPlacement(Agent):
    """Places the task that is next in the flagship's order."""

    name = "dqn-placement"
    paper = "10.1016/j.future.2023.02.006"

    @classmethod
    def start(cls, seed: int) -> QPlacement:
        """Random weights."""
        rng = np.random.default_rng([seed, 61])
        return cls(Net.start((episode.WIDTH + POOLED, 64, 32, 1), rng))

    def look(self, seen: Floats, shown: Whole, asks: Sequence[Any]) -> Look:
        rows, starts, numbers = flat(seen, shown)
        around = np.repeat(pooled(seen, shown), sizes_of(starts, len(rows)), axis=0)
        return Look(np.hstack([rows, around]), starts, numbers)

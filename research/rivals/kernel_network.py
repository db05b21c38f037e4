"""RLScheduler's kernel network: one small network reads every waiting task alike and the queue is decided by softmax.

Zhang, Dai, He, Xiao, Yu and Xie, RLScheduler: an automated HPC batch job scheduler using reinforcement learning, SC20,
https://doi.org/10.1109/SC41405.2020.00035. Taken: the kernel of 32, 16 and 8 units that is slid over a window of the
queue, so that the order of the rows does not matter; a value network beside it; PPO. Different: RLScheduler's machines
are all alike, so it chooses a job only. Here the task that is chosen goes where the flagship's price is least; the
window has one task of each waiting shape instead of 128 jobs; and the reward is the environment's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from research.rivals.agent import POOLED, Agent, Look
from research.rivals.network import Floats, Net, Whole
from wattflow.learn import episode
from wattflow.live.candidate_rows import PLACE, WAIT


class KernelNetwork(Agent):
    """Chooses the next task."""

    name = "rlscheduler-kernel"
    paper = "10.1109/SC41405.2020.00035"
    joint = True
    shown = 160

    @classmethod
    def start(cls, seed: int) -> KernelNetwork:
        """Random weights."""
        rng = np.random.default_rng([seed, 59])
        return cls(Net.start((episode.WIDTH, 32, 16, 8, 1), rng), Net.start((POOLED, 64, 32, 1), rng))

    def look(self, seen: Floats, shown: Whole, asks: Sequence[Any]) -> Look:
        chosen = [cheapest_rows(ask, min(int(n), seen.shape[1])) for ask, n in zip(asks, shown.tolist(), strict=True)]
        many = np.array([len(rows) for rows in chosen])
        rows = np.concatenate(chosen)
        return Look(seen[np.repeat(np.arange(len(many)), many), rows], np.cumsum(many) - many, rows)


def cheapest_rows(ask: Any, shown: int) -> Whole:
    """The row with the least price of every task that could be placed; where there is none, the row that waits."""
    rows = ask.rows[:shown]
    able = np.flatnonzero(rows.kind == PLACE)
    if len(able) == 0:
        return np.flatnonzero(rows.kind == WAIT)[:1]
    order = able[np.lexsort((able, rows.price[able], rows.task_row[able]))]
    task = rows.task_row[order]
    return np.asarray(order[np.append(True, task[1:] != task[:-1])], np.int64)

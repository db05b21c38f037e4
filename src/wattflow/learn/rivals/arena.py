"""Streams that a rival learns on: the vector environment, drawn anew now and then, with rewards spread evenly.

The environment's reward is minus the joules over the flagship's, and 1 at the end. Here the 1 is paid in equal parts
for every task, so what is still to come is near 0 for whoever does as the flagship does, whatever is left of a stream.
The sum over an episode is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.learn.environment import Draw, SchedulingVectorEnv
from wattflow.learn.rivals.agent import Agent, Look, pooled
from wattflow.learn.rivals.network import Floats, Whole

SCALE = 50.0
"""Rewards of a step are of the order of 1 by this."""


class Arena:
    """Several streams at once; ``draw`` gives a scenario by its number."""

    def __init__(self, agent: Agent, draw: Draw, seed: int, count: int) -> None:
        self.agent, self.count = agent, count
        self.env = SchedulingVectorEnv(draw, count, agent.shown, joint=agent.joint, plays=None)
        self._first, self._drawn = 10_000 * seed, 0
        self.steps = 0
        self.renew()

    def renew(self) -> None:
        """Other streams."""
        self.seen, _ = self.env.reset(seed=self._first + self._drawn)
        self._drawn = (self._drawn + self.count) % 5000
        self._share = 1.0 / np.array([len(one.judge.trial.workload) for one in self.env.episodes])
        self._paid = np.zeros(self.count)

    @property
    def asks(self) -> list[Any]:
        """The engine's own rows of each decision."""
        return [one.ask for one in self.env.episodes]

    def look(self) -> Look:
        """The open decisions."""
        return self.agent.look(self.seen, self.env.shown, self.asks)

    def pooled(self) -> Floats:
        """The open decisions, each as a whole."""
        return pooled(self.seen, self.env.shown)

    def step(self, rows: Whole) -> tuple[Floats, Any]:
        """Take a row of each; rewards and which streams ended."""
        self.seen, reward, ended, _, _ = self.env.step(rows)
        part = np.minimum(self._share, 1.0 - self._paid)
        self._paid += part
        reward = reward + part - ended * self._paid
        self._paid[ended] = 0.0
        self.steps += self.count
        return (SCALE * reward).astype(np.float32), ended

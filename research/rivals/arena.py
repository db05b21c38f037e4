"""Streams that a rival learns on: the vector environment, drawn anew now and then, with rewards spread evenly."""

from __future__ import annotations

from typing import Any

import numpy as np

from research.rivals.agent import Agent, Look, pooled
from research.rivals.network import Floats, Whole
from research.spread_reward import SCALE, EvenPay
from wattflow.learn.environment import Draw, SchedulingVectorEnv


class Arena:
    """Several streams at once; ``draw`` gives a scenario by its number."""

    def __init__(self, agent: Agent, draw: Draw, seed: int, count: int) -> None:
        self.agent, self.count = agent, count
        self.env = SchedulingVectorEnv(draw, count, agent.shown, joint=agent.joint, plays=None)
        self._first, self._drawn = 10_000 * seed, 0
        self._pay = EvenPay(self.env)
        self.steps = 0
        self.renew()

    def renew(self) -> None:
        """Other streams."""
        self.seen, _ = self.env.reset(seed=self._first + self._drawn)
        self._drawn = (self._drawn + self.count) % 5000
        self._pay.begin()

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
        reward = self._pay.spread(reward, ended)
        self.steps += self.count
        return (SCALE * reward).astype(np.float32), ended

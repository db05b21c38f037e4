"""Deep Q learning: replay, a target network, ε-greedy exploration (Mnih et al., Nature 518, 2015)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from research.rivals.agent import Look
from research.rivals.arena import Arena
from research.rivals.network import Floats, Whole, best, sizes_of
from research.rivals.policy_gradient import joined


@dataclass(frozen=True, slots=True)
class DeepQSettings:
    """The usual numbers; ``memory`` and ``batch`` count steps of all streams."""

    memory: int = 1500
    batch: int = 8
    rate: float = 5e-4
    discount: float = 0.98
    explore: float = 0.5
    least: float = 0.02
    fades: float = 3000.0
    target_every: int = 200
    steps: int = 100


class Step(NamedTuple):
    """One step of all streams; the next one in the memory is where it led."""

    look: Look
    chosen: Whole
    reward: Floats
    ended: Floats


class DeepQ:
    """Trains an agent whose scores are values."""

    def __init__(self, arena: Arena, settings: DeepQSettings, seed: int) -> None:
        self.arena, self.agent, self.settings = arena, arena.agent, settings
        self.rng = np.random.default_rng([seed, 71])
        self.memory: deque[Step] = deque(maxlen=settings.memory)
        self.target, self.count = arena.agent.net.copy(), 0

    def round(self) -> float:
        """Some steps, each followed by a lesson; returns the mean reward of a step."""
        rewards = []
        for _ in range(self.settings.steps):
            rewards.append(self._play())
            if len(self.memory) > 4 * self.settings.batch:
                self._learn()
            self.count += 1
            if self.count % self.settings.target_every == 0:
                self.target = self.agent.net.copy()
        # Streams may be other ones in the next round: what follows the last step is unknown.
        self.memory[-1] = self.memory[-1]._replace(ended=np.ones(self.arena.count, np.float32))
        return float(np.mean(rewards))

    def _play(self) -> float:
        s = self.settings
        look = self.arena.look()
        many = sizes_of(look.starts, len(look.rows))
        choice = best(self.agent.scores(look), look.starts)
        chance = s.least + (s.explore - s.least) * np.exp(-self.count / s.fades)
        wild = self.rng.random(len(many)) < chance
        chosen = look.starts + np.where(wild, (self.rng.random(len(many)) * many).astype(np.int64), choice)
        reward, ended = self.arena.step(look.rows[chosen])
        self.memory.append(Step(look, chosen, reward, ended.astype(np.float32)))
        return float(reward.mean())

    def _learn(self) -> None:
        at = self.rng.integers(len(self.memory) - 1, size=self.settings.batch)
        steps, after = [self.memory[t] for t in at], [self.memory[t + 1] for t in at]
        later, _ = joined([step.look for step in after], [step.chosen for step in after])
        ahead = np.maximum.reduceat(self.target.forward(later.inputs)[:, 0], later.starts)
        ended = np.concatenate([step.ended for step in steps])
        wanted = np.concatenate([step.reward for step in steps]) + self.settings.discount * (1.0 - ended) * ahead
        look, chosen = joined([step.look for step in steps], [step.chosen for step in steps])
        values = self.agent.scores(look)
        slope = np.zeros((len(values), 1), np.float32)
        slope[chosen, 0] = np.clip(values[chosen] - wanted, -1.0, 1.0) / len(chosen)
        self.agent.net.descend(slope, self.settings.rate)

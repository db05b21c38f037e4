"""Actor and critic: advantages by generalised estimation, then clipped steps (PPO) or a single plain one (A2C).

Schulman et al., arXiv:1707.06347 and arXiv:1506.02438. With one pass the ratio of chances is 1, nothing is clipped,
and what is left is advantage actor–critic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from research.rivals.agent import Look
from research.rivals.arena import Arena
from research.rivals.network import Floats, Whole, drawn, log_softmax, sizes_of


@dataclass(frozen=True, slots=True)
class GradientSettings:
    """The usual numbers."""

    steps: int = 64
    passes: int = 4
    parts: int = 4
    rate: float = 1e-3
    discount: float = 0.995
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01


class Step(NamedTuple):
    """One step of all streams."""

    look: Look
    whole: Floats
    chosen: Whole
    log_p: Floats
    value: Floats
    reward: Floats
    ended: Floats


class PolicyGradient:
    """Trains an agent that has a critic."""

    def __init__(self, arena: Arena, settings: GradientSettings, seed: int) -> None:
        assert arena.agent.critic is not None
        self.arena, self.agent, self.settings = arena, arena.agent, settings
        self.critic = arena.agent.critic
        self.rng = np.random.default_rng([seed, 67])

    def round(self) -> float:
        """Play, then learn from it; returns the mean reward of a step."""
        steps = [self._play() for _ in range(self.settings.steps)]
        gain = self._gains(steps)
        target = gain + np.stack([step.value for step in steps])
        gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        for _ in range(self.settings.passes):
            for some in np.array_split(self.rng.permutation(len(steps)), self.settings.parts):
                self._learn([steps[t] for t in some], gain[some].reshape(-1), target[some].reshape(-1))
        return float(np.mean([step.reward for step in steps]))

    def _play(self) -> Step:
        look, whole = self.arena.look(), self.arena.pooled()
        log_p = log_softmax(self.agent.scores(look), look.starts)
        chosen = look.starts + drawn(log_p, look.starts, self.rng)
        value = self.critic.forward(whole)[:, 0]
        reward, ended = self.arena.step(look.rows[chosen])
        return Step(look, whole, chosen, log_p[chosen], value, reward, ended.astype(np.float32))

    def _gains(self, steps: list[Step]) -> Floats:
        """Advantages, backwards in time."""
        s = self.settings
        after = self.critic.forward(self.arena.pooled())[:, 0]
        found, trace = np.zeros((len(steps), len(after)), np.float32), np.zeros(len(after), np.float32)
        for t in reversed(range(len(steps))):
            on = 1.0 - steps[t].ended
            trace = steps[t].reward + s.discount * on * after - steps[t].value + s.discount * s.trace * on * trace
            found[t], after = trace, steps[t].value
        return found

    def _learn(self, steps: list[Step], gain: Floats, target: Floats) -> None:
        look, chosen = joined([step.look for step in steps], [step.chosen for step in steps])
        old = np.concatenate([step.log_p for step in steps])
        log_p = log_softmax(self.agent.scores(look), look.starts)
        many, p = sizes_of(look.starts, len(log_p)), np.exp(log_p)
        ratio = np.exp(log_p[chosen] - old)
        clipped = ((gain > 0) & (ratio > 1.0 + self.settings.clip)) | ((gain < 0) & (ratio < 1.0 - self.settings.clip))
        push = np.where(clipped, 0.0, gain * ratio)
        entropy = -np.add.reduceat(p * log_p, look.starts)
        slope = np.repeat(push, many) * p + self.settings.entropy * p * (log_p + np.repeat(entropy, many))
        slope[chosen] -= push
        # A selector's scores are several outputs of one row, a kernel's one output of each.
        slope = (slope / len(old)).reshape(len(look.inputs), -1).astype(np.float32)
        self.agent.net.descend(slope, self.settings.rate)
        error = self.critic.forward(np.concatenate([step.whole for step in steps]))[:, 0] - target
        self.critic.descend((np.clip(error, -5.0, 5.0) / len(error)).astype(np.float32)[:, None], self.settings.rate)


def joined(looks: list[Look], chosen: list[Whole]) -> tuple[Look, Whole]:
    """Decisions of several steps as one."""
    before = np.cumsum([0] + [len(look.rows) for look in looks[:-1]])
    look = Look(
        np.concatenate([look.inputs for look in looks]),
        np.concatenate([look.starts + at for look, at in zip(looks, before, strict=True)]),
        np.concatenate([look.rows for look in looks]),
    )
    return look, np.concatenate([some + at for some, at in zip(chosen, before, strict=True)])

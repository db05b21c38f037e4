"""Rewards of the environment, spread evenly over an episode.

The environment's reward is minus the joules over the flagship's, and 1 at the end. Here the 1 is paid in equal parts
for every task, so what is still to come is near 0 for whoever does as the flagship does, whatever is left of a stream.
The sum over an episode is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.learn.environment import SchedulingVectorEnv

SCALE = 50.0
"""Rewards of a step are of the order of 1 by this."""


class EvenPay:
    """What was paid of each stream's 1 so far."""

    def __init__(self, env: SchedulingVectorEnv) -> None:
        self._env = env
        self._share, self._paid = np.zeros(env.num_envs), np.zeros(env.num_envs)

    def begin(self) -> None:
        """After a reset of the environment."""
        self._begin(np.arange(self._env.num_envs))

    def _begin(self, some: Any) -> None:
        self._paid[some] = 0.0
        self._share[some] = [1.0 / len(self._env.episodes[i].judge.trial.workload) for i in some]

    def spread(self, reward: Any, ended: Any) -> Any:
        """The rewards of a step, not scaled."""
        part = np.minimum(self._share, 1.0 - self._paid)
        self._paid += part
        reward = reward + part - ended * self._paid
        if ended.any():
            self._begin(np.flatnonzero(ended))
        return reward

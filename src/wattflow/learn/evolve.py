"""Evolution strategies for the learned policy: no gradients, no framework, all in the compiled simulator.

Salimans et al., Evolution strategies as a scalable alternative to reinforcement learning, arXiv:1703.03864: weights are
moved along random directions, each tried forwards and backwards (antithetic pairs) on the same scenarios and seeds, so
what is hard about a scenario cancels; the differences of the rewards weigh the directions. Every direction is tried on
few scenarios of a large pool: many directions teach more than many trials of one.

`wattflow.learn.finetune` goes on from weights in use with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.learn.trial import Judge, beyond
from wattflow.policy import weights

Floats = NDArray[np.float64]
DEARER, CHEAPER = 1.25, 0.93
"""How the price of penalties changes."""
LATER = 2.0
"""How much more later generations count in the mean over the way (Shamir and Zhang, arXiv:1212.1824)."""


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """How to train.

    Attributes:
        directions: Antithetic pairs in a generation.
        tries: Scenarios on which a pair is tried.
        sigma, rate: Length of a trial step in each weight; Adam's step.
        decay: Weights shrink by this share in each generation.
        adam: Whether Adam scales the step; else it is ``rate`` × the slope, and the weights are a mean over the way.
        prices: Least and most of the price of penalties.
        most: Differences of rewards beyond this count as this: a single wild scenario must not drown the others.
    """

    seed: int = 1
    directions: int = 64
    tries: int = 2
    sigma: float = 0.2
    rate: float = 0.015
    decay: float = 0.001
    adam: bool = True
    prices: tuple[float, float] = (1.0, 8.0)
    most: float = 0.15


@dataclass(slots=True)
class Progress:
    """Everything that a run needs to go on.

    ``mean`` is a running mean of ``theta``, less noisy than its steps; ``price`` the multiplier of the penalties.
    """

    theta: Floats
    first: Floats
    second: Floats
    mean: Floats
    generation: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    simulations: int = 0
    best: Floats = field(default_factory=lambda: np.zeros(weights.SIZE))
    best_reward: float = 0.0
    price: float = 2.0
    origin: dict[str, Any] = field(default_factory=dict)
    """What training began with, where that was not the flagship."""
    began: int = 0
    """The generation from which on the mean is taken."""

    @classmethod
    def at(cls, theta: Floats, **known: Any) -> Progress:
        """Begin at these weights."""
        zeros = np.zeros_like(theta)
        return cls(theta.copy(), zeros, zeros.copy(), theta.copy(), best=theta.copy(), **known)


def movable(theta: Floats) -> Floats:
    """Mark the weights that training moves: the numbers that the rule has; all of them where it begins with none."""
    return np.where(theta != 0.0, 1.0, 0.0) if theta.any() else np.ones_like(theta)


class Trainer:
    """One run of training on a pool of scenarios; checkpoints are compared on others."""

    def __init__(
        self,
        settings: EvolutionSettings,
        progress: Progress,
        scenarios: Sequence[Judge],
        choosing: Sequence[Judge],
        workers: int = 1,
    ) -> None:
        self.settings, self.progress = settings, progress
        self.mask = movable(progress.theta)
        self.scenarios, self.choosing = list(scenarios), list(choosing)
        self.pool = ThreadPoolExecutor(workers)
        self.flagship_kept = float(np.mean([one.keeps(one.reference) for one in self.choosing]))

    def drawn(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Choose the scenarios of each direction, none twice."""
        count = len(self.scenarios)
        every = np.tile(np.arange(count), (self.settings.directions, 1))
        return rng.permuted(every, axis=1)[:, : min(self.settings.tries, count)]

    def tried(self, scenario: int, won: float, fined: float) -> None:
        """Take note of what a pair won and was fined in a scenario, in the mean."""

    def advance(self) -> None:
        """Go on to the next generation."""

    def generation(self) -> float:
        """Try all directions and take a step; returns the mean reward of the trials."""
        now, settings = self.progress, self.settings
        # By the generation, not one stream for all: a run that goes on from a file draws what it would have drawn.
        rng = np.random.default_rng([settings.seed, now.generation, 31])
        ways = rng.normal(0.0, 1.0, (settings.directions, len(now.theta)))
        ways *= self.mask
        chosen = self.drawn(rng)

        def pair(i: int) -> Floats:
            """Try both ways; return what they won and were fined, for each scenario."""
            some = [self.scenarios[s] for s in chosen[i].tolist()]
            ahead, back = (now.theta + sign * settings.sigma * ways[i] for sign in (1.0, -1.0))
            return np.array([(one.parts(ahead), one.parts(back)) for one in some])

        tried = np.array(list(self.pool.map(pair, range(settings.directions))))
        most = settings.most
        # Clipped by difference, not by reward: what is hard about a scenario is in both halves of a pair.
        won, fined = np.moveaxis(np.clip(tried[:, :, 0] - tried[:, :, 1], -most, most), -1, 0)
        # Fitness of a pair = Δ gain − price × Δ penalty; their sum along the directions is the slope.
        slope = (won - now.price * fined).mean(axis=1) @ ways / (2.0 * settings.sigma * settings.directions)
        for scenario, parts in zip(chosen.ravel().tolist(), tried.mean(axis=2).reshape(-1, 2).tolist(), strict=True):
            self.tried(scenario, *parts)
        self._step(slope)
        now.generation += 1
        now.simulations += 2 * tried.shape[0] * tried.shape[1]
        self.advance()
        return float((tried[..., 0] - tried[..., 1]).mean())

    def _step(self, slope: Floats) -> None:
        """Move uphill: Adam, or a plain step."""
        now, t = self.progress, self.progress.generation + 1
        mask = self.mask
        if not self.settings.adam:
            now.theta = now.theta + mask * (self.settings.rate * slope - self.settings.decay * now.theta)
            share = (1.0 + LATER) / (t - now.began + LATER)
            now.mean = now.mean + share * (now.theta - now.mean)
            return
        now.first = 0.9 * now.first + 0.1 * slope
        now.second = 0.99 * now.second + 0.01 * slope**2
        mean, spread = now.first / (1.0 - 0.9**t), now.second / (1.0 - 0.99**t)
        step = self.settings.rate * mean / (np.sqrt(spread) + 1e-8)
        now.theta = now.theta + mask * (step - self.settings.decay * now.theta)
        now.mean = 0.95 * now.mean + 0.05 * now.theta

    def judge(self, theta: Floats) -> tuple[float, float, float]:
        """Measure gain, log-ratio of joules and share within the bound on the scenarios kept for choosing."""
        found = list(self.pool.map(lambda one: one.trial.run(theta), self.choosing))
        return beyond(list(zip(self.choosing, found, strict=True)))

    def compare(self) -> dict[str, float]:
        """Judge the mean weights on the scenarios kept for choosing, and set a new price of penalties.

        The price rises while the bound is kept in fewer scenarios than the flagship keeps it in, and falls slowly
        otherwise. Checkpoints are compared as the portfolio's settings are: a hundredth of the scenarios more within
        the bound is worth a per cent of joules.

        Returns:
            ``gain``: that sum, beyond the flagship's; ``energy``: log-ratio of joules; ``kept``, ``flagship_kept``:
            shares of scenarios within the bound; ``best``: the best gain so far; ``price``.
        """
        now = self.progress
        gain, energy, kept = self.judge(now.mean)
        # A mean over the way is less noisy than the comparison: the best of many of them would be the luckiest.
        if gain > now.best_reward or not self.settings.adam:
            now.best, now.best_reward = now.mean.copy(), gain
        dearer = DEARER if kept < self.flagship_kept else CHEAPER
        now.price = float(np.clip(now.price * dearer, *self.settings.prices))
        return {
            "gain": gain,
            "energy": energy,
            "kept": kept,
            "flagship_kept": self.flagship_kept,
            "best": now.best_reward,
            "price": now.price,
        }

"""Evolution strategies for the learned policy: no gradients, no framework, all in the compiled simulator.

Salimans et al., Evolution strategies as a scalable alternative to reinforcement learning, arXiv:1703.03864: weights are
moved along random directions, each tried forwards and backwards (antithetic pairs) on the same scenarios and seeds, so
what is hard about a scenario cancels; the differences of the rewards weigh the directions. Every direction is tried on
few scenarios of a large pool: many directions teach more than many trials of one.

`FineTuner` goes on from weights in use with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.learn.recorded import Recorded
from wattflow.learn.trial import Judge, beyond
from wattflow.model.errors import InvalidInput
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
    """Origin of the weights that training began with, where that was not the flagship."""
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


# Going on learning from what was recorded: weights fine-tuned on a twin of recent runs, promoted only if they win.
#
# The twin is the cluster as it is told now (profiles refitted, nodes as they are) with the recorded work on it. The
# blocks before the last ones are trained on, beside a replay of older scenarios, so that what is rare of late is not
# forgotten. The last blocks are kept for the **shadow test**: weights in use and candidate on the same work under the
# same draws of errors; a candidate is promoted only if it saves joules for sure and nobody waits longer for it. Until
# then, and after an alarm, the weights in use stay. Draws of a block share its work, so a block counts once, by the
# mean of its draws; one block alone says nothing for sure, and nothing is promoted by it.

USUAL = EvolutionSettings(directions=16, tries=2, sigma=0.12, rate=0.02, decay=0.0)
"""Smaller trial steps than from scratch. Only the numbers that the rule has are moved: a rule of twelve stays one."""
SHARE = 1 / 3
"""Of the blocks, the last ones, for the shadow test."""
DRAWS = 3
"""Of errors, for each block."""
SURE, WAIT = 1.0, 0.02
"""Standard errors by which the saving must exceed 0, and how much longer anyone may wait."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of a shadow test.

    Attributes:
        saved: Mean share of joules that the candidate saves beside the weights in use (logarithm), and its error over
            blocks: inf where there is one.
        slower: Mean logarithm of its response over theirs.
        missed: Workflows late only with the candidate.
        tests: Pairs of runs.
        slower_error: Of ``slower``, over blocks.
    """

    saved: float
    error: float
    slower: float
    missed: int
    tests: int
    slower_error: float = 0.0

    @property
    def promoted(self) -> bool:
        return self.saved - SURE * self.error > 0.0 and self.slower <= math.log1p(WAIT) and self.missed == 0

    @property
    def alarm(self) -> bool:
        """Tell whether weights that are in use should go: more joules or longer waits for sure, or somebody newly late.

        What was promoted at just the wait that is allowed does not go for a little more of it.
        """
        waits = self.slower - SURE * self.slower_error > math.log1p(WAIT)
        return self.saved + SURE * self.error < 0.0 or waits or self.missed > 0

    def __str__(self) -> str:
        error = f"± {100 * self.error:.2f}" if math.isfinite(self.error) else "of one block, too few to be sure"
        return (
            f"{100 * -math.expm1(-self.saved):+.2f} % joules saved ({error}), response "
            f"{100 * math.expm1(self.slower):+.2f} %, {self.missed} newly late, {self.tests} paired runs"
        )


def shadow(present: Floats, candidate: Floats, judges: Sequence[Judge]) -> Verdict:
    """Judge both weights on the same work."""
    pairs = [(one.trial.run(present), one.trial.run(candidate)) for one in judges]
    # Draws of one block share its work: they are no independent tests.
    block = [id(one.scenario) for one in judges]
    saved, error = over_blocks(block, [math.log(a.energy_j / b.energy_j) for a, b in pairs])
    waits = [math.log(max(1e-9, b.mean_s) / max(1e-9, a.mean_s)) for a, b in pairs]
    slower, slower_error = over_blocks(block, waits)
    missed = sum(len(b.missed - a.missed) for a, b in pairs)
    return Verdict(saved, error, slower, missed, len(pairs), slower_error)


def over_blocks(block: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Return mean of the blocks' means, and its standard error: inf where there is one block."""
    found = np.asarray(values, np.float64)
    means = np.array([found[np.asarray(block) == one].mean() for one in dict.fromkeys(block)])
    error = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.inf
    return float(means.mean()), error


def tested(blocks: Sequence[Recorded], draws: int = DRAWS) -> list[Judge]:
    """Return judges of all blocks, for an alarm: they came after the weights."""
    return [Judge(one, 100 + seed) for one in blocks for seed in range(draws)]


def parted(blocks: Sequence[Recorded], draws: int = DRAWS) -> tuple[list[Judge], list[Judge]]:
    """Return judges of the blocks to train on, and of the last ones, which are kept for the shadow test."""
    if len(blocks) < 3:
        raise InvalidInput("record", f"{len(blocks)} blocks of workflows are too few: at least 3 are needed")
    last = max(1, round(SHARE * len(blocks)))
    return (
        [Judge(one, seed) for one in blocks[:-last] for seed in range(draws)],
        tested(blocks[-last:], draws),
    )


class FineTuner(Trainer):
    """Evolution strategies from the weights in use, on recorded blocks and a replay of old scenarios."""

    def __init__(
        self, present: Floats, recent: Sequence[Judge], old: Sequence[Judge] = (), settings: EvolutionSettings = USUAL,
        workers: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(settings, Progress.at(present), [*recent, *old], recent, workers)
        for one in self.scenarios:  # nobody may wait longer than with the weights in use, whatever others would do
            one.beside(one.trial.run(present))
        self.flagship_kept = 1.0

    def judge(self, theta: Floats) -> tuple[float, float, float]:
        """Judge as the shadow test will: joules saved beside the weights in use, nothing where people wait.

        Half as long a wait as the test allows is free; beyond it a per cent costs ten of joules.
        """
        found = list(self.pool.map(lambda one: one.trial.run(theta), self.choosing))
        pairs = [(one.baseline, ours) for one, ours in zip(self.choosing, found, strict=True)]
        saved = float(np.mean([math.log(before.energy_j / ours.energy_j) for before, ours in pairs]))
        slower = float(np.mean([math.log(max(1e-9, ours.mean_s) / max(1e-9, before.mean_s)) for before, ours in pairs]))
        missed = sum(len(ours.missed - before.missed) for before, ours in pairs)
        beyond = max(0.0, slower - WAIT / 2)
        return saved - 10.0 * beyond - missed, -saved, float(beyond == 0.0 and missed == 0)

    def run(self, seconds: float, generations: int = 1 << 30) -> Floats:
        """Find the best weights on the recent blocks; those in use where none are better."""
        began = time.monotonic()
        while self.progress.generation < generations and time.monotonic() - began < seconds:
            self.generation()
            # The mean of a short run lags behind: it follows its weights faster than in a long one.
            self.progress.mean = 0.8 * self.progress.mean + 0.2 * self.progress.theta
            if self.progress.generation % 4 == 0:
                self.compare()
        self.progress.seconds = time.monotonic() - began
        return self.progress.best


def card(tuner: FineTuner, verdict: Verdict, sources: Sequence[str], base: str) -> dict[str, Any]:
    """Say what the candidate was made from, for its file."""
    now = tuner.progress
    return {
        "trainer": "evolution strategies, fine-tuning",
        "from": base,
        "sources": list(sources),
        "recorded_trials": len(tuner.choosing),
        "replayed_trials": len(tuner.scenarios) - len(tuner.choosing),
        "settings": asdict(tuner.settings),
        "generations": now.generation,
        "simulations": now.simulations,
        "wall_s": round(now.seconds, 1),
        "gain": now.best_reward,
        "shadow": asdict(verdict) | {"promoted": verdict.promoted},
    }

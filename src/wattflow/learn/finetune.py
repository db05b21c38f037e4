"""Going on learning from what was recorded: weights fine-tuned on a twin of recent runs, promoted only if they win.

The twin is the cluster as it is told now (profiles refitted, nodes as they are) with the recorded work on it. The
blocks before the last ones are trained on, beside a replay of older scenarios, so that what is rare of late is not
forgotten. The last blocks are kept for the **shadow test**: weights in use and candidate on the same work under the
same draws of errors; a candidate is promoted only if it saves joules for sure and nobody waits longer for it. Until
then, and after an alarm, the weights in use stay. Draws of a block share its work, so a block counts once, by the mean
of its draws; one block alone says nothing for sure, and nothing is promoted by it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.learn.evolve import EvolutionSettings, Progress, Trainer
from wattflow.learn.recorded import Recorded
from wattflow.learn.trial import Judge
from wattflow.model.errors import InvalidInput

Floats = NDArray[np.float64]
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

"""How evolution strategies train the learned policy: every number of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """How to train.

    Attributes:
        pool: Scenarios that are set up once and drawn from.
        directions: Antithetic pairs in a generation.
        tries: Scenarios on which a pair is tried.
        sigma, rate: Length of a trial step in each weight; Adam's step.
        decay: Weights shrink by this share in each generation.
        tasks: Tasks of a training stream, about.
        chosen_on: Scenarios on which checkpoints are compared; only energy counts there.
        warm: Generations before hidden units learn what to look at.
        longest_s: Scenarios whose simulation takes more CPU time are not trained on.
        part: Which thousand of training scenarios the pool is drawn from; a run that goes on may take the next.
        net: The scorer: ``mlp``, or ``attention`` for the larger one (`wattflow.policy.attending`).
        staged: Whether the curriculum is followed; without it every generation is one of plain streams.
        bar: Whether the network corrects the tuned portfolio's setting and is judged beside it (`wattflow.learn.bar`)
            instead of the flagship.
        own: With ``bar``: the share of scenarios with the flagship's own dials, as `-p learned` has them.
        adam: Whether Adam scales the step; else it is ``rate`` × the slope, and the weights are a mean over the way.
        prices: Least and most of the price of fines.
        most: Differences of rewards beyond this count as this: a single wild scenario must not drown the others.
    """

    fold: int = -1
    seed: int = 1
    pool: int = 120
    directions: int = 64
    tries: int = 2
    sigma: float = 0.2
    rate: float = 0.015
    decay: float = 0.001
    tasks: int = 300
    chosen_on: int = 80
    warm: int = 100
    longest_s: float = 0.03
    part: int = 0
    net: str = "mlp"
    staged: bool = True
    bar: bool = False
    own: float = 0.0
    adam: bool = True
    prices: tuple[float, float] = (1.0, 8.0)
    most: float = 0.15


SCRATCH = EvolutionSettings(
    sigma=0.3, rate=0.3, decay=0.0, longest_s=0.025, chosen_on=100, bar=True, adam=False, most=0.3
)
"""How the shipped weights are trained. Adam takes a step of the same length along every weight, most of it noise, and
weights that are off by 0.2 at random cost 5 %: a plain step is short where there is little to learn, and its mean over
the way, and over seeds, is shorter still where there is nothing."""

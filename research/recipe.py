"""Every number of a training run from scratch."""

from __future__ import annotations

from dataclasses import dataclass

from wattflow.learn.evolve import EvolutionSettings


@dataclass(frozen=True, slots=True)
class ScratchSettings(EvolutionSettings):
    """How to train from scratch.

    Attributes:
        fold: Whose applications are held out; −1: none.
        pool: Scenarios that are set up once and drawn from.
        tasks: Tasks of a training stream, about.
        chosen_on: Scenarios on which checkpoints are compared; only energy counts there.
        longest_s: Scenarios whose simulation takes more CPU time are not trained on.
        part: Which thousand of training scenarios the pool is drawn from; a run that goes on may take the next.
        staged: Whether the curriculum is followed; without it every generation is one of plain streams.
        bar: Whether the network corrects the tuned portfolio's setting and is judged beside it
            (`research.portfolio_judge`) instead of the flagship.
        own: With ``bar``: the share of scenarios with the flagship's own dials, as `-p learned` has them.
    """

    fold: int = -1
    pool: int = 120
    tasks: int = 300
    chosen_on: int = 80
    longest_s: float = 0.03
    part: int = 0
    staged: bool = True
    bar: bool = False
    own: float = 0.0


SCRATCH = ScratchSettings(
    sigma=0.3, rate=0.3, decay=0.0, longest_s=0.025, chosen_on=100, bar=True, adam=False, most=0.3
)
"""How the shipped weights are trained. Adam takes a step of the same length along every weight, most of it noise, and
weights that are off by 0.2 at random cost 5 %: a plain step is short where there is little to learn, and its mean over
the way, and over seeds, is shorter still where there is nothing."""

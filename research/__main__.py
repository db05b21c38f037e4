"""`python -m research learned`: the learned policy on held-out applications, beside its opponents."""

from __future__ import annotations

import argparse
from pathlib import Path

from research import learned_experiment
from wattflow.cli.experiment_command import experiment


def main() -> None:
    """Run the experiment as `wattflow experiment` runs its own."""
    parser = argparse.ArgumentParser(prog="python -m research", description=__doc__)
    parser.add_argument("name", choices=["learned"])
    parser.add_argument("--out", type=Path, help="results go here; by default out/experiments/learned")
    parser.add_argument("--workflows", type=Path, help="other workflows than the file's: a folder of folders")
    given = parser.parse_args()
    learned_experiment.load(given.workflows)
    experiment(str(learned_experiment.FILE), given.out, given.workflows)


if __name__ == "__main__":
    main()

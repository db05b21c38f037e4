"""Train the learned policy from scratch (`make train`) and say how long it took.

    python benchmarks/train.py [--minutes 15] [--folds 0,1,2,3,-1] [--workers 2] [--out out/learned]

One set of weights for each fold, and one from all applications (−1). Times are of one set, set-up included.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from wattflow.learn import curves, evolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="for each set of weights")
    parser.add_argument("--folds", default="0,1,2,3,-1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pool", type=int, default=120)
    parser.add_argument("--out", type=Path, default=Path("out/learned"))
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    longest, gains = 0.0, []
    for fold in map(int, given.folds.split(",")):
        done = evolve.train(evolve.Settings(fold=fold, pool=given.pool), given.out, given.minutes, given.workers)
        longest = max(longest, done.seconds)
        gains.append(done.best_reward)
    try:
        curves.draw(given.out / "curves.png", sorted(given.out.glob("*.csv")))
    except ImportError:
        print("no picture of the curves: pip install 'wattflow[report]'")
    minutes = longest / 60.0
    print(f"figure learned_training {minutes:.1f} min goal ≤60 {'ok' if minutes <= 60 else 'short'}")
    print(f"figure learned_training_gain {100 * min(gains):.2f} % goal >0 {'ok' if min(gains) > 0 else 'short'}")


if __name__ == "__main__":
    main()

"""Choose the dials that the learned policy is served with (``python -m research.dialing --weights FOLDER``).

A network corrects whatever prices it is given, so the flagship's dials below it are free. It is trained on those of the
portfolio's best setting (`research.portfolio_judge`); how long nodes stay awake, what a second is worth and how far the
network is followed then move it along a line from joules to waiting. Where on that line it should be is chosen for each
fold, on scenarios of the applications that it trains on, from seeds of their own: the fewest joules among the dials
with which the bound is kept as often as with the portfolio's setting, to a hundredth of the scenarios. How often it is
kept is the mean of two counts, as it is and smoothly: a few scenarios close to the bound would decide otherwise. Where
no dials keep it so often, the portfolio's rule decides: a hundredth of the scenarios more within the bound is worth a
per cent of joules.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research import portfolio, portfolio_judge, shipped, training
from wattflow.files.whole import whole_file
from wattflow.learn import scenarios
from wattflow.plan.measured import result_of
from wattflow.policy import learned, weights
from wattflow.policy.base import Policy
from wattflow.sim.repeated import Repeated

_log = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Dials = Mapping[str, float]
FACTORS: tuple[tuple[float, float, float], ...] = tuple(product((1.0, 0.7, 0.5, 0.35), (1.0, 0.5), (1.0, 1.6)))
"""The portfolio's time-outs of sleep and price of a second, each × so much, and how far the network is followed."""
FIRST_SEED = training.FIRST_SEED + 6200
"""Scenarios that neither training, nor the choice of checkpoints, nor validation sees."""
WIDTH = 0.03
"""Of the smooth step at the bound, in the logarithm of what is slowest."""
CLOSE = 0.01
"""Shares of scenarios within the bound that differ by less are the same."""
FILE = "dials.json"
Tried = list[tuple[float, float, float]]
Job = tuple[int, int, str, int]


def candidates(load: float, fold: int) -> list[Dials]:
    """Dials to try: the portfolio's best setting of the flagship without the network first, then moved ones with it,
    and the flagship's own dials."""
    base = portfolio_judge.dials(load, fold)
    moved = [
        {**base, "idle": sleep * base["idle"], "second": second * base["second"], "lean": lean}
        for sleep, second, lean in FACTORS
    ]
    return [{**base, "lean": 0.0}, *moved, {}]


def policy_of(theta: Any, dials: Dials) -> Policy:
    """The learned policy with weights and dials."""
    return learned.with_weights(theta).with_params(**dials)


@cache
def _weights(folder: str, fold: int) -> Any:
    name = f"fold-{fold}.npz" if fold >= 0 else "weights.npz"
    return weights.load(Path(folder) / name)[0]


def judge(job: Job) -> tuple[int, Tried]:
    """One scenario of a fold: log-ratio of joules, whether the bound is kept, and how surely, of every candidate."""
    fold, seed, folder, tasks = job
    scenario = scenarios.draw(seed, training.training_applications(fold), tasks)
    workload, theta = scenario.draw(seed), _weights(folder, fold)
    if len(workload) > training.MOST_TASKS:
        return fold, []
    base, punctual = (
        [portfolio.measure(workload, scenario.cluster, policy, seed, scenario.options)]
        for policy in (portfolio.BASELINE, portfolio.PUNCTUAL)
    )
    trial = Repeated(workload, scenario.cluster, learned.with_weights(theta), seed=seed, options=scenario.options)
    where = (scenario.stream.application, scenario.cluster.name, scenario.stream.load)
    found: Tried = []
    for dials in candidates(where[2], fold):
        ours = result_of(trial.again(policy_of(theta, dials)))
        row = portfolio.judged("", where, [ours], base, punctual)
        found.append((math.log(row.energy), float(row.keeps), surely(row.slower) * (row.missed == 0)))
    return fold, found


def surely(slower: float) -> float:
    """Nearly 1 well within the bound, nearly 0 well beyond it."""
    return 1.0 / (1.0 + math.exp(min(30.0, math.log(slower / portfolio.BOUND) / WIDTH)))


def chosen(means: Floats) -> int:
    """The best of the candidates, by their means of what `judge` found."""
    energy, kept, sure = means.T
    able = np.flatnonzero(kept + sure >= kept[0] + sure[0] - 2.0 * CLOSE)
    able = able[able > 0]
    score = energy - kept
    return int(able[energy[able].argmin()]) if len(able) else int(score.argmin())


def told(fold: int, tried: Floats) -> dict[str, Any]:
    """The dials of a fold for each load, and what every candidate did on all of them."""
    means = tried.mean(axis=0)
    best = chosen(means)
    relative = np.exp(means[:, 0] - means[0, 0])
    return {
        f"{load:g}": {
            "dials": dict(candidates(load, fold)[best]),
            "scenarios": len(tried),
            "energy": round(float(relative[best]), 4),
            "kept": round(float(means[best, 1]), 3),
            "portfolio_kept": round(float(means[0, 1]), 3),
            "tried": [
                [round(float(e), 4), *(round(float(v), 3) for v in row[1:])]
                for e, row in zip(relative, means, strict=True)
            ],
        }
        for load in scenarios.LOADS
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Try all, write the choice beside the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=shipped.LEARNED, help="folder with fold-N.npz")
    parser.add_argument("--folds", default="0,1,2,3,-1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scenarios", type=int, default=300, help="of each fold")
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=30.0, help="what is not tried by then does not count")
    parser.add_argument("--out", type=Path, default=shipped.LEARNED / FILE)
    given = parser.parse_args(arguments)
    began = time.time()
    folds = [int(text) for text in given.folds.split(",")]
    jobs: list[Job] = [
        (fold, FIRST_SEED + number, str(given.weights), given.tasks)
        for number in range(given.scenarios)
        for fold in folds
    ]
    found: dict[int, list[Tried]] = {fold: [] for fold in folds}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, mp_context=context) as pool:
        for ready in as_completed([pool.submit(judge, job) for job in jobs]):
            fold, rows = ready.result()
            if rows:
                found[fold].append(rows)
            if time.time() - began > 60.0 * given.minutes:
                pool.shutdown(cancel_futures=True)
                break
    made = json.loads(given.out.read_text()) if given.out.is_file() else {}
    made |= {str(fold): told(fold, np.array(rows)) for fold, rows in found.items() if rows}
    with whole_file(given.out) as draft:
        draft.write_text(json.dumps(made, indent=1) + "\n")
    for fold in folds:
        _log.info(
            "fold %d: %s", fold, made.get(str(fold), {}).get(f"{scenarios.LOADS[0]:g}", "no scenario in the time")
        )
    _log.info("%d scenarios in %.0f s", sum(map(len, found.values())), time.time() - began)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()

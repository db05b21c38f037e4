"""Choose the dials that the learned policy is served with, as the portfolio's settings are chosen: by load, on training
applications, seeds and clusters (``python -m wattflow.learn.dialing --weights FOLDER``).

A network corrects whatever prices it is given, so the flagship's dials below it are free. Each fold's weights are tried
with a few dials on the applications that the fold trains on; the rule is the portfolio's: a hundredth of the scenarios
more within the bound is worth a per cent of joules. One candidate is the portfolio's own best with ``lean`` = 0.
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
from pathlib import Path
from typing import Any

import numpy as np

from wattflow.files.whole import whole_file
from wattflow.learn import evolve, portfolio, scenarios, streams, tuning
from wattflow.learn.portfolio import Judged
from wattflow.learn.scenarios import Scenario
from wattflow.policy import learned, registry, wattflow, weights
from wattflow.policy.base import Policy

_log = logging.getLogger(__name__)
Dials = Mapping[str, float]
CANDIDATES: tuple[Dials, ...] = (
    {},
    {"second": 20.0},
    {"second": 20.0, "sleep": 1.0},
    {"merit": 6.0},
    {"late": 800.0, "merit": 6.0},
    {"wait": 0.1, "sleep": 1.0},
    {"second": 20.0, "lean": 0.5},
)
PLACES = ("mixed", "random-1000", "random-1001", "random-1002")
FILE = "dials.json"


def candidates(load: float, fold: int) -> list[Dials]:
    """Dials to try: those above, and the portfolio's best setting of the flagship without the network."""
    held = streams.FOLDS[fold] if fold >= 0 else ()
    best = next(t for t in portfolio.tuned(load, held) if t.setting.split(":")[0] == "wattflow")
    params = registry.load(best.setting).params
    return [*CANDIDATES, {"lean": 0.0, **{name: params[name] for name in wattflow.DIAL.defaults}}]


def policy_of(theta: Any, dials: Dials) -> Policy:
    """The learned policy with weights and dials."""
    return learned.with_weights(theta).with_params(**dials)


@cache
def _weights(folder: str, fold: int) -> Any:
    name = f"fold-{fold}.npz" if fold >= 0 else "weights.npz"
    return weights.load(Path(folder) / name)[0]


def judge(job: tuple[str, str, float, str, int]) -> list[tuple[int, int, Judged]]:
    """One place: (fold, candidate, outcome) for every fold that trains on the application."""
    application, cluster, load, folder, tasks = job
    machine = tuning.cluster_of(cluster)
    stream = scenarios.stream_of(application, load, tasks)
    scenario = Scenario("dialing", machine, stream, tuning.RUNTIME_ERROR, tuning.POWER_ERROR)
    seed = tuning.FIRST_SEED + 7  # not one that the portfolio was tuned on
    workload = scenario.draw(seed)

    def result(policy: str | Policy) -> list[portfolio.Result]:
        return [portfolio.measure(workload, machine, policy, seed, scenario.options)]

    base, punctual = result(portfolio.BASELINE), result(portfolio.PUNCTUAL)
    found = []
    for fold in range(-1, len(streams.FOLDS)):
        if application in evolve.training_applications(fold):
            for number, dials in enumerate(candidates(load, fold)):
                ours = result(policy_of(_weights(folder, fold), dials))
                found.append((fold, number, portfolio.judged("", (application, cluster, load), ours, base, punctual)))
    return found


def chosen(found: Sequence[tuple[int, int, Judged]]) -> dict[str, dict[str, Any]]:
    """For each fold and load the best candidate, with what it did."""
    made: dict[str, dict[str, Any]] = {}
    for fold in sorted({one[0] for one in found}):
        for load in streams.LOADS:
            rows = [(number, row) for f, number, row in found if f == fold and row.load == load]
            if not rows:
                continue
            tried = {}
            for number in sorted({number for number, _ in rows}):
                mine = [row for other, row in rows if other == number]
                energy = float(np.mean([math.log(row.energy) for row in mine]))
                tried[number] = (energy, float(np.mean([row.keeps for row in mine])))
            best = min(tried, key=lambda number: (tried[number][0] - tried[number][1], number))
            made.setdefault(str(fold), {})[f"{load:g}"] = {
                "dials": dict(candidates(load, fold)[best]),
                "energy": round(math.exp(tried[best][0]), 4),
                "kept": round(tried[best][1], 3),
                "tried": [[round(math.exp(e), 4), round(k, 3)] for e, k in tried.values()],
            }
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Try all, write the choice beside the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=weights.shipped().parent, help="folder with fold-N.npz")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=30.0, help="what is not tried by then does not count")
    parser.add_argument("--out", type=Path, default=weights.shipped().parent / FILE)
    given = parser.parse_args(arguments)
    began = time.time()
    jobs = [
        (application, cluster, load, str(given.weights), given.tasks)
        for cluster in PLACES
        for application in streams.APPLICATIONS
        for load in streams.LOADS
    ]
    found: list[tuple[int, int, Judged]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, mp_context=context) as pool:
        for ready in as_completed([pool.submit(judge, job) for job in jobs]):
            found += ready.result()
            if time.time() - began > 60.0 * given.minutes:
                pool.shutdown(cancel_futures=True)
                break
    _log.info("%d outcomes in %.0f s", len(found), time.time() - began)
    with whole_file(given.out) as draft:
        draft.write_text(json.dumps(chosen(found), indent=1) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()

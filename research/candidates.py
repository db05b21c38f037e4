"""Choose the settings that a rehearsal tries (``python -m research.candidates``).

Settings of the flagship, spread evenly over eight dials (a Sobol sequence) beside the usual ones, are measured on
training streams: any application, a preset or a cluster drawn at random, any load. Then settings are taken one after
the other, each the one that lowers the mean cost of the best one in each stream the most: together they cover what
occurs. Once for all applications, and once without those of each fold. Settings that make nobody wait are added, and
beside them stands the portfolio's best setting of the flagship at each load (``--references`` writes these two anew
into a table that is there, when the portfolio was tuned again). Both come from the portfolio's table without the fold's
applications, and every setting is one that the portfolio is tuned over.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research import portfolio, tuning
from research.dial_space import tried
from research.portfolio import Judged
from wattflow.files.whole import whole_file
from wattflow.learn import scenarios, streams
from wattflow.learn.scenarios import Scenario
from wattflow.plan import measured, rehearsal
from wattflow.plan.measured import BASELINE, PUNCTUAL
from wattflow.policy import registry, wattflow
from wattflow.sim.repeated import Repeated

Floats = NDArray[np.float64]
CHOSEN, SAFE = 24, 4
PRESET_SHARE = 0.3
_log = logging.getLogger(__name__)


def judge(job: tuple[int, int, float]) -> tuple[str, list[float]] | None:
    """All settings on the training stream of a number: its application, and what each costs. None after the end."""
    number, tasks, end = job
    if time.time() > end:
        return None
    rng = np.random.default_rng([number, 77])
    application, load = str(rng.choice(np.array(streams.APPLICATIONS))), float(rng.choice(streams.LOADS))
    preset = rng.random() < PRESET_SHARE
    seed = tuning.FIRST_SEED + number
    name = str(rng.choice(np.array(tuning.PRESETS))) if preset else f"{tuning.RANDOM}{seed}"
    machine = tuning.cluster_of(name)
    stream = scenarios.stream_of(application, load, tasks)
    scenario = Scenario("candidates", machine, stream, tuning.RUNTIME_ERROR, tuning.POWER_ERROR)
    workload, base = scenario.draw(seed), registry.load("wattflow")
    usual_, punctual = (
        measured.measure(workload, machine, policy, seed, scenario.options) for policy in (BASELINE, PUNCTUAL)
    )
    trial = Repeated(workload, machine, base, seed=seed, options=scenario.options)
    each = [measured.result_of(trial.again(base.with_params(**dials))) for dials in tried()]
    return application, [rehearsal.cost(ours, usual_, punctual)[0] for ours in each]


def covering(cost: Floats, count: int = CHOSEN) -> list[int]:
    """Numbers of settings that together cost least if in each stream the best one is used; the first is always in."""
    have, best = [0], cost[:, 0].copy()
    while len(have) < count:
        means = [math.inf if k in have else float(np.minimum(best, cost[:, k]).mean()) for k in range(cost.shape[1])]
        have.append(int(np.argmin(means)))
        best = np.minimum(best, cost[:, have[-1]])
    return have


def chosen(
    applications: Sequence[str], cost: Floats, settings: Sequence[dict[str, float]]
) -> dict[str, list[dict[str, float]]]:
    """For all applications, and without each fold's."""
    names = np.array(applications)
    groups = {"all": np.ones(len(names), bool)}
    groups |= {f"fold-{fold}": ~np.isin(names, held) for fold, held in enumerate(streams.FOLDS)}
    return {name: [rounded(settings[i]) for i in covering(cost[some])] for name, some in groups.items()}


def rounded(dials: Mapping[str, float]) -> dict[str, float]:
    """As the file has them."""
    return {name: float(f"{value:.4g}") for name, value in dials.items()}


def completed(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the safe settings behind the chosen ones, and the portfolio's at each load."""
    safest = {name: safe(held_out(name)) for name in table["settings"]}
    settings = {
        name: rehearsal.distinct([*some[:CHOSEN], *safest[name]], wattflow.DIAL.defaults)[: CHOSEN + SAFE]
        for name, some in table["settings"].items()
    }
    return {
        **table,
        "settings": settings,
        "references": {name: references(name) for name in settings},
        "safest": {name: some[0] for name, some in safest.items()},
    }


def held_out(name: str) -> tuple[str, ...]:
    """The applications of a fold; none for ``all``."""
    return streams.FOLDS[int(name.removeprefix("fold-"))] if name.startswith("fold-") else ()


def safe(held: Collection[str], rows: Iterable[Judged] | None = None) -> list[dict[str, float]]:
    """Settings that make nobody wait: of the flagship's settings in the portfolio's table than which no other keeps
    bound and deadlines in as many scenarios with fewer joules; those that keep them in the most come first. Held-out
    applications are not looked at."""
    by_setting: dict[str, list[Judged]] = {}
    for row in portfolio.shipped() if rows is None else rows:
        if row.application not in held and row.setting.split(":")[0] == "wattflow":
            by_setting.setdefault(row.setting, []).append(row)
    each = [
        (-sum(row.keeps for row in some), sum(math.log(row.energy) for row in some), setting)
        for setting, some in by_setting.items()
    ]
    found: list[str] = []
    least = math.inf
    for _, energy, setting in sorted(each):
        if energy < least:
            least = energy
            found.append(setting)
    return [rounded(registry.load(setting).params) for setting in found]


def references(name: str) -> dict[str, dict[str, float]]:
    """The portfolio's best setting of the flagship at each load, known without a fold's applications."""
    held, found = held_out(name), {}
    for load in streams.LOADS:
        best = next(t for t in portfolio.tuned(load, held) if t.setting.split(":")[0] == "wattflow")
        found[f"{load:g}"] = rounded(registry.load(best.setting).params)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure for so long, choose, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("out/rehearsal.json"))
    parser.add_argument("--references", type=Path, help="a table to write anew with today's portfolio")
    given = parser.parse_args(arguments)
    if given.references is not None:
        write(given.out, completed(json.loads(given.references.read_text(encoding="utf-8"))))
        return
    judge((0, 30, math.inf))  # compiles once for all processes
    began = time.time()
    jobs = [(number, given.tasks, began + 60.0 * given.minutes) for number in range(1, 100_000)]
    with ProcessPoolExecutor(given.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = [one for one in pool.map(judge, jobs, chunksize=2) if one is not None]
    cost = np.array([row for _, row in found])
    seconds = time.time() - began
    _log.info("%d streams in %.0f s", len(found), seconds)
    about = (
        f"{len(tried())} settings on {len(found)} streams of training, {seconds:.0f} s with {given.workers} processes"
    )
    write(given.out, completed({"about": about, "settings": chosen([name for name, _ in found], cost, tried())}))


def write(path: Path, table: Mapping[str, Any]) -> None:
    """The file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft:
        draft.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()

"""Train the learned policy from scratch (`make train`), all runs side by side, and say how long it took.

    python -m research.train_all --wall 60 --workers 2 [--folds 0,1,2,3,-1] [--seeds 1] [--resume] [--out out/learned]
    python -m research.train_all --from-shipped …                        # go on from the weights of the package
    python -m research.train_all --folds=-1 --workers 2 --wall 8         # one network, as `-p learned` uses it
    python -m research.train_all --validate --out out/learned    # beside portfolio and shipped weights
    python -m research.train_all --ship --out out/learned        # put the chosen weights into the package

One run for each fold and seed, in a process of its own; a fold of −1 holds nothing out. ``--wall`` is the whole time in
minutes, compilation included: as many runs as there are cores (half as many again at most) go at once and share it. A
run writes ``NAME.npz`` (best weights so far), ``NAME.checkpoint.npz`` and ``NAME.csv`` every ten generations, so a job
that is ended from outside loses seconds, and ``--resume`` goes on, with the next thousand training scenarios.
``summary.json`` has seconds, CPU seconds, simulations and estimated joules of every run.

The mean of a fold's seeds becomes ``fold-N.npz``, that of the runs that hold nothing out ``weights.npz``; the seeds are
shipped beside them.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from research import curves, evaluate, portfolio_judge, shipped, training, validation
from research.recipe import SCRATCH, ScratchSettings
from wattflow.files.whole import whole_file
from wattflow.learn import scenarios
from wattflow.policy import weights

CROWD = 1.5
"""Runs at once for each core, at most."""
SPARE_S = 5.0
"""Kept free at the end of the wall time."""
TWO_CORES = "two_cores_from_scratch"
"""In summary.json and training.json: how long the one network of `-p learned` took."""
OWN = 0.5
"""Share of scenarios with the flagship's own dials where nothing is held out: `-p learned` has them."""


@dataclass(frozen=True)
class Job:
    """One run. ``end`` is a time of the machine's clock, ``minutes`` what a run may take."""

    settings: ScratchSettings
    out: Path
    end: float
    minutes: float
    threads: int
    again: bool
    base: Path | None


def run(job: Job) -> str:
    """Train until the share or the wall time is over; returns the run's name."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    minutes = min(job.minutes, (job.end - time.time()) / 60.0)
    training.train(job.settings, job.out, minutes, job.threads, job.again, job.base)
    return training.name_of(job.settings)


def part_of(out: Path, settings: ScratchSettings, again: bool, base: Path | None) -> int:
    """Which scenarios are next: those after the ones of the checkpoint or the weights that a run goes on from."""
    path = out / f"{training.name_of(settings)}.checkpoint.npz"
    if again and path.is_file():
        return (int(training.settings_of(path)["part"]) + 1) % 4
    return (int(weights.load(base)[1]["settings"]["part"]) + 1) % 4 if base is not None else 0


def jobs(given: argparse.Namespace, end: float) -> list[Job]:
    """Every fold and seed; runs that come in turn have their part of the time."""
    folds, seeds = ([int(v) for v in text.split(",")] for text in (given.folds, given.seeds))
    many = [(fold, seed) for seed in seeds for fold in folds]
    at_once = min(len(many), max(1, int(CROWD * given.workers)))
    turns = math.ceil(len(many) / at_once)
    minutes = (given.wall - SPARE_S / 60.0) / turns
    made = []
    for fold, seed in many:
        own = OWN if fold < 0 else 0.0
        settings = replace(SCRATCH, fold=fold, seed=seed, pool=given.pool, tasks=given.tasks, own=own)
        name = training.name_of(settings)
        known = shipped.LEARNED / f"{name}.npz"
        base = known if given.from_shipped and known.is_file() else None
        settings = replace(settings, part=part_of(given.out, settings, given.resume, base))
        threads = max(1, given.workers // at_once)
        made.append(Job(settings, given.out, end, minutes, threads, given.resume, base))
    return made


def cards(out: Path) -> dict[str, dict[str, Any]]:
    """What the runs' files say of them, by name."""
    found = sorted(path for path in out.glob("[!.]*-seed-*.npz") if not path.name.endswith(".checkpoint.npz"))
    return {path.stem: weights.load(path)[1] for path in found}


def on_two_cores(names: Iterable[str], workers: int, scratch: bool) -> bool:
    """Whether a call trained the one network of all applications, from scratch with two workers, and nothing else."""
    return scratch and workers == 2 and list(names) == ["all-seed-1"]


def summary(out: Path, wall_s: float, workers: int, scratch: bool, about: str = "") -> dict[str, Any]:
    """Totals, and each run's share of them; ``about``: what the wall time has in it."""
    every = cards(out)
    told = {}
    if on_two_cores(every, workers, scratch):
        cpu_s = every["all-seed-1"]["cpu_s"]
        one = {"run": "all-seed-1", "wall_s": round(wall_s, 1), "workers": workers, "cpu_s": cpu_s, "about": about}
        told = {TWO_CORES: one}
    keys = ("held_out", "generations", "simulations", "wall_s", "cpu_s", "joules_estimated", "gain")
    return {
        "wall_s_of_this_call": round(wall_s, 1),
        "workers": workers,
        "cpu_s": round(sum(card["cpu_s"] for card in every.values()), 1),
        "joules_estimated": sum(card["joules_estimated"] for card in every.values()),
        "runs": {name: {key: card[key] for key in keys} for name, card in every.items()},
        **told,
    }


def groups_of(every: Iterable[str]) -> dict[str, list[str]]:
    """Runs of each fold, by the name of its files."""
    groups: dict[str, list[str]] = {}
    for name in every:
        groups.setdefault(name.split("-seed-")[0], []).append(name)
    return groups


def blended(out: Path, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The mean of a fold's seeds, and its card: what is noise in each of them is less in the mean."""
    loaded = [weights.load(out / f"{name}.npz") for name in names]
    told = [card for _, card in loaded]
    spent = {key: round(sum(card[key] for card in told), 1) for key in ("cpu_s", "joules_estimated", "simulations")}
    gain = sum(card["gain"] for card in told) / len(told)
    card = told[0] | spent | {"mean_of": list(names), "gain": gain}
    return sum(theta for theta, _ in loaded) / len(loaded), card


def ship(out: Path) -> None:
    """Every run's weights and curve into the package, and the mean of each fold's seeds; folds without runs stay."""
    target, every = shipped.LEARNED, cards(out)
    for group, names in groups_of(every).items():
        for old in (*target.glob(f"{group}-seed-*.npz"), *target.glob(f"{group}-seed-*.csv")):
            old.unlink()
        for name in names:
            shutil.copyfile(out / f"{name}.npz", target / f"{name}.npz")
            shutil.copyfile(out / f"{name}.csv", target / f"{name}.csv")
        theta, card = blended(out, names)
        weights.save(shipped.weights_of(-1 if group == "all" else int(group.removeprefix("fold-"))), theta, card)
        print(f"{group}: mean of {len(names)} runs, gain of these {card['gain']:+.4f}")
    keep_summary(out / "summary.json", target / "training.json")


def keep_summary(made: Path, target: Path) -> None:
    """The runs' summary into the package; what it does not tell of stays: other folds, the time on two cores."""
    before = json.loads(target.read_text()) if target.is_file() else {}
    new = json.loads(made.read_text())
    told = {TWO_CORES: before[TWO_CORES]} if TWO_CORES in before else {}
    groups = groups_of(new.get("runs", {}))
    kept = {name: run for name, run in before.get("runs", {}).items() if name.split("-seed-")[0] not in groups}
    runs = kept | new.get("runs", {})
    sums = (
        {key: round(sum(run[key] for run in runs.values()), 1) for key in ("cpu_s", "joules_estimated")} if kept else {}
    )
    with whole_file(target) as draft:
        draft.write_text(json.dumps(told | new | sums | ({"runs": runs} if runs else {}), indent=1))


def main() -> None:
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wall", type=float, default=55.0, help="minutes in all")
    parser.add_argument("--folds", default="0,1,2,3,-1")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pool", type=int, default=120)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--from-shipped", action="store_true", help="begin with the weights of the package")
    parser.add_argument("--validate", action="store_true", help="only judge what is there beside the shipped weights")
    parser.add_argument("--scenarios", type=int, default=100, help="of --validate, for each fold")
    parser.add_argument("--beside", type=Path, nargs="*", default=(), help="of --validate: folders of other runs")
    parser.add_argument("--ship", action="store_true", help="only put the weights of an earlier call into the package")
    parser.add_argument("--out", type=Path, default=Path("out/learned"))
    given = parser.parse_args()
    if given.ship:
        ship(given.out)
        return
    if given.validate:
        validate([given.out, *given.beside], given.scenarios, given.workers)
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    given.out.mkdir(parents=True, exist_ok=True)
    warm_up()
    about = "compilation included"
    scratch = not (given.from_shipped or given.resume)
    todo = jobs(given, began + 60.0 * given.wall - SPARE_S)
    logging.info(
        "%d runs, %.1f minutes each, after %.0f s of warming up", len(todo), todo[0].minutes, time.time() - began
    )
    at_once = min(len(todo), max(1, int(CROWD * given.workers)))
    with ProcessPoolExecutor(at_once, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, job) for job in todo]):
            logging.info("%s is done after %.0f s", done.result(), time.time() - began)
            text = json.dumps(summary(given.out, time.time() - began, given.workers, scratch, about), indent=1)
            with whole_file(given.out / "summary.json") as draft:
                draft.write_text(text)
    try:
        curves.draw(given.out / "curves.png", sorted(given.out.glob("*.csv")))
    except ImportError:
        print("no picture of the curves: pip install 'wattflow[report]'")
    report(given.out, (time.time() - began) / 60.0, given.workers, scratch)


def warm_up() -> None:
    """Compile once, before many processes would at the same time."""
    training.judges(ScratchSettings(tasks=60, longest_s=60.0), training.FIRST_SEED + 999, 1, False)


def report(out: Path, minutes: float, workers: int, scratch: bool) -> None:
    """The figures: how long it took, compilation and all, and how far beyond the flagship it came."""
    every = cards(out)
    gains = [card["gain"] for card in every.values()]
    name = "train_two_cores" if on_two_cores(every, workers, scratch) else "learned_training"
    print(f"figure {name} {minutes:.1f} min goal ≤60 {'ok' if minutes <= 60 else 'short'}")
    print(f"figure {name}_gain {100 * min(gains):.2f} % goal >0 {'ok' if min(gains) > 0 else 'short'}")


def entries(folders: Sequence[Path], fold: int) -> dict[str, validation.Entry]:
    """What is judged of a fold: the portfolio's setting, the shipped weights, and those of the folders."""
    group = f"fold-{fold}" if fold >= 0 else "all"
    bars = {load: portfolio_judge.dials(load, fold) for load in scenarios.LOADS}
    served = {load: evaluate.dials(fold, load) for load in scenarios.LOADS}
    present = weights.load(shipped.weights_of(fold))[0]
    found = {
        "portfolio": validation.Entry(present, {load: {**dials, "lean": 0.0} for load, dials in bars.items()}),
        "shipped": validation.Entry(present, served),
        "shipped, flagship's dials": validation.Entry(present, {}),
    }
    for folder in folders:
        names = groups_of(cards(folder)).get(group, [])
        if not names:
            continue
        theta = blended(folder, names)[0]
        found[f"{folder.name} mean"] = validation.Entry(theta, bars)
        found[f"{folder.name} mean, flagship's dials"] = validation.Entry(theta, {})
        for name in names:
            found[f"{folder.name} {name}"] = validation.Entry(weights.load(folder / f"{name}.npz")[0], bars)
    return found


def validate(folders: Sequence[Path], count: int, workers: int) -> None:
    """Every run and the mean of each fold's beside the portfolio and the shipped weights, on unseen scenarios."""
    folds = sorted({int(card["settings"]["fold"]) for folder in folders for card in cards(folder).values()})
    compared = {fold: entries(folders, fold) for fold in folds}
    leads: dict[str, list[tuple[float, float]]] = {}
    found = validation.validated({fold: list(some.values()) for fold, some in compared.items()}, count, workers=workers)
    for fold, outcome in found.items():
        for i, name in enumerate(compared[fold]):
            saved, by = outcome.saves(i, 0)
            lead, error = outcome.lead(i, 0)
            many = len(outcome.kept)
            print(
                f"fold {fold} {name}: joules {100 * math.expm1(-saved):+.2f} ± {100 * by:.2f} %, kept "
                f"{outcome.kept[:, i].mean():.3f}, score {100 * lead:+.2f} ± {100 * error:.2f} of {many}"
            )
        ours = list(compared[fold]).index(f"{folders[0].name} mean")
        for other in ("portfolio", "shipped"):
            leads.setdefault(other, []).append(outcome.lead(ours, list(compared[fold]).index(other)))
    for other, some in leads.items():
        lead = sum(one for one, _ in some) / len(some)
        error = math.sqrt(sum(e * e for _, e in some)) / len(some)
        print(f"beside {other}, mean of folds: {100 * lead:+.2f} ± {100 * error:.2f} %")
        print(f"figure learned_beside_{other} {100 * lead:.2f} % goal ≥0 {'ok' if lead >= 0 else 'short'}")


if __name__ == "__main__":
    main()

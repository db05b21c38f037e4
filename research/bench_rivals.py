"""Rivals of the literature on our environment: train them, judge them beside the learned policy.

    python -m research.bench_rivals train --workers 16 --wall 8 [--folds 0,1,2,3,-1] [--rivals NAME,…] [--out FOLDER]
    python -m research.bench_rivals ship [--out out/rivals]            # into the package
    python -m research.bench_rivals judge --workers 16 [--quick] [--out out/rivals] [--tasks 600] [--seeds 2]

``train`` has one process for each rival and fold, and shares ``--wall`` (minutes in all, compilation included) among
those that come in turn. Weights are written whenever better ones are found, so a run that is ended keeps what it has.
``judge`` takes the weights in ``--out`` where there are any, else those of the package; every application is judged
with weights that have not seen it, in the scenarios of `python -m research learned`.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import os
import shutil
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from research import evaluate, rival_tables
from research.evaluate import Plan
from research.rivals import files, judging, play, training

SPARE_S = 10.0


def run(job: training.Job, out: Path, end: float, minutes: float) -> str:
    """One rival on one fold, until its share or the wall time is over."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    return training.train(job, out, min(minutes, (end - time.time()) / 60.0)).stem


def train(given: argparse.Namespace) -> None:
    """All rivals on all folds."""
    began = time.time()
    warm_up()
    end = began + 60.0 * given.wall - SPARE_S
    folds = [int(text) for text in given.folds.split(",")]
    jobs = [
        training.Job(name, fold, given.seed, given.count, given.stream_tasks, given.chosen_on, given.looks)
        for fold in folds
        for name in given.rivals.split(",")
    ]
    minutes = (end - time.time()) / 60.0 / math.ceil(len(jobs) / given.workers)
    print(f"{len(jobs)} runs, {minutes:.1f} minutes each, after {time.time() - began:.0f} s of compiling", flush=True)
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # a process for each job: more threads would be in each other's way
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(jobs), given.workers), mp_context=spawn) as pool:
        for done in as_completed([pool.submit(run, job, given.out, end, minutes) for job in jobs]):
            print(f"{done.result()} is done after {time.time() - began:.0f} s", flush=True)
    cards = {path.stem: files.load(path).card for path in sorted(given.out.glob("*.npz"))}
    for name, card in cards.items():
        print(f"{name}: {card['steps']} steps, {card['cpu_s']} CPU s, gain {100 * card['gain']:+.1f} %")
    (given.out / "training.json").write_text(json.dumps(cards, indent=1), encoding="utf-8")
    total = sum(card["cpu_s"] for card in cards.values()) / 60.0
    print(f"figure rivals_training_cpu_all_runs {total:.1f} min goal none ok")


def warm_up() -> None:
    """Compile once, before many processes would at the same time."""
    for name in files.RIVALS:
        agent = files.RIVALS[name].start(1)
        stream = training.choosing(agent, training.Job(name, tasks=60, chosen_on=1))[0]
        play.roll(agent, stream)


def ship(given: argparse.Namespace) -> None:
    """Copy weights and curves into the package."""
    target = files.shipped("any", 0).parent
    target.mkdir(parents=True, exist_ok=True)
    for path in (*sorted(given.out.glob("*.npz")), *sorted(given.out.glob("*.csv"))):
        shutil.copyfile(path, target / path.name)
        print(path.name)


def judge(given: argparse.Namespace) -> None:
    """The table and the figures."""
    plan = Plan(seeds=given.seeds, tasks=given.tasks, sweep=False, all_seeds=False)
    clusters = given.clusters.split(",")
    loads: tuple[float, ...] = (0.3, 0.6, 0.8)
    if given.quick:
        plan = Plan(seeds=1, tasks=100, sweep=False, all_seeds=False)
        clusters, loads = ["edge-cloud", "random-0"], (0.6,)
    places = evaluate.places(evaluate.held_out(), clusters, loads)
    folder = given.out if any(given.out.glob("*.npz")) else None
    warm_up()
    began = time.time()
    rows = evaluate.judge_all(places, plan, given.workers)
    rows += judging.judge_all(places, plan, given.workers, lambda share, text: print(f"{100 * share:.0f} %"), folder)
    table = {(row.place, row.policy): row for row in rows}
    names = rival_tables.present(table, places)
    for name in rival_tables.NAMES:
        if name not in names:
            print(f"{name} has no weights for some fold: not judged")
    sheet = rival_tables.sheet(table, places, names)
    for cells in (sheet.columns, *sheet.rows):
        print(" | ".join(cells))
    print(f"{len(places)} scenarios in {time.time() - began:.0f} s")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "judged.json").write_text(json.dumps([evaluate.as_data(row) for row in rows]), encoding="utf-8")
    for one in rival_tables.figures(table, places, names):
        print(one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "ship", "judge"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--wall", type=float, default=10.0, help="minutes in all")
    parser.add_argument("--folds", default="0,1,2,3,-1")
    parser.add_argument("--rivals", default=",".join(files.RIVALS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=32, help="streams at once")
    parser.add_argument("--stream-tasks", type=int, default=300, help="tasks of a training stream")
    parser.add_argument("--chosen-on", type=int, default=40, help="scenarios that checkpoints are compared on")
    parser.add_argument("--looks", type=int, default=8, help="comparisons of checkpoints in a run")
    parser.add_argument("--tasks", type=int, default=600, help="tasks of a stream that is judged")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--clusters", default="mixed,edge-cloud,ichnos,random-0,random-1,random-2")
    parser.add_argument("--quick", action="store_true", help="judge few scenarios, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("out/rivals"))
    given = parser.parse_args()
    {"train": train, "ship": ship, "judge": judge}[given.what](given)


if __name__ == "__main__":
    main()

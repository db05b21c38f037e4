"""Make the portfolio's table: every setting on the training streams (``python -m research.tuning``).

Streams are like those that the learned policy trains on: every application at every load, on the presets and on
clusters drawn at random, with estimates and watts that err. The budget is stated in the file's first line: settings ×
streams × seeds simulations, and the seconds they took. Training seeds start at 1000; evaluation uses seeds below.

Results are kept in a folder beside the table as they come, so that ``--resume`` goes on after a run that was ended;
``--minutes`` ends one in time.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import logging
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from research import portfolio
from research.portfolio import Judged, Result
from wattflow.clusters import load_cluster
from wattflow.files.whole import whole_file
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput

PRESETS = ("mixed", "edge-cloud", "ichnos")
RANDOM = "random-"
FIRST_SEED = 1000
RUNTIME_ERROR, POWER_ERROR = 0.2, 0.1
CHUNK = 33
"""Settings of one job: small enough to share out evenly."""
FIELDS = ("setting", "application", "cluster", "load", "energy", "slower", "missed")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """Some settings on one scenario; ``end`` is a time of the machine's clock after which none is begun."""

    application: str
    cluster: str
    load: float
    settings: tuple[str, ...]
    seeds: int
    tasks: int
    end: float = float("inf")

    @property
    def name(self) -> str:
        return f"{self.application.replace('/', '_')}_{self.cluster}_{self.load:g}_{portfolio_place(self.settings[0])}"


@cache
def portfolio_place(setting: str) -> int:
    """The number of a setting."""
    return portfolio.settings().index(setting)


@cache
def cluster_of(name: str) -> Cluster:
    """A preset, or a cluster drawn by a training seed."""
    if name.startswith(RANDOM):
        number = int(name.removeprefix(RANDOM))
        return scenarios.random_cluster(np.random.default_rng([number, 43]), name)
    return load_cluster(name)


def judge(job: Job) -> tuple[Job, list[Judged]]:
    """The job's settings; none where time is over."""
    if time.time() > job.end:
        return job, []
    machine = cluster_of(job.cluster)
    stream = scenarios.stream_of(job.application, job.load, job.tasks)
    scenario = Scenario("tuning", machine, stream, RUNTIME_ERROR, POWER_ERROR)
    numbers = range(FIRST_SEED, FIRST_SEED + job.seeds)
    drawn = [scenario.draw(seed) for seed in numbers]

    def results(policy: str) -> list[Result]:
        each = zip(drawn, numbers, strict=True)
        return [portfolio.measure(workload, machine, policy, seed, scenario.options) for workload, seed in each]

    base, punctual = results(portfolio.BASELINE), results(portfolio.PUNCTUAL)
    where = (job.application, job.cluster, job.load)
    return job, [portfolio.judged(setting, where, results(setting), base, punctual) for setting in job.settings]


def table(rows: Sequence[Judged], about: str) -> str:
    """CSV with a comment first."""
    out = io.StringIO()
    out.write(f"# {about}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in rows:
        numbers = (f"{row.load:g}", f"{row.energy:.4f}", f"{row.slower:.4f}", row.missed)
        writer.writerow([row.setting, row.application, row.cluster, *numbers])
    return out.getvalue()


def jobs(options: argparse.Namespace, end: float) -> list[Job]:
    """Every scenario, its settings in chunks."""
    settings = measured_again(options.again, options.new)
    chunks = [settings[i : i + CHUNK] for i in range(0, len(settings), CHUNK)]
    clusters = [*options.clusters.split(","), *(f"{RANDOM}{FIRST_SEED + i}" for i in range(options.random_clusters))]
    return [
        Job(application, cluster, load, chunk, options.seeds, options.tasks, end)
        for chunk in reversed(chunks)  # planners, which take longest, first
        for application in options.applications.split(",")
        for cluster in clusters
        for load in scenarios.LOADS
    ]


def measured_again(names: str, new: bool = False) -> tuple[str, ...]:
    """The settings to measure: all, or those of some policies, or those that the shipped table lacks."""
    some = set(names.split(",")) if names else set()
    known = {row.setting for row in portfolio.shipped()} if new else set()
    return tuple(s for s in portfolio.settings() if s not in known and (not some or s.split(":")[0] in some))


def arguments_of(given: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/portfolio.csv.gz"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=400, help="of a stream, about")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--applications", default=",".join(scenarios.APPLICATIONS))
    parser.add_argument("--clusters", default=",".join(PRESETS))
    parser.add_argument("--random-clusters", type=int, default=4)
    parser.add_argument("--again", default="", help="only these policies; the rest as in the shipped table")
    parser.add_argument("--new", action="store_true", help="only settings that the shipped table lacks")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args(given)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and write the table when all is there."""
    options = arguments_of(arguments)
    started = time.time()
    todo = jobs(options, started + 60.0 * options.minutes)
    kept = options.out.parent / f"{options.out.name}.parts"
    kept.mkdir(parents=True, exist_ok=True)
    open_jobs = [job for job in todo if not (options.resume and (kept / f"{job.name}.json").is_file())]
    judge(Job(todo[0].application, PRESETS[0], 0.3, (todo[0].settings[0],), 1, 30))  # compiles once for all processes
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done, ready in enumerate(as_completed([pool.submit(judge, job) for job in open_jobs]), 1):
            job, found = ready.result()
            if found:
                with whole_file(kept / f"{job.name}.json") as draft:
                    draft.write_text(json.dumps([asdict(row) for row in found]))
            if done % 20 == 0 or done == len(open_jobs):
                _log.info("%d of %d jobs, %.0f s", done, len(open_jobs), time.time() - started)
    missing = [job for job in todo if not (kept / f"{job.name}.json").is_file()]
    if missing:
        _log.warning("%d of %d jobs are left; go on with --resume", len(missing), len(todo))
        return
    write(options, todo, kept, time.time() - started)


def write(options: argparse.Namespace, todo: Sequence[Job], kept: Path, seconds: float) -> None:
    """The table, in the order of the settings."""
    rows = [Judged(**row) for job in todo for row in json.loads((kept / f"{job.name}.json").read_text())]
    there = {(row.application, row.cluster, row.load) for row in rows}
    known = {row.setting for row in rows}
    rows += [r for r in portfolio.shipped() if r.setting not in known and (r.application, r.cluster, r.load) in there]
    settings = portfolio.settings()
    rows = [row for row in rows if row.setting in settings]
    rows.sort(key=lambda row: (row.application, row.cluster, row.load, portfolio_place(row.setting)))
    if len(rows) != len(settings) * len(there):
        raise InvalidInput("--again", "the shipped table lacks settings or streams of this one; measure all")
    again = (f" --again {options.again}" if options.again else "") + (" --new" if options.new else "")
    before = f"; before: {portfolio.about()}" if again else ""
    about = (
        f"python -m research.tuning --seeds {options.seeds} --tasks {options.tasks} --random-clusters "
        f"{options.random_clusters}{again}: {len(settings)} settings on {len(there)} streams, seeds "
        f"from {FIRST_SEED}: {len(known) * len(there) * options.seeds} simulations in {seconds:.0f} s with "
        f"{options.workers} processes; "
        f"energy and slower are ratios to {portfolio.BASELINE}, all nodes on{before}"
    )
    with whole_file(options.out) as place:
        place.write_bytes(gzip.compress(table(rows, about).encode(), 9, mtime=0))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()

"""Make the portfolio's table: every setting on every training stream (``python -m wattflow.learn.tuning``).

The budget is stated in the file's first lines: settings × streams × seeds simulations, and the seconds they took.
Training seeds start at 1000; evaluation uses seeds below.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from wattflow.clusters import load_cluster
from wattflow.files.whole import whole_file
from wattflow.learn import portfolio, streams
from wattflow.learn.portfolio import Judged, Result
from wattflow.learn.streams import Stream
from wattflow.model.cluster import Cluster

CLUSTERS = ("mixed", "edge-cloud", "ichnos")
FIRST_SEED = 1000
FIELDS = ("setting", "application", "cluster", "load", "energy", "slower", "missed")
_log = logging.getLogger(__name__)
Where = tuple[str, str, float]


@cache
def _cluster(name: str) -> Cluster:
    return load_cluster(name)


def judge_all(job: tuple[Where, tuple[str, ...], int]) -> list[Judged]:
    """All settings on one scenario."""
    (application, cluster, load), settings, seeds = job
    stream = Stream(application, streams.instances_of(application), load)
    machine = _cluster(cluster)
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    drawn = [stream.draw(machine, seed) for seed in numbers]

    def results(policy: str) -> list[Result]:
        return [portfolio.measure(w, machine, policy, seed) for w, seed in zip(drawn, numbers, strict=True)]

    base, punctual = results(portfolio.BASELINE), results(portfolio.PUNCTUAL)
    where = (application, cluster, load)
    return [portfolio.judged(setting, where, results(setting), base, punctual) for setting in settings]


def table(rows: Sequence[Judged], about: str) -> str:
    """CSV with a comment first."""
    out = io.StringIO()
    out.write(f"# {about}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in rows:
        writer.writerow(
            [
                row.setting,
                row.application,
                row.cluster,
                f"{row.load:g}",
                f"{row.energy:.4f}",
                f"{row.slower:.4f}",
                row.missed,
            ]
        )
    return out.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/portfolio.csv.gz"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--applications", default=",".join(streams.APPLICATIONS))
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    options = parser.parse_args(arguments)
    settings = portfolio.settings()
    places = [
        ((application, cluster, load), settings, options.seeds)
        for application in options.applications.split(",")
        for cluster in options.clusters.split(",")
        for load in streams.LOADS
    ]
    started = time.monotonic()
    rows: list[Judged] = []
    with ProcessPoolExecutor(options.workers) as pool:
        for done, found in enumerate(pool.map(judge_all, places), 1):
            rows += found
            _log.info("%d of %d scenarios, %.0f s", done, len(places), time.monotonic() - started)
    count = len(settings) * len(places) * options.seeds
    about = (
        f"python -m wattflow.learn.tuning --seeds {options.seeds}: {len(settings)} settings on {len(places)} streams "
        f"of {streams.WORKFLOWS} workflows, seeds from {FIRST_SEED}: {count} simulations in "
        f"{time.monotonic() - started:.0f} s with {options.workers} processes; energy and slower are ratios to "
        f"{portfolio.BASELINE}, all nodes on"
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(options.out) as place:
        place.write_bytes(gzip.compress(table(rows, about).encode(), 9, mtime=0))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()

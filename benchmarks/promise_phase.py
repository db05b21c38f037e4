"""Where it saves and where nothing can: many short streams over what decides it (`make bench-promise-phase`).

    python benchmarks/promise_phase.py [--policy P] [--streams 42] [--workers 2] [--minutes 50] [--keep] [--out FOLDER]

Every cell of unlike nodes × wake time × load × error of estimates has so many streams of 24 fork-joins on eight nodes;
its figures are means over them. A cell saves where our joules are below those of `kubernetes` all on while mean and p95
response stay within 1.02. Streams are measured some for every cell, then some more: OUT/cells.jsonl is gone on with,
and so is research/results/promise-phase.jsonl.gz, where `--keep` puts what is known by then. OUT/phase.png is the
picture of docs/promise.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from policy_runs import deciding
from promise import KEPT, OURS, keep_rows, kept_rows

from research import judge as judging
from research.judge import BOUND, Judge, Stream
from wattflow.generate import Recipe
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.profile import PowerProfile

SLEEPING = "kubernetes:sleep=600"
CELLS = KEPT.with_name("promise-phase.jsonl.gz")
SOME = 14
"""Streams of a cell that are measured together."""
SPREADS = (1.0, 1.5, 2.0, 4.0)
"""Speed of the quickest node over that of the slowest."""
WAKES = (0.1, 0.5, 1.0, 3.0, 10.0)
"""Seconds of waking over the critical path of a workflow."""
LOADS = (0.1, 0.2, 0.5, 0.9)
ERRORS = ("exact", "20", "100")
NODES, WORKFLOWS, PATH_S = 8, 24, 240.0
FIGURES = ("energy", "mean", "p95", "plain")
Cell = tuple[float, float, float, str]
Row = dict[str, Any]


def cluster_of(spread: float, wake: float) -> Cluster:
    """Eight nodes whose speeds go from 1 down; slower ones draw less, by the square root of their speed."""
    nodes = []
    for i, speed in enumerate(np.geomspace(1.0, 1.0 / spread, NODES).tolist()):
        idle_w, full_w = 60.0 * math.sqrt(speed), 200.0 * math.sqrt(speed)
        profile = PowerProfile.from_form("linear", 16, idle_w, full_w)
        sleep = Sleep(4.0, wake * PATH_S, 10.0, idle_w)
        nodes.append(Node(f"n{i}", 8, 64 << 30, threads_per_core=2, speed=speed, power=profile, sleep=sleep))
    return Cluster("phase", tuple(nodes))


def measure(cell: Cell, first: int, policy: str) -> Row:
    """Means over some streams of one cell: joules and responses of a policy, joules of the plain time-out."""
    spread, wake, load, estimates = cell
    cluster = cluster_of(spread, wake)
    parts = tuple(Recipe.parse("fork-join:tasks=8,mean=80s").draw(seed) for seed in range(6))
    rows = []
    for seed in range(first, first + SOME):
        judge = Judge(Stream(parts, cluster, load, seed, estimates, WORKFLOWS), draws=1, reference="kubernetes")
        ours, plain = judge.verdict(policy), judge.verdict(SLEEPING)
        rows.append((ours.energy, ours.mean, ours.p95, plain.energy))
    means = np.exp(np.log(np.array(rows)).mean(axis=0)).tolist()
    return {"cell": list(cell), "first": first, "policy": policy} | {
        name: float(f"{value:.6g}") for name, value in zip(FIGURES, means, strict=True)
    }


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row for each cell: geometric means over all of its streams, and how many they are."""
    found: dict[Cell, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row["cell"]), []).append(row)
    return [
        {"cell": cell, "streams": SOME * len(some)}
        | {name: float(np.exp(np.mean([math.log(row[name]) for row in some]))) for name in FIGURES}
        for cell, some in found.items()
    ]


def key(row: Row) -> tuple[Any, ...]:
    """Tell one row from another."""
    return row["policy"], row["first"], *row["cell"]


def draw(rows: Sequence[Row], path: Path) -> None:
    """One panel for each load and error: wake time across, unlike nodes up, colour is joules, a cross is waiting."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        len(ERRORS), len(LOADS), figsize=(11, 7), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    known: dict[Any, Any] = {tuple(row["cell"]): row for row in rows}
    image = None
    for (y, error), (x, load) in itertools.product(enumerate(ERRORS), enumerate(LOADS)):
        panel = panels[y][x]
        cells = [[known.get((s, w, load, error)) for w in WAKES] for s in SPREADS]
        energy = np.array([[math.nan if c is None else c["energy"] for c in line] for line in cells])
        image = panel.imshow(energy, origin="lower", vmin=0.3, vmax=1.0, cmap="viridis", aspect="auto")
        for i, j in itertools.product(range(len(SPREADS)), range(len(WAKES))):
            cell = cells[i][j]
            if cell is not None:
                waits = max(cell["mean"], cell["p95"]) > BOUND
                text = f"{cell['energy']:.2f}" + ("\n×" if waits else "")
                panel.text(j, i, text, ha="center", va="center", fontsize=7, color="w" if cell["energy"] < 0.8 else "k")
        panel.set_xticks(range(len(WAKES)), [f"{w:g}" for w in WAKES])
        panel.set_yticks(range(len(SPREADS)), [f"{s:g}" for s in SPREADS])
        panel.set_title(f"load {load:g}, estimates {error}{'' if error == 'exact' else ' % off'}", fontsize=8)
    figure.supxlabel("wake time / critical path")
    figure.supylabel("quickest / slowest node")
    figure.suptitle("joules over those of kubernetes, all on; × where mean or p95 response is above 1.02", fontsize=10)
    if image is not None:
        figure.colorbar(image, ax=panels, shrink=0.8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default=OURS)
    parser.add_argument("--streams", type=int, default=42)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=50.0)
    parser.add_argument("--keep", action="store_true", help="write all rows to the repository's file")
    parser.add_argument("--out", type=Path, default=Path("out/promise"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path, stamp = given.out / "cells.jsonl", deciding(Path(judging.__file__))
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    known = {key(row): row for row in (*kept_rows(CELLS), *lines) if row["stamp"] == stamp}
    cells = list(itertools.product(SPREADS, WAKES, LOADS, ERRORS))
    wanted = [(cell, first, given.policy) for first in range(0, given.streams, SOME) for cell in cells]
    missing = [one for one in wanted if (one[2], one[1], *one[0]) not in known]
    print(f"{len(missing) * SOME} streams to go, {(len(wanted) - len(missing)) * SOME} known", flush=True)
    end = time.monotonic() + 60.0 * given.minutes
    with ProcessPoolExecutor(given.workers) as pool, path.open("a", encoding="utf-8") as file:
        jobs = [pool.submit(measure, *one) for one in missing]
        for job in as_completed(jobs):
            if not job.cancelled():
                row = job.result() | {"stamp": stamp}
                known[key(row)] = row
                file.write(json.dumps(row) + "\n")
                file.flush()
            if time.monotonic() > end:
                for other in jobs:
                    other.cancel()
    if given.keep:
        before = {key(row): row for row in kept_rows(CELLS)}
        keep_rows(CELLS, [row for _, row in sorted((before | known).items())])
    rows = merged(row for row in known.values() if row["policy"] == given.policy)
    draw(rows, given.out / "phase.png")
    count = sum(row["streams"] for row in rows)
    keeps = [row for row in rows if max(row["mean"], row["p95"]) <= BOUND]
    saves = [row for row in keeps if row["energy"] < 0.98]
    print(f"figure promise_phase_streams {count} streams goal ≥10000 {'ok' if count >= 10_000 else 'short'}")
    print(f"figure promise_phase_cells_that_keep {len(keeps)} of {len(rows)} goal none ok")
    print(f"figure promise_phase_cells_that_save {len(saves)} of {len(rows)} goal none ok")


if __name__ == "__main__":
    main()

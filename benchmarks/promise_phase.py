"""Where it saves and where nothing can: many short streams over what decides it (`make bench-promise-phase`).

    python benchmarks/promise_phase.py [--streams 42] [--workers 2] [--minutes 50] [--out FOLDER]

Every cell of unlike nodes × wake time × load × error of estimates has so many streams of 24 fork-joins on eight nodes;
its figures are means over them. A cell saves where our joules are below those of `kubernetes` all on while mean and p95
response stay within 1.02. OUT/cells.jsonl is gone on with; OUT/phase.png is the picture of docs/promise.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from policy_runs import sources

from research.judge import BOUND, Judge, Stream
from wattflow.generate import Recipe
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.profile import PowerProfile

OURS, SLEEPING = "wattflow", "kubernetes:sleep=600"
SPREADS = (1.0, 1.5, 2.0, 4.0)
"""Speed of the quickest node over that of the slowest."""
WAKES = (0.1, 0.5, 1.0, 3.0, 10.0)
"""Seconds of waking over the critical path of a workflow."""
LOADS = (0.1, 0.2, 0.5, 0.9)
ERRORS = ("exact", "20", "100")
NODES, WORKFLOWS, PATH_S = 8, 24, 240.0
Cell = tuple[float, float, float, str]


def cluster_of(spread: float, wake: float) -> Cluster:
    """Eight nodes whose speeds go from 1 down; slower ones draw less, by the square root of their speed."""
    nodes = []
    for i, speed in enumerate(np.geomspace(1.0, 1.0 / spread, NODES).tolist()):
        idle_w, full_w = 60.0 * math.sqrt(speed), 200.0 * math.sqrt(speed)
        profile = PowerProfile.from_form("linear", 16, idle_w, full_w)
        sleep = Sleep(4.0, wake * PATH_S, 10.0, idle_w)
        nodes.append(Node(f"n{i}", 8, 64 << 30, threads_per_core=2, speed=speed, power=profile, sleep=sleep))
    return Cluster("phase", tuple(nodes))


def measure(cell: Cell, streams: int) -> dict[str, object]:
    """Means over the streams of one cell: joules and responses of ours, joules of the plain time-out."""
    spread, wake, load, estimates = cell
    cluster = cluster_of(spread, wake)
    parts = tuple(Recipe.parse("fork-join:tasks=8,mean=80s").draw(seed) for seed in range(6))
    rows = []
    for seed in range(streams):
        judge = Judge(Stream(parts, cluster, load, seed, estimates, WORKFLOWS), draws=1, reference="kubernetes")
        ours, plain = judge.verdict(OURS), judge.verdict(SLEEPING)
        rows.append((ours.energy, ours.mean, ours.p95, plain.energy))
    energy, mean, p95, plain_energy = np.exp(np.log(np.array(rows)).mean(axis=0)).tolist()
    return {"cell": cell, "streams": streams, "energy": energy, "mean": mean, "p95": p95, "plain": plain_energy}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
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
    parser.add_argument("--streams", type=int, default=42)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=50.0)
    parser.add_argument("--out", type=Path, default=Path("out/promise"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path, stamp = given.out / "cells.jsonl", sources()
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    rows = [row for row in lines if (row["stamp"], row["streams"]) == (stamp, given.streams)]
    known = {tuple(row["cell"]) for row in rows}
    missing = [cell for cell in itertools.product(SPREADS, WAKES, LOADS, ERRORS) if cell not in known]
    print(f"{len(missing)} cells to go, {len(known)} known", flush=True)
    end = time.monotonic() + 60.0 * given.minutes
    with ProcessPoolExecutor(given.workers) as pool, path.open("a", encoding="utf-8") as file:
        jobs = {pool.submit(measure, cell, given.streams): cell for cell in missing}
        for job in as_completed(jobs):
            if not job.cancelled():
                rows.append(job.result() | {"stamp": stamp})
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
            if time.monotonic() > end:
                for other in jobs:
                    other.cancel()
    draw(rows, given.out / "phase.png")
    count = sum(row["streams"] for row in rows)
    saves = [row for row in rows if row["energy"] < 0.98 and max(row["mean"], row["p95"]) <= BOUND]
    print(f"figure promise_phase_streams {count} streams goal ≥10000 {'ok' if count >= 10_000 else 'short'}")
    print(f"figure promise_phase_cells_that_save {len(saves)} of {len(rows)} goal none ok")


if __name__ == "__main__":
    main()

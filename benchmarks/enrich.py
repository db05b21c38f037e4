"""Enrichment against measured runs: Ichnos' nf-core/ampliseq runs, whole-node package joules by RAPL.

Three ways from the trace to the run's joules, none fitted to a run: a straight line from idle to full watts, the node's
measured load curve read at the utilisation, and the same curve turned into watts against busy threads (cores first, the
package awake). The data are read here as they are; `wattflow enrich` takes traces in their own formats.

    make bench-enrich
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from pathlib import Path

import numpy as np

from wattflow.energy.enrich import BusyStretch, node_energy
from wattflow.model.profile import PowerProfile, Scope, threads_profile

DATA = Path(os.environ.get("WATTFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
Key = tuple[str, str]
GOAL = 7.0


def load_curves(data: Path) -> dict[Key, tuple[int, list[tuple[float, float]]]]:
    """Hardware threads and (load, watts) of each node and governor."""
    curves: dict[Key, tuple[int, list[tuple[float, float]]]] = {}
    with gzip.open(data / "power_curves" / "cpu_power_curves.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["source"] == "ichnos":
                _, points = curves.setdefault((row["system"], row["setting"]), (int(row["threads"]), []))
                points.append((float(row["load_pct"]) / 100, float(row["power_W"])))
    return curves


def traces(data: Path) -> dict[tuple[str, str, str], list[BusyStretch]]:
    """Busy threads of every task, in seconds from the first submission of its run."""
    rows: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with gzip.open(data / "energy_labelled" / "ichnos_ampliseq" / "task_traces.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            rows[row["node"], row["governor"], row["run"]].append(row)
    work = {}
    for key, tasks in rows.items():
        begin_s = min(int(row["submit"]) for row in tasks) / 1000
        work[key] = [
            BusyStretch(row["task_id"], start_s, start_s + int(row["realtime"]) / 1000, float(row["%cpu"]) / 100)
            for row in tasks
            if row["%cpu"] not in ("", "-")
            for start_s in [int(row["start"]) / 1000 - begin_s]
        ]
    return work


def errors(data: Path) -> dict[str, dict[tuple[str, str, str], float]]:
    """Signed relative error of each method on each run."""
    curves, work = load_curves(data), traces(data)
    found: dict[str, dict[tuple[str, str, str], float]] = {"line": {}, "load": {}, "threads": {}}
    with (data / "energy_labelled" / "ichnos_ampliseq" / "runs_measured_energy.csv").open() as file:
        for row in csv.DictReader(file):
            key = (row["node"], row["governor"], row["run"])
            threads, points = curves[row["node"], row["governor"]]
            points = sorted(points)
            profiles = {
                "line": PowerProfile.from_load(threads, [points[0], points[-1]], scope="package"),
                "load": PowerProfile.from_load(threads, points, scope="package"),
                "threads": threads_profile(points, threads // 2, 2, scope=Scope.PACKAGE),
            }
            for name, profile in profiles.items():
                modelled_j = node_energy(work[key], profile, 0.0, float(row["elapsed_s"])).total_j
                found[name][key] = modelled_j / float(row["energy_pkg_J"]) - 1
    return found


def main() -> None:
    found = errors(DATA)
    print("relative error of the run's package joules, %   line   load curve   busy threads")
    for key in found["line"]:
        shown = "".join(f"{100 * found[name][key]:12.1f}" for name in found)
        print(f"{key[0]} {key[1]:12s} run {key[2]}      {shown}")
    mean = {name: 100 * float(np.mean(np.abs(list(values.values())))) for name, values in found.items()}
    print(f"mean absolute error: line {mean['line']:.1f} %, load curve {mean['load']:.1f} %")
    ok = "ok" if mean["threads"] <= GOAL else "short"
    print(f"figure enrich-ichnos-mean-error {mean['threads']:.2f} % goal {GOAL:g} {ok}")


if __name__ == "__main__":
    main()

"""A ground to tune the shield on: other clusters, applications and seeds than those that judge (`ground`).

    python benchmarks/promise_tuning.py [--policy wattflow] [--places 16] [--workers 1] [--estimates 20] [--notes]

Each stream under the policy, beside `kubernetes` all on, with nodes off after 600 s, and the best in hindsight of plain
rules × time-outs that keeps the bound. Two draws, streams of 120 workflows, so a single verdict says little; the sums
do. What does not depend on the policy is kept in OUT/tuning.json.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from promise import SLEEPING, geometric

from research import judge
from wattflow import traces
from wattflow.clusters import load_cluster
from wattflow.files.data_folder import data_file
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.sim import simulate

FOLDER = Path(__file__).parent / "tuning"
CLUSTERS = ("level", "renewed", "level", "sleepy", "eager", "level")
"""Half on equal nodes."""
APPLICATIONS = (
    "fork-join:tasks=24,mean=90s", "pegasus/montage", "rnaseq-1", "bag:tasks=3,mean=400s", "pegasus/soykb",
    "makeflow/blast", "pegasus/srasearch",
)  # fmt: skip
LOADS = (0.2, 0.5, 0.9)
SEED, DRAWS = 7000, 2
PLAIN = ("eft", "kubernetes", "least-energy", "most-allocated")
SWEEP = tuple(f"{rule}{after}" for rule in PLAIN for after in ("", ":sleep=30", ":sleep=120", ":sleep=600"))
judge.LONGEST = 120
Place = tuple[str, str, float, int]


def places() -> list[Place]:
    """Every stream; any first part of the list is about as mixed as the whole."""
    found = [(c, a, load, SEED + i) for i, c in enumerate(CLUSTERS) for a in APPLICATIONS for load in LOADS]
    return [found[i] for i in np.random.default_rng(1).permutation(len(found)).tolist()]


@cache
def parts_of(application: str) -> tuple[Workload, ...]:
    """The workflows of an application."""
    if ":" in application:
        return tuple(Recipe.parse(application).draw(seed) for seed in range(SEED, SEED + 8))
    if "/" not in application:
        return (traces.load(data_file("nextflow_traces", "glasgow_workflows") / f"{application}.csv.gz"),)
    files = sorted(str(path) for path in data_file("wfinstances", application).rglob("*.json*"))
    return tuple(one for one in map(scenarios.instance, files) if len(one) <= scenarios.MOST_TASKS)


def judged(place: Place, estimates: str) -> judge.Judge:
    cluster, application, load, seed = place
    machine = load_cluster(str(FOLDER / f"{cluster}.toml"))
    return judge.Judge(judge.Stream(parts_of(application), machine, load, seed, estimates), draws=DRAWS)


def hindsight(place: Place, estimates: str) -> dict[str, Any]:
    """What does not depend on the policy: the 600 s baseline, and the best plain rule that keeps the bound."""
    one = judged(place, estimates)
    found = {name: one.verdict(name) for name in dict.fromkeys((*SWEEP, SLEEPING, "wattflow:shield=none"))}
    best = min((v for n, v in found.items() if v.kept and n in SWEEP), key=lambda v: v.energy)
    return {"best": best.policy, "best_energy": best.energy, "slept": found[SLEEPING].energy} | {
        "bare": asdict(found["wattflow:shield=none"])
    }


def measure(place: Place, policy: str, estimates: str, notes: bool) -> dict[str, Any]:
    """The policy on a stream: its verdict, its seconds of processor in a draw, and what it chose in the first."""
    one = judged(place, estimates)
    began = time.process_time()
    found = one.verdict(policy)
    took_s = (time.process_time() - began) / DRAWS
    told: object = []
    if notes:
        known = judge.estimated(one.workload, estimates, 0)
        cluster = judge.shuffled(judge.nominal(one.stream.cluster), 0)
        told = simulate(known, cluster, registry.load(policy), seed=0).manifest["steering"]
    return asdict(found) | {"kept": found.kept, "took_s": took_s, "notes": told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="wattflow")
    parser.add_argument("--places", type=int, default=16)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--estimates", default="20")
    parser.add_argument("--notes", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/promise"))
    given = parser.parse_args()
    store = given.out / f"tuning-{given.estimates}.json"
    known = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    chosen = places()[given.first : given.first + given.places]
    rows = []
    with ProcessPoolExecutor(given.workers) as pool:
        missing = [place for place in chosen if str(place) not in known]
        for place, row in zip(missing, pool.map(partial(hindsight, estimates=given.estimates), missing), strict=True):
            known[str(place)] = row
            store.parent.mkdir(parents=True, exist_ok=True)
            store.write_text(json.dumps(known), encoding="utf-8")
        ours = partial(measure, policy=given.policy, estimates=given.estimates, notes=given.notes)
        for place, row in zip(chosen, pool.map(ours, chosen), strict=True):
            rows.append((place, row, known[str(place)]))
            show(place, row, known[str(place)])
    total(rows)


def show(place: Place, row: dict[str, Any], beside: dict[str, Any]) -> None:
    bare, text = beside["bare"], f"{place[0]:8}{place[1]:28}{place[2]:4}"
    print(
        f"{text} {row['energy']:.3f} {row['mean']:.3f} {row['p95']:.3f} {'kept ' if row['kept'] else 'BROKE'}"
        f" {row['took_s']:5.1f} s | 600 s {beside['slept']:.3f} | best {beside['best_energy']:.3f} {beside['best']}"
        f" | bare {bare['energy']:.3f} {bare['mean']:.3f} {bare['p95']:.3f}", flush=True,
    )  # fmt: skip
    for note in row["notes"]:
        print("      ", {key: value for key, value in note.items() if key not in ("latest",)})


def total(rows: list[tuple[Place, dict[str, Any], dict[str, Any]]]) -> None:
    for name, some in (("all", rows), ("level", [one for one in rows if one[0][0] == "level"])):
        if some:
            print(
                f"{name}: {len(some)} streams, kept {100 * np.mean([r['kept'] for _, r, _ in some]):.0f} %, joules"
                f" {geometric(r['energy'] for _, r, _ in some):.3f}, / 600 s"
                f" {geometric(r['energy'] / b['slept'] for _, r, b in some):.3f}, / hindsight"
                f" {geometric(r['energy'] / b['best_energy'] for _, r, b in some):.3f} (hindsight"
                f" {geometric(b['best_energy'] for _, _, b in some):.3f}), worst mean"
                f" {max(r['mean'] for _, r, _ in some):.3f} p95 {max(r['p95'] for _, r, _ in some):.3f},"
                f" {np.mean([r['took_s'] for _, r, _ in some]):.1f} s a draw"
            )


if __name__ == "__main__":
    main()

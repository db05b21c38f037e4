"""Exploring design spaces: how long the small design takes, what resuming costs, and ExDe's claim on twelve designs.

Ends with one line per figure. `--part NAME` runs one part; `--workers` as in `wattflow explore`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from wattflow.lab.explore.design import bundled, read_design
from wattflow.lab.explore.exploration import Exploration, explore
from wattflow.lab.explore.explore_page import write_exploration
from wattflow.lab.explore.stats import effects, variance


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    print(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}", flush=True)


def timed(name: str, folder: Path, workers: int | None) -> tuple[Exploration, float]:
    started = time.perf_counter()
    found = explore(read_design(bundled(Path(name))), folder, workers)
    write_exploration(folder / "report.html", found)
    return found, time.perf_counter() - started


def small(folder: Path, workers: int | None) -> None:
    found, seconds = timed("explore_small", folder / "small", workers)
    if found.reused == 0:
        figure("explore_small_s", seconds, "s", "<=60", seconds <= 60)
    again, resumed = timed("explore_small", folder / "small", workers)
    figure("explore_small_resumed_s", resumed, "s", "<=5", resumed <= 5)
    lost = len(found.design.points) - again.reused
    figure("explore_small_points_lost_or_run_again", lost, "points", "0", lost == 0)


def claim(folder: Path, workers: int | None) -> None:
    found, seconds = timed("explore_exde", folder / "exde", workers)
    tasks = sum(row["tasks"] for row in found.rows)
    print(f"\n{found.design.name}: {len(found.rows)} points, {tasks:,.0f} tasks")
    if found.reused == 0:
        figure("explore_exde_s", seconds, "s")
        figure("explore_exde_tasks_per_s", tasks / seconds, "tasks/s")
    for name, label in (("slowdown_p99", "p99"), ("slowdown_p99.9", "p99.9"), ("slowdown_mean", "mean_slowdown"),
                        ("energy_j_per_task", "energy")):  # fmt: skip
        each = variance(found.rows, name)
        assert each is not None and each.within is not None
        for factors in (("frame",), ("policy",), ("workload",), ("frame", "policy"), ("frame", "workload")):
            figure(f"exde_{label}_variance_{'_x_'.join(factors)}", 100 * each.share(*factors), "%")
        ratio = each.share("frame") / each.share("policy")
        goal, ok = (">1", ratio > 1) if label == "p99" else ("none", True)
        figure(f"exde_{label}_frame_over_policy", ratio, "times", goal, ok)
        for factor in ("frame", "policy"):
            low, high = each.intervals[factor,]
            print(f"  within a workload, {factor}: {each.within[factor,]:.1%} ({low:.1%} to {high:.1%})")
    without(found)
    for name in ("slowdown_p99", "energy_j_per_task"):
        for effect in effects(found.design, found.rows, name):
            if effect.axis == "stealing" and effect.low is not None and effect.high is not None:
                print(f"  {name}: {effect.after} {effect.change:+.1%} ({effect.low:+.1%} to {effect.high:+.1%})")


def without(found: Exploration) -> None:
    """The claim must not hang on one architecture: leave out each in turn."""
    ratios = {}
    for design in dict.fromkeys(row["design"] for row in found.rows):
        each = variance([row for row in found.rows if row["design"] != design], "slowdown_p99")
        assert each is not None
        ratios[design] = each.share("frame") / each.share("policy")
        print(
            f"  without {design}: frame {each.share('frame'):.1%}, policy {each.share('policy'):.1%} of p99's variance"
        )
    least = min(ratios.values())
    figure("exde_p99_frame_over_policy_least_of_leaving_one_out", least, "times", ">1", least > 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("small", "claim"))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, help="keep results and reports here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.out or Path(scratch)
        for name, part in (("small", small), ("claim", claim)):
            if given.part in (None, name):
                part(folder, given.workers)


if __name__ == "__main__":
    main()

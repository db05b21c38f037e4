"""Every figure of the learned policy from the shipped weights (`make bench-learned`).

    python -m research.bench_learned [--quick] [--out out/learned-bench]

Bars on held-out applications (`python -m research learned`, with fewer scenarios unless --full), the worst case that a
search finds, annealing and the front of NSGA-II at equal wall time, RLScheduler's batch problem, decisions a second,
steps a second of the environment, time of a decision with 64 rows. What is not measured here is said to be so.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from research import (
    adversary,
    batch,
    evaluate,
    hindsight,
    learned_experiment,
    rival_tables,
    search_tables,
)
from research.evaluate import Place
from research.papers import experiment
from research.papers.findings import Sheet
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import MissingExtra
from wattflow.model.profile import PowerProfile
from wattflow.policy import bind, registry
from wattflow.policy.base import Policy
from wattflow.sim.simulate import Simulation

GIB = 1 << 30
LINES: list[str] = []
Item = TypeVar("Item")
SEARCHED_S = {evaluate.OURS: 40.0, evaluate.SHIELDED: 30.0}
"""Of the adversarial search, by policy."""
FRONT_S = 40.0
"""Most seconds of the fronts, which could go on for long."""


def figure(name: str, value: float, unit: str, goal: str, ok: bool) -> None:
    """Keep a line for the end."""
    LINES.append(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")


def within(seconds: float, items: Iterable[Item], least: int = 2) -> Iterator[Item]:
    """Items until the time is over: a slow machine measures fewer, never none."""
    began = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        if number >= least and time.monotonic() - began > seconds:
            print(f"after {number} of them the {seconds:.0f} s for this part were over")
            return


def many_kinds(count: int) -> Cluster:
    """Nodes that all differ, so that each is a candidate of its own."""
    nodes = tuple(
        Node(f"n{i}", 16, 64 * GIB, speed=1.0 + i / 100, power=PowerProfile.from_form("linear", 16, 50.0 + i, 200.0))
        for i in range(count)
    )
    return Cluster("many", nodes)


def decision_time(name: str, policy: Policy, rows: int = 64, rounds: int = 4000) -> None:
    """One call of the policy's score for 64 candidates."""
    from wattflow.testing.check_policy import _candidates

    simulation = Simulation(Recipe("montage", 60).draw(1), many_kinds(rows), policy)
    simulation.advance(0.0)
    state = simulation.state
    variant = int(state.shapes.variant_first[int(state.tasks.form[0])])
    count = int(_candidates(state.handle(), variant, 0))
    state.counts["candidate_n"] = count
    score, handle, out = bind.compiled(policy, state, "score"), state.handle(), np.zeros(count)
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        score(handle, 0, variant, out)
        spent.append(time.perf_counter() - began)
    p99 = 1e3 * float(np.quantile(spent, 0.99))
    print(f"{name}, {count} rows: median {1e6 * np.median(spent):.1f} µs, p99 {1e3 * p99:.1f} µs")
    figure(f"{name}_decision_64_rows_p99", p99, "ms", "≤0.2", p99 <= 0.2 and count == rows)


def rate_of(turn: Callable[[], int], seconds: float, repeats: int = 5) -> tuple[float, float]:
    """Decisions a second of wall time and of processor time, medians of several runs; a turn returns how many it made.

    Of each run's turns only whole ones are counted, and the clock is looked at once in a turn.
    """
    wall, own = [], []
    for _ in range(repeats):
        began, cpu, made = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds / repeats:
            made += turn()
        wall.append(made / (time.perf_counter() - began))
        own.append(made / max(1e-9, time.process_time() - cpu))
    return float(np.median(wall)), float(np.median(own))


def environment_speed(seconds: float, count: int = 64) -> None:
    """Steps a second of the vector environment, and decisions in compiled code with and without the flagship's prices.

    Always the first row of 64 streams of about 300 tasks (recorded blast and srasearch, loads 0.3 to 0.8) on 64 random
    clusters of 2-64 nodes, played again and again: to draw others is no part of it. Steps come back to Python each
    time, with 64 rows described at most, on all cores; played decisions have 20 rows at most and no features, on one
    core, 100 of a stream in turn.
    """
    from wattflow.learn.environment import SchedulingVectorEnv

    def draw(seed: int) -> scenarios.Scenario:
        return scenarios.draw(seed, ("makeflow/blast", "pegasus/srasearch"), 300)

    first, cores = np.zeros(count, np.int64), len(os.sched_getaffinity(0))
    for kind, features, priced in (
        ("vector_env_steps", True, True),
        ("compiled_decisions_priced", False, True),
        ("compiled_decisions", False, False),
    ):
        threads = None if features else 1
        env = SchedulingVectorEnv(
            draw, count, rows=64 if features else 20, features=features, priced=priced, threads=threads,
            plays=None,
        )  # fmt: skip
        env.reset(seed=1)
        shown: list[float] = []

        def step(env: SchedulingVectorEnv = env, shown: list[float] = shown) -> int:
            env.step(first)
            shown.append(float(env.shown.mean()))
            return count

        def play(env: SchedulingVectorEnv = env, shown: list[float] = shown) -> int:
            env.play(100)
            shown.append(float(env.shown.mean()))
            return 100 * count

        env.play(300)  # into the middle of the streams: they are busiest there
        told = f"{count} streams, {{:.1f}} places shown on average" + ("" if priced else ", none priced")
        for name, turn, goal in (
            (kind, step if features else play, 1e5 if features else 5e5),
            *(() if features else ((f"{kind}_by_step", step, 0.0),)),
        ):
            shown.clear()
            wall, own = rate_of(turn, seconds)
            about = told.format(np.mean(shown))
            print(f"{name}: {wall:,.0f} a second of wall time on {cores} cores, {own:,.0f} of processor time; {about}")
            rate = wall if features else own
            figure(f"learned_{name}", rate, "1/s", f"≥{goal:g}" if goal else "none", rate >= goal)
        env.close()


def worst_case(budget: int) -> None:
    """Adversarial search for each of ours."""
    for name, seconds in SEARCHED_S.items():
        found = adversary.search(budget, name, most_s=seconds)
        print(f"{name}: {len(found)} scenarios looked at")
        for case in found[:3]:
            print(f"worst: {case.name}: {100 * np.expm1(case.log_ratio):+.1f} % joules against the portfolio")
        worst = 100.0 * float(np.expm1(found[0].log_ratio))
        figure(f"{name}_worst_case_by_adversarial_search", worst, "%", "≤2", worst <= 2.0)


def front(count: int) -> None:
    """Annealing, NSGA-II and fronts of ours on small streams that the searches know beforehand, at equal wall time."""
    places = [Place(name, fold, hindsight.LOAD, "mixed") for name, fold in evaluate.held_out()][:count]
    found = []
    for place in within(FRONT_S, places):
        one = hindsight.searched(place)
        found.append(one)
        for told, each in (("equal time", one.equal), ("longer", one.longer)):
            print(
                f"{place.name:36s} {one.tasks} tasks, {told}: hypervolume {each.ours:.3f}, {each.points} points in "
                f"{each.seconds:.2f} s; NSGA-II {each.theirs:.3f}, {each.their_points} points in "
                f"{each.their_seconds:.2f} s",
                flush=True,
            )
    for sheet in search_tables.sheets(found):
        show(sheet)
    LINES.extend(str(one) for one in search_tables.figures(found))


def lublin(count: int) -> None:
    """RLScheduler's batch problem: strict queue and EASY backfilling."""
    for policy, (strict, easy) in batch.table(count).items():
        figure(f"learned_lublin_256_{policy}", strict, "bounded_slowdown", "none", True)
        figure(f"learned_lublin_256_{policy}_backfilled", easy, "bounded_slowdown", "none", True)


def show(sheet: Sheet) -> None:
    """A table as it is printed here."""
    rows = (sheet.columns, *sheet.rows)
    print(f"\n{sheet.title}\n" + "\n".join("  ".join(f"{cell:24s}" for cell in row) for row in rows))


def bars(full: bool, quick: bool, out: Path) -> None:
    """The experiment, smaller unless it is asked for whole."""
    chosen = learned_experiment.load()
    settings = chosen.settings
    assert isinstance(settings, learned_experiment.LearnedSettings)
    settings = replace(settings, searches=full)  # `front` has them
    if quick:
        small = replace(settings.plan, seeds=1, tasks=100, all_seeds=False)
        settings = replace(settings, clusters=("edge-cloud",), random_clusters=1, loads=(0.6,), plan=small)
    elif not full:
        small = replace(settings.plan, seeds=1, tasks=300, all_seeds=False)
        settings = replace(settings, random_clusters=1, clusters=("mixed",), plan=small)
    chosen = replace(chosen, settings=settings)
    began = time.monotonic()
    found = experiment.run(chosen, lambda share, text: print(f"{100 * share:3.0f} % {text}", flush=True))
    experiment.write(chosen, found, out)
    for sheet in found.sheets:
        show(sheet)
    print(f"{time.monotonic() - began:.0f} s; raw results in {out}")
    LINES.extend(str(one) for one in found.figures)


def part(title: str, measure: Callable[[], None], needs: str | None = None) -> None:
    """One part, and the seconds it took; ``needs`` is the figure that is missing without an extra."""
    began = time.monotonic()
    try:
        measure()
    except MissingExtra as error:
        if needs is None:
            raise
        print(f"not measured: {error}")
        LINES.append(f"figure {needs} not-measured - goal none short")
    print(f"-- {title}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few scenarios, to see that it runs")
    parser.add_argument("--full", action="store_true", help="all scenarios of research/experiments/learned.toml")
    parser.add_argument("--out", type=Path, default=Path("out/learned-bench"))
    given = parser.parse_args()
    quick, began = given.quick, time.monotonic()
    decision_time("learned", registry.load("learned"), rounds=400 if quick else 4000)
    part("environment", lambda: environment_speed(*((1.0, 8) if quick else (5.0, 64))), "learned_vector_env_steps")
    part("lublin", lambda: lublin(1 if quick else batch.SEQUENCES))
    part("worst case", lambda: worst_case(6 if quick else 60))
    part("front", lambda: front(1 if quick else 5), "learned_hypervolume_against_nsga2")
    part("bars", lambda: bars(given.full, quick, given.out))
    minutes = (time.monotonic() - began) / 60.0
    figure("learned_benchmark", minutes, "min", "≤15", minutes <= 15.0)
    for name in rival_tables.NAMES:
        label = f"learned_against_{name}".replace("-", "_")
        if not any(label in line for line in LINES):
            LINES.append(f"figure {label} not-measured % goal <0 short")
    print("\n".join(LINES))


if __name__ == "__main__":
    main()

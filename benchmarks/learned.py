"""Every figure of the learned policy from the shipped weights (`make bench-learned`).

    python benchmarks/learned.py [--quick] [--out out/learned-bench]

Bars on held-out applications (`wattflow experiment learned`, with fewer scenarios unless --full), decisions a second,
steps a second of the environment, time of a decision with 64 rows, and the time training took. What is not measured
here is said to be so.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from wattflow.lab.experiments import experiment
from wattflow.learn import scenarios
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import MissingExtra
from wattflow.model.profile import PowerProfile
from wattflow.policy import bind, registry, weights
from wattflow.sim.simulate import Simulation

GIB = 1 << 30
LINES: list[str] = []
UNMEASURED = {
    "learned_twin_regret_worst_1_percent": "≤2_%",
    "learned_gap_to_annealing_closed": "≥50_%",
    "learned_hypervolume_against_nsga2": "≥1",
    "learned_regained_after_shift": "≥80_%",
    "learned_worst_case_by_adversarial_search": "≤2_%",
    "learned_rivals_of_the_literature": "none",
    "learned_lublin_256_bounded_slowdown": "none",
    "learned_symbolic_rule": "none",
}
"""Figures that are asked of the learned policy and have no measurement here."""


def figure(name: str, value: float, unit: str, goal: str, ok: bool) -> None:
    """Keep a line for the end."""
    LINES.append(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}")


def many_kinds(count: int) -> Cluster:
    """Nodes that all differ, so that each is a candidate of its own."""
    nodes = tuple(
        Node(f"n{i}", 16, 64 * GIB, speed=1.0 + i / 100, power=PowerProfile.from_form("linear", 16, 50.0 + i, 200.0))
        for i in range(count)
    )
    return Cluster("many", nodes)


def decision_time(rows: int = 64, rounds: int = 4000) -> None:
    """One call of the policy's score for 64 candidates."""
    from wattflow.generate import Recipe
    from wattflow.testing.check_policy import _candidates

    policy = registry.load("learned")
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
    print(f"{count} rows: median {1e6 * np.median(spent):.1f} µs, p99 {1e3 * p99:.1f} µs")
    figure("learned_decision_64_rows_p99", p99, "ms", "≤0.2", p99 <= 0.2 and count == rows)


def environment_speed(seconds: float, count: int = 64) -> None:
    """Steps a second of the vector environment, with features and without."""
    from wattflow.learn.environment import SchedulingVectorEnv

    def draw(seed: int) -> scenarios.Scenario:
        return scenarios.draw(seed, ("makeflow/blast", "pegasus/srasearch"), 300)

    for features, name, goal in ((True, "vector_env_steps", 1e5), (False, "compiled_decisions", 5e5)):
        env = SchedulingVectorEnv(draw, count, rows=64 if features else 20, features=features)
        env.reset(seed=1)
        first = np.zeros(count, np.int64)
        for _ in range(20):
            env.step(first)
        began, cpu, steps = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            env.step(first)
            steps += count
        rate, per_core = steps / (time.perf_counter() - began), steps / max(1e-9, time.process_time() - cpu)
        print(f"{name}: {rate:,.0f} a second of wall time, {per_core:,.0f} of processor time")
        shown = rate if features else per_core
        figure(f"learned_{name}", shown, "1/s", f"≥{goal:g}", shown >= goal)


def training() -> None:
    """What the cards of the shipped weights say."""
    files = sorted(weights.shipped().parent.glob("fold-*.npz"))
    cards = [weights.load(path)[1] for path in files]
    minutes = max((card["wall_s"] for card in cards), default=float("nan")) / 60.0
    cpu = sum(card["cpu_s"] for card in cards)
    print(
        json.dumps([{k: c[k] for k in ("held_out", "wall_s", "cpu_s", "simulations", "gain")} for c in cards], indent=1)
    )
    figure("learned_training_of_one_fold", minutes, "min", "≤60", minutes <= 60)
    figure("learned_training_cpu_all_folds", cpu / 60.0, "min", "none", True)
    figure("learned_training_seeds", 1, "of_5", "5", False)


def bars(full: bool, quick: bool, out: Path) -> None:
    """The experiment, smaller unless it is asked for whole."""
    chosen = experiment.load("learned")
    settings = chosen.settings
    if quick:
        small = replace(settings.plan, seeds=1, tasks=150)
        settings = replace(settings, clusters=("edge-cloud",), random_clusters=1, loads=(0.6,), plan=small)
    elif not full:
        settings = replace(settings, random_clusters=2, plan=replace(settings.plan, tasks=400))
    chosen = replace(chosen, settings=settings)
    began = time.monotonic()
    found = experiment.run(chosen, lambda share, text: print(f"{100 * share:3.0f} % {text}", flush=True))
    experiment.write(chosen, found, out)
    for sheet in found.sheets:
        print(
            f"\n{sheet.title}\n"
            + "\n".join("  ".join(f"{cell:24s}" for cell in row) for row in (sheet.columns, *sheet.rows))
        )
    print(f"{time.monotonic() - began:.0f} s; raw results in {out}")
    LINES.extend(str(one) for one in found.figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few scenarios, to see that it runs")
    parser.add_argument("--full", action="store_true", help="all scenarios of experiments/learned.toml")
    parser.add_argument("--out", type=Path, default=Path("out/learned-bench"))
    given = parser.parse_args()
    decision_time(rounds=400 if given.quick else 4000)
    try:
        environment_speed(*((1.0, 8) if given.quick else (5.0, 64)))
    except MissingExtra as error:
        print(f"environment not measured: {error}")
        LINES.append("figure learned_vector_env_steps not-measured 1/s goal ≥1e5 short")
    training()
    bars(given.full, given.quick, given.out)
    for name, goal in UNMEASURED.items():
        LINES.append(f"figure {name} not-measured - goal {goal} short")
    print("\n".join(LINES))


if __name__ == "__main__":
    main()

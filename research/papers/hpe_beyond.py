"""Savings of our policy beyond Algorithm 1 on a cluster whose nodes can sleep, and whether it takes longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from research.papers import hpe_model
from research.papers.findings import Figure, Sheet
from wattflow.clusters import load_cluster
from wattflow.files.strict_table import StrictTable
from wattflow.generate import DEMOS
from wattflow.lab.figures.statistics import mean_interval
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.sim import simulate

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beyond:
    """``policy`` against each of ``against`` on ``cluster``; figures are made of the first."""

    cluster: str
    policy: str
    against: tuple[str, ...]
    seeds: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one workload and policy, by seed."""

    makespan_s: Floats
    energy_j: Floats


Results = dict[str, dict[str, Measured]]
"""By workload, then by policy."""


def read(table: StrictTable) -> Beyond:
    """Settings from the table ``[beyond]``."""
    names = table.value("against")
    against = tuple(str(name) for name in names) if isinstance(names, list) else ()
    cluster, policy, seeds = table.text("cluster"), table.text("policy"), table.whole("seeds")
    if not against:
        table.problem("against", "must be a list of policies, at least one")
    for name in (policy, *against):
        if not registry.is_known(name):
            table.problem("", f"there is no policy {name!r}")
    return Beyond(cluster, policy, against, seeds)


def measure(beyond: Beyond, setting: hpe_model.Setting) -> Results:
    """The experiment's jobs and the three bundled workloads, without deadlines: a deadline would be slack to spend."""
    cluster = load_cluster(beyond.cluster)
    makers: dict[str, Callable[[int], Workload]] = {
        "parsec": lambda seed: hpe_model.workload(setting.jobs, setting.calibration, seed),
        **{name.replace("-", "_"): recipe.draw for name, recipe in DEMOS.items()},
    }
    results: Results = {}
    for workload, make in makers.items():
        # Drawn once for all policies: differences are paired.
        drawn = [without_deadlines(make(seed)) for seed in range(beyond.seeds)]
        results[workload] = {}
        for policy in (*beyond.against, beyond.policy):
            runs = [simulate(each, cluster, policy, seed=seed) for seed, each in enumerate(drawn)]
            results[workload][policy] = Measured(
                np.array([run.makespan_s for run in runs]), np.array([run.total_j for run in runs])
            )
    return results


def without_deadlines(workload: Workload) -> Workload:
    """The same tasks, in no hurry but to be done."""
    # A policy that spends slack would save joules with seconds that nobody gave it.
    return replace(workload, deadline_s=np.full(len(workload), np.inf))


def saved_pct(base: Measured, other: Measured) -> tuple[float, float]:
    """Mean over seeds of the reductions in percent: makespan, energy."""
    seconds = 100.0 * (1.0 - other.makespan_s / base.makespan_s)
    joules = 100.0 * (1.0 - other.energy_j / base.energy_j)
    return float(seconds.mean()), float(joules.mean())


def interval_text(base: Measured, other: Measured) -> str:
    """Energy saved with its 95 % interval over the seeds, paired."""
    mean, half = mean_interval((100.0 * (1.0 - other.energy_j / base.energy_j)).tolist())
    return f"{mean:.1f}" if half is None else f"{mean:.1f} ± {half:.1f}"


def sheet(beyond: Beyond, results: Results) -> Sheet:
    """Every workload and policy."""
    rows = []
    for workload, policies in results.items():
        for policy, measured in policies.items():
            base = policies[beyond.against[0]]
            seconds, _ = saved_pct(base, measured)
            rows.append(
                (
                    workload,
                    policy,
                    f"{measured.makespan_s.mean():.0f}",
                    f"{measured.energy_j.mean() / hpe_model.J_PER_WH:.1f}",
                    f"{seconds:.1f}",
                    interval_text(base, measured),
                )
            )
    columns = ("workload", "policy", "makespan s", "energy Wh", "makespan saved %", "energy saved %")
    title = f"beyond Algorithm 1: on {beyond.cluster}, whose nodes can sleep, against {beyond.against[0]}"
    return Sheet(title, columns, tuple(rows))


def figures(beyond: Beyond, results: Results) -> list[Figure]:
    """Energy saved and seconds more of our policy, against each rival."""
    found = []
    for workload, policies in results.items():
        for rival in beyond.against:
            seconds, joules = saved_pct(policies[rival], policies[beyond.policy])
            name = f"{beyond.policy}_{workload}_against_{rival}".replace("-", "_")
            found.append(Figure(f"{name}_energy_saved", joules, "%", ">0", joules > 0.0))
            found.append(Figure(f"{name}_makespan_longer", -seconds, "%", "<=0", seconds >= 0.0))
    return found


def as_map(results: Results) -> dict[str, object]:
    """For JSON."""
    return {
        workload: {
            policy: {"makespan_s": each.makespan_s.tolist(), "energy_j": each.energy_j.tolist()}
            for policy, each in policies.items()
        }
        for workload, policies in results.items()
    }

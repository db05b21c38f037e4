"""Judge the learned policy and the shielded one on what they have not seen: applications, clusters, all loads.

Every policy gets the same workload, seed and estimates (which err, as predictions do). The opponents are `kubernetes`
with all nodes on, the portfolio's setting that was best on the other folds' applications at this load, and the best of
a sweep of energy-aware HEFT with hindsight (`sweep`): fewest joules among the settings that keep the bound in the
scenario. `network` is the learned policy as it is without any dials chosen: where these have ``lean`` = 0 the row
`learned` is the portfolio's own setting.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from research import own_folder, parts, portfolio, shipped, sweep
from research.portfolio import BASELINE, PUNCTUAL, Result
from wattflow.clusters import load_cluster
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import measured
from wattflow.policy import learned, registry, weights
from wattflow.policy.base import Policy

OURS, SHIELDED, NETWORK = "learned", "shielded", "network"
FLAGSHIP, PORTFOLIO, SWEEP = "wattflow", "portfolio", "energy-heft"
AUTOSCALED = "kubernetes-600"
"""The baseline with nodes off after ten idle minutes, as cluster autoscalers do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A scenario to judge. ``cluster`` is a preset or ``random-N``; ``fold`` −1: no weights were trained on it."""

    application: str
    fold: int
    load: float
    cluster: str
    folder: str | None = None

    @property
    def name(self) -> str:
        return f"{self.application}_{self.load:g}_{self.cluster}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to judge: seeds of each scenario, tasks of a stream, errors of estimates and of watts, the HEFT sweep, and
    whether the weights of every training seed are judged beside the chosen ones."""

    seeds: int = 2
    tasks: int = 600
    runtime_error: float = 0.2
    power_error: float = 0.1
    sweep: bool = True
    all_seeds: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One policy in one scenario: results by seed, and the setting that ran."""

    place: Place
    policy: str
    setting: str
    results: tuple[Result, ...]


@functools.cache
def cluster_of(name: str) -> Cluster:
    """A preset, or a random cluster with sleep states by its seed."""
    if name.startswith("random-"):
        number = int(name.removeprefix("random-"))
        return scenarios.random_cluster(np.random.default_rng([number, 43]), name)
    return load_cluster(name)


def places(applications: Iterable[tuple[str, int]], clusters: Sequence[str], loads: Sequence[float]) -> list[Place]:
    """Every application on every cluster at every load."""
    return [Place(name, fold, load, c) for name, fold in applications for c in clusters for load in loads]


def held_out() -> list[tuple[str, int]]:
    """Applications and the fold that holds them out."""
    return [(name, fold) for fold, names in enumerate(scenarios.FOLDS) for name in names]


def scenario_of(place: Place, plan: Plan) -> Scenario:
    """The place as a scenario."""
    files = own_folder.usable(place.folder, place.application) if place.folder else None
    stream = scenarios.stream_of(place.application, place.load, plan.tasks, files)
    return Scenario(place.name, cluster_of(place.cluster), stream, plan.runtime_error, plan.power_error)


@functools.cache
def _dials() -> dict[str, Any]:
    path = shipped.LEARNED / "dials.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def dials(fold: int, load: float) -> dict[str, float]:
    """Dials that were chosen for a fold's weights at a load, on training applications (`learn.dialing`)."""
    known = _dials().get(str(fold), {})
    if not known:
        return {}
    nearest = min(known, key=lambda text: abs(float(text) - load))
    return dict(known[nearest]["dials"])


def our_policy(fold: int, load: float) -> Policy:
    """The learned policy with the weights that have not seen the fold's applications, and their dials at the load."""
    return _weighted(fold).with_params(**dials(fold, load))


def our_network(fold: int) -> Policy:
    """The same weights with the flagship's own dials, the network on."""
    return _weighted(fold).with_params(lean=1.0)


def _weighted(fold: int) -> Policy:
    return learned.with_weights(weights.load(shipped.weights_of(fold))[0])


def our_seeds(fold: int, load: float) -> dict[str, Policy]:
    """The same with the weights of every training seed that is shipped, by name."""
    files = sorted(shipped.LEARNED.glob(f"fold-{fold}-seed-*.npz")) if fold >= 0 else []
    return {
        f"{OURS}-{path.stem.split('-', 2)[2]}": learned.with_weights(weights.load(path)[0]).with_params(
            **dials(fold, load)
        )
        for path in files
    }


def our_shield() -> Policy:
    """The flagship as it serves: rules chosen by rehearsal behind a shield, told neither load nor application."""
    return registry.load("wattflow:shield=kubernetes")


def opponent(load: float, fold: int) -> str:
    """The portfolio's best setting at a load, tuned without the fold's applications."""
    held = scenarios.FOLDS[fold] if fold >= 0 else ()
    return portfolio.tuned(load, held)[0].setting


def judge(job: tuple[Place, Plan]) -> list[Row]:
    """All policies in one scenario."""
    return [*judge_others(*job), judge_shielded(*job)]


def judge_shielded(place: Place, plan: Plan) -> Row:
    """The shielded policy in one scenario: it takes longer than all others together."""
    scenario = scenario_of(place, plan)
    drawn = [scenario.draw(seed) for seed in range(plan.seeds)]
    return row_of(place, scenario, drawn, SHIELDED, our_shield())


def judge_others(place: Place, plan: Plan) -> list[Row]:
    """All other policies in one scenario."""
    scenario = scenario_of(place, plan)
    drawn = [scenario.draw(seed) for seed in range(plan.seeds)]
    row = functools.partial(row_of, place, scenario, drawn)
    tuned = opponent(place.load, place.fold)
    rows = [row(name, name) for name in (BASELINE, PUNCTUAL, FLAGSHIP)]
    rows.append(row(AUTOSCALED, f"{BASELINE}:sleep=600"))
    rows += [row(PORTFOLIO, tuned), row(OURS, our_policy(place.fold, place.load))]
    rows.append(row(NETWORK, our_network(place.fold)))
    if plan.all_seeds:
        rows += [row(name, policy) for name, policy in our_seeds(place.fold, place.load).items()]
    if plan.sweep:
        tried = [Row(place, SWEEP, setting, found) for setting, found in sweep.results(scenario, drawn)]
        rows.append(best_of(tried, rows[0], rows[1]))
    return rows


def row_of(place: Place, scenario: Scenario, drawn: Sequence[Workload], name: str, policy: str | Policy) -> Row:
    found = tuple(
        portfolio.measure(workload, scenario.cluster, policy, seed, scenario.options)
        for seed, workload in enumerate(drawn)
    )
    return Row(place, name, policy if isinstance(policy, str) else policy.name, found)


def best_of(rows: Sequence[Row], baseline: Row, punctual: Row) -> Row:
    """The row with the fewest joules among those that keep bound and deadlines; the quickest where none does."""
    able = [row for row in rows if slower(row, baseline) <= portfolio.BOUND and not newly_missed(row, punctual)]
    if able:
        return min(able, key=lambda row: portfolio.mean(row.results).energy_j)
    return min(rows, key=lambda row: slower(row, baseline))


def slower(row: Row, baseline: Row) -> float:
    """The largest of mean response, p95 response and makespan over the baseline's, means over seeds."""
    return measured.slower(portfolio.mean(row.results), portfolio.mean(baseline.results))


def newly_missed(row: Row, punctual: Row) -> int:
    """Deadlines missed that `eft:sleep=120` meets, over the seeds."""
    return sum(len(a.missed - b.missed) for a, b in zip(row.results, punctual.results, strict=True))


def judge_all(
    todo: Sequence[Place], plan: Plan, workers: int, progress: Callable[[float, str], None] | None = None
) -> list[Row]:
    """Every scenario, several processes at once."""
    jobs = {place.name: (place, plan) for place in todo}
    found = parts.gathered(jobs, _judged_data, workers, progress=progress)
    return [from_data(row) for rows in found.values() for row in rows]


def _judged_data(job: tuple[Place, Plan]) -> list[dict[str, Any]]:
    return [as_data(row) for row in judge(job)]


def as_data(row: Row) -> dict[str, Any]:
    """A row for JSON."""
    results = [asdict(r) | {"missed": sorted(r.missed)} for r in row.results]
    return {**asdict(row.place), "policy": row.policy, "setting": row.setting, "results": results}


def from_data(data: Mapping[str, Any]) -> Row:
    """What `as_data` wrote."""
    place = Place(*(data.get(name) for name in ("application", "fold", "load", "cluster", "folder")))  # type: ignore[arg-type]
    return Row(place, data["policy"], data["setting"], tuple(result_from(one) for one in data["results"]))


def result_from(data: Mapping[str, Any]) -> Result:
    """A result of one seed from JSON."""
    return Result(**{**data, "missed": frozenset(data["missed"])})

"""Comparisons with the real simulator on small workloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattflow.generate import Arrivals, Recipe, workload
from wattflow.lab.compare.comparison import compare
from wattflow.lab.figures.metrics import HOST_MEASURED
from wattflow.lab.run import points
from wattflow.lab.run.points import Bench, PointJob, Setup
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, MissingExtra, UnknownName
from wattflow.policy import policy
from wattflow.sim import SimOptions

from .runs import node

CLUSTER = Cluster("trio", (node("a"), node("b", 50.0, 250.0, speed=2.0), node("c", 20.0, 60.0, speed=0.5)))
RECIPE = Recipe("map-reduce", tasks=12, workflows=3, arrivals=Arrivals("poisson", 0.1), memory_bytes=0)


@policy("first-node", compiled=True)
def first_node(state: Any, task: int, variant: int, out: Any) -> None:
    """Always the first that fits."""
    for candidate in range(out.size):
        out[candidate] = candidate


def steady(values: Any) -> dict[str, float | None]:
    return {name: value for name, value in values.items() if name not in HOST_MEASURED}


def test_a_recorded_workload_under_a_deterministic_policy_is_the_same_for_every_seed() -> None:
    result = compare(RECIPE.draw(3), CLUSTER, ["fifo"], seeds=3)
    summary = result.summary("map-reduce", "fifo", "energy_j")
    assert summary.deterministic and summary.half_width == 0.0 and summary.reduction == 0.0


def test_a_recipe_is_drawn_anew_for_each_seed_and_alike_for_each_policy() -> None:
    result = compare(RECIPE, CLUSTER, [first_node], seeds=3)
    assert result.policies == ("fifo", "first-node")
    makespans = result.values("map-reduce", "fifo", "makespan_s")
    assert len(set(makespans)) == 3
    summary = result.summary("map-reduce", "first-node", "makespan_s")
    assert not summary.deterministic and summary.half_width is not None and summary.half_width > 0
    before, after = (np.array(result.values("map-reduce", p, "makespan_s")) for p in ("fifo", "first-node"))
    assert summary.reduction == pytest.approx(np.mean((before - after) / before))


def test_the_figures_of_a_run_close() -> None:
    result = compare(RECIPE, CLUSTER, ["fifo"], seeds=2, setup=Setup(keep_runs=True))
    values = result.points[0].values
    assert values["unfinished"] == 0
    assert values["energy_j"] == pytest.approx(values["mean_w"] * values["makespan_s"])  # type: ignore[operator]
    from wattflow.lab.figures.power_series import power_curve

    run = result.runs["map-reduce", "fifo"]
    curve = power_curve(run)
    assert not curve.rebuilt
    moved = run.account_j("transfer")
    assert sum(curve.energy_j(n) for n in range(3)) == pytest.approx(run.total_j - moved, rel=1e-6)


def test_the_curve_rebuilt_from_attempts_is_the_recorded_one() -> None:
    from dataclasses import replace

    from wattflow.lab.figures.power_series import power_curve

    run = compare(RECIPE, CLUSTER, ["fifo"], seeds=1, setup=Setup(keep_runs=True)).runs["map-reduce", "fifo"]
    rebuilt = power_curve(replace(run, power_log=None))
    assert rebuilt.rebuilt
    for number in range(3):
        assert rebuilt.energy_j(number) == pytest.approx(power_curve(run).energy_j(number), rel=1e-4)


def test_options_reach_the_simulator_and_the_account_of_it() -> None:
    setup = Setup(options=SimOptions(round_s=5.0, runtime_error=0.3))
    result = compare(RECIPE, CLUSTER, ["fifo"], seeds=1, setup=setup)
    assert result.about["options"] == {"round_s": 5.0, "runtime_error": 0.3}
    plain = compare(RECIPE, CLUSTER, ["fifo"], seeds=1)
    assert result.points[0].values["makespan_s"] > plain.points[0].values["makespan_s"]  # type: ignore[operator]


def test_two_workloads_of_one_name_stay_two() -> None:
    result = compare([workload("chain", 3), workload("chain", 5)], CLUSTER, ["fifo"], seeds=1)
    assert result.workloads == ("chain", "chain (2)")
    assert result.values("chain (2)", "fifo", "tasks") == [5.0]


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fifo'"):
        compare(RECIPE, CLUSTER, ["fifoo"])
    with pytest.raises(UnknownName, match="no policy named 'none'"):
        compare(RECIPE, CLUSTER, ["fifo"], baseline="none")
    with pytest.raises(InvalidInput, match="at least one workload"):
        compare([], CLUSTER, ["fifo"])
    with pytest.raises(UnknownName):
        compare(RECIPE, CLUSTER, ["fifo"], seeds=1).summary("map-reduce", "fifo", "watts")


def test_a_policy_without_its_package_is_left_out_of_all_and_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Bench.run

    def lacking(self: Bench, job: PointJob, progress: Any = None) -> Any:
        if job.policy_name == "first-node":
            raise MissingExtra("needs pymoo: pip install 'wattflow[plan]'")
        return real(self, job, progress)

    monkeypatch.setattr(Bench, "run", lacking)
    with pytest.raises(MissingExtra):
        compare(RECIPE, CLUSTER, [first_node], seeds=2)
    jobs = [PointJob("w", RECIPE, CLUSTER, p, seed) for seed in (0, 1) for p in ("fifo", first_node)]
    results = points.run_jobs(jobs, Setup(), optional=True)
    assert len(results.values) == 2
    assert results.notes == ["policy first-node was left out: needs pymoo: pip install 'wattflow[plan]'"]


def test_progress_rises_to_one_and_may_stop_the_work() -> None:
    shares: list[float] = []
    compare(RECIPE, CLUSTER, ["fifo"], seeds=4, setup=Setup(progress=lambda share, text: shares.append(share)))
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0

    def stop(share: float, text: str) -> None:
        if share > 0.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(RECIPE, CLUSTER, ["fifo"], seeds=4, setup=Setup(progress=stop))


@pytest.mark.slow
def test_several_processes_give_the_same_figures() -> None:
    alone = compare(RECIPE, CLUSTER, ["fifo"], seeds=8, setup=Setup(workers=1, keep_runs=True))
    shared = compare(RECIPE, CLUSTER, ["fifo"], seeds=8, setup=Setup(workers=2, keep_runs=True))
    by_seed = {point.seed: steady(point.values) for point in shared.points}
    assert by_seed == {point.seed: steady(point.values) for point in alone.points}
    assert set(alone.runs) == set(shared.runs)


def test_processes_are_started_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [PointJob("w", RECIPE, CLUSTER, "fifo", seed) for seed in range(10)]
    monkeypatch.setattr(points, "cores", lambda: 2)
    assert not points._pays(jobs, Setup(), each_s=1.0)
    assert points._pays(jobs, Setup(), each_s=10.0)
    assert not points._pays(jobs, Setup(workers=1), each_s=10.0)
    unpicklable = [PointJob("w", RECIPE, CLUSTER, policy("mine")(lambda *_: None), 0)] * 2
    assert not points._pays(unpicklable, Setup(), each_s=10.0)

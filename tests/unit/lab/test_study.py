"""Bounds and their cost, shaken runtimes, intervals over traces, and compare files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import wattflow as wf
from wattflow.generate.jitter import Jittered
from wattflow.lab.compare.study import Slo, costs, read_study, shaken
from wattflow.lab.show.answer import change
from wattflow.lab.show.overall import slo_lines
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.workload import Workload

from .comparisons import small_comparison


def tiny(name: str, runtimes: list[float]) -> Workload:
    return Workload.of_columns(name, release_s=np.zeros(len(runtimes)), runtime_s=np.array(runtimes))


def test_a_bound_costs_what_its_cheapest_keeper_uses_above_the_cheapest_of_all() -> None:
    found = small_comparison()
    slow = tuple(
        replace(p, values={**p.values, "wait_p95_s": 30.0 if p.policy == "frugal" else 5.0}) for p in found.points
    )
    comparison = replace(found, points=slow)
    assert costs(comparison, Slo.parse("p95_wait=1m"))[0].extra == 0.0
    (cost,) = costs(comparison, Slo.parse("p95_wait=10s"))
    assert cost.keeps == ("fifo",) and cost.free == "frugal" and cost.extra == pytest.approx(1 / 3)
    assert "33.3 % more energy than frugal" in slo_lines(comparison, Slo.parse("p95_wait=10s"))[0]
    assert "no policy keeps it; the nearest is fifo" in slo_lines(comparison, Slo.parse("p95_wait=1s"))[0]


@pytest.mark.parametrize("text", ["p95_wait", "nonsense=1", "p95_wait=soon", "p95_slowdown=10m", "utilisation=1",
                                  "p95_wait=nan", "p95_wait=-1"])  # fmt: skip
def test_a_bound_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(WattflowError):
        Slo.parse(text)


def test_waits_are_responses_without_the_run() -> None:
    from wattflow.lab.figures.metrics import metrics

    from .runs import two_node_run

    values = metrics(two_node_run())
    assert values["wait_mean_s"] == pytest.approx((0 + 8 + 0) / 3)
    assert values["wait_p95_s"] == pytest.approx(float(np.quantile([0.0, 8.0, 0.0], 0.95)))


def test_jitter_shakes_runtimes_by_seed_keeps_the_mean_and_the_estimates_in_step() -> None:
    source = tiny("t", [10.0] * 4000)
    drawn = Jittered(source, 0.2).draw(1)
    assert drawn.runtime_s.mean() == pytest.approx(10.0, rel=0.02)
    assert np.log(drawn.runtime_s).std() == pytest.approx(0.2, rel=0.1)
    assert np.array_equal(drawn.runtime_s, drawn.estimate_s)
    assert np.array_equal(drawn.runtime_s, Jittered(source, 0.2).draw(1).runtime_s)
    assert not np.array_equal(drawn.runtime_s, Jittered(source, 0.2).draw(2).runtime_s)


def test_jitter_gives_intervals_for_a_recorded_workload() -> None:
    source = tiny("t", [10.0, 20.0, 30.0])
    plain = wf.compare(source, "mixed", ["least-energy"], 3)
    assert plain.summary("t", "fifo", "energy_j").half_width == 0.0
    found = wf.compare(shaken([source], 0.3)[0], "mixed", ["least-energy"], 3)
    assert (found.summary("t", "fifo", "energy_j").half_width or 0.0) > 0.0


@pytest.mark.parametrize("sigma", [-0.1, 3.0, float("nan")])
def test_jitter_out_of_range_is_refused(sigma: float) -> None:
    with pytest.raises(InvalidInput, match="--jitter"):
        shaken([tiny("t", [1.0])], sigma)


def test_over_several_recorded_traces_the_interval_is_over_traces() -> None:
    found = small_comparison("a")
    points = []
    for workload, share in (("a", 0.5), ("b", 0.8)):
        for point in found.points:
            joules = 4000.0 * (share if point.policy == "frugal" else 1.0)
            points.append(replace(point, workload=workload, values={**point.values, "energy_j": joules}))
    comparison = replace(found, workloads=("a", "b"), points=tuple(points))
    both = change(comparison, "frugal", "energy_j")
    assert both is not None and both.ratio == pytest.approx((0.5 * 0.8) ** 0.5)
    assert both.half is not None and both.half > 0.1


STUDY = """
workloads = ["small.json", "montage:tasks=20"]
clusters = ["mixed", "one.toml"]
policies = ["heft", "carbon-delay:delay_s=3600"]
seeds = 2
jitter = 0.1
slo = ["p95_wait=10m"]
[options]
runtime_error = 0.2
sleep_after_s = "10m"
"""
ONE = '[[nodes]]\nname = "n"\ncores = 4\nmemory = "8 GiB"\n'


def written(folder: Path, text: str = STUDY) -> Path:
    from wattflow import traces

    traces.save(wf.generate.workload("chain", tasks=3), folder / "small.json")
    (folder / "one.toml").write_text('name = "one"\n' + ONE)
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_a_compare_file_is_a_study_over_several_clusters(tmp_path: Path) -> None:
    study = read_study(written(tmp_path))
    assert [cluster.name for cluster in study.clusters] == ["mixed", "one"]
    assert isinstance(study.workloads[0], Jittered) and study.slos[0].most == 600.0
    assert study.setup.options is not None and study.setup.options.sleep_after_s == 600.0
    found = list(study.run())
    assert [each.cluster.name for each in found] == ["mixed", "one"]
    assert found[0].policies == ("fifo", "heft", "carbon-delay:delay_s=3600")


@pytest.mark.parametrize(
    ("change_from", "to", "place"),
    [
        ('["mixed", "one.toml"]', '["nowhere"]', "clusters"),
        ('"small.json"', '"missing.json"', "workloads"),
        ("seeds = 2", "seeds = 0", "seeds"),
        ("jitter = 0.1", "jitter = 9", "jitter"),
        ('"p95_wait=10m"', '"p95_wait"', "slo"),
        ("runtime_error = 0.2", "runtime_error = -1", "options.runtime_error"),
        ("seeds = 2", "seed = 2", "seed"),
        ('["mixed", "one.toml"]', '["mixed", "mixed"]', "clusters"),
    ],
)
def test_every_problem_of_a_compare_file_has_its_place(tmp_path: Path, change_from: str, to: str, place: str) -> None:
    with pytest.raises(InvalidInput, match=place):
        read_study(written(tmp_path, STUDY.replace(change_from, to)))


@pytest.mark.parametrize(("text", "said"), [("p95=10", "p95_wait"), ("p95_wiat=10", "did you mean 'p95_wait'")])
def test_a_bound_on_nothing_names_what_can_be_bounded(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match="there is no bound on") as error:
        Slo.parse(text)
    assert said in str(error.value) and str(error.value).count("deadlines_missed") == 1

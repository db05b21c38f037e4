"""Generated workloads: shape, distribution, sameness."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pytest

from wattflow.generate import DEMOS, FAMILIES, LAWS, Arrivals, Law, Recipe, benchmark_workload, workload
from wattflow.generate.recipe import SMALLEST, steps_of
from wattflow.model.errors import InvalidInput, UnknownName


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_exactly_the_tasks_asked_for(family: str) -> None:
    for count in range(SMALLEST[family], SMALLEST[family] + 40):
        made = workload(family, count)
        assert len(made) == count
        made.topological_order()


@pytest.mark.parametrize("family", FAMILIES)
def test_fewer_tasks_than_a_family_can_have_is_an_error(family: str) -> None:
    with pytest.raises(InvalidInput, match="needs at least"):
        steps_of(family, SMALLEST[family] - 1, np.random.default_rng(0))


def edges(family: str, count: int) -> set[tuple[int, int]]:
    steps = steps_of(family, count, np.random.default_rng(0))
    return {(parent, child) for child, step in enumerate(steps) for parent in step.parents}


def test_the_small_shapes_are_what_their_names_say() -> None:
    assert edges("chain", 3) == {(0, 1), (1, 2)}
    assert edges("fork-join", 4) == {(0, 1), (0, 2), (1, 3), (2, 3)}
    assert edges("in-tree", 3) == {(0, 2), (1, 2)}
    assert edges("bag", 3) == set()
    assert edges("map-reduce", 5) == {(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)}


def test_montage_has_one_sink_and_its_differences_join_two_images() -> None:
    steps = steps_of("montage", 60, np.random.default_rng(0))
    assert all(len(set(step.parents)) == 2 for step in steps if step.function == "difference")
    parents = {parent for step in steps for parent in step.parents}
    assert set(range(60)) - parents == {59}


def test_layered_tasks_have_parents_in_the_layer_above_only() -> None:
    steps = steps_of("layered", 200, np.random.default_rng(3))
    depth: list[int] = []
    for step in steps:
        above = {depth[parent] for parent in step.parents}
        assert len(above) <= 1
        depth.append(max(above, default=-1) + 1)
    assert max(depth) > 5


def test_mixed_offers_cpu_gpu_and_fpga_variants() -> None:
    variants = {variant.name for shape in workload("mixed", 50).shapes for variant in shape.variants}
    assert variants == {"cpu", "fpga", "gpu-quarter", "gpu-half", "gpu"}
    assert all(shape.variants[0].device is None for shape in workload("mixed", 50).shapes)


@pytest.mark.parametrize("law", LAWS)
def test_a_law_keeps_its_mean(law: str) -> None:
    values = Law(law, 10.0, 2.5 if law == "pareto" else 0.9).draw(np.random.default_rng(1), 400_000)
    assert values.mean() == pytest.approx(10.0, rel=0.03)
    assert values.min() >= 0


@pytest.mark.parametrize("kind", ["poisson", "diurnal", "bursty"])
def test_arrivals_keep_their_rate_and_rise(kind: str) -> None:
    times = Arrivals(kind, 2.0, period_s=100.0, cv=3.0).draw(np.random.default_rng(1), 100_000)
    assert np.all(np.diff(times) >= 0) and times[0] >= 0
    assert len(times) / times[-1] == pytest.approx(2.0, rel=0.05)


def test_diurnal_arrivals_swing_with_the_sine() -> None:
    times = Arrivals("diurnal", 50.0, 0.8, 100.0).draw(np.random.default_rng(1), 100_000)
    phase = times % 100.0
    day = np.count_nonzero(phase < 50) / len(times)
    assert day == pytest.approx(0.5 + 0.8 / np.pi, abs=0.02)


def test_bursty_gaps_have_the_stated_variation() -> None:
    gaps = np.diff(Arrivals("bursty", 1.0, cv=3.0).draw(np.random.default_rng(1), 300_000))
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.03)


def test_same_seed_same_bytes_and_another_seed_another_workload() -> None:
    for recipe in DEMOS.values():
        assert pickle.dumps(recipe.documents(5)) == pickle.dumps(recipe.documents(5))
        assert recipe.draw(5).runtime_s.tobytes() != recipe.draw(6).runtime_s.tobytes()
    for kind in ("independent", "dag"):
        assert (
            benchmark_workload(5000, kind, 1).runtime_s.tobytes()
            == benchmark_workload(5000, kind, 1).runtime_s.tobytes()
        )


def test_bytes_handed_over_are_those_of_the_parents_output() -> None:
    made = workload("chain", 3)
    assert made.parent_bytes.tolist() == made.output_bytes[:2].tolist()
    assert made.input_bytes[0] > 0 and made.input_bytes[1] == 0


def test_slack_sets_a_deadline_from_the_critical_path() -> None:
    made = Recipe("chain", tasks=4, slack=2.0).draw(1)
    assert made.deadline_s[0] == pytest.approx(2.0 * made.runtime_s.sum())


def test_the_benchmark_is_the_one_described() -> None:
    independent = benchmark_workload(200_000)
    assert independent.runtime_s.mean() == pytest.approx(10.0, rel=0.02)
    assert np.log(independent.runtime_s).std() == pytest.approx(1.0, rel=0.01)
    load = independent.runtime_s.sum() / (independent.release_s[-1] * 256)
    assert load == pytest.approx(0.8, rel=0.02)
    dag = benchmark_workload(3500, "dag")
    counts = np.diff(dag.parent_start)
    assert set(counts[:1000]) == {0} and set(counts[1000:]) == {2}
    child = np.repeat(np.arange(3500), counts)
    assert np.all(dag.parent // 1000 == child // 1000 - 1)
    assert np.all(dag.parent[0::2] != dag.parent[1::2])


def test_a_million_tasks_are_generated_in_a_moment() -> None:
    began = time.process_time()
    benchmark_workload(1_000_000, "dag")
    assert time.process_time() - began < 3.0


def test_a_recipe_is_read_from_a_line() -> None:
    recipe = Recipe.parse("map-reduce:tasks=20,workflows=3,runtime=pareto,mean=1m,shape=2,arrivals=poisson,rate=0.1")
    assert (recipe.tasks, recipe.workflows, recipe.runtime) == (20, 3, Law("pareto", 60.0, 2.0))
    assert recipe.arrivals == Arrivals("poisson", 0.1)
    assert len(recipe.draw(1)) == 60
    assert recipe.draw(1).workflow_names[2] == "map-reduce-2"


def test_all_mistakes_of_a_line_are_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        Recipe.parse("chain:tasks=none,speed=3,runtime=gauss,workflows=0")
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: Law("pareto", 1.0, 1.0),
        lambda: Law("lognormal", float("nan"), 1.0),
        lambda: Law("weibull", 1.0, 0.0),
        lambda: Arrivals("poisson", 0.0),
        lambda: Arrivals("diurnal", 1.0, 2.0),
        lambda: Recipe("chain", slack=-1.0),
        lambda: benchmark_workload(10, "ring"),
    ],
)
def test_senseless_numbers_are_refused(make: object) -> None:
    with pytest.raises(InvalidInput):
        make()  # type: ignore[operator]


def test_an_unknown_family_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'montage'"):
        workload("montag")

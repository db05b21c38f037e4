"""Laws of percentages, fronts, sweeps and generated workloads."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wattflow.generate import FAMILIES, Recipe
from wattflow.generate.recipe import SMALLEST
from wattflow.lab.figures.metrics import sweep
from wattflow.lab.figures.statistics import mean_interval, pareto_front, reduction

positive = st.floats(1e-3, 1e6)
small = st.integers(0, 6).map(float)


@given(positive, positive)
def test_a_reduction_undoes_itself(before: float, after: float) -> None:
    share = reduction(before, after)
    assert share is not None and share < 1
    assert np.isclose(before * (1 - share), after)


@given(st.lists(st.tuples(small, small), max_size=25))
def test_the_front_is_what_brute_force_finds(points: list[tuple[float, float]]) -> None:
    def beaten(i: int) -> bool:
        x, y = points[i]
        return any(a <= x and b <= y and (a < x or b < y) for a, b in points)

    front = pareto_front([x for x, _ in points], [y for _, y in points]).tolist()
    assert sorted(front) == [i for i in range(len(points)) if not beaten(i)]


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_an_interval_holds_its_mean_and_vanishes_only_with_the_spread(values: list[float]) -> None:
    mean, half = mean_interval(values)
    assert half is not None and half >= 0
    assert min(values) - 1e-9 <= mean <= max(values) + 1e-9
    assert (half == 0) == (len(set(values)) == 1) or max(values) - min(values) < 1e-12


@given(st.lists(st.tuples(st.integers(0, 2), small, small, positive), max_size=20))
def test_a_sweep_has_the_area_of_its_intervals(rows: list[tuple[int, float, float, float]]) -> None:
    group, start, length, weight = (np.array(column) for column in zip(*rows)) if rows else [np.zeros(0)] * 4
    steps = sweep(group.astype(np.int64), start.astype(float), (start + length).astype(float), weight.astype(float))
    assert np.isclose((steps.value * steps.held_s(100.0)).sum(), (length * weight).sum(), atol=1e-5)
    for number in range(3):
        mine = group == number
        moment = 2.5
        covered = weight[mine & (start <= moment) & (moment < start + length)].sum() if len(group) else 0.0
        until = (steps.group == number) & (steps.time_s <= moment)
        assert np.isclose(steps.value[until][-1] if until.any() else 0.0, covered, atol=1e-6)


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 30), st.integers(1, 3), st.integers(0, 9))
def test_generated_workflows_are_acyclic_and_the_same_for_a_seed(
    family: str, more: int, workflows: int, seed: int
) -> None:
    recipe = Recipe(family, tasks=SMALLEST[family] + more, workflows=workflows)
    one, two = recipe.draw(seed), recipe.draw(seed)
    assert len(one) == workflows * recipe.tasks
    one.topological_order()
    assert one.runtime_s.tobytes() == two.runtime_s.tobytes() and one.parent.tobytes() == two.parent.tobytes()
    child = np.repeat(np.arange(len(one)), np.diff(one.parent_start))
    assert np.all(one.workflow[one.parent] == one.workflow[child])

"""A model in service corrects itself and is replaced only by a better one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wattflow.predict import runtime
from wattflow.predict.observations import Observations
from wattflow.predict.serving import ServedModel


def rows(slope: float, seed: int = 0, count: int = 80) -> Observations:
    rng = np.random.default_rng(seed)
    size = rng.uniform(1e9, 9e9, count)
    true = (3.0 + slope * size / 1e9) * np.exp(rng.normal(0, 0.02, count))
    return Observations.of(
        task=["wf/a"] * count, machine=["m"] * count, run=[f"r{i // 4}" for i in range(count)], runtime_s=true,
        sizes=size[:, None], size_names=("size",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def old() -> runtime.RuntimeModel:
    return runtime.fit(rows(1.0), kinds=(runtime.KNOWN,))


@pytest.fixture(scope="module")
def new() -> runtime.RuntimeModel:
    return runtime.fit(rows(6.0), kinds=(runtime.KNOWN,))


def feed(served: ServedModel, some: Observations) -> None:
    for i in range(len(some)):
        served.finished("wf/a", "m", float(some.runtime_s[i]), float(some.sizes[i, 0]))


def test_predictions_follow_a_slower_machine(old: runtime.RuntimeModel) -> None:
    served = ServedModel(old)
    before = served.predict_s("wf/a", "m", 5e9)
    for i in range(30):
        served.finished("wf/a", "m", 1.3 * 8.0 * (1 + 0.001 * i), 5e9)
    assert served.predict_s("wf/a", "m", 5e9) == pytest.approx(1.3 * 8.0, rel=0.06)
    assert before == pytest.approx(8.0, rel=0.06)
    assert math.isnan(served.predict_s("wf/never", "m", 5e9))


def test_a_better_candidate_takes_over(old: runtime.RuntimeModel, new: runtime.RuntimeModel) -> None:
    served = ServedModel(old)
    served.offer(new)
    feed(served, rows(6.0, seed=1))
    assert served.replaced == 1
    assert served.model is new


def test_a_worse_candidate_never_does(old: runtime.RuntimeModel, new: runtime.RuntimeModel) -> None:
    served = ServedModel(old)
    served.offer(new)
    feed(served, rows(1.0, seed=2, count=240))
    assert served.replaced == 0
    assert served.model is old


def test_a_refit_in_the_background_takes_over(old: runtime.RuntimeModel) -> None:
    served = ServedModel(old)
    served.refit(rows(6.0, seed=3))
    assert served._training is not None
    served._training.result(timeout=120)
    feed(served, rows(6.0, seed=4))
    assert served.replaced == 1
    assert served.predict_s("wf/a", "m", 5e9) == pytest.approx(33.0, rel=0.1)


def test_impossible_runtimes_teach_nothing(old: runtime.RuntimeModel) -> None:
    served = ServedModel(old)
    before = served.predict_s("wf/a", "m", 5e9)
    for wrong in (0.0, -3.0, math.nan):
        served.finished("wf/a", "m", wrong, 5e9)
    assert served.predict_s("wf/a", "m", 5e9) == before


def test_intervals_in_service_follow_what_finishes(old: runtime.RuntimeModel) -> None:
    served, rng = ServedModel(old), np.random.default_rng(1)
    first = served.interval_s("wf/a", "m", 5e9)
    covered = []
    for _ in range(150):
        true = 8.0 * math.exp(rng.normal(0, 0.3))  # far noisier than the rows the model was fitted on
        low, high = served.interval_s("wf/a", "m", 5e9)
        covered.append(low <= true <= high)
        served.finished("wf/a", "m", true, 5e9)
    assert first[0] < 8.0 < first[1]
    assert math.log(high / low) > 3 * math.log(first[1] / first[0])
    assert np.mean(covered[50:]) > 0.8
    served.interval_s("wf/a", "m", 5e9)
    unknown = served.interval_s("wf/never", "m", 5e9)
    assert math.isnan(unknown[0]), "intervals of tasks never profiled were not asked for when the model was fitted"

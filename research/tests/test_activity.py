"""Functions' activity through a concave curve, and Kepler's split beside it."""

from __future__ import annotations

import numpy as np
import pytest

from research import activity
from wattflow.model.errors import InvalidInput


def test_keplers_split_under_charges_on_a_concave_curve() -> None:
    # One thread of 16 busy: the node draws 60 W, 40 above idle; Kepler calls 1/16 of the 60 W active.
    charged = activity.kepler_split(16, 1.0, 60.0, {"a": 1.0})
    assert charged["a"] == pytest.approx(60.0 / 16)
    assert charged["a"] < 40.0 / 10


def test_concurrency_is_the_exact_overlap_with_each_second() -> None:
    calls = [("f", 10.25, 12.5), ("g", 9.0, 11.0), ("f", 12.0, 99.0)]
    found = activity.concurrency(("f", "g"), calls, 10, 4)
    assert found[:, 0] == pytest.approx([0.75, 1.0, 1.5, 1.0])
    assert found[:, 1] == pytest.approx([1.0, 0.0, 0.0, 0.0])


def made_run(seed: int, seconds: int = 400) -> tuple[np.ndarray, np.ndarray, activity.ActivityModel]:
    true = activity.ActivityModel(("f", "g"), (1.4, 0.7), 50.0, 60.0, 1.5, 4.0, 1.2, 0.3)
    generator = np.random.default_rng(seed)
    busy = np.maximum(0.0, np.cumsum(generator.normal(0, 0.5, (seconds, 2)), axis=0))
    busy[:40] = 0.0
    return busy, true.watts(busy) + generator.normal(0, 1.0, seconds), true


def test_the_fit_finds_a_known_node_through_its_meter() -> None:
    busy, watts, true = made_run(3)
    watts[100:110] = 0.0  # the meter dropped out
    model = activity.fit(("f", "g"), busy, watts)
    other, other_watts, _ = made_run(4)
    assert np.mean(np.abs(model.watts(other) - other_watts) / other_watts) < 0.02
    assert model.delay_s == pytest.approx(1.2, abs=0.4)
    assert model.weight[0] / model.weight[1] == pytest.approx(2.0, rel=0.15)
    assert model.idle_w == pytest.approx(50.0, rel=0.03)
    parts = model.attributed_j(busy, true.watts(busy))
    assert sum(parts.values()) == pytest.approx(float(true.watts(busy).sum()), rel=1e-9)
    assert model.marginal_j(busy, "f") == pytest.approx(true.marginal_j(busy, "f"), rel=0.05)
    profile = model.profile(8)
    assert profile.at(8.0) == pytest.approx(float(true.curve_w(np.array([8.0]))[0]), rel=0.06)


def test_a_run_too_short_to_fit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 30 s"):
        activity.fit(("f",), np.ones((10, 1)), np.ones(10))

"""A plain rival is used until it is beaten on the source's own past; intervals of loads never seen hold."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.model.profile import Scope
from wattflow.predict import needs, watts

GIB = 2.0**30


def test_with_little_past_memory_goes_by_the_plain_rule() -> None:
    task = np.array(["a"] * 6 + ["b"] * 2)
    peak = np.array([1.0, 2.0, 1.5, 1.0, 1.2, 1.1, 3.0, 3.0]) * GIB
    model = needs.fit(task, peak, asked=np.full(8, 16 * GIB))
    assert model.plain
    # Five runs and more: half as much again as the largest. Fewer, or none: as asked. Never more than asked.
    asked = np.array([16.0, 2.5, 16.0, 16.0]) * GIB
    got = model.request(np.array(["a", "a", "b", "new"]), asked)
    np.testing.assert_allclose(got / GIB, [3.0, 2.5, 16.0, 16.0])


def test_memory_without_requests_keeps_its_own_rule() -> None:
    model = needs.fit(np.array(["a"] * 30), np.full(30, GIB))
    assert not model.plain


def test_the_plain_rule_goes_once_it_is_beaten_on_later_blocks() -> None:
    rng = np.random.default_rng(3)
    task = np.array([f"t{i % 8}" for i in range(1600)])
    steady = rng.uniform(0.99, 1.0, 1600) * np.array([float(1 + i % 8) for i in range(1600)]) * GIB
    assert not needs.fit(task, steady, asked=np.full(1600, 64 * GIB)).plain  # half as much again is far too much here
    wild = rng.lognormal(0.0, 1.0, 1600) * GIB
    assert needs.fit(task, wild, asked=np.full(1600, 64 * GIB)).plain  # whoever asks for less fails more often


def node(levels: tuple[float, ...], rows: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Counters and watts of a node that goes round some levels of load; watts bend with the load."""
    rng = np.random.default_rng(seed)
    busy = np.repeat(np.resize(np.array(levels), rows // 10), 10)[:rows] * rng.normal(1.0, 0.01, rows)
    counters = {
        "bpf_cpu_time_us": busy * 1000.0,
        "cache_miss": busy * 2e5 * rng.normal(1.0, 0.02, rows),
        "cpu_cycles": busy * 3e9 * rng.normal(1.0, 0.01, rows),
        "cpu_instructions": busy * 4e9 * rng.normal(1.0, 0.01, rows),
    }
    return counters, 60.0 + 40.0 * busy**0.6 * rng.normal(1.0, 0.01, rows)


@pytest.mark.slow
def test_intervals_of_a_load_never_seen_hold() -> None:
    counters, truth = node((0.5, 2.0, 4.0, 16.0, 24.0), 500, 1)
    model = watts.fit(counters, truth, Scope.PACKAGE)
    unseen, true = node((9.0,), 60, 2)
    assert model.familiar.novel(watts.features(unseen)).mean() > 0.9
    got, low, high = model.predict(unseen)
    assert np.mean((true >= low) & (true <= high)) > 0.8
    assert np.mean(np.abs(got - true) / true) < 0.15

"""Going on learning: promotion after a shadow test, a way back, and what recovery means."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.learn import continual
from wattflow.learn.continual import Chooser
from wattflow.learn.portfolio import Result
from wattflow.learn.scenarios import Scenario

EVEN = np.array([10.0, 10.0])


def test_nothing_is_promoted_before_enough_blocks_and_a_better_member_is_then() -> None:
    chooser = Chooser(2)
    seen = [chooser.see(np.array([100.0, 90.0 + block]), EVEN) for block in range(4)]
    assert seen == [0, 0, 1, 1]


def test_noise_promotes_nobody() -> None:
    chooser = Chooser(2)
    for block in range(12):
        assert chooser.see(np.array([100.0, 80.0 if block % 2 else 125.0]), EVEN) == 0


def test_who_makes_people_wait_is_not_promoted() -> None:
    chooser = Chooser(2)
    for block in range(8):
        assert chooser.see(np.array([100.0, 60.0 + block]), np.array([10.0, 11.0])) == 0


def test_a_promotion_that_was_a_mistake_is_taken_back() -> None:
    chooser = Chooser(2)
    for block in range(3):
        chooser.see(np.array([100.0, 90.0 + block]), EVEN)
    assert chooser.present == 1
    chooser.see(np.array([100.0, 130.0]), EVEN)
    assert chooser.see(np.array([100.0, 131.0]), EVEN) == 0


def results(*joules: float) -> list[Result]:
    return [Result(value, 10.0, 20.0, 30.0) for value in joules]


def test_recovery_counts_what_is_regained_and_what_is_lost() -> None:
    old = [results(90.0 + block % 2, 100.0) for block in range(6)]
    new = [results(120.0, 100.0 + block % 2) for block in range(20)]
    found = continual.recovery(old, new)
    assert found.achievable == pytest.approx(np.log(1.2), abs=0.01)
    assert found.regained == pytest.approx(1.0)
    assert found.lost == 0.0 and found.changes == 1
    steady = continual.recovery(old, old)
    assert (steady.regained, steady.lost, steady.changes) == (1.0, 0.0, 0)


def test_a_drift_moves_watts_and_nothing_else(small: Scenario) -> None:
    moved = continual.drifted(small.cluster)
    pairs = list(zip(small.cluster.nodes, moved.nodes, strict=True))
    ratios = {round(b.power.idle_w / a.power.idle_w, 6) for a, b in pairs if a.power and b.power}
    assert ratios <= {1.0, 1.3} and 1.3 in ratios
    assert all((a.cores, a.speed, a.sleep) == (b.cores, b.speed, b.sleep) for a, b in pairs)

"""Intervals and reductions against tables and hand-worked numbers."""

from __future__ import annotations

import pytest

from wattflow.lab.figures.statistics import mean_interval, reduction, t_cdf, t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [
        (1, 12.7062),
        (2, 4.30265),
        (3, 3.18245),
        (4, 2.77645),
        (9, 2.26216),
        (10, 2.22814),
        (29, 2.04523),
        (100, 1.98397),
    ],
)
def test_quantiles_match_the_printed_table(freedom: int, expected: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(expected, rel=1e-5)


def test_the_distribution_is_symmetric() -> None:
    assert t_cdf(-1.3, 5) == pytest.approx(1 - t_cdf(1.3, 5))
    assert t_cdf(0.0, 4) == 0.5


def test_the_interval_of_a_mean() -> None:
    mean, half = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.30265 / 3**0.5, rel=1e-5)


def test_one_value_has_no_interval_and_equal_values_have_none_to_show() -> None:
    assert mean_interval([0.1]) == (0.1, None)
    assert mean_interval([0.1, 0.1, 0.1]) == (0.1, 0.0)


def test_a_reduction_is_plain() -> None:
    assert reduction(200.0, 150.0) == 0.25
    assert reduction(100.0, 120.0) == pytest.approx(-0.2)
    assert reduction(0.0, 0.0) == 0.0
    assert reduction(0.0, 1.0) is None

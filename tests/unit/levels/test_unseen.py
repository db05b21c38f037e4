"""Responses of functions that never ran at a lower clock, from their counters at full clock."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from wattflow.levels.unseen import FullClock, clock_share, predict

RUN = FullClock(seconds=10.0, joules=5000.0, clock_seen=1600.0, gpu_busy=0.8, memory_busy=0.2)


def test_the_busy_time_follows_the_clock_that_was_seen_and_the_rest_does_not() -> None:
    seconds, joules = predict(RUN, 2000.0, 100.0, 800.0) or (None, None)
    assert seconds is not None and joules is not None
    assert seconds.value == pytest.approx(2.0 + 8.0 * 2.0)
    assert (seconds.low, seconds.high) == (10.0, pytest.approx(2.0 + 8.0 * 2.5))
    # Above idle 4,000 J, of which half becomes an eighth.
    assert joules.value == pytest.approx(2000.0 + 250.0 + 100.0 * 18.0)
    assert joules.low < joules.value < joules.high


@pytest.mark.parametrize("level", [2000.0, 1600.0])
def test_down_to_the_clock_that_it_went_at_anyway_nothing_changes(level: float) -> None:
    seconds, joules = predict(RUN, 2000.0, 100.0, level) or (None, None)
    assert seconds is not None and joules is not None
    assert seconds.value == pytest.approx(10.0) and joules.value == pytest.approx(5000.0)


def test_gaps_alone_follow_no_clock() -> None:
    seconds, _ = predict(replace(RUN, gpu_busy=0.0), 2000.0, 100.0, 500.0) or (None, None)
    assert seconds is not None and seconds.low == seconds.value == seconds.high == 10.0


@pytest.mark.parametrize(
    ("gpu", "memory"),
    [(0.9, 0.51), (0.9, None), (None, 0.1), (0.9, math.nan), (math.nan, 0.1), (1.2, 0.1), (0.9, -0.1)],
)
def test_what_the_counters_do_not_tell_is_unknown(gpu: float | None, memory: float | None) -> None:
    assert clock_share(gpu, memory) is None
    assert predict(replace(RUN, gpu_busy=gpu, memory_busy=memory), 2000.0, 100.0, 1000.0) is None


@pytest.mark.parametrize("level", [0.0, -5.0, 2001.0, math.nan])
def test_a_level_that_is_none_is_unknown(level: float) -> None:
    assert predict(RUN, 2000.0, 100.0, level) is None

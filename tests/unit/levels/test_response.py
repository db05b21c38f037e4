"""The response of a function: recorded runs of three kernels on an H200, and curves that are known."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path

import pytest

from wattflow.levels.function_profile import MOST_RUNS, FunctionProfile, choose_runs
from wattflow.levels.response import LevelRun, Response

IDLE_W = 122.0
"""Of that H200 in the state P0."""
RECORDED = Path(__file__).parents[3] / "research" / "data" / "h200_clocks.csv"


def recorded() -> dict[str, dict[float, LevelRun]]:
    kernels: dict[str, dict[float, LevelRun]] = {}
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            if row["kind"] == "clock_mhz":
                run = LevelRun(*(float(row[name]) for name in ("value", "seconds", "joules", "clock_mhz_seen")))
                kernels.setdefault(row["kernel"], {})[run.level] = run
    return kernels


def test_caps_that_were_never_run_are_predicted_from_clocks() -> None:
    """Fifteen recorded limits of 300 to 700 W, by a card that was run at clocks alone; 200 W is below all of those."""
    errors = []
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            if row["kind"] == "limit_w":
                found = Response(list(recorded()[row["kernel"]].values()), IDLE_W).under_cap(float(row["value"]))
                assert (found is None) == (row["value"] == "200")
                if found is not None:
                    seconds, joules = found
                    errors.append(abs(seconds.value / float(row["seconds"]) - 1))
                    errors.append(abs(joules.value / float(row["joules"]) - 1))
    assert len(errors) == 30
    assert statistics.median(errors) <= 0.02 and max(errors) <= 0.07


def test_a_limit_that_is_never_reached_changes_nothing() -> None:
    response = Response([known(level) for level in (2000.0, 1300.0, 1000.0)], 100.0)
    found = response.under_cap(10_000.0)
    assert found is not None
    assert [one.value for one in found] == [response.seconds(2000.0).value, response.joules(2000.0).value]


def known(level: float, knee: float = 1400.0, slope: float = 1.0) -> LevelRun:
    seconds = 2.0 * max(1.0, knee / level) ** slope
    return LevelRun(level, seconds, 300.0 + 400.0 * (level / 2000.0) ** 3 + 100.0 * seconds, level)


def test_a_known_curve_is_found_from_four_runs() -> None:
    response = Response([known(level) for level in (2000.0, 1300.0, 1000.0, 800.0)], 100.0)
    assert response.parameters["knee"] == pytest.approx(1400.0, rel=0.02)
    for level in (1800.0, 1600.0, 1400.0, 1100.0, 900.0):
        assert response.seconds(level).value == pytest.approx(known(level).seconds, rel=0.02)
        assert response.joules(level).value == pytest.approx(known(level).joules, rel=0.02)
        assert response.joules(level).low < known(level).joules < response.joules(level).high


def test_unknown_levels_have_wider_intervals_than_run_ones() -> None:
    response = Response([known(level) for level in (2000.0, 1300.0)], 100.0)
    run, beside, far = (response.seconds(level) for level in (1300.0, 1200.0, 800.0))
    assert run.high / run.low < beside.high / beside.low < far.high / far.low


def test_one_run_is_enough_to_say_full_clock() -> None:
    response = Response([known(2000.0)], 100.0)
    assert response.best([2000.0], 1.3) == response.full == 2000.0


@pytest.mark.parametrize("kernel", sorted(recorded()))
def test_few_runs_find_the_level_of_an_exhaustive_sweep(kernel: str) -> None:
    sweep = recorded()[kernel]
    asked: list[float] = []

    def measure(level: float) -> LevelRun:
        asked.append(level)
        return sweep[level]

    response = choose_runs(measure, list(sweep), IDLE_W)
    assert len(asked) == len(set(asked)) <= MOST_RUNS and asked[0] == 1980.0
    for slack in (1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 9.0):
        limit_s = slack * sweep[1980.0].seconds
        best_j = min(run.joules for run in sweep.values() if run.seconds <= limit_s)
        found = sweep[response.best(list(sweep), slack)]
        assert found.seconds <= limit_s and found.joules <= 1.02 * best_j


def test_a_level_that_was_never_run_is_predicted() -> None:
    errors = []
    for sweep in recorded().values():
        for left in sorted(sweep)[:-1]:
            response = Response([run for level, run in sweep.items() if level != left], IDLE_W)
            errors.append(abs(response.seconds(left).value / sweep[left].seconds - 1))
            errors.append(abs(response.joules(left).value / sweep[left].joules - 1))
    assert statistics.median(errors) < 0.05


def test_a_function_that_no_clock_slows_runs_at_the_lowest() -> None:
    flat = {level: LevelRun(level, 5.0, 500.0 + level / 10, None) for level in (2000.0, 1600.0, 1200.0, 900.0)}
    assert choose_runs(flat.__getitem__, list(flat), 50.0).best(list(flat), 1.02) == 900.0


def profile(**changes: object) -> FunctionProfile:
    facts = {"function": "f", "model": "NVIDIA H200", "knob": "clock_mhz", "idle_w": 122.0, "meter": "nvml",
             "runs": (known(2000.0), known(1300.0)), "measured_at": "2026-11-16"}  # fmt: skip
    return FunctionProfile(**{**facts, **changes})  # type: ignore[arg-type]


def test_a_profile_is_written_with_all_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    profile().write(path)
    found = json.loads(path.read_text())
    runs = found.pop("runs")
    assert found.pop("version") == 1
    assert FunctionProfile(runs=tuple(LevelRun(**run) for run in runs), **found) == profile()

"""`wattflow bounds` and `compare --bounds`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from wattflow.cli.main import app

pytest.importorskip("scipy")


def wattflow(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="wattflow")


@pytest.mark.slow  # compiles what only the search for bounds needs
def test_bounds_lie_below_and_above_as_they_say() -> None:
    result = wattflow(
        "bounds", "montage:tasks=20", "-p", "heft,eft", "--slack", "0.5", "--evaluations", 2000, "-o", "json"
    )
    assert result.exit_code == 0, result.output
    rows = {row["policy"]: row for row in json.loads(result.stdout)["rows"]}
    assert len(rows) == 3
    for row in rows.values():
        assert 0 < row["lower_j"] <= row["upper_j"]
    assert rows["eft"]["energy_j"] >= rows["eft"]["lower_j"]
    assert rows["eft"]["above_lower"] == pytest.approx(rows["eft"]["energy_j"] / rows["eft"]["lower_j"] - 1)


@pytest.mark.slow  # compiles what only the search for bounds needs
def test_the_best_found_is_never_above_a_policy_that_ends_in_time() -> None:
    result = wattflow(
        "bounds", "montage:tasks=20,workflows=4,arrivals=poisson,rate=0.02", "-p", "kubernetes,wattflow,eft:sleep=120",
        "--slack", "9", "--evaluations", 1, "-o", "json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    for row in rows:
        in_time = [one["energy_j"] for one in rows if one["energy_j"] and one["makespan_s"] <= row["makespan_s"]]
        assert row["upper_j"] <= min(in_time)
        assert row["above_upper"] is None or row["above_upper"] >= 0.0


@pytest.mark.slow  # compiles what only the search for bounds needs
def test_the_table_names_what_the_bounds_are() -> None:
    result = wattflow("bounds", "chain:tasks=4", "-p", "fifo", "--slack", "0", "--evaluations", 200)
    assert result.exit_code == 0, result.output
    assert "lower bound" in result.stdout and "best found" in result.stdout and "a second" in result.stdout


@pytest.mark.slow  # compiles what only the search for bounds needs
def test_compare_shows_the_distance_of_every_policy() -> None:
    result = wattflow("compare", "chain:tasks=4", "-p", "fifo,eft", "--seeds", 1, "--bounds")
    assert result.exit_code == 0, result.output
    table = result.stdout.split("bounds, seed 0")[1]
    assert "fifo" in table and "eft" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bounds", "chain:tasks=4", "--slack", "x"), "must be numbers"),
        (("bounds", "chain:tasks=60", "--exact"), "up to 50 tasks"),
        (("compare", "chain:tasks=4", "--bounds", "--power-error", "0.1"), "do not hold where"),
        (("compare", "chain:tasks=4", "--bounds", "-o", "json"), "wattflow workload bounds"),
    ],
)
def test_bad_calls_say_what_is_wrong(arguments: tuple[str, ...], message: str) -> None:
    result = wattflow(*arguments)
    assert result.exit_code == 2
    assert message in result.output

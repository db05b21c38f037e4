"""Progress where stderr is no terminal."""

from __future__ import annotations

import time

import pytest

from wattflow.cli import screen
from wattflow.cli.live import energy_of
from wattflow.model import units


def test_lines_now_and_then_tell_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with screen.progress_bar(quiet=False, lines=True) as show:
        assert show is not None
        for second in range(0, 130, 10):
            clock[0] = float(second)
            show(second / 240, f"part {second}")
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 6
    assert told[-1] == " 50 % after 2.0 minutes, about 2.0 left: part 120"


def test_nothing_is_told_to_nobody() -> None:
    for quiet, lines in ((True, True), (False, False)):
        with screen.progress_bar(quiet, lines) as show:
            assert show is None


def test_joules_are_the_same_number_wherever_they_are_told() -> None:
    """`report` adds up what `ps` shows; how many joules there may be is told beside them."""
    short, long = {"low_j": 0.0, "high_j": 2.0}, {"low_j": 0.1, "high_j": 0.3}
    assert energy_of({"energy_j": 0.188, **short}) == f"{units.human_energy(0.188)}, up to 2 J"
    assert energy_of({"energy_j": 0.188, **long}) == units.human_energy(0.188) == "0.188 J"
    assert energy_of({"energy_j": None, **short}) is None


def test_a_table_of_rows_says_unknown_by_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    screen.print_tables([screen.plain_table([{"name": "a", "watts": 7}, {"name": "b", "watts": None}])])
    told = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert told[0] == ["name", "watts"] and told[2:] == [["a", "7"], ["b", "–"]]

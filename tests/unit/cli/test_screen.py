"""Progress where stderr is no terminal."""

from __future__ import annotations

import time

import pytest

from wattflow.cli import screen


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

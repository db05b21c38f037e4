"""Parts of a long measurement: kept as they are done, read again, told apart by what they depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from research import parts

MADE: list[int] = []


def squared(number: int) -> list[int]:
    MADE.append(number)
    if number == 13:
        raise ValueError("no")
    return [number * number]


def test_an_ended_run_goes_on_from_its_parts(tmp_path: Path) -> None:
    MADE.clear()
    told: list[tuple[float, str]] = []
    with pytest.raises(ValueError, match="no"):
        parts.gathered({"a/1": 1, "b": 2, "c": 13}, squared, 1, tmp_path / "kept")
    assert MADE == [1, 2, 13]
    (tmp_path / "kept" / "b.json").write_text("[")  # cut off: made anew
    found = parts.gathered({"a/1": 1, "b": 2, "c": 3}, squared, 1, tmp_path / "kept", lambda *s: told.append(s))
    assert found == {"a/1": [1], "b": [4], "c": [9]} and MADE[3:] == [2, 3]
    assert [share for share, _ in told] == pytest.approx([2 / 3, 1.0])


def test_several_processes_give_the_same_in_the_order_asked_for() -> None:
    assert list(parts.gathered({str(n): n for n in range(6)}, squared, 2).items()) == [
        (str(n), [n * n]) for n in range(6)
    ]


def test_other_settings_have_another_mark() -> None:
    assert parts.mark("a", 1) == parts.mark("a", 1) != parts.mark("a", 2)

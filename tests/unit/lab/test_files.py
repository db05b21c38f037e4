"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattflow.files.whole import whole_file, write_text
from wattflow.model.errors import InvalidInput


def test_a_file_is_written_and_nothing_else_stays(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "größer\n")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "größer\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_file_leaves_the_old_one(tmp_path: Path, failure: type[BaseException]) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(failure), whole_file(target) as draft:
        draft.write_text("half")
        raise failure
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_missing_folder_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        write_text(tmp_path / "no" / "a.txt", "")
    with pytest.raises(InvalidInput, match="is a folder"):
        write_text(tmp_path, "")

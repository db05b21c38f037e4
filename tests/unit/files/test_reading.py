"""Files that people write: what is no text, too large or not there is refused with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattflow.files.whole import small_text
from wattflow.model.errors import InvalidInput


def test_a_text_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("naïve = 1\n", encoding="utf-8")
    assert small_text(path, "cluster file") == "naïve = 1\n"


def test_other_things_are_refused_by_name(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"ab\xff")
    large.write_bytes(b" " * (1024**2 + 1))
    for path, most, message in (
        (tmp_path / "none", 9, "cannot be read: No such file"),
        (tmp_path, 1 << 40, "cannot be read: Is a directory"),
        (binary, 9, r"is not UTF-8 text \(byte 2\)"),
        (large, 1024**2, "is larger than 1 MiB; not a frame file"),
    ):
        with pytest.raises(InvalidInput, match=message) as refused:
            small_text(path, "frame file", most)
        assert str(path) in str(refused.value)

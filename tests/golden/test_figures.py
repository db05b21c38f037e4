"""Every figure of the sample runs is what it was; `make golden` writes the text anew after a change on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.figures import NAMES, lines

GOLDEN = (Path(__file__).parent / "figures.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_what_they_were(name: str) -> None:
    assert list(lines(name)) == [line for line in GOLDEN if line.startswith(f"{name} | ")], "on purpose? `make golden`"

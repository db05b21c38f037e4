"""The programs of docs/driving.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "driving.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(number: int) -> None:
    exec(compile(PROGRAMS[number], f"driving.md:{number}", "exec"), {"__name__": "driving"})


def test_the_driver_is_forty_lines() -> None:
    start = PROGRAMS[1].index("class Processes")
    end = PROGRAMS[1].index("engine = Engine")
    assert len(PROGRAMS) == 2 and len(PROGRAMS[1][start:end].strip().splitlines()) <= 40

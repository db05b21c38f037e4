"""The golden logs in this process, for `make mutants`: `pytest tests/golden/uncompiled.py` with NUMBA_DISABLE_JIT=1."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.runs import RUNS, lines


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_its_golden_log(name: str) -> None:
    expected = (Path(__file__).parent / f"{name}.txt").read_text().splitlines()
    assert list(lines(RUNS[name]())) == expected

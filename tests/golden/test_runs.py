"""Golden logs: the same text under two hash seeds, compiled and not. `runs.py NAME > NAME.txt` renews one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMES = ("accelerators", "failures", "platform")
WAYS = {
    "hash seed 1": {"PYTHONHASHSEED": "1"},
    "hash seed 2": {"PYTHONHASHSEED": "2"},
    "not compiled": {"PYTHONHASHSEED": "3", "NUMBA_DISABLE_JIT": "1"},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_its_golden_log(name: str, way: str) -> None:
    made = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "runs.py"), name],
        env=os.environ | WAYS[way], capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == (HERE / f"{name}.txt").read_text().splitlines()

"""A short, seeded round of faults against a running server; `make chaos` has the long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("runtime-chaos")
CHAOS = Path(__file__).parents[2] / "benchmarks" / "chaos.py"


def test_nothing_is_lost_and_nothing_is_done_twice() -> None:
    command = [sys.executable, str(CHAOS), "--kills", "20", "--seed", "3"]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "figure chaos_tasks_lost 0 tasks goal 0 ok" in done.stdout

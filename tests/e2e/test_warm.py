"""`wattflow warm` runs to its end, and a scheduler that starts from what it wrote compiles nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

START = """
from wattflow.live import Engine, TASK
from wattflow.clusters import load_cluster
from wattflow.model.workflow import Variant
engine = Engine("least-energy", load_cluster("mixed"))
engine.put(TASK, engine.shape((Variant(cores=1),)), estimate_s=1.0)
assert engine.step(0.0).placements
"""


def files_in(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_a_start_from_a_warm_cache_compiles_nothing(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [sys.executable, "-m", "wattflow.cli", "warm", str(tmp_path / "c"), "-p", "least-energy"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "1 policy," in done.stdout
    before = files_in(tmp_path / "c")
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, "-c", START], check=True, env=env | {"WATTFLOW_CACHE": str(tmp_path / "c")})
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used
    assert files_in(tmp_path / "c") == before, "something was compiled that the cache does not hold"
    # The goal is 2 s of an undisturbed machine (`make bench-live` prints it); compiling anew takes forty and more.
    assert seconds < 10

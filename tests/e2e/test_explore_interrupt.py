"""Ctrl-C: finished points stay, and the same command goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

DESIGN = """
name = "tiny"
frames = ["hash", "hash-stealing", "delegated", "centralised-push"]
policies = ["fifo", "sjf"]
workloads = [{ make = "ibm-like", trace = [1, 2, 3], tasks = 20000 }]
seeds = 3
"""
POINTS = 72
BOUND_S = 240.0
SOURCES = str(Path(__file__).parents[2] / "src")


@pytest.mark.slow
def test_an_interrupted_exploration_goes_on(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    design, out = tmp_path / "design.toml", tmp_path / "out"
    design.write_text(DESIGN, encoding="utf-8")
    paths = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-c", "from wattflow.cli.main import main; main()", "explore", str(design)]
    command += ["--out", str(out), "--workers", "2"]
    settings: Any = {"env": {**os.environ, "PYTHONPATH": paths}, "text": True}
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **settings,
        # A shell that runs the suite in the background has SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + BOUND_S
    while len(list(out.glob("points/*.json"))) < 5 and run.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, errors = run.communicate(timeout=BOUND_S)
    assert run.returncode == 130, errors
    assert "finished points are kept" in errors and "Traceback" not in errors
    kept = len(list(out.glob("points/*.json")))
    assert 5 <= kept < POINTS
    again = subprocess.run(command, capture_output=True, timeout=BOUND_S, **settings)
    assert again.returncode == 0, again.stderr
    assert f"{POINTS} points, {kept} from before" in again.stderr
    keys = pq.read_table(out / "results.parquet", columns=["key"])["key"].to_pylist()
    assert len(set(keys)) == len(keys) == POINTS

"""The example that mixes devices, on a server of its own with a played FPGA and TLS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "runtime" / "mixed_devices.py"
pytestmark = [
    pytest.mark.xdist_group("runtime-devices"),
    pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator (`make tools`)"),
]


def cli(home: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wattflow.cli", *args]
    env = {**os.environ, "WATTFLOW_HOME": str(home), **more}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


def test_a_workflow_runs_on_unlike_devices(tmp_path: Path) -> None:
    home = tmp_path / "home"
    started = cli(home, "up", "--port", "0", "--fpgas", "1")
    assert started.returncode == 0, started.stderr
    try:
        done = cli(home, "run", str(EXAMPLE))
        assert done.returncode == 0, done.stderr
        told = done.stdout.strip().splitlines()
        assert told[0].endswith("as expected")
        assert any("filter: ran on" in line and "fpga" in line and "modelled" in line for line in told)
        assert any(line.startswith("filter: ") and line.endswith("s on fpga") for line in told)
        assert "spectrum: ran on gpu" in done.stdout or (
            "spectrum: ran on cpu" in done.stdout and "its gpu variant was not used" in done.stdout
        )
    finally:
        cli(home, "down")

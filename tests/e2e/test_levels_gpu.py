"""The benchmark of levels on a real GPU, tried on a played driver library: real server, real agent, clocks held."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc (`make tools` has it with Verilator)"),
]
CURVE = {1980: (2.0, 988.0), 1700: (2.0, 902.0), 1500: (2.01, 835.0), 1300: (2.26, 796.0), 1100: (2.82, 867.0)}
"""Of a copy, by clock: seconds and joules."""


def test_dags_run_through_server_and_agent_at_the_clocks_of_profiles(tmp_path: Path) -> None:
    library, state, out = tmp_path / "libnvidia-ml.so.1", tmp_path / "gpu", tmp_path / "rows.json"
    source = ROOT / "tests" / "unit" / "levels" / "played_nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", str(source), "-o", str(library)], check=True)
    state.write_text("700000 0 0 0\n")
    rows = {f"memory_copy/{mhz}": {"seconds": s, "joules": j, "clock_mhz": mhz} for mhz, (s, j) in CURVE.items()}
    look = {"device": {"model": "Played GPU", "driver": "0"}, "idle_with_context_w": 122.0}
    out.write_text(json.dumps({"look": look, "sweep": rows}))
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PLAYED_NVML": str(state), "PYTHONPATH": str(ROOT),
        "WATTFLOW_LEVELS": str(tmp_path / "notes"), "WATTFLOW_SYSFS": str(tmp_path / "none"),
    }  # fmt: skip
    words = [sys.executable, str(ROOT / "benchmarks" / "levels_gpu.py"), "dags", "--played", "--repeats", "1"]
    done = subprocess.run([*words, "--out", str(out)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout
    for name in (
        "saved",
        "saved.memory",
        "saved_with_deadlines",
        "deadlines_missed",
        "one_clock_in_hindsight.within_1.02",
    ):
        assert f"figure levels.played_gpu.{name} " in told
    # Nothing of it is a figure of a card.
    assert "figure levels.gpu.saved nan goal ≥ 10 short (not measured" in told
    ran = json.loads(out.read_text())["dags"]
    clocks = {mode.rpartition("/")[0]: {mhz for _, _, mhz in row["samples"]} for mode, row in ran.items()}
    assert clocks["default"] == clocks["cap:400"] == {1980.0}
    assert clocks["clock:1290"] == {1290.0}
    # The copy gives most for nothing three quarters down; with a deadline, and nobody waiting, it goes lower.
    assert min(clocks["levels"]) == 1485.0 and min(clocks["deadline"]) == 1287.0
    assert state.read_text().split() == ["700000", "0", "0", "0"], "as before"

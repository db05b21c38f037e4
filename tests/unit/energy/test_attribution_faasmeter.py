"""On FaasMeter's server: the concave fit beats the straight line on runs it has not seen."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.mark.data
@pytest.mark.parametrize("machine", ["server", "jetson"])
def test_held_out_runs(data_dir: Path, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "attribution.py"
    spec = importlib.util.spec_from_file_location("bench_attribution", path)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_attribution", bench)
    spec.loader.exec_module(bench)
    monkeypatch.setattr(bench, "DATA", data_dir)
    ours, straight = bench.faasmeter(machine)
    assert ours <= bench.MACHINES[machine][3]
    assert ours < straight / 1.5

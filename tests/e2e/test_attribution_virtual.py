"""Real concurrent processes on the virtual meter: every task's joules, against what the meter knows it drew."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_concurrent_tasks_get_their_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "attribution.py"
    spec = importlib.util.spec_from_file_location("bench_attribution", path)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_attribution", bench)
    spec.loader.exec_module(bench)
    # `make bench-attribution` holds each of 64 tasks to 5 % over 20 s. Here other tests may leave a task a few
    # milliseconds of CPU, less than the clock's tick: only the mean is asked for, and that the sums close.
    _, mean, not_closed = bench.concurrent_tasks(tasks=32, seconds=8.0)
    assert not_closed < 0.1
    assert mean < 10.0

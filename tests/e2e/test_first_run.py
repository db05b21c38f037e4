"""The first simulation on a machine does not wait for the compiler, and says the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wattflow.cli import first_run

COMMAND = ["simulate", "montage:tasks=20", "-c", "mixed", "-p", "least-energy", "--metrics", "energy_j,makespan_s"]


def simulate(cache: Path | None, *more: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "WATTFLOW_FIRST_RUN"}
    environment |= {} if cache is None else {"WATTFLOW_CACHE": str(cache)}
    command = [sys.executable, "-m", "wattflow", *COMMAND, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


@pytest.mark.slow
def test_a_small_first_run_is_plain_python_and_compiles_aside(tmp_path: Path) -> None:
    try:
        first = simulate(tmp_path)
        assert first.returncode == 0 and "plain Python" in first.stderr, first.stderr
        pid = int((tmp_path / "compiling.pid").read_text())
        assert os.getpgid(pid) == pid  # it outlives who started it
        again = simulate(tmp_path)
        assert again.stdout == first.stdout and int((tmp_path / "compiling.pid").read_text()) == pid  # one is enough
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int((tmp_path / "compiling.pid").read_text()), signal.SIGKILL)


def test_a_process_that_is_somebody_elses_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTFLOW_CACHE", str(tmp_path))
    monkeypatch.delenv("WATTFLOW_FIRST_RUN")
    first_run.prepare("montage:tasks=20", "fifo", quiet=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("typed", "small"),
    [("montage:tasks=60", True), ("bag:width=2,tasks=200", True), ("montage:tasks=201", False), ("montage", False),
     ("demo:mixed", False), (".", False), ("x" * 5000, False), ("\0", False)],
)  # fmt: skip
def test_few_tasks_are_told_by_what_was_typed(typed: str, small: bool) -> None:
    assert first_run.is_small(typed) is small


def test_a_small_trace_is_small(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("{}")
    assert first_run.is_small(str(path))
    path.write_bytes(b" " * (first_run.MOST_BYTES + 1))
    assert not first_run.is_small(str(path))


_COMPILES = """
import sys, time
from wattflow.cli import first_run
first_run.NOTICE_S = float(sys.argv[1])
first_run.tell_of_compiling()
assert "numba" not in sys.modules
import wattflow.kernel.jit
import numba
for number in range(2):
    numba.njit(lambda value: value + 1)(number)
"""


@pytest.mark.parametrize(("seconds", "told"), [("0.001", 1), ("600", 0)])
def test_compiling_is_told_once_and_only_where_it_takes_long(seconds: str, told: int) -> None:
    """Whatever is compiled: the notice listens to the compiler, it knows no kernel by name."""
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"}
    done = subprocess.run(
        [sys.executable, "-c", _COMPILES, seconds], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0 and done.stderr.count("compiling for this machine") == told, done.stderr

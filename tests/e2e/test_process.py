"""The command as a process: exit codes, streams, Ctrl-C."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .docs_runner import ENVIRONMENT

WATTFLOW = [sys.executable, "-m", "wattflow.cli"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*WATTFLOW, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env=ENVIRONMENT)


def test_results_go_to_stdout_and_remarks_to_stderr(tmp_path: Path) -> None:
    done = run(
        "compare", "chain:tasks=5", "-p", "fifo", "--seeds", "1", "--report", "r.html", "-o", "csv", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cluster,workload,policy,metric")
    assert "report: r.html" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html"]


def test_bad_input_is_two_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    done = run("compare", "bad.json", "-o", "json", "--out", "out.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr and done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.json"]


@pytest.mark.parametrize("end", ["generate --list | head -n 1", "policies | head -c 5", "policies >&-",
                                 "simulate chain:tasks=3 -p fifo >/dev/null 2>&-"])  # fmt: skip
def test_a_closed_pipe_or_stream_is_no_error(tmp_path: Path, end: str) -> None:
    done = subprocess.run(["bash", "-o", "pipefail", "-c", f"{' '.join(WATTFLOW)} {end}"], capture_output=True,
                          text=True, cwd=tmp_path, env=ENVIRONMENT)  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("command", [["--help"], ["policies"], ["simulate", "chain:tasks=5", "-p", "fifo"]])
def test_a_full_disk_below_stdout_is_one_line(tmp_path: Path, command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*WATTFLOW, *command], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                              env=ENVIRONMENT, timeout=300)  # fmt: skip
    assert done.returncode == 2 and done.stderr.splitlines()[-1] == "error: No space left on device"
    assert "Traceback" not in done.stderr


def test_a_result_is_not_lost_where_an_encoding_lacks_its_signs(tmp_path: Path) -> None:
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*WATTFLOW, "policies", "heft"], capture_output=True, encoding="latin-1", cwd=tmp_path,
                          env=environment, timeout=300)  # fmt: skip
    assert done.returncode == 0 and "wattflow compare ... -p heft" in done.stdout, done.stderr
    assert "tasks × node classes" in done.stdout


def test_listening_for_the_compiler_loads_nothing_that_compiles() -> None:
    """The first import of the kernel asks for the notice: were it to import the kernel, every first command failed."""
    code = "import sys, wattflow.runtime.compile_notice; print('numba' in sys.modules, 'wattflow.live' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False False\n"


def read_until(descriptor: int, wanted: bytes, limit_s: float) -> bytes:
    seen, end = b"", time.monotonic() + limit_s
    while wanted not in seen and time.monotonic() < end:
        if select.select([descriptor], [], [], 0.2)[0]:
            seen += os.read(descriptor, 4096)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path, workers: str) -> None:
    """The bar shows that work is under way; then the whole process group hears Ctrl-C, as from a keyboard.

    The work would take many minutes. How many seconds the end takes is the machine's affair: it may be busy.
    """
    terminal, child_end = pty.openpty()
    long_work = ["compare", "montage:tasks=300", "-p", "fifo", "--seeds", "10000", "--workers", workers]
    files = ["--report", "r.html", "-o", "json", "--out", "out.json"]
    process = subprocess.Popen(
        [*WATTFLOW, *long_work, *files],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=child_end,
        start_new_session=True,
        env=ENVIRONMENT,
        # A shell that runs the suite in the background has SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        os.close(child_end)
        marker = b"seed" if workers == "1" else b"several"
        assert marker in read_until(terminal, marker, 240)
        os.killpg(process.pid, signal.SIGINT)
        seen = read_until(terminal, b"half-written", 60)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(terminal)
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 130
    assert b"half-written" in seen and b"Traceback" not in seen
    assert list(tmp_path.iterdir()) == []

"""A real Dask scheduler and two workers on loopback; one worker is killed half-way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

DESIGN = """
name = "tiny"
frames = ["hash", "hash-stealing", "delegated", "centralised-push"]
policies = ["fifo", "sjf"]
workloads = [{ make = "ibm-like", trace = [1, 2, 3], tasks = 30000 }]
seeds = 3
"""
POINTS = 4 * 2 * 3 * 3
WATTFLOW = [sys.executable, "-c", "from wattflow.cli.main import main; main()"]
BOUND_S = 240.0
SOURCES = str(Path(__file__).parents[2] / "src")


def environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths, "DASK_TEMPORARY_DIRECTORY": str(folder)}


def until(wanted: object, what: str, bound_s: float = BOUND_S) -> object:
    """Ask again and again until there is an answer."""
    assert callable(wanted)
    end = time.monotonic() + bound_s
    while time.monotonic() < end:
        if answer := wanted():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"no {what} within {bound_s:g} s")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The scheduler's address and its two workers, each a process of its own without a nanny."""
    where = tmp_path / "scheduler.json"
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"{len(started)}.log").open("wb")
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler" if not started else
                   "distributed.cli.dask_worker", *arguments]  # fmt: skip
        with log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=environment(tmp_path))
        started.append(process)
        return process

    try:
        start("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(where))
        until(lambda: where.exists() and where.read_text(), "scheduler", 60)
        address = json.loads(where.read_text())["address"]
        for _ in range(2):
            start(address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        for number in (1, 2):
            log = tmp_path / f"{number}.log"
            until(lambda log=log: "Registered to" in log.read_text(), "registered worker", 60)
        yield re.sub(r"^tcp", "dask", address), started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_nothing_counts_twice(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    address, workers = cluster
    design, out = tmp_path / "design.toml", tmp_path / "out"
    design.write_text(DESIGN, encoding="utf-8")
    command = [*WATTFLOW, "explore", str(design), "--out", str(out), "--workers", address, "-q"]
    with (tmp_path / "explore.log").open("wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log, env=environment(tmp_path))
    try:
        until(lambda: len(list(out.glob("points/*.json"))) >= POINTS // 4 or run.poll() is not None, "points")
        assert run.poll() is None, (tmp_path / "explore.log").read_text()
        workers[0].kill()
        assert run.wait(BOUND_S) == 0, (tmp_path / "explore.log").read_text()
    finally:
        run.kill()
        run.wait()
    keys = pq.read_table(out / "results.parquet", columns=["key"])["key"].to_pylist()
    assert len(keys) == len(set(keys)) == POINTS
    assert len(list(out.glob("points/*.json"))) == POINTS
    assert workers[1].poll() is None, "the other worker did the rest"


@pytest.mark.slow
def test_compare_on_dask_prints_what_it_prints_here(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    """The same rows from the cluster as from this process; what the host measured of itself apart."""
    from wattflow.lab.figures.metrics import HOST_MEASURED

    address, _ = cluster
    found = []
    for number, workers in enumerate(("1", address)):
        out = tmp_path / f"{number}.json"
        command = [*WATTFLOW, "compare", "bag:tasks=200", "chain:tasks=9", "-p", "fifo,random,least-energy"]
        command += ["--seeds", "3", "--workers", workers, "--out", str(out), "-q"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, env=environment(tmp_path))
        assert run.returncode == 0, run.stderr
        told = json.loads(out.read_text(encoding="utf-8"))
        told["rows"] = [row for row in told["rows"] if row["metric"] not in HOST_MEASURED]
        found.append(told)
    here, there = found
    assert here == there
    wrong = subprocess.run(
        [*WATTFLOW, "compare", "bag:tasks=20,cores=9999", "-p", "fifo", "--workers", address, "-q"],
        capture_output=True, text=True, timeout=BOUND_S, env=environment(tmp_path),
    )  # fmt: skip
    assert wrong.returncode == 2 and "9999" in wrong.stderr and "Traceback" not in wrong.stderr, wrong.stderr


@pytest.mark.slow
def test_no_scheduler_is_said_plainly(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from wattflow.cli.main import app
    from wattflow.lab.run import crews

    design = tmp_path / "design.toml"
    design.write_text('frames = ["hash"]\nworkloads = ["skewed:tasks=10"]\n', encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crews, "CONNECT_S", 0.5)
        arguments = ["explore", str(design), "--out", str(tmp_path / "out"), "--workers", "dask://127.0.0.1:9"]
        found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2 and "no Dask scheduler" in found.stderr

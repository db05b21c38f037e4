"""The conformance suite on real engines: Slurm on two nodes, a Dask cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_rig import SlurmRig, available

from wattflow.runtime.drivers.dask import DaskDriver
from wattflow.runtime.drivers.slurm import SlurmDriver
from wattflow.testing.check_driver import CHECKS, check_driver

pytestmark = pytest.mark.xdist_group("runtime-drivers")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmRig]:
    reason = available()
    if reason is not None:
        pytest.skip(reason)
    rig = SlurmRig(tmp_path_factory.mktemp("slurm"))
    before = dict(os.environ)
    os.environ.update(rig.environment)
    try:
        rig.start()
        yield rig
    finally:
        rig.stop()
        os.environ.clear()
        os.environ.update(before)


def test_slurm_keeps_the_contract(slurm: SlurmRig, tmp_path: Path) -> None:
    passed = asyncio.run(
        check_driver(
            lambda objects: SlurmDriver(objects, tmp_path / "slurm"), tmp_path, 90, frozenset({"keeps time limits"})
        )
    )
    # Slurm's time limits are whole minutes: the check of one second cannot hold.
    assert len(passed) == len(CHECKS) - 1


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("dask")
    scheduler_file = folder / "scheduler.json"
    started = [
        _spawn(
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(scheduler_file),
            log=folder,
        )
    ]
    while not scheduler_file.exists():
        assert started[0].poll() is None
        time.sleep(0.1)
    import json

    address = json.loads(scheduler_file.read_text())["address"]
    for number in range(2):
        started.append(_spawn("worker", address, "--nthreads", "2", "--no-dashboard", "--no-nanny", "--name",
        f"w{number}",
                              log=folder))  # fmt: skip
    yield address
    for process in started[::-1]:
        process.terminate()
        process.wait(20)


def _spawn(kind: str, *args: str, log: Path) -> subprocess.Popen[bytes]:
    with (log / f"{kind}.log").open("ab") as out:
        return subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_" + kind, *args], stdout=out, stderr=out)


def test_dask_keeps_the_contract(dask: str, tmp_path: Path) -> None:
    passed = asyncio.run(check_driver(lambda objects: DaskDriver(objects, dask), tmp_path, 60))
    assert len(passed) == len(CHECKS)

"""Joules by Slurm's own hands: a played counter, read by the real plugin, added up by the real slurmd, stored by the
real slurmdbd, told by the real `sacct`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_rig import NODES, SlurmRig, available

import wattflow

pytestmark = pytest.mark.xdist_group("runtime-drivers")
WATTS = 400.0
STEP_S = 0.1


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SlurmRig]:
    reason = available(accounting=True)
    if reason is not None:
        pytest.skip(reason)
    rig = SlurmRig(tmp_path / "rig", accounting=True)
    before, over = dict(os.environ), threading.Event()
    os.environ.update(rig.environment)

    def rise() -> None:
        joules = 10_000.0
        while not over.wait(STEP_S):
            joules += WATTS * STEP_S
            for node in NODES:
                rig.count(node, joules, WATTS)

    counter = threading.Thread(target=rise)
    try:
        rig.start()
        counter.start()
        yield rig
    finally:
        over.set()
        if counter.ident is not None:
            counter.join()
        rig.stop()
        os.environ.clear()
        os.environ.update(before)


def cli(home: Path, *args: str) -> None:
    subprocess.run([sys.executable, "-m", "wattflow.cli", *args, "--home", str(home)], check=True, timeout=240)


def test_a_task_has_the_joules_that_slurm_counted(slurm: SlurmRig, tmp_path: Path) -> None:
    home = tmp_path / "home"
    cli(home, "up", "--port", "0", "--driver", "slurm", "--quiet")
    try:
        os.environ["WATTFLOW_HOME"] = str(home)
        with wattflow.Client(name="counted") as client:
            future = client.submit(wattflow.task(cpus=1)(time.sleep), 6)
            future.result(180)
            energy, (attempt,) = future.energy(), future.attempts()
    finally:
        cli(home, "down", "--quiet")
    assert energy.provenance == "attributed"
    # Slurm's job lasts a little longer than the task (it starts a Python), and the plugin reads once a second.
    whole_j = WATTS * (attempt["ended_s"] - attempt["started_s"])
    assert 0.5 * whole_j / 2 < energy.joules < 2.5 * whole_j / 2  # one of the node's two CPUs
    assert energy.high_j == pytest.approx(2 * energy.joules * 1.02)

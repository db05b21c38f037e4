"""A real server that looks ahead (`wattflow up --twin`), on a played cluster, and a restart of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from wattflow.live.looking import USUAL
from wattflow.runtime import messages as m
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home

LONGEST_S = 300.0
CLUSTER = """
name = "two"
[[nodes]]
name = "dear"
cores = 8
memory = "16 GiB"
power = { busy = [0, 8], watts = [50, 400] }
[[nodes]]
name = "cheap"
cores = 8
memory = "16 GiB"
power = { busy = [0, 8], watts = [50, 100] }
"""
"""The first node by index, which is what `fifo` takes, has the dearer cores."""


def call(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "wattflow.cli", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def up(home: Home) -> Connection:
    cluster = home.folder.parent / "two.toml"
    cluster.write_text(CLUSTER)
    call("up", "--home", str(home.folder), "--port", "0", "--driver", "simulated", "-c", str(cluster), "-p", "fifo",
         "--twin")  # fmt: skip
    return Connection(home.url(), home.token("operator"), home.ca())


def submit(server: Connection, number: int, tasks: int, seconds: float) -> None:
    """A chain of tasks."""
    some = [
        m.Task(key=f"t{k}", name="t", function_name="f", command=["true"], estimate_s=seconds, variants=[m.Variant()],
               parents=[f"t{k - 1}"] if k else [])
        for k in range(tasks)
    ]  # fmt: skip
    server.call("POST", "/v1/submissions", m.Submission(workflow=f"w{number}", tasks=some, seal=True))


def said(home: Home, what: str) -> str:
    """The first line of the server's log with these words, once there is one."""
    end_s = time.monotonic() + LONGEST_S
    while True:
        lines = (home.folder / "server.log").read_text().splitlines()
        for line in lines:
            assert "Traceback" not in line
            if what in line:
                return line
        assert time.monotonic() < end_s, "\n".join(lines[-20:])
        time.sleep(0.1)


def done(server: Connection, count: int) -> None:
    end_s = time.monotonic() + LONGEST_S
    while sum(one["state"] == "done" for one in server.call("GET", "/v1/workflows")) < count:
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_server_looks_ahead_once_enough_workflows_have_ended_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    server = up(home)
    try:
        for number in range(USUAL.learnt):
            submit(server, number, 2, 0.2)
        done(server, USUAL.learnt)
        assert "looking ahead" not in (home.folder / "server.log").read_text()
        submit(server, USUAL.learnt, 6, 2.0)
        line = said(home, "looking ahead")
        assert "instead of fifo from now on" in line
        assert server.call("GET", "/v1/status")["policy"] == "fifo"  # what was asked for
    finally:
        call("down", "--home", str(home.folder))
    server = up(home)
    try:
        done(server, USUAL.learnt + 1)
    finally:
        call("down", "--home", str(home.folder))

"""A server that goes on learning: a real one, with its store, a learner beside it, and a restart."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from wattflow.runtime import messages as m
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.server import learning

LONGEST_S = 240.0


def call(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "wattflow.cli", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def up(home: Home) -> Connection:
    call("up", "--home", str(home.folder), "--port", "0", "--driver", "simulated", "-c", "mixed", "-p", "learned",
         "--learn", "--learn-every", "12", "--learn-seconds", "1")  # fmt: skip
    return Connection(home.url(), home.token("operator"), home.ca())


def submit(server: Connection, number: int) -> None:
    tasks = [
        m.Task(key=f"t{k}", name="t", function_name=f"f{k}", command=["true"], estimate_s=0.1, variants=[m.Variant()],
               parents=["t0"] if k else [])
        for k in range(3)
    ]  # fmt: skip
    server.call("POST", "/v1/submissions", m.Submission(workflow=f"w{number}", tasks=tasks, seal=True))


def test_a_server_learns_from_its_own_store_and_keeps_what_was_promoted(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    server = up(home)
    try:
        for number in range(13):
            submit(server, number)
        end_s = time.monotonic() + LONGEST_S
        standing = home.folder / "learning" / "standing.json"
        while not standing.is_file():
            said = (home.folder / "learner.log").read_text()
            assert time.monotonic() < end_s and "learner ends" not in said and "Traceback" not in said, said
            time.sleep(0.1)
        while not (rounds := json.loads(standing.read_text())["rounds"]):  # written first when weights change
            assert time.monotonic() < end_s
            time.sleep(0.1)
        assert "promoted after" in rounds[0]
        wanted = learning.present_policy(home, "learned")
        assert server.call("GET", "/v1/status")["policy"] == wanted
        # The same record by hand, beside the running server.
        call("learn", "--store", str(home.folder), "--out", str(tmp_path / "mine.npz"), "--seconds", "0")
    finally:
        call("down", "--home", str(home.folder))
    try:
        assert up(home).call("GET", "/v1/status")["policy"] == learning.present_policy(home, "learned") == wanted
    finally:
        call("down", "--home", str(home.folder))
    assert not (home.folder / "learner.pid").exists()

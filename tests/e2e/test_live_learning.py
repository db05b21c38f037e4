"""A server that goes on learning: a real one, with its store, a learner beside it, and a restart."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from wattflow.policy import placing, weights
from wattflow.runtime import messages as m
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.server import learning

LONGEST_S = 600.0


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


def rounds_of(home: Home) -> list[str]:
    """What the learner did, once it did anything."""
    standing, end_s = home.folder / "learning" / "standing.json", time.monotonic() + LONGEST_S
    while True:
        rounds: list[str] = json.loads(standing.read_text())["rounds"] if standing.is_file() else []
        if rounds:
            return rounds
        said = (home.folder / "learner.log").read_text()
        assert time.monotonic() < end_s and "learner ends" not in said and "Traceback" not in said, said
        time.sleep(0.1)


def test_a_server_learns_from_its_own_store_and_keeps_what_was_promoted(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    server = up(home)
    try:
        for number in range(13):
            submit(server, number)
        rounds = rounds_of(home)
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


def test_weights_that_turn_out_worse_are_taken_back(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    learning.folder_of(home).mkdir(parents=True, mode=0o700)
    bad = np.zeros(weights.SIZE)
    bad[weights.PLACE + placing.AROUND_N] = -8.0  # the dearest place is the best
    weights.save(learning.folder_of(home) / "bad.npz", bad, {})
    learning.Standing(present=str(learning.folder_of(home) / "bad.npz"), since_s=1.0).write(home)
    server = up(home)
    try:
        assert str(server.call("GET", "/v1/status")["policy"]).endswith("bad.npz")
        for number in range(13):
            submit(server, number)
        assert "alarm, back to the weights of before" in rounds_of(home)[0]
        assert server.call("GET", "/v1/status")["policy"] == "learned"
    finally:
        call("down", "--home", str(home.folder))

"""A policy orders a function warm ahead of need: server, agents and tasks are real, and the first task is warm."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import wattflow
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home

from .test_runtime import cli

pytestmark = pytest.mark.xdist_group("runtime")
LOAD_S = 1.0


class Slow:
    """A function that takes a second to load."""

    __name__ = "slow"

    def __init__(self) -> None:
        self.loads_s = LOAD_S

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        time.sleep(self.loads_s)

    def __call__(self, x: int) -> int:
        return 2 * x


def start_agent(place: Home, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "wattflow.cli", "agent", "--server", place.url(), "--token-file",
               str(place.token_file("agent")), "--name", name, "--cpus", "2",
               "--folder", str(place.folder / name)]  # fmt: skip
    return subprocess.Popen(command, env=os.environ | {"WATTFLOW_HOME": str(place.folder)})


def until(true: Callable[[], bool], what: str, for_s: float = 120) -> None:
    end_s = time.monotonic() + for_s
    while not true():
        assert time.monotonic() < end_s, what
        time.sleep(0.05)


def test_a_function_that_the_policy_warmed_starts_warm_on_a_node_that_never_ran_it(tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    started = cli(tmp_path, "up", "--port", "0", "--no-agent", "-p", "daydream")
    assert started.returncode == 0, started.stderr
    place, agents = Home.of(tmp_path), []
    try:
        connection = Connection(place.url(), place.token("user"))

        def node(name: str) -> dict[str, Any]:
            return next((row for row in connection.call("GET", "/v1/nodes") if row["name"] == name), {})

        def is_on(name: str) -> bool:
            return node(name).get("state") == "on"

        for name in ("first", "second"):
            agents.append(start_agent(place, name))
            until(functools.partial(is_on, name), f"agent {name} is not here")
        with wattflow.Client(place.url(), place.token("user")) as client:
            cold = client.submit(Slow(), 4)
            assert cold.result(120) == 8
            assert cold.attempts()[-1]["cold_s"] >= LOAD_S  # this is learned: from now on its phases are watched
            assert client.submit(Slow(), 3).result(120) == 6
            other = client.submit(time.sleep, 600)  # something runs, on the first: the policy wants a hot container
            until(lambda: bool(node("second").get("warm")), "the function was not warmed on the second")
            warm = client.submit(Slow(), 5)
            assert warm.result(120) == 10
            attempt = warm.attempts()[-1]
            assert attempt["node"] == "second" and attempt["cold_s"] < LOAD_S
            other.cancel()
    finally:
        for process in agents:
            process.terminate()
            process.wait(30)
        ended = cli(tmp_path, "down")
    assert ended.returncode == 0, ended.stderr

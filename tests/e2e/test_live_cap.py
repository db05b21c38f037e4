"""A cap of a real server is held by a real agent's clocks, on played files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow import task
from wattflow.runtime.client import Client
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Denied

pytestmark = pytest.mark.slow
RECOVERED_S = 5.0


def type_in(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "wattflow.cli", *words], capture_output=True, text=True, check=True
    ).stdout


def wait(true: Callable[[], bool], at_most_s: float = 60.0) -> float:
    began_s = time.monotonic()
    while not true():
        assert time.monotonic() - began_s < at_most_s
        time.sleep(0.01)
    return time.monotonic() - began_s


def works_on(begun: str, stop: str) -> None:
    import pathlib
    import time

    pathlib.Path(begun).touch()
    while not pathlib.Path(stop).exists():
        time.sleep(0.02)


@pytest.fixture
def capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A server that keeps a cap, and its one agent, which may set clocks; gives the played tree."""
    tree = play_sysfs(tmp_path / "sys")
    monkeypatch.setenv("WATTFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WATTFLOW_LEVELS", str(tmp_path / "notes"))
    type_in("up", "--no-agent", "--cap-w", str(request.param), "--port", "0")
    token = tmp_path / "token"
    token.write_text(type_in("token", "create", "n", "--role", "agent"))
    token.chmod(0o600)
    words = ["server", "agent", "--server", str(Home.of(tmp_path / "home").url()), "--token-file", str(token),
             "--name", "n", "--levels", "--folder", str(tmp_path / "agent"), "--cpus", "1"]  # fmt: skip
    environment = {**os.environ, "WATTFLOW_SYSFS": str(tree)}
    with (tmp_path / "agent.log").open("ab") as log:
        agent = subprocess.Popen([sys.executable, "-m", "wattflow.cli", *words], env=environment, stderr=log)
    try:
        wait(lambda: any(row["state"] == "on" for row in json.loads(type_in("server", "nodes", "-o", "json"))["rows"]))
        yield tree
    finally:
        agent.terminate()
        agent.wait()
        type_in("down")
    # Given back with the agent's end.
    assert ceiling_khz(tree) == FULL_KHZ


@pytest.mark.parametrize(("capped", "lowered"), [(1.0, True), (1e6, False)], indirect=["capped"])
def test_a_cap_is_held_by_clocks_first(capped: Path, lowered: bool, tmp_path: Path) -> None:
    """The only task starts even above the cap, at the slowest clock, at once and for good; far below it at full."""
    client: Any = Client(name="cap")
    begun, stop = tmp_path / "begun", tmp_path / "stop"
    try:
        client.submit(task(estimate="60s")(works_on), str(begun), str(stop))
        wait(begun.exists)
        if lowered:
            wait(lambda: ceiling_khz(capped) == FULL_KHZ // 2, RECOVERED_S)
        seen = set()
        for _ in range(50):
            seen.add(ceiling_khz(capped))
            time.sleep(0.02)
        assert seen == {FULL_KHZ // 2 if lowered else FULL_KHZ}
    finally:
        stop.touch()
        client.shutdown()


def ask(method: str, body: dict[str, Any] | None = None, role: str = "operator") -> Any:
    home = Home.of(os.environ["WATTFLOW_HOME"])
    return Connection(home.url(), home.token(role)).call(method, "/v1/cap", body)


@pytest.mark.parametrize("capped", [1e6], indirect=True)
def test_a_signal_lowers_the_clock_and_its_end_raises_it(capped: Path, tmp_path: Path) -> None:
    """Demand response: lower within seconds, again after the server was killed and begun anew, full at the end."""
    client: Any = Client(name="signal")
    begun, stop = tmp_path / "begun", tmp_path / "stop"
    try:
        client.submit(task(estimate="60s")(works_on), str(begun), str(stop))
        wait(begun.exists)
        with pytest.raises(Denied, match="this needs the role operator"):
            ask("POST", {"watts": 1.0}, "user")
        for body, told in (({"watts": -1}, "is not a Signal"), ({"watts": 5, "until_s": 1}, "it is over")):
            with pytest.raises(Denied, match=told) as refused:
                ask("POST", body)
            assert refused.value.status == 400
        assert ceiling_khz(capped) == FULL_KHZ
        ask("POST", {"watts": 1.0, "name": "grid"})
        wait(lambda: ceiling_khz(capped) == FULL_KHZ // 2, RECOVERED_S)
        home = Home.of(os.environ["WATTFLOW_HOME"])
        about = home.server()
        assert about is not None
        os.kill(int(str(about["pid"])), signal.SIGKILL)
        # Long enough for the agent to give its clock back: the server that comes back orders it again.
        wait(lambda: ceiling_khz(capped) == FULL_KHZ)
        port = str(about["url"]).rpartition(":")[2]
        type_in("up", "--no-agent", "--cap-w", "1000000", "--port", port)
        wait(lambda: ceiling_khz(capped) == FULL_KHZ // 2)
        told = ask("GET", role="user")
        assert told["watts"] == 1.0 and told["signals"][0]["name"] == "grid" and told["series"]
        assert "wattflow_cap_watts 1.0" in metrics()
        ask("POST", {"watts": None, "name": "grid"})
        wait(lambda: ceiling_khz(capped) == FULL_KHZ, RECOVERED_S)
    finally:
        stop.touch()
        client.shutdown()


def metrics() -> str:
    home = Home.of(os.environ["WATTFLOW_HOME"])
    return Connection(home.url(), home.token("user")).raw("GET", "/metrics")[0].decode()

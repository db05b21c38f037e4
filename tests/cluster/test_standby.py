"""Two servers on one PostgreSQL: one works, the other waits; whoever was paused or killed is taken over from."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_rig import empty, url

import wattflow
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Unreachable
from wattflow.store import reads
from wattflow.store.schema import read_store

__all__ = ["empty", "url"]
pytestmark = pytest.mark.xdist_group("runtime-postgres")
TAKES_OVER_S = 10.0
slow_double = eval("lambda x: (__import__('time').sleep(0.1), 2 * x)[1]")  # travels by value


class Pair:
    """Two homes on one store, and an agent that knows only the first server's address."""

    def __init__(self, folder: Path, store: str) -> None:
        self.store, self.folder = store, folder
        self.homes = [Home.of(folder / name) for name in ("first", "second")]
        self.agent: subprocess.Popen[bytes] | None = None
        self.pids: list[int] = []

    def up(self, which: int, *more: str) -> subprocess.CompletedProcess[str]:
        home = self.homes[which]
        home.make()
        command = [sys.executable, "-m", "wattflow.cli", "up", "--home", str(home.folder), "--port", "0", "--no-agent",
                   "--objects", str(self.folder / "objects"), "--store", self.store, "-p", "fifo", *more]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            self.pids.append(self.pid(which))
        return done

    def start_agent(self) -> None:
        command = [sys.executable, "-m", "wattflow.cli", "agent", "--server", self.homes[0].url(), "--token-file",
                   str(self.homes[0].token_file("agent")), "--folder", str(self.folder / "agent"), "--cpus", "2",
                   "--name", "node"]  # fmt: skip
        with (self.folder / "agent.log").open("wb") as log:
            self.agent = subprocess.Popen(command, stdout=log, stderr=log)

    def pid(self, which: int) -> int:
        return int(json.loads(self.homes[which].server_file.read_text())["pid"])

    def serves(self, which: int) -> bool:
        try:
            home = self.homes[which]
            status = Connection(home.url(), home.token("user"), timeout_s=2).call("GET", "/v1/status")
            return bool(status["nodes"])
        except (Unreachable, wattflow.WattflowError):
            return False

    def close(self) -> None:
        if self.agent is not None:
            self.agent.terminate()
            self.agent.wait(30)
        for pid in self.pids:
            for number in (signal.SIGCONT, signal.SIGTERM):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def until(there: Callable[[], object], within_s: float) -> float:
    """Seconds until something is so."""
    began_s = time.monotonic()
    while not there():
        assert time.monotonic() - began_s < within_s
        time.sleep(0.02)
    return time.monotonic() - began_s


@pytest.fixture
def pair(empty: str, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, empty)
    started = made.up(0)
    assert started.returncode == 0, started.stderr
    made.start_agent()
    until(lambda: made.serves(0), 60)
    try:
        yield made
    finally:
        made.close()


def test_a_second_server_on_one_store_is_refused_and_named(pair: Pair) -> None:
    refused = pair.up(1)
    assert refused.returncode == 2 and "another server works on this store" in refused.stderr
    assert pair.homes[0].url() in refused.stderr and "--standby" in refused.stderr
    assert pair.serves(0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])
def test_a_standby_takes_over_and_nothing_is_lost_or_done_twice(pair: Pair, how: signal.Signals) -> None:
    stands_by = pair.up(1, "--standby")
    assert stands_by.returncode == 0 and "stands by" in stands_by.stderr, stands_by.stderr
    first = pair.pid(0)
    until(lambda: json.loads(pair.homes[0].server_file.read_text()).get("others") == [pair.homes[1].url()], 10)
    with wattflow.Client(pair.homes[0].url(), pair.homes[0].token("user")) as client:
        futures = [client.submit(slow_double, number) for number in range(60)]
        assert futures[3].result(60) == 6
        os.kill(first, how)
        took_s = until(lambda: pair.serves(1), 60)
        assert [future.result(60) for future in futures] == [2 * number for number in range(60)]
    assert took_s <= TAKES_OVER_S
    if how is signal.SIGSTOP:  # it wakes, finds another epoch in the store, and ends
        os.kill(first, signal.SIGCONT)
        until(lambda: not Path(f"/proc/{first}/exe").exists() or _is_over(first), 20)
        said = (pair.homes[0].folder / "server.log").read_text()
        assert "taken this store over" in said
    assert pair.serves(1)
    database = read_store(pair.store)
    (flow,) = reads.workflows(database)
    assert flow["tasks"] == {"done": 60}
    outcomes = [row["outcome"] for row in reads.attempts(database, flow["id"])]
    assert outcomes == ["done"] * 60  # and no attempt was repeated
    database.dispose()


def _is_over(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"

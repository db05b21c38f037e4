"""A server that cannot start says why in one line."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from wattflow.cli import up
from wattflow.cli.main import app
from wattflow.live import Engine
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime import messages as m
from wattflow.runtime import processes
from wattflow.runtime.compile_notice import SERVER_COMPILES, rehearse
from wattflow.runtime.connection import Connection
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Denied
from wattflow.server import __main__ as server
from wattflow.server.serve import serve
from wattflow.server.settings import ServerSettings, listen


def test_a_full_disk_at_the_start_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(settings: object, driver: object, listener: socket.socket, *_: object) -> None:
        listener.close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "server.json")

    monkeypatch.setattr(server, "_load_engine", lambda *_: None)
    monkeypatch.setattr("wattflow.server.serve.serve", full)
    assert server.main(["--home", str(tmp_path / "home")]) == 2
    told = capsys.readouterr().err
    assert "No space left on device" in told and "Traceback" not in told


def test_a_server_that_could_not_even_write_its_log_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up._why_silent(tmp_path) == "it said nothing"
    monkeypatch.setattr("wattflow.cli.up.shutil.disk_usage", lambda folder: SimpleNamespace(free=0))
    assert "is full (0 bytes are free)" in up._why_silent(tmp_path)


def test_a_full_disk_is_told_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr("wattflow.cli.up.shutil.disk_usage", lambda folder: SimpleNamespace(free=100))
    monkeypatch.setattr(up, "_spawn", lambda *_: pytest.fail("a server was started, which compiles first"))
    done = CliRunner().invoke(app, ["up", "--home", str(home), "--port", "0", "--tasks-as", "self"])
    assert done.exit_code == 2
    assert re.search(r"disk is full: 100 bytes are free, .*; make room, or name another", " ".join(done.output.split()))


def test_a_second_up_starts_nothing_while_the_first_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(up, "_spawn", lambda *_: pytest.fail("a second server was started"))
    with up._starting(Home(home)):
        done = CliRunner().invoke(app, ["up", "--home", str(home), "--port", "0", "--tasks-as", "self"])
    assert done.exit_code == 2 and "another `wattflow up` is starting" in " ".join(done.output.split())


def test_a_server_that_another_up_left_behind_is_not_taken_for_ours(tmp_path: Path) -> None:
    home, ours = Home(tmp_path), subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (tmp_path / "server.log").touch()
    processes.mark(home.server_file, os.getpid(), url="http://127.0.0.1:9")
    with pytest.raises(InvalidInput, match=r"running already at http://127\.0\.0\.1:9"):
        up._wait_for_server(home, ours, True, 0)
    assert ours.poll() is not None


_LOADED = """
import sys
from wattflow.live import Engine
import wattflow.server.serve, wattflow.runtime.drivers.agents
Engine("least-energy")
print(*(name for name in ("scipy.linalg", "wattflow.sim.simulate", "wattflow.plan", "pyarrow.parquet", "matplotlib")
        if name in sys.modules))
import numba, numpy as np
print(numba.njit(lambda a: a @ a)(np.eye(2)).sum())
"""


@pytest.mark.slow
def test_a_server_loads_nothing_heavy_that_it_does_not_need() -> None:
    """A start takes as long as what it loads; linear algebra is still there for a function that uses it."""
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["", "2.0"], done.stderr


@pytest.mark.parametrize("used", ["wattflow; wattflow.Client", "wattflow.runtime.node_agent"])
def test_clients_and_agents_do_not_load_the_engine(used: str) -> None:
    """Two seconds of every script and of every agent's start: only a server decides."""
    script = f"import {used}\nimport sys\nprint(*(n for n in ('numba', 'numpy', 'wattflow.live') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "", done.stdout + done.stderr


def test_the_command_that_starts_a_server_loads_none_of_it() -> None:
    script = (
        "import sys, pathlib, wattflow.cli.main, wattflow.cli.live as live\n"
        "live.home_of(pathlib.Path('nowhere'))\n"
        "print(*(n for n in ('aiohttp', 'sqlalchemy', 'numpy', 'fastapi', 'msgspec') if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "", done.stderr


@pytest.mark.parametrize("policy", ["least-energy", "wattflow"])
def test_the_rehearsal_before_a_start_places_its_tasks(policy: str) -> None:
    """A rehearsal that fails would be passed over, and the first node would load in the loop what it should have."""
    assert rehearse(Engine(policy)) == 2


def test_broken_weights_keep_a_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.npz").write_bytes(b"PK no more")
    monkeypatch.setenv("WATTFLOW_WEIGHTS", str(tmp_path / "w.npz"))
    monkeypatch.setattr(server, "_load_engine", lambda *_: None)
    options = ["--home", str(tmp_path / "home"), "--driver", "simulated", "--port", "0"]
    for more in (["--policy", "learned"],):
        assert server.main([*options, *more]) == 2
        told = capsys.readouterr().err
        assert "w.npz: holds no weights of the learned policy" in told and "Traceback" not in told


@pytest.mark.slow
def test_a_client_between_two_polls_hears_why_a_server_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn that fails tells those who wait; who comes a moment later must not find a closed door."""
    home = Home(tmp_path / "home")
    settings = ServerSettings(home=home, policy="fifo")
    ended: list[Exception] = []

    def run() -> None:
        try:
            serve(settings, AgentsDriver(), listen(settings))
        except WattflowError as error:
            ended.append(error)

    def broken(engine: Engine, now_s: float) -> None:
        raise ValueError("no cost")

    thread = threading.Thread(target=run)
    thread.start()
    while home.server() is None:
        assert thread.is_alive()
        time.sleep(0.02)
    asks = Connection(home.url(), home.token("user"))
    task = m.Task(key="a", name="a", command=["true"])
    asks.call("POST", "/v1/submissions", m.Submission(workflow="w", tasks=[task]))
    monkeypatch.setattr(Engine, "step", broken)
    with pytest.raises(Denied, match="cannot go on under fifo"):
        asks.call("POST", "/v1/submissions", m.Submission(workflow="w", seal=True))
    time.sleep(1.0)
    with pytest.raises(Denied, match=r"cannot go on under fifo: .*no cost"):
        Connection(home.url(), home.token("user")).call("GET", "/v1/workflows/w/outcomes?wait_s=5")
    thread.join(30)
    assert "cannot go on" in str(ended[0]) and home.server() is None


def test_a_server_that_compiles_is_told_by_its_own_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not by the clock: a machine may be busy with something else. What earlier servers logged is not this one's."""
    home = Home(tmp_path)
    log = tmp_path / "server.log"
    log.write_text(f"{SERVER_COMPILES}\n")
    begun = log.stat().st_size

    def run(text: str) -> str:
        script = f"print({text!r}, flush=True); raise SystemExit(2)"
        with log.open("ab") as out:
            process = subprocess.Popen([sys.executable, "-c", script], stdout=out, stderr=out)
        with pytest.raises(InvalidInput, match="the server did not start"):
            up._wait_for_server(home, process, False, begun)
        return capsys.readouterr().err

    assert run("something else") == ""
    assert run(SERVER_COMPILES) == f"{SERVER_COMPILES}\n"


def test_what_a_server_says_right_before_it_ends_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Between a look at its log and a look at the process a busy machine may do anything."""
    log = tmp_path / "server.log"
    log.touch()

    class Ending:
        def poll(self) -> int:
            log.write_text(f"{SERVER_COMPILES}\nerror: no room\n")
            return 2

        def terminate(self) -> None:
            return None

    process: Any = Ending()
    with pytest.raises(InvalidInput, match="no room"):
        up._wait_for_server(Home(tmp_path), process, False, 0)
    assert capsys.readouterr().err == f"{SERVER_COMPILES}\n"

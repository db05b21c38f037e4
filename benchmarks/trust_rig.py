"""A server as a person starts it (`wattflow up`), its processes, and a neighbour whose work must not suffer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home

WATTFLOW = [sys.executable, "-m", "wattflow.cli"]
UP_S = 600.0


def cli(home: Path, *args: str, timeout_s: float = UP_S) -> subprocess.CompletedProcess[str]:
    """A command of `wattflow`, on a folder of its own."""
    env = os.environ | {"WATTFLOW_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run([*WATTFLOW, *args], env=env, capture_output=True, text=True, timeout=timeout_s, check=False)


def processes(home: Path) -> dict[int, str]:
    """Every process that serves a folder, or was started by one that does, with what it is."""
    found: dict[int, str] = {}
    marks = (f"WATTFLOW_HOME={home}\0".encode(), str(home).encode())
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            line, about = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            ended = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if not ended and (marks[0] in about or marks[1] in line):
            found[int(folder.name)] = _kind(line)
    return found


def _kind(line: bytes) -> str:
    kinds = {b"store.writing": "writer", b"wattflow.server": "server", b"zygote.py": "zygote", b"agent": "agent"}
    return next((kind for mark, kind in kinds.items() if mark in line), "other")


def parent_of(pid: int) -> int:
    """The process that started another; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def lasting(home: Path) -> dict[int, str]:
    """The processes that no task may end: server, writer, agents and their zygotes (not the zygotes' children)."""
    every = processes(home)
    return {
        pid: kind
        for pid, kind in every.items()
        if kind in ("server", "writer", "agent") or (kind == "zygote" and every.get(parent_of(pid)) == "agent")
    }


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@contextmanager
def house(folder: Path, *options: str) -> Any:
    """`up` to `down`; whatever is left then is ended and would be a fault."""
    home = Home(folder)
    started = cli(folder, "up", "--port", "0", "--quiet", *options)
    if started.returncode != 0:
        raise RuntimeError(f"the server did not start: {started.stderr}")
    try:
        if "--no-agent" not in options:
            wait_for(lambda: calls(home).call("GET", "/v1/status")["nodes"] >= 1, "a node")
        yield home
    finally:
        cli(folder, "down", "--quiet")
        for pid in processes(folder):
            kill(pid)


def calls(home: Home, role: str = "operator") -> Connection:
    """A connection to the server of a folder."""
    return Connection(home.url(), home.token(role), timeout_s=30)


def wait_for(met: Callable[[], Any], what: str, longest_s: float = 60.0) -> None:
    """Until something holds."""
    end_s = time.monotonic() + longest_s
    while not met():
        if time.monotonic() > end_s:
            raise TimeoutError(f"no {what} within {longest_s:g} s")
        time.sleep(0.05)


def echo(value: int) -> int:
    return value


class Neighbour(threading.Thread):
    """Somebody else's small tasks, one after the other, all the time. Whatever is done beside, they end well, once."""

    def __init__(self, home: Home, every_s: float = 0.1) -> None:
        super().__init__(daemon=True)
        self._home, self._every_s = home, every_s
        self._over = threading.Event()
        self.ran, self.took_s, self.disturbed = 0, [], []  # type: tuple[int, list[float], list[str]]

    def run(self) -> None:
        import wattflow

        with wattflow.Client(self._home.url(), self._home.token("user"), name="neighbour") as client:
            quick = wattflow.task(cpus=0.02)(_by_value(echo))
            while not self._over.is_set():
                began_s, future = time.perf_counter(), client.submit(quick, self.ran)
                self._check(future)
                self.took_s.append(time.perf_counter() - began_s)
                self._over.wait(self._every_s)

    def _check(self, future: Any) -> None:
        try:
            if (got := future.result(120)) != self.ran:
                self.disturbed.append(f"task {self.ran} returned {got!r}")
            elif (attempts := len(future.attempts())) != 1:
                self.disturbed.append(f"task {self.ran} took {attempts} attempts")
        except Exception as error:
            self.disturbed.append(f"task {self.ran}: {type(error).__name__}: {error}")
        self.ran += 1

    def stop(self) -> None:
        self._over.set()
        self.join(180)


def _by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that any worker can load, wherever this file lies."""
    import types

    return types.FunctionType(function.__code__, {"__name__": "__main__"}, function.__name__, function.__defaults__)

"""Starting, watching and ending the rig's own processes: by pid, and never another's."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class NotReady(RuntimeError):
    """A program of the rig ended or did not become ready; the message ends with its last log lines."""


@dataclass(frozen=True, slots=True)
class Process:
    """A started program. Pid and start time together name it, so that a reused pid is never taken for it."""

    name: str
    pid: int
    started: int  # clock ticks since boot, field 22 of /proc/PID/stat
    log: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[19]) == self.started and fields[0] != "Z"

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            return "\n".join(Path(self.log).read_text(errors="replace").splitlines()[-lines:])
        return ""


class Processes:
    """The processes of one rig, kept in a file so that another command can end them."""

    def __init__(self, folder: Path, die_with_parent: bool) -> None:
        self._file = folder / "processes.json"
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._die = die_with_parent
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.running: list[Process] = []
        if self._file.exists():
            self.running = [Process(**row) for row in json.loads(self._file.read_text())]

    def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Process:
        """Starts a program in a session of its own, output to its log."""
        log = self._logs / f"{name}.log"
        with log.open("ab") as output:
            child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=_end_with_parent if self._die else None,
            )
        self._children[child.pid] = child
        fields = _stat(child.pid)
        process = Process(name, child.pid, int(fields[19]) if fields else 0, str(log))
        self.running.append(process)
        self._save()
        return process

    def find(self, name: str) -> Process | None:
        """The running process of this name."""
        return next((p for p in self.running if p.name == name and p.alive), None)

    def stop(self, process: Process, patience_s: float = 10.0) -> None:
        """Asks it to end, then insists."""
        self.signal(process, signal.SIGTERM)
        if not self._gone(process, patience_s):
            self.signal(process, signal.SIGKILL)
            self._gone(process, 5.0)
        self.running = [p for p in self.running if p.pid != process.pid]
        self._save()

    def signal(self, process: Process, number: signal.Signals) -> None:
        """Sends a signal to this process if it still is this process."""
        if process.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def _gone(self, process: Process, patience_s: float) -> bool:
        child = self._children.get(process.pid)
        if child is not None:
            try:
                child.wait(patience_s)
            except subprocess.TimeoutExpired:
                return False
            return True
        return wait_until(lambda: not process.alive, patience_s)

    def _save(self) -> None:
        if not self._file.parent.exists():
            return
        scratch = self._file.with_suffix(".tmp")
        scratch.write_text(json.dumps([asdict(process) for process in self.running], indent=1))
        scratch.replace(self._file)


def until_ready(process: Process, ready: Callable[[], bool], patience_s: float) -> None:
    """Waits until `ready`, failing at once with the log's tail when the process ends."""
    ends = time.monotonic() + patience_s
    while not ready():
        if not process.alive:
            raise NotReady(f"{process.name} ended before it was ready ({process.log}):\n{process.tail()}")
        if time.monotonic() > ends:
            raise NotReady(f"{process.name} not ready after {patience_s:.0f} s ({process.log}):\n{process.tail()}")
        time.sleep(0.02)


def wait_until(condition: Callable[[], bool], patience_s: float, every_s: float = 0.02) -> bool:
    """Whether the condition came true in time."""
    ends = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(every_s)
    return True


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def free_row(count: int) -> int:
    """Return the first of so many free ports in a row, none of which an outgoing connection is ever given."""
    while True:
        first = random.randrange(20_000, 30_000)
        sockets = [socket.socket() for _ in range(count)]
        try:
            for port, one in enumerate(sockets, first):
                one.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()


def listening(port: int) -> bool:
    """Whether someone answers on this port of loopback."""
    with socket.socket() as one:
        one.settimeout(0.5)
        return one.connect_ex(("127.0.0.1", port)) == 0


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _end_with_parent() -> None:
    # Not SIGTERM: an API server that ends politely waits a minute for an etcd that has gone already.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

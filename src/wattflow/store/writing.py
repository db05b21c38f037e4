"""A process that commits groups into a SQLite store: ``python -m wattflow.store.writing STORE SOCKET PATIENCE_S``.

A thread of the server had to get the interpreter back from a busy loop after every statement, which took longer than
the statements; and where the loop had to wait for a processor, so did the commit. A process of its own has nobody to
wait for. It does one thing: a message brings statements with their rows, they are committed together, the answer tells
how long that took or what was wrong. It has a lock on the store as long as it lives, and ends when its server does, so
a server that comes after one that was killed begins to read when nothing more can come from there.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import os
import platform
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

TURN_S = 1e-4
"""The shortest that the kernel gives."""
CALLS = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""Number of `sched_setattr`, which the C library does not offer."""
PR_SET_TIMERSLACK = 29
SLACK_NS = 1000
"""How late a timer may ring; 50 µs if nobody asks. A thread waits for the interpreter by a timer."""


def ask_for_short_turns() -> bool:
    """For this thread and what it starts, from now on; False where that cannot be asked for."""
    call = CALLS.get(platform.machine())
    if not sys.platform.startswith("linux") or call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, int(TURN_S * 1e9), 0, 0)
    kernel = ctypes.CDLL(None)
    kernel.prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0)
    return bool(kernel.syscall(call, 0, wanted, 0) == 0)


LOCK_S = 20.0
"""How long a commit of a server that was killed may go on before the next one gives up."""
BUSY_S = 10.0
ROOM_BYTES = 16 << 20
LOG_BYTES = 32 << 20
"""The log's file is cut to this when it is begun anew; up to there it is written over."""
Statement = tuple[str, Sequence[Any]]
"""A statement and its rows."""


class Refused(Exception):
    """The store did not take a group; ``passing`` where that may go away by itself."""

    def __init__(self, message: str, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class WritingProcess:
    """The process, as its server sees it. Used by one thread."""

    def __init__(self, store: Path, standby: bool = False) -> None:
        self._store, self._patience_s = store, math.inf if standby else LOCK_S
        self._start()

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "wattflow.store.writing", str(self._store), str(theirs.fileno()),
                   str(self._patience_s)]  # fmt: skip
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._ready = False

    def wait_until_ready(self) -> None:
        """Until the store is this process's alone; raises Refused where somebody else keeps it."""
        if self._ready:
            return
        try:
            self._ready = self._answer() is not None
        except ConnectionError:
            raise ConnectionResetError("the process that writes did not start (see server.log)") from None

    def commit(self, statements: Sequence[Statement]) -> tuple[float, float]:
        """Commit them together; seconds of the statements and of the disk. Raises Refused where nothing was done, or
        where nobody knows: a process that died is replaced, and the caller looks for what it sent."""
        try:
            self.wait_until_ready()
            _send(self._socket, msgspec.msgpack.encode(statements))
            took: tuple[float, float] = self._answer()
        except OSError as error:
            self.close()
            self._start()
            raise Refused(f"the process that writes has ended ({error}); there is a new one", passing=True) from None
        return took

    def close(self) -> None:
        """End it."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(BUSY_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> Any:
        data = _receive(self._socket)
        if data is None:
            raise ConnectionResetError("no answer")
        good, *told = msgspec.msgpack.decode(data)
        if not good:
            raise Refused(*told)
        return told


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(len(data).to_bytes(4, "little") + data)


def _receive(connection: socket.socket) -> bytes | None:
    """The next message; None at the end."""
    size = _exactly(connection, 4)
    return None if size is None else _exactly(connection, int.from_bytes(size, "little"))


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(1 << 20, count - len(data)))
        if not piece:
            return None
        data += piece
    return bytes(data)


def main() -> None:
    """The process."""
    store, server = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # to all of a group or a service: the server's last commit is to come
        # It ends when its server closes the socket, and not before: that one's last commit is on its way.
        signal.signal(number, signal.SIG_IGN)
    ask_for_short_turns()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            lock(store, float(sys.argv[3]))
        except OSError as error:
            _send(server, msgspec.msgpack.encode((False, str(error), False)))
            return
        make_room(store)
        _send(server, msgspec.msgpack.encode((True,)))
        _serve(server, store)


def _serve(server: socket.socket, store: Path) -> None:
    connection: sqlite3.Connection | None = None
    opened: tuple[int, int] | None = None
    while (data := _receive(server)) is not None:
        try:
            # SQLite would go on writing into a file that has no name any more: told to users as kept, and lost.
            if connection is not None and _file(store) != opened:
                raise sqlite3.DatabaseError(f"{store} was removed or replaced while the server ran")
            connection, opened = connection or _opened(store), opened or _file(store)
            answer: tuple[object, ...] = (True, *_committed(connection, msgspec.msgpack.decode(data)))
        except sqlite3.Error as error:
            answer = (False, str(error), _passes(error))
        _send(server, msgspec.msgpack.encode(answer))
    if connection is not None:
        connection.close()


def _file(store: Path) -> tuple[int, int] | None:
    """Which file is there: one that took its place, or none, must not be taken for it."""
    try:
        about = store.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _passes(error: sqlite3.Error) -> bool:
    """Say whether it may go away by itself, as a full disk does; a statement that is not understood never does."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR


def lock(store: Path, patience_s: float) -> int:
    """Take the store's lock, which is let go when this process ends, or closes what is returned."""
    file = os.open(f"{store}-writer", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    end_s = time.monotonic() + patience_s
    while True:
        try:
            # flock belongs to the open file: it goes with the process however that ends, kill -9 included.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > end_s:
                os.close(file)
                raise OSError(
                    "another server writes to this store; `wattflow up --standby` waits for it to end"
                ) from None
            time.sleep(0.01)


def make_room(store: Path, size: int = ROOM_BYTES) -> None:
    """A log of zeros where there is none: writing over what is there is quicker to sync than a file that grows.

    SQLite takes a log whose first bytes are none of its own for an empty one.
    """
    log, fresh = Path(f"{store}-wal"), Path(f"{store}-wal-room")
    try:
        if log.exists() or store.stat().st_size == 0 or shutil.disk_usage(store.parent).free < 16 * size:
            return
        with fresh.open("wb") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(store.stat().st_mode))  # as SQLite makes it: whoever may read one
            file.write(bytes(size))
            os.fsync(file.fileno())
        os.link(fresh, log)  # whole or not at all, and never over one that is there
    except OSError:
        return  # it grows, then
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _opened(store: Path) -> sqlite3.Connection:
    where = f"{store.absolute().as_uri()}?mode=rw"  # none is made where it is gone
    connection = sqlite3.connect(where, timeout=BUSY_S, isolation_level=None, uri=True)
    settings(connection)
    return connection


def settings(connection: sqlite3.Connection) -> None:
    """WAL, and a synced log at every commit: what was told survives a crash of the machine, not only of the process."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=0")  # `writer.Checkpoints` copies the log back, not a commit
    connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")


def _committed(connection: sqlite3.Connection, statements: Sequence[Statement]) -> tuple[float, float]:
    began_s = time.perf_counter()
    try:
        # The write lock at once: a transaction that read first could not be promoted beside a checkpoint, and would
        # fail.
        connection.execute("BEGIN IMMEDIATE")
        for text, rows in statements:
            connection.executemany(text, rows)
        executed_s = time.perf_counter()
        connection.execute("COMMIT")
    except sqlite3.Error:
        # Some errors (a full disk) end the transaction by themselves; a second ROLLBACK would be an error of its own.
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
    return executed_s - began_s, time.perf_counter() - executed_s


if __name__ == "__main__":
    main()

"""A process beside the server that reads its store: whatever decodes thousands of rows or replays an engine is done here.

It is started by the first question, answers one after the other, and ends when nobody asked for a while or when its
server is gone. It only reads. ``python -m wattflow.server.beside`` is that process; where the store is comes by its
standard input, for a URL may hold a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

import msgspec
import sqlalchemy as sa
from starlette.exceptions import HTTPException

from wattflow.model.errors import InvalidInput, WattflowError

IDLE_S = 300.0
NICE = 5
LARGEST_BYTES = 1 << 30


class Gone(WattflowError):
    """What was asked for is not kept any more."""


class Missing(WattflowError):
    """What was asked for is not there."""


class Beside:
    """The process, as the server sees it: one question at a time."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._asking, self._ending = asyncio.Lock(), threading.Lock()

    async def ask(self, what: str, **given: Any) -> bytes:
        """The answer's bytes. Raises HTTPException with what is wrong."""
        async with self._asking:
            status, data = await asyncio.to_thread(self._ask, [what, given])
        if status != 200:
            raise HTTPException(status, data.decode())
        return data

    def close(self) -> None:
        """End the process, whatever it does."""
        with self._ending:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, question: list[Any]) -> tuple[int, bytes]:
        """Ask, once more where the process ended meanwhile (it does when it has had nothing to do)."""
        for _ in range(2):
            process = self._running()
            try:
                assert process.stdin is not None and process.stdout is not None
                _write(process.stdin, msgspec.msgpack.encode(question))
                answer = _read(process.stdout)
            except (BrokenPipeError, ValueError):
                answer = None
            if answer is not None:
                status, data = msgspec.msgpack.decode(answer, type=tuple[int, bytes])
                return status, data
            self.close()
        return 503, b"the process that reads the store beside the server ended; its reason is in server.log"

    def _running(self) -> subprocess.Popen[bytes]:
        with self._ending:
            if self._process is None or self._process.poll() is not None:
                command = [sys.executable, "-m", "wattflow.server.beside"]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
                )
                assert self._process.stdin is not None
                _write(self._process.stdin, msgspec.msgpack.encode([self._store, str(self._folder)]))
            return self._process


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(len(data).to_bytes(8, "little") + data)
    file.flush()


def _read(file: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    head = file.read(8)
    size = int.from_bytes(head, "little")
    if len(head) < 8 or size > LARGEST_BYTES:
        return None
    data = file.read(size)
    return data if len(data) == size else None


def main() -> None:
    """The process."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    begun = _read(sys.stdin.buffer)
    if begun is None:
        return
    store, folder = msgspec.msgpack.decode(begun)
    from wattflow.server import answers
    from wattflow.store.database import read_store

    database = read_store(_plain(store))
    while select.select([sys.stdin.buffer], [], [], IDLE_S)[0]:
        question = _read(sys.stdin.buffer)
        if question is None:
            return
        what, given = msgspec.msgpack.decode(question)
        _write(sys.stdout.buffer, msgspec.msgpack.encode(_answer(answers.ANSWERS[what], database, Path(folder), given)))


def _plain(store: str) -> str:
    """A store's URL as `open_store` takes it."""
    return store.removeprefix("sqlite:///").replace("postgresql+psycopg://", "postgresql://")


def _answer(function: Any, database: sa.Engine, folder: Path, given: dict[str, Any]) -> tuple[int, bytes]:
    try:
        return 200, function(database, folder, **given)
    except InvalidInput as error:
        return 422, str(error).encode()
    except Missing as error:
        return 404, str(error).encode()
    except Gone as error:
        return 410, str(error).encode()
    except WattflowError as error:
        return 409, str(error).encode()


if __name__ == "__main__":
    main()

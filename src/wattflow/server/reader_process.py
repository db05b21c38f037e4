"""A process beside the server that reads its store: what decodes thousands of rows or replays an engine is done there.

It is started by the first question, answers one after the other, and ends when nobody asked for a while or when its
server is gone. It only reads. ``python -m wattflow.server.reader_process`` is that process; where the store is comes by
its standard input, for a URL may hold a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, Any

import msgspec
import sqlalchemy as sa
from starlette.exceptions import HTTPException

from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.server.not_there import Missing, NotKept

IDLE_S = 300.0
NICE = 5
LARGEST_BYTES = 1 << 30
MOST_WAITING = 32
LONGEST_S = 120.0


class ReaderProcess:
    """The process, as the server sees it: one question at a time."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._asking, self._ending = asyncio.Lock(), threading.Lock()
        self._closed = False
        self._waiting = 0

    async def ask(self, what: str, **given: Any) -> bytes:
        """The answer's bytes. Raises HTTPException with what is wrong."""
        if self._waiting >= MOST_WAITING:
            raise HTTPException(503, f"{MOST_WAITING} questions wait already for the process that reads the store")
        self._waiting += 1
        try:
            async with self._asking:
                status, data = await asyncio.to_thread(self._ask, [what, given])
        finally:
            self._waiting -= 1
        if status != 200:
            raise HTTPException(status, data.decode())
        return data

    async def warm(self) -> None:
        """Start the process before it is asked: somebody is about to."""
        await asyncio.to_thread(self._running)

    def close(self) -> None:
        """End the process, whatever it does; there is no other one after it."""
        with self._ending:
            self._closed = True
            self._end()

    def _drop(self) -> None:
        with self._ending:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # It only reads: nothing is lost, and a query that takes long would not listen to a gentler signal.
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, question: list[Any]) -> tuple[int, bytes]:
        """Ask, once more where the process ended meanwhile (it does when it has had nothing to do)."""
        for _ in range(2):
            process = self._running()
            if process is None:
                break
            try:
                assert process.stdin is not None and process.stdout is not None
                _write(process.stdin, msgspec.msgpack.encode(question))
                # Given up as a whole: what would still come is the answer to this question, not to the next.
                if not select.select([process.stdout], [], [], LONGEST_S)[0]:
                    self._drop()
                    return 503, f"this took longer than {LONGEST_S:g} s and was given up".encode()
                answer = _read(process.stdout)
            except (OSError, ValueError):
                answer = None
            if answer is not None:
                status, data = msgspec.msgpack.decode(answer, type=tuple[int, bytes])
                return status, data
            self._drop()
        return 503, b"the process that reads the store beside the server ended; its reason is in server.log"

    def _running(self) -> subprocess.Popen[bytes] | None:
        with self._ending:
            if self._closed:
                return None
            if self._process is None or self._process.poll() is not None:
                self._end()
                command = [sys.executable, "-P", "-m", "wattflow.server.reader_process"]
                pipe = subprocess.PIPE
                # A session of its own: Ctrl-C in the server's terminal is the server's to handle.
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
                assert self._process.stdin is not None
                _write(self._process.stdin, msgspec.msgpack.encode([self._store, str(self._folder)]))
            return self._process


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(len(data).to_bytes(8, "little") + data)
    file.flush()


def _read(file: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    head = _exactly(file, 8)
    size = int.from_bytes(head or b"", "little")
    return _exactly(file, size) if head is not None and size <= LARGEST_BYTES else None


def _exactly(file: IO[bytes], count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = file.read(min(1 << 20, count - len(data)))
        if not piece:
            return None
        data += piece
    return bytes(data)


def main() -> None:
    """The process."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    asked = os.fdopen(0, "rb", buffering=0)  # unbuffered: `select` must see what was not read yet
    begun = _read(asked)
    if begun is None:
        return
    store, folder = msgspec.msgpack.decode(begun)
    from wattflow.server import reader_answers
    from wattflow.store.schema import read_store

    database = read_store(store)
    while select.select([asked], [], [], IDLE_S)[0]:
        question = _read(asked)
        if question is None:
            return
        what, given = msgspec.msgpack.decode(question)
        _write(
            sys.stdout.buffer,
            msgspec.msgpack.encode(_answer(reader_answers.ANSWERS[what], database, Path(folder), given)),
        )


def _answer(function: Any, database: sa.Engine, folder: Path, given: dict[str, Any]) -> tuple[int, bytes]:
    try:
        return 200, function(database, folder, **given)
    except InvalidInput as error:
        return 422, str(error).encode()
    except Missing as error:
        return 404, str(error).encode()
    except NotKept as error:
        return 410, str(error).encode()
    except WattflowError as error:
        return 409, str(error).encode()
    except Exception as error:  # a bug: told, written to the server's log, and the next question is answered
        traceback.print_exc()
        return 500, f"this could not be made ({type(error).__name__}); its reason is in server.log".encode()


if __name__ == "__main__":
    main()

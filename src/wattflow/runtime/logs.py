"""Output of attempts: one file each, appended as it comes. One thread writes and reads, so the loop never waits."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

LIMIT_BYTES = 64 << 20
"""Output beyond this is dropped, and the file says so."""


class Logs:
    """Files ``TASK.NUMBER.log`` in a folder, a thousand tasks to a folder below it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._thread = ThreadPoolExecutor(1, "wattflow-logs")

    def put(self, task: int, number: int, offset: int, data: bytes) -> Future[None]:
        """Have output written; done when it is in its file."""
        return self._thread.submit(self.write, task, number, offset, data)

    def get(self, task: int, number: int, offset: int = 0) -> Future[bytes]:
        """Output from a place on, after all that was put before."""
        return self._thread.submit(self.read, task, number, offset)

    def drop(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Forget the output of attempts (task and number)."""
        for task, number in attempts:
            self.path(task, number).unlink(missing_ok=True)

    def close(self) -> None:
        """Write what was put and end the thread."""
        self._thread.shutdown()

    def path(self, task: int, number: int) -> Path:
        """Where an attempt's output lies."""
        return self.root / str(task // 1000) / f"{task}.{number}.log"

    def write(self, task: int, number: int, offset: int, data: bytes) -> None:
        """Append from a place on; bytes that are there already are skipped, a gap is marked (and costs no disk)."""
        path = self.path(task, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            size = file.tell()
            if size > LIMIT_BYTES or offset > LIMIT_BYTES:
                return
            if offset > size:
                file.write(b"[output is missing here]\n"[: offset - size])
                file.truncate(offset)
                size = offset
            fresh = data[size - offset :]
            file.write(fresh[: LIMIT_BYTES - size])
            if size + len(fresh) > LIMIT_BYTES:
                file.write(b"\n[output beyond 64 MiB was dropped]\n")

    def read(self, task: int, number: int, offset: int = 0, most: int = 1 << 20) -> bytes:
        """Output from a place on; empty where there is none yet."""
        try:
            with self.path(task, number).open("rb") as file:
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:
            return b""

"""A few threads that do parts of a short job at once, over and over, with little ado between two jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any


class Crew:
    """``many`` hands, the caller's own among them; jobs should let the interpreter's lock go.

    A pool of futures takes some 30 µs for a job; here a hand waits at a lock of its own and costs a few.
    """

    def __init__(self, many: int) -> None:
        self._others = [_Hand() for _ in range(many - 1)]

    def each(self, do: Callable[[Any], Any], parts: Sequence[Any]) -> None:
        """Do every part, the first in this thread; there are no more parts than hands. An error is raised here."""
        first, *others = parts
        busy = self._others[: len(others)]
        for hand, part in zip(busy, others, strict=True):
            hand.begin(do, part)
        try:
            do(first)
        finally:
            errors = [hand.wait() for hand in busy]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """Let the hands go."""
        for hand in self._others:
            hand.begin(None, None)
        self._others = []


class _Hand:
    def __init__(self) -> None:
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._job: tuple[Callable[[Any], Any] | None, Any] = (None, None)
        self._error: BaseException | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def begin(self, do: Callable[[Any], Any] | None, part: Any) -> None:
        self._job = (do, part)
        self._go.release()

    def wait(self) -> BaseException | None:
        self._done.acquire()
        return self._error

    def _work(self) -> None:
        while True:
            self._go.acquire()
            do, part = self._job
            if do is None:
                return
            self._error = None
            try:
                do(part)
            except BaseException as error:
                self._error = error
            self._done.release()

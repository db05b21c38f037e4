"""Run work on processes of this machine. A process that dies takes nothing with it: its piece is run again."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Generic, Self

from wattflow.lab.run.work import TRIES, Answer, Deliver, Piece, Wait, Work, told, understood
from wattflow.model.errors import WattflowError

_SAFE = "PYTHONSAFEPATH"


@contextlib.contextmanager
def without_script() -> Iterator[None]:
    """Processes started here know nothing of the user's script: they would run it again, each of them.

    Nor do they look for Python's own modules in the current folder before they have our path: `copy.py` may lie there.
    """
    script, safe = sys.modules["__main__"], os.environ.get(_SAFE)
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if safe is None:
            del os.environ[_SAFE]
        else:
            os.environ[_SAFE] = safe


@contextlib.contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C, which a terminal sends to all of them: the parent ends them."""
    # Only the main thread may set signal handlers; `_work` does it again in the process.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(slots=True, eq=False)
class _Worker(Generic[Piece]):
    process: BaseProcess
    pipe: connection.Connection
    piece: Piece | None = None
    last: Piece | None = None
    ready: bool = False


@dataclass(slots=True)
class Processes(Generic[Piece, Answer]):
    """So many processes at most; they stay until the end of the ``with`` block."""

    work: Work[Piece, Answer]
    most: int
    _left: list[Piece] = field(default_factory=list)
    _workers: list[_Worker[Piece]] = field(default_factory=list)
    _tries: dict[str, int] = field(default_factory=dict)
    _stillborn: int = 0
    _packed: bytes = b""

    def __enter__(self) -> Self:
        self._packed = pickle.dumps(self.work)
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            # The pipe first: a worker that waits for work sees its end.
            worker.pipe.close()
            # Killed, not asked: what was delivered is with us, and compiled code hears no signal.
            worker.process.kill()
            worker.process.join()
        self._workers.clear()

    def run(self, pieces: Iterable[Piece], deliver: Deliver[Piece, Answer], wait: Wait) -> None:
        """Run all; pieces that need the same made ready go to one process where they can."""
        self._left = list(pieces)
        compiled = self.work.compiled() or any(worker.ready for worker in self._workers)
        while self._left or any(worker.piece is not None for worker in self._workers):
            busy = sum(worker.piece is not None for worker in self._workers)
            # Until the kernel is compiled one process is enough: others would compile the same.
            self._hire(min(self.most if compiled else 1, len(self._left) + busy))
            for worker in self._workers:
                if worker.ready and worker.piece is None:
                    self._give(worker)
            pipes = {worker.pipe: worker for worker in self._workers}
            heard = connection.wait(list(pipes), timeout=0.2)
            wait("" if compiled else "preparing the kernel")
            for pipe in heard:
                assert isinstance(pipe, connection.Connection)
                self._hear(pipes[pipe], deliver)
            compiled = compiled or any(worker.ready for worker in self._workers)

    def _hire(self, wanted: int) -> None:
        """Start what is missing; the work follows when all have been started, since they take a while to listen."""
        # Not forked: threads of numba and BLAS do not survive a fork.
        context, fresh = get_context("spawn"), list[connection.Connection]()
        for _ in range(wanted - len(self._workers)):
            mine, theirs = context.Pipe()
            with deaf_to_interrupts(), without_script():
                process = context.Process(target=_work, args=(theirs,), daemon=True)
                process.start()
            # Ours is the only other end: when the process dies the pipe says so.
            theirs.close()
            self._workers.append(_Worker(process, mine))
            fresh.append(mine)
        for pipe in fresh:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died: the pipe's end says so next
                pipe.send_bytes(self._packed)

    def _hear(self, worker: _Worker[Piece], deliver: Deliver[Piece, Answer]) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lost(worker, deliver)
            return
        worker.ready = True
        done, worker.piece = worker.piece, None
        if done is not None:
            worker.last = done
            deliver(done, understood(self.work, done, message))
        self._give(worker)

    def _give(self, worker: _Worker[Piece]) -> None:
        worker.piece = self._next(worker.last)
        if worker.piece is not None:
            # It died: the pipe's end says so at the next look, and the piece is run again.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                worker.pipe.send(worker.piece)

    def _next(self, last: Piece | None) -> Piece | None:
        """Return the next piece whose load the process has at hand, else one whose load nobody else works on."""
        if not self._left:
            return None
        load = self.work.load
        busy = {load(worker.piece) for worker in self._workers if worker.piece is not None}
        same = (n for n, piece in enumerate(self._left) if last is not None and load(piece) == load(last))
        free = (n for n, piece in enumerate(self._left) if load(piece) not in busy)
        at = next(same, None)
        # Else any: two processes with the same load are better than an idle one.
        return self._left.pop(next(free, 0) if at is None else at)

    def _lost(self, worker: _Worker[Piece], deliver: Deliver[Piece, Answer]) -> None:
        self._workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        code = worker.process.exitcode
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn >= TRIES:
                raise WattflowError(f"worker processes end with code {code} before their first point")
        if (piece := worker.piece) is None:
            return
        key = self.work.key(piece)
        self._tries[key] = self._tries.get(key, 0) + 1
        if self._tries[key] < TRIES:
            # First of all: a piece that killed its process is found out soon.
            self._left.insert(0, piece)
            return
        error = WattflowError(f"its process ended with code {code}, {TRIES} times (out of memory?)")
        deliver(piece, self.work.failed(piece, error))


def _work(pipe: connection.Connection) -> None:
    """Run a worker process: take the work, say that it is ready, answer each piece until the pipe closes."""
    # Again here: a parent that is not in its main thread could not set it before the start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work: Work[object, object] = pickle.loads(pipe.recv_bytes())
        work.warm_up()
        run = work.ready()
        pipe.send(None)
        while True:
            pipe.send(told(run, pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return

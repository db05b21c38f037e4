"""The crew for a number of workers or an address: in this process, on processes of this machine, or on Dask.

A process that dies takes nothing with it: its piece is run again. What a lost Dask worker had in hand is run again by
another.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import sys
import threading
import time
import types
import uuid
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Self

from wattflow.lab.run.work import (
    DASK,
    TRIES,
    Answer,
    Crew,
    Deliver,
    Here,
    Piece,
    Told,
    Wait,
    Work,
    code_hash,
    told,
    understood,
)
from wattflow.model.errors import MissingExtra, WattflowError

CONNECT_S = 15.0
LOOK_S = 1.0
NO_WORKER_S = 60.0
"""So long may the cluster be without a single worker before the run stops (what was delivered is kept)."""


@dataclass(slots=True)
class DaskCrew(Generic[Piece, Answer]):
    """The workers of the scheduler at ``dask://host:port``.

    The work is a task of its own that every piece depends on: the scheduler keeps it packed, once, so workers that come
    later or replace lost ones get it too.
    """

    work: Work[Piece, Answer]
    address: str
    _client: Any = None
    _held: Any = None
    _token: str = field(default_factory=lambda: f"wattflow-{uuid.uuid4().hex}")

    def __enter__(self) -> Self:
        # Before connecting: work that cannot be pickled is an error of this machine.
        packed = pickle.dumps(self.work)
        self._client = _connect(self.address)
        try:
            _check_code(self._client)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sending large graph")  # recorded workloads are; they travel once
                self._held = self._client.submit(_unpack, packed, self._token, key=f"{self._token}-work")
        # Also Ctrl-C: a client that stays connected would hold its pieces on the cluster.
        except BaseException:
            self._client.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def run(self, pieces: Iterable[Piece], deliver: Deliver[Piece, Answer], wait: Wait) -> None:
        """Submit all, and deliver each answer as it comes."""
        answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        waiting: dict[str, tuple[Piece, Any]] = {}
        for piece in pieces:
            key = f"{self._token}-{self.work.key(piece)}"
            future = self._client.submit(_work_there, self._held, piece, key=key, pure=False)
            waiting[key] = (piece, future)
            # In a thread of Dask's: the queue hands the key over to this one.
            future.add_done_callback(lambda done, key=key: answers.put(key))
        watch = _Watch(self._client, wait)
        while waiting:
            watch.look()
            try:
                key = answers.get(timeout=0.5)
            except queue.Empty:
                continue
            if key in waiting:
                piece, future = waiting.pop(key)
                deliver(piece, understood(self.work, piece, _message(future)))


def _connect(address: str) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtra("--workers dask://… needs the extra 'explore': pip install 'wattflow[explore]'") from error
    place = address
    for scheme in DASK:
        place = place.removeprefix(scheme)
    try:
        connect: Any = distributed.Client
        client = connect(f"tcp://{place}", timeout=CONNECT_S, set_as_default=False)
        client.wait_for_workers(1, timeout=CONNECT_S)
    except (OSError, TimeoutError, ValueError) as error:
        raise WattflowError(f"no Dask scheduler with workers answers at {address} within {CONNECT_S:g} s") from error
    return client


def _check_code(client: Any) -> None:
    """Check that all workers run this very code: their results stand beside those of other machines."""
    other = [where for where, code in client.run(code_hash).items() if code != code_hash()]
    if other:
        raise WattflowError(f"workers run another version of wattflow than this machine: {', '.join(sorted(other))}")


class _Watch:
    """Counts the workers once a second and gives up when none has been there for long."""

    def __init__(self, client: Any, wait: Wait) -> None:
        self.client, self.wait = client, wait
        self.looked = 0.0
        self.seen = time.monotonic()

    def look(self) -> None:
        now = time.monotonic()
        # Counting workers asks the scheduler: not at every half second of waiting.
        if now - self.looked < LOOK_S:
            return
        self.looked = now
        count = len(self.client.nthreads())
        self.wait(f"on {count} Dask workers")
        if count:
            self.seen = now
        elif now - self.seen > NO_WORKER_S:
            raise WattflowError(f"the Dask cluster has had no worker for {NO_WORKER_S:g} s; finished points are kept")


def _message(future: Any) -> Told[Any]:
    """Read an answer; Dask's own errors (a piece that killed worker after worker, a cancelled one) are ours to
    tell."""
    error = future.exception()
    if error is not None:
        return False, WattflowError(f"lost on the Dask cluster ({type(error).__name__}: {error})")
    message: Told[Any] = future.result()
    # At once: the scheduler keeps every answer that somebody may still ask for.
    future.release()
    return message


def _unpack(packed: bytes, token: str) -> tuple[str, Work[Any, Any]]:
    return token, pickle.loads(packed)


_own = threading.local()


def _work_there(held: tuple[str, Work[Any, Any]], piece: object) -> Told[Any]:
    """On a worker, each of whose threads keeps what the last piece made ready."""
    token, work = held
    # A thread may have served another crew before.
    if getattr(_own, "token", None) != token:
        _own.run, _own.token = work.ready(), token
    return told(_own.run, piece)


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


def cores() -> int:
    """Count the cores that this process may use."""
    # Of a container or a pinned process, not of the machine.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def crew_for(work: Work[Piece, Answer], workers: int | str) -> Crew[Piece, Answer]:
    """Return those who run the work: one (this process), several (processes), or a Dask cluster's address."""
    if isinstance(workers, str):
        return DaskCrew(work, workers)
    if workers < 2:
        return Here(work)

    return Processes(work, workers)

"""Run work on an existing Dask cluster. What a lost worker had in hand is run again by another."""

from __future__ import annotations

import pickle
import queue
import threading
import time
import uuid
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Self

from wattflow.lab.run.work import DASK, Answer, Deliver, Piece, Told, Wait, Work, code_hash, told, understood
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
            future = self._client.submit(_work, self._held, piece, key=key, pure=False)
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


def _work(held: tuple[str, Work[Any, Any]], piece: object) -> Told[Any]:
    """On a worker, each of whose threads keeps what the last piece made ready."""
    token, work = held
    # A thread may have served another crew before.
    if getattr(_own, "token", None) != token:
        _own.run, _own.token = work.ready(), token
    return told(_own.run, piece)

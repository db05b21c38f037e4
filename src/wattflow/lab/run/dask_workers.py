"""Run points on an existing Dask cluster. What a lost worker had in hand is run again by another."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from wattflow.lab.explore.point import DesignPoint, Runner, attempt, code_hash
from wattflow.lab.run.workers import TRIES, Deliver, Found, Wait
from wattflow.model.errors import MissingExtra, WattflowError

SCHEME = "dask://"
CONNECT_S = 15.0
LOOK_S = 1.0
NO_WORKER_S = 60.0
"""So long may the cluster be without a single worker before the exploration stops (finished points are kept)."""


def run_dask(points: Sequence[DesignPoint], address: str, deliver: Deliver, wait: Wait) -> None:
    """On the cluster of the scheduler at ``dask://host:port``; ``deliver`` is called here, once per point."""
    client = _connect(address)
    try:
        _check_code(client)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        waiting: dict[str, tuple[DesignPoint, Any]] = {}
        for point in points:
            future = client.submit(_work, point, key=f"wattflow-{point.key}", retries=TRIES, pure=False)
            waiting[point.key] = (point, future)
            future.add_done_callback(lambda done, key=point.key: answers.put(key))
        watch = _Watch(client, wait)
        while waiting:
            watch.look()
            try:
                key = answers.get(timeout=0.5)
            except queue.Empty:
                continue
            if key in waiting:
                point, future = waiting.pop(key)
                deliver(point, _answer(future))
    finally:
        client.close()


def _connect(address: str) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtra("--workers dask://… needs the extra 'explore': pip install 'wattflow[explore]'") from error
    try:
        connect: Any = distributed.Client
        client = connect(f"tcp://{address.removeprefix(SCHEME)}", timeout=CONNECT_S, set_as_default=False)
        client.wait_for_workers(1, timeout=CONNECT_S)
    except (OSError, TimeoutError) as error:
        raise WattflowError(f"no Dask scheduler with workers answers at {address} within {CONNECT_S:g} s") from error
    return client


def _check_code(client: Any) -> None:
    """All workers must run this very code: their results stand beside those of other machines."""
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
        if now - self.looked < LOOK_S:
            return
        self.looked = now
        count = len(self.client.nthreads())
        self.wait(f"on {count} Dask workers")
        if count:
            self.seen = now
        elif now - self.seen > NO_WORKER_S:
            raise WattflowError(f"the Dask cluster has had no worker for {NO_WORKER_S:g} s; finished points are kept")


def _answer(future: Any) -> Found:
    error = future.exception()
    found: Found = {"error": f"{type(error).__name__}: {error}"} if error is not None else future.result()
    future.release()
    return found


_own = threading.local()


def _work(point: DesignPoint) -> Found:
    """On a worker, each of whose threads keeps its last workload."""
    if not hasattr(_own, "runner"):
        _own.runner = Runner()
    return attempt(_own.runner, point)

"""Run points on processes of this machine. A process that dies takes nothing with it: its point is run again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Any

from wattflow.lab.explore.point import DesignPoint, Runner, attempt, warm_up
from wattflow.lab.run.points import deaf_to_interrupts
from wattflow.model.errors import WattflowError

TRIES = 3
"""A point whose process dies so often is given up."""

Found = dict[str, Any]
Deliver = Callable[[DesignPoint, Found], None]
Wait = Callable[[str], None]


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_here(points: Sequence[DesignPoint], deliver: Deliver, wait: Wait) -> None:
    """One after another in this process."""
    runner = Runner()
    for point in points:
        wait(point.title)
        deliver(point, attempt(runner, point))


def run_processes(points: Sequence[DesignPoint], workers: int, deliver: Deliver, wait: Wait) -> None:
    """On so many processes; ``deliver`` is called here, once per point. Leaving early ends the processes at once."""
    crew = _Crew(list(points), deliver, wait)
    try:
        crew.run(min(workers, len(points)))
    finally:
        crew.end()


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: connection.Connection
    point: DesignPoint | None = None
    ready: bool = False


@dataclass(slots=True)
class _Crew:
    """Processes and the points that are left."""

    left: list[DesignPoint]
    deliver: Deliver
    wait: Wait
    workers: list[_Worker] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)
    stillborn: int = 0

    def run(self, wanted: int) -> None:
        compiled = False
        while self.left or any(worker.point is not None for worker in self.workers):
            busy = sum(worker.point is not None for worker in self.workers)
            while len(self.workers) < min(wanted if compiled else 1, len(self.left) + busy):
                self._start()
            for worker in self.workers:
                if worker.ready and worker.point is None:
                    self._give(worker, None)
            pipes = {worker.pipe: worker for worker in self.workers}
            heard = connection.wait(list(pipes), timeout=0.2)
            self.wait("" if compiled else "preparing the kernel")
            for pipe in heard:
                assert isinstance(pipe, connection.Connection)
                self._hear(pipes[pipe])
            compiled = compiled or any(worker.ready for worker in self.workers)

    def _start(self) -> None:
        context = get_context("spawn")
        mine, theirs = context.Pipe()
        with deaf_to_interrupts():
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
        theirs.close()
        self.workers.append(_Worker(process, mine))

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lost(worker)
            return
        worker.ready = True
        last, worker.point = worker.point, None
        if last is not None:
            self.deliver(last, message)
        self._give(worker, last)

    def _give(self, worker: _Worker, last: DesignPoint | None) -> None:
        worker.point = self._next(last)
        if worker.point is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died: the pipe's end says so next
                worker.pipe.send(worker.point)

    def _next(self, last: DesignPoint | None) -> DesignPoint | None:
        """The next point with the workload that the process has at hand, else one that nobody else works on."""
        if not self.left:
            return None
        busy = {_load(worker.point) for worker in self.workers if worker.point is not None}
        same = (n for n, point in enumerate(self.left) if last is not None and _load(point) == _load(last))
        free = (n for n, point in enumerate(self.left) if _load(point) not in busy)
        return self.left.pop(next(same, next(free, 0)))

    def _lost(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        if not worker.ready:
            self.stillborn += 1
            if self.stillborn >= TRIES:
                raise WattflowError(
                    f"worker processes end with code {worker.process.exitcode} before their first point"
                )
        if (point := worker.point) is None:
            return
        self.tries[point.key] = self.tries.get(point.key, 0) + 1
        if self.tries[point.key] < TRIES:
            self.left.insert(0, point)
        else:
            code = worker.process.exitcode
            self.deliver(point, {"error": f"its process ended with code {code}, {TRIES} times (out of memory?)"})

    def end(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            worker.process.kill()
            worker.process.join()


def _load(point: DesignPoint) -> tuple[str, int]:
    return point.source.content, point.seed


def _work(pipe: connection.Connection) -> None:
    """A worker process: says that it is ready, then answers each point with its result until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    runner = Runner()
    warm_up()
    try:
        pipe.send(None)
        while True:
            pipe.send(attempt(runner, pipe.recv()))
    except (EOFError, BrokenPipeError):
        return

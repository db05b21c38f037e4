"""Dask executes, we place: every attempt is a future pinned to one worker.

A pinned task whose worker is gone waits in Dask for ever, so the driver watches the workers itself: one that has
left, or has not been
heard of for a while, is lost with all that was on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from wattflow.model.errors import InvalidInput, MissingExtra
from wattflow.runtime import messages as m
from wattflow.runtime.aside import Background
from wattflow.runtime.drivers.base import Reporting, Sink
from wattflow.runtime.executors.once import brought_home, errand_of, modelled
from wattflow.store.objects import Objects

log = logging.getLogger(__name__)
POLL_S = 0.5
SILENT_S = 5.0
"""A worker without a heartbeat for this long is lost (they send one a second; Dask's own limit is 5 minutes)."""
WATTS_PER_CPU = 10.0


class DaskDriver(Reporting):
    """Nodes are the workers of a Dask cluster, named by their addresses."""

    name = "dask"
    queues = False

    def __init__(self, objects: Objects, scheduler: str) -> None:
        self._objects, self._scheduler = objects, scheduler
        self._client: Any = None
        self._futures: dict[int, Any] = {}
        self._where: dict[int, str] = {}
        self._workers: set[str] = set()
        self._tasks = Background()
        self._watch: asyncio.Task[None] | None = None

    async def start(self, sink: Sink) -> None:
        """Connect; announce the workers."""
        try:
            from distributed import Client
        except ImportError:
            raise MissingExtra("the Dask driver needs distributed: pip install 'wattflow[explore]'") from None
        self._sink = sink
        connect: Any = Client
        try:
            self._client = await connect(self._scheduler, asynchronous=True, timeout=10)
        except (OSError, TimeoutError, ValueError) as error:
            raise InvalidInput(self._scheduler, f"no Dask scheduler answers: {error}") from None
        await self._look_at_workers()
        self._watch = asyncio.create_task(self._every())

    async def stop(self) -> None:
        """Let go of the cluster; what ran there for us ends."""
        for task in [*self._tasks, *([self._watch] if self._watch else [])]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def resume(self, nodes: Sequence[str], leases: Sequence[m.Lease]) -> None:
        """Futures of an earlier life are gone with its client: the attempts begin anew, under the same fence."""
        for node in nodes:
            if node not in self._workers:
                self.sink.gone(node, "its worker has left the cluster")
        self.launch([lease for lease in leases if lease.node in self._workers])

    def launch(self, leases: Sequence[m.Lease]) -> None:
        """Submit pinned futures."""
        for lease in leases:
            if lease.node not in self._workers:
                self.sink.ended(m.Ended(fence=lease.fence, outcome="refused", reason="its worker has left the cluster"))
                continue
            try:
                data = m.pack(errand_of(lease, self._objects))
            except KeyError as error:
                self.sink.ended(m.Ended(fence=lease.fence, outcome="refused", reason=f"no object {error}"))
                continue
            future = self._client.submit(
                # Dask neither moves nor retries it: where and how often is decided, and counted, by us.
                execute, data, workers=[lease.node], allow_other_workers=False, pure=False, retries=0,
                key=f"wattflow-{lease.fence}-{time.monotonic_ns()}",
            )  # fmt: skip
            self._futures[lease.fence], self._where[lease.fence] = future, lease.node
            self._tasks.begin(self._finish(lease, future))

    def cancel(self, fences: Sequence[int]) -> None:
        """Kill their processes. A call inside a worker (``isolate=False``) cannot be ended and is not waited for."""
        for fence in fences:
            self._tasks.begin(self._cancel(fence))

    async def _cancel(self, fence: int) -> None:
        future, node = self._futures.pop(fence, None), self._where.pop(fence, None)
        if future is not None:
            with contextlib.suppress(OSError, TimeoutError):
                await future.cancel(force=True)
                await self._client.run(kill_errand, fence, workers=[node], on_error="ignore")
        self.sink.ended(m.Ended(fence=fence, outcome="cancelled", reason="cancelled"))

    def warm(self, node: str, order: m.Warm) -> None:
        """Cannot be."""
        told = m.Warmed(order.function_name, False, reason="Dask's workers load a function with its first task")
        self.sink.warmed(node, told)

    def power(self, node: str, *, on: bool) -> None:
        """Dask's workers are processes; there is nothing to put to sleep."""
        if not on:
            log.info("worker %s cannot sleep", node)

    async def _finish(self, lease: m.Lease, future: Any) -> None:
        fence = lease.fence
        try:
            timeout_s = lease.spec.timeout_s
            data, output = await asyncio.wait_for(future, timeout_s + 2.0 if timeout_s else None)
            end = brought_home(msgspec.msgpack.decode(data, type=m.Ended), self._objects)
        except TimeoutError:
            output, end = b"", m.Ended(fence=fence, outcome="time_limit", reason="ran longer than its limit")
        except asyncio.CancelledError:
            return
        except Exception as error:
            outcome: m.Ending = (
                "node_lost" if type(error).__name__ in ("KilledWorker", "NoValidWorkerError") else "failed"
            )
            reason = f"Dask: {type(error).__name__}: {error}"[:500]
            output, end = b"", m.Ended(fence=fence, outcome=outcome, reason=reason)
        self._where.pop(fence, None)
        # Cancelled or lost meanwhile: its end was told already, and telling another would be a second.
        if self._futures.pop(fence, None) is None:
            return
        if output:
            self.sink.log(fence, 0, output)
        self.sink.ended(end)
        self.sink.energy(modelled(end, WATTS_PER_CPU))

    async def _every(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            with contextlib.suppress(OSError, TimeoutError):
                await self._look_at_workers()

    async def _look_at_workers(self) -> None:
        found = await self._client.scheduler.identity(n_workers=-1)
        # Heartbeats are on the scheduler's clock: compare them with each other, not with ours.
        workers = found["workers"]
        newest_s = max((about.get("last_seen", 0.0) for about in workers.values()), default=0.0)
        alive = {address for address, about in workers.items() if newest_s - about.get("last_seen", 0.0) < SILENT_S}
        for address in sorted(alive - self._workers):
            about = workers[address]
            self.sink.announce(
                m.Node(name=address, cpus=float(about["nthreads"]), memory_bytes=int(about["memory_limit"] or 1 << 33))
            )
        for address in sorted(self._workers - alive):
            # Forgotten before the loss is told: what Dask still says of them must not reach the service.
            for fence in [fence for fence, node in self._where.items() if node == address]:
                self._futures.pop(fence, None)
                self._where.pop(fence, None)
            self.sink.gone(address, "left the Dask cluster" if address not in workers else "does not answer")
        self._workers = alive


def execute(data: bytes) -> tuple[bytes, bytes]:
    """In the Dask worker: run an errand, in a process of its own unless its function may share one."""
    from wattflow.runtime.executors.once import Errand, run_errand

    errand = msgspec.msgpack.decode(data, type=Errand)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "attempt"
        folder.mkdir()
        if not errand.lease.spec.isolate and errand.lease.spec.command is None:
            return m.pack(run_errand(errand, folder)), b""
        (folder / "lease").write_bytes(data)
        command = [sys.executable, "-P", "-m", "wattflow.runtime.executors.once", str(folder)]
        limit_s = errand.lease.spec.timeout_s
        fence = errand.lease.fence
        process = _RUNNING[fence] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            kill_errand(fence)
            output, _ = process.communicate()
            end = m.Ended(fence=fence, outcome="time_limit", reason=f"ran longer than its {limit_s:g} s")
            return m.pack(end), output
        finally:
            _RUNNING.pop(fence, None)
        if (folder / "ended").exists():
            return (folder / "ended").read_bytes(), output
        reason = f"ended with {process.returncode} before it answered"
        return m.pack(m.Ended(fence=fence, outcome="failed", reason=reason)), output


_RUNNING: dict[int, subprocess.Popen[bytes]] = {}
"""In a Dask worker: the processes of errands, by fence."""


def kill_errand(fence: int) -> None:
    """In the Dask worker: end an errand with everything it started."""
    process = _RUNNING.get(fence)
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

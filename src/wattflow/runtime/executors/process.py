"""Tasks as processes: forked from a warm zygote, one each, or sent to a worker that is used again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from wattflow.energy.virtual import process_cpu_s
from wattflow.runtime.aside import Background
from wattflow.runtime.executors import zygote as child
from wattflow.runtime.executors.forking import COLD_S, KEEP_S, Process, Templates, Zygote
from wattflow.runtime.executors.limits import ControlGroup, ControlGroups, CpuBinding, ProcessorDemand, process_limits
from wattflow.runtime.executors.privileges import Privileges
from wattflow.runtime.messages import Ending

log = logging.getLogger(__name__)
HEADER_BYTES = 1 << 20
LITTLE, PIECE = 1 << 16, 1 << 19
_Moment = Annotated[float, Meta(ge=0, le=1e12)]


class Header(Struct, frozen=True):
    """Describe a call as its child does, ahead of the bytes. A task can write on its channel, so nothing is taken on
    trust: what is no such header ends the attempt, not the agent."""

    sizes: Annotated[list[Annotated[int, Meta(ge=0, le=2**62)]], Meta(max_length=8)]
    ok: bool = False
    log: bool = False
    refused: bool = False
    reason: str | None = None
    started_s: _Moment = 0.0
    ended_s: _Moment = 0.0
    cpu_s: _Moment = 0.0
    cpu_end_s: _Moment = 0.0
    load_s: _Moment = 0.0


_HEADER = msgspec.json.Decoder(Header)
Answer = tuple[Header, bytes]


class BadFrame(Exception):
    """A child sent what is no answer, or more than is taken; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWork:
    """One attempt to run here, with its bytes at hand.

    Attributes:
        blobs: Function, call, then results of parents; empty for a command.
        cpus, memory_bytes: Limits; 0 for none.
        on_log: Takes output as it comes.
        owner: Whose it is; processes that are used again, and functions held warm, are one owner's.
    """

    fence: int
    owner: str = ""
    command: Sequence[str] | None = None
    python: str = ""
    function: str = ""
    blobs: Sequence[bytes] = ()
    environment: dict[str, str] = field(default_factory=dict)
    folder: str | None = None
    cpus: float = 0.0
    memory_bytes: int = 0
    timeout_s: float | None = None
    isolate: bool = True
    on_log: Callable[[bytes], None] = lambda data: None

    def header(self) -> dict[str, Any]:
        """Tell what the child must know beside the blobs."""
        if self.command is not None:
            return {"op": "exec", "id": self.fence, "command": list(self.command), "env": self.environment,
                    "cwd": self.folder}  # fmt: skip
        return {"op": "call", "id": self.fence, "python": self.python, "function": self.function,
                "env": self.environment}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finish:
    """How an attempt ended."""

    outcome: Ending
    started_s: float
    ended_s: float
    cold_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    result: bytes | None = None
    reason: str | None = None


class _Worker:
    """A child that is used again. Calls are answered in order; only the first of the pending ones runs."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, owner: str
    ) -> None:
        self.process, self.reader, self.writer, self.owner = process, reader, writer, owner
        self.pending: deque[tuple[AttemptWork, asyncio.Future[Finish], float]] = deque()
        self.known: set[str] = set()
        self.gone = False
        self.cpu_before_s = 0.0
        self.ended_s = 0.0

    def send(self, work: AttemptWork, answer: asyncio.Future[Finish]) -> None:
        self.pending.append((work, answer, time.monotonic()))
        blobs = list(work.blobs)
        if work.function in self.known:
            blobs[0] = b""
        elif len(self.known) >= 255:
            self.known = {work.function}
        self.known.add(work.function)
        terms, self.process.terms = self.process.terms, {}  # it keeps to them from its first call on
        self.writer.write(child.request({**work.header(), "keep": True, **terms}, blobs))


class ProcessExecutor:
    """Runs work in processes of one environment.

    Args:
        workers: How many reusable workers at most: one to a processor.
        groups: Control groups for limits; None where they cannot be made.
        keep_s: How long a function that had a cold start, or was ordered, is held warm without being used.
    """

    def __init__(
        self, zygote: Zygote, workers: int, groups: ControlGroups | None = None, keep_s: float = KEEP_S
    ) -> None:
        self.zygote, self._most, self._groups = zygote, workers, groups
        made = zygote.privileges
        self.templates = Templates(lambda owner: Zygote(zygote.python, zygote.preload, made, owner), keep_s)
        self._running: dict[int, Process] = {}
        self._turns = ProcessorDemand(workers)
        self._places = CpuBinding(sorted(os.sched_getaffinity(0)))
        self._workers: list[_Worker] = []
        self._tasks = Background()

    @property
    def privileges(self) -> Privileges:
        """Whom tasks run as here."""
        return self.zygote.privileges

    async def start(self) -> None:
        """Make the zygote ready."""
        await self.zygote.start()

    async def run(self, work: AttemptWork) -> Finish:
        """Run to the end. Never raises for what the task does."""
        if not work.isolate and work.command is None:
            return await self._reused(work)
        # Short calls are leased ahead of need; without turns all of them would run at once and each take longer.
        await self._turns.take(work.cpus)
        try:
            return await self._alone(work)
        finally:
            self._turns.give_back(work.cpus)

    def stop(self, fence: int, outcome: Ending = "cancelled", reason: str = "cancelled") -> None:
        """Kill an attempt that runs here."""
        process = self._running.get(fence)
        if process is not None:
            process.kill(outcome, reason)
            return
        for worker in self._workers:
            for place, (work, answer, began) in enumerate(worker.pending):
                if work.fence == fence and place == 0:
                    worker.process.kill(outcome, reason)
                elif work.fence == fence and not answer.done():
                    answer.set_result(Finish(outcome, began, time.monotonic(), reason=reason))

    def running(self) -> dict[int, int]:
        """Process ids of the attempts that run alone, by fence."""
        return {fence: process.pid for fence, process in self._running.items() if process.pid is not None}

    def cpu_s(self) -> dict[int, float]:
        """CPU seconds so far of everything that runs here, by fence."""
        used = {fence: process_cpu_s(pid) for fence, pid in self.running().items()}
        for worker in self._workers:
            if worker.pending and worker.process.pid is not None:
                total = process_cpu_s(worker.process.pid)
                used[worker.pending[0][0].fence] = None if total is None else max(0.0, total - worker.cpu_before_s)
        return {fence: seconds for fence, seconds in used.items() if seconds is not None}

    async def close(self) -> None:
        """End everything."""
        for task in list(self._tasks):
            task.cancel()
        await self.templates.close()
        await self.zygote.close()
        if self._groups is not None:
            self._groups.close()

    # ---- one process per task

    async def _alone(self, work: AttemptWork) -> Finish:
        asked_s = time.monotonic()
        group = self._group(work) if _limited(work) else None
        pinned = self._places.take(work.cpus) if group is None else ()
        try:
            zygote = await self.templates.zygote(work.function, work.owner) or self.zygote
            limits = process_limits(work.memory_bytes, group, pinned)
            process = await zygote.fork(limits, group, work.owner, self._group)
            if process.joins:
                await process.forked
        except (OSError, TimeoutError) as error:
            self._places.give_back(pinned)
            self._give_back(group)
            return Finish("refused", asked_s, time.monotonic(), reason=f"no process could be made: {error}")
        self._running[work.fence] = process
        loop = asyncio.get_running_loop()
        timer = (
            loop.call_later(work.timeout_s, process.kill, "time_limit", f"ran longer than its {work.timeout_s:g} s")
            if work.timeout_s
            else None
        )
        loop.add_reader(process.pipe, _follow, process, work.on_log)
        try:
            answer = await _talk(process, work)
            # While the child ends: the next task finds a process without waiting for this fork.
            self._tasks.begin(zygote.fork_ahead(self._group))
            # Not the answer but the kernel's word is the end: its CPU time is final, and its processors are free.
            ended = await process.ended
            self._keep_warm(work, answer)
            return _finish(work, asked_s, process, answer, ended)
        finally:
            if timer is not None:
                timer.cancel()
            loop.remove_reader(process.pipe)
            process.drain(work.on_log)
            process.close()
            self._running.pop(work.fence, None)
            self._places.give_back(pinned)
            for left in (group, process.hold, *zygote.released()):
                self._give_back(left)

    def _group(self, work: AttemptWork | None = None) -> ControlGroup | None:
        """A control group that limits an attempt, or that only holds what is in it (None), where there are any."""
        if self._groups is None:
            return None
        try:
            return self._groups.hold() if work is None else self._groups.take(work.cpus, work.memory_bytes)
        except OSError as error:  # no more groups can be made
            log.warning("no control group: %s", error)
            return None

    def _give_back(self, group: ControlGroup | None) -> None:
        if group is not None and self._groups is not None:
            self._groups.give_back(group)

    def _keep_warm(self, work: AttemptWork, answer: Answer | None) -> None:
        """After a cold start the function is warm here, as the engine has it."""
        # Only after it loaded well: a template of a function that fails to load would fail for every task.
        if answer is not None and answer[0].ok and answer[0].load_s >= COLD_S:
            self.templates.warm_later(work.function, work.blobs[0], work.owner)

    # ---- workers that are used again

    async def _reused(self, work: AttemptWork) -> Finish:
        while True:
            worker = await self._worker(work.function, work.owner)
            answer: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
            worker.send(work, answer)
            timer = self._watch(worker, work)
            try:
                return await answer
            except _Again:
                continue
            finally:
                if timer is not None:
                    timer.cancel()

    def _watch(self, worker: _Worker, work: AttemptWork) -> asyncio.TimerHandle | None:
        """A time limit counts from when the call is sent; workers are not for long queues of limited calls."""
        if not work.timeout_s:
            return None
        reason = f"ran longer than its {work.timeout_s:g} s"
        return asyncio.get_running_loop().call_later(work.timeout_s, self.stop, work.fence, "time_limit", reason)

    async def _worker(self, function: str, owner: str) -> _Worker:
        """The owner's least busy one, of those one that knows the function; a new one while there are fewer than
        allowed and none is idle (or none of the idle ones knows a function that is held warm).

        What one user's calls leave behind in a process is never met by another's: an idle worker of somebody else
        makes room, and an owner without any gets one in any case.
        """
        template = await self.templates.zygote(function, owner)
        alive = [worker for worker in self._workers if not worker.gone and worker.owner == owner]
        best = min(alive, key=lambda worker: (len(worker.pending), function not in worker.known), default=None)
        fits = best is not None and not best.pending and (template is None or function in best.known)
        if best is not None and (fits or len(alive) >= self._most):
            return best
        others = [worker for worker in self._workers if not worker.gone and worker.owner != owner]
        if len(alive) + len(others) >= self._most:
            for idle in [worker for worker in others if not worker.pending][:1]:
                idle.gone = True
                idle.process.kill("cancelled", "its place was needed for another user")
        process = await (template or self.zygote).fork({}, None, owner, self._group)
        reader, writer = await asyncio.open_connection(sock=process.channel, limit=1 << 20)
        worker = _Worker(process, reader, writer, owner)
        self._workers.append(worker)
        self._tasks.begin(self._listen(worker))
        return worker

    async def _listen(self, worker: _Worker) -> None:
        process = worker.process
        loop = asyncio.get_running_loop()

        def on_log(data: bytes) -> None:
            # Output without a call comes from a thread that a call left behind; it is nobody's.
            if worker.pending:
                worker.pending[0][0].on_log(data)

        loop.add_reader(process.pipe, _follow, process, on_log)
        try:
            while (got := await _answer(worker.reader)) is not None:
                header, result = got
                if header.log:
                    on_log(result)
                    continue
                process.drain(on_log)
                worker.cpu_before_s = header.cpu_end_s
                if not worker.pending:
                    raise BadFrame("its process answered a call that nobody made")
                _, answer, sent_s = worker.pending.popleft()
                if not answer.done():
                    # Time behind other calls is a queue's, not a cold start's.
                    answer.set_result(_told(header, result, max(sent_s, worker.ended_s)))
                worker.ended_s = header.ended_s
        except BadFrame as error:
            process.kill("failed", str(error))
        finally:
            loop.remove_reader(process.pipe)
            self._bury(worker)

    def _bury(self, worker: _Worker) -> None:
        """The worker died: its running call failed, the others go to another worker."""
        worker.gone = True
        self._workers.remove(worker)
        worker.process.drain(lambda data: None)
        os.close(worker.process.pipe)
        worker.writer.close()
        for group in (worker.process.group, worker.process.hold):
            self._give_back(group)
        outcome, reason = worker.process.stop_reason or ("failed", "its worker process died")
        for place, (_, answer, sent_s) in enumerate(worker.pending):
            if answer.done():
                continue
            if place == 0:
                answer.set_result(Finish(outcome, sent_s, time.monotonic(), reason=reason))
            else:
                answer.set_exception(_Again())


class _Again(Exception):
    """The worker died before this call's turn."""


async def _talk(process: Process, work: AttemptWork) -> Answer | None:
    """Send the call, read the answer; None when the child ended without one."""
    loop, channel = asyncio.get_running_loop(), process.channel
    with contextlib.suppress(OSError):
        await loop.sock_sendall(channel, child.request({**work.header(), **process.terms}, list(work.blobs)))
        channel.shutdown(socket.SHUT_WR)
        try:
            # A small answer comes whole with the first piece: each further read would be a turn of the loop.
            data = await _at_least(channel, child.HEAD.size)
            text_end = child.HEAD.size + _header_size(data[: child.HEAD.size]) if data else 0
            data = await _at_least(channel, text_end, data)
            if data:
                header = _header(data[child.HEAD.size : text_end])
                result = await _receive(channel, sum(header.sizes), data[text_end:])
                return None if result is None else (header, result)
        except BadFrame as error:
            process.kill("failed", str(error))
    return None


async def _at_least(channel: socket.socket, size: int, data: bytes = b"") -> bytes:
    """So many bytes or more, with those that came before; none where the channel ends first."""
    while len(data) < size:
        if not (more := await asyncio.get_running_loop().sock_recv(channel, LITTLE)):
            return b""
        data += more
    return data


async def _receive(channel: socket.socket, size: int, begun: bytes) -> bytes | None:
    """So many bytes, or None where the channel ends before. Between the pieces of a large result the loop goes on."""
    loop, pieces, left = asyncio.get_running_loop(), [begun[:size]], size - len(begun[:size])
    while left:
        if not (data := await loop.sock_recv(channel, min(left, PIECE))):
            return None
        pieces.append(data)
        left -= len(data)
        if size > PIECE:
            await asyncio.sleep(0)
    return await asyncio.to_thread(b"".join, pieces) if size > PIECE else b"".join(pieces)


def _header_size(head: bytes) -> int:
    size: int = child.HEAD.unpack(head)[0]
    if size > HEADER_BYTES:
        raise BadFrame("its process wrote what is no answer on its channel")
    return size


def _header(text: bytes) -> Header:
    try:
        header = _HEADER.decode(text)
    except msgspec.DecodeError as error:
        raise BadFrame(f"its process wrote what is no answer on its channel: {error}") from None
    if (following := sum(header.sizes)) > child.RESULT_BYTES:
        raise BadFrame(child.too_large(following))
    return header


async def _answer(reader: asyncio.StreamReader) -> Answer | None:
    """The next frame; None where the channel ends. Raises `BadFrame`."""
    try:
        size = _header_size(await reader.readexactly(child.HEAD.size))
        header = _header(await reader.readexactly(size))
        return header, await _read(reader, sum(header.sizes))
    except (asyncio.IncompleteReadError, OSError):
        return None


async def _read(reader: asyncio.StreamReader, size: int) -> bytes:
    """So many bytes. A large result comes in pieces between which the loop goes on."""
    if size <= PIECE:
        return await reader.readexactly(size)
    pieces = []
    for start in range(0, size, PIECE):
        pieces.append(await reader.readexactly(min(PIECE, size - start)))
        await asyncio.sleep(0)
    return await asyncio.to_thread(b"".join, pieces)


def _follow(process: Process, on_log: Callable[[bytes], None]) -> None:
    if not process.drain(on_log):
        asyncio.get_running_loop().remove_reader(process.pipe)


def _limited(work: AttemptWork) -> bool:
    """Say whether a control group is worth its cost: a function that names no memory is held to its CPUs anyway."""
    return work.memory_bytes > 0 or (work.command is not None and work.cpus > 0)


def _told(header: Header, result: bytes, asked_s: float) -> Finish:
    """A child's own account of its call."""
    outcome: Ending = "done" if header.ok else "refused" if header.refused else "failed"
    return Finish(
        outcome, header.started_s, header.ended_s, max(0.0, header.started_s - asked_s), header.cpu_s,
        result=result or None, reason=header.reason,
    )  # fmt: skip


def _finish(
    work: AttemptWork, asked_s: float, process: Process, answer: Answer | None, ended: dict[str, Any]
) -> Finish:
    """Bring what the child said, what the kernel said and why it was stopped into one account."""
    usage = {"cpu_s": ended["cpu_s"], "peak_bytes": ended["peak_bytes"]}
    now_s = time.monotonic()
    if process.stop_reason is not None:
        outcome, reason = process.stop_reason
        return Finish(outcome, asked_s, now_s, **usage, reason=reason)
    if answer is not None:
        told = _told(*answer, asked_s)
        return Finish(
            told.outcome, told.started_s, told.ended_s, told.cold_s, **usage, result=told.result, reason=told.reason
        )
    status = ended["status"]
    if work.command is not None and status == 0:
        return Finish("done", asked_s, now_s, **usage)
    if process.group is not None and process.group.out_of_memory():
        return Finish(
            "failed", asked_s, now_s, **usage, reason=f"used more than its {work.memory_bytes} bytes of memory"
        )
    if work.command is not None and status > 0:
        return Finish("failed", asked_s, now_s, **usage, reason=f"exit code {status}")
    reason = f"ended by signal {-status}" if status < 0 else f"ended with {status} before it answered"
    return Finish("failed", asked_s, now_s, **usage, reason=reason)

"""A warm zygote seen from the agent, the children that it forks, and functions held warm.

For each function that is held warm there is a *template*, a zygote that has loaded it, from which its tasks are forked.
A task's process is its own, as always; only the loading of the function and its modules is behind it when the task
comes. One template serves any number of tasks at once, so it stands for at least as many warm containers as the engine
counts. It goes when it has not been used for the node's keep-alive, the time after which the engine takes it for gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wattflow.runtime.aside import Background
from wattflow.runtime.executors import zygote as child
from wattflow.runtime.executors.limits import ControlGroup
from wattflow.runtime.executors.privileges import Privileges
from wattflow.runtime.messages import Ending

ZYGOTE = Path(child.__file__)
LOG_CHUNK = 1 << 16
LOAD_S = 120.0
"""Longest wait for a function to be loaded ahead of need."""
SPARES = child.MOST_FORKS
"""Children forked ahead of need, several at once when half are used: the next task finds a process that waits for it.
The zygote copies pages of its own once for all that it forks at once; one takes most of a megabyte."""


class Unfit(Exception):
    """A function that cannot be held ready: the message says why."""


class Process:
    """A forked child seen from the agent: its channel, its log pipe, its end."""

    def __init__(self, number: int, channel: socket.socket, pipe: int) -> None:
        self.number, self.channel, self.pipe = number, channel, pipe
        self.group: ControlGroup | None = None
        self.pid: int | None = None
        self.joins: list[str] = []
        self.terms: dict[str, Any] = {}
        self.hold: ControlGroup | None = None
        self.forked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop_reason: tuple[Ending, str] | None = None
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[dict[str, Any]] = loop.create_future()

    def begun(self, pid: int) -> None:
        """It is there; into its control groups it is brought from here where it may not join them itself."""
        self.pid = pid
        self.join(self.joins)
        if not self.forked.done():
            self.forked.set_result(None)

    def join(self, groups: list[str]) -> None:
        """Bring it into control groups from here, now or as soon as it is there."""
        self.joins = groups
        for path in groups if self.pid is not None else ():
            with contextlib.suppress(OSError):
                Path(path).write_text(str(self.pid))

    def kill(self, outcome: Ending, reason: str) -> None:
        """End it with everything it started. The first reason stands."""
        if self.stop_reason is None:
            self.stop_reason = (outcome, reason)
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of its channel and its log; a child that waits for a task ends then."""
        os.close(self.pipe)
        self.channel.close()

    def drain(self, on_log: Callable[[bytes], None]) -> bool:
        """Pass on what the pipe holds; False at its end."""
        try:
            while data := os.read(self.pipe, LOG_CHUNK):
                on_log(data)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


class Zygote:
    """One environment's zygote: starts it, forks through it, starts it again when it dies.

    Args:
        privileges: Whom its children become.
        owner: The one user whose code it loads itself, and whom it therefore is; None where it loads nobody's.
    """

    def __init__(
        self,
        python: str = sys.executable,
        preload: Sequence[str] = ("cloudpickle",),
        privileges: Privileges | None = None,
        owner: str | None = None,
    ) -> None:
        self.python, self.preload = python, tuple(preload)
        self.privileges = privileges or Privileges()
        self.owner = owner
        self.version = ""
        self._control: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._children: dict[int, Process] = {}
        self._spares: deque[Process] = deque()
        self._released: list[ControlGroup] = []
        self._number = 0
        self._ready: asyncio.Future[None] | None = None
        self._loading: asyncio.Future[dict[str, Any]] | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start it and wait until it can fork."""
        async with self._starting:
            if self._control is not None:
                return
            # Packets keep a message and its file descriptors together; a stream could deliver them apart.
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            alone = self.owner is not None and not self.privileges.contained
            who = self.privileges.become(self.owner or "") if alone else None
            changed = (
                {"user": who["uid"], "group": who["gid"], "extra_groups": who["groups"], "cwd": who["home"]}
                if who
                else {}
            )
            self._process = await asyncio.create_subprocess_exec(
                *self.privileges.command(self.python, ZYGOTE, theirs.fileno(), self.preload),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env=None if self.privileges.contained else self.privileges.environment(),
                **changed,
            )
            theirs.close()
            self._control = ours
            loop.add_reader(ours.fileno(), self._messages)
            await asyncio.wait_for(self._ready, 30)

    @property
    def alive(self) -> bool:
        """Return whether it can fork at once."""
        return self._control is not None

    @property
    def children(self) -> int:
        """How many of its children have a task."""
        return len(self._children) - sum(not spare.ended.done() for spare in self._spares)

    async def load(self, function: str, blob: bytes) -> float:
        """Load a function for all children to come; seconds that it took. Raises `Unfit`."""
        fd = os.memfd_create("function")
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(blob)
            os.lseek(fd, 0, os.SEEK_SET)
            self._loading = asyncio.get_running_loop().create_future()
            await self._ask({"op": "load", "function": function}, [fd])
            loaded = await asyncio.wait_for(self._loading, LOAD_S)
        except (OSError, TimeoutError) as error:
            raise Unfit(str(error) or f"it took longer than {LOAD_S:g} s") from None
        finally:
            os.close(fd)
        if loaded["reason"]:
            raise Unfit(loaded["reason"])
        return float(loaded["seconds"])

    async def fork(
        self, limits: dict[str, Any], group: ControlGroup | None, owner: str, hold: Callable[[], ControlGroup | None]
    ) -> Process:
        """A child of an owner's: one that was made ahead, or a new one. It becomes theirs with the call it is sent.

        Without a group that limits it, it is in one that holds it: made ahead it is there already.
        """
        # One made ahead is nobody's yet: user, limits and environment come with the call, before any payload is read.
        process = self._waiting() or (await self._fork([()]))[0]
        if group is None and process.hold is None and (held := hold()) is not None:
            process.hold, limits["hold"] = held, held.joins
        process.group, who = group, self.privileges.become(owner)
        # A child that is no root, or in a container, may not write the group's file: it is brought there from here.
        if self.privileges.contained or (who is not None and self.owner is not None):  # it could not join a group
            process.join([*limits.pop("groups", []), *limits.pop("hold", [])])
        process.terms = {"limits": limits, "become": who}
        return process

    async def fork_ahead(self, hold: Callable[[], ControlGroup | None]) -> None:
        """Make children for the tasks to come, each in a control group, which takes the kernel milliseconds to join."""
        if self._control is None or len(self._spares) > SPARES // 2:
            return
        alone = self.owner is not None and self.privileges.become(self.owner) is not None
        outside = self.privileges.contained or alone
        groups = [hold() for _ in range(SPARES - len(self._spares))]
        joins = [group.joins if group is not None else [] for group in groups]
        made = await self._fork([[] for _ in joins] if outside else joins)
        for process, group, paths in zip(made, groups, joins, strict=True):
            process.hold = group
            process.join(paths if outside else [])
        # Only after they are in their groups: a spare that is taken must need nothing more.
        self._spares += made

    def released(self) -> list[ControlGroup]:
        """Groups of children that were made ahead and died before they were needed."""
        left, self._released = self._released, []
        return left

    def _waiting(self) -> Process | None:
        while self._spares:
            process = self._spares.popleft()
            if not process.ended.done():
                return process
            self._let_go(process)
        return None

    def _let_go(self, process: Process) -> None:
        process.close()
        self._released += [process.hold] if process.hold is not None else []

    async def _fork(self, joins: Sequence[Sequence[str]]) -> list[Process]:
        """Make children, each of which joins these control groups by itself."""
        if self._control is None:
            await self.start()
        made, theirs = [], []
        for _ in joins:
            process, channel, pipe = self._new_child()
            made.append(process)
            theirs += [channel, pipe]
        wanted = [(process.number, list(paths)) for process, paths in zip(made, joins, strict=True)]
        try:
            await self._ask({"op": "fork", "children": wanted}, theirs)
        except OSError:
            self._lost()
            for process in made:
                self._never(process)
        finally:
            for fd in theirs:
                os.close(fd)
        return made

    def _new_child(self) -> tuple[Process, int, int]:
        """A child to be, with its ends of channel and log pipe."""
        self._number += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        pipe, their_pipe = os.pipe()
        os.set_blocking(pipe, False)
        process = self._children[self._number] = Process(self._number, ours, pipe)
        return process, theirs.detach(), their_pipe

    async def _ask(self, order: dict[str, Any], fds: list[int]) -> None:
        """Send an order; raises OSError where the zygote died before it was taken."""
        request = pickle.dumps(order, 5)
        while True:
            if self._control is None:
                raise OSError("the zygote is gone")
            try:
                socket.send_fds(self._control, [request], fds)
                return
            except BlockingIOError:
                await asyncio.sleep(0.001)

    def _never(self, process: Process) -> None:
        """A child that was not made after all: its end is known, nobody will tell it."""
        self._children.pop(process.number, None)
        process.kill("failed", "the zygote of its environment died")
        if not process.forked.done():
            process.forked.set_result(None)
        if not process.ended.done():
            process.ended.set_result({"status": -signal.SIGKILL, "cpu_s": 0.0, "peak_bytes": 0})

    def _messages(self) -> None:
        while self._control is not None:
            try:
                data = self._control.recv(child.MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lost()
                return
            self._take(json.loads(data))

    def _take(self, message: dict[str, Any]) -> None:
        if message["op"] == "ready":
            self.version = message["python"]
            if self._ready is not None and not self._ready.done():
                self._ready.set_result(None)
            return
        if message["op"] == "loaded":
            if self._loading is not None and not self._loading.done():
                self._loading.set_result(message)
            return
        if message["op"] == "forked":
            for number, pid in message["children"]:
                self._begun(self._children.get(number), pid)
            return
        process = self._children.pop(message["id"], None)
        if process is not None and not process.ended.done():
            process.ended.set_result(message)

    def _begun(self, process: Process | None, pid: int) -> None:
        if process is not None:
            process.begun(pid)
            if process.stop_reason is not None:
                process.kill(*process.stop_reason)

    def _lost(self) -> None:
        """The zygote died, and its children with it."""
        if self._control is None:
            return
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(OSError("the zygote ended before it was ready"))
        if self._loading is not None and not self._loading.done():
            self._loading.set_exception(OSError("the process that loaded it ended"))
        self._drop_spares()
        for process in list(self._children.values()):
            self._never(process)

    def _drop_spares(self) -> None:
        while self._spares:
            process = self._spares.popleft()
            self._children.pop(process.number, None)
            self._let_go(process)

    async def close(self) -> None:
        """End it and all its children."""
        self._drop_spares()
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), 5)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


log = logging.getLogger(__name__)
COLD_S = 0.05
"""A function that loads quicker is not worth a process."""
KEEP_S = 600.0
Key = tuple[str, str]
"""Owner and function: nobody is served from a process that loaded somebody else's code."""
MOST = 8
"""Templates on a node: each is a Python with the modules of its function, tens to hundreds of megabytes."""


class Templates:
    """The templates of one environment.

    Args:
        make: A zygote of the environment for an owner's code, not started.
        keep_s: How long one is held that nobody uses; 0 holds none.
    """

    def __init__(self, make: Callable[[str], Zygote], keep_s: float = KEEP_S) -> None:
        self._make, self._keep_s = make, keep_s
        self._ready: dict[Key, Zygote] = {}
        self._used_s: dict[Key, float] = {}
        self._making: dict[Key, asyncio.Task[float]] = {}
        self._unfit: set[Key] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing = Background()
        self.on_gone: Callable[[str], None] = lambda function: None

    async def warm(self, function: str, blob: bytes, owner: str = "") -> float:
        """Hold a function ready; seconds that it took, 0 where it is ready already. Raises `Unfit`."""
        if self._keep_s <= 0:
            raise Unfit("this node keeps nothing warm")
        key = (owner, function)
        if key in self._ready and self._ready[key].alive:
            self._used_s[key] = time.monotonic()
            return 0.0
        if key not in self._making:
            making = self._making[key] = asyncio.create_task(self._template(key, blob))
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(self._making[key])

    def warm_later(self, function: str, blob: bytes, owner: str = "") -> None:
        """Hold a function ready that has just had a cold start here, so that the next one has none."""
        key = (owner, function)
        # One that was found unfit is not tried at each cold start again.
        if self._keep_s <= 0 or key in self._unfit or key in self._making or key in self._ready:
            return
        making = self._making[key] = asyncio.create_task(self._template(key, blob))

        def done(task: asyncio.Task[float]) -> None:
            self._making.pop(key, None)
            if not task.cancelled() and isinstance(task.exception(), Unfit):
                self.on_gone(function)

        making.add_done_callback(done)

    async def zygote(self, function: str, owner: str = "") -> Zygote | None:
        """The owner's template of a function, once it is ready if it is being made; None where there is none."""
        key = (owner, function)
        # The task waits for the template rather than start cold beside it: both would load the same modules.
        if key in self._making:
            with contextlib.suppress(Unfit):
                await asyncio.shield(self._making[key])
        # By owner too: nobody's task is forked from a process that has run somebody else's module code.
        found = self._ready.get(key)
        if found is not None and not found.alive:
            self._drop(key)
            found = None
        if found is not None:
            self._used_s[key] = time.monotonic()
        return found

    async def close(self) -> None:
        """End all."""
        for task in list(self._making.values()):
            task.cancel()
        await asyncio.gather(*self._making.values(), return_exceptions=True)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for key in list(self._ready):
            self._drop(key, tell=False)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _template(self, key: Key, blob: bytes) -> float:
        began_s = time.monotonic()
        zygote = self._make(key[0])
        try:
            await zygote.start()
            await zygote.load(key[1], blob)
        except BaseException as error:
            await zygote.close()
            if isinstance(error, Unfit):
                self._unfit.add(key)
                log.info("a function is not held warm: %s", error)
            elif isinstance(error, (OSError, TimeoutError)):
                raise Unfit(f"no process could be made: {error}") from None
            raise
        self._ready[key] = zygote
        self._used_s[key] = time.monotonic()
        self._make_room()
        self._sweep()
        return time.monotonic() - began_s

    def _make_room(self) -> None:
        idle = [name for name, zygote in self._ready.items() if not zygote.children]
        for name in sorted(idle, key=self._used_s.__getitem__)[: max(0, len(self._ready) - MOST)]:
            self._drop(name)

    def _sweep(self) -> None:
        """Let go of what was not used for long, and look again when the next may be due."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        now_s = time.monotonic()
        for name, zygote in list(self._ready.items()):
            if zygote.children:
                self._used_s[name] = now_s
            elif now_s - self._used_s[name] >= self._keep_s:
                self._drop(name)
        if self._ready:
            due_s = min(self._used_s[name] for name in self._ready) + self._keep_s
            self._sweeper = asyncio.get_running_loop().call_later(max(0.01, due_s - now_s), self._sweep)

    def _drop(self, key: Key, tell: bool = True) -> None:
        zygote = self._ready.pop(key)
        self._used_s.pop(key, None)
        self._closing.begin(zygote.close())
        if tell:
            self.on_gone(key[1])

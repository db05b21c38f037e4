"""Functions held warm on a node: for each a zygote that has loaded it, from which its tasks are forked.

A task's process is its own, as always; only the loading of the function and its modules is behind it when the task
comes. One template serves any number of tasks at once, so it stands for at least as many warm containers as the engine
counts. It goes when it has not been used for the node's keep-alive, the time after which the engine takes it for gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from wattflow.runtime.executors.forking import Unfit, Zygote

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
        self._closing: set[asyncio.Task[None]] = set()
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
        closing = asyncio.create_task(zygote.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        if tell:
            self.on_gone(key[1])

"""The agent of a node: takes leases, runs them, tells what happened. It holds no state that outlives it.

Three loops share one outbox: *poll* waits at the server for leases, *report* brings news as soon as there are any
(what gathers while one report is under way goes with the next), *watch* samples CPU time and joules. News stay in the
outbox until the server has answered, so that a cut or a restart loses none. An exception ends none of the loops: what
raised is set aside, counted and logged. Only a server that does not want this agent ends it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from wattflow.model.errors import WattflowError
from wattflow.runtime import messages as m
from wattflow.runtime.aside import Away, Background, SetAside
from wattflow.runtime.clock import Clock
from wattflow.runtime.drivers.agents import NameTaken
from wattflow.runtime.executors.forking import Templates
from wattflow.runtime.executors.node_devices import NodeDevices
from wattflow.runtime.executors.privileges import Privileges
from wattflow.runtime.executors.process import AttemptWork, Finish
from wattflow.runtime.levelling import AgentLevels
from wattflow.runtime.logs import plain
from wattflow.runtime.machine import LoadReader
from wattflow.runtime.node_energy import NodeEnergy
from wattflow.runtime.tidying import sweep_folders, trim_own_log
from wattflow.runtime.transport import Denied, FenceNames, Outbox, Output, Transport, Unreachable

log = logging.getLogger(__name__)
POLL_S = 1.0
SAMPLE_S = 0.2
TELL_START_S = 0.25
CACHED_OBJECTS = 256
KNOWN_FENCES, KNOWN_ENDS = 65_536, 4096
WARM_UP_TRIES = 5
TRY_AGAIN_S = 0.2
TIDY_EVERY_S = 600.0
NAME_TAKEN_S = 8.0
"""An agent whose node's name is another's asks for so long; then it ends and says so."""


class Executor(Protocol):
    """The calls that an agent makes to whatever runs its attempts."""

    async def start(self) -> None:
        """Be ready to run."""

    def stop(self, fence: int) -> None:
        """End an attempt."""

    def cpu_s(self) -> Mapping[int, float]:
        """CPU seconds so far of everything that runs, by fence."""

    async def close(self) -> None:
        """End everything."""


@runtime_checkable
class Warmth(Protocol):
    """An executor that can hold functions ready ahead of need."""

    templates: Templates


@runtime_checkable
class IsolatingExecutor(Protocol):
    """An executor that keeps tasks of different users apart."""

    @property
    def privileges(self) -> Privileges:
        """Whom tasks run as here."""


class Loads(Protocol):
    """Tells what the machine looks like."""

    def read(self, watts: float | None = None, provenance: str = "modelled", gpu_busy: Sequence[float] = ()) -> m.Load:
        """Now, with what others measure."""

    def close(self) -> None:
        """Look no more."""


class Agent:
    """One node's agent.

    Args:
        folder: Where tasks that are commands run, one folder each while they do.
        on_sleep: Called when the server wants the node asleep.
        load: What tells how busy the machine is; the kernel's files where None.
    """

    def __init__(
        self,
        transport: Transport,
        node: m.Node,
        executor: Executor,
        energy: NodeEnergy,
        devices: NodeDevices,
        folder: Path,
        on_sleep: Callable[[], None] | None = None,
        load: Loads | None = None,
    ) -> None:
        self.node, self.boot = node, uuid.uuid4().hex
        self._transport, self._executor, self._energy, self._devices = transport, executor, energy, devices
        self._folder, self._on_sleep = folder, on_sleep
        self._privileges = executor.privileges if isinstance(executor, IsolatingExecutor) else Privileges()
        self._privileges.work = self._privileges.work or folder
        self._away = Away(log, "the server")
        self._clock, self._load = Clock(), load or LoadReader()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._at_work: dict[int, str] = {}
        self._outputs: dict[int, Output] = {}
        self._names = FenceNames()
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._ends: OrderedDict[int, m.Ended] = OrderedDict()
        self._outbox, self.aside = Outbox(), SetAside()
        self._news = asyncio.Event()
        self._warming = Background()
        self._name_of: OrderedDict[str, str] = OrderedDict()
        if isinstance(executor, Warmth):
            executor.templates.on_gone = self._cooled
        self.levels = AgentLevels()
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Warm up, announce the node, begin."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Before the node is announced: a lease that comes at once finds a process.
        await self._warm_up()
        # The first window must be open before the first lease can come: CPU time from before it is in no window, and
        # a task that had ended by then would be told nought joules.
        with self.aside.guard("first reading of", self.node.name):
            await asyncio.to_thread(self._energy.sample, self._clock.now(), {})
        await self._announce()
        loops = (self._poll, self._report, self._watch, self._tidy, self._look_after_levels)
        self._loops = [asyncio.create_task(self._for_ever(one)) for one in loops]

    async def _warm_up(self) -> None:
        """Make processes possible. A zygote that is killed while it starts is started again, a few times."""
        for tries_left in reversed(range(WARM_UP_TRIES)):
            try:
                await self._executor.start()
                return
            except (OSError, TimeoutError) as error:
                if tries_left == 0:
                    raise WattflowError(f"no process could be made here: {error}") from None
                log.warning("%s; trying again", error or type(error).__name__)

    async def run(self) -> None:
        """Work until cancelled; ends with an error when the server denies this agent."""
        await self.start()
        try:
            await asyncio.gather(*self._loops)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End everything that runs here."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        for task in [*self._tasks.values(), *self._warming]:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._warming, return_exceptions=True)
        self.levels.close()
        await self._executor.close()
        await self._devices.close()
        self._energy.close()
        self._load.close()
        await self._transport.close()

    # ---- the three loops

    async def _for_ever(self, once: Callable[[], Awaitable[None]]) -> None:
        """Do one thing again and again; what raises is set aside, and the loop goes on."""
        while True:
            try:
                await once()
            except Exception as error:
                # Only the server's word that this agent is not wanted ends it; everything else may pass.
                if isinstance(error, NameTaken) or (isinstance(error, Denied) and error.of_me):
                    raise
                self.aside.put("turn of the agent's loop", once.__name__.lstrip("_"), error)
                await asyncio.sleep(TRY_AGAIN_S)

    async def _poll(self) -> None:
        await self._turn(self._sync(wait_s=POLL_S))
        await asyncio.sleep(0)  # a server in this process answers without ever waiting

    async def _report(self) -> None:
        await self._news.wait()
        self._news.clear()
        out = self._outbox.take()
        # More than fits into one report: the rest goes at once, not with the next event.
        if not self._outbox.empty:
            self._news.set()
        if out.empty:
            return
        try:
            told = await self._turn(self._sync(**out.fields()))
        except (Denied, ValueError, TypeError) as error:  # something in it cannot be sent, or is not taken
            if isinstance(error, Denied) and error.of_me:
                raise
            await self._report_each(out)
            return
        # In front of what came meanwhile, so the server hears of things in their order.
        if not told:
            self._outbox.put_back(out)
            self._news.set()

    async def _report_each(self, out: Outbox) -> None:
        """Tell news one by one. What cannot be told is set aside; of an end at least its outcome is."""
        for kind, one, box in out.singles():
            try:
                if not await self._turn(self._sync(**box.fields())):
                    self._outbox.put_back(box)
                    self._news.set()
            except (Denied, ValueError, TypeError) as error:
                if isinstance(error, Denied) and error.of_me:
                    raise
                reason = self.aside.put(f"news ({kind}) of", getattr(one, "fence", self.node.name), error)
                if isinstance(one, m.Ended) and one != (bare := _bare(one, reason)):
                    self._tell_end(bare)

    async def _watch(self) -> None:
        await asyncio.sleep(SAMPLE_S)
        self._devices.sample()
        used = {**self._executor.cpu_s(), **self._devices.cpu_s()}
        joules, window = self._energy.sample(self._clock.now(), used)
        joules = self._devices.with_device_energy(joules)
        if joules or window is not None:
            self._outbox.energy += [m.TaskEnergy(self._names.now(one.fence), one.energy) for one in joules]
            self._outbox.windows.extend([window] if window is not None else [])
            self._news.set()

    async def _tidy(self) -> None:
        """Let go of what piles up: work folders of workflows that are long over, this process's own log."""
        gone = await asyncio.to_thread(sweep_folders, self._folder, frozenset(self._at_work.values()))
        if gone:
            log.warning("%d work folders that nobody used for long are removed", gone)
        await asyncio.to_thread(trim_own_log)
        await asyncio.sleep(TIDY_EVERY_S)

    async def _look_after_levels(self) -> None:
        """Notice what became of clocks and limits; what can be set no more, or again, is announced."""
        await self.levels.look()
        if self.levels.changed.is_set():
            self.levels.changed.clear()
            await self._announce()

    async def _turn(self, sync: m.Sync) -> bool:
        """One request; False when the server could not be reached."""
        try:
            orders = await self._transport.sync(sync)
            if orders.announce:
                await self.levels.forget()  # a server that does not know this node ordered none of them
                await self._announce()
        except Unreachable as error:
            self._away.failed(error)
            await asyncio.sleep(TRY_AGAIN_S)
            return False
        self._away.answered()
        self.levels.heard()
        for level in orders.levels:
            with self.aside.guard("level of", level.kind):
                await self.levels.order(level)
        for lease in orders.leases:
            self._take(lease)
        for fence in orders.stop:
            with self.aside.guard("stop of attempt", fence):
                self._stop(fence)
        for order in orders.warm:
            self._warming.begin(self._warm(order))
        if orders.power == "sleep" and self._on_sleep is not None:
            self._on_sleep()
        return not orders.announce

    def _sync(self, **news: Any) -> m.Sync:
        load = None
        if "wait_s" in news:
            load = self._load.read(self._energy.watts, str(self._energy.provenance), self._devices.busy())
        return m.Sync(node=self.node.name, boot=self.boot, holding=list(self._tasks), load=load, **news)

    async def _announce(self) -> None:
        """Say what this node is, for as long as it takes to reach the server. A name that another agent has is asked
        for a while longer: that one may be dead and not given up yet."""
        taken_until_s = time.monotonic() + NAME_TAKEN_S
        while True:
            try:
                await self._transport.announce(self.levels.describe(self.node), self.boot)
                self._away.answered()
                return
            except (Unreachable, NameTaken, Denied) as error:
                if isinstance(error, Denied) and error.status != 409:
                    raise
                if not isinstance(error, Unreachable) and time.monotonic() > taken_until_s:
                    raise
                self._away.failed(error)
                await asyncio.sleep(TRY_AGAIN_S)

    # ---- functions held ready

    async def _warm(self, order: m.Warm) -> None:
        """Hold a function ready, with all its variants, and tell what became of it."""
        executor, seconds, problem = self._executor, 0.0, ""
        if not isinstance(executor, Warmth):
            problem = "this node cannot hold functions ready"
        elif order.python != self.node.python:
            problem = f"it was made by Python {order.python}, this node runs {self.node.python}"
        else:
            try:
                for name in order.objects:
                    self._note_name(name, order.function_name)
                    seconds += await executor.templates.warm(name, await self._object(name), order.owner)
            except Exception as error:  # of the function's own modules, too
                problem = plain(str(error) or type(error).__name__, 500)
        self._outbox.warmed.append(m.Warmed(order.function_name, not problem, seconds, problem))
        self._news.set()

    def _cooled(self, function: str) -> None:
        """Tell that what was warm is not any more, or could not be made so after a cold start."""
        name = self._name_of.get(function)
        if name is not None:
            self._outbox.warmed.append(m.Warmed(name, False, reason="given up after its keep-alive, or not fit for it"))
            self._news.set()

    def _note_name(self, function: str, name: str) -> None:
        self._name_of[function] = name
        self._name_of.move_to_end(function)
        while len(self._name_of) > CACHED_OBJECTS:
            self._name_of.popitem(last=False)

    # ---- attempts

    def _take(self, lease: m.Lease) -> None:
        """Begin an attempt, once, or go on with the one that it adopts. The server sends again what it knows no end of:
        that is told again, too."""
        if lease.fence in self._seen:
            # Its end was told and the answer lost, or the server restarted before it was on disk.
            if lease.fence not in self._tasks and (end := self._ends.get(lease.fence)) is not None:
                self._tell_end(end)
            return
        self._seen[lease.fence] = None
        while len(self._seen) > KNOWN_FENCES:
            self._seen.popitem(last=False)
        if lease.adopts is not None and self._adopt(lease.adopts, lease.fence):
            return
        self._at_work[lease.fence] = lease.workflow
        self._tasks[lease.fence] = asyncio.create_task(self._attempt(lease))

    def _adopt(self, before: int, fence: int) -> bool:
        """Go on with an attempt under another fence; False where it neither runs nor has come to an end of its own."""
        if before in self._tasks:
            self._names.rename(before, fence)
            self._tasks[fence], self._at_work[fence] = self._tasks.pop(before), self._at_work.pop(before)
            if (output := self._outputs.pop(before, None)) is not None:
                self._outputs[fence] = output
                output.goes_on(fence)
            return True
        end = self._ends.get(before)
        if end is None or end.outcome not in ("done", "failed", "time_limit"):
            return False
        self._tell_end(msgspec.structs.replace(end, fence=fence))
        return True

    def _stop(self, fence: int) -> None:
        first = self._names.first(fence)
        self._executor.stop(first)
        self._devices.stop(first)

    async def _attempt(self, lease: m.Lease) -> None:
        """Run an attempt and tell its end, whatever goes wrong: a fence that is held for ever is a lost task."""
        began_s = self._clock.now()
        # Most tasks are over before that: their end says when they began, and a report is saved.
        tell = asyncio.get_running_loop().call_later(TELL_START_S, self._started, lease.fence, began_s)
        output = self._outputs[lease.fence] = Output(lease.fence, self._transport)
        try:
            end = await self._ending(lease, output)
        except Exception as error:
            reason = self.aside.put("attempt", lease.fence, error)
            end = m.Ended(fence=lease.fence, outcome="refused", reason=f"its agent failed: {reason}")
        finally:
            tell.cancel()
            fence = self._names.now(lease.fence)
            for held in (self._tasks, self._at_work, self._outputs):
                held.pop(fence, None)
        self._tell_end(msgspec.structs.replace(end, fence=fence))

    def _tell_end(self, end: m.Ended) -> None:
        self._ends[end.fence] = end
        while len(self._ends) > KNOWN_ENDS:
            self._ends.popitem(last=False)
        self._outbox.ended.append(end)
        self._news.set()

    async def _ending(self, lease: m.Lease, output: Output) -> m.Ended:
        try:
            finish = await self._execute(lease, output)
        except (Denied, KeyError, ValueError, OSError) as error:
            finish = Finish("refused", 0.0, 0.0, reason=f"its data could not be brought: {error}")
        except Unreachable as error:
            finish = Finish("refused", 0.0, 0.0, reason=str(error))
        use = self._devices.use(lease.fence)
        await output.flush()
        result = None
        if finish.result is not None:
            try:
                result = await self._keep(finish.result)
            except Denied as error:
                finish = replace(finish, outcome="failed", reason=f"its result is not kept: {error}")
        # Before the end is told: the server may ask for joules as soon as it knows of the end.
        self._energy.ended(lease.fence, finish.cpu_s)
        return m.Ended(
            fence=lease.fence, outcome=finish.outcome, cold_s=finish.cold_s, cpu_s=finish.cpu_s,
            started_s=self._clock.of_monotonic(finish.started_s) if finish.started_s else None,
            ended_s=self._clock.of_monotonic(finish.ended_s) if finish.ended_s else None,
            peak_bytes=finish.peak_bytes, result=result, gpu=use,
            reason=plain(finish.reason) if finish.reason is not None else None,
        )  # fmt: skip

    def _started(self, fence: int, began_s: float) -> None:
        """Worth telling only of what lasts: the end of a short attempt says when it began, too."""
        self._outbox.started.append((self._names.now(fence), began_s, 0.0))
        self._news.set()

    async def _execute(self, lease: m.Lease, output: Output) -> Finish:
        spec, variant = lease.spec, lease.spec.variants[lease.variant]
        function = variant.function or spec.function
        blobs: list[bytes] = []
        if function is not None and spec.call is not None:
            self._note_name(function, spec.function_name)
            blobs = [await self._object(function), await self._bytes(spec.call)]
            blobs += [await self._bytes(blob) for blob in lease.inputs]
        environment = {**spec.environment, "WATTFLOW_TASK": str(lease.task), "WATTFLOW_ATTEMPT": str(lease.number),
                       "WATTFLOW_NODE": lease.node}  # fmt: skip
        folder = None
        if spec.command is not None:
            folder = self._privileges.folder(lease.owner, lease.workflow)
        isolate = spec.isolate or spec.command is not None
        work = AttemptWork(
            fence=lease.fence, command=spec.command, python=spec.python or "", function=function or "", blobs=blobs,
            owner=lease.owner, environment=environment, folder=str(folder) if folder else None, isolate=isolate,
            cpus=variant.cpus,
            memory_bytes=variant.memory_bytes, timeout_s=spec.timeout_s, on_log=output.add,
        )  # fmt: skip
        async with self.levels.held(lease):
            return await self._devices.run(lease, work, self._executor)

    async def _keep(self, data: bytes) -> m.Blob:
        """A result as it travels; large ones become objects first, for as long as it takes to reach the server."""
        if len(data) <= m.INLINE_BYTES:
            return m.Blob(data=data)
        while True:
            try:
                return m.Blob(object=await self._transport.put(data))
            except Unreachable:
                await asyncio.sleep(TRY_AGAIN_S)

    async def _bytes(self, blob: m.Blob) -> bytes:
        if blob.data is not None:
            return blob.data
        return await self._object(blob.object) if blob.object is not None else b""

    async def _object(self, name: str) -> bytes:
        if name in self._objects:
            self._objects.move_to_end(name)
            return self._objects[name]
        data = await self._transport.get(name)
        # Functions and small arguments are asked for again and again; a large array is used once.
        if len(data) <= 16 << 20:
            self._objects[name] = data
            while len(self._objects) > CACHED_OBJECTS:
                self._objects.popitem(last=False)
        return data


def _bare(end: m.Ended, reason: str) -> m.Ended:
    """An end that says no more than that: the whole one could not be told."""
    return m.Ended(fence=end.fence, outcome="failed", reason=plain(f"its end could not be told: {reason}", 500))

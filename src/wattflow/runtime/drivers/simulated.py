"""A cluster that is not there: nodes of a cluster description, played in real time by the server's own process.

Everything but the machines is real: the server, its store and engine, leases, ends, joules, restarts. A command lasts
as long as its task's estimate says on its node and is not started; a function is really called, for its result, and
lasts as long as its estimate where it has one. Joules are those of the node's curve for what it plays: modelled, as
everything here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from wattflow.energy.virtual import DEMO_CURVE
from wattflow.model import cluster as model
from wattflow.model.profile import PowerProfile
from wattflow.runtime import facts
from wattflow.runtime import messages as m
from wattflow.runtime.agent import Agent
from wattflow.runtime.drivers.agents import AgentsDriver
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.drivers.local import Keeper
from wattflow.runtime.executors.forking import Zygote
from wattflow.runtime.executors.node_devices import NodeDevices
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor
from wattflow.runtime.node_energy import NodeEnergy
from wattflow.runtime.transport import DirectTransport
from wattflow.store.objects import Objects

log = logging.getLogger(__name__)
CALLS_AT_ONCE = 2
"""Real calls of reused workers that this machine serves at the same time."""


class SimulatedDriver(AgentsDriver):
    """Plays the nodes of a cluster.

    Args:
        folder: Where its virtual meters live.
    """

    name = "simulated"
    queues = False

    def __init__(self, objects: Objects, cluster: model.Cluster, folder: Path, lost_after_s: float = 60.0) -> None:
        super().__init__(lost_after_s)
        self._objects, self._folder = objects, folder
        self._nodes = {node.name: facts.node_message(node) for node in cluster.nodes}
        if lacking := sorted({name for node in cluster.nodes for name in facts.unplayed(node)}):
            log.warning("cluster %s is played without what it says of %s", cluster.name, ", ".join(lacking))
        self._calls: ProcessExecutor | None = None
        self._keeper = Keeper()

    async def start(self, sink: Sink) -> None:
        """Start what plays the nodes; what ends by a fault is started again."""
        await super().start(sink)
        self._calls = calls = ProcessExecutor(Zygote(), CALLS_AT_ONCE)
        await calls.start()
        for node in self._nodes.values():
            self._keeper.keep(node.name, partial(self._agent, node, calls), sink.aside)

    async def stop(self) -> None:
        """End everything that plays."""
        await super().stop()
        await self._keeper.stop()
        if self._calls is not None:
            await self._calls.close()

    def power(self, node: str, *, on: bool) -> None:
        """Nodes fall asleep at once and wake after their time."""
        loop = asyncio.get_running_loop()
        if on:
            loop.call_later(self._nodes[node].wake_s, self.sink.announce, self._nodes[node])
        else:
            loop.call_soon(self.sink.asleep, node)

    def _agent(self, node: m.Node, calls: ProcessExecutor) -> Agent:
        stage = Stage(node, calls)
        folder = self._folder / node.name
        curve = model_curve(node)
        energy = NodeEnergy(curve, folder / "meter", machine=stage.machine)
        transport, load = DirectTransport(self, self._objects), PlayedLoad(node, stage)
        return Agent(transport, node, stage, energy, stage, folder / "work", load=load)


class PlayedLoad:
    """How busy a played node looks: by what is played there, not by the machine that plays."""

    def __init__(self, node: m.Node, stage: Stage) -> None:
        self._cpus, self._stage, self._last = node.cpus, stage, (time.monotonic(), 0.0)

    def read(self, watts: float | None = None, provenance: str = "modelled", gpu_busy: Sequence[float] = ()) -> m.Load:
        """Share of its processors that was at work since the last reading, and the memory asked for."""
        (since_s, past_s), now_s = self._last, time.monotonic()
        worked_s = self._stage.machine()["machine"]
        self._last = (now_s, worked_s)
        busy = (worked_s - past_s) / (self._cpus * max(1e-9, now_s - since_s))
        return m.Load(
            cpu_busy=min(1.0, max(0.0, busy)),
            memory_used_bytes=sum(self._stage.memory_bytes.values()),
            watts=watts,
            provenance=provenance,
            gpu_busy=list(gpu_busy),
        )

    def close(self) -> None:
        """Nothing to let go of."""


class Stage(NodeDevices):
    """One played node: its executor and its devices at once, as an agent wants them."""

    def __init__(self, node: m.Node, calls: ProcessExecutor) -> None:
        super().__init__()
        self._node, self._calls = node, calls
        self._stopped: dict[int, asyncio.Event] = {}
        self._since_s: dict[int, tuple[float, float]] = {}
        self._over_s = 0.0
        self.memory_bytes: dict[int, int] = {}

    async def start(self) -> None:
        """The calls' processes are ready already."""

    async def close(self) -> None:
        """The calls' processes are the driver's."""

    async def run(self, lease: m.Lease, work: AttemptWork, processes: object) -> Finish:
        """Play an attempt."""
        variant = lease.spec.variants[lease.variant]
        estimate_s = lease.spec.estimate_s
        stopped = self._stopped[lease.fence] = asyncio.Event()
        began_s = time.monotonic()
        self.memory_bytes[lease.fence] = variant.memory_bytes
        # Never nought: a played attempt without CPU time would draw nothing and have no joules.
        self._since_s[lease.fence] = (began_s, max(variant.cpus, 1e-3))
        try:
            called = None
            if work.command is None or estimate_s is None:
                called = await self._calls.run(work)
                # A function that failed has nothing to play; without an estimate its own time is all there is.
                if called.outcome != "done" or estimate_s is None:
                    return called
            assert estimate_s is not None
            lasts_s = estimate_s * variant.runtime_factor / self._node.speed
            outcome, reason = await self._play(began_s, lasts_s, lease.spec.timeout_s, stopped)
            ended_s = time.monotonic()
            cpu_s = (ended_s - began_s) * variant.cpus
            result = called.result if called is not None and outcome == "done" else None
            return Finish(outcome, began_s, ended_s, cpu_s=cpu_s, result=result, reason=reason)
        finally:
            del self._stopped[lease.fence], self.memory_bytes[lease.fence]
            since_s, cpus = self._since_s.pop(lease.fence)
            # Kept in the machine's sum: CPU time that vanished would be negative joules in the next window.
            self._over_s += (time.monotonic() - since_s) * cpus

    def stop(self, fence: int) -> None:
        """End a played attempt, and the call below it."""
        self._calls.stop(fence)
        if fence in self._stopped:
            self._stopped[fence].set()

    def cpu_s(self) -> Mapping[int, float]:
        """CPU seconds of what is being played."""
        now_s = time.monotonic()
        return {fence: (now_s - since_s) * cpus for fence, (since_s, cpus) in self._since_s.items()}

    def machine(self) -> Mapping[str, float]:
        """CPU seconds of the node that is played."""
        return {"machine": self._over_s + sum(self.cpu_s().values())}

    async def _play(
        self, began_s: float, lasts_s: float, limit_s: float | None, stopped: asyncio.Event
    ) -> tuple[m.Ending, str | None]:
        """Let the time pass; what ends it first is the outcome."""
        until_s = min(lasts_s, limit_s) if limit_s else lasts_s
        try:
            await asyncio.wait_for(stopped.wait(), max(0.0, began_s + until_s - time.monotonic()))
            return "cancelled", "cancelled"
        except TimeoutError:
            pass  # nobody stopped it: its time is over
        if limit_s and limit_s < lasts_s:
            return "time_limit", f"ran longer than its {limit_s:g} s"
        return "done", None


def model_curve(node: m.Node) -> PowerProfile:
    """The curve of a node's announcement; the demonstration's where it has none."""
    if not node.busy:
        return DEMO_CURVE
    return PowerProfile(tuple(node.busy), tuple(node.watts))

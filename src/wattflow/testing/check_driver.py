"""The drivers' conformance suite: what every driver must keep, as checks that a user's own driver can be put through.

    asyncio.run(check_driver(lambda objects: MyDriver(objects), folder))

Real functions and commands run through the driver; a sink of our own hears what it reports. All failures are told
together.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from wattflow.runtime import messages as m
from wattflow.runtime.aside import SetAside
from wattflow.runtime.drivers.base import Driver
from wattflow.store.objects import FolderObjects, Objects

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(slots=True)
class HearingSink:
    """Keeps everything that a driver reports."""

    nodes: dict[str, m.Node] = field(default_factory=dict)
    ends: dict[int, list[m.Ended]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    logs: dict[int, bytearray] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    warm: list[m.Warmed] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    aside: SetAside = field(default_factory=SetAside)

    def announce(self, node: m.Node) -> None:
        """Hear of a node that is here."""
        self.nodes[node.name] = node
        self.changed.set()

    def gone(self, node: str, reason: str) -> None:
        """Hear of a node that is lost."""
        self.nodes.pop(node, None)
        self.lost.append(f"{node}: {reason}")
        self.changed.set()

    def returned(self, node: str, fences: Sequence[int]) -> None:
        """Hear of a lost node that is back."""

    def asleep(self, node: str) -> None:
        """Hear of a node that sleeps."""

    def started(self, fence: int, started_s: float, cold_s: float) -> None:
        """Hear that an attempt runs."""
        self.starts.append(fence)
        self.changed.set()

    def ended(self, end: m.Ended) -> None:
        """Hear that an attempt is over."""
        self.ends.setdefault(end.fence, []).append(end)
        self.changed.set()

    def energy(self, joules: m.TaskEnergy) -> None:
        """Hear an attempt's joules."""

    def window(self, node: str, window: m.Window) -> None:
        """Hear a node's joules."""

    def load(self, node: str, load: m.Load) -> None:
        """Describe what a node looks like."""

    def warmed(self, node: str, told: m.Warmed) -> None:
        """Hear that a function is held ready, or cannot be."""
        self.warm.append(told)
        self.changed.set()

    def log(self, fence: int, offset: int, data: bytes) -> None:
        """Keep output from a place on; repeated bytes are skipped, as in the service."""
        kept = self.logs.setdefault(fence, bytearray())
        # Drivers may send output again after a reconnection, from an earlier place on.
        kept += data[max(0, len(kept) - offset) :]
        self.changed.set()

    def now(self) -> float:
        """Return the wall clock's time."""
        return time.time()

    async def until(self, true: Callable[[], bool], for_s: float) -> bool:
        """Wait for something to become true."""
        end_s = time.monotonic() + for_s
        while not true():
            # Cleared before the wait and after the test: a change in between is seen at the next turn.
            self.changed.clear()
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            try:
                await asyncio.wait_for(self.changed.wait(), left_s)
            except TimeoutError:
                continue
        return True


class Rig:
    """A driver under test with its sink and objects.

    Args:
        patience_s: How long any one thing may take.
    """

    def __init__(self, driver: Driver, objects: Objects, patience_s: float) -> None:
        self.driver, self.objects, self.patience_s = driver, objects, patience_s
        self.sink = HearingSink()
        # In the form of attempts' ids (`engine.kinds`); by process, so that two runs on one cluster do not
        # meet.
        self._fences = itertools.count((3 << 59) + (os.getpid() << 20))

    def lease(self, function: Callable[..., Any] | None = None, *args: object, **about: Any) -> m.Lease:
        """Make a lease of a call, or of ``command=…``, on the first node."""
        inputs = about.pop("inputs", [])
        spec = {"key": "t", "name": "t", **about}
        if function is not None:
            spec |= {
                "function": self.objects.put(cloudpickle.dumps(function)),
                "python": PYTHON,
                "call": m.Blob(data=cloudpickle.dumps((args, {}))),
            } | about
        fence = next(self._fences)
        # Always the same node: the first by name.
        return m.Lease(fence=fence, task=fence % 1000, number=1, node=min(self.sink.nodes), workflow="check",
                       spec=m.Task(**spec), inputs=inputs)  # fmt: skip

    async def end(self, *leases: m.Lease) -> list[m.Ended]:
        """Launch and wait for all ends; exactly one each."""
        self.driver.launch(list(leases))
        await self.ended(*leases)
        return [self.sink.ends[lease.fence][0] for lease in leases]

    async def ended(self, *leases: m.Lease) -> None:
        """Wait for all ends."""
        there = await self.sink.until(lambda: all(lease.fence in self.sink.ends for lease in leases), self.patience_s)
        missing = sum(lease.fence not in self.sink.ends for lease in leases)
        assert there, f"{missing} of {len(leases)} attempts were never reported as ended"


async def check_driver(
    make: Callable[[Objects], Driver], folder: Path, patience_s: float = 60.0, skip: frozenset[str] = frozenset()
) -> list[str]:
    """Put a driver through every check; returns the names of those it passed, raises with all that it failed.

    Args:
        make: The driver, not started yet.
        folder: For objects and other files; all nodes must see it under this path.
        skip: Checks that cannot hold for it, by name; say why where you call it.
    """
    objects = FolderObjects(folder / "objects")
    driver = make(objects)
    rig = Rig(driver, objects, patience_s)
    passed, failed = [], []
    await driver.start(rig.sink)
    # The order of a real start: a driver must bear an empty resume.
    driver.resume([], [])
    try:
        for name, check in CHECKS.items():
            if name in skip:
                continue
            try:
                await check(rig)
                passed.append(name)
            # Only assertions: any other error is a fault of the driver or of the suite, and ends it with its
            # traceback.
            except AssertionError as error:
                failed.append(f"{name}: {error}")
    finally:
        await driver.stop()
    if failed:
        raise AssertionError(
            f"driver {driver.name!r} fails {len(failed)} of {len(CHECKS)} checks:\n" + "\n".join(failed)
        )
    return passed


async def _announces_nodes(rig: Rig) -> None:
    assert await rig.sink.until(lambda: bool(rig.sink.nodes), rig.patience_s), "no node was announced"
    for node in rig.sink.nodes.values():
        assert node.cpus > 0 and node.memory_bytes > 0, f"node {node.name} offers nothing"


async def _runs_calls(rig: Rig) -> None:
    (end,) = await rig.end(rig.lease(lambda x: x + 1, 41))
    assert end.outcome == "done", end
    assert end.result is not None and end.result.data is not None and cloudpickle.loads(end.result.data) == 42
    assert end.started_s is not None and end.ended_s is not None and end.ended_s >= end.started_s, "times are missing"


async def _passes_results_of_parents(rig: Rig) -> None:
    import io

    class _Refers(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, value: object) -> str | None:
            # An argument by reference: the worker must put the parent's result in its place.
            return "0" if value is Ellipsis else None

    buffer = io.BytesIO()
    _Refers(buffer, 5).dump(((...,), {}))
    given = m.Blob(data=cloudpickle.dumps("from the parent"))
    (end,) = await rig.end(rig.lease(lambda x: x.upper(), call=m.Blob(data=buffer.getvalue()), inputs=[given]))
    assert end.result is not None and cloudpickle.loads(end.result.data) == "FROM THE PARENT", end


async def _large_results_become_objects(rig: Rig) -> None:
    # More than rides in a message (`messages.INLINE_BYTES`).
    (end,) = await rig.end(rig.lease(lambda: b"x" * 200_000))
    assert end.result is not None and end.result.object is not None, "a result of 200 kB rides in the message"
    assert len(cloudpickle.loads(rig.objects.get(end.result.object))) == 200_000


async def _tells_errors(rig: Rig) -> None:
    (end,) = await rig.end(rig.lease(int, "x"))
    assert end.outcome == "failed" and "ValueError" in (end.reason or ""), end


async def _runs_commands(rig: Rig) -> None:
    good, bad, none = await rig.end(
        rig.lease(command=["sh", "-c", 'test "$WORD" = yes'], environment={"WORD": "yes"}),
        rig.lease(command=["sh", "-c", "exit 5"]),
        rig.lease(command=["there-is-no-such-program"]),
    )
    assert good.outcome == "done", good
    assert bad.outcome == "failed" and "5" in (bad.reason or ""), bad
    # 127 is the shell's "not found", which drivers without a shell must report alike.
    assert none.outcome == "failed" and "127" in (none.reason or ""), none


async def _brings_output(rig: Rig) -> None:
    lease = rig.lease(command=["sh", "-c", "echo to out; echo to err >&2"])
    await rig.end(lease)
    await rig.sink.until(lambda: b"err" in rig.sink.logs.get(lease.fence, b""), 5)
    kept = bytes(rig.sink.logs.get(lease.fence, b""))
    assert b"to out\n" in kept and b"to err\n" in kept, f"output was {kept!r}"


async def _refuses_other_pythons(rig: Rig) -> None:
    (end,) = await rig.end(rig.lease(lambda: 1, python="2.7"))
    assert end.outcome == "refused" and "2.7" in (end.reason or ""), end


async def _refuses_what_it_cannot_bring(rig: Rig) -> None:
    (end,) = await rig.end(rig.lease(lambda: 1, call=m.Blob(object="0" * 64)))
    assert end.outcome == "refused", end


async def _survives_deaths(rig: Rig) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    dead, alive = await rig.end(rig.lease(die), rig.lease(lambda: "alive"))
    # Either: a driver may not be able to tell a killed worker from a lost node.
    assert dead.outcome in ("failed", "node_lost"), dead
    assert alive.outcome == "done", alive


async def _keeps_time_limits(rig: Rig) -> None:
    (end,) = await rig.end(rig.lease(time.sleep, 3600, timeout_s=1.0))
    assert end.outcome == "time_limit", end


async def _cancels(rig: Rig) -> None:
    lease = rig.lease(time.sleep, 3600)
    rig.driver.launch([lease])
    await rig.sink.until(lambda: lease.fence in rig.sink.starts, 5)
    rig.driver.cancel([lease.fence])
    await rig.ended(lease)
    # "failed" too: a driver may hear of the end before it can say why.
    assert rig.sink.ends[lease.fence][0].outcome in ("cancelled", "failed"), rig.sink.ends[lease.fence]


async def _runs_many(rig: Rig) -> None:
    leases = [rig.lease(lambda x: x * x, n) for n in range(20)]
    ends = await rig.end(*leases)
    values = [cloudpickle.loads(end.result.data) for end in ends if end.result is not None]
    assert values == [n * n for n in range(20)], f"{values}"


async def _ends_once(rig: Rig) -> None:
    # A repeated report would come within moments; nothing tells when none will.
    await asyncio.sleep(0.5)
    twice = [fence for fence, ends in rig.sink.ends.items() if len(ends) > 1]
    assert not twice, f"{len(twice)} attempts were reported as ended more than once"


async def _can_be_taken_up_again(rig: Rig) -> None:
    """Resume as after a restart: an attempt that never began runs, one that runs goes on."""
    lease = rig.lease(lambda: "taken up")
    rig.driver.resume(list(rig.sink.nodes), [lease])
    await rig.ended(lease)
    assert rig.sink.ends[lease.fence][0].outcome == "done", rig.sink.ends[lease.fence]


async def _answers_orders_to_warm(rig: Rig) -> None:
    function = rig.objects.put(cloudpickle.dumps(lambda: 1))
    rig.driver.warm(min(rig.sink.nodes), m.Warm("warmed", [function], PYTHON))
    answered = await rig.sink.until(lambda: bool(rig.sink.warm), rig.patience_s)
    assert answered, "an order to hold a function ready was not answered, not even with a no"
    told = rig.sink.warm[0]
    assert told.function_name == "warmed" and (told.ready or told.reason), told


# In this order: later checks need nodes, and "ends once" looks back at all of them.
CHECKS: dict[str, Callable[[Rig], Awaitable[None]]] = {
    "announces nodes": _announces_nodes,
    "runs calls": _runs_calls,
    "passes results of parents": _passes_results_of_parents,
    "large results become objects": _large_results_become_objects,
    "tells errors": _tells_errors,
    "runs commands": _runs_commands,
    "brings output": _brings_output,
    "refuses other Pythons": _refuses_other_pythons,
    "refuses what it cannot bring": _refuses_what_it_cannot_bring,
    "survives deaths": _survives_deaths,
    "keeps time limits": _keeps_time_limits,
    "cancels": _cancels,
    "runs many": _runs_many,
    "can be taken up again": _can_be_taken_up_again,
    "ends once": _ends_once,
    "answers orders to warm": _answers_orders_to_warm,
}

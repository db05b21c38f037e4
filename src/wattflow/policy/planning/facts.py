"""The arrays that planners work on: what they know, and the timelines they fill. Compiled code takes their handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel import jit as engine_jit
from wattflow.kernel.handle import Tables

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
WHOLE = 1_000_000
"""A whole core or device in millionths."""
NOWHERE = -1


def jit(function: Any) -> Any:
    """Compile as the engine does, in a cache folder of its own: these files call each other."""
    return engine_jit.jit(function, engine_jit.cache_folder("kernel", "policy/planning"))


def _own(table: Any) -> Any:
    """Return the table as compiled code needs it: contiguous and writeable; not copied where it is so already."""
    # The handle passes addresses (`kernel.handle`): compiled code steps by items and writes without asking.
    array = np.ascontiguousarray(table)
    return array if array.flags.writeable else array.copy()


# Names once, at run time and, with their types, for the type checker: compiled code finds a table by its place here.
_FACTS = (
    "estimate_s", "release_s", "shape", "input_bytes", "parent_start", "parent", "parent_bytes", "child_start",
    "child", "child_bytes", "depth", "offer_first", "offer_n", "factor", "watts", "need_u", "need_bytes", "share_u",
    "device_bytes", "devices", "device_ok", "device_speed", "device_sharing", "device_watts", "device_first",
    "device_n", "cls", "free_u", "free_bytes", "seconds_per_byte", "latency_s", "zone_latency_s", "zone", "stores",
    "limit_s", "overlap",
)  # fmt: skip


class PlanFacts(Tables):
    """Facts of a planner; rows by task, offer (variant as the engine numbers it), node class, node or device."""

    __slots__ = _FACTS
    NAMES = _FACTS

    if TYPE_CHECKING:
        estimate_s: Floats
        release_s: Floats
        shape: Longs
        input_bytes: Floats
        parent_start: Longs
        parent: Longs
        parent_bytes: Floats
        child_start: Longs
        child: Longs
        child_bytes: Floats
        depth: Longs
        offer_first: Longs
        offer_n: Longs
        factor: Floats
        watts: Floats
        need_u: Longs
        need_bytes: Longs
        share_u: Longs
        device_bytes: Longs
        devices: Longs
        device_ok: NDArray[np.uint8]
        device_speed: Floats
        device_sharing: Longs
        device_watts: Floats
        device_first: Longs
        device_n: Longs
        cls: Longs
        free_u: Longs
        free_bytes: Longs
        seconds_per_byte: Floats
        latency_s: Floats
        zone_latency_s: Floats
        zone: Longs
        stores: NDArray[np.uint8]
        limit_s: Floats
        overlap: Longs

    def __init__(self, **tables: Any) -> None:
        super().__init__(**{name: _own(tables[name]) for name in self.NAMES})

    def changed(self, **tables: Any) -> PlanFacts:
        """Return the same facts with other tables in the place of some."""
        return PlanFacts(**({name: getattr(self, name) for name in self.NAMES} | tables))


_SLOTS = (
    "time", "free_u", "free_bytes", "next", "previous", "head", "finger", "rows", "used", "node", "offer", "start_s",
    "end_s", "taken", "local_bytes", "local_n", "zone_n", "near", "best", "choice",
)  # fmt: skip


class Slots(Tables):
    """The timelines, and the plan so far."""

    __slots__ = _SLOTS
    NAMES = _SLOTS

    if TYPE_CHECKING:
        time: Floats
        free_u: Longs
        free_bytes: Longs
        next: Longs
        previous: Longs
        head: Longs
        finger: Longs
        rows: Longs
        used: NDArray[np.uint8]
        node: Longs
        offer: Longs
        start_s: Floats
        end_s: Floats
        taken: Longs
        local_bytes: Floats
        local_n: Longs
        zone_n: Longs
        near: Floats
        best: Floats
        choice: Longs

    def __init__(self, **tables: Any) -> None:
        super().__init__(**{name: _own(tables[name]) for name in self.NAMES})


def handles(facts: PlanFacts, slots: Slots) -> tuple[Any, Any]:
    """Return the arguments for compiled functions; the tables themselves when uncompiled."""
    return facts.handle(), slots.handle()


def empty_slots(facts: PlanFacts, held: int = 0) -> Slots:
    """Timelines without tasks, with room to plan every task once beside ``held`` earlier ones."""
    tasks, nodes, devices = len(facts.estimate_s), len(facts.cls), len(facts.device_speed)
    bins = nodes + devices
    most = 1 + int(facts.devices.max(initial=0))
    # A task adds two moments to its node and to each of its devices; what is held may add as many.
    rows = bins + 2 * most * tasks + 2 * (1 + int(facts.device_n.max(initial=0))) * held + 2
    slots = Slots(
        # A bin's first moment lies before every time, so that every search has a row to start from (`timeline`).
        time=np.full(rows, -np.inf), free_u=np.zeros(rows, np.int64), free_bytes=np.zeros(rows, np.int64),
        next=np.full(rows, -1, np.int64), previous=np.full(rows, -1, np.int64), head=np.arange(bins, dtype=np.int64),
        finger=np.arange(bins, dtype=np.int64), rows=np.array([bins], np.int64),
        used=np.zeros(nodes, np.uint8), node=np.full(tasks, NOWHERE, np.int64), offer=np.full(tasks, -1, np.int64),
        start_s=np.zeros(tasks), end_s=np.zeros(tasks), taken=np.zeros(tasks, np.int64),
        local_bytes=np.zeros(nodes), local_n=np.zeros(nodes, np.int64),
        zone_n=np.zeros(int(facts.zone.max(initial=0)) + 1, np.int64), near=np.zeros(4), best=np.zeros(4),
        choice=np.zeros(4, np.int64),
    )  # fmt: skip
    slots.free_u[:bins], slots.free_bytes[:bins] = facts.free_u, facts.free_bytes
    return slots

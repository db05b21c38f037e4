"""The arrays that planners work on, and how compiled code gets hold of them."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined"
from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.experimental import structref
from numpy.typing import NDArray

from wattflow.kernel import jit as engine_jit

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
WHOLE = 1_000_000
"""A whole core or device in millionths."""
NOWHERE = -1


def jit(function: Any) -> Any:
    """The engine's compilation, kept in a folder of its own: these files call each other."""
    return engine_jit.jit(function, engine_jit.cache_folder("kernel", "policy/planning"))


class Facts(NamedTuple):
    """What a planner knows; rows by task, offer (variant as the engine numbers it), node class, node or device."""

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


class Slots(NamedTuple):
    """The timelines, and the plan so far."""

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


# Tuples of many arrays take long to compile; compiled code gets a reference to the same arrays instead.
class _Arrays(types.StructRef):
    def __init__(self, fields: Any) -> None:
        super().__init__(fields)
        # The full name lists every field and would stand in each symbol that the compiler makes.
        self.name = f"{type(self).__name__}_{hashlib.sha256(self.name.encode()).hexdigest()[:12]}"

    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


@structref.register
class _FactsType(_Arrays):
    pass


@structref.register
class _SlotsType(_Arrays):
    pass


class _FactsProxy(structref.StructRefProxy):
    def __new__(cls, *arrays: Any) -> Any:
        return structref.StructRefProxy.__new__(cls, *arrays)


class _SlotsProxy(structref.StructRefProxy):
    def __new__(cls, *arrays: Any) -> Any:
        return structref.StructRefProxy.__new__(cls, *arrays)


structref.define_proxy(_FactsProxy, _FactsType, list(Facts._fields))
structref.define_proxy(_SlotsProxy, _SlotsType, list(Slots._fields))


@jit
def _facts_handle(facts):
    return _FactsProxy(*facts)


@jit
def _slots_handle(slots):
    return _SlotsProxy(*slots)


def handles(facts: Facts, slots: Slots) -> tuple[Any, Any]:
    """What compiled functions take: references to the same arrays, or the tuples themselves when uncompiled."""
    return (_facts_handle(facts), _slots_handle(slots)) if engine_jit.COMPILED else (facts, slots)


def empty_slots(facts: Facts, held: int = 0) -> Slots:
    """Timelines without tasks, with room to plan every task once beside ``held`` earlier ones."""
    tasks, nodes, devices = len(facts.estimate_s), len(facts.cls), len(facts.device_speed)
    bins = nodes + devices
    most = 1 + int(facts.devices.max(initial=0))
    rows = bins + 2 * most * tasks + 2 * (1 + int(facts.device_n.max(initial=0))) * held + 2
    slots = Slots(
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

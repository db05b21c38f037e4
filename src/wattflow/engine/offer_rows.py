"""Offers: the ways to run a task that a policy chooses from, levels of cores and of devices included."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine import tables
from wattflow.engine.settings import PolicySettings
from wattflow.kernel.handle import as_bytes
from wattflow.model.cluster import Device, Node
from wattflow.model.workflow import Function, Variant

MOST_LEVELS = 64
"""More than a device has, for whoever does not know how many there will be."""
LEAST_POWER = 0.01
"""Watts above idle at a level, over those at full clock, are at least this."""


def micro(amount: float) -> int:
    """Convert cores or shares to whole millionths."""
    return round(amount * tables.MICRO)


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to run a task: a variant with a guarantee, at a level of the node's cores or of its device.

    Attributes:
        base: Number of the variant among those of its shape.
        function: Of a level of a device: whose response counts; else 0.
    """

    variant: Variant
    guarantee: float
    frequency: int
    base: int
    level: int = 0
    function: int = 0


def offers_of(variants: Sequence[Variant], function: int, settings: PolicySettings, device_levels: int) -> list[Offer]:
    """List the offers of a shape. Ties go to the earlier one, so this order is a rule (docs/physics.md, section 4)."""
    offers = [
        Offer(variant, guarantee, frequency, base)
        for base, variant in enumerate(variants)
        for guarantee in settings.guarantees
        for frequency in settings.frequencies
    ]
    # Behind all others: planners number those (`plan.node_offers`). A device's clock is lowered alone: its host's
    # cores stay at their nominal level.
    return offers + [
        Offer(variant, guarantee, 0, base, level, function)
        for base, variant in enumerate(variants)
        if variant.device is not None
        for guarantee in settings.guarantees
        for level in settings.frequencies
        if 0 < level < device_levels
    ]


def level_count(device: Device) -> int:
    """Count a device's levels, full clock included."""
    return 1 if device.levels is None else len(device.levels.values)


def level_tables(
    classes: Any, kinds: Mapping[Device, int], functions: Iterable[str], room: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Make ``level_seconds`` and ``level_power``, with so many rows for each class of devices, and number its rows.

    Seconds and watts above idle of each function at each level, over those at full clock; inf seconds where unknown.
    """
    width = max([1, *map(level_count, kinds)])
    # Nobody has levels: nobody looks.
    if width == 1:
        return np.ones((1, 1)), np.ones((1, 1))
    seconds, power = np.ones((room * len(kinds), width)), np.ones((room * len(kinds), width))
    for device, c in kinds.items():
        classes["level_first"][c] = c * room
        for f, name in enumerate(functions):
            _fill_levels(seconds[c * room + f], power[c * room + f], device, name)
    return seconds, power


def _fill_levels(seconds: NDArray[np.float64], power: NDArray[np.float64], device: Device, function: str) -> None:
    seconds[1:] = np.inf
    idle_w, full_w = device.power.idle_w, device.power.at(1.0)
    above_w = full_w - idle_w
    for level in range(1, level_count(device)):
        assert device.levels is not None
        cost = device.levels.cost(function, level, idle_w / full_w if full_w > 0 else 0.0)
        if cost is not None and above_w > 0:
            seconds[level] = cost[0]
            # Joules are the whole device's, idle watts included; what is left of them after idling is never nothing.
            power[level] = max(LEAST_POWER, (full_w * cost[1] / cost[0] - idle_w) / above_w)


def has_level(offer: Offer, node: Node, functions: Sequence[Function]) -> bool:
    """Tell whether enough of a node's devices have the offer's level, and know what it does to the function."""
    if offer.level == 0:
        return True
    able = [d for d in node.devices if device_can(offer.variant, d) and offer.level < level_count(d)]
    name = functions[offer.function].name
    known = [d for d in able if d.levels is not None and d.levels.cost(name, offer.level) is not None]
    return len(known) >= max(1, offer.variant.devices)


def device_can(variant: Variant, device: Device) -> bool:
    """Tell whether an empty device would take a variant: kind, model and memory."""
    if device.kind != variant.device or variant.device_memory_bytes > device.memory_bytes:
        return False
    return not variant.device_models or device.model in variant.device_models


MOST_KNOWN = 4096
"""Kinds of shapes whose offers are kept for the next State."""


@dataclass(frozen=True, slots=True)
class ShapeOffers:
    """The offers of a shape, the bytes of their rows, which classes take them, and which of them need a device."""

    offers: list[Offer]
    rows: NDArray[np.uint8]
    fits: NDArray[np.uint8]
    on_device: tuple[int, ...]


@functools.lru_cache(maxsize=16)
def offers_to(
    classes: tuple[Any, ...], guarantees: tuple[float, ...], frequencies: tuple[int, ...]
) -> dict[Any, ShapeOffers]:
    """Return what was found out of offers of these to such classes: by variants, filled as it goes."""
    return {}


def shape_offers(offers: list[Offer], examples: Sequence[Node], functions: Sequence[Function]) -> ShapeOffers:
    """Find out of a shape's offers what does not depend on the State: rows, and which classes take them."""
    rows = np.zeros(len(offers), tables.VARIANTS)
    fill_variants(rows, offers)
    fits = [
        [
            why_not(offer.variant, node, offer.guarantee, offer.frequency) is None and has_level(offer, node, functions)
            for node in examples
        ]
        for offer in offers
    ]
    on_device = tuple(at for at, offer in enumerate(offers) if offer.variant.device is not None)
    shape = (len(offers), len(examples))
    return ShapeOffers(offers, as_bytes(rows), np.array(fits, np.uint8).reshape(shape), on_device)


def fill_variants(plain: NDArray[np.void], offers: list[Offer]) -> None:
    """Write offers into rows, by columns, but for what a device's row needs (`build.fill_variant`)."""
    if not offers:
        return
    plain["cores_u"] = [micro(offer.variant.cores) for offer in offers]
    plain["need_u"] = [micro(offer.variant.cores * offer.guarantee) for offer in offers]
    plain["memory"] = [offer.variant.memory_bytes for offer in offers]
    plain["factor"] = [offer.variant.runtime_factor for offer in offers]
    plain["guarantee"] = [offer.guarantee for offer in offers]
    plain["origin"], plain["frequency"], plain["level"], plain["function"] = np.array(
        [(offer.base, offer.frequency, offer.level, offer.function) for offer in offers]
    ).T


def why_not(variant: Variant, node: Node, guarantee: float, level: int) -> str | None:
    """Why a variant can never run on a node, in words; None when an empty node would take it."""
    # In millionths, as `fit` compares: ten tasks of 0.1 cores fit on one core.
    if micro(variant.cores * guarantee) > micro(node.request_cores):
        return f"needs {variant.cores:g} cores, the most on one node is {node.request_cores:g}"
    if variant.memory_bytes > node.memory_bytes:
        return f"needs {variant.memory_bytes} bytes of memory, a node has {node.memory_bytes}"
    if variant.architecture is not None and variant.architecture != node.architecture:
        return f"needs architecture {variant.architecture}, nodes have {node.architecture}"
    missing = [f for f in variant.features if f not in node.features]
    if missing:
        return f"needs the feature {missing[0]!r}, which no suitable node has"
    if level >= len(node.frequencies):
        return f"needs frequency level {level}"
    if variant.device is None:
        return None
    fitting = [d for d in node.devices if device_can(variant, d)]
    if len(fitting) < max(1, variant.devices):
        models = f" of model {' or '.join(variant.device_models)}" if variant.device_models else ""
        return f"needs {max(1, variant.devices)} {variant.device}(s){models} that fit, a node has {len(fitting)}"
    return None

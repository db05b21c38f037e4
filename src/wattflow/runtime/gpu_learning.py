"""Lessons of ends on GPUs: duties, how much tasks on one GPU slow each other down, what a lower clock costs a function.

*Duty* is the part of its run for which a task keeps its share busy (`Variant.device_duty`). *Interference* is a
device's: beside others that keep a share b of it busy, a task under MPS takes 1 + interference · b times as long as
alone (`Device.interference`). So an attempt that had company, of a function that also ran alone on that node, is one
reading of it: (stretch − 1) / b.

The part of a function's time that follows the clock is known when it has run a few times at full clock and a few times
below it; until then it runs at full clock. One repeat in twenty is tried below it, on a device of its own and never
with a deadline. Joules are not measured here: they follow from the clock and the seconds.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from wattflow.runtime import messages as m

SAMPLES = 5
"""Readings below which a run was too short to say anything: a second, five times a second."""
ALONE, COMPANY = 0.05, 0.1
"""Busy share of others up to which a task counts as alone, and from which on as in company."""
STEP = 0.05
"""Duties are told in such steps, so that a function has few shapes."""
WEIGHT, WEIGHT_IN_COMPANY = 0.2, 0.05
"""How far one run moves a mean; in company the device's busy time was split by assumption."""
ENOUGH = 5
"""Readings of a node's interference before it is told."""
LARGEST = 10.0


class GpuLearning:
    """Duties by function and variant, interference by node."""

    def __init__(self) -> None:
        self._duty: dict[tuple[str, str], float] = {}
        self._alone_log_s: dict[tuple[str, str, str], float] = {}
        self._interference: dict[str, tuple[int, float]] = {}
        self._told: dict[str, float] = {}

    def ended(
        self, function: str, variant: m.Variant, node: m.Node, device: int, runtime_s: float, use: m.GpuUse
    ) -> None:
        """A task ended well after so long on a GPU of a node, of which it made this use."""
        if use.samples < SAMPLES or not 0 <= device < len(node.devices) or runtime_s <= 0:
            return
        alone = use.beside < ALONE
        key = (function, variant.name)
        known = self._duty.get(key, use.duty)
        self._duty[key] = known + (WEIGHT if alone else WEIGHT_IN_COMPANY) * (use.duty - known)
        place = (*key, node.name)
        if alone:
            log_s = self._alone_log_s.get(place, math.log(runtime_s))
            self._alone_log_s[place] = log_s + WEIGHT * (math.log(runtime_s) - log_s)
        # Only against runs of the same function alone on the same node: other nodes' GPUs have other clocks.
        elif use.beside >= COMPANY and place in self._alone_log_s and node.devices[device].sharing == "mps":
            stretch = runtime_s / math.exp(self._alone_log_s[place])
            self._add(node.name, min(LARGEST, max(0.0, stretch - 1.0) / use.beside))

    def duties(self, function: str, variants: Sequence[m.Variant]) -> tuple[float, ...]:
        """Duty of each variant, in steps; 1 for one that is not known, and nothing where none is."""
        known = [self._duty.get((function, variant.name)) if variant.gpu > 0 else None for variant in variants]
        if all(duty is None for duty in known):
            return ()
        return tuple(1.0 if duty is None else max(STEP, round(round(duty / STEP) * STEP, 6)) for duty in known)

    def duties_of(self, function: str) -> dict[str, float]:
        """Duty of each variant of a function that is known."""
        return {variant: duty for (name, variant), duty in self._duty.items() if name == function}

    def interference(self, node: str) -> float | None:
        """How much tasks disturb each other on a node's GPUs; None before enough is known."""
        count, mean = self._interference.get(node, (0, 0.0))
        return mean if count >= ENOUGH else None

    def news(self, node: str) -> float | None:
        """A node's interference, where it is another than was told last."""
        found = self.interference(node)
        if found is None or abs(found - self._told.get(node, 0.0)) < max(STEP, 0.1 * found):
            return None
        # Told when it has moved by a tenth: every change is a new node to the engine, which looks at all tasks again.
        self._told[node] = found
        return found

    def as_learned(self, node: m.Node) -> m.Node:
        """A node whose GPUs under MPS have the interference that was seen there."""
        found = self.interference(node.name)
        if found is None:
            return node
        devices = [
            msgspec.structs.replace(one, interference=found) if one.kind == "gpu" and one.sharing == "mps" else one
            for one in node.devices
        ]
        return msgspec.structs.replace(node, devices=devices)

    def _add(self, node: str, value: float) -> None:
        count, mean = self._interference.get(node, (0, 0.0))
        weight = max(WEIGHT_IN_COMPANY, 1.0 / (count + 1))
        self._interference[node] = (count + 1, mean + weight * (value - mean))


ENOUGH_RUNS, KEPT = 3, 16
"""Runs at full clock, and below it, from which on a response is known; so many of the newest count."""
EVERY = 20
"""One attempt of so many is tried at another level."""
TRIED = 2
"""The level that is tried: of those that policies are offered the slowest, which tells most."""


class LevelLearning:
    """Runs by function and model of GPU."""

    def __init__(self) -> None:
        self._full: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._bound: dict[tuple[str, str], list[float]] = defaultdict(list)

    def ended(self, function: str, device: m.Device, runtime_s: float, clock_mhz: float) -> bool:
        """Count a run that had its device to itself; 0 MHz is full clock. True when a response is known by it."""
        key = (function, device.model)
        if not device.clocks_mhz or runtime_s <= 0:
            return False
        if clock_mhz <= 0:
            self._full[key] = [*self._full[key], runtime_s][-KEPT:]
            return False
        slower = device.clocks_mhz[0] / clock_mhz - 1.0
        if len(self._full[key]) < ENOUGH_RUNS or slower <= 0:
            return False
        ratio = runtime_s / statistics.median(self._full[key])
        # Runs differ by themselves: a part below 0 or above 1 is noise.
        self._bound[key] = [*self._bound[key], min(1.0, max(0.0, (ratio - 1.0) / slower))][-KEPT:]
        return len(self._bound[key]) == ENOUGH_RUNS

    def bound(self, function: str, model: str) -> float | None:
        """Return the part of a function's time that follows the clock; None where nobody knows."""
        known = self._bound.get((function, model), [])
        return statistics.median(known) if len(known) >= ENOUGH_RUNS else None

    def trial_mhz(self, function: str, device: m.Device, number: int) -> float:
        """Return the clock that this attempt is to try; 0 for none."""
        seen = len(self._full.get((function, device.model), ()))
        if device.sharing != "exclusive" or seen < ENOUGH_RUNS or number % EVERY or len(device.clocks_mhz) <= TRIED:
            return 0.0
        return device.clocks_mhz[TRIED]

    def as_learned(self, node: m.Node) -> m.Node:
        """A node whose GPUs say what is known of functions at lower clocks."""
        devices = [
            msgspec.structs.replace(device, compute_bound=known) if (known := self._of(device)) else device
            for device in node.devices
        ]
        return msgspec.structs.replace(node, devices=devices)

    def _of(self, device: m.Device) -> dict[str, float]:
        if len(device.clocks_mhz) < 2:
            return {}
        known = {name: self.bound(name, model) for name, model in sorted(self._bound) if model == device.model}
        return {name: share for name, share in known.items() if share is not None}

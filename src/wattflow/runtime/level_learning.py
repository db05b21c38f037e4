"""Learns what functions lose at a lower clock of a GPU: from ordinary runs, a few of them at another level.

The part of a function's time that follows the clock is known when it has run a few times at full clock and a few times
below it; until then its response is unknown, and it runs at full clock. One repeat in twenty is tried below it, on a
device of its own and never with a deadline. Joules are not measured here: they follow from the clock and the seconds.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

import msgspec

from wattflow.runtime import messages as m

ENOUGH, KEPT = 3, 16
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
        if len(self._full[key]) < ENOUGH or slower <= 0:
            return False
        ratio = runtime_s / statistics.median(self._full[key])
        # Runs differ by themselves: a part below 0 or above 1 is noise.
        self._bound[key] = [*self._bound[key], min(1.0, max(0.0, (ratio - 1.0) / slower))][-KEPT:]
        return len(self._bound[key]) == ENOUGH

    def bound(self, function: str, model: str) -> float | None:
        """Return the part of a function's time that follows the clock; None where nobody knows."""
        known = self._bound.get((function, model), [])
        return statistics.median(known) if len(known) >= ENOUGH else None

    def trial_mhz(self, function: str, device: m.Device, number: int) -> float:
        """Return the clock that this attempt is to try; 0 for none."""
        seen = len(self._full.get((function, device.model), ()))
        if device.sharing != "exclusive" or seen < ENOUGH or number % EVERY or len(device.clocks_mhz) <= TRIED:
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

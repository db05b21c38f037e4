"""The port that every actuator keeps: knobs with a range, set, read back, and returned to what they were.

A *knob* is one setting of one device: a ceiling of its clock or a limit of its watts. Both only ever slow a device
down from what it would do by itself, so "as before" is always safe to return to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from wattflow.model.errors import WattflowError

Kind = Literal["clock_mhz", "cap_w"]
UNITS: dict[str, str] = {"clock_mhz": "MHz", "cap_w": "W"}


class LevelRefused(WattflowError):
    """A level was not set, or did not last; the message says which, why, and what would help."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of one device.

    Attributes:
        device: Such as ``gpu-0``, ``package-0``, ``cpu-policy0``.
        actuator: Name of the one that sets it.
        low, high: The range that the device allows.
        step: Distance of neighbouring values: what is read back may differ from what was asked by so much.
        readable: The setting itself can be read. NVML does not tell a locked clock, only the clock that results.
        who: Who may set it, in words.
        mine: This process may.
    """

    device: str
    kind: Kind
    actuator: str
    low: float
    high: float
    step: float
    readable: bool = True
    who: str = "root"
    mine: bool = False

    @property
    def id(self) -> str:
        """Return its name, unique on this machine."""
        return f"{self.device}.{self.kind}"

    def shown(self, value: float) -> str:
        """Write a value with its unit."""
        return f"{value:g} {UNITS[self.kind]}"

    def check(self, value: float) -> None:
        """Raise LevelRefused unless the value is a number in range."""
        if not math.isfinite(value) or not self.low <= value <= self.high:
            allowed = f"{self.low:g} to {self.shown(self.high)}"
            raise LevelRefused(f"{self.id}: {value:g} is out of range; {allowed} is allowed")


class Actuator(Protocol):
    """Sets the knobs of one kind of device. Calls may block for milliseconds; errors are OSError or LevelRefused."""

    name: str

    def knobs(self) -> Sequence[Knob]:
        """Return every knob that was found."""

    def read(self, knob: Knob) -> float | None:
        """Read what is in force: the setting, or for a knob that is not readable the clock that results."""

    def write(self, knob: Knob, value: float | None) -> None:
        """Set a knob; None is what the device does by itself."""

    def users(self, knob: Knob) -> frozenset[int]:
        """Find the processes that use the device; empty for devices that all processes share."""

    def close(self) -> None:
        """Let go of the library or files, not of settings."""

"""Levels of a device as facts: which clocks or caps it has, and what each costs a function in seconds and joules.

All numbers are relative to the first level, which is the device as it runs by itself. What is known of a function is a
row of its own; for the others a compute-bound share says how much of their time follows the clock. Where neither is
known, a level's cost is None, and such a function runs at full clock.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from wattflow.model.profile import Provenance

KNOBS = ("clock_mhz", "cap_w")


@dataclass(frozen=True, slots=True)
class FunctionLevels:
    """Seconds and joules of one function at each level, relative to the first."""

    function: str
    seconds: tuple[float, ...]
    joules: tuple[float, ...]
    provenance: Provenance = Provenance.MEASURED

    def __post_init__(self) -> None:
        for name in ("seconds", "joules"):
            values = getattr(self, name)
            if not values or not all(math.isfinite(value) and value > 0 for value in values):
                raise ValueError(f"{name} of {self.function} must be numbers above 0")
            # Noise of a measurement may make a lower level look a little quicker; more than that is a slip.
            if name == "seconds" and min(values) < 0.9:
                raise ValueError(f"seconds of {self.function}: a lower level makes nothing quicker; at least 0.9")
            # Exactly 1, not nearly: level 0 costs nothing more, wherever it is asked for.
            if values[0] != 1:
                raise ValueError(f"{name} of {self.function} are relative to the first level: the first must be 1")


@dataclass(frozen=True, slots=True)
class DeviceLevels:
    """The levels of a device.

    Attributes:
        knob: ``clock_mhz`` (a ceiling of the clock) or ``cap_w`` (a power limit).
        values: Of each level, falling; the first is full.
        functions: What is known, one for each function.
        compute_share: Of all other functions: the part of their time that follows the clock, 0 to 1.
    """

    knob: str
    values: tuple[float, ...]
    functions: tuple[FunctionLevels, ...] = ()
    compute_share: float | None = None

    def __post_init__(self) -> None:
        if self.knob not in KNOBS:
            raise ValueError(f"knob must be one of {', '.join(KNOBS)}, not {self.knob!r}")
        if len(self.values) < 2 or not all(math.isfinite(value) and value > 0 for value in self.values):
            raise ValueError("values must be at least two levels above 0, the first of them full")
        # The order is part of the meaning: level 0 is full, a higher number is slower.
        if any(after >= before for before, after in itertools.pairwise(self.values)):
            raise ValueError("values must fall from level to level")
        if self.compute_share is not None and not 0 <= self.compute_share <= 1:
            raise ValueError(f"compute_share must be 0 to 1, not {self.compute_share}")
        # A power cap does not say which clock results.
        if self.compute_share is not None and self.knob != "clock_mhz":
            raise ValueError("compute_share says what a clock does; with cap_w give functions their own rows")
        for row in self.functions:
            if len(row.seconds) != len(self.values) or len(row.joules) != len(self.values):
                raise ValueError(f"{row.function} needs seconds and joules at each of the {len(self.values)} levels")
        names = [row.function for row in self.functions]
        if len(set(names)) < len(names):
            raise ValueError(f"functions must differ: {', '.join(names)}")

    def cost(self, function: str, level: int, idle_share: float = 0.0) -> tuple[float, float] | None:
        """Return a function's seconds and joules at a level, relative to full; None where nobody knows.

        Args:
            idle_share: Idle watts of the device as a part of its full ones: joules that pass with time alone.
        """
        if level == 0:
            return 1.0, 1.0
        for row in self.functions:
            if row.function == function:
                return row.seconds[level], row.joules[level]
        if self.compute_share is None:
            return None
        clock = self.values[level] / self.values[0]
        seconds = 1 - self.compute_share + self.compute_share / clock
        # Half of the work's joules rise with the cube of the clock, as `levels.response` begins with.
        return seconds, idle_share * seconds + (1 - idle_share) * (1 + clock**3) / 2

"""The port that every meter keeps: domains, and a reading of all of them at one time.

Counters are joules that only rise; a meter unwraps its own counter, so that a difference of two readings is energy. A
domain without a counter shows watts instead, and `Tally` integrates those and says so. What cannot be read is None.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from wattflow.model.errors import WattflowError

KINDS = ("package", "core", "uncore", "dram", "psys", "gpu", "wall")
"""What a domain covers. ``core`` and ``uncore`` are inside ``package``; ``dram`` stands beside it; ``psys`` and
``wall`` contain them; ``gpu`` is a device of its own."""


class NoReading(WattflowError):
    """This meter is not here, or may not be read; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One thing that a meter reads.

    Attributes:
        counter: True when joules are counted by the hardware; False when only momentary watts can be sampled.
    """

    name: str
    kind: str
    counter: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """All domains at one moment (monotonic seconds). Absent or unreadable is None, never 0."""

    time_s: float
    joules: Mapping[str, float | None]
    watts: Mapping[str, float | None] = field(default_factory=dict)


class Meter(Protocol):
    """A source of readings."""

    @property
    def name(self) -> str: ...

    @property
    def domains(self) -> tuple[Domain, ...]: ...

    def read(self) -> Reading: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of each domain between two moments.

    Attributes:
        integrated: Domains whose joules were integrated from sampled watts because no counter exists.
    """

    seconds: float
    joules: Mapping[str, float | None]
    integrated: frozenset[str] = frozenset()

    def watts(self, domain: str) -> float | None:
        """Mean watts of a domain over the span."""
        energy_j = self.joules.get(domain)
        return None if energy_j is None or self.seconds <= 0 else energy_j / self.seconds


def difference(before: Reading, after: Reading) -> Energy:
    """Energy by counters alone; a domain that either reading lacks is None."""
    joules: dict[str, float | None] = {}
    for name, end in after.joules.items():
        start = before.joules.get(name)
        joules[name] = None if start is None or end is None else end - start
    return Energy(after.time_s - before.time_s, joules)


class Tally:
    """Adds up a meter's readings: counters by difference, watts without a counter by the trapezoidal rule.

    A reading that lacks a domain leaves a hole: a counter bridges it once it can be read again, sampled watts do not,
    and their joules are None from then on.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.first = self.last = meter.read()
        self._sampled = {d.name: 0.0 for d in meter.domains if not d.counter}
        self._lost: set[str] = {name for name in self._sampled if self.first.watts.get(name) is None}

    def update(self) -> Reading:
        """Read once more and add what has passed since."""
        now = self.meter.read()
        step_s = now.time_s - self.last.time_s
        for name in self._sampled:
            before, after = self.last.watts.get(name), now.watts.get(name)
            if before is None or after is None:
                self._lost.add(name)
            else:
                self._sampled[name] += (before + after) / 2 * step_s
        self.last = now
        return now

    def energy(self) -> Energy:
        """Everything since the tally began."""
        joules = dict(difference(self.first, self.last).joules)
        for name, total in self._sampled.items():
            joules[name] = None if name in self._lost else total
        return Energy(self.last.time_s - self.first.time_s, joules, frozenset(self._sampled))


def node_j(joules: Mapping[str, float | None], domains: Iterable[Domain], *, dram: bool = True) -> float | None:
    """Joules of the node in package scope: packages and, where they have a counter and are asked for, their memory.

    Domains inside a package (core, uncore) and around it (psys, wall) are left out, so nothing counts twice. None when
    a package is missing: part of a node is not the node.
    """
    total: float | None = None
    for domain in domains:
        if domain.kind == "package" or (domain.kind == "dram" and dram):
            energy_j = joules.get(domain.name)
            if energy_j is None:
                return None
            total = energy_j if total is None else total + energy_j
    return total


def now_s() -> float:
    """The clock of readings."""
    return time.monotonic()

"""The port that every meter keeps: domains, and a reading of all of them at one time.

Counters are joules that only rise; a meter unwraps its own counter, so that a difference of two readings is energy. A
domain without a counter shows watts instead, and `Tally` integrates those and says so. What cannot be read is None.
`NodeCounter` is the node's joules as one number that only rises, whatever meter they come from.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from wattflow.model.errors import WattflowError

REMOTE_EVERY_S = 1.0
"""Between two readings of a remote meter: Kepler and board controllers renew theirs in seconds."""


class NodeCounter:
    """Joules of the whole node by one meter, since it was opened.

    Attributes:
        sampled: Some of its domains have no counter: their watts are integrated.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._domains = node_domains(meter.domains)
        self.sampled = not all(domain.counter for domain in self._domains)
        self._integrated = {domain.name: 0.0 for domain in self._domains if not domain.counter}
        self._before: dict[str, tuple[float, float]] = {}
        self._thread = ThreadPoolExecutor(1, "meter") if getattr(meter, "remote", False) else None
        self._asked: Future[Reading] | None = None
        self._next_s: float | None = None

    def read_j(self, now_s: float) -> float | None:
        """Read joules by now; None where they cannot be read, or have not been read anew yet.

        Args:
            now_s: On any clock that does not go back; paces the readings of a remote meter.
        """
        reading = self.meter.read() if self._thread is None else self._from_aside(self._thread, now_s)
        return None if reading is None else self._total_j(reading)

    def _from_aside(self, thread: ThreadPoolExecutor, now_s: float) -> Reading | None:
        """Take what the thread has read, once; ask for the next when it is time. The first one is waited for: whatever
        ends before it would have no joules."""
        reading = None
        # The first reading is waited for here; later ones come from the thread.
        if self._next_s is None:
            reading, self._next_s = self.meter.read(), now_s + REMOTE_EVERY_S
        if self._asked is not None and self._asked.done():
            # Taken once: the same reading twice would look like a window without joules.
            reading, self._asked = self._asked.result(), None
        if self._asked is None and now_s >= self._next_s:
            self._asked, self._next_s = thread.submit(self.meter.read), now_s + REMOTE_EVERY_S
        return reading

    def _total_j(self, reading: Reading) -> float | None:
        total_j = 0.0
        for domain in self._domains:
            joules = reading.joules.get(domain.name) if domain.counter else self._add(domain.name, reading)
            if joules is None:
                # A part of the node is not the node.
                return None
            total_j += joules
        return total_j

    def _add(self, name: str, reading: Reading) -> float | None:
        """Integrate a sensor's watts up to this reading."""
        watts = reading.watts.get(name)
        if watts is None:
            return None
        # The first reading has nothing before it, and adds nothing.
        at_s, before_w = self._before.get(name, (reading.time_s, watts))
        self._integrated[name] += (before_w + watts) / 2 * (reading.time_s - at_s)
        self._before[name] = reading.time_s, watts
        return self._integrated[name]

    def close(self) -> None:
        """Let go of the meter, once nobody reads it."""
        if self._thread is not None:
            # Not while the thread still reads it.
            self._thread.shutdown(wait=True, cancel_futures=True)
        self.meter.close()


KINDS = ("package", "core", "uncore", "dram", "psys", "gpu", "wall")
"""Coverage of a domain. ``core`` and ``uncore`` are inside ``package``; ``dram`` stands beside it; ``psys`` and
``wall`` contain them; ``gpu`` is a device of its own."""

WHOLE = ("package", "psys", "wall")
"""Kinds that can stand for the node, the closest to its processors first."""


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
    """A source of readings. One whose `read` waits for another program or machine has ``remote = True`` beside these:
    it is then read in a thread of its own."""

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
        """Return the mean watts of a domain over the span."""
        energy_j = self.joules.get(domain)
        return None if energy_j is None or self.seconds <= 0 else energy_j / self.seconds


def difference(before: Reading, after: Reading) -> Energy:
    """Subtract two readings by counters alone; a domain that either reading lacks is None."""
    joules: dict[str, float | None] = {}
    for name, end in after.joules.items():
        start = before.joules.get(name)
        # A counter that was made anew in between is the meter's to notice (it unwraps its own).
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
        # Without a first value the trapezoid has no left side.
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
        """Return everything since the tally began."""
        joules = dict(difference(self.first, self.last).joules)
        for name, total in self._sampled.items():
            joules[name] = None if name in self._lost else total
        return Energy(self.last.time_s - self.first.time_s, joules, frozenset(self._sampled))


def node_domains(domains: Iterable[Domain], *, dram: bool = True) -> tuple[Domain, ...]:
    """Return domains that together are the node: its packages and, where they are asked for, their memory; the platform
    (``psys``) where there is no package; the wall where there is neither. Nothing counts twice."""
    known = tuple(domains)
    # The first kind that is there, alone: psys and wall contain packages, so a sum would count twice.
    for kind in WHOLE:
        if any(domain.kind == kind for domain in known):
            kinds = (kind, "dram") if kind == "package" and dram else (kind,)
            return tuple(domain for domain in known if domain.kind in kinds)
    return ()


def node_j(joules: Mapping[str, float | None], domains: Iterable[Domain], *, dram: bool = True) -> float | None:
    """Return joules of the node (`node_domains`). None when one of them is missing: part of a node is not the node."""
    found = [joules.get(domain.name) for domain in node_domains(domains, dram=dram)]
    known = [energy_j for energy_j in found if energy_j is not None]
    return sum(known) if known and len(known) == len(found) else None


def now_s() -> float:
    """Read the clock of readings."""
    return time.monotonic()

"""The port between the service and whatever executes. A driver is told what to run; it tells the sink what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from wattflow.runtime.aside import SetAside
from wattflow.runtime.messages import Ended, Lease, Level, Load, Node, TaskEnergy, Warm, Warmed, Window
from wattflow.store.objects import Objects


class Sink(Protocol):
    """The service, to which a driver reports. All calls return at once and come from the event loop's thread.

    Reports are fenced by the attempt's id: a report about an attempt that is over changes nothing.

    Attributes:
        aside: Where a driver puts items that raised.
    """

    aside: SetAside

    def announce(self, node: Node) -> None:
        """A node is here (or changed, or is on again)."""

    def gone(self, node: str, reason: str) -> None:
        """A node is lost; everything on it is, too."""

    def returned(self, node: str, fences: Sequence[int]) -> None:
        """A node that was lost is back (it was announced), and may still run these attempts that were lost with it."""

    def asleep(self, node: str) -> None:
        """A node that was told to sleep does."""

    def started(self, fence: int, started_s: float, cold_s: float) -> None:
        """An attempt runs."""

    def ended(self, end: Ended) -> None:
        """An attempt is over, or was refused before it ran."""

    def energy(self, joules: TaskEnergy) -> None:
        """Joules of an attempt are known; may come after its end."""

    def window(self, node: str, window: Window) -> None:
        """A node's joules between two moments."""

    def load(self, node: str, load: Load) -> None:
        """Take how a node looks."""

    def warmed(self, node: str, told: Warmed) -> None:
        """A function that was to be held ready on a node is, or is not (any more)."""

    def log(self, fence: int, offset: int, data: bytes) -> Future[None] | None:
        """Output of an attempt from a place on; what is known already is skipped. What comes back ends when it is
        written; who need not know may ignore it."""

    def now(self) -> float:
        """Seconds on the service's clock: like the wall clock, but never back."""


class Driver(Protocol):
    """Where work runs. `launch` and `cancel` return at once; what they ask for was stored before.

    One whose nodes hold attempts back while others run has an attribute ``queues`` that is true: only there are short
    calls leased ahead. One whose nodes announce clocks or caps has what `Levelling` asks for.
    """

    name: str

    async def start(self, sink: Sink) -> None:
        """Announce the nodes that are known; others may come later."""

    async def stop(self) -> None:
        """Let go of everything it started for itself."""

    def resume(self, nodes: Sequence[str], leases: Sequence[Lease]) -> None:
        """After a restart: these nodes were here, and these attempts were placed on them, running or not yet begun."""

    def launch(self, leases: Sequence[Lease]) -> None:
        """Run these attempts. One that cannot run is reported as ended with outcome ``refused``."""

    def cancel(self, fences: Sequence[int]) -> None:
        """End these attempts; each is then reported as ended."""

    def power(self, node: str, *, on: bool) -> None:
        """Wake a node or put it to sleep; reported by `Sink.announce` or `Sink.asleep` when it is so."""

    def warm(self, node: str, order: Warm) -> None:
        """Hold a function ready on a node ahead of need; answered by `Sink.warmed`, also where it cannot be."""


class Reporting:
    """A driver's way to the service, which is there from `start` on."""

    _sink: Sink | None = None

    @property
    def sink(self) -> Sink:
        """The service."""
        assert self._sink is not None
        return self._sink


@runtime_checkable
class Levelling(Protocol):
    """A driver that can set clocks and limits; apart from `Driver`, whose contract may not grow for others' drivers."""

    def level(self, node: str, order: Level) -> None:
        """Have a clock or a limit in force on a node that announced it; a node that cannot announces so."""


@dataclass(frozen=True, slots=True)
class Site:
    """The inputs that a driver is made from (`wattflow.runtime.drivers.registry`).

    Attributes:
        objects: Functions, arguments and results by their names.
        folder: The server's own; a driver keeps its files in a folder of its name below it.
        options: ``wattflow up --driver-option KEY=VALUE``, beside what options of `up` say.
    """

    objects: Objects
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)

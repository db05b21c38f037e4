"""Power profiles: watts against busy hardware threads, and watts against the busy share of a device.

A profile knows its scope (wall or CPU package) and its provenance; neither is ever guessed from the numbers.
A curve against load becomes one against busy threads by `threads_profile` and `ends_profile`.
"""

from __future__ import annotations

import bisect
import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wattflow.model.errors import InvalidInput


class Provenance(enum.StrEnum):
    """Where joules or watts come from, best first."""

    MEASURED = "measured"
    ATTRIBUTED = "attributed"
    MODELLED = "modelled"
    GUESSED = "guessed"


class Scope(enum.StrEnum):
    """Name what the watts cover. The two are never mixed."""

    WALL = "wall"
    PACKAGE = "package"


def interpolate(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Interpolate linearly between points at ``x``, flat beyond both ends."""
    if x <= xs[0]:
        return ys[0]
    # Flat beyond the ends, never extrapolated: more threads than the curve knows draw what the last
    # point says.
    if x >= xs[-1]:
        return ys[-1]
    i = bisect.bisect_right(xs, x) - 1
    return ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i])


@dataclass(frozen=True, slots=True)
class PowerProfile:
    """P(k): watts of a node with k busy hardware threads, linear between points, flat beyond them.

    Attributes:
        busy: Busy hardware threads of each point, rising, the first 0.
        watts: Watts at each point.
        provenance: ``measured`` for points from a meter, ``modelled`` for a closed form, ``guessed`` for TDP.
        source: One line that says where the points come from.
    """

    busy: tuple[float, ...]
    watts: tuple[float, ...]
    scope: Scope = Scope.WALL
    provenance: Provenance = Provenance.MODELLED
    source: str = ""

    def __post_init__(self) -> None:
        if len(self.busy) != len(self.watts) or not self.busy:
            raise ValueError("a power profile needs as many watts as points, at least one")
        # Strictly: `interpolate` divides by the differences.
        if self.busy[0] != 0 or any(b <= a for a, b in zip(self.busy, self.busy[1:], strict=False)):
            raise ValueError(f"busy threads must rise from 0, not {self.busy}")
        if any(not math.isfinite(w) or w < 0 for w in self.watts):
            raise ValueError(f"watts must be finite and not negative, not {self.watts}")

    @property
    def idle_w(self) -> float:
        return self.watts[0]

    @property
    def full_w(self) -> float:
        return self.watts[-1]

    def at(self, busy: float) -> float:
        """Return watts with ``busy`` hardware threads busy."""
        return interpolate(busy, self.busy, self.watts)

    def up_to(self, threads: float) -> PowerProfile:
        """Return the part of the curve that a node of so many hardware threads can reach."""
        if self.busy[-1] <= threads:
            return self
        # The end is a point of its own, interpolated where none was measured.
        busy = (*(x for x in self.busy if x < threads), threads)
        return replace(self, busy=busy, watts=tuple(self.at(x) for x in busy))

    @classmethod
    def from_form(cls, form: str, threads: int, idle_w: float, full_w: float, **about: str) -> PowerProfile:
        """Make a curve of closed form between idle and full watts; see ``FORMS`` for the names.

        With u the busy share of the node: constant P = full; linear P = idle + (full − idle)·u; square u²;
        cubic u³; sqrt √u; asymptotic (1 − e^(−u/a)) / (1 − e^(−1/a)) with a = 0.3.
        """
        if form not in FORMS:
            raise ValueError(f"no closed form named {form!r}; known: {', '.join(FORMS)}")
        if threads < 1:
            raise ValueError(f"a profile needs at least one hardware thread, not {threads}")
        share = FORMS[form]
        # A straight line needs no points between its ends.
        steps = 1 if form in ("constant", "linear") else min(threads, _MOST_STEPS)
        busy = tuple(threads * (k / steps) for k in range(steps + 1))
        watts = tuple(idle_w + (full_w - idle_w) * share(k / threads) for k in busy)
        return cls(
            busy,
            watts,
            Scope(about.get("scope", "wall")),
            Provenance(about.get("provenance", "modelled")),
            about.get("source", f"{form} between idle and full watts"),
        )

    @classmethod
    def from_load(cls, threads: int, load_watts: Sequence[tuple[float, float]], **about: str) -> PowerProfile:
        """Make a SPEC-style curve from pairs of load (0 … 1) and watts."""
        points = sorted(load_watts)
        if not points or points[0][0] != 0 or points[-1][0] > 1:
            raise ValueError("a load curve runs from load 0 to at most 1")
        return cls(
            tuple(load * threads for load, _ in points),
            tuple(w for _, w in points),
            Scope(about.get("scope", "wall")),
            Provenance(about.get("provenance", "measured")),
            about.get("source", "load curve"),
        )


GPU_KNEE = 0.45
"""Share of a GPU above which its watts no longer rise (HPE paper, A100 under MPS: about 45 %)."""

_ASYMPTOTE = 0.3
_MOST_STEPS = 1024  # points of a curved form on a very large node
FORMS: dict[str, Callable[[float], float]] = {
    "constant": lambda u: 1.0,
    "linear": lambda u: u,
    "square": lambda u: u * u,
    "cubic": lambda u: u * u * u,
    "sqrt": lambda u: math.sqrt(u),
    "asymptotic": lambda u: (1 - math.exp(-u / _ASYMPTOTE)) / (1 - math.exp(-1 / _ASYMPTOTE)),
}


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Watts of a GPU or FPGA against its busy share (0 … 1), linear between points."""

    share: tuple[float, ...] = (0.0, 1.0)
    watts: tuple[float, ...] = (0.0, 0.0)
    provenance: Provenance = Provenance.MODELLED
    source: str = ""

    def __post_init__(self) -> None:
        if len(self.share) != len(self.watts) or len(self.share) < 2 or self.share[0] != 0:
            raise ValueError("a device profile needs matching points that start at share 0")
        # `not b > a`, so that NaN fails.
        if any(not b > a for a, b in zip(self.share, self.share[1:], strict=False)) or self.share[-1] > 1:
            raise ValueError(f"shares must rise from 0 to at most 1, not {self.share}")
        if any(not math.isfinite(w) or w < 0 for w in self.watts):
            raise ValueError(f"watts must be finite and not negative, not {self.watts}")

    @property
    def idle_w(self) -> float:
        return self.watts[0]

    @property
    def full_w(self) -> float:
        return self.watts[-1]

    @classmethod
    def from_knee(cls, idle_w: float, full_w: float, knee: float = GPU_KNEE, **about: str) -> DeviceProfile:
        """Make a curve linear up to the share ``knee`` and flat above it; a knee of 1 is a straight line.

        The default is the shape that the HPE paper shows for an A100 under MPS: flat above about 45 % of its SMs.
        """
        if not 0 < knee <= 1:
            raise ValueError(f"the knee is a share above 0 and at most 1, not {knee}")
        share, watts = ((0.0, 1.0), (idle_w, full_w)) if knee == 1 else ((0.0, knee, 1.0), (idle_w, full_w, full_w))
        shape = "linear" if knee == 1 else f"linear to {knee:.0%} of the device, flat above"
        return cls(share, watts, Provenance(about.get("provenance", "modelled")), about.get("source", shape))

    def at(self, share: float) -> float:
        """Return watts with this share of the device busy."""
        return interpolate(share, self.share, self.watts)


SIBLING_SHARE = 0.13
"""Of the watts above idle at full load, what the second threads of busy cores add: (P(2C) − P(C)) / (P(2C) − P(0)),
0.125 and 0.129 on the two machines of the Ichnos set whose watts were measured thread by thread."""


def threads_profile(
    load_watts: Sequence[tuple[float, float]],
    cores: int,
    threads_per_core: int = 1,
    *,
    scope: Scope = Scope.PACKAGE,
    provenance: Provenance = Provenance.MODELLED,
    source: str = "",
) -> PowerProfile:
    """Return P(k) of a node with ``cores`` from pairs of load (0 … 1, rising from 0) and watts.

    The result is *modelled* at best, since its points were not measured at k busy threads; what was guessed stays so.
    """
    # Sorted: tables of some sources run from full load down.
    points = sorted(load_watts)
    if len(points) < 2 or points[0][0] != 0 or points[-1][0] > 1 or cores < 1:
        raise InvalidInput("load curve", "needs watts at load 0 and at least one more load up to 1, and a core")
    idle_w, full_w = points[0][1], points[-1][1]
    # Nodes without SMT have no second threads.
    sibling_w = SIBLING_SHARE * (full_w - idle_w) if threads_per_core > 1 else 0.0
    # Occupied cores and the watts they draw above idle, without their second threads.
    occupied = [cores * (1.0 - (1.0 - load) ** threads_per_core) for load, _ in points]
    # Second threads of a core are both busy for x² of the time.
    core_w = [watts - idle_w - sibling_w * load**2 for load, watts in points]
    core_w[0] = _awake_w(occupied, core_w)

    busy, watts = [0.0], [idle_w]
    # One busy thread is the point where the package is awake; loads below one core say nothing about
    # it.
    for k in sorted({1.0, *(cores_busy for cores_busy in occupied[1:] if cores_busy > 1.0), float(cores)}):
        busy.append(k)
        watts.append(idle_w + interpolate(k, occupied, core_w))
    if threads_per_core > 1:
        busy.append(float(cores * threads_per_core))
        # From all cores to all threads it is a straight line.
        watts.append(watts[-1] + sibling_w)
    return PowerProfile(
        tuple(busy), tuple(watts), scope, _at_best_modelled(provenance), source or "from a load curve, cores first"
    )


def ends_profile(idle_w: float, full_w: float, cores: int, threads_per_core: int = 1, **about: str) -> PowerProfile:
    """Return P(k) of a node of which idle and full watts are all that is known."""
    return threads_profile(
        [(0.0, idle_w), (1.0, full_w)],
        cores,
        threads_per_core,
        scope=Scope(about.get("scope", "wall")),
        provenance=Provenance(about.get("provenance", "modelled")),
        source=about.get("source", "idle and full watts, cores first"),
    )


def _at_best_modelled(provenance: Provenance) -> Provenance:
    # The worse of the two: `Provenance` is ordered best first.
    return max(Provenance.MODELLED, provenance, key=list(Provenance).index)


def _awake_w(occupied: Sequence[float], core_w: Sequence[float]) -> float:
    """Return watts above idle of a package that is awake with nothing to do: the first two loads drawn back to none."""
    if len(occupied) < 3 or occupied[2] <= occupied[1]:
        return 0.0
    slope = (core_w[2] - core_w[1]) / (occupied[2] - occupied[1])
    # Not below zero, nor above the first measured load, however the first two points bend.
    return min(max(0.0, core_w[1] - slope * occupied[1]), max(0.0, core_w[1]))

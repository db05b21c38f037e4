"""From watts against load to watts against busy threads.

Load curves (SPECpower, turbostat under ``stress-ng --cpu-load``) are measured with *every* hardware thread busy for
the share x of the time. A task keeps k threads busy *all* of the time, and the kernel puts them on separate cores
first. The two differ:

- **SMT.** At load x a core of m threads is occupied 1 − (1 − x)^m of the time, and an occupied core draws nearly the
  same whether one or all its threads are busy. So k busy threads on k of C cores draw what the load curve shows where
  1 − (1 − x)^m = k/C: at k = C/2 that is 29 % load, not 25 %, and at k = C it is nearly full power, not half load.
- **Wake-up.** The first busy thread wakes the package (uncore clock, turbo budget, shallow sleep states); at 10 % load
  of many threads it is awake all of the time, at load 0 never. Between them a straight line is wrong: the line through
  the next points, drawn back to load 0, shows the watts of a package that is awake with nothing to do.
- **DRAM** is not in package watts at all, on either side.

Where only idle and full watts are known the same law holds: all cores busy draw 87 % of the watts above idle, straight
from none to all cores, and the second threads add the rest. A straight line to all threads would have half of them
there, and make spreading look half as dear as it is.

Nothing here is fitted to runs: the curve of the node itself has all of it, except the part of the dynamic watts that
the second threads of the cores add, `SIBLING_SHARE`.
"""

from __future__ import annotations

from collections.abc import Sequence

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Provenance, Scope, interpolate

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

"""How a function that never ran at a lower clock responds to one, from what its runs at full clock tell; or unknown.

Seconds: the part of the time in which the GPU ran a kernel follows the clock that it really went at, the rest (gaps,
the host) does not: ``t = t₀ · (1 − g + g · max(1, seen / f))``. Joules: of those above idle half keep their price, half
follow the clock's cube, as `levels.response` begins with; idle watts for as long as it takes. Nothing is fitted: these
are the laws that `response` starts from before it has runs.

They say nothing of what waits for memory: where its kernels' wait ends and their arithmetic begins, no counter at full
clock tells (a copy on an H200 loses nothing down to 1,500 MHz, and 41 % at 1,100). So a function whose memory is busy
for more than half of the time is unknown, as is one whose counters nobody has read: unknown runs at full clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattflow.levels.response import CUBE, Estimate

MEMORY_BOUND = 0.5
"""Kernels bound by arithmetic or launching keep an H200's memory busy for 0 to 24 % of the time, the others for all."""
CUBE_SHARE, LEAST_SHARE, MOST_SHARE = 0.5, 0.25, 0.75
"""Part of the joules above idle that follows the clock's cube, and how far from that it may be."""


@dataclass(frozen=True, slots=True)
class FullClock:
    """Hold what runs at full clock have shown of a function on a device of its own.

    Attributes:
        clock_seen: MHz that the device went at: below full where its power limit held it down.
        gpu_busy: Part of the time in which a kernel ran (NVML's utilisation), None where nobody read it.
        memory_busy: Part of the time in which its memory was read or written, None likewise.
    """

    seconds: float
    joules: float
    clock_seen: float
    gpu_busy: float | None
    memory_busy: float | None


def clock_share(gpu_busy: float | None, memory_busy: float | None) -> float | None:
    """Return the part of a function's time that follows the clock, as its counters tell; None: unknown."""
    # NaN is refused by the comparisons as well.
    if gpu_busy is None or memory_busy is None or not (0.0 <= gpu_busy <= 1.0 and 0.0 <= memory_busy <= MEMORY_BOUND):
        return None
    return gpu_busy


def predict(run: FullClock, full_mhz: float, idle_w: float, level_mhz: float) -> tuple[Estimate, Estimate] | None:
    """Estimate seconds and joules at a level that was never run; None where the counters do not tell.

    Bounds of the seconds are those of physics: nothing follows the clock, or all of the busy time does from the full
    clock on.
    """
    share = clock_share(run.gpu_busy, run.memory_busy)
    if share is None or not 0.0 < level_mhz <= full_mhz:
        return None
    slower = max(1.0, run.clock_seen / level_mhz)
    times = [run.seconds * (1.0 + share * (one - 1.0)) for one in (1.0, slower, full_mhz / level_mhz)]
    above_j = max(0.0, run.joules - idle_w * run.seconds)
    # Most of it following the cube is the least that it can come to, in the shortest time; and the other way round.
    joules = [
        above_j * (1.0 - cubed + cubed * slower**-CUBE) + idle_w * seconds
        for cubed, seconds in zip((MOST_SHARE, CUBE_SHARE, LEAST_SHARE), times, strict=True)
    ]
    return Estimate(times[1], times[0], times[2]), Estimate(joules[1], joules[0], joules[2])

"""The clocks that processors and GPUs are offered at, and what whoever decides may count on at each of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from wattflow.model.cluster import Frequency
from wattflow.model.errors import InvalidInput

SIZE, LOWEST = 8, 0.5
"""Clocks from full to half of it, evenly spaced: below, idle watts for longer cost more than is saved."""
OF_GPUS = (1.0, 0.75, 0.65, 0.55)
"""Of a GPU's full clock. Few, since policies look at the first three of a device: those of an H200 at which a copy
loses nothing yet, at which arithmetic saves most for a quarter more time, and below which all kernels lose."""
CAPS_OF_GPUS = (1.0, 0.86, 0.72, 0.58)
"""Of a GPU's highest limit: 600, 500 and 400 W of an H200, below which first arithmetic, then copies lose."""


def grid(low: float, high: float) -> list[float]:
    """Return the clocks that are offered of a range, the highest first."""
    floor = max(low, LOWEST * high)
    return [float(round(high - (high - floor) * i / (SIZE - 1))) for i in range(SIZE)]


def gpu_grid(low: float, high: float) -> list[float]:
    """Return the clocks of a GPU that are offered of a range, the highest first."""
    return list(dict.fromkeys(float(round(max(low, share * high))) for share in OF_GPUS))


def cap_grid(low: float, high: float) -> list[float]:
    """Return the power limits of a GPU that are offered of a range, the highest first."""
    return list(dict.fromkeys(float(round(max(low, share * high))) for share in CAPS_OF_GPUS))


def frequencies_of(clocks_mhz: Sequence[float]) -> tuple[Frequency, ...]:
    """Return clocks as levels: speed follows the clock, half of a work's joules its cube (as `levels.response` begins
    with). One level where there are none."""
    shares = [clock / clocks_mhz[0] for clock in clocks_mhz] or [1.0]
    return tuple(Frequency(share, share * (1 + share**3) / 2) for share in shares)


MOST, HIGHEST_MHZ, HIGHEST_W = 32, 1e6, 1e6
"""As the announcement of a node holds them."""


def read_clocks(option: str, text: str) -> list[float]:
    """Read clocks that an operator states: ``MHZ,MHZ,…``, falling, the first of them full.

    Raises:
        InvalidInput: What is no such list.
    """
    clocks = _numbers(text)
    # Written so that NaN fails: every comparison with it is false.
    falling = all(before > after for before, after in itertools.pairwise(clocks))
    if not (2 <= len(clocks) <= MOST and falling and clocks[-1] >= 1 and clocks[0] <= HIGHEST_MHZ):
        raise InvalidInput(option, f"{text!r} is not MHZ,MHZ,…: 2 to {MOST} clocks, falling, the first of them full")
    return clocks


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        return []


def read_watts(option: str, text: str) -> list[float]:
    """Read idle and full watts that an operator states: ``IDLE,FULL``.

    Raises:
        InvalidInput: What is no such pair.
    """
    watts = _numbers(text)
    if len(watts) != 2 or not 0 <= watts[0] <= watts[1] <= HIGHEST_W or watts[1] == 0:
        raise InvalidInput(option, f"{text!r} is not IDLE,FULL in watts, the full ones not below the idle ones")
    return watts

"""The clocks that a node's processors are offered at, and what whoever decides may count on at each of them."""

from __future__ import annotations

from collections.abc import Sequence

from wattflow.model.cluster import Frequency

SIZE, LOWEST = 8, 0.5
"""Clocks from full to half of it, evenly spaced: below, idle watts for longer cost more than is saved."""


def grid(low: float, high: float) -> list[float]:
    """Return the clocks that are offered of a range, the highest first."""
    floor = max(low, LOWEST * high)
    return [float(round(high - (high - floor) * i / (SIZE - 1))) for i in range(SIZE)]


def frequencies_of(clocks_mhz: Sequence[float]) -> tuple[Frequency, ...]:
    """Return clocks as levels: speed follows the clock, half of a work's joules its cube (as `levels.response` begins
    with). One level where there are none."""
    shares = [clock / clocks_mhz[0] for clock in clocks_mhz] or [1.0]
    return tuple(Frequency(share, share * (1 + share**3) / 2) for share in shares)

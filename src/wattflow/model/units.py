"""Unit conversions. Everything inside wattflow is SI: seconds, bytes, watts, joules."""

from __future__ import annotations

import math
import re

KIB, MIB, GIB = 1024, 1024**2, 1024**3
KB, MB, GB = 1000, 1000**2, 1000**3
J_PER_KWH = 3.6e6
J_PER_WH = 3600.0

# Letters alone are binary ("80G"), with a B they are SI, with iB binary again.
_SIZE_UNITS = {
    "": 1, "b": 1, "k": KIB, "kb": KB, "kib": KIB, "m": MIB, "mb": MB, "mib": MIB,
    "g": GIB, "gb": GB, "gib": GIB, "t": 1024**4, "tb": 1000**4, "tib": 1024**4,
}  # fmt: skip
_TIME_UNITS = {
    "": 1.0, "s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
    "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip
_NUMBER = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([a-zA-Zµ]*)\s*")


def kwh(energy_j: float) -> float:
    """Convert joules to kilowatt hours."""
    return energy_j / J_PER_KWH


def size_bytes(text: str | int | float) -> int:
    """Parse ``"80 GB"`` (decimal), ``"80 GiB"`` or ``"80G"`` (binary) or a plain number of bytes."""
    if isinstance(text, int | float):
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError(f"{text!r} is not a size; write for example '512 MiB' or '80 GB'")
    # Through float: "1.5 GiB" is allowed, and whole numbers stay exact up to 2**53.
    return int(float(match[1]) * _SIZE_UNITS[match[2].lower()])


def duration_s(text: str | int | float) -> float:
    """Parse ``"1h 20m 3s"``, ``"250ms"`` or a plain number of seconds."""
    if isinstance(text, int | float):
        return float(text)
    total, end, found = 0.0, 0, False
    for match in _NUMBER.finditer(text):
        # Pieces must follow each other without anything between: "1h foo 3s" is no duration.
        if match.start() != end or match[2] not in _TIME_UNITS:
            break
        total, end, found = total + float(match[1]) * _TIME_UNITS[match[2]], match.end(), True
    if not found or end != len(text):
        raise ValueError(f"{text!r} is not a duration; write for example '90s', '250ms' or '1h 20m'")
    return total


def human_energy(energy_j: float | None) -> str:
    """Write energy for a reader: ``"1.23 kWh"``, ``"45.6 kJ"``; unknown is a dash."""
    if energy_j is None or math.isnan(energy_j):
        return "–"
    # Below a tenth of a kWh, joules are easier to read.
    if abs(energy_j) >= J_PER_KWH / 10:
        return f"{kwh(energy_j):,.3g} kWh"
    return f"{energy_j / 1000:,.3g} kJ" if abs(energy_j) >= 1000 else f"{energy_j:,.3g} J"


def human_time(time_s: float | None) -> str:
    """Write a time for a reader: ``"2h 05m"``, ``"48.2 s"``; unknown is a dash."""
    if time_s is None or math.isnan(time_s):
        return "–"
    if time_s >= 3600:
        return f"{int(time_s // 3600)}h {int(time_s % 3600 // 60):02d}m"
    if time_s >= 120:
        return f"{int(time_s // 60)}m {int(time_s % 60):02d}s"
    return f"{time_s:.3g} s"

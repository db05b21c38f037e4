"""Carbon and price of the place where a server's nodes stand: ``zone.toml`` in its folder, with the keys of a zone in a
cluster file (``carbon``, ``price``, ``pue``).

A series begins at midnight UTC and repeats, so 24 values with a step of an hour are those of a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wattflow.clusters.toml_file import parse_cluster
from wattflow.files.whole import small_text
from wattflow.model.cluster import Series, Zone
from wattflow.model.errors import InvalidInput

FILE = "zone.toml"
_AROUND = ('name = "zone"\n[zones.default]\n', '\n[[nodes]]\nname = "n"\ncores = 1\nmemory = "1GiB"\n')


def read_zone(folder: Path) -> Zone:
    """Read the zone of a server; one of which nothing is known where there is no file.

    Raises:
        InvalidInput: The file is wrong.
    """
    path = folder / FILE
    if not path.exists():
        return Zone()
    return parse_cluster(small_text(path, "zone").join(_AROUND), str(path), folder).zones[0]


def intensity(folder: Path, told_g: float | None) -> Callable[[float], float] | None:
    """Tell what electricity emits at a moment, in grams for a kWh that a node draws: the zone's series with its PUE, or
    the one number that the server was started with; None where nobody says. Runs and budgets count alike.

    Raises:
        InvalidInput: Both say it.
    """
    zone = read_zone(folder)
    if not zone.carbon_known:
        return None if told_g is None else (lambda at_s: told_g)
    # Two sources that differ would give a run and a budget different grams for the same joules.
    if told_g is not None:
        raise InvalidInput("--carbon", f"{folder / FILE} says what electricity emits here: leave one of the two out")
    return lambda at_s: zone.carbon.at(at_s) * zone.pue


def from_time(zone: Zone, start_s: float) -> Zone:
    """Turn the series so that they begin at a time instead of at midnight."""
    return replace(zone, carbon=_turned(zone.carbon, start_s), price=_turned(zone.price, start_s))


def _turned(series: Series, start_s: float) -> Series:
    first = int(start_s // series.step_s) % len(series.values)
    return replace(series, values=(*series.values[first:], *series.values[:first]))

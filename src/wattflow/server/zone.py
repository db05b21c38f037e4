"""Carbon and price of the place where a server's nodes stand: ``zone.toml`` in its folder, with the keys of a zone in a
cluster file (``carbon``, ``price``, ``pue``).

A series begins at midnight UTC and repeats, so 24 values with a step of an hour are those of a day.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wattflow.clusters.toml_file import parse_cluster
from wattflow.files.reading import small_text
from wattflow.model.cluster import Series, Zone

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


def from_time(zone: Zone, start_s: float) -> Zone:
    """Turn the series so that they begin at a time instead of at midnight."""
    return replace(zone, carbon=_turned(zone.carbon, start_s), price=_turned(zone.price, start_s))


def _turned(series: Series, start_s: float) -> Series:
    first = int(start_s // series.step_s) % len(series.values)
    return replace(series, values=(*series.values[first:], *series.values[:first]))

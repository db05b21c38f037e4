"""A node's watts from a file: what `wattflow machine profile` wrote, or the CSV of a meter beside the machine's load.

A CSV needs watts (``watts``, ``power_w`` or ``w``) and one of ``busy`` (threads), ``load`` (0 … 1) or ``load_pct``
(also ``cpu_pct``, ``cpu_percent``). Samples of nearly the same load (within 5 % of the machine) are averaged.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattflow.files.reading import small_text
from wattflow.model.errors import InvalidInput
from wattflow.model.load_curve import threads_profile
from wattflow.model.profile import PowerProfile, Provenance, Scope

ENDINGS = (".json", ".csv")
BIN = 0.05
"""Samples whose load differs by less than this part of the machine are one point."""
_WATTS = ("watts", "power_w", "w")
_LOADS = {"busy": "busy", "load": "load", "load_pct": "percent", "cpu_pct": "percent", "cpu_percent": "percent"}


def read_power_file(path: Path, cores: int, threads_per_core: int, scope: Scope | None = None) -> PowerProfile:
    """Read the profile in a file; ``scope`` is what a CSV's watts cover (the wall by default).

    Raises:
        InvalidInput: It is neither kind of file, or lacks idle watts.
    """
    text = small_text(path, "power file")
    try:
        if path.suffix == ".json":
            return _measured(path, text, cores * threads_per_core)
        return _sampled(path, text, (cores, threads_per_core), scope or Scope.WALL)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(str(path), f"is no power profile: {error}") from error


def _measured(path: Path, text: str, threads: int) -> PowerProfile:
    """Read the points of `wattflow machine profile`: threads really busy, above what was busy in the idle windows."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("kind") != "cpu" or not document.get("points"):
        raise ValueError("expected what `wattflow machine profile FILE` writes, with its points")
    points = [(float(point["busy"]), float(point["watts"])) for point in document["points"]]
    if int(document["points"][0]["k"]) != 0:
        raise ValueError("it has no idle point (k = 0) yet")
    # As `CpuProfile.power_profile`: what ran anyway while idle is no busy thread.
    base = points[0][0]
    busy, watts = [0.0], [points[0][1]]
    for threads_busy, seen_w in points[1:]:
        # Busy threads must rise strictly.
        if threads_busy - base > busy[-1] + 1e-6:
            busy.append(threads_busy - base)
            watts.append(seen_w)
    # Half a thread of tolerance: measured CPU time is a little more than asked for.
    if busy[-1] > threads + 0.5:
        raise ValueError(f"it goes up to {busy[-1]:.3g} busy threads, but the node has {threads}")
    provenance = Provenance.MODELLED if document.get("meter") == "virtual" else Provenance.MEASURED
    source = f"{path.name}: {document.get('node', 'a node')}, {document.get('meter', 'a meter')}"
    return PowerProfile(tuple(busy), tuple(watts), Scope(document["scope"]), provenance, source)


def _sampled(path: Path, text: str, size: tuple[int, int], scope: Scope) -> PowerProfile:
    rows = csv.DictReader(line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    names = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
    watts = next((names[name] for name in _WATTS if name in names), None)
    loads = next((name for name in _LOADS if name in names), None)
    if watts is None or loads is None:
        raise ValueError(f"needs a column of {', '.join(_WATTS)} and one of {', '.join(_LOADS)}")
    threads, kind = size[0] * size[1], _LOADS[loads]
    over = {"busy": float(threads), "load": 1.0, "percent": 100.0}[kind]
    points = _averaged([(_number(row, names[loads]) / over, _number(row, watts)) for row in rows])
    source = f"{path.name}: mean watts of a meter's samples by load"
    if kind == "busy":
        busy = tuple(load * threads for load, _ in points)
        return PowerProfile(busy, tuple(w for _, w in points), scope, Provenance.MEASURED, source)
    return threads_profile(points, *size, scope=scope, provenance=Provenance.MEASURED, source=source)


def _number(row: Mapping[str, str | None], name: str) -> float:
    # An empty cell is unknown, which is told below; it is not 0.
    value = float(row[name] or "nan")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} {row[name]!r} is not a number of at least 0")
    return value


def _averaged(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Average samples into one point for each bin of loads, the lowest standing for idle."""
    if not samples or max(load for load, _ in samples) > 1.0 + 1e-6:
        raise ValueError("needs samples, with loads between none and all of the machine")
    bins: dict[int, list[tuple[float, float]]] = {}
    for load, watts in samples:
        # Rounded, so that bins are centred on multiples of 5 % and the first is idle.
        bins.setdefault(round(load / BIN), []).append((load, watts))
    points = [
        (sum(load for load, _ in mine) / len(mine), sum(watts for _, watts in mine) / len(mine))
        for _, mine in sorted(bins.items())
    ]
    if 0 not in bins or len(points) < 2:
        raise ValueError("needs samples of the idle machine and of at least one load")
    # Idle is idle, whatever the mean of its bin; loads a hair above 1 come from rounding.
    return [(0.0, points[0][1]), *((min(1.0, load), watts) for load, watts in points[1:])]

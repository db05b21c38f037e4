"""Carbon and price series: shipped weeks, the series of the data folder, and a user's own CSV files.

Every reader returns values on one fixed step. The step is the commonest distance between rows; rows that fall into one
step are averaged, and a step without a row keeps the value before it and is counted as a gap.

| name | what |
|---|---|
| ``eia:CISO``, ``eia:ERCO`` | one week of 2022, hourly, shipped (EIA, public domain) |
| ``eia-2022:<zone>`` | the year (data folder) |
| ``electricitymaps-2023:<zone>`` | direct intensity; ``…:<zone>/lifecycle`` for the life cycle (data folder, ODbL) |
| ``entsoe-2020:gb``, ``entsoe-2020:ger`` | 30 and 15 minutes (data folder) |
| ``gb-2025:<region>`` | regional forecast, 30 minutes (data folder) |
"""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wattflow.files.data_folder import data_folder, open_text, packaged
from wattflow.model.cluster import Series
from wattflow.model.errors import InvalidInput, MissingData, unknown_name

_FOLDER = "carbon_intensity"
_GB = "scotland_and_regions_forecast.csv.gz"
_SHIPPED = {"eia:CISO": "eia_2022_ciso_week.csv", "eia:ERCO": "eia_2022_erco_week.csv"}
_MOST_STEPS = 10_000_000
_LARGEST_FILE_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a series: from a time on (ISO 8601, UTC; empty: from its start), so many seconds (None: to its end)."""

    start: str = ""
    length_s: float | None = None


@dataclass(frozen=True, slots=True)
class DatedSeries:
    """A series with the time of its first value, how many steps had no row, and how many rows could not be used."""

    series: Series
    start: datetime
    gaps: int = 0
    skipped: int = 0


def series_names() -> list[str]:
    """Return names that ``named_series`` knows here: the shipped ones and those of the data folder if it is there."""
    names = list(_SHIPPED)
    folder = data_folder()
    base = None if folder is None else folder / _FOLDER
    if base is None or not base.exists():
        return names
    names += [f"eia-2022:{path.name.split('.')[0]}" for path in sorted(base.glob("eia_2022_hourly/*.csv.gz"))]
    for path in sorted(base.glob("electricitymaps_hourly/*.csv.gz")):
        zone = path.name.split("_")[0]
        names += [f"electricitymaps-2023:{zone}", f"electricitymaps-2023:{zone}/lifecycle"]
    names += [f"entsoe-2020:{path.name.split('_')[0]}" for path in sorted(base.glob("entsoe_2020_30min/*.csv.gz"))]
    regional = base / "gb_regional_2025_30min" / _GB
    if regional.exists():
        # Regions are the columns of one file.
        names += [f"gb-2025:{region}" for region in _rows(regional)[0][1:]]
    return names


def named_series(name: str, window: Window = Window()) -> DatedSeries:  # noqa: B008  (frozen)
    """Read a series by name.

    Raises:
        UnknownName: There is none; names the nearest.
        MissingData: It needs the folder of real data, which is not there.
    """
    known = series_names()
    if name not in known:
        family = name.partition(":")[0]
        # Without the folder its names are unknown; the message should say what is missing, not that there
        # is no such name.
        if data_folder() is None and family in ("eia-2022", "electricitymaps-2023", "entsoe-2020", "gb-2025"):
            raise MissingData(f"the series {name!r} needs the folder of real data; set WATTFLOW_DATA to it")
        raise unknown_name("series", name, known)
    if name in _SHIPPED:
        text = packaged("carbon", _SHIPPED[name]).read_text(encoding="utf-8")
        return _dated(_parse(text.splitlines()), "carbon_g_per_kwh", name, window)
    path, column = _file_of(name)
    return read_csv(path, column, window)


def _file_of(name: str) -> tuple[Path, str]:
    """Return the file and column of a series of the data folder."""
    family, _, zone = name.partition(":")
    base = (data_folder() or Path()) / _FOLDER
    if family == "eia-2022":
        return base / "eia_2022_hourly" / f"{zone}.csv.gz", "avg_CI"
    if family == "electricitymaps-2023":
        zone, _, kind = zone.partition("/")
        return base / "electricitymaps_hourly" / f"{zone}_2023.csv.gz", f"ci_{kind or 'direct'}_g_per_kwh"
    if family == "entsoe-2020":
        return base / "entsoe_2020_30min" / f"{zone}_ci.csv.gz", "Carbon Intensity"
    return base / "gb_regional_2025_30min" / _GB, zone


def read_csv(path: Path, column: str = "", window: Window = Window()) -> DatedSeries:  # noqa: B008  (frozen)
    """Read one column of a CSV file whose first column is the time (ISO 8601, UTC where no offset is given).

    Args:
        path: Plain or gzipped; lines that start with ``#`` and titles above the header are passed over.
        column: Its header; the second column by default.
        window: The part to keep.

    Raises:
        InvalidInput: The file, the column or the window cannot be used.
    """
    try:
        if not path.is_file():
            raise InvalidInput(str(path), "is not a file")
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise InvalidInput(str(path), f"is larger than {_LARGEST_FILE_BYTES // 1024**2} MiB; not a series")
        rows = _rows(path)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from error
    return _dated(rows, column, str(path), window)


def _rows(path: Path) -> list[list[str]]:
    with open_text(path) as file:
        return _parse(file)


def _parse(lines: Iterable[str]) -> list[list[str]]:
    """Parse rows from the header on, cells stripped. The header is the first row with at least two cells."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(line for line in lines if not line.startswith("#"))]
    # A title above the header has one cell.
    first = next((i for i, row in enumerate(rows) if len(row) > 1), len(rows))
    return rows[first:]


def _dated(rows: Sequence[Sequence[str]], column: str, source: str, window: Window) -> DatedSeries:
    if not rows:
        raise InvalidInput(source, "has no rows with a time and a value")
    header = list(rows[0])
    if column and column not in header:
        raise unknown_name(f"column of {source}", column, header[1:])
    index = header.index(column) if column else 1
    points: list[tuple[datetime, float]] = []
    for row in rows[1:]:
        point = _point(row, index)
        if point is not None:
            points.append(point)
    # Two rows at least: one gives no step.
    if len(points) < 2:
        raise InvalidInput(source, f"has {len(points)} usable rows in column {header[index]!r}; needs two at least")
    # Rows need not be in order.
    grid = _on_grid(sorted(points), source)
    return _cut(DatedSeries(grid.series, grid.start, grid.gaps, len(rows) - 1 - len(points)), window, source)


def _point(row: Sequence[str], index: int) -> tuple[datetime, float] | None:
    try:
        time, value = datetime.fromisoformat(row[0]), float(row[index])
    except (ValueError, IndexError):
        return None
    # Without an offset, UTC: that is how the shipped and the folder's files are.
    return (time if time.tzinfo else time.replace(tzinfo=UTC), value) if math.isfinite(value) else None


def _on_grid(points: Sequence[tuple[datetime, float]], source: str) -> DatedSeries:
    start = points[0][0]
    seconds = [(time - start).total_seconds() for time, _ in points]
    distances = Counter(b - a for a, b in itertools.pairwise(seconds) if b > a)
    if not distances:
        raise InvalidInput(source, "all rows have the same time")
    # Of equally common distances the longer: it needs fewer steps and invents no values.
    step_s = max(distances, key=lambda distance: (distances[distance], distance))
    count = int(seconds[-1] // step_s) + 1
    if count > _MOST_STEPS:
        raise InvalidInput(source, f"would need {count:,} steps of {step_s:g} s; are the times right?")
    total, rows = [0.0] * count, [0] * count
    for second, (_, value) in zip(seconds, points, strict=True):
        total[int(second // step_s)] += value
        rows[int(second // step_s)] += 1
    values: list[float] = []
    for amount, number in zip(total, rows, strict=True):
        # A gap keeps the value before it. The first step has a row, since it begins at the first.
        values.append(amount / number if number else values[-1])
    return DatedSeries(Series(step_s, tuple(values)), start, gaps=rows.count(0))


def _cut(dated: DatedSeries, window: Window, source: str) -> DatedSeries:
    step_s, values = dated.series.step_s, dated.series.values
    first = 0
    start = dated.start
    if window.start:
        try:
            wanted = datetime.fromisoformat(window.start)
        except ValueError:
            raise InvalidInput(source, f"{window.start!r} is not a time; write for example '2022-07-01'") from None
        wanted = wanted if wanted.tzinfo else wanted.replace(tzinfo=UTC)
        # The step in which the wanted moment lies.
        first = int((wanted - dated.start).total_seconds() // step_s)
        start = wanted
    count = len(values) - first if window.length_s is None else max(1, round(window.length_s / step_s))
    if first < 0 or count < 1 or first + count > len(values):
        end = dated.start.timestamp() + step_s * len(values)
        spans = f"{dated.start:%Y-%m-%d %H:%M} to {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC"
        raise InvalidInput(source, f"the part asked for is not in the series, which covers {spans}")
    return DatedSeries(Series(step_s, values[first : first + count]), start, dated.gaps, dated.skipped)

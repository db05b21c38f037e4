"""Carbon and price series: the shipped weeks ``eia:CISO`` and ``eia:ERCO`` of 2022 (EIA, public domain), and CSV files.

Every reader returns values on one fixed step. The step is the commonest distance between rows; rows that fall into one
step are averaged, and a step without a row keeps the value before it and is counted as a gap.
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

from wattflow.files.data_folder import open_text, packaged
from wattflow.model.cluster import Series
from wattflow.model.errors import InvalidInput, unknown_name

_SHIPPED = {"eia:CISO": "eia_2022_ciso_week.csv", "eia:ERCO": "eia_2022_erco_week.csv"}
_MOST_STEPS = 10_000_000
_LARGEST_FILE_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class SeriesWindow:
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


def named_series(name: str, window: SeriesWindow = SeriesWindow()) -> DatedSeries:  # noqa: B008  (frozen)
    """Read a shipped series by name.

    Raises:
        UnknownName: There is none; names the nearest.
    """
    if name not in _SHIPPED:
        raise unknown_name("series", name, _SHIPPED, "(or give a file as csv)")
    text = packaged("carbon", _SHIPPED[name]).read_text(encoding="utf-8")
    return _dated([cells for _, cells in _parse(text.splitlines())], "carbon_g_per_kwh", name, window)


def read_csv(path: Path, column: str = "", window: SeriesWindow = SeriesWindow()) -> DatedSeries:  # noqa: B008  (frozen)
    """Read one column of a CSV file whose first column is the time (ISO 8601, UTC where no offset is given).

    Args:
        path: Plain or gzipped; lines that start with ``#`` and titles above the header are passed over.
        column: Its header; the second column by default.
        window: The part to keep.

    Raises:
        InvalidInput: The file, the column or the window cannot be used.
    """
    return _dated([cells for _, cells in numbered_rows(path, str(path))], column, str(path), window)


def numbered_rows(path: Path, source: str) -> list[tuple[int, list[str]]]:
    """Read the rows of a CSV file of a series, with the numbers of their lines; ``source`` names it in messages."""
    try:
        if not path.is_file():
            raise InvalidInput(source, "is not a file")
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise InvalidInput(source, f"is larger than {_LARGEST_FILE_BYTES // 1024**2} MiB; not a series")
        with open_text(path) as file:
            return _parse(file)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(source, f"cannot be read: {error}") from error


def _parse(lines: Iterable[str]) -> list[tuple[int, list[str]]]:
    """Parse rows from the header on, cells stripped. The header is the first row with at least two cells."""
    # An empty line in place of a comment: the reader counts lines.
    reader = csv.reader("\n" if line.startswith("#") else line for line in lines)
    rows = [(reader.line_num, [cell.strip().lstrip("\ufeff") for cell in row]) for row in reader if any(row)]
    # A title above the header has one cell.
    return list(itertools.dropwhile(lambda row: len(row[1]) < 2, rows))


def when(cell: str) -> datetime | None:
    """Read a time in ISO 8601; without an offset, UTC: that is how the shipped and the folder's files are."""
    try:
        time = datetime.fromisoformat(cell)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _dated(rows: Sequence[Sequence[str]], column: str, source: str, window: SeriesWindow) -> DatedSeries:
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
        time, value = when(row[0]), float(row[index])
    except (ValueError, IndexError):
        return None
    return (time, value) if time is not None and math.isfinite(value) else None


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


def _cut(dated: DatedSeries, window: SeriesWindow, source: str) -> DatedSeries:
    step_s, values = dated.series.step_s, dated.series.values
    first = 0
    start = dated.start
    if window.start:
        wanted = when(window.start)
        if wanted is None:
            raise InvalidInput(source, f"{window.start!r} is not a time; write for example '2022-07-01'")
        # The step in which the wanted moment lies.
        first = int((wanted - dated.start).total_seconds() // step_s)
        start = wanted
    count = len(values) - first if window.length_s is None else max(1, round(window.length_s / step_s))
    if first < 0 or count < 1 or first + count > len(values):
        end = dated.start.timestamp() + step_s * len(values)
        spans = f"{dated.start:%Y-%m-%d %H:%M} to {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC"
        raise InvalidInput(source, f"the part asked for is not in the series, which covers {spans}")
    return DatedSeries(Series(step_s, values[first : first + count]), start, dated.gaps, dated.skipped)

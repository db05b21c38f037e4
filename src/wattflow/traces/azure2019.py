"""Azure Functions 2019: invocations a minute, percentiles of durations, percentiles of memory.

Shahrad et al., "Serverless in the Wild", USENIX ATC 2020. The tables hold counts and distributions, not calls, so the
calls are laid out by a fixed rule: those of a minute evenly over it, durations along the function's percentile curve
in the order of the golden-ratio sequence. Same tables, same calls; that they are derived stands in the notes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.units import MIB
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces import log_tables
from wattflow.traces.source import Probe

MOST_CALLS = 50_000_000
_KEY = ("HashOwner", "HashApp", "HashFunction")
_GOLDEN = 0.6180339887498949
_KINDS = {
    "invocations": ("invocations.csv", "invocations_per_function_md.anon.*.csv"),
    "durations": ("durations.csv", "function_durations_percentiles.anon.*.csv"),
    "memory": ("memory.csv", "app_memory_percentiles.anon.*.csv"),
}


def claims(probe: Probe) -> bool:
    """Recognise the folder of the three tables, or its table of invocations."""
    if probe.folder:
        return _find(probe.path, "invocations") is not None and _find(probe.path, "durations") is not None
    header = probe.header()
    return header[:3] == list(_KEY) and "Trigger" in header[:5]


def _find(folder: Path, kind: str) -> Path | None:
    """Find the table of this kind; of several days the first."""
    for pattern in _KINDS[kind]:
        # Sorted: of several days in one folder always the first is read.
        found = sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz")])
        if found:
            return found[0]
    return None


def read(path: Path) -> Workload:
    """Read the tables of one day as calls."""
    folder = path if path.is_dir() else path.parent
    counts_at = _find(folder, "invocations") if path.is_dir() else path
    durations_at = _find(folder, "durations")
    if counts_at is None or durations_at is None:
        raise InvalidInput(str(path), "needs the tables of invocations and of durations in one folder")
    counts, keys, notes = _counts(counts_at)
    curves = _curves(durations_at)
    memory = _memory(_find(folder, "memory"))
    known = np.array([key in curves for key in keys], np.bool_)
    if not known.all():
        notes.append(f"{np.count_nonzero(~known)} functions without durations were skipped")
    chosen = np.flatnonzero(known & (counts.sum(axis=1) > 0)).tolist()
    if not chosen:
        raise InvalidInput(str(path), "no function has both invocations and durations")
    total = int(counts[chosen].sum())
    if total > MOST_CALLS:
        raise InvalidInput(str(path), f"{total:,} calls are more than the {MOST_CALLS:,} that are laid out; take fewer")
    release, runtime, shape = list[log_tables.Floats](), list[log_tables.Floats](), list[np.ndarray]()
    for row, f in enumerate(chosen):
        calls = counts[f]
        count = int(calls.sum())
        minute = np.repeat(np.arange(len(calls)), calls)
        # Number of a call within its minute: its position less that of its minute's first call.
        within = np.arange(count) - np.repeat(np.cumsum(calls) - calls, calls)
        # The middle of each of the minute's equal parts, so that no call falls onto the next minute.
        release.append(60.0 * (minute + (within + 0.5) / calls[minute]))
        # Multiples of the golden ratio fill the interval evenly however many calls a function has.
        level = np.modf((np.arange(count) + 1) * _GOLDEN)[0] * 100
        runtime.append(np.interp(level, *curves[keys[f]]) / 1000)
        shape.append(np.full(count, row, np.int32))
    at = np.concatenate(release)
    # Stable: calls at the same moment stay in the table's order of functions.
    order = np.argsort(at, kind="stable")
    notes.append("calls are laid out from counts a minute and percentiles of duration: derived, not recorded")
    return Workload.of_columns(
        folder.name,
        release_s=at[order],
        runtime_s=np.concatenate(runtime)[order],
        shapes=[Shape(i, (Variant(memory_bytes=_of(memory, keys[f])),)) for i, f in enumerate(chosen)],
        functions=[Function(keys[f][2]) for f in chosen],
        shape=np.concatenate(shape)[order],
        one_each=True,
        notes=tuple(notes),
    )


Key = tuple[str, str, str]


def _keys(table: log_tables.TraceTable) -> list[Key]:
    return list(zip(*(table.texts(name) for name in _KEY), strict=True))


def _counts(path: Path) -> tuple[np.ndarray, list[Key], list[str]]:
    """Return calls by function and minute."""
    table = log_tables.read_csv(path, *_KEY)
    # Minutes are columns named "1" to "1440".
    minutes = [name for name in table.names if name.isdigit() and len(name) < 6]
    skips = log_tables.Skips(len(table), "functions", table.bad_rows)
    columns = []
    for minute in minutes:
        values, bad = table.numbers(minute)
        skips.drop(bad | (values < 0) | (values > 1e9), "with a bad count")
        columns.append(np.nan_to_num(values))
    skips.none_left(path)
    if not columns:
        raise InvalidInput(str(path), "has no columns of minutes (1, 2, 3 …)")
    counts = np.rint(np.stack(columns, axis=1)[skips.keep]).astype(np.int64)
    keys = [key for key, stays in zip(_keys(table), skips.keep.tolist(), strict=True) if stays]
    return counts, keys, skips.notes


def _curves(path: Path) -> dict[Key, tuple[log_tables.Floats, log_tables.Floats]]:
    """Return percentile levels and milliseconds by function; a function with a mean only has that at every level."""
    table = log_tables.read_csv(path, *_KEY, "Average")
    names = {name: name.rsplit("_", 1)[-1] for name in table.names if name.startswith("percentile_Average_")}
    columns = {float(level): table.numbers(name)[0] for name, level in names.items() if level.isdigit()}
    average, _ = table.numbers("Average")
    found: dict[Key, tuple[log_tables.Floats, log_tables.Floats]] = {}
    for i, key in enumerate(_keys(table)):
        points = sorted((level, float(values[i])) for level, values in columns.items() if 0 <= values[i] < 1e15)
        if not points and 0 <= average[i] < 1e15:
            points = [(0.0, float(average[i])), (100.0, float(average[i]))]
        if points:
            # Averages of percentiles need not rise; a quantile function must.
            found[key] = (np.array([p[0] for p in points]), np.maximum.accumulate([p[1] for p in points]))
    return found


def _memory(path: Path | None) -> dict[tuple[str, ...], int]:
    """Return the mean bytes by function, or by app in the published tables."""
    if path is None:
        return {}
    table = log_tables.read_csv(path, "HashOwner", "HashApp", "AverageAllocatedMb")
    average, _ = table.numbers("AverageAllocatedMb")
    key = [name for name in _KEY if table.has(name)]
    rows = zip(*(table.texts(name) for name in key), strict=True)
    return {row: int(average[i] * MIB) for i, row in enumerate(rows) if 0 <= average[i] < 1e12}


def _of(memory: dict[tuple[str, ...], int], key: Key) -> int:
    # Tables of memory are published by app; derived ones may have it by function.
    return memory.get(key, memory.get(key[:2], 0))

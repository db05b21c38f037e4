"""Function invocations, one row each: Azure Functions 2021 and the Ilúvatar trace.

Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", doi:10.1145/3477132.3483580 (Azure
2021: app, func, end_timestamp, duration in seconds). Fuerst et al., "Ilúvatar: A Fast Control Plane for Serverless
Computing", doi:10.1145/3588195.3592995 (func_name, invoke_time_ms, and a table of functions).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.units import MIB
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces import log_tables
from wattflow.traces.source import Probe, stem, write_atomic

_AZURE2021 = ("app", "func", "end_timestamp", "duration")
_ILUVATAR = ("func_name", "invoke_time_ms")
_METADATA = ("func_name", "warm_dur_ms", "cold_dur_ms")


def claims_azure2021(probe: Probe) -> bool:
    """Recognise a table of calls, by its header."""
    return not probe.folder and set(_AZURE2021) <= set(probe.header())


def claims_iluvatar(probe: Probe) -> bool:
    """Recognise the folder of trace and metadata, or the trace."""
    if probe.folder:
        return _beside(probe.path, "metadata.csv") is not None and _beside(probe.path, "trace.csv") is not None
    return set(_ILUVATAR) <= set(probe.header())


def read_azure2021(path: Path) -> Workload:
    """Read invocations, released at their end less their duration; a function and a workflow task each."""
    table = log_tables.read_csv(path, *_AZURE2021)
    skips = log_tables.Skips(len(table), "invocations", table.bad_rows)
    end, bad_end = table.numbers("end_timestamp")
    duration, bad_duration = table.numbers("duration")
    skips.drop(bad_end | ~np.isfinite(end), "without an end")
    skips.drop(bad_duration | ~np.isfinite(duration), "without a duration")
    skips.drop(duration == -1, "of unknown duration (−1)")
    skips.drop(duration < 0, "with a negative duration")
    skips.drop((np.abs(end) > 1e15) | (duration > 1e15), "with times beyond reason")
    skips.none_left(path)
    keep = skips.keep
    # The trace tells ends and durations; a call is released when it began.
    start = (end - duration)[keep]
    origin = float(start.min())
    if origin != 0:
        skips.notes.append(f"the trace's clock starts at {origin:g} s; that is 0 here")
    functions = [text for text, stays in zip(table.texts("func"), keep.tolist(), strict=True) if stays]
    apps = [text for text, stays in zip(table.texts("app"), keep.tolist(), strict=True) if stays]
    shape, names = log_tables.distinct(functions)
    return Workload.of_columns(
        stem(path),
        release_s=start - origin,
        runtime_s=duration[keep],
        shapes=[Shape(i, (Variant(),)) for i in range(len(names))],
        functions=[Function(str(name)) for (name,) in names],
        shape=shape,
        columns={"app": np.array(apps, np.str_)},
        one_each=True,
        notes=tuple(skips.notes),
    )


def write_azure2021(workload: Workload, path: Path) -> tuple[str, ...]:
    """Write app, func, end_timestamp, duration; needs beyond one core, dependencies and energy have no column."""
    names = [workload.functions[shape.function].name for shape in workload.shapes]
    apps = workload.columns.get("app")
    texts = [str(app) for app in apps.tolist()] if apps is not None else ["app"] * len(workload)
    end = (workload.release_s + workload.runtime_s).tolist()
    quoted = [_quoted(names[s]) for s in workload.shape.tolist()]
    rows = zip(texts, quoted, end, workload.runtime_s.tolist(), strict=True)
    # `repr` is the shortest text that reads back as the same number.
    lines = [",".join(_AZURE2021) + "\n", *(f"{_quoted(a)},{f},{e!r},{d!r}\n" for a, f, e, d in rows)]
    write_atomic(path, "".join(lines).encode("utf-8", "replace"))
    dropped = []
    if workload.edge_count:
        dropped.append(f"{workload.edge_count} dependencies: invocations have none")
    if any(shape.variants != (Variant(),) or shape.parts != 1 for shape in workload.shapes):
        dropped.append("cores, memory, devices, variants and parts")
    if "energy_j" in workload.columns:
        dropped.append("energy")
    if not np.array_equal(workload.estimate_s, workload.runtime_s, equal_nan=True):
        dropped.append("estimates")
    return tuple(dropped)


def _quoted(text: str) -> str:
    """Quote a CSV field; line ends become spaces, since a row is a line."""
    text = " ".join(text.split()) if any(c in text for c in "\r\n") else text
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"') or not text.strip() else text


def _beside(folder: Path, name: str) -> Path | None:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    return None


def read_iluvatar(path: Path) -> Workload:
    """Read the trace and the ``metadata.csv`` beside it. A call takes the warm duration; the cold start is the rest."""
    trace = _beside(path, "trace.csv") if path.is_dir() else path
    metadata = _beside(path if path.is_dir() else path.parent, "metadata.csv")
    if trace is None or metadata is None:
        raise InvalidInput(str(path), "needs trace.csv and metadata.csv in one folder; durations are in the second")
    table = log_tables.read_csv(trace, *_ILUVATAR)
    functions = _iluvatar_functions(metadata)
    index = {function.name: i for i, (function, _, _) in enumerate(functions)}
    skips = log_tables.Skips(len(table), "invocations", table.bad_rows)
    at, bad = table.numbers("invoke_time_ms")
    skips.drop(bad | ~(at >= 0) | (at > 1e15), "without a usable time")
    # -1 for functions without metadata, which are counted and left out below.
    number = np.array([index.get(name, -1) for name in table.texts("func_name")], np.int64)
    skips.drop(number < 0, "of functions that the metadata do not have")
    skips.none_left(trace)
    shape = number[skips.keep].astype(np.int32)
    runtime = np.array([warm for _, warm, _ in functions])
    skips.notes.append("every call takes its function's mean warm duration: the trace has no other")
    return Workload.of_columns(
        path.name if path.is_dir() else path.parent.name,
        release_s=at[skips.keep] / 1000,
        # Mean warm durations by function, spread over the calls by fancy indexing.
        runtime_s=runtime[shape],
        shapes=[Shape(i, (Variant(memory_bytes=memory),)) for i, (_, _, memory) in enumerate(functions)],
        functions=[function for function, _, _ in functions],
        shape=shape,
        one_each=True,
        notes=tuple(skips.notes),
    )


def _iluvatar_functions(path: Path) -> list[tuple[Function, float, int]]:
    """Return each function with its warm seconds and memory."""
    table = log_tables.read_csv(path, *_METADATA)
    warm, _ = table.numbers("warm_dur_ms")
    cold, _ = table.numbers("cold_dur_ms")
    memory, _ = table.numbers("mem_mb")
    found: dict[str, tuple[Function, float, int]] = {}
    for i, name in enumerate(table.texts("func_name")):
        if name and 0 <= warm[i] < 1e15 and (not np.isfinite(memory[i]) or memory[i] < 1e12):
            # The trace's cold duration includes the call itself; a cold start is what is added to it.
            extra = max(0.0, float(cold[i] - warm[i])) / 1000 if np.isfinite(cold[i]) else 0.0
            size = int(memory[i] * MIB) if memory[i] > 0 else 0
            # The first row of a name counts.
            found.setdefault(name, (Function(name, cold_start_s=extra), float(warm[i]) / 1000, size))
    if not found:
        raise InvalidInput(str(path), "no function has a warm duration")
    return list(found.values())

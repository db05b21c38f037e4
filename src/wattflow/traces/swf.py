"""Standard Workload Format: one job a line, 18 numbers, −1 unknown.

Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", doi:10.1007/3-540-47954-6_4.
Columns: job, submit, wait, run, processors, mean CPU time, memory (kB a processor), requested processors, requested
time, requested memory, status, user, group, executable, queue, partition, preceding job, think time. Anything after
the 18th column is passed over. Text is cut into tokens with numpy and parsed by pyarrow: a million jobs take seconds.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput
from wattflow.model.units import MIB
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.traces.source import LOG_LIMIT_BYTES, Probe, open_stream, stem, stream_error, write_atomic

COLUMNS = 18
_CHUNK_BYTES = 8 * MIB
_HOPELESS_BYTES = 64 * MIB
"""After this much without a single job the rest is not read."""
# Logs converted by other tools are known to hold bytes; one odd job must not decide, so the median
# does.
_BYTES_NOT_KB = 1e8
"""A median request above this many kB a processor (100 GB) is bytes of the whole job, as in some converted logs."""
_LINE = re.compile(r"\s*(?:[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s+){17}[+-]?\d")
_NEWLINE, _SPACE, _SEMICOLON = 10, 32, 59
_IS_SPACE = np.zeros(256, np.bool_)
_IS_SPACE[[9, 10, 11, 12, 13, 32]] = True
_IS_NUMERAL = np.zeros(256, np.bool_)
_IS_NUMERAL[list(b"0123456789+-.eE")] = True

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]


def claims(probe: Probe) -> bool:
    """Recognise a log by its ending, or by a first line of 18 numbers after the ``;`` lines."""
    if probe.folder:
        return False
    if probe.name.endswith(".swf"):
        return True
    lines = [line for line in probe.text().split("\n") if line.strip() and not line.lstrip().startswith(";")]
    return bool(lines) and _LINE.match(lines[0]) is not None


@dataclass(slots=True)
class _Skipped:
    """Rows that were left out, by reason."""

    short: int = 0
    words: int = 0

    def notes(self) -> list[str]:
        found = []
        if self.short:
            found.append(f"{self.short} lines with fewer than {COLUMNS} columns were skipped")
        if self.words:
            found.append(f"{self.words} lines with something else than numbers were skipped")
        return found


def read(path: Path, processors: str = "parts") -> Workload:
    """Read a log.

    Args:
        path: The file.
        processors: ``parts`` makes a job of p processors p parts of one core that start together on any nodes;
            ``cores`` makes it one part of p cores on one node.
    """
    if processors not in ("parts", "cores"):
        raise InvalidInput("processors", f"must be parts or cores, not {processors!r}")
    skipped = _Skipped()
    tables: list[Floats] = []
    found = seen = 0
    for chunk in _chunks(path):
        tables.append(_parse(chunk, skipped))
        found, seen = found + len(tables[-1]), seen + len(chunk)
        if not found and seen > _HOPELESS_BYTES:
            break
    if not found:
        raise InvalidInput(str(path), "no line has 18 numbers, so this is not a log in the Standard Workload Format")
    rows = np.concatenate(tables)
    return _workload(rows, stem(path), skipped.notes(), processors)


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield the unpacked text in pieces that end at a line's end."""
    rest, total = b"", 0
    stream = open_stream(path)
    try:
        with stream:
            while piece := stream.read(_CHUNK_BYTES):
                total += len(piece)
                if total > LOG_LIMIT_BYTES or len(rest) > 4 * _CHUNK_BYTES:
                    what = "a line of over 32 MiB" if total <= LOG_LIMIT_BYTES else "over 8 GiB once unpacked"
                    raise InvalidInput(str(path), f"{what}: this is not a log in the Standard Workload Format")
                cut = piece.rfind(b"\n") + 1
                if cut:
                    yield rest + piece[:cut]
                    rest = piece[cut:]
                else:
                    rest += piece
    except (EOFError, zlib.error, OSError) as error:
        raise stream_error(path, error) from None
    if rest.strip():
        yield rest + b"\n"


def _parse(chunk: bytes, skipped: _Skipped) -> Floats:
    """Parse the rows of a chunk as numbers. Everything is one pass over byte arrays."""
    text = np.frombuffer(chunk, np.uint8)
    space = _IS_SPACE[text]
    newline = text == _NEWLINE
    # A newline belongs to the line that it ends, hence the subtraction.
    line = np.cumsum(newline, dtype=np.int32) - newline
    starts = ~space
    # A token starts where no space is and the byte before was one; the first byte of the chunk has none
    # before it.
    starts[1:] &= space[:-1]
    start_at = np.flatnonzero(starts)
    if not len(start_at):
        return np.zeros((0, COLUMNS))
    line_of_token = line[start_at]
    lines = int(line[-1]) + 1
    tokens = np.bincount(line_of_token, minlength=lines)
    # One more than lines, so that `first_token[i]` to `first_token[i + 1]` are the tokens of line i.
    first_token = np.zeros(lines + 1, np.int64)
    np.cumsum(tokens, out=first_token[1:])
    comment = np.zeros(lines, np.bool_)
    filled = tokens > 0
    comment[filled] = text[start_at[first_token[:-1][filled]]] == _SEMICOLON
    # The ordinal of the token that each byte belongs to, within its line.
    ordinal = np.cumsum(starts, dtype=np.int32) - first_token[line].astype(np.int32)
    wanted = ~space & (ordinal <= COLUMNS)
    # Only among the first 18 columns: whatever comes after may be text.
    words = np.bincount(line[wanted & ~_IS_NUMERAL[text]], minlength=lines) > 0
    # More columns than 18 are fine, fewer are not.
    enough = tokens >= COLUMNS
    skipped.short += int(np.count_nonzero(filled & ~comment & ~enough))
    skipped.words += int(np.count_nonzero(enough & ~comment & words))
    good = enough & ~comment & ~words
    if not good.any():
        return np.zeros((0, COLUMNS))
    return _numbers(text, wanted & good[line], ordinal, skipped)


def _numbers(text: Bytes, wanted: NDArray[np.bool_], ordinal: NDArray[np.int32], skipped: _Skipped) -> Floats:
    """Parse the wanted tokens: one separator after each, a line's end after the 18th."""
    import pyarrow as pa
    from pyarrow import csv

    ends = wanted.copy()
    # The last byte of each token is one that no wanted byte follows.
    ends[:-1] &= ~wanted[1:]
    keep = wanted.copy()
    # The byte after a token is kept too: it becomes the separator.
    keep[1:] |= ends[:-1]
    separated = text.copy()
    separator = np.flatnonzero(ends) + 1
    separated[separator] = np.where(ordinal[separator - 1] == COLUMNS, _NEWLINE, _SPACE)
    clean = separated[keep].tobytes()
    names = [str(i) for i in range(COLUMNS)]
    try:
        table = csv.read_csv(
            pa.BufferReader(clean),
            csv.ReadOptions(column_names=names, use_threads=False),
            csv.ParseOptions(delimiter=" "),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.float64()), null_values=[], strings_can_be_null=False
            ),
        )
    # A token of allowed letters that is no number, such as "1-2" or "e": rare, so the slow way is
    # enough.
    except pa.ArrowInvalid:
        return _numbers_slowly(clean, skipped)
    return np.column_stack([table[name].to_numpy() for name in names])


def _numbers_slowly(clean: bytes, skipped: _Skipped) -> Floats:
    """Parse line by line, where some token such as ``1-2`` only looks like a number."""
    rows = []
    for line in clean.splitlines():
        try:
            rows.append([float(token) for token in line.split()])
        except ValueError:
            skipped.words += 1
    return np.array(rows, np.float64).reshape(-1, COLUMNS)


def _workload(rows: Floats, name: str, notes: list[str], processors: str) -> Workload:
    given = len(rows)
    rows, more = _usable(rows)
    notes += more
    if given and not len(rows):
        raise InvalidInput(name, f"none of its {given:,} jobs can be run: {'; '.join(more)}")
    job, submit, wait, run = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]
    # Processors that were allocated, else those that were asked for.
    width = np.where(rows[:, 4] > 0, rows[:, 4], rows[:, 7])
    if np.count_nonzero(width <= 0):
        notes.append(f"{np.count_nonzero(width <= 0)} jobs do not say how many processors; one is assumed")
    # Converted logs have fractions.
    width = np.maximum(np.ceil(width), 1.0).astype(np.int64)
    memory, memory_notes = _memory_bytes(rows, width)
    notes += memory_notes
    requested = rows[:, 8]
    if np.count_nonzero(requested <= 0):
        notes.append(f"{np.count_nonzero(requested <= 0)} jobs request no time; the run time is the estimate")
    origin = float(submit.min()) if len(submit) else 0.0
    if origin != 0:
        notes.append(f"the log's clock starts at {origin:.0f} s; that is 0 here")
    shape, shapes, functions = _shapes(rows[:, 13], width, memory, processors)
    names = ("status", "user", "group", "executable", "queue", "partition", "preceding_job", "think_s")
    columns: dict[str, NDArray[np.generic]] = {
        "wait_s": np.where(wait >= 0, wait, np.nan),
        "cpu_s": np.where(rows[:, 5] >= 0, rows[:, 5], np.nan),
    }
    for column, i in zip(names, range(10, COLUMNS), strict=True):
        # A column of -1 only says nothing, and would be written back as such anyway.
        if (rows[:, i] != -1).any():
            columns[column] = rows[:, i]
    # Numbers of jobs are ids only where they are exact as floats.
    whole = bool((np.abs(job) < 2**53).all() and (job == np.floor(job)).all())
    return Workload.of_columns(
        name,
        release_s=submit - origin,
        runtime_s=run,
        shapes=shapes,
        functions=functions,
        # A request of 0 or -1 is none.
        estimate_s=np.where(requested > 0, requested, run),
        shape=shape,
        ids=tuple(map(str, job.astype(np.int64).tolist())) if whole else None,
        one_each=True,
        columns=columns,
        notes=tuple(notes),
    )


def _usable(rows: Floats) -> tuple[Floats, list[str]]:
    """Return rows with a submission and a run time; the others are counted."""
    notes = []
    run, submit = rows[:, 3], rows[:, 1]
    finite = np.isfinite(rows).all(axis=1) & (np.abs(rows) < 1e15).all(axis=1)
    unknown = finite & (run == -1)
    negative = finite & (run < 0) & ~unknown
    # Each row has one reason, so that the counts in the notes add up.
    unsent = finite & (submit < 0) & ~unknown & ~negative
    wide = finite & (np.maximum(rows[:, 4], rows[:, 7]) > 32767) & (run >= 0) & (submit >= 0)
    for count, what in (
        (np.count_nonzero(~finite), "numbers beyond reason were skipped"),
        (np.count_nonzero(unknown), "an unknown run time (−1) were skipped"),
        (np.count_nonzero(negative), "a negative run time were skipped"),
        (np.count_nonzero(unsent), "a negative submission time were skipped"),
        (np.count_nonzero(wide), "more than 32,767 processors were skipped"),
    ):
        if count:
            notes.append(f"{count} jobs with {what}")
    return rows[finite & (run >= 0) & (submit >= 0) & ~wide], notes


def _memory_bytes(rows: Floats, width: NDArray[np.int64]) -> tuple[Floats, list[str]]:
    """Return the bytes a processor: requested, else used, else 0 (unknown)."""
    notes = []
    kilobytes = np.where(rows[:, 9] > 0, rows[:, 9], np.where(rows[:, 6] > 0, rows[:, 6], 0.0))
    asked = rows[:, 9][rows[:, 9] > 0]
    if len(asked) and float(np.median(asked)) > _BYTES_NOT_KB:
        notes.append("requested memory is far beyond kB a processor; it is read as bytes a job")
        return np.where(rows[:, 9] > 0, rows[:, 9] / width, 0.0), notes
    # The format says kB and not which; 1,000 bytes are taken.
    return kilobytes * 1000.0, notes


def _shapes(
    executable: Floats, width: NDArray[np.int64], memory: Floats, processors: str
) -> tuple[NDArray[np.int32], list[Shape], list[Function]]:
    """Make shapes of distinct (executable, width, memory), and a function for each executable."""
    apps, app = np.unique(executable, return_inverse=True)
    sizes, size = np.unique(memory, return_inverse=True)
    widths, wide = np.unique(width, return_inverse=True)
    # One number per combination, so that one sort of integers finds them all.
    key = (app.astype(np.int64) * len(sizes) + size) * len(widths) + wide
    distinct, shape = np.unique(key, return_inverse=True)
    functions = [Function(f"app-{int(number)}" if number >= 0 else "job") for number in apps.tolist()]
    shapes = []
    for code in distinct.tolist():
        rest, w = divmod(code, len(widths))
        a, s = divmod(rest, len(sizes))
        p, each = int(widths[w]), int(sizes[s])
        if processors == "parts":
            shapes.append(Shape(a, (Variant(cores=1.0, memory_bytes=each),), p))
        else:
            shapes.append(Shape(a, (Variant(cores=float(p), memory_bytes=each * p),), 1))
    return shape.astype(np.int32), shapes, functions


def write(workload: Workload, path: Path) -> tuple[str, ...]:
    """Write a log. Dependencies, files, devices and energy have no column; a job of p parts of c cores is p·c wide."""
    columns, dropped = _columns(workload)
    lines = [f"; Version: 2.2\n; Computer: {workload.name}\n; MaxJobs: {len(workload)}\n; UnixStartTime: 0\n"]
    texts = [_texts(column) for column in columns]
    lines += [" ".join(row) + "\n" for row in zip(*texts, strict=True)]
    write_atomic(path, "".join(lines).encode())
    return dropped


def _texts(column: Floats) -> list[str]:
    """Write numbers as short as they are exact: whole ones without a point."""
    # As one cast where all are whole: formatting a million floats one by one takes seconds.
    if bool((column == np.floor(column)).all()) and bool((np.abs(column) < 2**53).all()):
        return [str(value) for value in column.astype(np.int64).tolist()]
    return [repr(int(value)) if value.is_integer() else repr(value) for value in column.tolist()]


def _columns(workload: Workload) -> tuple[list[Floats], tuple[str, ...]]:
    """Return the 18 columns, and what they leave out."""
    count = len(workload)
    first = [shape.variants[0] for shape in workload.shapes]
    cores = np.array([v.cores for v in first] or [1.0])
    parts = np.array([s.parts for s in workload.shapes] or [1])
    memory = np.array([v.memory_bytes for v in first] or [0])
    width = np.maximum(np.ceil(parts * cores), 1.0)
    per_processor = np.where(memory > 0, memory * parts / width / 1000.0, -1.0)
    executable = np.array(
        [_number_of(workload.functions[s.function].name, s.function) for s in workload.shapes] or [-1.0]
    )
    unknown = np.full(count, -1.0)

    def kept(name: str, missing: float = -1.0) -> Floats:
        found = workload.columns.get(name)
        if found is None or found.dtype.kind not in "fiu":
            return unknown
        return np.where(np.isfinite(found.astype(np.float64)), found.astype(np.float64), missing)

    known = workload.columns.get("runtime_known")
    run = workload.runtime_s if known is None else np.where(known.astype(bool), workload.runtime_s, -1.0)
    job = _job_numbers(workload)
    estimate = np.where(np.isfinite(workload.estimate_s), workload.estimate_s, -1.0)
    at = workload.shape
    columns = [
        job, workload.release_s, kept("wait_s"), run, width[at], kept("cpu_s"), unknown, width[at],
        # An estimate equal to the run time is what a reader assumes without one.
        np.where((estimate > 0) & (estimate != run), estimate, -1.0), per_processor[at], kept("status"),
        kept("user"), kept("group"), executable[at], kept("queue"), kept("partition"), kept("preceding_job"),
        kept("think_s"),
    ]  # fmt: skip
    return columns, _dropped(workload, cores)


def _job_numbers(workload: Workload) -> Floats:
    """Return the tasks' own ids where all are whole numbers, else 1, 2, 3 …"""
    count = len(workload)
    ids = workload.ids or ()
    # Leading zeros would be lost as numbers.
    if len(ids) == count and all(re.fullmatch(r"\d{1,15}", id) and str(int(id)) == id for id in ids):
        return np.array([float(id) for id in ids])
    return np.arange(1.0, count + 1.0)


def _number_of(name: str, index: int) -> float:
    if name == "job":
        return -1.0
    match = re.fullmatch(r"app-(\d{1,15})", name)
    return float(match[1]) if match else float(index + 1)


def _dropped(workload: Workload, cores: Floats) -> tuple[str, ...]:
    lines = []
    if workload.edge_count:
        lines.append(f"{workload.edge_count} dependencies: SWF has none, jobs start when submitted")
    if any(v.device for shape in workload.shapes for v in shape.variants):
        lines.append("devices: SWF knows processors only")
    if any(len(shape.variants) > 1 for shape in workload.shapes):
        lines.append("variants beyond the first")
    if (cores != 1).any():
        lines.append("cores of a part: a job of p parts of c cores is p·c processors, rounded up")
    if (workload.input_bytes > 0).any() or (workload.output_bytes > 0).any():
        lines.append("bytes read and written")
    if np.isfinite(workload.deadline_s).any():
        lines.append("deadlines")
    if "energy_j" in workload.columns or "avg_power_w" in workload.columns:
        lines.append("energy")
    if len(workload.workflow_names) > 1 and not workload.one_task_each:
        lines.append(f"which of the {len(workload.workflow_names)} workflows a task belongs to")
    if any(re.fullmatch(r"app-\d+|job", function.name) is None for function in workload.functions):
        lines.append("names of functions: executables are numbered")
    if workload.ids is not None and not all(id.isdigit() for id in workload.ids):
        lines.append("ids of tasks: jobs are numbered")
    return tuple(lines)

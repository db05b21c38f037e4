"""Tables of logs: CSV and parquet columns as numpy arrays, tolerant of type drift, bad values counted."""

from __future__ import annotations

import codecs
import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput
from wattflow.model.units import GIB
from wattflow.traces.source import HEAD_BYTES, open_stream, stream_error

# Only for types: pyarrow is slow to import, and most commands need none of it.
if TYPE_CHECKING:
    from io import BufferedIOBase

    import pyarrow as pa

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
CSV_LIMIT_BYTES = 2 * GIB
PARQUET_LIMIT_BYTES = 16 * GIB
_UNKNOWN = frozenset({"", "-", "na", "n/a", "nan", "null", "none", "-1"})


def _question(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "?" * (error.end - error.start), error.end


class TraceTable:
    """A table's columns by name. Numbers come with a mask of values that are present and are not numbers."""

    def __init__(self, path: Path, table: pa.Table, bad_rows: int = 0) -> None:
        self.path, self.table, self.bad_rows = path, table, bad_rows

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> list[str]:
        return list(self.table.column_names)

    def has(self, name: str) -> bool:
        return name in self.table.column_names

    def need(self, *names: str) -> None:
        """Raise InvalidInput where a column is missing, naming all that are."""
        missing = [name for name in names if not self.has(name)]
        if missing:
            raise _lacks(self.path, missing, self.names)

    def texts(self, name: str) -> list[str]:
        """Return a column as text; unknown is the empty string. A missing column is all unknown."""
        if not self.has(name):
            return [""] * len(self)
        return ["" if value is None else str(value).strip() for value in self.table[name].to_pylist()]

    def numbers(self, name: str, parse: Callable[[str], float] | None = None) -> tuple[Floats, Mask]:
        """Return a column as numbers (NaN is unknown) and where a value is there but is not a number.

        Args:
            name: The column; a missing one is all unknown.
            parse: Reads texts that are not plain numbers, such as ``"1.2 GB"``; ValueError marks a bad one.
        """
        count = len(self)
        if not self.has(name):
            return np.full(count, np.nan), np.zeros(count, np.bool_)
        fast = self._cast(name)
        if fast is not None:
            bad = np.isinf(fast)
            return np.where(bad, np.nan, fast), bad
        values, bad = np.full(count, np.nan), np.zeros(count, np.bool_)
        for i, raw in enumerate(self.table[name].to_pylist()):
            # -1 is a number in some logs and "unknown" in others: readers decide, it is not dropped here.
            if raw is None or (isinstance(raw, str) and raw.strip().lower() in _UNKNOWN - {"-1"}):
                continue
            try:
                values[i] = _number(raw, parse)
            except (ValueError, TypeError, OverflowError):
                bad[i] = True
            # Infinite is not a number that a workload can hold, though `float` reads it.
            if math.isinf(values[i]):
                values[i], bad[i] = np.nan, True
        return values, bad

    def _cast(self, name: str) -> Floats | None:
        """Return the column as floats in one step, or None where some value needs a look."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.table[name]
        try:
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                column = pc.utf8_trim_whitespace(column)
                empty = pc.or_(pc.equal(column, ""), pc.equal(column, "-"))
                column = pc.if_else(empty, pa.scalar(None, column.type), column)
            if pa.types.is_timestamp(column.type):
                # Parquet may hold times as timestamps; milliseconds since 1970 is what the formats mean.
                column = pc.cast(pc.cast(column, pa.timestamp("ms"), safe=False), pa.int64())
            # `safe=False`: integers above 2**53 lose their last digits instead of failing the whole column.
            cast = pc.cast(column, pa.float64(), safe=False)
            values: Floats = cast.to_numpy(zero_copy_only=False).astype(np.float64)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError):
            return None
        return values

    def edges(self, name: str) -> tuple[NDArray[np.int64], Floats]:
        """Return a column of id lists as (row, id) pairs; ids that are no whole numbers are NaN."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.has(name) and pa.types.is_list(self.table[name].type):
            column = self.table[name].combine_chunks()
            try:
                ids = pc.cast(pc.list_flatten(column), pa.float64()).to_numpy(zero_copy_only=False)
                return pc.list_parent_indices(column).to_numpy().astype(np.int64), ids.astype(np.float64)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                # Lists of texts or of mixed types go the slow way.
                pass
        lists = self.lists(name)
        rows = np.repeat(np.arange(len(lists)), [len(found) for found in lists])
        return rows.astype(np.int64), np.array([id for found in lists for id in found], np.float64)

    def lists(self, name: str) -> list[list[int]]:
        """Read a column of id lists: ints, floats or text such as ``"[1, 2]"``; bad ids are left out."""
        if not self.has(name):
            return [[] for _ in range(len(self))]
        return [_ids(raw) for raw in self.table[name].to_pylist()]


def _lacks(path: Path, missing: Sequence[str], names: Sequence[str]) -> InvalidInput:
    has = ", ".join(name[:30] for name in names[:20])
    return InvalidInput(str(path), f"lacks the columns {', '.join(missing)}; it has {has}")


def _number(raw: str | SupportsFloat, parse: Callable[[str], float] | None) -> float:
    if isinstance(raw, str):
        try:
            return float(raw)
        except ValueError:
            if parse is None:
                raise
            return parse(raw.strip())
    return float(raw)


def _ids(raw: object) -> list[int]:
    if raw is None:
        return []
    if isinstance(raw, str):
        raw = [part for part in raw.strip("[](){} ").replace(",", " ").split() if part]
    if isinstance(raw, int | float):
        raw = [raw]
    found = []
    for value in raw if isinstance(raw, list | tuple) else ():
        try:
            number = float(value)
        except (ValueError, TypeError):
            continue
        # -1 stands for "no parent" in some traces.
        if math.isfinite(number) and number.is_integer() and number != -1:
            found.append(int(number))
    return found


def read_csv(path: Path, *needed: str) -> TraceTable:
    """Read a comma- or tab-separated file, packed or not, every value as text; count rows of another width.

    Args:
        path: The file.
        needed: Columns that the header must have; without them nothing more is read.
    """
    import pyarrow as pa
    from pyarrow import csv

    bad = 0

    def skip(row: object) -> str:
        nonlocal bad
        bad += 1
        return "skip"

    names, delimiter = _header(path)
    missing = [name for name in needed if name not in names]
    if missing:
        raise _lacks(path, missing, names)
    # Arrow would keep both, and a lookup by name would fail later without a reason.
    if len(set(names)) < len(names):
        raise InvalidInput(str(path), "two columns have the same name")
    stream = open_stream(path)
    try:
        with stream, pa.input_stream(_Bounded(stream, path)) as source:
            table = csv.read_csv(
                source,
                csv.ReadOptions(block_size=8 * 1024 * 1024, use_threads=False),
                csv.ParseOptions(delimiter=delimiter, invalid_row_handler=skip),
                # All as text: guessed types differ from block to block, and a late odd value would fail the file.
                csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), null_values=[]),
            )
    except (EOFError, zlib.error) as error:
        raise stream_error(path, error) from None
    except pa.ArrowException as error:
        raise InvalidInput(str(path), f"not a table: {_short(error)}") from None
    except (OSError, ValueError, KeyError) as error:
        raise stream_error(path, error) from None
    return TraceTable(path, table, bad)


class _Bounded:
    """A readable that ends in an error beyond the limit, so that a packed bomb does not fill memory.

    Bytes that are not UTF-8 become question marks, so that one bad name does not cost a whole log.
    """

    def __init__(self, stream: BufferedIOBase, path: Path) -> None:
        self.stream, self.path, self.left, self.closed = stream, path, CSV_LIMIT_BYTES, False
        codecs.register_error("wattflow.question", _question)
        self.decoder = codecs.getincrementaldecoder("utf-8")("wattflow.question")

    def read(self, size: int = -1) -> bytes:
        while True:
            # What the decoder held back may come on top; never hand over more than was asked for.
            data: bytes = self.stream.read(max(size - 4, 1) if size >= 0 else -1)
            self.left -= len(data)
            if self.left < 0:
                raise InvalidInput(str(self.path), "larger than 2 GiB once unpacked; split it")
            # The last call must flush what is held back: an unfinished character at the end becomes a question
            # mark.
            clean = self.decoder.decode(data, final=not data).encode()
            if clean or not data:
                return clean

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def _header(path: Path) -> tuple[list[str], str]:
    import csv as text_csv

    stream = open_stream(path)
    try:
        with stream:
            head = stream.read(HEAD_BYTES)
    except (EOFError, zlib.error, OSError) as error:
        raise stream_error(path, error) from None
    # utf-8-sig: spreadsheets write a byte order mark, which would become part of the first column's
    # name.
    first = head.split(b"\n", 1)[0].rstrip(b"\r").decode("utf-8-sig", "replace")
    delimiter = "\t" if "\t" in first and "," not in first else ","
    try:
        names = next(text_csv.reader([first], delimiter=delimiter), [])
    except text_csv.Error:
        names = []
    if not names:
        raise InvalidInput(str(path), "has no header line")
    return names, delimiter


def read_parquet(paths: Sequence[Path]) -> TraceTable:
    """Read one or several parquet files of one table, columns joined by name; types may differ between the files."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = []
    for path in paths:
        try:
            with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
                groups = range(file.metadata.num_row_groups)
                # Sizes before reading: a small file may unpack to any size.
                size = sum(file.metadata.row_group(i).total_byte_size for i in groups)
                if size > PARQUET_LIMIT_BYTES or file.metadata.num_rows > 2**31 - 2:
                    raise InvalidInput(str(path), f"its {size / GIB:,.0f} GiB unpacked are beyond what is read at once")
                tables.append(file.read())
        except (pa.ArrowException, OSError, ValueError, MemoryError, KeyError) as error:
            raise InvalidInput(str(path), f"not readable as parquet: {_short(error)}") from None
    if not tables:
        raise InvalidInput("parquet", "no file given")
    try:
        # Permissive: archives of one trace differ in types from part to part (int64, double).
        joined = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
        # Full: offsets in a damaged file may point anywhere, and numpy would read there.
        joined.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidInput(str(paths[0]), f"its parts do not fit together: {_short(error)}") from None
    if len(set(joined.column_names)) < len(joined.column_names):
        raise InvalidInput(str(paths[0]), "two columns have the same name")
    return TraceTable(paths[0], joined)


def _short(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200]


class Skips:
    """Rows left out of a log, by reason, and the mask of those that stay."""

    def __init__(self, count: int, unit: str = "rows", bad_rows: int = 0) -> None:
        self.keep = np.ones(count, np.bool_)
        self.unit = unit
        self.notes: list[str] = []
        if bad_rows:
            self.notes.append(f"{bad_rows} {unit} with another number of columns were skipped")

    def drop(self, bad: Mask, why: str) -> None:
        """Leave these rows out; those already out are not counted twice."""
        # Only those that still stay, so that notes add up to the rows that are missing.
        count = int(np.count_nonzero(bad & self.keep))
        if count:
            self.notes.append(f"{count} {self.unit} {why} were skipped")
            self.keep &= ~bad

    def none_left(self, path: Path) -> None:
        """Raise InvalidInput where no row stayed."""
        if not self.keep.any():
            raise InvalidInput(str(path), "no usable row: " + ("; ".join(self.notes) or "the table is empty"))


def distinct(*columns: Sequence[object]) -> tuple[NDArray[np.int32], list[tuple[object, ...]]]:
    """Number each row's combination of values, and list the combinations in order of first appearance."""
    known: dict[tuple[object, ...], int] = {}
    # `setdefault` numbers combinations in the order in which they appear, which is stable for equal
    # files.
    codes = [known.setdefault(row, len(known)) for row in zip(*columns, strict=True)]
    return np.array(codes, np.int32), list(known)


def match_edges(
    ids: Floats, keep: Mask, edges: tuple[NDArray[np.int64], Floats], skips: Skips
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (parents, children) as positions among the kept rows; count edges to unknown, skipped or same rows."""
    rows, wanted = edges
    position = np.cumsum(keep) - 1
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids[order], wanted)
    # An id above all others would point behind the end; whether it is found is tested below.
    at = np.minimum(at, max(len(ids) - 1, 0))
    parent = order[at] if len(ids) else np.zeros(0, np.int64)
    found = (ids[parent] == wanted) if len(ids) else np.zeros(0, np.bool_)
    good = found & keep[parent] & keep[rows] & (parent != rows)
    lost = int(np.count_nonzero(~good & keep[rows] & np.isfinite(wanted) & (wanted != -1)))
    if lost:
        skips.notes.append(f"{lost} dependencies on unknown or skipped tasks were left out")
    # Sorted by child, then parent, without repeats: the form that `Workload` wants.
    pairs = np.unique(np.stack([position[rows[good]], position[parent[good]]], axis=1), axis=0)
    return pairs[:, 1].astype(np.int32), pairs[:, 0].astype(np.int32)

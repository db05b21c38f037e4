"""Columns: a JSON head and typed arrays, each at a multiple of eight bytes, that a browser reads without parsing rows.

docs/page-routes.md has the layout. Times are written as differences, so most fit a byte or two and compress well.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput

MAGIC = b"WFCOLS1\n"
MEDIA_TYPE = "application/vnd.wattflow.columns"
VERSION = 1
_TYPES: dict[str, type[Any]] = {"i1": np.int8, "i2": np.int16, "i4": np.int32, "f4": np.float32, "f8": np.float64}
Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column to be written.

    Attributes:
        values: Numbers, or texts.
        strings: Name of the list of texts that the numbers index.
        form: ``delta`` (each entry adds to the one before) or ``after`` (added to the column ``of``), or "".
    """

    values: Values | Sequence[str]
    strings: str = ""
    form: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file: about, lists of texts, and tables of columns (numbers as arrays, texts as lists)."""

    about: Mapping[str, Any]
    strings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Values | list[str]]] = field(default_factory=dict)


def pack(
    about: Mapping[str, Any], strings: Mapping[str, Sequence[str]], tables: Mapping[str, Mapping[str, Column]]
) -> bytes:
    """Pack a document. NaN in ``about`` becomes null; columns of a table have the same number of rows."""
    body = _Body()
    head = {
        "format": "wattflow-columns",
        "version": VERSION,
        "about": _plain(about),
        "strings": {name: list(texts) for name, texts in strings.items()},
        "tables": {name: _table(body, columns) for name, columns in tables.items()},
    }
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    # Padded with spaces, which JSON allows: the body begins at a multiple of eight.
    text += b" " * (-len(text) % 8)
    # Magic (8), length (4), four bytes of nothing: the head begins at 16.
    return b"".join([MAGIC, len(text).to_bytes(4, "little"), bytes(4), text, *body.pieces])


def unpack(data: bytes, where: str = "columns") -> Document:
    """Read a document back.

    Raises:
        InvalidInput: It is none, was cut off, or a newer version wrote it.
    """
    if data[:8] != MAGIC or len(data) < 16:
        raise InvalidInput(where, "is no file of columns that wattflow wrote")
    size = int.from_bytes(data[8:12], "little")
    try:
        head = json.loads(data[16 : 16 + size])
        # Older versions are read; a newer one may mean something else by the same keys.
        if head["version"] > VERSION:
            raise InvalidInput(where, f"was written by a newer wattflow (columns {head['version']}, known: {VERSION})")
        body = memoryview(data)[16 + size :]
        tables = {name: _read_table(body, table) for name, table in head["tables"].items()}
        return Document(head["about"], head["strings"], tables)
    # Whatever a damaged head leads to: one message, no traceback.
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(where, "is damaged or was cut off: its columns cannot be read") from None


class _Body:
    """Arrays one after the other, each from a multiple of eight bytes on."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> int:
        """Add an array; returns where it begins."""
        at = self.size
        padded = data + bytes(-len(data) % 8)
        self.pieces.append(padded)
        self.size += len(padded)
        return at


def _table(body: _Body, columns: Mapping[str, Column]) -> dict[str, Any]:
    rows = {len(column.values) for column in columns.values()}
    if len(rows) > 1:
        raise ValueError(f"columns of one table differ in length: {sorted(rows)}")
    written = {name: _column(body, column, columns) for name, column in columns.items()}
    return {"rows": rows.pop() if rows else 0, "columns": written}


def _column(body: _Body, column: Column, beside: Mapping[str, Column]) -> dict[str, Any]:
    if not isinstance(column.values, np.ndarray):
        return _texts(body, column.values)
    values = column.values
    if column.form == "delta":
        # The first difference is to 0, so the sum gives the first value back.
        values = np.diff(values, prepend=values.dtype.type(0))
    elif column.form == "after":
        values = values - np.asarray(beside[column.of].values)
    kind = _smallest(values)
    about: dict[str, Any] = {"type": kind, "at": body.add(values.astype(f"<{kind}").tobytes())}
    about |= {key: value for key, value in (("form", column.form), ("of", column.of)) if value}
    return about | ({"strings": column.strings} if column.strings else {})


def _smallest(values: Values) -> str:
    if values.dtype.kind == "f":
        # Floats keep their width: who wants them small rounds first (`rounded`).
        return "f4" if values.dtype.itemsize <= 4 else "f8"
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for kind in ("i1", "i2", "i4"):
        bounds = np.iinfo(_TYPES[kind])
        if bounds.min <= low and high <= bounds.max:
            return kind
    # Whole numbers beyond 32 bits are exact in a double up to 2**53, which is what a browser computes
    # with.
    return "f8"


def rounded(values: Values) -> Values:
    """Round to float32 with 13 bits after the leading one (relative error below 1e-4), which compresses better."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    finite = np.isfinite(values)
    # Half of the last kept bit added before cutting rounds to nearest; infinities and NaN must keep
    # their bits.
    kept = np.where(finite, (bits + np.uint32(1 << 9)) & np.uint32(0xFFFFFC00), bits)
    return kept.astype(np.uint32).view(np.float32)


def _texts(body: _Body, texts: Sequence[str]) -> dict[str, Any]:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    # One more than texts: text i lies between offsets i and i + 1.
    offsets = np.zeros(len(encoded) + 1, "<u4")
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    joined = b"".join(encoded)
    return {"type": "utf8", "at": body.add(offsets.tobytes()), "bytes_at": body.add(joined), "bytes": len(joined)}


def _read_table(body: memoryview, table: Mapping[str, Any]) -> dict[str, Values | list[str]]:
    read: dict[str, Values | list[str]] = {}
    rows = int(table["rows"])
    for name, about in table["columns"].items():
        if about["type"] == "utf8":
            read[name] = _read_texts(body, about, rows)
            continue
        values = np.frombuffer(body, np.dtype(_TYPES[about["type"]]).newbyteorder("<"), rows, about["at"])
        if about.get("form") == "delta":
            # Sums of bytes do not fit into bytes.
            values = np.cumsum(values, dtype=np.float64 if about["type"] == "f8" else np.int64)
        read[name] = values
    # After all others: `of` may stand later in the table.
    for name, about in table["columns"].items():
        if about.get("form") == "after":
            read[name] = np.asarray(read[about["of"]]) + np.asarray(read[name])
    return read


def _read_texts(body: memoryview, about: Mapping[str, Any], rows: int) -> list[str]:
    offsets = np.frombuffer(body, "<u4", rows + 1, about["at"]).tolist()
    data = bytes(body[about["bytes_at"] : about["bytes_at"] + about["bytes"]])
    # A slice beyond the end is shorter without an error.
    if len(data) != about["bytes"]:
        raise ValueError("cut off")
    return [data[a:b].decode() for a, b in itertools.pairwise(offsets)]


def _plain(value: Any) -> Any:
    """Replace NaN by null, which JSON has."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return value


__all__ = ["MEDIA_TYPE", "Column", "Document", "pack", "rounded", "unpack"]

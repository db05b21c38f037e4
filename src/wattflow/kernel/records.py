"""Tables of records whose columns read the same in Python as in compiled code."""

from __future__ import annotations

import functools
import hashlib
import io
import weakref
import zipfile
from typing import IO, Any, TypeVar

import numpy as np

from wattflow.kernel.handle import Tables, as_bytes, plain
from wattflow.model.errors import InvalidInput


class Row(np.record):  # type: ignore[misc]
    """A row of a table. Its fields come before numpy's own attributes (numpy 2 gives everything a ``device``)."""

    def __getattribute__(self, name: str) -> Any:
        # Asked of `np.void` directly: the attribute would lead back here.
        fields = np.void.__getattribute__(self, "dtype").fields
        return self[name] if name in fields else super().__getattribute__(name)


class RecordTable(np.ndarray):
    """An array of rows whose columns are attributes, before numpy's own."""

    def __getattribute__(self, name: str) -> Any:
        fields = np.ndarray.__getattribute__(self, "dtype").fields
        if fields is not None and name in fields:
            return np.ndarray.__getitem__(self, name).view(np.ndarray)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.dtype.fields
        if fields is not None and name in fields:
            self[name] = value
        else:
            super().__setattr__(name, value)


LARGE_BYTES = 1 << 20
"""From this size on a table's memory is kept when the table goes, for the next one of about its size."""
KEPT_BYTES = 1 << 29
_kept: list[np.ndarray] = []
"""Memory of tables that went: touching fresh pages costs more than everything else that making a table does."""


class _Block(np.ndarray):
    """Memory on loan; tables are views of it, so it goes with the last of them."""


def record_table(dtype: np.dtype[Any], rows: int) -> Any:
    """Make a table of zeros. Memory that is not asked for as zeros may come in large pages, cheaper to touch."""
    size = rows * dtype.itemsize
    if size < LARGE_BYTES:
        table = np.empty(rows, _with_rows(dtype))
        table.view(np.uint8)[...] = 0
        return table.view(RecordTable)
    memory = _memory(size)
    block = memory.view(_Block)
    # When the last view goes; not at the end of the process, where nobody makes another table.
    weakref.finalize(block, _keep, memory).atexit = False
    block[:size] = 0
    return block[:size].view(_with_rows(dtype)).view(RecordTable)


@functools.lru_cache(maxsize=256)
def _with_rows(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type with our class of rows: the same object each time, for that is compared at once."""
    return np.dtype((Row, dtype))


def _memory(size: int) -> np.ndarray:
    """Return the smallest kept memory that holds so much and is not much larger, else fresh memory."""
    # A much larger one would be held for a small table.
    fitting = [number for number, memory in enumerate(_kept) if size <= len(memory) <= size + size // 4]
    if fitting:
        return _kept.pop(min(fitting, key=lambda number: len(_kept[number])))
    return np.empty(size, np.uint8)


def _keep(memory: np.ndarray) -> None:
    _kept.append(memory)
    while sum(map(len, _kept)) > KEPT_BYTES:
        _kept.pop(0)


# Of the archive's form. Columns that come need no new version: `read` goes by their names.
VERSION = 1
_SCHEMA = "schema"
Kind = TypeVar("Kind", bound=Tables)


def schema(tables: Tables) -> str:
    """Describe tables in one line: their kind, the format, and a hash of all names and types, to tell files apart."""
    facts = [(name, getattr(tables, name)) for name in tables.NAMES]
    described = repr([(name, plain(table.dtype).descr, table.ndim) for name, table in facts])
    return f"{type(tables).__name__} {VERSION} {hashlib.sha256(described.encode()).hexdigest()[:16]}"


def dump(tables: Tables) -> bytes:
    """Return the archive as bytes."""
    buffer = io.BytesIO()
    write(tables, buffer)
    return buffer.getvalue()


def write(tables: Tables, file: IO[bytes]) -> None:
    """Write the archive; `numpy.load` reads it too."""
    tables._refuse_if_busy("saved")
    kept = {name: getattr(tables, name) for name in tables.NAMES}
    kept |= {name: kept[name][:0] for name in tables.UNSAVED}
    arrays: dict[str, Any] = {name: _plain_rows(table) for name, table in kept.items()}
    arrays[_SCHEMA] = np.frombuffer(schema(tables).encode(), np.uint8)
    np.savez(file, **arrays)


def read(file: IO[bytes], like: Kind, source: str = "snapshot") -> Kind:
    """Return tables of the same kind as ``like``, read column by column by name; `InvalidInput` for any other file.

    A file of an earlier version lacks columns that came since: they are 0, or what ``DEFAULTS`` of the class says. A
    table that came since is the one of ``like``. A column that this version does not know is refused by name, since
    what it says would be lost; only padding (``unused…``) is left out.
    """
    try:
        # Without pickles: a snapshot from elsewhere must not run code.
        with np.load(file, allow_pickle=False) as archive:
            if _SCHEMA not in archive:
                raise InvalidInput(source, "it holds no tables of wattflow")
            _check_kind(archive[_SCHEMA].tobytes().decode("utf-8", "replace"), like, source)
            unknown = sorted(set(archive.files) - {_SCHEMA, *like.NAMES})
            if unknown:
                raise InvalidInput(source, f"it has tables that this version does not know: {', '.join(unknown)}")
            found = {name: archive[name] for name in like.NAMES if name in archive}
            read_in = {name: _table(name, array, like, source) for name, array in found.items()}
            return type(like)(**{name: read_in.get(name, getattr(like, name)) for name in like.NAMES})
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as problem:
        raise InvalidInput(source, f"it is damaged: {problem}") from None


def _check_kind(found: str, like: Tables, source: str) -> None:
    kind, version, *_ = [*found.split(), "", ""]
    if (kind, version) != (type(like).__name__, str(VERSION)):
        raise InvalidInput(
            source,
            f"its tables are {found!r}, this version reads {type(like).__name__} {VERSION}; "
            "load it with the version that saved it",
        )


def _table(name: str, array: Any, like: Tables, source: str) -> Any:
    """Return a table of the file in this version's layout."""
    wanted = getattr(like, name)
    fields, found = plain(wanted.dtype), array.dtype
    if array.ndim != wanted.ndim or (fields.names is None) != (found.names is None):
        raise InvalidInput(source, f"its table {name} has another form; load it with the version that saved it")
    if found == fields:
        return _rows(array)
    if fields.names is None:
        raise InvalidInput(source, f"its table {name} holds {found}, this version's {fields}")
    _check_columns(name, found, fields, source)
    table = record_table(fields, len(array))
    for column in fields.names:
        known = column in found.names
        table[column] = array[column] if known else like.DEFAULTS.get(f"{name}.{column}", 0)
    return table


def _check_columns(name: str, found: Any, fields: Any, source: str) -> None:
    # Padding says nothing, so it may go.
    unknown = [c for c in found.names if c not in fields.names and not c.startswith("unused")]
    other = [c for c in found.names if c in fields.names and not np.can_cast(found[c], fields[c], "safe")]
    if unknown or other:
        what = (
            f"columns that this version does not know: {', '.join(unknown)}"
            if unknown
            else (f"columns of another type: {', '.join(other)}")
        )
        raise InvalidInput(source, f"its table {name} has {what}; load it with the version that saved it")


def _plain_rows(table: Any) -> Any:
    array = np.asarray(table)
    return as_bytes(array).view(plain(array.dtype)) if array.dtype.names else array


def _rows(array: Any) -> Any:
    if array.dtype.names is None:
        return np.ascontiguousarray(array)
    table = record_table(array.dtype, len(array))
    as_bytes(table)[...] = as_bytes(np.ascontiguousarray(array))
    return table

"""Tables in a file: one npz archive without pickles, with a hash of the tables' names and types."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import IO, Any, TypeVar

import numpy as np

from wattflow.kernel.handle import Tables, as_bytes, plain
from wattflow.kernel.records import record_table
from wattflow.model.errors import InvalidInput

VERSION = 1
_SCHEMA = "schema"
Kind = TypeVar("Kind", bound=Tables)


def schema(tables: Tables) -> str:
    """What has to be the same for a file to be readable: kind, names, fields and dimensions of all tables."""
    facts = [(name, getattr(tables, name)) for name in tables.NAMES]
    described = repr([(name, plain(table.dtype).descr, table.ndim) for name, table in facts])
    return f"{type(tables).__name__} {VERSION} {hashlib.sha256(described.encode()).hexdigest()[:16]}"


def dump(tables: Tables) -> bytes:
    """The archive as bytes."""
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
    """Tables of the same kind as ``like``, whose content does not matter; `InvalidInput` for any other file."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            if _SCHEMA not in archive:
                raise InvalidInput(source, "it holds no tables of wattflow")
            found, wanted = archive[_SCHEMA].tobytes().decode("utf-8", "replace"), schema(like)
            if found != wanted:
                raise InvalidInput(
                    source,
                    f"its tables are {found!r}, this version's are {wanted!r}; load it with the version that saved it",
                )
            return type(like)(**{name: _rows(archive[name]) for name in like.NAMES})
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as problem:
        raise InvalidInput(source, f"it is damaged: {problem}") from None


def _plain_rows(table: Any) -> Any:
    array = np.asarray(table)
    return as_bytes(array).view(plain(array.dtype)) if array.dtype.names else array


def _rows(array: Any) -> Any:
    if array.dtype.names is None:
        return np.ascontiguousarray(array)
    table = record_table(array.dtype, len(array))
    as_bytes(table)[...] = as_bytes(np.ascontiguousarray(array))
    return table

"""Tables of records whose columns read the same in Python as in compiled code."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np


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

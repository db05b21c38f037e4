"""Tables of records whose columns read the same in Python as in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np


class Row(np.record):  # type: ignore[misc]
    """A row of a table. Its fields come before numpy's own attributes (numpy 2 gives everything a ``device``)."""

    def __getattribute__(self, name: str) -> Any:
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


def record_table(dtype: np.dtype[Any], rows: int) -> Any:
    """A table of zeros. Memory that is not asked for as zeros may come in large pages, which are cheaper to touch."""
    table = np.empty(rows, np.dtype((Row, dtype)))
    table.view(np.uint8)[...] = 0
    return table.view(RecordTable)

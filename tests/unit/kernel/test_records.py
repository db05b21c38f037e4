"""Memory of large tables is used again, and never while a view of it lives."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from wattflow.kernel import records

ROW = np.dtype([("a", "f8"), ("b", "i4")])


def address(table: object) -> int:
    return int(np.asarray(table).__array_interface__["data"][0])


def test_memory_comes_back_as_zeros_once_the_last_view_is_gone() -> None:
    gc.collect()  # what earlier tests left comes back first
    records._kept.clear()
    table = records.record_table(ROW, 200_000)
    table.a[:] = 7.0
    first, column = address(table), table.a
    rows = np.asarray(table[:10])
    del table
    gc.collect()
    assert not records._kept, "a column and rows still look at it"
    other = records.record_table(ROW, 200_000)
    assert address(other) != first and column[3] == 7.0
    del column, rows
    gc.collect()
    again = records.record_table(ROW, 200_000)
    assert address(again) == first and not again.a.any()


def test_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # what earlier tests left comes back first
    records._kept.clear()
    monkeypatch.setattr(records, "KEPT_BYTES", 8 << 20)
    tables = [records.record_table(ROW, 200_000) for _ in range(12)]
    tables.clear()
    gc.collect()
    assert 0 < sum(map(len, records._kept)) <= records.KEPT_BYTES
    gc.collect()  # what earlier tests left comes back first
    records._kept.clear()

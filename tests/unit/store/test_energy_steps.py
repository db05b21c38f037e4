"""Joules by step: every window counts once, however long it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.model.errors import InvalidInput
from wattflow.server.energy import energy
from wattflow.store import schema
from wattflow.store.schema import open_store


def store(folder: Path, windows: list[tuple[float, float, float]]) -> sa.Engine:
    database = open_store(folder / "store.db")
    rows = [
        {"node": "a", "began_s": began, "ended_s": ended, "counted_j": joules, "idle_j": joules / 2,
         "tasks_j": joules / 4, "unattributed_j": joules / 4, "provenance": "modelled"}
        for began, ended, joules in windows
    ]  # fmt: skip
    with database.begin() as connection:
        connection.execute(sa.insert(schema.energy), rows)
    return database


@pytest.mark.parametrize("step_s", [1.0, 7.0, 60.0, 1000.0])
def test_sums_are_those_of_the_windows(tmp_path: Path, step_s: float) -> None:
    windows = [(100.0 + i, 101.0 + i, 5.0 + i) for i in range(20)] + [(130.0, 190.0, 600.0)]  # a minute, thinned
    told = energy(store(tmp_path, windows), 100.0, 200.0, step_s)
    for name, part in (("counted_j", 1.0), ("idle_j", 0.5), ("tasks_j", 0.25)):
        total = sum(joules for joules in told["nodes"]["a"][name] if joules is not None)
        assert total == pytest.approx(part * sum(joules for _, _, joules in windows))


def test_unmeasured_is_none_and_long_windows_are_spread(tmp_path: Path) -> None:
    told = energy(store(tmp_path, [(100.0, 110.0, 100.0)]), 90.0, 120.0, 1.0)
    assert told["nodes"]["a"]["counted_j"] == [None] * 10 + [pytest.approx(10.0)] * 10 + [None] * 10


def test_a_span_that_cannot_be_is_refused(tmp_path: Path) -> None:
    database = store(tmp_path, [(100.0, 110.0, 100.0)])
    with pytest.raises(InvalidInput, match="not after"):
        energy(database, 100.0, 100.0, 1.0)
    with pytest.raises(InvalidInput, match="more than 10000"):
        energy(database, 0.0, 1e6, 1.0)

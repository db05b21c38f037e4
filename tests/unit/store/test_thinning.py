"""Windows of energy grow wider with age; their sums stay."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.store import reads, schema
from wattflow.store.schema import Row, open_store
from wattflow.store.statements import Write
from wattflow.store.thinning import merged, pieces
from wattflow.store.writer import Writer

DAY = 86400
START = 20_000 * DAY
WEEK = """
    WITH RECURSIVE second(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM second WHERE n < :last)
    INSERT INTO energy SELECT 'n', :start + n + 0.003 * (n % 7), :start + n + 1 + 0.003 * ((n + 1) % 7),
        100.1 + n % 97 * 0.37, 60.0 + n % 13 * 0.11, 30.3 + n % 41 * 0.7, 9.7 - n % 5 * 0.9, 'measured' FROM second
"""
MOST_MB = 0.5
"""A node's day in the store, once thinned."""


def window(began_s: float, ended_s: float, provenance: str = "measured", node: str = "n") -> dict[str, object]:
    rng = random.Random(began_s)
    joules = {name: rng.uniform(0.0, 500.0) for name in reads.JOULES}
    return {"node": node, "began_s": began_s, "ended_s": ended_s, "provenance": provenance, **joules}


def totals(database: sa.Engine) -> dict[str, float]:
    (row,) = reads.rows(database, sa.select(*(sa.func.sum(schema.energy.c[name]).label(name) for name in reads.JOULES)))
    return row


def thinned(database: sa.Engine, now_s: float) -> int:
    writer, count = Writer(database), 0
    for batch in pieces(database, now_s):
        writer.put(*batch)
        count += 1
    assert writer.wait()
    writer.close()
    return count


def size_bytes(database: sa.Engine, folder: Path) -> int:
    path = folder / "vacuumed.db"
    path.unlink(missing_ok=True)
    with database.connect() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{path}'")
    return path.stat().st_size


@pytest.mark.slow
def test_days_of_windows_are_thinned_with_their_sums_and_a_day_takes_little(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    with database.begin() as connection:
        connection.execute(sa.insert(schema.nodes), {"name": "n", "spec": b"", "state": "on", "seen_s": 0.0})
    empty = size_bytes(database, tmp_path)
    with database.begin() as connection:
        connection.execute(sa.text(WEEK), {"start": float(START), "last": 2 * DAY - 1})
    before = totals(database)
    thick = size_bytes(database, tmp_path) - empty
    assert thinned(database, START + 3.1 * DAY) > 2 * 24
    assert totals(database).keys() == before.keys()
    for name, joules in totals(database).items():
        assert math.isclose(joules, before[name], rel_tol=1e-12), name
    assert len(reads.energy(database, 0.0, 1e12)) <= 2 * 1440 + 24
    day_mb = (size_bytes(database, tmp_path) - empty) / 2 / 1e6
    assert day_mb <= MOST_MB < thick / 2 / 1e6
    print(f"figure store_mb_per_node_day {day_mb:.3f} MB (thick {thick / 2 / 1e6:.2f})")
    assert thinned(database, START + 3.1 * DAY) == 0  # and it is known what is done


def test_only_windows_that_belong_together_are_merged() -> None:
    given = [
        window(0.0, 1.0), window(1.0, 2.0), window(2.5, 3.0),  # a gap
        window(3.0, 4.0, "modelled"), window(4.0, 9.9, "modelled"),  # other joules
        window(9.9, 11.0, "modelled"), window(11.0, 12.0, "modelled"),  # of the next ten seconds: 9.9 began before
    ]  # fmt: skip
    spans = [(one["began_s"], one["ended_s"]) for one in merged(given, 10.0)]
    assert spans == [(0.0, 2.0), (2.5, 3.0), (3.0, 11.0), (11.0, 12.0)]


def test_young_windows_stay_and_one_that_comes_again_is_not_counted_twice(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    writer = Writer(database)
    node = {"name": "n", "spec": b"", "state": "on", "seen_s": 0.0}
    rows: list[Row] = [window(START + second, START + second + 1.0) for second in range(1800)]
    writer.put((Write.NODE, node), *((Write.ENERGY, row) for row in rows))
    assert writer.wait()
    before = totals(database)
    thinned(database, START + 1200 + 3600 + 5)  # the first twenty minutes are old enough
    assert len(reads.energy(database, 0.0, 1e12)) == 120 + 600
    writer.put(*((Write.ENERGY, row) for row in rows[:1300]))  # an agent whose last answer was lost
    writer.put((Write.ENERGY, window(START + 1800, START + 1801)))
    assert writer.wait()
    writer.close()
    assert len(reads.energy(database, 0.0, START + 1799.0)) == 120 + 600
    extra = window(START + 1800, START + 1801)
    for name, joules in totals(database).items():
        assert math.isclose(joules, before[name] + float(str(extra[name])), rel_tol=1e-12)

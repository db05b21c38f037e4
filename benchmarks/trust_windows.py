"""A week of a node's windows of energy, written second by second and thinned as a server does: bytes of a day."""

from __future__ import annotations

import math
import time
from pathlib import Path

import sqlalchemy as sa
from trust_tally import Portion

from wattflow.store import reads, schema
from wattflow.store.schema import open_store
from wattflow.store.thinning import pieces
from wattflow.store.writer import Writer

DAY, DAYS, START = 86400, 7, 20_000 * 86400
WEEK = """
    WITH RECURSIVE second(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM second WHERE n < :last)
    INSERT INTO energy SELECT 'n', :start + n + 0.003 * (n % 7), :start + n + 1 + 0.003 * ((n + 1) % 7),
        100.1 + (n * :seed) % 97 * 0.37, 60.0 + n % 13 * 0.11, 30.3 + n % 41 * 0.7, 9.7 - n % 5 * 0.9, 'measured'
    FROM second
"""


def portion(folder: Path, seed: int) -> Portion:
    """Write, thin, compare the sums, and weigh what is left."""
    began_s = time.monotonic()
    database = open_store(folder / "windows.db")
    with database.begin() as connection:
        connection.execute(sa.insert(schema.nodes), {"name": "n", "spec": b"", "state": "on", "seen_s": 0.0})
    empty = size_bytes(database, folder)
    with database.begin() as connection:
        connection.execute(sa.text(WEEK), {"start": float(START), "last": DAYS * DAY - 1, "seed": 1 + seed % 89})
    before, thick = totals(database), size_bytes(database, folder) - empty
    writer = Writer(database)
    for batch in pieces(database, START + (DAYS + 1.1) * DAY):
        writer.put(*batch)
        writer.wait()
    writer.close()
    after, thin = totals(database), size_bytes(database, folder) - empty
    failures = [f"the sum of {name} was {before[name]!r} and is {after[name]!r}" for name in reads.JOULES
                if not math.isclose(before[name], after[name], rel_tol=1e-12)]  # fmt: skip
    database.dispose()
    return Portion(part="windows", seed=seed, took_s=time.monotonic() - began_s, failures=failures,
                   worst={"mb": thin / DAYS / 1e6, "mb_before": thick / DAYS / 1e6})  # fmt: skip


def totals(database: sa.Engine) -> dict[str, float]:
    """Joules of all windows."""
    (row,) = reads.rows(database, sa.select(*(sa.func.sum(schema.energy.c[name]).label(name) for name in reads.JOULES)))
    return row


def size_bytes(database: sa.Engine, folder: Path) -> int:
    """Of the store without its free pages."""
    path = folder / "vacuumed.db"
    path.unlink(missing_ok=True)
    with database.connect() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{path}'")
    return path.stat().st_size

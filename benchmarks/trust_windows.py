"""A week of a node's energy, a window a second, and what of it the store keeps once it has grown old."""

from __future__ import annotations

import math
import time
from pathlib import Path

import sqlalchemy as sa
from trust_tally import Portion

from wattflow.store import reads, schema
from wattflow.store.database import open_store
from wattflow.store.thinning import SUMS, pieces
from wattflow.store.writer import Writer

DAY_S, DAYS = 86_400, 7
START_S = 20_000.0 * DAY_S


def portion(folder: Path, seed: int) -> Portion:
    """Write the week, let it grow old, weigh it; its sums must stay."""
    began_s = time.monotonic()
    database = open_store(folder / "store.db")
    with database.begin() as connection:
        connection.execute(sa.insert(schema.nodes), {"name": "n", "spec": b"", "state": "on", "seen_s": 0.0})
    empty = _bytes(database, folder)
    for day in range(DAYS):
        with database.begin() as connection:
            connection.execute(sa.insert(schema.energy), [_window(day * DAY_S + n) for n in range(DAY_S)])
    before, writer = _sums(database), Writer(database)
    for batch in pieces(database, START_S + (DAYS + 1.1) * DAY_S):
        writer.put(*batch)
    writer.wait()
    writer.close()
    wrong = [name for name, joules in _sums(database).items() if not math.isclose(joules, before[name], rel_tol=1e-9)]
    megabytes = (_bytes(database, folder) - empty) / DAYS / 1e6
    database.dispose()
    failures = [f"the sum of {name} changed" for name in wrong]
    return Portion(part="windows", seed=seed, took_s=time.monotonic() - began_s, worst={"mb": megabytes},
                   counts={"windows": DAYS * DAY_S}, failures=failures)  # fmt: skip


def _window(second: int) -> dict[str, object]:
    joules = {name: 40.0 + place + second % 97 * 0.37 for place, name in enumerate(SUMS)}
    began_s = START_S + second
    return {"node": "n", "began_s": began_s, "ended_s": began_s + 1.0, "provenance": "measured", **joules}


def _sums(database: sa.Engine) -> dict[str, float]:
    (row,) = reads.rows(database, sa.select(*(sa.func.sum(schema.energy.c[name]).label(name) for name in SUMS)))
    return row


def _bytes(database: sa.Engine, folder: Path) -> int:
    copy = folder / "copy.db"
    copy.unlink(missing_ok=True)
    with database.connect() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{copy}'")
    return copy.stat().st_size

"""Epochs: which of the servers that a store ever had may write to it.

Each start begins a new epoch, a number in the store. It grows with every start and never falls behind the clock, so a
store that was put back from a backup, and has forgotten later epochs, still begins one that nobody has seen. Every
commit is made only while the store's epoch is the writer's own; a server that was paused while another one took over
finds out at its next commit. An attempt's fence begins with the epoch that placed it: reports, output and joules of
another life of the store name attempts that this one never placed.
"""

from __future__ import annotations

import time

import sqlalchemy as sa

from wattflow.store import schema
from wattflow.store.schema import StoreTrouble

KEY = "epoch"
FIRST_S = 1_577_836_800.0
"""Epochs are milliseconds since 2020, unless more than one begins in one: 41 bits until 2089."""
FENCE_BITS = 22
"""Of a fence's 63, those that count attempts. A count that outgrows them runs into the epoch's, which the clock has
left far behind by then."""
SQLITE_HOLD = (
    "INSERT INTO meta (key, value) SELECT 'epoch', NULL"
    " WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'epoch' AND value = ?)"
)
"""Does nothing while the epoch is this one, and else breaks the transaction; for whoever can only send statements."""
_VALUE = sa.select(schema.meta.c.value).where(schema.meta.c.key == KEY)


class Superseded(StoreTrouble):
    """Another server writes to this store now."""

    def __init__(self, mine: int, now: int | None) -> None:
        found = f"is in epoch {now}" if now is not None else "has no epoch"
        super().__init__(f"another server has taken this store over: it {found}, this server's is {mine}")


def begin(database: sa.Engine, at_least: int = 0) -> int:
    """Begin the next epoch; from now on no server of an earlier one can commit."""
    with database.begin() as connection:
        # Two servers that start at one moment must not read the same epoch and both begin the next.
        schema.alone(connection)
        # The clock keeps a restored store, which has forgotten later epochs, from giving one of them again.
        epoch = max((current(connection) or 0) + 1, at_least, int(1000 * (time.time() - FIRST_S)))
        connection.execute(sa.delete(schema.meta).where(schema.meta.c.key == KEY))
        connection.execute(sa.insert(schema.meta), {"key": KEY, "value": str(epoch)})
    return epoch


def current(connection: sa.Connection) -> int | None:
    """The store's epoch; None before the first."""
    found = connection.execute(_VALUE).scalar()
    return int(found) if found is not None else None


def hold(connection: sa.Connection, epoch: int) -> None:
    """Keep the epoch as it is until this transaction ends. Raises Superseded where it is another one."""
    # A shared row lock: `begin` of another server waits for this commit, so none slips in after its epoch began.
    found = connection.execute(_VALUE.with_for_update(read=True)).scalar()
    if found != str(epoch):
        raise Superseded(epoch, int(found) if found is not None else None)


class Fences:
    """Numbers for the attempts of an epoch; no two epochs have one in common."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch, self._count = epoch, 0

    def next(self) -> int:
        """One that was never given."""
        self._count += 1
        return (self.epoch << FENCE_BITS) + self._count


def epoch_of(fence: int) -> int:
    """The epoch that placed an attempt; a later one for those beyond four million of it."""
    return fence >> FENCE_BITS

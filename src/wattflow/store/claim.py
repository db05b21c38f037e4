"""One server writes to a PostgreSQL store at a time; a standby waits beside it and takes over.

The one that writes holds an advisory lock, which the database lets go of when its connection ends, and counts up once a
second in ``servers``. A process that is paused keeps its connection, and nobody answers for a machine that is gone; so
a standby also takes over when the count has stood still for a while: it has the database end the other's connections
and takes the lock. Whoever wakes after that finds another epoch in the store and can commit nothing (`epochs`).
A store in a file has the lock of the process that writes it (`writing`) instead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from wattflow.store import schema, writing
from wattflow.store.schema import PROCESS, StoreTrouble, open_store, told

log = logging.getLogger(__name__)
LOCK = 0x77617474666C6F77
BEAT_S = 1.0
LOOK_S = 0.25
STILL_S = 5.0
"""A server whose count stands still for so long is taken over."""
PATIENCE_S = 5.0
"""How long one that is no standby waits for the lock: the database may not have noticed yet that the last one ended."""
FRESH_S = 15.0
"""A standby that was not seen for longer is not told of."""
_KEPT_ALIVE = ("tcp_keepalives_idle = 2", "tcp_keepalives_interval = 1", "tcp_keepalives_count = 3")


class Claim:
    """A server's claim on a store.

    Args:
        url: Where this server is reached.
        lost: Called, from a thread, with the reason when the claim cannot be held any more.
        changed: Called, from a thread, when others came or went.

    Attributes:
        others: Addresses of the other servers that wait for this store.
        reason: Why it was lost.
    """

    def __init__(
        self, database: sa.Engine, url: str, lost: Callable[[], None], changed: Callable[[list[str]], None]
    ) -> None:
        self._database, self.url, self._lost, self._changed = database, url, lost, changed
        self.others: list[str] = []
        self.reason: str | None = None
        self._count = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: sa.Connection | None = None

    def take(self, standby: bool) -> None:
        """Wait until this server is the one that writes; one that is no standby gives up soon."""
        end_s = time.monotonic() + PATIENCE_S
        # By counts and this process's own clock, never by `seen_s`: clocks of two machines may differ by more than
        # STILL_S.
        watch = _Watch()
        # Noted at every look, so that the server that writes can tell its clients and agents where its standby is.
        while not self._locked():
            holder = self._note(active=False)
            if not standby and time.monotonic() > end_s:
                raise StoreTrouble(
                    f"another server works on this store{f' ({holder.url})' if holder is not None else ''}: end it "
                    "with `wattflow down`, or start this one as its standby with `wattflow up --standby`"
                )
            # A paused server keeps its connection, and with it the lock: only the database can end that.
            if standby and holder is not None and watch.stands_still(holder.process, holder.count):
                log.warning("the server at %s does not answer: taking over", holder.url)
                self._end_connections(holder.process)
            time.sleep(LOOK_S)
        self._note(active=True)

    def hold(self) -> None:
        """Count on, in a thread of its own, until closed."""
        self._thread = threading.Thread(target=self._beat, name="wattflow-claim", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let go of it: a standby takes over at once."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(5)
        try:
            if self._connection is not None:
                servers = schema.servers
                # Before the lock goes: a standby must not read of a holder that is gone and wait for its count to
                # stand still.
                self._connection.execute(sa.delete(servers).where(servers.c.url == self.url))
                self._drop()
        except sa.exc.DBAPIError:
            log.debug("the claim's connection is gone")

    def _beat(self) -> None:
        while not self._ending.wait(BEAT_S):
            try:
                self._note(active=True)
            except sa.exc.DBAPIError as error:
                log.warning("the claim on the store: %s", told(error))
                self._again()

    def _again(self) -> None:
        """The connection broke: the database was away, or somebody has taken over."""
        self._drop()
        while not self._ending.wait(LOOK_S):
            try:
                if self._locked():
                    return
                # Who has the lock has begun an epoch: from here on every commit of this process is refused anyway.
                self.reason = "another server has taken this store over"
                self._lost()
                return
            except sa.exc.DBAPIError:
                continue  # the database is away: nobody can commit

    def _locked(self) -> bool:
        """Try for the lock, which the database holds for as long as the connection lives."""
        if self._connection is None:
            made = self._database.execution_options(isolation_level="AUTOCOMMIT").connect()
            # A session's lock: it must outlive transactions, and no other thread may get this connection from the
            # pool.
            made.detach()  # not the pool's: nobody else uses it, and it ends with this process
            for setting in _KEPT_ALIVE:
                made.execute(sa.text(f"SET {setting}"))
            self._connection = made
        return bool(self._connection.execute(sa.select(sa.func.pg_try_advisory_lock(LOCK))).scalar())

    def _drop(self) -> None:
        """Close the connection, and with it the lock."""
        if self._connection is not None:
            with contextlib.suppress(sa.exc.DBAPIError):
                self._connection.close()
            self._connection = None

    def _note(self, *, active: bool) -> _Holder | None:
        """Say that this server is here; returns who writes, where that is another one."""
        assert self._connection is not None
        self._count += 1
        row = {"url": self.url, "process": PROCESS, "active": int(active), "count": self._count, "seen_s": time.time()}
        from sqlalchemy.dialects.postgresql import insert

        statement = insert(schema.servers)
        changed = {name: statement.excluded[name] for name in row if name != "url"}
        self._connection.execute(statement.on_conflict_do_update(index_elements=["url"], set_=changed), row)
        found = [_Holder(**row._mapping) for row in self._connection.execute(sa.select(schema.servers))]
        others = [one for one in found if one.process != PROCESS]
        fresh = sorted(one.url for one in others if abs(time.time() - one.seen_s) < FRESH_S and not one.active)
        if fresh != self.others:
            self.others = fresh
            self._changed(fresh)
        holders = [one for one in others if one.active]
        if active and holders:  # they are over: this one has the lock
            table = schema.servers
            self._connection.execute(sa.delete(table).where(table.c.url.in_([one.url for one in holders])))
        return max(holders, key=lambda one: one.seen_s, default=None)

    def _end_connections(self, process: str) -> None:
        """Have the database end all connections of a server: the lock, and commits that it was paused in."""
        assert self._connection is not None
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :process"
        self._connection.execute(sa.text(ended), {"process": process})


@contextlib.contextmanager
def alone(store: str | Path) -> Iterator[None]:
    """Keep servers away from a store. Raises StoreTrouble where one works on it."""
    # A file's lock is the writing process's own (`writing.lock`), so a restore and a server exclude each other.
    if "://" not in str(store):
        try:
            file = writing.lock(Path(store), 0.0)
        except OSError as error:
            raise StoreTrouble(f"{store}: {error}") from None
        try:
            yield
        finally:
            os.close(file)
        return
    database = open_store(store, upgrade=True)
    claim = Claim(database, f"{os.getpid()}@{socket.gethostname()}", lambda: None, lambda _: None)
    try:
        claim.take(standby=False)
        yield
    finally:
        claim.close()
        database.dispose()


@dataclass(frozen=True, slots=True)
class _Holder:
    """A server as ``servers`` tells of it."""

    url: str
    process: str
    active: int
    count: int
    seen_s: float


class _Watch:
    """Notices that a count stands still, by this process's own clock."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self._since_s = time.monotonic()

    def stands_still(self, process: str, count: int) -> bool:
        """Say whether nothing was counted for long. A pause of this process itself is no sign: it looks once more."""
        now_s = time.monotonic()
        if self._last != (process, count):
            self._last, self._since_s = (process, count), now_s
        return now_s - self._since_s > STILL_S

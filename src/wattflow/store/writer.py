"""The group writer: one thread, one transaction for everything that gathered since the last.

`put` never blocks and may be called from the event loop; `settled` is called back once all that was put before is on
disk. A group closes by itself: what comes while a commit runs forms the next one. It is bounded so that no commit grows
long: by as many rows as lately fitted into two milliseconds of statements. Of several changes of one row in a group the
last is written. A store in a file is written by a process of its own (`writing`), others by a connection of this one.

SQLite's log is copied back into the file by a thread of its own, so that no commit is the one that has to. Commits that
are made meanwhile wait for the disk: so it is done when nothing is committed, and else only once the log is longer than
the length that its file keeps (a longer one was written beyond it since it was begun anew).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from wattflow.store import epochs, schema
from wattflow.store.durations import Durations
from wattflow.store.schema import Row, StoreTrouble, told
from wattflow.store.statements import UPDATES, DriverStatements, Write
from wattflow.store.writing import LOG_BYTES, Refused, Statement, WritingProcess, ask_for_short_turns

log = logging.getLogger(__name__)
EVERY_S = 2.0
WORTH_BYTES = 4 << 20
"""A shorter log stays as it is."""
LARGEST_BYTES = 256 << 20
"""Beyond this, commits wait until the log is copied and begun anew: it must not fill the disk."""


class Checkpoints:
    """Copies the log of a SQLite store now and then; does nothing for other databases."""

    def __init__(self, database: sa.Engine, every_s: float = EVERY_S, worth_bytes: int = WORTH_BYTES) -> None:
        self._database, self._every_s, self._worth_bytes = database, every_s, worth_bytes
        self._closing = threading.Event()
        self._changed_s = 0.0
        self._thread: threading.Thread | None = None
        if database.dialect.name == "sqlite" and database.url.database:
            self._log = Path(database.url.database + "-wal")
            self._thread = threading.Thread(target=self._loop, name="wattflow-checkpoints", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; closing the last connection copies what is left."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(30)

    def _loop(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                about = self._log.stat()
            except OSError:
                continue
            # A log that does not change is copied even when short: an idle server's next start then reads a small
            # one.
            size, busy = about.st_size, about.st_mtime != self._changed_s
            self._changed_s = about.st_mtime
            if size >= (LOG_BYTES + 1 if busy else self._worth_bytes):
                # PASSIVE makes no commit wait and copies what it can; RESTART does make them wait, which beats a full
                # disk.
                self._copy("RESTART" if size >= LARGEST_BYTES else "PASSIVE")

    def _copy(self, mode: str) -> None:
        try:
            with self._database.connect() as connection:
                connection.exec_driver_sql(f"PRAGMA wal_checkpoint({mode})")
        except sa.exc.DBAPIError as error:
            log.info("the log was not copied back: %s", error.orig)


Batch = tuple[tuple[Write, Row], ...]
Item = tuple[float, Batch] | Callable[[], None]
RETRY_S = 0.25
AIM_S = 0.002
"""How long a group's statements may take; the disk's part comes on top."""
LEAST, MOST = 32, 256
"""Rows in a group, whatever they take: below, the disk's part is all there is; a batch is never split."""
WEIGHT = 0.2
PASSING = (sa.exc.OperationalError, sa.exc.InterfaceError, OSError)
"""Errors that may go away by themselves: a full disk, a lost server."""


@dataclass(slots=True)
class Figures:
    """How the writer does.

    Attributes:
        commits: How many there were.
        rows: What they wrote.
        collecting_s: How long the first change of each group waited for it to begin.
        statements_s: From there until all rows were in pages in memory.
        disk_s: From there until the disk held them for good.
        commit_s: Both together.
    """

    commits: int = 0
    rows: int = 0
    collecting_s: Durations = field(default_factory=Durations)
    statements_s: Durations = field(default_factory=Durations)
    disk_s: Durations = field(default_factory=Durations)
    commit_s: Durations = field(default_factory=Durations)

    def add(self, rows: int, collecting_s: float, statements_s: float, disk_s: float) -> None:
        """Note one commit."""
        self.commits, self.rows = self.commits + 1, self.rows + rows
        self.collecting_s.add(collecting_s)
        self.statements_s.add(statements_s)
        self.disk_s.add(disk_s)
        self.commit_s.add(statements_s + disk_s)


@dataclass(slots=True)
class WriteBatch:
    """Rows that are written at once, whom to tell, and when the first of them was put."""

    rows: dict[Write, list[Row]]
    callbacks: list[Callable[[], None]]
    put_s: float = float("inf")


class Writer:
    """Writes changes in groups, in order, until closed.

    Args:
        database: An opened store.
        most: Rows in one group at most.
        trouble: Called with a message when a commit fails, and with None when one succeeds again. A failed group is
            kept and tried until it succeeds: nothing that was put is dropped.
        fatal: Called, once, when a group can never be written (a row that breaks a rule of the tables). Whoever owns
            the writer must end: a server that cannot write must not go on answering.
        process: Commits instead of this one, where given.

    Attributes:
        epoch: Nothing is committed while the store's is another one; None where nobody else can be.
    """

    def __init__(
        self,
        database: sa.Engine,
        most: int = MOST,
        trouble: Callable[[str | None], None] | None = None,
        fatal: Callable[[], None] = lambda: None,
        process: WritingProcess | None = None,
    ) -> None:
        self.figures = Figures()
        self.message: str | None = None
        self.epoch: int | None = None
        self._database, self._most, self._trouble, self._fatal = database, most, trouble, fatal
        self._process = process
        self._row_s = AIM_S / most
        self._checkpoints = Checkpoints(database)
        self._statements = DriverStatements(database)
        # Not under a lock: the writer would hold it while it sorts rows, and whoever puts would wait.
        self._given: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._waiting: deque[Item] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="wattflow-writer", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Return whether what is put is still written: not after what could never be."""
        return self._thread.is_alive()

    def put(self, *batch: tuple[Write, Row]) -> None:
        """Take changes that belong together: all of them are in one group."""
        self._given.put((time.perf_counter(), batch))

    def settled(self, done: Callable[[], None]) -> None:
        """Call ``done`` (in the writer's thread) when everything put so far is on disk."""
        self._given.put(done)

    def wait(self, timeout_s: float = 30.0) -> bool:
        """Block until everything put so far is on disk; False when it took too long. Not for the event loop."""
        done = threading.Event()
        self.settled(done.set)
        return done.wait(timeout_s)

    def close(self, timeout_s: float = 30.0) -> None:
        """Write what is left and end the thread."""
        self._closing = True
        # Wakes the thread where it waits; what was put before is still written, in order.
        self._given.put(None)
        self._thread.join(timeout_s)
        self._checkpoints.close()
        if self._process is not None:
            self._process.close()

    def _loop(self) -> None:
        ask_for_short_turns()
        while self._fetch():
            group = self._take()
            try:
                if not self._commit_until_it_holds(group):
                    return
            # Not tried again and not skipped: everything after it builds on it, so the server must end and start from
            # the store.
            except (sa.exc.SQLAlchemyError, Refused, StoreTrouble) as error:
                self._tell(told(error))
                log.critical("a group can never be written", exc_info=error)
                self._fatal()
                return
            # Only now: answers and leases go out for what a crash of this machine would not undo.
            for callback in group.callbacks:
                callback()

    def _fetch(self) -> bool:
        """Take over what was given, waiting for it where nothing is left; False when closed and all is written."""
        while True:
            try:
                item = self._given.get(block=not self._waiting and not self._closing)
            except queue.Empty:
                return bool(self._waiting)
            if item is not None:
                self._waiting.append(item)

    def _take(self) -> WriteBatch:
        """The next group: whole batches, in order, until it is large enough."""
        group = WriteBatch({}, [])
        count, most = 0, max(1, min(self._most, max(LEAST, int(AIM_S / self._row_s))))
        while self._waiting and (count < most or callable(self._waiting[0])):
            item = self._waiting.popleft()
            if callable(item):
                group.callbacks.append(item)
                continue
            put_s, batch = item
            count += len(batch)
            group.put_s = min(group.put_s, put_s)
            for change, row in batch:
                group.rows.setdefault(change, []).append(row)
        # A task that was placed, began and ended within one group is one update, not three.
        group.rows = {change: last_of_each(change, given) for change, given in group.rows.items()}
        return group

    def _commit_until_it_holds(self, group: WriteBatch) -> bool:
        """Commit the group, again and again while the store refuses; False when closing without success."""
        if not group.rows:
            return True
        tried = False
        while True:
            try:
                # A lost answer is no refusal: the group may be committed, and its journal entry would be there twice.
                if not tried or not self._there(group.rows):
                    self._commit(group)
                self._tell(None)
                return True
            except (*PASSING, Refused) as error:
                if isinstance(error, Refused) and not error.passing:
                    raise
                tried = True
                self._tell(told(error))
                if self._closing:
                    return False
                time.sleep(RETRY_S)

    def _commit(self, group: WriteBatch) -> None:
        began_s = time.perf_counter()
        statements = self._statements.made(group.rows)
        committed = self._commit_here if self._process is None else self._commit_there
        statements_s, disk_s = committed(statements)
        count = sum(map(len, group.rows.values()))
        self.figures.add(count, began_s - group.put_s, statements_s, disk_s)
        # Groups are sized by time, not by rows: on a slow disk others would wait for a large one.
        self._row_s += WEIGHT * (statements_s / count - self._row_s) if count >= LEAST else 0.0

    def _commit_here(self, statements: Sequence[Statement]) -> tuple[float, float]:
        began_s = time.perf_counter()
        with self._database.begin() as connection:
            if self.epoch is not None:
                epochs.hold(connection, self.epoch)
            for text, rows in statements:
                connection.exec_driver_sql(text, rows)
            executed_s = time.perf_counter()
        return executed_s - began_s, time.perf_counter() - executed_s

    def _commit_there(self, statements: Sequence[Statement]) -> tuple[float, float]:
        assert self._process is not None
        if self.epoch is None:
            return self._process.commit(statements)
        try:
            return self._process.commit([(epochs.SQLITE_HOLD, [(str(self.epoch),)]), *statements])
        except Refused as error:
            if not error.passing:  # where it is the epoch that is refused, that is told
                with self._database.connect() as connection:
                    epochs.hold(connection, self.epoch)
            raise

    def _there(self, rows: dict[Write, list[Row]]) -> bool:
        """Say whether the group is in the store after all: a commit whose answer was lost must not be made again."""
        entries = rows.get(Write.JOURNAL)
        if not entries:
            return False
        table = schema.journal
        query = sa.select(table.c.sequence).where(table.c.sequence == entries[-1]["sequence"])
        with self._database.connect() as connection:
            return connection.execute(query).first() is not None

    def _tell(self, message: str | None) -> None:
        if message == self.message:
            return
        self.message = message
        if message is not None:
            log.error("the store does not take changes: %s; trying again", message)
        else:
            log.info("the store takes changes again")
        if self._trouble is not None:
            self._trouble(message)


def last_of_each(change: Write, rows: list[Row]) -> list[Row]:
    """The last change of each row, where later ones write all that earlier ones wrote."""
    update = UPDATES.get(change)
    if len(rows) < 2 or (update is None and change is not Write.META):
        return rows
    names = [f"b_{key}" for key in update.keys] if update is not None else ["key"]
    return list({tuple([row[name] for name in names]): row for row in rows}.values())

"""The group writer: one thread, one connection, one transaction for everything that gathered since the last.

`put` never blocks and may be called from the event loop; `settled` is called back once all that was put before is on
disk. A group closes by itself: what comes while a commit runs forms the next one. It is bounded so that no commit grows
long: by as many rows as lately fitted into two milliseconds of statements, since beside a busy loop a row takes many
times what it takes alone. Of several changes of one row in a group the last is written.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import sqlalchemy as sa

from wattflow.store import schema
from wattflow.store.checkpoints import Checkpoints
from wattflow.store.database import told
from wattflow.store.durations import Durations
from wattflow.store.schema import Change, Row

log = logging.getLogger(__name__)
Batch = tuple[tuple[Change, Row], ...]
RETRY_S = 0.25
AIM_S = 0.002
"""How long a group's statements may take; the disk's part comes on top."""
LEAST, MOST = 32, 256
"""Rows in a group, whatever they take: below, the disk's part is all there is; a batch is never split."""
WEIGHT = 0.2
KEYS = {
    Change.ATTEMPT_STARTED: ("b_task", "b_number"), Change.ATTEMPT_ENDED: ("b_task", "b_number"),
    Change.ATTEMPT_ENERGY: ("b_task", "b_number"), Change.TASK_STATE: ("b_id",), Change.WORKFLOW_STATE: ("b_id",),
}  # fmt: skip
"""Changes that write the same columns of a row each time, and what names the row."""


@dataclass(slots=True)
class Figures:
    """How the writer does: commits, rows, how long commits took, and how long of that went by before the disk's part
    (the statements: rows into pages in memory)."""

    commits: int = 0
    rows: int = 0
    commit_s: Durations = field(default_factory=Durations)
    statements_s: Durations = field(default_factory=Durations)

    def add(self, rows: int, statements_s: float, seconds: float) -> None:
        """Note one commit."""
        self.commits, self.rows = self.commits + 1, self.rows + rows
        self.statements_s.add(statements_s)
        self.commit_s.add(seconds)


class Writer:
    """Writes changes in groups, in order, until closed.

    Args:
        database: An opened store.
        most: Rows in one group at most.
        trouble: Called with a message when a commit fails, and with None when one succeeds again. A failed group is
            kept and tried until it succeeds: nothing that was put is dropped.
        fatal: Called, once, when a group can never be written (a row that breaks a rule of the tables). Whoever owns
            the writer must end: a server that cannot write must not go on answering.
    """

    def __init__(
        self,
        database: sa.Engine,
        most: int = MOST,
        trouble: Callable[[str | None], None] | None = None,
        fatal: Callable[[], None] = lambda: None,
    ) -> None:
        self.figures = Figures()
        self.message: str | None = None
        self._database, self._most, self._trouble, self._fatal = database, most, trouble, fatal
        self._row_s = AIM_S / most
        self._checkpoints = Checkpoints(database)
        self._statements = schema.DriverStatements(database)
        # Not under a lock: the writer would hold it while it sorts rows, and whoever puts would wait.
        self._given: queue.SimpleQueue[Batch | Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting: deque[Batch | Callable[[], None]] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="wattflow-writer", daemon=True)
        self._thread.start()

    def put(self, *batch: tuple[Change, Row]) -> None:
        """Take changes that belong together: all of them are in one group."""
        self._given.put(batch)

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
        self._given.put(None)
        self._thread.join(timeout_s)
        self._checkpoints.close()

    def _loop(self) -> None:
        while self._fetch():
            rows, callbacks = self._take()
            try:
                if not self._commit_until_it_holds(rows):
                    return
            except sa.exc.SQLAlchemyError as error:
                self._tell(told(error) if isinstance(error, sa.exc.DBAPIError) else str(error))
                log.critical("a group can never be written", exc_info=error)
                self._fatal()
                return
            for callback in callbacks:
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

    def _take(self) -> tuple[dict[Change, list[Row]], list[Callable[[], None]]]:
        """The next group: whole batches, in order, until it is large enough."""
        rows: dict[Change, list[Row]] = {}
        callbacks: list[Callable[[], None]] = []
        count, most = 0, max(1, min(self._most, max(LEAST, int(AIM_S / self._row_s))))
        while self._waiting and (count < most or callable(self._waiting[0])):
            item = self._waiting.popleft()
            if callable(item):
                callbacks.append(item)
                continue
            count += len(item)
            for change, row in item:
                rows.setdefault(change, []).append(row)
        return {change: last_of_each(change, given) for change, given in rows.items()}, callbacks

    def _commit_until_it_holds(self, rows: dict[Change, list[Row]]) -> bool:
        """Commit the group, again and again while the store refuses; False when closing without success."""
        if not rows:
            return True
        tried = False
        while True:
            try:
                began = time.perf_counter()
                with self._database.begin() as connection:
                    if tried and self._there(connection, rows):
                        return True
                    for change in sorted(rows):
                        connection.exec_driver_sql(self._statements.sql(change, rows[change][0]), rows[change])
                    executed = time.perf_counter()
                count = sum(map(len, rows.values()))
                self.figures.add(count, executed - began, time.perf_counter() - began)
                self._row_s += WEIGHT * ((executed - began) / count - self._row_s) if count >= LEAST else 0.0
                self._tell(None)
                return True
            except (sa.exc.OperationalError, sa.exc.InterfaceError, OSError) as error:
                tried = True
                self._tell(told(error) if isinstance(error, sa.exc.DBAPIError) else str(error))
                if self._closing:
                    return False
                time.sleep(RETRY_S)

    def _there(self, connection: sa.Connection, rows: dict[Change, list[Row]]) -> bool:
        """Whether the group is in the store after all: a commit whose answer was lost must not be made again."""
        entries = rows.get(Change.JOURNAL)
        if not entries:
            return False
        table = schema.journal
        query = sa.select(table.c.sequence).where(table.c.sequence == entries[-1]["sequence"])
        if connection.execute(query).first() is None:
            return False
        self._tell(None)
        return True

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


def last_of_each(change: Change, rows: list[Row]) -> list[Row]:
    """The last change of each row, where later ones write all that earlier ones wrote."""
    names = KEYS.get(change)
    if names is None or len(rows) < 2:
        return rows
    return list({tuple(row[name] for name in names): row for row in rows}.values())

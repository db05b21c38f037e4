"""SQLite's log is copied back into the file by a thread of its own, so that no commit is the one that has to.

Commits that are made meanwhile wait for the disk. So it is done when nothing is committed, and else only once the log
is longer than the length that its file keeps (a longer one was written beyond it since it was begun anew).
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import sqlalchemy as sa

from wattflow.store.writing import LOG_BYTES

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

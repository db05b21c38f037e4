"""SQLite's log is copied back into the file by a thread of its own, so that no commit is the one that has to."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import sqlalchemy as sa

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
                size = self._log.stat().st_size
            except OSError:
                continue
            if size >= self._worth_bytes:
                self._copy("RESTART" if size >= LARGEST_BYTES else "PASSIVE")

    def _copy(self, mode: str) -> None:
        try:
            with self._database.connect() as connection:
                connection.exec_driver_sql(f"PRAGMA wal_checkpoint({mode})")
        except sa.exc.DBAPIError as error:
            log.info("the log was not copied back: %s", error.orig)

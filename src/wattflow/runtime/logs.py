"""Output of attempts: one file each, appended as it comes. One thread writes and reads, so the loop never waits."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

LONGEST = 4000
"""Characters of a reason that are kept: an exception's text may be megabytes."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str, most: int = LONGEST) -> str:
    """Escape what UTF-8, a database or a terminal would stumble over: lone surrogates (a file name's bytes), NUL,
    escape codes, marks that turn the direction of writing. Line ends and tabs stay; the rest beyond ``most`` goes."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return _UNPRINTABLE.sub(_escaped, cut)


def storable(value: object) -> object:
    """A column's value without what no database takes: NUL (PostgreSQL) and lone surrogates (all)."""
    if isinstance(value, str) and not value.isprintable():
        return plain(value, len(value))
    return value


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


REQUEST: ContextVar[str] = ContextVar("request", default="")
"""Id of the request that is answered; also in the answer's header ``x-request-id``."""
IDS = ("request", "node", "workflow", "task", "attempt", "user", "token")
"""Fields that a record may bring as ``extra``."""
FORMS = ("text", "json")
LONGEST_LINE = 65_536


class JsonFormatter(logging.Formatter):
    """One JSON object per record. Text that is no Unicode is escaped, so that a line is always a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record as an object."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line: dict[str, object] = {
            "at": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in IDS if hasattr(record, name)}
        if "request" not in line and REQUEST.get():
            line["request"] = REQUEST.get()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """A line of text per record. Names are users': no line end of theirs makes a line, no escape code reaches a
    terminal. Tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Write the record's own line."""
        record.message = plain(record.message, LONGEST_LINE).replace("\n", "\\n")
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """Write the traceback below it."""
        return plain(super().formatException(ei), LONGEST_LINE)


def set_up(form: str | None, level: int) -> None:
    """Log to stderr, as text or (``json``, or by WATTFLOW_LOG) as JSON."""
    chosen = form or os.environ.get("WATTFLOW_LOG", "text")
    handler = logging.StreamHandler(sys.stderr)
    text = TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonFormatter() if chosen == "json" else text)
    logging.basicConfig(level=level, handlers=[handler])


LIMIT_BYTES = 64 << 20
"""Output beyond this is dropped, and the file says so."""


class Logs:
    """Files ``TASK.NUMBER.log`` in a folder, a thousand tasks to a folder below it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._thread = ThreadPoolExecutor(1, "wattflow-logs")

    def put(self, task: int, number: int, offset: int, data: bytes) -> Future[None]:
        """Have output written; done when it is in its file."""
        return self._thread.submit(self.write, task, number, offset, data)

    def get(self, task: int, number: int, offset: int = 0) -> Future[bytes]:
        """Output from a place on, after all that was put before."""
        return self._thread.submit(self.read, task, number, offset)

    def drop(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Forget the output of attempts (task and number)."""
        for task, number in attempts:
            self.path(task, number).unlink(missing_ok=True)

    def close(self) -> None:
        """Write what was put and end the thread."""
        self._thread.shutdown()

    def path(self, task: int, number: int) -> Path:
        """Where an attempt's output lies."""
        return self.root / str(task // 1000) / f"{task}.{number}.log"

    def write(self, task: int, number: int, offset: int, data: bytes) -> None:
        """Append from a place on; bytes that are there already are skipped, a gap is marked (and costs no disk)."""
        path = self.path(task, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            size = file.tell()
            if size > LIMIT_BYTES or offset > LIMIT_BYTES:
                return
            if offset > size:
                file.write(b"[output is missing here]\n"[: offset - size])
                file.truncate(offset)
                size = offset
            fresh = data[size - offset :]
            file.write(fresh[: LIMIT_BYTES - size])
            if size + len(fresh) > LIMIT_BYTES:
                file.write(b"\n[output beyond 64 MiB was dropped]\n")

    def read(self, task: int, number: int, offset: int = 0, most: int = 1 << 20) -> bytes:
        """Output from a place on; empty where there is none yet."""
        try:
            with self.path(task, number).open("rb") as file:
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:
            return b""

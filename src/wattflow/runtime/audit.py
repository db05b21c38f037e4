"""The audit log: who did what, appended and never changed. Each entry's hash covers the entry before it.

Whoever changes, drops or inserts an entry must change every hash after it, and the last one can be kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

Entry = Mapping[str, Any]
FIRST = "0" * 64


class Chain:
    """The end of the log, to which entries are appended."""

    def __init__(self, sequence: int = 0, last: str = FIRST) -> None:
        self.sequence, self.last = sequence, last

    def append(self, at_s: float, who: str, action: str, about: Mapping[str, object]) -> dict[str, object]:
        """Make the next entry."""
        self.sequence += 1
        # ASCII alone: a name that is no Unicode must not keep the entry out of the store.
        row: dict[str, object] = {
            "sequence": self.sequence, "at_s": at_s, "who": json.dumps(who)[1:-1], "action": action,
            "about": json.dumps(dict(about), sort_keys=True),
        }  # fmt: skip
        self.last = chained(self.last, row)
        return row | {"hash": self.last}


def chained(before: str, entry: Entry) -> str:
    """The hash of an entry after another's."""
    words = [before, *(entry[key] for key in ("sequence", "at_s", "who", "action", "about"))]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def first_fault(entries: Iterable[Entry], after: int = 0, last: str = FIRST) -> str | None:
    """Say where a log was tampered with, oldest entry first; None where all hashes are right."""
    for entry in entries:
        after += 1
        if entry["sequence"] != after:
            return f"entry {after} is missing"
        last = chained(last, entry)
        if entry["hash"] != last:
            return f"entry {after} is not what was written"
    return None

"""Buffers between Python and the compiled step: events in, placements and rejections out, and a few words."""

from __future__ import annotations

import numpy as np

from wattflow.kernel.handle import Tables
from wattflow.kernel.records import record_table

EVENT = np.dtype([("kind", "i8"), ("who", "i8"), ("other", "i8"), ("a", "i8"), ("b", "i8"), ("x", "f8")])
EVENT_FORMAT = "=qqqqqd"
PLACEMENT = np.dtype([
    ("attempt", "i8"), ("task", "i8"), ("node", "i8"), ("tag", "i8"), ("part", "i8"), ("attempt_no", "i8"),
    ("variant", "i8"), ("devices", "u8"), ("frequency", "i8"), ("guarantee", "f8"),
    ("level", "i8"),
])  # fmt: skip
ACTION = np.dtype([("kind", "i8"), ("who", "i8"), ("value", "i8")])
REJECTED = np.dtype([("kind", "i8"), ("who", "i8"), ("reason", "i8")])
WORDS = np.dtype([
    ("events", "i8"), ("folded", "i8"), ("arriving", "i8"), ("placements", "i8"), ("actions", "i8"),
    ("rejected", "i8"), ("ramps", "i8"), ("fresh", "i8"), ("changed", "i8"), ("ended", "i8"),
    ("timers", "i8"), ("wake_at", "f8"),
])  # fmt: skip
TABLES = ("words", "events", "order", "tally", "arrivals", "fresh", "changed", "placements", "actions", "rejected")


class Desk(Tables):
    """The tables of one engine's desk. Snapshots carry the name of this class: another one could not be loaded."""

    __slots__ = TABLES
    NAMES = TABLES


def make_desk(events: int, attempts: int, actions: int) -> Desk:
    """Make a desk with room for so many events, placements and actions of one step."""
    return Desk(
        words=record_table(WORDS, 1),
        events=record_table(EVENT, events),
        order=np.zeros(events, np.int32),
        tally=np.zeros(16, np.int64),
        arrivals=np.zeros(events, np.int32),
        fresh=np.zeros(events, np.int32),
        changed=np.zeros(events, np.int32),
        placements=record_table(PLACEMENT, attempts),
        actions=record_table(ACTION, actions),
        rejected=record_table(REJECTED, events),
    )

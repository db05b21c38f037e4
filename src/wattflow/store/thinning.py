"""Windows of node energy are merged as they grow old: to ten seconds after an hour, to a minute after a day.

A merged window holds the sums of those that it takes the place of, so every sum over time stays what it was; only
windows that follow each other without a gap, and whose joules have the same provenance, are merged. What is done is
noted in ``meta``, with the merged windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import sqlalchemy as sa

from wattflow.store import reads, schema
from wattflow.store.reads import Found
from wattflow.store.schema import Row
from wattflow.store.statements import Write

GAP_S = 1e-3


@dataclass(frozen=True, slots=True)
class WindowWidth:
    """Windows older than an age become so wide; so much of a node's time is merged in one group."""

    width_s: float
    after_s: float
    piece_s: float

    @property
    def key(self) -> str:
        """In ``meta``: the time up to which this is done."""
        return f"thinned {self.width_s:g} s"


LEVELS = (WindowWidth(10.0, 3600.0, 600.0), WindowWidth(60.0, 86400.0, 3600.0))
Batch = list[tuple[Write, Row]]


def pieces(database: sa.Engine, now_s: float) -> Iterator[Batch]:
    """Changes that thin what is old enough, each a batch that belongs together; nothing where all is done."""
    # How far each level is done is written with the merged windows: a kill in between neither skips nor repeats one.
    noted = reads.meta(database)
    for level in LEVELS:
        start_s = float(noted[level.key]) if level.key in noted else _first(database, level)
        while start_s is not None and start_s + level.piece_s <= now_s - level.after_s:
            end_s = start_s + level.piece_s
            for node in _nodes(database, start_s, end_s):
                batch = _thinned(database, node, (start_s, end_s), level)
                if batch:
                    yield batch
            yield [(Write.META, {"key": level.key, "value": repr(end_s)})]
            start_s = end_s


def merged(windows: Sequence[Found], width_s: float) -> list[Found]:
    """Windows of one node, in order, with those that belong together as one."""
    made: list[Found] = []
    # Buckets by absolute time, not by the first window: thinning again gives the same windows.
    for _, bucket in groupby(windows, lambda window: math.floor(window["began_s"] / width_s)):
        run: list[Found] = []
        for window in bucket:
            if run and not _follows(run[-1], window):
                made.append(_one(run))
                run = []
            run.append(window)
        made.append(_one(run))
    return made


def _follows(before: Found, window: Found) -> bool:
    # A gap is time that nobody measured; merged over it, watts would be told for it.
    together = abs(window["began_s"] - before["ended_s"]) <= GAP_S
    return together and bool(window["provenance"] == before["provenance"])


def _one(run: list[Found]) -> Found:
    # fsum: sums over months must stay exact to the last digit that a report shows.
    sums = {name: math.fsum(window[name] for window in run) for name in reads.JOULES}
    return run[0] | sums | {"ended_s": run[-1]["ended_s"]}


def _thinned(database: sa.Engine, node: str, span: tuple[float, float], level: WindowWidth) -> Batch:
    table = schema.energy
    begun = (table.c.node == node) & (table.c.began_s >= span[0]) & (table.c.began_s < span[1])
    windows = reads.rows(database, sa.select(table).where(begun).order_by(table.c.began_s))
    few = merged(windows, level.width_s)
    # Nothing to merge: rows that are not written anew keep the log short.
    if len(few) == len(windows):
        return []
    forget = {"b_node": node, "b_from": span[0], "b_to": span[1]}
    return [(Write.ENERGY_FORGET, forget), *((Write.ENERGY, window) for window in few)]


def _first(database: sa.Engine, level: WindowWidth) -> float | None:
    (row,) = reads.rows(database, sa.select(sa.func.min(schema.energy.c.began_s).label("began_s")))
    return None if row["began_s"] is None else math.floor(row["began_s"] / level.piece_s) * level.piece_s


def _nodes(database: sa.Engine, start_s: float, end_s: float) -> list[str]:
    """Nodes that have windows in a time, each looked up by its key."""
    table = schema.energy
    found = []
    for row in reads.nodes(database):
        query = sa.select(table.c.node).where(table.c.node == row["name"], table.c.began_s >= start_s)
        if reads.rows(database, query.where(table.c.began_s < end_s).limit(1)):
            found.append(str(row["name"]))
    return found

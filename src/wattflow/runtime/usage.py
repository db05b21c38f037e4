"""Use of a month, by owner, project and function: the books that budgets and reports are made from."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from wattflow.model.units import J_PER_KWH
from wattflow.runtime.records import Trace

Key = tuple[str, str, str, str]
"""Month, owner, project, function."""


def month_of(at_s: float) -> str:
    """The month of a moment, in UTC: ``2026-11``."""
    return time.strftime("%Y-%m", time.gmtime(at_s))


def month_end_s(at_s: float) -> float:
    """When the month of a moment ends, in UTC."""
    first = datetime.fromtimestamp(at_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=32)).replace(day=1).timestamp()


@dataclass(slots=True)
class Sums:
    """Sums of attempts. Grams are None where nobody says what a kilowatt-hour emits."""

    attempts: int = 0
    cpu_s: float = 0.0
    energy_j: float = 0.0
    carbon_g: float | None = None


class Usage:
    """The books of the months that are written to, as the store has them or will with the next commit.

    Attributes:
        intensity: What the site's electricity emits at a moment, in grams for a kWh that a node draws; None where
            nobody says.
    """

    def __init__(self) -> None:
        self.intensity: Callable[[float], float] | None = None
        self._sums: defaultdict[Key, Sums] = defaultdict(Sums)
        self._of: defaultdict[tuple[str, str, str], Sums] = defaultdict(Sums)
        self._changed: dict[Key, None] = {}

    def restore(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Go on from what the store has."""
        for row in rows:
            key = (row["month"], row["owner"], row["project"], row["function"])
            self._book(key, Sums(row["attempts"], row["cpu_s"], row["energy_j"], row["carbon_g"]))
        self._changed.clear()

    def ended(self, trace: Trace, cpu_s: float, at_s: float) -> None:
        """An attempt is over."""
        self._book(_key(trace, at_s), Sums(1, cpu_s))

    def joules(self, trace: Trace, energy_j: float, at_s: float) -> None:
        """Joules of an attempt that were not known before."""
        grams = None if self.intensity is None else energy_j / J_PER_KWH * self.intensity(at_s)
        self._book(_key(trace, at_s), Sums(energy_j=energy_j, carbon_g=grams))

    def used(self, scope: str, name: str, at_s: float) -> Sums:
        """Sum up what a user or a project used in the month of a moment."""
        return self._of.get((month_of(at_s), scope, name)) or Sums()

    def rows(self) -> list[dict[str, object]]:
        """Rows that changed since they were last asked for: whole sums, so writing one twice changes nothing."""
        # Whole sums are written, not differences: a commit that is repeated after a lost answer changes nothing.
        changed, self._changed = self._changed, {}
        made: list[dict[str, object]] = []
        for key in changed:
            sums = self._sums[key]
            named = dict(zip(("month", "owner", "project", "function"), key, strict=True))
            made.append({**named, "attempts": sums.attempts, "cpu_s": sums.cpu_s, "energy_j": sums.energy_j,
                         "carbon_g": sums.carbon_g})  # fmt: skip
        return made

    def _book(self, key: Key, more: Sums) -> None:
        month, owner, project, _ = key
        # The sums of users and projects are kept beside the rows: a budget is asked for every placement.
        places = [self._sums[key], self._of[month, "user", owner]]
        places += [self._of[month, "project", project]] if project else []
        for sums in places:
            sums.attempts += more.attempts
            sums.cpu_s += more.cpu_s
            sums.energy_j += more.energy_j
            if more.carbon_g is not None:
                sums.carbon_g = (sums.carbon_g or 0.0) + more.carbon_g
        self._changed[key] = None


def _key(trace: Trace, at_s: float) -> Key:
    return month_of(at_s), trace.owner, trace.project, trace.function

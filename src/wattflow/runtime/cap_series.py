"""A cap on a server's watts over time, as `wattflow up` hands it over. Light: the command line loads it."""

from __future__ import annotations

import bisect
import json
import math
from pathlib import Path

from wattflow.model.cluster import Series


class CapSeries:
    """Watts over time that begin at a time (seconds since 1970) and repeat when they end."""

    def __init__(self, series: Series, origin_s: float) -> None:
        self.series, self.origin_s = series, origin_s
        values = series.values
        # Index −1 is the last value: after it the first comes again.
        self._changes = [i for i in range(len(values)) if values[i] != values[i - 1]]

    @classmethod
    def read(cls, path: Path) -> CapSeries:
        """Read what `write` has written."""
        told = json.loads(path.read_text())
        return cls(Series(told["step_s"], tuple(told["values"])), told["origin_s"])

    def text(self) -> str:
        """Return it as `read` wants it."""
        return json.dumps({"step_s": self.series.step_s, "origin_s": self.origin_s, "values": self.series.values})

    def at(self, time_s: float) -> float:
        """Return the cap at a time."""
        return self.series.values[self._cell(time_s) % len(self.series.values)]

    def edges(self, after_s: float, most: int) -> list[float]:
        """Return when it changes next, so many times at most."""
        if not self._changes:
            return []
        lap, cell = divmod(self._cell(after_s), len(self.series.values))
        first = bisect.bisect_right(self._changes, cell)
        found = [divmod(first + k, len(self._changes)) for k in range(most)]
        cells = [(lap + more) * len(self.series.values) + self._changes[i] for more, i in found]
        return [self.origin_s + self.series.step_s * one for one in cells]

    def _cell(self, time_s: float) -> int:
        return math.floor((time_s - self.origin_s) / self.series.step_s)

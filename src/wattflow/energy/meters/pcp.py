"""Performance Co-Pilot through pmproxy's REST interface, with one kept context.

The agent ``denki`` publishes RAPL in whole joules, as ``denki.rapl.sysfs`` or ``denki.rapl.msr`` in new versions and
``denki.rapl.raw`` in old ones (6.0 and before). It does not say where a counter wraps: without ``range_j`` a counter
that falls is unknown from then on, not guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from urllib.parse import quote

from wattflow.energy.meters.http import MeterConnection
from wattflow.energy.meters.port import Domain, NoReading, Reading, now_s

METRICS = ("denki.rapl.sysfs", "denki.rapl.msr", "denki.rapl.raw")
DEFAULT_URL = "http://localhost:44322"
_log = logging.getLogger(__name__)


class PcpMeter:
    """RAPL of the host whose pmcd ``hostspec`` names, through the pmproxy at ``url``."""

    name = "pcp"
    remote = True

    def __init__(self, url: str = DEFAULT_URL, hostspec: str = "localhost", range_j: float | None = None) -> None:
        self._http = MeterConnection(url)
        self._hostspec, self._range_j = hostspec, range_j
        try:
            self._context = self._open_context()
            self.metric = self._first_metric()
            self._names = self._instances()
        except NoReading:
            self._http.close()
            raise
        self._last: dict[str, float] = {}
        self._wrapped: dict[str, float | None] = dict.fromkeys(self._names.values(), 0.0)
        self.domains = tuple(Domain(name, _kind(name)) for name in self._names.values())

    def read(self) -> Reading:
        """Read all domains; None for each while pmproxy does not answer."""
        time_s = now_s()
        try:
            values = self._fetch()
        except NoReading as reason:
            _log.debug("no reading: %s", reason)
            values = {}
        return Reading(time_s, {name: self._unwrapped(name, values.get(name)) for name in self._names.values()})

    def close(self) -> None:
        self._http.close()

    def _open_context(self) -> int:
        # pmproxy forgets a context that was not used for this many seconds (`_fetch` takes another).
        answer = self._http.get_json(f"/pmapi/context?hostspec={quote(self._hostspec)}&polltimeout=60")
        context = answer.get("context")
        if not isinstance(context, int):
            raise NoReading(f"pmproxy at {self._http.url} gives no context: {answer.get('message', answer)}")
        return context

    def _first_metric(self) -> str:
        answer = self._http.get_json(f"/pmapi/{self._context}/metric?names={','.join(METRICS)}")
        known = {str(row.get("name")) for row in _rows(answer, "metrics") if "pmid" in row}
        for metric in METRICS:
            if metric in known:
                return metric
        raise NoReading(f"pmproxy at {self._http.url} has none of {', '.join(METRICS)}; is the denki agent installed?")

    def _instances(self) -> dict[int, str]:
        answer = self._http.get_json(f"/pmapi/{self._context}/indom?name={self.metric}")
        names = {
            number: str(row.get("name"))
            for row in _rows(answer, "instances")
            if (number := _whole(row.get("instance"))) is not None
        }
        if not names:
            raise NoReading(f"{self.metric} has no instances: the host of {self._hostspec} shows no RAPL")
        # Sorted by number, so that domains have the same order at every start.
        return dict(sorted(names.items()))

    def _fetch(self) -> dict[str, float]:
        for last in (False, True):
            answer = self._http.get_json(f"/pmapi/{self._context}/fetch?names={self.metric}")
            # An answer without values twice is no reading; it is not asked for a third time.
            if "values" in answer or last:
                break
            # The context timed out between two reads: take another.
            self._context = self._open_context()
        values: dict[str, float] = {}
        for metric in _rows(answer, "values"):
            for row in _rows(metric, "instances"):
                number, value = _whole(row.get("instance")), row.get("value")
                name = None if number is None else self._names.get(number)
                if name is not None and isinstance(value, int | float):
                    values[name] = float(value)
        return values

    def _unwrapped(self, name: str, value: float | None) -> float | None:
        if value is None:
            return None
        wrapped = self._wrapped[name]
        if value < self._last.get(name, 0.0) and wrapped is not None:
            if self._range_j is None:
                _log.warning(
                    "%s fell from %s to %s J and its range is not known (range_j)", name, self._last[name], value
                )
            # Unknown from then on: by how much it wrapped cannot be told without its range.
            wrapped = None if self._range_j is None else wrapped + self._range_j
            self._wrapped[name] = wrapped
        self._last[name] = value
        return None if wrapped is None else wrapped + value


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _kind(instance: str) -> str:
    # Order matters: "core" is in "uncore" as well.
    for kind in ("package", "psys", "dram", "uncore", "core"):
        if kind in instance:
            return kind
    return "uncore"


def _rows(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    rows = document.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []

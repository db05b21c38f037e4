"""Kepler's node counters through its Prometheus endpoint.

Kepler before 0.10 names them ``kepler_node_package_joules_total`` (split by ``mode``: idle and dynamic, added here);
since then ``kepler_node_cpu_joules_total`` with the zone as a label. Its own per-container split is not used.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping

from wattflow.energy.meters.http import MeterConnection
from wattflow.energy.meters.port import Domain, NoReading, Reading, now_s

DEFAULT_URL = "http://localhost:9102"
_log = logging.getLogger(__name__)
_LINE = re.compile(r"(kepler_node_\w+_joules_total)\{([^}]*)\}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_OLD = {"package": "package", "dram": "dram", "core": "core", "uncore": "uncore", "platform": "wall", "gpu": "gpu"}


class KeplerMeter:
    """Node energy as Kepler publishes it at ``url``/metrics."""

    name = "kepler"
    remote = True

    def __init__(self, url: str = DEFAULT_URL) -> None:
        self._http = MeterConnection(url)
        try:
            joules = self._scrape()
            if not joules:
                raise NoReading(f"{self._http.url}/metrics has no kepler_node_…_joules_total")
        except NoReading:
            self._http.close()
            raise
        self.domains = tuple(Domain(name, kind) for name, kind in sorted(joules))

    def read(self) -> Reading:
        """Read all domains; None for each while the page cannot be had."""
        time_s = now_s()
        try:
            joules = self._scrape()
        except NoReading as reason:
            _log.debug("no reading: %s", reason)
            joules = {}
        return Reading(time_s, {domain.name: joules.get((domain.name, domain.kind)) for domain in self.domains})

    def close(self) -> None:
        self._http.close()

    def _scrape(self) -> dict[tuple[str, str], float]:
        status, body = self._http.get("/metrics")
        if status != 200:
            raise NoReading(f"{self._http.url}/metrics answered {status}")
        return node_joules(body.decode("utf-8", "replace"))


def node_joules(text: str) -> dict[tuple[str, str], float]:
    """Return joules by (domain name, kind) in a page of metrics, modes added up."""
    joules: dict[tuple[str, str], float] = {}
    for metric, label_text, value in _LINE.findall(text):
        labels = dict(_LABEL.findall(label_text))
        key = _domain(metric.removeprefix("kepler_node_").removesuffix("_joules_total"), labels)
        number = _number(value)
        if key is not None and number is not None:
            joules[key] = joules.get(key, 0.0) + number
    return joules


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _domain(what: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    if what == "cpu":
        zone = labels.get("zone", "package")
        # Order matters: "core" is in "uncore" as well.
        kind = next((kind for kind in ("package", "psys", "dram", "uncore", "core") if kind in zone), "uncore")
        path = labels.get("path", "")
        # One zone of each socket: the path's last part keeps them apart.
        return (f"{zone}:{path.rsplit('/', 1)[-1]}" if path else zone), kind
    if what in _OLD:
        part = labels.get("package") or labels.get("instance") or ""
        return (f"{what}-{part}" if part else what), _OLD[what]
    return None

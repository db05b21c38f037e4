"""Redfish: the board controller's view at the wall, over HTTPS.

``EnvironmentMetrics`` may hold an energy counter (joules or kWh); where it does not, or the controller is older, the
momentary ``PowerConsumedWatts`` of ``Power`` is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping

from wattflow.energy.meters.http import MeterConnection
from wattflow.energy.meters.port import Domain, NoReading, Reading, now_s
from wattflow.model.units import J_PER_KWH


class RedfishMeter:
    """All chassis of the controller at ``url`` that show energy or watts. ``user`` is ``name:password``, ``ca`` a file
    of certificates that the controller's is checked by."""

    name = "redfish"
    remote = True

    def __init__(self, url: str, user: str | None = None, ca: str | None = None) -> None:
        self._http = MeterConnection(url, user=user, ca=ca)
        try:
            self._sources = self._find()
            if not self._sources:
                raise NoReading(f"{url} shows neither energy nor watts for any chassis")
        except NoReading:
            self._http.close()
            raise
        self.domains = tuple(self._sources)

    def _find(self) -> dict[Domain, str]:
        sources: dict[Domain, str] = {}
        members = self._http.get_json("/redfish/v1/Chassis").get("Members")
        for member in members if isinstance(members, list) else []:
            path = str(member.get("@odata.id", "")).rstrip("/") if isinstance(member, Mapping) else ""
            # The newer page first: it may hold a counter, the older one has watts only.
            for page in (f"{path}/EnvironmentMetrics", f"{path}/Power"):
                domain = self._domain(path.rsplit("/", 1)[-1], page)
                if domain is not None:
                    sources[domain] = page
                    break
        return sources

    def read(self) -> Reading:
        time_s = now_s()
        joules: dict[str, float | None] = {}
        watts: dict[str, float | None] = {}
        for domain, page in self._sources.items():
            energy_j, power_w = self._page(page)
            if domain.counter:
                joules[domain.name] = energy_j
            else:
                watts[domain.name] = power_w
        return Reading(time_s, joules, watts)

    def close(self) -> None:
        self._http.close()

    def _domain(self, chassis: str, page: str) -> Domain | None:
        energy_j, power_w = self._page(page)
        if energy_j is None and power_w is None:
            return None
        return Domain(f"chassis-{chassis}", "wall", counter=energy_j is not None)

    def _page(self, page: str) -> tuple[float | None, float | None]:
        try:
            document = self._http.get_json(page)
        except NoReading:
            return None, None
        return energy_and_watts(document)


def energy_and_watts(document: Mapping[str, object]) -> tuple[float | None, float | None]:
    """Return joules counted and momentary watts of a Redfish page; what it lacks is None."""
    energy_j = _sensor(document.get("EnergyJoules"))
    if energy_j is None:
        energy_kwh = _sensor(document.get("EnergykWh"))
        energy_j = None if energy_kwh is None else energy_kwh * J_PER_KWH
    power_w = _sensor(document.get("PowerWatts"))
    control = document.get("PowerControl")
    if power_w is None and isinstance(control, list):
        watts = [_sensor(row.get("PowerConsumedWatts")) for row in control if isinstance(row, Mapping)]
        known = [value for value in watts if value is not None]
        # Some rows without a value: their sum would be a part of the chassis.
        power_w = sum(known) if known and len(known) == len(watts) else None
    return energy_j, power_w


def _sensor(value: object) -> float | None:
    # Newer versions wrap the number into a sensor object.
    if isinstance(value, Mapping):
        value = value.get("Reading")
    return float(value) if isinstance(value, int | float) else None

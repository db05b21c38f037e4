"""Which meters are here: tried in order, every failure kept with its reason.

The order is from the most direct to the most remote: a counter in this kernel, the same counter through a service, a
sensor. The first that opens is used; GPUs are asked for separately, they stand beside the node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wattflow.energy.meters import hwmon, kepler, nvml, pcp, perf_pmu, powercap, redfish
from wattflow.energy.meters.port import Meter, NoReading
from wattflow.model.errors import MissingMeter, unknown_name


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look; the environment's WATTFLOW_SYSFS, _PMPROXY, _KEPLER, _REDFISH, _REDFISH_USER and _REDFISH_CA set
    them."""

    sysfs: Path = Path("/sys")
    pmproxy_url: str = pcp.DEFAULT_URL
    pmcd: str = "localhost"
    kepler_url: str = kepler.DEFAULT_URL
    redfish_url: str | None = None
    redfish_user: str | None = None
    redfish_ca: str | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Places:
        return cls(
            Path(environment.get("WATTFLOW_SYSFS", "/sys")),
            environment.get("WATTFLOW_PMPROXY", pcp.DEFAULT_URL),
            environment.get("WATTFLOW_PMCD", "localhost"),
            environment.get("WATTFLOW_KEPLER", kepler.DEFAULT_URL),
            environment.get("WATTFLOW_REDFISH"),
            environment.get("WATTFLOW_REDFISH_USER"),
            environment.get("WATTFLOW_REDFISH_CA"),
        )


def _redfish(places: Places) -> Meter:
    if places.redfish_url is None:
        raise NoReading("no controller named (set WATTFLOW_REDFISH to its address)")
    return redfish.RedfishMeter(places.redfish_url, places.redfish_user, places.redfish_ca)


NODE_METERS: Mapping[str, Callable[[Places], Meter]] = {
    "powercap": lambda places: powercap.PowercapMeter(places.sysfs / "class" / "powercap"),
    "perf": lambda places: perf_pmu.PerfMeter(places.sysfs / "bus" / "event_source" / "devices"),
    "pcp": lambda places: pcp.PcpMeter(places.pmproxy_url, places.pmcd),
    "kepler": lambda places: kepler.KeplerMeter(places.kepler_url),
    "hwmon": lambda places: hwmon.HwmonMeter(places.sysfs / "class" / "hwmon"),
    "redfish": _redfish,
}
DEVICE_METERS: Mapping[str, Callable[[Places], Meter]] = {"nvml": lambda places: nvml.NvmlMeter()}
_WHOLE = ("package", "psys", "wall")


@dataclass(frozen=True, slots=True)
class Finding:
    """One meter that was tried: it, or why it is not here."""

    name: str
    meter: Meter | None
    reason: str = ""


def try_meter(name: str, places: Places | None = None) -> Finding:
    """Open one meter by name."""
    known = {**NODE_METERS, **DEVICE_METERS}
    if name not in known:
        raise unknown_name("meter", name, known)
    try:
        return Finding(name, known[name](places or Places.of_environment()))
    except (NoReading, OSError, ValueError) as error:
        return Finding(name, None, str(error))


def try_all(places: Places | None = None) -> list[Finding]:
    """Every known meter, open or with its reason. The caller closes what it does not keep."""
    return [try_meter(name, places) for name in (*NODE_METERS, *DEVICE_METERS)]


def open_node_meter(places: Places | None = None) -> Meter:
    """The first node meter that opens. MissingMeter joins all the reasons when none does."""
    reasons = []
    for name in NODE_METERS:
        finding = try_meter(name, places)
        if finding.meter is not None and any(domain.kind in _WHOLE for domain in finding.meter.domains):
            return finding.meter
        if finding.meter is not None:
            finding.meter.close()
        reasons.append(f"  {name}: {finding.reason or 'reads devices only, not the node'}")
    raise MissingMeter("no meter reads this machine's energy:\n" + "\n".join(reasons))


def find_node_meter(places: Places | None = None) -> Meter | None:
    """Like `open_node_meter`, but absence is None."""
    try:
        return open_node_meter(places)
    except MissingMeter:
        return None

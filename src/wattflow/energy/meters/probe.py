"""Which meters are here: tried in order, every failure kept with its reason.

`wattflow machine meters`, the profiler and the agents go through one list: meters of other packages first (somebody
installed them for this machine), then ours from the most direct to the most remote: a counter in this kernel, the same
counter through a service, a sensor. The first that counts the node's joules is used, else the first that samples its
watts; GPUs are asked for separately, they stand beside the node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wattflow.energy.meters import hwmon, kepler, nvml, pcp, perf_pmu, powercap, redfish
from wattflow.energy.meters.port import Meter, NoReading, node_domains
from wattflow.model import plugins
from wattflow.model.errors import InvalidInput, MissingMeter, unknown_name


@dataclass(frozen=True, slots=True)
class MeterSources:
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
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> MeterSources:
        return cls(
            Path(environment.get("WATTFLOW_SYSFS", "/sys")),
            environment.get("WATTFLOW_PMPROXY", pcp.DEFAULT_URL),
            environment.get("WATTFLOW_PMCD", "localhost"),
            environment.get("WATTFLOW_KEPLER", kepler.DEFAULT_URL),
            environment.get("WATTFLOW_REDFISH"),
            environment.get("WATTFLOW_REDFISH_USER"),
            environment.get("WATTFLOW_REDFISH_CA"),
        )


Places = MeterSources
"""Its name of before, which meters of other packages may import for one release more."""


def _redfish(places: MeterSources) -> Meter:
    if places.redfish_url is None:
        raise NoReading("no controller named (set WATTFLOW_REDFISH to its address)")
    return redfish.RedfishMeter(places.redfish_url, places.redfish_user, places.redfish_ca)


NODE_METERS: Mapping[str, Callable[[MeterSources], Meter]] = {
    "powercap": lambda places: powercap.PowercapMeter(places.sysfs / "class" / "powercap"),
    "perf": lambda places: perf_pmu.PerfMeter(places.sysfs / "bus" / "event_source" / "devices"),
    "pcp": lambda places: pcp.PcpMeter(places.pmproxy_url, places.pmcd),
    "kepler": lambda places: kepler.KeplerMeter(places.kepler_url),
    "hwmon": lambda places: hwmon.HwmonMeter(places.sysfs / "class" / "hwmon"),
    "redfish": _redfish,
}
DEVICE_METERS: Mapping[str, Callable[[MeterSources], Meter]] = {"nvml": lambda places: nvml.NvmlMeter()}


@dataclass(frozen=True, slots=True)
class Finding:
    """One meter that was tried: it, or why it is not here."""

    name: str
    meter: Meter | None
    reason: str = ""


def meter_names() -> list[str]:
    """Return every meter that can be tried, in the order in which they are."""
    ours = (*NODE_METERS, *DEVICE_METERS)
    return [*plugins.names(plugins.METERS, ours), *ours]


def try_meter(name: str, places: MeterSources | None = None) -> Finding:
    """Open one meter by name."""
    if name not in meter_names():
        raise unknown_name("meter", name, meter_names())
    try:
        # Ours first by name: a package from outside cannot replace a meter of ours.
        made = NODE_METERS.get(name) or DEVICE_METERS.get(name) or plugins.load(plugins.METERS, name)
        return Finding(name, made(places or MeterSources.of_environment()))
    except (NoReading, OSError, ValueError, InvalidInput) as error:
        return Finding(name, None, str(error))


def try_all(places: MeterSources | None = None) -> list[Finding]:
    """Try every known meter; each is open or has its reason. The caller closes what it does not keep."""
    return [try_meter(name, places) for name in meter_names()]


def open_node_meter(places: MeterSources | None = None) -> Meter:
    """Open the first meter that counts the node's joules, else the first that samples its watts.

    Raises:
        MissingMeter: None does; joins all the reasons.
    """
    # All are opened: the best one may come after the first that opens.
    findings = [try_meter(name, places) for name in meter_names() if name not in DEVICE_METERS]
    whole = [finding.meter for finding in findings if finding.meter is not None and node_domains(finding.meter.domains)]
    chosen = min(whole, key=_is_sampled, default=None)  # False before True; of equals the first
    for finding in findings:
        if finding.meter is not None and finding.meter is not chosen:
            finding.meter.close()
    if chosen is None:
        reasons = [f"  {one.name}: {one.reason or 'reads devices only, not the node'}" for one in findings]
        raise MissingMeter("no meter reads this machine's energy:\n" + "\n".join(reasons))
    return chosen


def _is_sampled(meter: Meter) -> bool:
    return not all(domain.counter for domain in node_domains(meter.domains))


def find_node_meter(places: MeterSources | None = None) -> Meter | None:
    """Find the meter as `open_node_meter` does, but absence is None."""
    try:
        return open_node_meter(places)
    except MissingMeter:
        return None

"""Curves of all nodes: where each comes from, and those that Kepler's and DCGM's metrics give by Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec

from wattflow.kube import objects, power
from wattflow.kube.argo.fetch import watts_of
from wattflow.kube.client import Client
from wattflow.kube.fitting import Fit, fit
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Scope

# Prometheus refuses ranges of more than 11,000 points a series.
_STEP_S, _MOST_POINTS = 60, 10_000
_WATTS = (
    (
        # Kepler from 0.10 on; the two others are names of earlier versions.
        'sum by (node_name, node, instance) (rate(kepler_node_cpu_joules_total{zone=~"package|dram"}[5m]))',
        Scope.PACKAGE,
    ),
    ("sum by (node_name, node, instance, exported_instance) (rate(kepler_node_platform_joules_total[5m]))", Scope.WALL),
    (
        "sum by (node_name, node, instance, exported_instance) (rate(kepler_node_package_joules_total[5m]))",
        Scope.PACKAGE,
    ),
)
"""Watts of nodes in the words of Kepler's generations, and what they include; the first that is known counts."""
_BUSY = (
    'sum by (node_name, node, instance) (rate(node_cpu_seconds_total{mode!~"idle|iowait"}[5m]))',
    "max by (node_name, node, instance) (kepler_node_cpu_usage_ratio)",
)
"""Busy threads, or (the second) the part of all threads that is busy."""
_GPUS = "sum by (Hostname) (DCGM_FI_DEV_POWER_USAGE)"
Series = dict[str, dict[float, float]]


class _Row(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Row] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Outcome for one node: a fit, or why there is none."""

    node: str
    found: Fit | None
    why: str = ""


async def fitted(client: Client, url: str, days: float) -> list[Fitted]:
    """Fit curves to what a Prometheus knows of the last days.

    Raises:
        InvalidInput: it does not answer, or knows neither watts nor loads.
    """
    nodes = (await client.list_all("/api/v1/nodes", objects.Node)).items
    names = [node.metadata.name for node in nodes]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        asked = _Asked(session, url.rstrip("/"), days, names)
        watts, scope = await asked.watts()
        busy, ratio = await asked.series(_BUSY[0]), False
        # node_exporter counts every thread; Kepler's own ratio is there wherever Kepler is.
        if not busy:
            busy, ratio = await asked.series(_BUSY[1]), True
        gpus = await asked.series(_GPUS)
    if not watts or not busy:
        lacking = (
            "kepler_node_cpu_joules_total" if not watts else "node_cpu_seconds_total or kepler_node_cpu_usage_ratio"
        )
        raise InvalidInput(url, f"knows nothing of our nodes by {lacking} in the last {days:g} days")
    return [_fitted(node, watts, busy, gpus, scope, ratio) for node in nodes]


def _fitted(node: objects.Node, watts: Series, busy: Series, gpus: Series, scope: Scope, ratio: bool) -> Fitted:
    name, threads = node.metadata.name, power.threads_of(node)
    scale, drawn, loads = threads if ratio else 1, watts.get(name, {}), busy.get(name, {})
    # Both on the same grid: queries share start and step, so equal times are equal numbers.
    samples = [(at_s, loads[at_s] * scale, value) for at_s, value in drawn.items() if at_s in loads]
    # GPUs that do nothing draw all the same; what they take when busy belongs to their own tasks
    idle_gpu_w = min(gpus.get(name, {}).values(), default=0.0)
    source = "Kepler by Prometheus" + (f", idle GPUs by DCGM {idle_gpu_w:.0f} W" if idle_gpu_w else "")
    try:
        found = fit([(at_s, load, value + idle_gpu_w) for at_s, load, value in samples], threads, source, scope)
    except InvalidInput as error:
        return Fitted(name, None, str(error))
    return Fitted(name, found)


@dataclass(slots=True)
class _Asked:
    """One span of time of one Prometheus."""

    session: aiohttp.ClientSession
    url: str
    days: float
    names: Iterable[str]

    async def watts(self) -> tuple[Series, Scope]:
        """Read the watts of nodes by the first words that are known, and what they include."""
        for query, scope in _WATTS:
            found = await self.series(query)
            if found:
                return found, scope
        return {}, Scope.PACKAGE

    async def series(self, query: str) -> Series:
        """Read values by node and time, of nodes of ours."""
        # On whole steps, so that all queries of one fit answer at the same times.
        end_s = int(time.time()) // _STEP_S * _STEP_S
        span_s = self.days * 86400
        # Rounded up to whole steps, and below the limit of points also where the division leaves a rest.
        step_s = max(_STEP_S, -(-span_s // _MOST_POINTS) // _STEP_S * _STEP_S + _STEP_S)
        asked = {"query": query, "start": f"{end_s - span_s:.0f}", "end": str(end_s), "step": f"{step_s:.0f}"}
        try:
            async with self.session.get(f"{self.url}/api/v1/query_range", params=asked) as response:
                answer = msgspec.json.decode(await response.read(), type=_Answer)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            raise InvalidInput(self.url, f"does not answer as Prometheus does: {error}") from None
        if answer.status != "success":
            raise InvalidInput(self.url, f"refused the query: {answer.error}")
        found: Series = {}
        known = set(self.names)
        for row in answer.data.result:
            who = _node_of(row.metric, known)
            if who is not None:
                found.setdefault(who, {}).update((at_s, float(text)) for at_s, text in row.values)
        return found


def _node_of(labels: Mapping[str, str], known: set[str]) -> str | None:
    """Return the node that a series is of, by whichever label names it."""
    for key in ("node_name", "node", "exported_instance", "instance", "Hostname"):
        value = labels.get(key, "")
        # Scrape targets carry a port: "node-1:9100".
        for name in (value, value.rpartition(":")[0]):
            if name in known:
                return name
    return None


async def listed(client: Client, default: str = "") -> list[str]:
    """Return a line for each node: idle and full watts, provenance and source of its curve."""
    watts = await watts_of(client, default)
    watts.guesses = True
    nodes = (await client.list_all("/api/v1/nodes", objects.Node)).items
    return [line(node.metadata.name, watts.profile_of(node)) for node in nodes]


def line(name: str, curve: PowerProfile | None, more: str = "") -> str:
    """Describe one node in words."""
    if curve is None:
        return f"{name}: unknown"
    said = f"{name}: {curve.idle_w:.1f} to {curve.full_w:.1f} W, {curve.scope.value}, {curve.provenance.value}"
    return f"{said}; {curve.source}{more}"


def told(one: Fitted, now_s: float) -> str:
    """Describe a fit in words."""
    if one.found is None:
        return f"{one.node}: {one.why}"
    about = one.found
    age_h = max(0.0, now_s - about.newest_s) / 3600
    more = f"; nine tenths of {about.samples} samples within {about.below - 1:+.0%} … {about.above - 1:+.0%}"
    return line(one.node, about.curve, f"{more}; newest {age_h:.1f} h old")

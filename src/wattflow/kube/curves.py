"""Curves of all nodes: where each comes from, and those that Kepler's and DCGM's metrics give by Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec
import numpy as np
from numpy.typing import NDArray

from wattflow.kube import objects, power
from wattflow.kube.access import Access
from wattflow.kube.argo.fetch import watts_of
from wattflow.kube.client import ApiError, Client
from wattflow.kube.power import GROUP
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Provenance, Scope

APPLY = "application/apply-patch+yaml"


def document(node: str, curve: PowerProfile) -> dict[str, object]:
    """Make the object, named as its node."""
    spec = {
        "nodes": [node],
        "busy": list(curve.busy),
        "watts": list(curve.watts),
        "scope": curve.scope.value,
        "provenance": curve.provenance.value,
        "source": curve.source,
    }
    return {"apiVersion": "wattflow.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": node}, "spec": spec}


async def write_profile(where: Access, node: str, curve: PowerProfile) -> None:
    """Make the object, or replace what we wrote before; other keys, such as a cap, stay.

    Raises:
        InvalidInput: the cluster has no such node, or no NodePowerProfile.
    """
    async with Client(where) as client:
        try:
            await client.get(f"/api/v1/nodes/{node}", objects.Node)
        except ApiError as error:
            raise InvalidInput(f"--kube {node}", f"the node cannot be read: {error}") from None
        # Server-side apply owns only the keys that are sent, so an operator's `capW` stays; `force` takes
        # over keys that somebody edited by hand, since a measurement is newer.
        query = {"fieldManager": "wattflow-profile", "force": "true"}
        try:
            await client.call("PATCH", f"{GROUP}/{node}", document(node, curve), query=query, content=APPLY)
        except ApiError as error:
            hint = "; apply deploy/base first" if error.code == 404 else ""
            raise InvalidInput(f"--kube {node}", f"the profile was not taken: {error}{hint}") from None


# Node curves from what a monitoring system recorded: watts against busy threads, with noise, gaps and restarts.
#
# Samples are sorted into bins of busy threads, each bin gives its median, medians are made monotone (pool adjacent
# violators, weighted by the number of samples), idle is what the bend of the lower half says, and full load is
# prolonged with the nearest slope. Busy threads are those of the whole node, so that load which no pod explains
# shifts nothing.

_EDGES = np.array([0, 0.01, 0.02, 0.035, 0.05, 0.075, *np.arange(0.1, 0.99, 0.05)])
"""Where bins begin, in parts of all threads: finer near idle, where curves bend most."""
_LEAST, _LEAST_IN_BIN = 60, 5
_LEAST_SPAN = 0.1
"""Part of the threads over which samples must spread; else only a constant is known."""
_BENDS = np.arange(0.3, 2.01, 0.05)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A curve and how well it is known.

    Attributes:
        below, above: Nine tenths of the samples lie within these parts of the curve, such as 0.96 and 1.05.
        samples: How many were used.
        newest_s: When the last was taken, since 1970.
    """

    curve: PowerProfile
    below: float
    above: float
    samples: int
    newest_s: float


def fit(samples: Sequence[tuple[float, float, float]], threads: int, source: str, scope: Scope = Scope.PACKAGE) -> Fit:
    """Fit a curve to (time, busy threads, watts).

    Raises:
        InvalidInput: too few samples, or all at one load.
    """
    table: Floats = np.asarray(samples, float).reshape(-1, 3)
    # A rate over a counter may exceed the threads a little; more is a broken sample.
    good = np.isfinite(table).all(axis=1) & (table[:, 2] > 0) & (table[:, 1] >= 0) & (table[:, 1] <= 1.05 * threads)
    table = table[good]
    if len(table) < _LEAST:
        raise InvalidInput(source, f"{len(table)} usable samples; {_LEAST} are needed")
    at, watts, counts = _binned(np.minimum(table[:, 1], threads), table[:, 2], threads)
    if len(at) < 2 or at[-1] - at[0] < _LEAST_SPAN * threads:
        raise InvalidInput(source, f"all samples are at {at[0]:.1f} of {threads} threads: a curve needs more loads")
    watts = _monotone(watts, counts)
    busy, curve = _prolonged(at, watts, threads, _idle_w(at, watts, counts, threads))
    made = PowerProfile(tuple(busy), tuple(curve), scope, Provenance.MEASURED, source)
    parts = table[:, 2] / np.interp(table[:, 1], busy, curve)
    below, above = np.quantile(parts, (0.05, 0.95))
    return Fit(made, float(below), float(above), len(table), float(table[:, 0].max()))


def _binned(busy: Floats, watts: Floats, threads: int) -> tuple[Floats, Floats, Floats]:
    """Return the medians of bins that have enough samples."""
    # A sample that lies on an edge belongs above it, whatever the division has rounded.
    number = np.searchsorted(_EDGES, busy / threads + 1e-9, side="right") - 1
    found = []
    for one in range(len(_EDGES)):
        inside = number == one
        if inside.sum() >= _LEAST_IN_BIN:
            found.append((np.median(busy[inside]), np.median(watts[inside]), float(inside.sum())))
    table: Floats = np.asarray(found, float).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _monotone(watts: Floats, weights: Floats) -> Floats:
    """Pool neighbours that fall until none does."""
    # Value, weight and length of a block: the result must have as many points as there were.
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(watts.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return np.repeat([value for value, _, _ in blocks], [count for _, _, count in blocks])


def _idle_w(at: Floats, watts: Floats, counts: Floats, threads: int) -> float:
    """Return the watts without load by idle + slope · busy^bend, the bend that fits the lower half of the loads best.

    A node is hardly ever without any load, and a curve rises most steeply there: a straight line through the two
    lowest bins told 80 W of idle as 87 W (bend 0.6).
    """
    low = at <= max(at[min(3, len(at) - 1)], 0.5 * threads)
    best = (math.inf, float(watts[0]))
    for bend in _BENDS:
        raised = (at[low] / threads) ** bend
        mean_x, mean_w = np.average(raised, weights=counts[low]), np.average(watts[low], weights=counts[low])
        slope = np.sum(counts[low] * (raised - mean_x) * (watts[low] - mean_w)) / max(
            1e-12, np.sum(counts[low] * (raised - mean_x) ** 2)
        )
        idle_w = mean_w - slope * mean_x
        missed = float(np.sum(counts[low] * (idle_w + slope * raised - watts[low]) ** 2))
        best = min(best, (missed, float(idle_w)))
    return min(max(0.0, best[1]), float(watts[0]))


def _prolonged(at: Floats, watts: Floats, threads: int, idle_w: float) -> tuple[list[float], list[float]]:
    """The curve from idle to all threads; the slope at its end is that of the last quarter."""
    span = max(2, math.ceil(len(at) / 4) + 1)
    last = (watts[-1] - watts[-span]) / (at[-1] - at[-span])
    busy, curve = at.tolist(), watts.tolist()
    if busy[0] > 1e-9:
        busy, curve = [0.0, *busy], [idle_w, *curve]
    else:
        busy[0] = 0.0
    if busy[-1] < threads:
        busy, curve = [*busy, float(threads)], [*curve, curve[-1] + last * (threads - busy[-1])]
    return busy, curve


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

"""Joules of pods as Kepler attributes them, read from Prometheus.

Kepler's counters begin at 0 with each pod, so the largest value seen is what the pod used. Two generations of metrics
are known: per pod and zone (package and memory are added; core and uncore are parts of the package), and per container.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import aiohttp
import msgspec

from wattflow.model.errors import InvalidInput

# Kepler and Prometheus look every few seconds to a minute: counters of short pods show themselves a
# little later.
_MARGIN_S = 120.0
_QUERIES = (
    (
        "pod_id",
        "sum by (pod_id) (max by (pod_id, zone) (max_over_time(kepler_pod_cpu_joules_total"
        '{{pod_namespace="{namespace}",zone=~"package|dram"}}[{seconds}s])))',
    ),
    (
        "pod_name",
        "sum by (pod_name) (max by (pod_name, container_id) (max_over_time(kepler_container_joules_total"
        '{{container_namespace="{namespace}"}}[{seconds}s])))',
    ),
)


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Sample] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


async def pod_joules(
    url: str, namespace: str, span_s: tuple[float, float], names: Mapping[str, str]
) -> dict[str, float]:
    """Read joules by pod uid for a span of time (since 1970); ``names`` gives each pod's uid by its name.

    Raises:
        InvalidInput: There is no Prometheus, or it knows nothing of these pods.
    """
    begin_s, end_s = span_s
    # Prometheus looks back from `time`, which is a margin after the end; one more before the beginning.
    seconds = math.ceil(end_s - begin_s + 2 * _MARGIN_S)
    known = set(names.values())
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        for label, text in _QUERIES:
            query = text.format(namespace=namespace, seconds=seconds)
            answer = await _ask(session, url, query, end_s + _MARGIN_S)
            found = {}
            for sample in answer.data.result:
                who = sample.metric.get(label, "")
                uid, joules = who if label == "pod_id" else names.get(who, ""), float(sample.value[1])
                # Metrics of other pods in the namespace, and NaN, are left out.
                if uid in known and math.isfinite(joules):
                    found[uid] = joules
            # The first generation that knows any of the pods: sums of two would count joules twice.
            if found:
                return found
    raise InvalidInput(url, f"knows no Kepler metrics of these pods of {namespace} (kepler_pod_cpu_joules_total)")


async def _ask(session: aiohttp.ClientSession, url: str, query: str, at_s: float) -> _Answer:
    try:
        where = f"{url.rstrip('/')}/api/v1/query"
        async with session.get(where, params={"query": query, "time": f"{at_s:.3f}"}) as response:
            answer = msgspec.json.decode(await response.read(), type=_Answer)
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(url, f"does not answer as Prometheus does: {error}") from None
    if answer.status != "success":
        raise InvalidInput(url, f"refused the query: {answer.error}")
    return answer

"""Kepler's joules from a Prometheus that answers as the real one does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from wattflow.kube.argo import fetch
from wattflow.kube.argo.collect import collect
from wattflow.kube.argo.graph import Graph
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Provenance

from .making import node
from .test_collect import WORKFLOW, ran

NAMES = {"pod-a": "uid-a", "pod-b": "uid-b"}


def sample(labels: dict[str, str], value: str) -> dict[str, object]:
    return {"metric": labels, "value": [1.0, value]}


def ask(
    answer: Callable[[str], object], act: Callable[[str], Awaitable[dict[str, float]]]
) -> tuple[dict[str, float], list[str]]:
    asked: list[str] = []

    async def query(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        return web.json_response(answer(asked[-1]))

    async def whole() -> dict[str, float]:
        app = web.Application()
        app.router.add_get("/api/v1/query", query)
        async with TestServer(app) as server:
            return await act(str(server.make_url("/")))

    return asyncio.run(whole()), asked


def test_per_pod_and_only_pods_of_the_workflow() -> None:
    rows = [
        sample({"pod_id": "uid-a"}, "12.5"),
        sample({"pod_id": "stranger"}, "9"),
        sample({"pod_id": "uid-b"}, "NaN"),
    ]
    answer = {"status": "success", "data": {"resultType": "vector", "result": rows}}
    found, asked = ask(lambda query: answer, lambda url: fetch.pod_joules(url, "space", (100.0, 160.0), NAMES))
    assert found == {"uid-a": 12.5}
    assert len(asked) == 1 and 'pod_namespace="space"' in asked[0] and "[300s]" in asked[0]
    assert 'zone=~"package|dram"' in asked[0], "core is a part of the package and must not count twice"


def test_the_older_metrics_are_found_too() -> None:
    def answer(query: str) -> object:
        rows = [sample({"pod_name": "pod-b"}, "7")] if "kepler_container" in query else []
        return {"status": "success", "data": {"resultType": "vector", "result": rows}}

    found, asked = ask(answer, lambda url: fetch.pod_joules(url, "space", (0.0, 1.0), NAMES))
    assert found == {"uid-b": 7.0} and len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"status": "success", "data": {"result": []}}, "knows no Kepler metrics"),
        ({"status": "error", "error": "bad query"}, "bad query"),
        (["no", "answer"], "does not answer as Prometheus"),
    ],
)
def test_what_is_wrong_is_told(answer: object, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        ask(lambda query: answer, lambda url: fetch.pod_joules(url, "space", (0.0, 1.0), NAMES))


def test_attributed_joules_stand_before_the_model_and_are_not_mixed() -> None:
    pods = [ran("a", 0, 10), ran("end", 20, 30)]
    curve = PowerProfile((0, 4), (100, 180))
    found = collect(WORKFLOW, Graph.of(WORKFLOW), pods, {"n": node("n")}, lambda one: curve, {}, {"a": 77.0})
    tasks = {task.id: task for task in found.tasks}
    assert (tasks["a"].energy_j, tasks["a"].energy_provenance) == (77.0, Provenance.ATTRIBUTED)
    assert tasks["end"].energy_j == pytest.approx(200.0) and tasks["end"].energy_provenance is Provenance.MODELLED

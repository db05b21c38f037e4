"""Mode extender: what kube-scheduler asks and what it is answered, through a real engine and real HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from wattflow.kube import accounting, extender, objects, scheduler_process, settings
from wattflow.kube.client import Client
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.http_endpoints import serving
from wattflow.kube.power import LABEL
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile

from .making import node, pod
from .small_api import small_api

CONFIG = """
mode = "extender"
policy = "least-energy"
[http]
port = 0
[energy]
profiles = false
{more}
"""
CHEAP, DEAR = PowerProfile((0, 4), (50, 70)), PowerProfile((0, 4), (50, 200))


def wish(one: objects.Pod) -> Wanted:
    return Wanted(one, accounting.pod_requests(one))


def test_the_cheapest_alone_gets_ten_and_what_is_not_liked_nothing() -> None:
    costs = {"a": 1.0, "b": 1.0001, "c": 3.0, "d": float("inf")}
    assert extender.scores(costs, ["a", "b", "c", "d", "unknown"]) == {"a": 10, "b": 9, "c": 0, "d": 0, "unknown": 0}
    assert extender.scores(costs, ["b", "c"]) == {"b": 10, "c": 0}
    assert extender.scores({}, ["x"]) == {"x": 0}


def test_costs_are_those_of_the_policy_and_leave_no_trace() -> None:
    decider = EngineDecider("least-energy", score_limit=0)
    for name, power in (("dear", DEAR), ("cheap", CHEAP), ("same", CHEAP), ("full", CHEAP)):
        decider.set_node(node(name), accounting.node_allocatable(node(name)), power)
    decider.set_load("full", {"cpu": 4000, "memory": 0, "pods": 1})
    before = decider.engine.counts
    for turn in range(3):
        found = decider.costs(wish(pod("p", cpu="2")), 1.0 + turn)
        assert found.keys() == {"dear", "cheap", "same"}
        assert found["cheap"] == found["same"] < found["dear"]
    decider.step(9.0)
    after = decider.engine.counts
    assert {key: after[key] for key in ("waiting", "running", "open")} == dict.fromkeys(
        ("waiting", "running", "open"), 0
    )
    assert before["running"] == 0
    # what is chosen when the same pod is really wanted
    decider.want(wish(pod("p", cpu="2")))
    assert decider.step(10.0).choices[0].node in ("cheap", "same")


def test_an_extender_cannot_do_what_needs_more_than_one_pod() -> None:
    with pytest.raises(InvalidInput, match="one pod at a time"):
        settings.parse('mode = "extender"\n[sleep]\nhook = "true"\n')


async def _answers(*bodies: tuple[str, bytes], more: str = "") -> list[tuple[int, Any]]:
    """What an extender over two nodes answers; node a adds more watts for a core than node b."""
    found = []
    async with small_api() as (api, access), Client(access) as client:
        for name, profile in (("a", "ccf.xeon-8480-rx2540"), ("b", "ccf.altra-q80-30")):
            api.put("/api/v1/nodes", msgspec.to_builtins(node(name, labels={LABEL: profile})))
        scheduler = scheduler_process.make(client, settings.parse(CONFIG.format(more=more)))
        async with serving(scheduler) as port:
            task = asyncio.create_task(scheduler.run())
            async with asyncio.timeout(120), aiohttp.ClientSession() as session:
                while len(scheduler.decider.engine.nodes) < 2:  # type: ignore[attr-defined]
                    await asyncio.sleep(0.02)
                for path, body in bodies:
                    async with session.post(f"http://127.0.0.1:{port}/extender/{path}", data=body) as answer:
                        text = await answer.read()
                        found.append((answer.status, msgspec.json.decode(text) if answer.status == 200 else text))
            task.cancel()
        assert {method for method, _ in api.calls} == {"GET"}, "an extender writes nothing"
    return found


@pytest.mark.slow
def test_it_answers_as_kube_scheduler_expects() -> None:
    one = msgspec.json.encode({"Pod": pod("p", cpu="1"), "Nodes": None, "NodeNames": ["a", "b"]})
    listed = {"Pod": pod("p", cpu="1"), "Nodes": {"items": [node("a"), node("b")]}, "NodeNames": None}
    calls = (("filter", one), ("filter", msgspec.json.encode(listed)), ("prioritize", one), ("prioritize", b"{"))
    by_name, in_full, liked, broken = asyncio.run(_answers(*calls))
    assert by_name == (200, {"FailedNodes": {}, "Error": "", "NodeNames": ["a", "b"]})
    assert [item["metadata"]["name"] for item in in_full[1]["Nodes"]["items"]] == ["a", "b"]
    assert liked == (200, [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 10}])
    assert broken[0] == 400


@pytest.mark.slow
def test_a_node_that_would_break_its_cap_is_filtered_with_the_reason() -> None:
    one = msgspec.json.encode({"Pod": pod("p", cpu="4"), "NodeNames": ["a", "b"]})
    ((status, found),) = asyncio.run(_answers(("filter", one), more="node_cap_w = 160"))
    assert (status, found["NodeNames"]) == (200, ["b"])
    assert found["FailedNodes"] == {"a": "the node's power cap"}

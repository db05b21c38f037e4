"""Whatever a tenant writes into an object costs that object its wish; a node's facts may change in any way."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattflow.kube import accounting, gangs, gpus, quantity, quarantine, scheduler_process, tenant
from wattflow.kube import settings as config
from wattflow.kube.argo.graph import Graph
from wattflow.kube.argo.watching import ArgoWorkflow
from wattflow.kube.book import Book
from wattflow.kube.client import Client
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.filters import feasible
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile

from .making import node, pod
from .small_api import SmallApi, small_api

ARGO = "/apis/argoproj.io/v1alpha1"
CONFIG = """
policy = "fifo"
[lease]
identity = "a"
lease_s = 4
renew_s = 2
retry_s = 0.1
"""
DIGITS = "1" * 5000
HOSTILE = {
    "gang-size": ["²", DIGITS, "-1", "1e9", "٣"],
    "gpu-memory": ["1e40", "1e99999999", DIGITS, "²Gi"],
    "gpu": ["²", DIGITS],
    "gpu-share": ["nan", "inf", "²", DIGITS],
    "runtime-s": ["nan", "1e400", "-inf", DIGITS],
    "input-bytes": ["nan", "1e400", "²"],
    "guarantee": ["²", "nan"],
    "placer": ["²", DIGITS],
}


def test_numbers_of_tenants_are_read_within_bounds() -> None:
    assert [tenant.count(text) for text in ("12", "0", "²", "", "-1", DIGITS)] == [12, 0, None, None, None, None]
    assert [tenant.number(text) for text in ("1.5", "2e3", ".5", "nan", "inf", "1e400", "1e20", "²")] == [
        1.5, 2000.0, 0.5, None, None, None, None, None,
    ]  # fmt: skip
    assert quantity.whole("1e40") == quantity.MOST, "more than there can be counts as more than there can be"
    for text in (DIGITS, "1e99999999", "²"):
        with pytest.raises(InvalidInput, match="quantity"):
            quantity.whole(text)


@pytest.mark.parametrize("text", HOSTILE["gang-size"])
def test_a_gang_whose_size_cannot_be_read_is_none_and_is_told(text: str) -> None:
    one = pod("p")
    one.metadata.annotations |= {gangs.GANG: "g", gangs.SIZE: text}
    assert gangs.gang_of(one) is None
    (told,) = quarantine.unread(one.metadata.annotations)
    assert told.startswith(f"{gangs.SIZE} is ") and len(told) < 200


def test_a_gang_in_words_of_volcano_is_named_as_not_read_unless_ours_stand_beside() -> None:
    notes = {gangs.POD_GROUP: "job-1"}
    (told,) = quarantine.unread(notes)
    assert told.startswith(f"{gangs.POD_GROUP} is not read") and gangs.GANG in told
    assert not list(quarantine.unread(notes | {gangs.GANG: "g", gangs.SIZE: "2"}))


def test_requests_of_a_hostile_pod_stay_within_64_bits() -> None:
    one = pod("p", containers=[{"name": str(i), "resources": {"requests": {"memory": "1e40"}}} for i in range(4)])
    assert accounting.pod_requests(one)["memory"] < 2**63
    one.metadata.annotations |= {gpus.SHARE: "0.5", gpus.MEMORY: "1e40", gpus.INDEX: "²"}
    assert gpus.held(one) is None


@pytest.mark.parametrize(
    "asked", [{"cpu": "8E"}, {"cpu": "1", "memory": "1e40"}, {"vendor.io/x": "9223372036854775807"}]
)
def test_requests_beyond_any_machine_end_nothing(asked: dict[str, str]) -> None:
    """The API server takes such a pod from anybody; nine containers of it exceed 64 bits, and so do cores of 8E."""
    wants = [{"name": str(i), "resources": {"requests": asked}} for i in range(9)]
    book = Book(EngineDecider("fifo"), owns=lambda one: not one.spec.node_name, power_of=lambda one: None)
    book.on_node("ADDED", node("a", allocatable={"cpu": "4", "vendor.io/x": "3"}))
    book.on_node("ADDED", node("b", allocatable={"cpu": "8E"}))
    book.on_node("ADDED", node("c"))
    for i in range(100):
        book.on_pod("ADDED", pod(f"there-{i}", node="a", containers=wants))
    for one in (pod("huge", containers=wants), pod("plain", cpu="1")):
        book.on_pod("ADDED", one)
    book.flush(1.0)
    found = {one.uid: one.node for one in book.decider.step(1.0).choices}
    assert "uid-plain" in found and found.get("uid-huge", "b") == "b"


@pytest.mark.parametrize("where", ["unsupported", "counted_against", "standing"])
def test_a_filter_that_fails_on_one_pod_costs_that_pod_alone(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a tenant's doing but ours; it shall not end the scheduler, at each start anew, all the same."""
    whole = getattr(feasible, where)

    def fails(asked: Any, *others: Any) -> Any:
        if getattr(asked, "pod", asked).metadata.name == "bad":
            raise OverflowError("beyond 64 bits")
        return whole(asked, *others)

    monkeypatch.setattr(feasible, where, fails)
    book = Book(EngineDecider("fifo"), owns=lambda one: not one.spec.node_name, power_of=lambda one: None)
    book.on_node("ADDED", node("a"))
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {}}]}
    for name in ("bad", "good"):
        book.on_pod("ADDED", pod(name, cpu="1", affinity={"podAntiAffinity": apart}, labels={"of": name}))
    book.flush(1.0)
    told = {}
    for one in book.decider.step(1.0).choices:
        told[one.uid] = book.assume(one.uid, one.node)
    assert told.get("uid-good", "left waiting") is None
    assert "OverflowError" in str(book.refused.get("uid-bad") or told.get("uid-bad"))


def test_a_template_that_calls_itself_twice_is_refused_in_no_time() -> None:
    twice = {"name": "t", "steps": [[{"name": "a", "template": "t"}, {"name": "b", "template": "t"}]]}
    began_s = time.process_time()
    with pytest.raises(InvalidInput, match="more than"):
        Graph.of({"metadata": {"name": "w"}, "spec": {"entrypoint": "t", "templates": [twice]}})
    assert time.process_time() - began_s < 20
    wide = {"name": "t", "steps": [[{"name": "a", "template": "l", "withSequence": {"count": "9" * 18}}]]}
    leaf = {"name": "l", "container": {"image": "i"}}
    graph = Graph.of({"metadata": {"name": "w"}, "spec": {"entrypoint": "t", "templates": [wide, leaf]}})
    assert [one.placeholder for one in graph.tasks.values()] == [True]


# the whole scheduler, over HTTP


def _node(name: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name, "uid": name}, "spec": {}, "status": {"allocatable": room, "capacity": room}}


def _pod(name: str, notes: dict[str, str] | None = None, scheduler: str = "wattflow", at: str = "") -> dict[str, Any]:
    spec = {"schedulerName": scheduler, "containers": [{"name": "m", "resources": {"requests": {"cpu": "10m"}}}]}
    about = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes or {}}
    return {"metadata": about, "spec": spec | ({"nodeName": at} if at else {}), "status": {}}


def _workflow(name: str, **more: Any) -> dict[str, Any]:
    leaf = {"name": "l", "container": {"image": "i", "command": ["true"]}}
    raw = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"entrypoint": "l", "templates": [leaf]},
    }
    raw["spec"] |= more.pop("spec", {})
    return raw | more


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():
            await asyncio.sleep(0.02)


async def _among(api_act: Callable[[SmallApi, Any], Any], before: Callable[[SmallApi], None]) -> None:
    async with small_api() as (api, access), Client(access) as client:
        api.put("/api/v1/nodes", _node("n"))
        before(api)
        scheduler = scheduler_process.make(client, config.parse(CONFIG))
        task = asyncio.create_task(scheduler.run())
        try:
            await api_act(api, scheduler)
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _bound(api: SmallApi) -> set[str]:
    return {one["metadata"]["name"] for one in api.items["/api/v1/pods"].values() if one["spec"].get("nodeName")}


@pytest.mark.slow
def test_hostile_annotations_of_own_and_others_pods_end_nothing_and_are_told() -> None:
    def before(api: SmallApi) -> None:
        for i, (key, text) in enumerate((key, text) for key, texts in HOSTILE.items() for text in texts):
            notes = {f"wattflow.io/{key}": text, gangs.GANG: f"g{i}"} | (
                {gpus.SHARE: "0.5"} if key == "gpu-memory" else {}
            )
            api.put("/api/v1/pods", _pod(f"own-{i}", notes))
            api.put("/api/v1/pods", _pod(f"foreign-{i}", notes, "default-scheduler", "n"))

    async def act(api: SmallApi, scheduler: Any) -> None:
        api.put("/api/v1/pods", _pod("good"))
        await _until(lambda: "good" in _bound(api))
        sizes = {f"own-{i}" for i in range(len(HOSTILE["gang-size"]))}
        await _until(lambda: sizes <= _bound(api))  # without their gang, and not for ever in it
        texts = [text for _, _, _, reason, text in scheduler.binder.later if reason == "InvalidWish"]
        written = [
            one["note"] for path, items in api.items.items() if path.endswith("/events") for one in items.values()
        ]
        assert any(gangs.SIZE in text for text in [*texts, *written])
        assert sum(scheduler.metrics.set_aside.values.values()) >= len(HOSTILE["gang-size"])

    asyncio.run(_among(act, before))


@pytest.mark.slow
def test_workflows_of_another_form_cost_themselves_their_graph() -> None:
    twice = {"name": "t", "steps": [[{"name": "a", "template": "t"}, {"name": "b", "template": "t"}]]}

    def before(api: SmallApi) -> None:
        api.put(f"{ARGO}/workflows", _workflow("phase", status={"phase": 5}))
        api.put(f"{ARGO}/workflows", _workflow("priority", spec={"priority": "high"}))
        api.put(f"{ARGO}/workflows", _workflow("bomb", spec={"entrypoint": "t", "templates": [twice]}))
        api.put(f"{ARGO}/workflows", _workflow("plain"))

    async def act(api: SmallApi, scheduler: Any) -> None:
        api.put(f"{ARGO}/workflows", _workflow("later", status={"phase": ["x"]}))
        api.put("/api/v1/pods", _pod("good"))
        await _until(lambda: "good" in _bound(api))
        await _until(lambda: scheduler.metrics.set_aside.values.get((("kind", "Workflow"),), 0) >= 4)

    asyncio.run(_among(act, before))


@pytest.mark.slow
def test_without_argo_and_profiles_installed_it_starts_and_finds_them_later() -> None:
    async def act(api: SmallApi, scheduler: Any) -> None:
        api.put("/api/v1/pods", _pod("good"))
        await _until(lambda: "good" in _bound(api))

    asyncio.run(_among(act, lambda api: None))


def test_a_status_of_another_form_is_named() -> None:
    from wattflow.kube.client import changes, events_of

    line = json.dumps({"type": "ADDED", "object": _workflow("w", status={"phase": 5})}).encode()
    (change,) = changes([line], events_of(ArgoWorkflow))
    assert change.bad is not None and "phase" in change.bad.why and change.bad.metadata.name == "w"


# a node's facts

CURVES = (None, PowerProfile((0, 4), (50, 70)), PowerProfile((0, 4), (20, 200)), PowerProfile((0, 9), (1, 2)))
CHANGES = st.lists(
    st.one_of(
        st.tuples(
            st.just("set"), st.sampled_from("ab"), st.sampled_from(CURVES), st.sampled_from(["2", "4", "0", "500m"])
        ),
        st.tuples(st.just("drop"), st.sampled_from("ab")),
        st.tuples(st.just("step")),
        st.tuples(st.just("want")),
        st.tuples(st.just("end")),
    ),
    max_size=25,
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["wattflow", "least-energy", "heft"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=CHANGES)
def test_a_nodes_facts_may_change_in_any_way(policy: str, changes: list[tuple[Any, ...]]) -> None:
    decider = EngineDecider(policy)
    now_s, placed, made = 0.0, list[str](), 0
    for change in [*changes, ("set", "a", CURVES[1], "4"), ("want",), ("step",)]:
        now_s += 1.0
        if change[0] == "set":
            one = node(change[1], allocatable={"cpu": change[3]})
            decider.set_node(one, accounting.node_allocatable(one), change[2])
        elif change[0] == "drop":
            decider.drop_node(change[1])
        elif change[0] == "want":
            made += 1
            one_pod = pod(f"p{made}", cpu="1")
            decider.want(Wanted(one_pod, accounting.pod_requests(one_pod)))
        elif change[0] == "end" and placed:
            decider.ended(placed.pop())
        elif change[0] == "step":
            for choice in decider.step(now_s).choices:
                decider.started(choice.uid)
                placed.append(choice.uid)

"""Workflows told by REST: ranks order pods, batches go together, restarts forget nothing, tokens are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from wattflow.kube import accounting, http_endpoints, settings
from wattflow.kube.book import Book
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.executions import BadExecution, Executions
from wattflow.model.errors import InvalidInput

from .making import node, pod

TOKEN = "0123456789abcdef"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def told(folder: Path | None = None, strategy: str = "rank") -> Executions:
    """first → second → third, and a side branch from first to last."""
    known = Executions(folder)
    known.register("run", "default", strategy)
    known.add_vertices("run", [(1, "first", "PROCESS"), (2, "second", "PROCESS"), (3, "third", "PROCESS"),
                               (4, "side", "process"), (9, "op", "OPERATOR")])  # fmt: skip
    known.add_edges("run", [(1, 1, 9), (5, 9, 2), (2, 2, 3), (3, 1, 4)])
    return known


def test_ranks_count_processes_to_the_end_and_follow_changes() -> None:
    known = told()
    one = known.of_name("run")
    assert one.ranks == {"first": 3, "second": 2, "third": 1, "side": 1, "op": 2}
    known.drop_vertices("run", [3])
    assert one.ranks["first"] == 2 and 2 not in one.edges
    with pytest.raises(BadExecution, match="cycle"):
        known.add_edges("run", [(7, 2, 1)])
    assert 7 not in one.edges and one.ranks["first"] == 2, "what does not fit changes nothing"
    with pytest.raises(BadExecution, match=r"\[42\]"):
        known.add_edges("run", [(7, 2, 42)])


@pytest.mark.parametrize(("strategy", "first"), [("rank_max", "big"), ("rank_min", "small")])
def test_ties_go_by_size(strategy: str, first: str) -> None:
    known = told(strategy=strategy)
    known.add_task("run", 1, "second", "big", 1e9)
    known.add_task("run", 2, "second", "small", 1e3)
    known.add_task("run", 3, "first", "before", 1e6)
    orders = {name: known.order_of(pod(name)) for name in ("big", "small", "before", "nobody")}
    assert max(orders, key=lambda name: orders[name]) == "before" and orders["nobody"] == 0
    del orders["before"]
    assert max(orders, key=lambda name: orders[name]) == first


def test_all_of_it_survives_a_restart(tmp_path: Path) -> None:
    known = told(tmp_path)
    known.start_batch("run")
    known.add_task("run", 7, "second", "p7", 5.0)
    known.register("over", "default", "fifo")
    known.delete("over")
    again = Executions(tmp_path)
    again.restore()
    assert again.known == known.known
    assert again.order_of(pod("p7")) == known.order_of(pod("p7")) > 0
    assert again.keeps_back(pod("p7"))
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BadExecution, match=r"run\.json"):
        Executions(tmp_path).restore()


@pytest.mark.slow
def test_the_deeper_process_goes_first() -> None:
    known = told()
    decider = EngineDecider("fifo", executions=known)
    one = node("n", allocatable={"cpu": "1"})
    decider.set_node(one, accounting.node_allocatable(one), None)
    for i, process in enumerate(("third", "second", "first")):
        known.add_task("run", i, process, process, 0.0)
        decider.want(Wanted(pod(process, cpu="1"), {"cpu": 1000, "pods": 1}))
    order = []
    for now_s in range(1, 4):
        (choice,) = decider.step(float(now_s)).choices
        order.append(choice.uid.removeprefix("uid-"))
        decider.ended(choice.uid)
    assert order == ["first", "second", "third"]


@pytest.mark.slow
def test_a_batch_waits_for_all_of_its_pods() -> None:
    known = told()
    book = Book(EngineDecider("fifo"), owns=lambda one: True, power_of=lambda one: None, keeps_back=known.keeps_back)
    known.on_released = book.look_again
    book.on_node("ADDED", node("n"))
    known.start_batch("run")
    for i in range(3):
        known.add_task("run", i, "first", f"p{i}", 0.0)
    book.on_pod("ADDED", pod("p0"))
    book.on_pod("ADDED", pod("alone"))
    assert set(book.waiting) == {"uid-alone"} and set(book.kept) == {"uid-p0"}
    known.end_batch("run", 3)
    book.on_pod("ADDED", pod("p1"))
    assert set(book.kept) == {"uid-p0", "uid-p1"}
    known.drop_task("run", 2)
    assert set(book.waiting) == {"uid-alone", "uid-p0", "uid-p1"} and not book.kept


def serve(known: Executions, act: Callable[[TestClient[web.Request, web.Application]], Awaitable[None]]) -> None:
    async def whole() -> None:
        app = web.Application()
        app.router.add_routes(http_endpoints.routes(known, TOKEN))
        async with TestClient(TestServer(app)) as client:
            await act(client)

    asyncio.run(whole())


def test_over_http_with_a_token_alone() -> None:
    known = Executions()

    async def act(client: TestClient[web.Request, web.Application]) -> None:
        root = "/v1/scheduler/run"
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert (await client.post(root, json={}, headers=headers)).status == 401
        assert not known.known
        steps: list[tuple[str, str, object, int]] = [
            ("POST", "", {"namespace": "default", "strategy": "rank_max", "workDir": "/x"}, 200),
            ("POST", "", {}, 400),
            ("POST", "/DAG/vertices", [{"uid": 1, "label": "a", "type": "PROCESS"}, {"uid": 2, "label": "b"}], 200),
            ("POST", "/DAG/edges", [{"uid": 1, "from": 1, "to": 2, "label": None}], 200),
            ("POST", "/DAG/edges", [{"uid": 2, "from": 2, "to": 1}], 400),
            ("POST", "/DAG/edges", {"not": "a list"}, 400),
            ("PUT", "/startBatch", None, 200),
            ("POST", "/task/3", {"task": "a", "runName": "pod-3", "cpus": 1.0, "inputSize": 7}, 200),
            ("PUT", "/endBatch", 1, 200),
            ("GET", "/task/3", None, 200),
            ("GET", "/task/4", None, 404),
            ("GET", "/task/x", None, 400),
            ("DELETE", "/DAG/edges", [1], 200),
            ("DELETE", "/DAG/vertices", [2], 200),
            ("DELETE", "/task/4", None, 404),
        ]
        for method, path, body, code in steps:
            answer = await client.request(method, root + path, json=body, headers=HEADERS)
            assert answer.status == code, (method, path, await answer.text())
        known.seen(pod("pod-3", "n"))
        assert (await (await client.get(f"{root}/task/3", headers=HEADERS)).json()) == {"state": "SCHEDULED"}
        answer = await client.post("/v1/scheduler/other", json={"strategy": "rank-fair"}, headers=HEADERS)
        assert answer.status == 404 and "leave out" in (await answer.json())["error"]
        assert (await client.delete(root, headers=HEADERS)).status == 200
        assert (await client.delete(root, headers=HEADERS)).status == 400

    serve(known, act)


def test_a_token_is_long_and_private_and_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("short")
    with pytest.raises(InvalidInput, match="16"):
        http_endpoints.read_token(path)
    path.write_text(TOKEN)
    path.chmod(0o644)
    with pytest.raises(InvalidInput, match="chmod"):
        http_endpoints.read_token(path)
    path.chmod(0o600)
    assert http_endpoints.read_token(path) == TOKEN
    with pytest.raises(InvalidInput, match="token_file"):
        settings.parse('[workflows]\nexecutions = "somewhere"\n')


def test_progress_comes_from_the_pods() -> None:
    known = told()
    known.add_task("run", 1, "first", "p", 0.0)
    states = []
    for one in (pod("p"), pod("p", "n"), pod("p", "n", status={"phase": "Succeeded"})):
        known.seen(one)
        states.append(known.of_name("run").tasks[1].state)
    assert states == ["UNSCHEDULED", "SCHEDULED", "FINISHED"]
    assert known.of(pod("stranger")) is None

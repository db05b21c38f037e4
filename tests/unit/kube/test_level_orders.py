"""The scheduler's policy orders clocks of nodes that can set them, and counts on nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow.kube import accounting, node_levels, objects, scheduler_process, settings
from wattflow.kube.client import Client
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.level_orders import AGAIN_S, ANSWER_S, BY, LASTS_S, LevelOrders
from wattflow.kube.node_levels import ORDER, STATUS, NodeLevels
from wattflow.levels import sysfs
from wattflow.levels.holder import Holder
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile

from .making import node, pod
from .small_api import SmallApi, small_api

CURVE, NODES, PODS = PowerProfile((0, 4), (50, 150)), "/api/v1/nodes", "/api/v1/pods"
CAN = {"knobs": {"cpu-policy0.clock_mhz": [800, 4000], "cpu-policy1.clock_mhz": [1000, 4000]}}


def noted(name: str, answer: object = None, **notes: str) -> objects.Node:
    made = node(name)
    told = {} if answer is None else {STATUS: json.dumps(answer)}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=told | notes))


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def begun(watts: float, *nodes: objects.Node) -> tuple[EngineDecider, LevelOrders, Clock]:
    """A decider that keeps a cap, with two pods of two cores on each node."""
    clock = Clock()
    levels = LevelOrders("wattflow", clock)
    decider = EngineDecider(f"power-cap:watts={watts}", levels=levels)
    for one in nodes:
        tell(decider, one)
    for number in range(2 * len(nodes)):
        one_pod = pod(f"p{number}", cpu="2")
        decider.want(Wanted(one_pod, accounting.pod_requests(one_pod), estimate_s=1000.0))
    return decider, levels, clock


def tell(decider: EngineDecider, one: objects.Node) -> None:
    decider.set_node(one, accounting.node_allocatable(one), CURVE)


def level(decider: EngineDecider, name: str) -> int:
    return int(decider.engine.describe(decider.engine.nodes[name])["frequency"])


def wanted(levels: LevelOrders) -> dict[str, float | None]:
    return {name: None if order is None else order.clock_mhz for name, order in levels.due().items()}


@pytest.mark.slow
def test_only_nodes_whose_pod_can_set_clocks_are_counted_on() -> None:
    decider, levels, _ = begun(210.0, noted("can", CAN), noted("cannot"))
    assert len(decider.step(0.0).choices) == 3, "the fourth has no room at 210 W however slow"
    assert level(decider, "can") > 0 and level(decider, "cannot") == 0
    (clock,) = wanted(levels).values()
    assert clock is not None and 2000.0 <= clock < 4000.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [{"knobs": {"cpu-policy0.clock_mhz": [5000, 4000]}}, {"knobs": {"cpu-policy0.clock_mhz": [1, 1e9]}}, ["no"],
     {"knobs": {"gpu-0.clock_mhz": [300, 2000]}}, {"knobs": 5}],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_none(broken: object) -> None:
    decider, levels, _ = begun(100.0, noted("n", broken))
    decider.step(0.0)
    assert level(decider, "n") == 0 and wanted(levels) == {}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["silent", "refused", "theirs"])
def test_an_order_that_is_not_followed_is_full_clock_to_the_policy(how: str) -> None:
    decider, levels, clock = begun(130.0, noted("n", CAN))
    decider.step(0.0)
    order = levels.due()["n"]
    assert order is not None and level(decider, "n") > 0
    order.until_s = clock.now_s + LASTS_S  # as if it were written
    ours = {ORDER: "{}", BY: "wattflow"}
    tell(decider, noted("n", CAN, **ours))
    assert level(decider, "n") > 0 and levels.look() == []
    if how == "silent":
        clock.now_s += ANSWER_S + 1
        assert levels.look() == ["n"]
        tell(decider, noted("n", CAN, **ours))
    elif how == "refused":
        tell(decider, noted("n", {**CAN, "until_s": order.until_s, "refused": {"cpu-policy0.clock_mhz": "no"}}, **ours))
    else:
        tell(decider, noted("n", CAN, **{ORDER: '{"clock_mhz": 2000}'}))
    assert level(decider, "n") == 0
    # Ours is taken away; somebody else's is left alone.
    assert wanted(levels) == ({} if how == "theirs" else {"n": None})
    clock.now_s += AGAIN_S
    assert levels.look() == ["n"]
    tell(decider, noted("n", CAN))
    assert len(decider.engine.cluster.nodes[0].frequencies) == 8


@pytest.mark.slow
def test_an_order_is_renewed_before_it_ends_and_one_of_an_earlier_life_is_taken_away() -> None:
    decider, levels, clock = begun(130.0, noted("n", CAN), noted("old", CAN, **{ORDER: "{}", BY: "wattflow"}))
    decider.step(0.0)
    order = levels.due()["n"]
    assert order is not None and levels.due()["old"] is None
    order.until_s, order.answered = clock.now_s + LASTS_S, True
    assert "n" not in levels.due()
    clock.now_s += LASTS_S / 2 + 1
    assert "n" in levels.due()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pod restarted", "another curve", "opted out"])
def test_an_order_ends_where_the_engine_goes_back_to_full_clock(how: str) -> None:
    """A levels pod that is gone for less than it may be silent answers the standing order: it would be renewed."""
    decider, levels, clock = begun(130.0, noted("n", CAN))
    chosen = decider.step(0.0).choices
    order = levels.due()["n"]
    assert order is not None and level(decider, "n") > 0
    order.until_s, order.answered = clock.now_s + LASTS_S, True
    ours, answered = {ORDER: "{}", BY: "wattflow"}, {**CAN, "until_s": order.until_s}
    tell(decider, noted("n", answered, **ours))
    assert levels.due() == {}, "the engine has its clock still"
    if how == "pod restarted":
        tell(decider, noted("n", **ours))
        tell(decider, noted("n", answered, **ours))
    elif how == "another curve":
        for choice in chosen:
            decider.started(choice.uid)
            decider.ended(choice.uid)
        one = noted("n", answered, **ours)
        decider.set_node(one, accounting.node_allocatable(one), PowerProfile((0, 4), (60, 160)))
    else:
        decider.drop_node("n")
    assert how == "opted out" or level(decider, "n") == 0
    assert levels.due() == {"n": None}
    clock.now_s += LASTS_S
    assert levels.due() == {"n": None} and levels.look() == []


CONFIG = """
policy = "power-cap"
[params]
watts = 1
[lease]
leader_elect = false
[energy]
profiles = false
levels = true
default_profile = "{curve}"
[workflows]
argo = false
"""


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_a_clock_is_ordered_set_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler, the levels pod of its node on a played tree, and a small API server between them."""
    monkeypatch.setattr(node_levels, "LOOK_S", 0.05)
    tree = play_sysfs(tmp_path / "sys")
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    raw = {"metadata": {"name": "n", "uid": "n"}, "spec": {}, "status": {"allocatable": room, "capacity": room}}

    def job(name: str) -> dict[str, Any]:
        container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
        spec = {"schedulerName": "wattflow", "containers": [container]}
        return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec, "status": {}}

    def notes(api: SmallApi) -> dict[str, str]:
        found: dict[str, str] = api.items[NODES]["/n"]["metadata"].get("annotations", {})
        return found

    async def main() -> None:
        async with small_api() as (api, access), Client(access) as client:
            api.put(NODES, raw)
            api.items["/api/v1/namespaces"], api.items[PODS] = {}, {}
            stop = asyncio.Event()
            holder = Holder([sysfs.cpufreq(tree)], tmp_path / "notes", watched=False)
            agent = asyncio.create_task(node_levels.serve(client, "n", NodeLevels(holder), stop))
            await until(lambda: STATUS in notes(api))
            chosen = settings.parse(CONFIG.format(curve="ccf:xeon-6338n-xr11"))
            task = asyncio.create_task(scheduler_process.make(client, chosen).run())
            api.put(PODS, job("one"))
            api.put(PODS, job("two"))
            await until(lambda: ceiling_khz(tree) < FULL_KHZ)
            assert notes(api)[BY] == "wattflow" and json.loads(notes(api)[ORDER])["clock_mhz"] < FULL_KHZ / 1e3
            for name in ("one", "two"):
                api.delete(PODS, f"default/{name}")
            await asyncio.sleep(0.2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: ORDER not in notes(api) and ceiling_khz(tree) == FULL_KHZ)
            stop.set()
            await agent
            assert STATUS not in notes(api), "nobody counts on a levels pod that is gone"
            holder.close()

    asyncio.run(main())


def test_levels_need_a_scheduler_that_places() -> None:
    with pytest.raises(InvalidInput, match="mode extender orders nothing"):
        settings.parse('mode = "extender"\n[energy]\nlevels = true\n')
    with pytest.raises(InvalidInput, match="must be true or false"):
        settings.parse("[energy]\nlevels = 3\n")

"""Pods that wait for nodes to wake: who gets the node that is on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from wattflow.kube import scheduler_process, settings, sleeping
from wattflow.kube.scheduler import Scheduler
from wattflow.live.protocol import Power

from .making import node, pod
from .test_sleeping import CONFIG, Patches, hook

LABEL = {sleeping.MAY_SLEEP: "true"}


def _asleep(tmp_path: Path, nodes: int, now: list[float]) -> Scheduler:
    from wattflow.clusters import profiles

    text = CONFIG.format(hook=hook(tmp_path), profile=profiles.list_profiles()[0].name)
    chosen = settings.parse(text.replace("least-energy:sleep=30", "wattflow:shield=none"))
    scheduler = scheduler_process.make(Patches(), chosen)
    scheduler.clock = lambda: now[0]
    for i in range(nodes):
        scheduler._on_node("ADDED", node(f"n{i}", LABEL))
        scheduler._powered(f"n{i}", Power.ASLEEP)
        assert scheduler.sleeper is not None
        scheduler.sleeper.states[f"n{i}"] = Power.ASLEEP
    return scheduler


def _come(scheduler: Scheduler, name: str, cpu: str, *notes: dict[str, str]) -> None:
    made = pod(name, cpu=cpu, schedulerName="wattflow")
    for some in notes:
        made.metadata.annotations |= some
    scheduler._on_pod("ADDED", made)
    scheduler.decide()


def _on(scheduler: Scheduler, name: str) -> dict[str, str]:
    """The node is on; whom it and others get."""
    assert scheduler.sleeper is not None
    scheduler.sleeper.states.pop(name)
    scheduler._powered(name, Power.ON)
    scheduler.decide()
    found = {}
    while not scheduler._queue.empty():
        ((uid, where, _),) = scheduler._queue.get_nowait()
        assert uid not in found, "bound once"
        found[uid.removeprefix("uid-")] = where
    return found


def _burst(tmp_path: Path, now: list[float], runtime_s: str = "600", gang: bool = False) -> Scheduler:
    """Two pods wait for a node each, and a node that was full all the time gets room for one of them."""
    scheduler = _asleep(tmp_path, 2, now)
    scheduler._on_node("ADDED", node("always"))
    scheduler._on_pod("ADDED", pod("theirs", "always", cpu="4"))
    for i in range(2):
        now[0] = 1.0 + i
        gang_notes = {"wattflow.io/gang": "g", "wattflow.io/gang-size": "2"} if gang else {}
        _come(scheduler, f"p{i}", "3", {"wattflow.io/runtime-s": runtime_s} if runtime_s else {}, gang_notes)
    assert {scheduler.book.records[f"uid-p{i}"].node for i in range(2)} == {"n0", "n1"}
    scheduler._on_pod("DELETED", pod("theirs", "always", cpu="4"))
    return scheduler


@pytest.mark.slow
def test_who_waits_for_a_node_gets_room_that_came_free_when_another_is_on(tmp_path: Path) -> None:
    async def run() -> None:
        now = [0.0]
        scheduler = _burst(tmp_path, now)
        meant = {name: scheduler.book.records[f"uid-{name}"].node for name in ("p0", "p1")}
        now[0] = 60.0
        found = _on(scheduler, meant["p0"])
        assert set(found) == {"p0", "p1"} and "always" in found.values(), "nobody waits for the other node any more"
        assert _on(scheduler, meant["p1"]) == {}
        assert not scheduler.book.waiting

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("who", ["waited long", "of unknown length", "of a gang"])
def test_who_goes_where_it_was_meant_to_go(who: str, tmp_path: Path) -> None:
    async def run() -> None:
        now = [0.0]
        scheduler = _burst(tmp_path, now, "" if who == "of unknown length" else "600", who == "of a gang")
        meant = {name: scheduler.book.records[f"uid-{name}"].node for name in ("p0", "p1")}
        now[0] = 300.0 if who == "waited long" else 60.0
        assert _on(scheduler, meant["p0"]) == {"p0": meant["p0"]}
        assert _on(scheduler, meant["p1"]) == {"p1": meant["p1"]}

    asyncio.run(run())

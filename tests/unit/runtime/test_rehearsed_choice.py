"""What a rehearsal chose is in the server's journal, and a restart decides alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from wattflow.cli import account_commands
from wattflow.live import FINISHED, SEAL, STARTED, TASK, Engine, Placement
from wattflow.live.recent_workflows import ArrivedNews, ArrivedWindow
from wattflow.live.shielding import Remembered, Shielding, typed
from wattflow.model.cluster import Series
from wattflow.model.errors import BrokenPolicy
from wattflow.policy import registry, series, view
from wattflow.policy.base import Policy, Seen
from wattflow.policy.portfolio import PORTFOLIO
from wattflow.runtime import capping
from wattflow.runtime import messages as m
from wattflow.runtime.decider import JournaledEngine
from wattflow.server import admin_routes
from wattflow.server.decision_replay import shield_note
from wattflow.server.routes import shield_figures

from .test_recovery import NODE, closed, opened, task

NOTE = {
    "at_s": 20.0, "workflows": 8, "chosen": "saver", "dials": "rule=1", "why": "of joules", "late": 0.01, "tail": 1.0,
    "latest": [3], "saves": 0.2, "forbade": "hasty (would save 30%; 1.050 of the reference's waiting)",
}  # fmt: skip
SEEN = Remembered([[10.0, 9.0], [11.0, 12.0]], {"kept": True, "late": 0.0}, NOTE, 0.5)


class Shielded(Shielding):
    """A shield that chooses after 20 seconds."""

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        late = now_s >= 20.0 and engine.policy.name == self.policy
        if late:
            self.remembered, self._has_news = SEEN, True
        return registry.load(typed(PORTFOLIO.with_params(rule=1.0, after_s=30.0))) if late else None


class Answered(Shielding):
    """Advice that comes after 20 seconds."""

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        late = now_s >= 20.0 and engine.policy.name != "least-energy"
        return registry.load("least-energy") if late else None


class Ended(Shielding):
    """A shield that counts how often it was ended; its advice fails where it is told to."""

    fails, ended = False, 0

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        if self.fails:
            raise ValueError("no advice")
        return None

    def close(self) -> None:
        self.ended += 1


def nodes() -> list[m.Node]:
    return [
        m.Node(name=name, cpus=4.0, memory_bytes=1 << 33, busy=[0.0, 4.0], watts=[20.0, full_w], speed=1.0)
        for name, full_w in (("dear", 200.0), ("cheap", 40.0))
    ]


def play(decider: JournaledEngine, rounds: int) -> list[Placement]:
    """A driver with a clock of its own: tasks come in pairs and take ten seconds."""
    seen: list[Placement] = []
    shape = decider.shape([m.Variant(cpus=1.0, memory_bytes=1 << 20)], "f")
    for number in range(rounds):
        now_s = 20.0 * number
        for _ in range(2):
            decider.put(TASK, shape, estimate_s=10.0)
        step = decider.step(now_s)
        placed = list(step.placements)
        if decider.look_ahead(now_s):  # another policy decides at once
            placed += decider.step(now_s).placements
        seen += placed
        for after_s, kind in ((0.0, STARTED), (10.0, FINISHED)):
            for placement in placed:
                decider.put(kind, placement.attempt)
            decider.step(now_s + after_s)
            decider.look_ahead(now_s + after_s)
    return seen


def test_what_was_chosen_is_in_the_journal_and_a_restart_decides_alike() -> None:
    first = JournaledEngine("fifo", rehearsing=Answered("fifo"))
    for node in nodes():
        first.node(node)
    placed = play(first, 4)
    assert first.engine.policy.name == "least-energy" and first.policy == "fifo"
    again = JournaledEngine("fifo")
    again.replay(first.entries)
    assert again.engine.policy.name == "least-energy"
    shapes = [decider.shape([m.Variant(cpus=1.0, memory_bytes=1 << 20)], "f") for decider in (first, again)]
    for decider, shape in zip((first, again), shapes, strict=True):
        decider.put(TASK, shape, estimate_s=10.0)
    assert first.step(500.0).placements == again.step(500.0).placements
    assert len({placement.node for placement in placed}) == 2  # the first by index, then by joules


@pytest.mark.slow
def test_a_cap_makes_no_workflow_late_to_the_shield() -> None:
    """Steps that a cap decides are not the shield's: whoever came before them or under them is never entered."""
    told: list[Seen] = []

    class Asked(ThreadPoolExecutor):
        def submit(self, work: object, policy: str, now_s: float, told_of: ArrivedNews, *more: object) -> Future[Any]:  # type: ignore[override]
            told.append(ArrivedWindow().take(told_of))
            return Future()

    name = "wattflow:shield=kubernetes"
    decider = JournaledEngine(name, rehearsing=Shielding(name, Asked(1)))
    for node in nodes():
        decider.node(node)
    shape = decider.shape([m.Variant(cpus=0.1, memory_bytes=1 << 20)], "f")

    def come(now_s: float, count: int = 1) -> list[int]:
        for tag in range(count):
            flow = decider.workflow(tag, None)
            decider.put(TASK, shape, workflow=flow, estimate_s=10.0)
            decider.put(SEAL, flow)
        return [placement.attempt for placement in stepped(now_s)]

    def stepped(now_s: float) -> Sequence[Placement]:
        step = decider.step(now_s)
        decider.look_ahead(now_s)
        return step.placements

    def end(attempts: list[int], now_s: float) -> None:
        for kind in (STARTED, FINISHED):
            for attempt in attempts:
                decider.put(kind, attempt)
        stepped(now_s)

    before = come(1.0)
    decider.cap(capping.keeper(name, "500.0"))
    end(before, 11.0)
    end(come(100.0), 200.0)
    slow = come(300.0)
    stepped(7199.0)
    decider.cap(None)
    end(slow, 7200.0)
    come(7201.0, 4)
    (seen,) = told
    assert seen.number == 1 and [float(flow.workflow_submit_s[0]) for flow in seen.flows] == [7200.0] * 4
    assert np.isnan(seen.end_s).all()


def test_what_the_shield_chose_is_in_the_journal_and_in_a_snapshot(tmp_path: Path) -> None:
    name = "wattflow:shield=kubernetes"
    first = JournaledEngine(name, rehearsing=Shielded(name))
    for node in nodes():
        first.node(node)
    play(first, 3)
    assert first.engine.policy.params["rule"] == 1.0 and first.policy == name
    replayed, loaded = JournaledEngine(name), JournaledEngine(name)
    replayed.replay(first.entries)
    first.save(tmp_path / "snapshot")
    loaded.load(tmp_path / "snapshot")
    for again in (replayed, loaded):
        assert again.engine.policy.params == first.engine.policy.params
        assert Remembered(**again.shield) == SEEN, "a restart goes on with the ledger"
        told = shield_note(again)
        assert told is not None and "latest: workflow 4; forbade hasty" in told and "saves 20% (modelled)" in told
        shape = again.shape([m.Variant(cpus=1.0, memory_bytes=1 << 20)], "f")
        again.put(TASK, shape, estimate_s=10.0)
    assert replayed.step(500.0).placements == loaded.step(500.0).placements


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["power-cap:watts=70", "power-cap:steps=70.0/60.0/130.0/100.0/40.0"])
def test_a_snapshot_with_notes_of_an_earlier_version_is_replayed_as_it_was_decided(policy: str, tmp_path: Path) -> None:
    """`power-cap` has had fewer blocks of notes: read by the places of now they are another cap."""

    def decide(decider: JournaledEngine, from_s: float) -> None:
        for now_s in np.arange(from_s, from_s + 50.0, 10.0).tolist():
            decider.put(TASK, shape, estimate_s=30.0)
            for placement in decider.step(now_s).placements:
                decider.put(STARTED, placement.attempt)

    first = JournaledEngine(policy)
    for node in nodes():
        first.node(msgspec.structs.replace(node, clocks_mhz=[4000.0, 3000.0, 2000.0]))
    shape = first.shape([m.Variant(cpus=1.0, memory_bytes=1 << 20)], "f")
    decide(first, 0.0)
    assert first.lowered()
    state, noted = first.engine.state, len(first.entries)
    first.save(tmp_path / "now")
    memory = np.array(state.memory)
    state.replace(memory=memory[:1])
    view.lay_out(
        state, view.notes(*series.BLOCKS, "capped", "level"), capped=[1.0, 1.0], level=state.nodes["frequency"],
        **series.blocks([Series(3600.0, (70.0,))]),
    )  # fmt: skip
    first.save(tmp_path / "earlier")
    assert len(state.memory) < len(memory)
    state.replace(memory=memory.copy())
    decide(first, 50.0)
    for name in ("now", "earlier"):
        again = JournaledEngine(policy)
        again.load(tmp_path / name)
        assert np.array_equal(again.engine.state.memory, memory), name
        again.replay(first.entries[noted:])
        assert np.array_equal(again.engine.state.nodes["frequency"], state.nodes["frequency"])
        assert again.engine.state.tasks["state"].tolist() == state.tasks["state"].tolist()


def test_a_service_that_ends_ends_its_shield(tmp_path: Path) -> None:
    """It has a process of its own, which outlived the service."""

    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        service.decider.rehearsing = shield = Ended("wattflow")
        await closed(service, writer)
        assert shield.ended == 1 and service.decider.rehearsing is None

    asyncio.run(body())


def test_a_shield_that_fails_is_ended_and_not_asked_again() -> None:
    shield = Ended("wattflow")
    decider = JournaledEngine("fifo", rehearsing=shield)
    decider.step(0.0)
    decider.look_ahead(0.0)
    assert shield.ended == 0
    shield.fails = True
    decider.step(1.0)
    decider.look_ahead(1.0)
    assert shield.ended == 1 and decider.rehearsing is None
    decider.step(2.0)
    decider.look_ahead(2.0)
    assert shield.ended == 1


def test_a_policy_that_breaks_takes_its_shield_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shield = Ended("wattflow")
    decider = JournaledEngine("fifo", rehearsing=shield)

    def breaks(now_s: float) -> None:
        raise BrokenPolicy("policy 'fifo' returned NaN")

    monkeypatch.setattr(decider.engine, "step", breaks)
    decider.step(0.0)
    assert decider.policy == "least-energy" and shield.ended == 1 and decider.rehearsing is None


def test_a_report_says_what_was_kept_saved_and_spent_on_it() -> None:
    summary: dict[str, Any] = {
        "workflows": 80, "judged": 60, "kept": True, "late": -0.012, "tail": 0.99, "saved": 0.25, "spent": 1,
    }  # fmt: skip
    status = shield_figures({"summary": summary, "processor_s": 12.0})
    assert (
        status is not None
        and shield_figures({}) is None
        and shield_figures({"summary": {}, "processor_s": 0.0}) is None
    )
    text = account_commands.promise(status, 3.6e6)
    assert "promise kept on the last 60 of 80 workflows: 1.2% sooner" in text
    assert "0.333 kWh beside what these used; the shield took 12.0 s of processor" in text
    text = account_commands.promise({**status, "saved": None}, 3.6e6)
    assert text.endswith("budget spent 1 times; the shield took 12.0 s of processor") and "kWh" not in text


def test_metrics_leave_out_joules_that_nobody_knows() -> None:
    known = {"kept": True, "late": -0.01, "tail": 0.99, "saved": 0.25, "spent": 1}
    for saved in (0.25, None):
        decider = SimpleNamespace(shield={"summary": {**known, "saved": saved}, "processor_s": 1.0})
        names = [name for name, *_ in admin_routes._shield(SimpleNamespace(decider=decider))]  # type: ignore[arg-type]
        assert ("wattflow_shield_saved" in names) is (saved is not None) and "wattflow_shield_kept" in names


def test_a_shield_looks_when_work_has_been_handed_out_and_what_it_chooses_decides(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)

        class Looking(Ended):
            handed_out: int | None = None

            def consider(self, engine: Engine, now_s: float) -> Policy | None:
                if not engine.counts["open"] or self.handed_out is not None:
                    return None
                self.handed_out = len(driver.leases)
                return registry.load("least-energy")

        service.decider.rehearsing = shield = Looking("wattflow")
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        for _ in range(200):
            if service.decider.engine.policy.name == "least-energy":
                break
            await asyncio.sleep(0.01)
        assert shield.handed_out == 1 and service.decider.engine.policy.name == "least-energy"
        await closed(service, writer)

    asyncio.run(body())

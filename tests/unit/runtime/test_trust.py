"""No exception of one item ends a turn: it is set aside with its reason, counted and shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattflow.live import Engine
from wattflow.live.protocol import Step
from wattflow.model.errors import BrokenPolicy
from wattflow.runtime import messages as m
from wattflow.runtime.logs import plain, storable
from wattflow.runtime.records import LOSSES, REFUSALS
from wattflow.store import reads
from wattflow.store.schema import open_store

from .test_recovery import NODE, closed, opened, task


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no such file: caf\udce9", r"no such file: caf\udce9"),
        ("a\0b", r"a\x00b"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("right\u202eleft", r"right\u202eleft"),
        ("two\nlines\tand é, 日本", "two\nlines\tand é, 日本"),
    ],
)
def test_text_of_tasks_is_made_fit_for_stores_and_terminals(text: str, shown: str) -> None:
    assert plain(text) == storable(text) == shown
    plain(text).encode()


def test_long_text_is_cut() -> None:
    assert len(plain("x" * 10**6)) == 4000


async def outcome_of(service: Any, key: str) -> m.Outcome | None:
    await service.stored()
    ends = {one.key: one for one in (await service.outcomes("w", 0, 0)).outcomes}
    return ends.get(key)


@pytest.mark.parametrize(("outcome", "most"), [("refused", REFUSALS), ("node_lost", LOSSES)])
def test_refusals_and_losses_have_a_cap_that_a_restart_does_not_move(tmp_path: Path, outcome: str, most: int) -> None:
    async def life(folder: Path, times: int) -> tuple[m.Outcome | None, str]:
        service, driver, writer = await opened(folder)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        why = ""
        for number in range(times):
            lease = (driver.leases + driver.resumed)[-1]
            service.ended(m.Ended(fence=lease.fence, outcome=outcome, reason=f"poison \udcff {number % 2}"))  # type: ignore[arg-type]
            why = service.why(service.tasks[1])  # at once: a refusal is waited for, a loss is placed anew
            await service.stored()
            service.clock._offset_s += 60.0  # past every wait
            service.turns.soon()
            await service.stored()
        end = await outcome_of(service, "a")
        await closed(service, writer)
        return end, why

    end, why = asyncio.run(life(tmp_path, most - 1))
    assert end is None and f"{most - 1} of {most} times" in why
    end, _ = asyncio.run(life(tmp_path, 1))
    assert end is not None and end.state == "failed"
    assert f"given up after {most} attempts" in str(end.reason) and r"n: poison \udcff 0" in str(end.reason)


def test_a_node_that_is_lost_again_and_again_fails_its_task(tmp_path: Path) -> None:
    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        await service.submit(m.Submission(workflow="w", tasks=[task("a"), task("b", "a")], seal=True), "me")
        for _ in range(LOSSES):
            service.announce(NODE)
            await service.stored()
            service.gone("n", "not heard of for 3 s")
            await service.stored()
        end = await outcome_of(service, "a")
        assert end is not None and end.state == "failed" and "lost with its node 8 times" in str(end.reason)
        assert (await service.outcomes("w", 0, 0)).open == 0
        await closed(service, writer)

    asyncio.run(body())


def test_what_a_planner_cannot_plan_waits_and_the_rest_runs(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        wide = task("wide", variants=[m.Variant(cpus=64.0)])  # refused where a node is known and none is as large
        await service.submit(m.Submission(workflow="w", tasks=[wide], objective="makespan"), "me")
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")]), "me")
        assert [lease.spec.key for lease in driver.leases] == ["a"]
        why = service.why(service.tasks[1])
        assert "0/1: 1 cores" in why and "heft cannot plan it" in why and "needs 64 cores" in why
        await service.cancel("w", "wide")
        await closed(service, writer)
        again, _, writer = await opened(tmp_path)  # the journal is replayed the same way
        assert [attempt.task.spec.key for attempt in again.attempts.values()] == ["a"]
        await closed(again, writer)

    asyncio.run(body())


def test_a_policy_that_breaks_its_contract_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine raises in the middle of its step; what it had placed stays, the rest is decided by a plain policy."""
    step = Engine.step
    tries: list[int] = []

    def nan(self: Engine, now_s: float) -> Any:
        if self.policy.name == "sjf" and tries:
            self._begin(now_s)
            raise BrokenPolicy("policy 'sjf' returned NaN")
        return step(self, now_s)

    monkeypatch.setattr(Engine, "step", nan)

    async def body() -> None:
        service, driver, writer = await opened(tmp_path, "sjf")
        service.announce(NODE)
        await service.stored()
        tries.append(1)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        assert [lease.spec.key for lease in driver.leases] == ["a"] and service.decider.policy == "least-energy"
        assert service.aside.counts == {"policy": 1} and service.fault is None
        await closed(service, writer)
        again, second, writer = await opened(tmp_path, "sjf")
        assert [lease.spec.key for lease in second.resumed] == ["a"]
        await closed(again, writer)

    asyncio.run(body())


def test_a_placement_or_end_that_raises_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        place = service._place

        def unlucky(placement: Any, now_s: float) -> Any:
            if service.tasks[placement.tag].spec.key == "bad":
                raise RuntimeError("no lease for this one")
            return place(placement, now_s)

        def listener(*_: Any) -> None:
            raise OSError("nobody listens")

        monkeypatch.setattr(service, "_place", unlucky)
        service.listeners.append(listener)
        await service.submit(m.Submission(workflow="w", tasks=[task("bad"), task("good")], seal=True), "me")
        end = await asyncio.wait_for(service.outcomes("w", 0, 30.0), 60)
        assert [(one.key, one.state) for one in end.outcomes] == [("bad", "failed")]
        assert "no lease for this one" in str(end.outcomes[0].reason)
        assert [lease.spec.key for lease in driver.leases] == ["good"]
        service.ended(m.Ended(fence=driver.leases[0].fence, outcome="done"))
        assert (await outcome_of(service, "good")) is not None
        assert service.aside.counts == {"placement of task": 1, "event of task": 2}
        await closed(service, writer)

    asyncio.run(body())


def test_a_driver_that_cannot_launch_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)

        def broken(_: object) -> None:
            raise OSError("the queue is full")

        monkeypatch.setattr(driver, "launch", broken)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        await asyncio.sleep(0)
        await service.stored()
        assert "the queue is full" in service.why(service.tasks[1])
        await closed(service, writer)
        (row,) = reads.attempts(open_store(tmp_path / "s.db"), "w")
        assert row["outcome"] == "refused"

    asyncio.run(body())


def test_nothing_reaches_the_store_that_a_database_refuses(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        fence = driver.leases[0].fence
        energy = m.Energy(1.0, 0.5, 2.0, "mea\0sured")
        service.energy(m.TaskEnergy(fence, energy))
        service.ended(m.Ended(fence=fence, outcome="failed", reason="a\0b"))
        await service.stored()
        await closed(service, writer)
        (row,) = reads.attempts(open_store(tmp_path / "s.db"), "w")
        assert (row["reason"], row["provenance"]) == (r"a\x00b", r"mea\x00sured")

    asyncio.run(body())


def test_a_nan_of_a_real_policy_leaves_the_engine_whole() -> None:
    """What was placed before the NaN stays placed, and the rest is placed by the policy that takes over."""
    from wattflow.live import NODE as NODE_EVENT
    from wattflow.live import TASK, Power
    from wattflow.model.cluster import Node
    from wattflow.model.workflow import Variant
    from wattflow.policy import registry

    engine = Engine("fifo")
    node = engine.node(Node("n", cores=4, memory_bytes=1 << 30))
    engine.put(NODE_EVENT, node, state=int(Power.ON))
    shape = engine.shape([Variant()], "f")
    for _ in range(3):
        engine.put(TASK, shape)
    engine._begin(1.0)
    made = engine.step_on(registry.load("least-energy"))
    assert len(made.placements) == 3 and np.isfinite(engine.counts["running"])


def test_a_node_that_comes_back_goes_on_with_what_it_ran(tmp_path: Path) -> None:
    """Its tasks still wait, though others were before them in the queue; what is not placed may go anywhere again."""

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        tasks = [task("a"), task("b"), task("c")]
        await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True), "me")
        first, second = driver.leases
        service.gone("n", "silent")
        await service.stored()
        service.announce(NODE)
        service.returned("n", [first.fence, second.fence, 12345])
        await service.stored()
        again = {lease.spec.key: lease for lease in driver.leases[2:]}
        assert {key: lease.adopts for key, lease in again.items()} == {"a": first.fence, "b": second.fence}
        assert service.tasks[1].losses == 0
        service.ended(m.Ended(fence=again["a"].fence, outcome="done"))
        await service.stored()
        assert driver.leases[-1].spec.key == "c" and driver.leases[-1].adopts is None
        await closed(service, writer)
        replayed, other, writer = await opened(tmp_path)
        assert sorted(lease.spec.key for lease in other.resumed) == ["b", "c"]
        await closed(replayed, writer)

    asyncio.run(body())


def test_a_task_that_went_elsewhere_is_not_adopted(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        service.announce(m.Node(name="other", cpus=1.0, memory_bytes=1 << 30))
        service.gone("n", "silent")
        await service.stored()
        assert [lease.node for lease in driver.leases] == ["n", "other"]
        service.announce(NODE)
        service.returned("n", [driver.leases[0].fence])
        await service.stored()
        assert len(driver.leases) == 2
        service.gone("other", "silent")
        await service.stored()
        assert driver.leases[-1].node == "n" and driver.leases[-1].adopts is None
        await closed(service, writer)

    asyncio.run(body())


def test_who_goes_first_is_reached_at_once_behind_hundreds_of_anothers_tasks(tmp_path: Path) -> None:
    """Counted in steps of the engine, not in seconds: held one after the other, Alice's tasks took a step for each
    processor, and on a longer queue those that were held first were back before Bob's were reached."""

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(m.Node(name="n", cpus=4.0, memory_bytes=1 << 30))
        many = [task(str(n), estimate_s=0.1) for n in range(600)]
        await service.submit(m.Submission(workflow="alice", tasks=many), "alice")
        assert [lease.workflow for lease in driver.leases] == ["alice"] * 4
        few = [task(str(n), estimate_s=0.1) for n in range(4)]
        await service.submit(m.Submission(workflow="bob", tasks=few), "bob")
        steps, step = 0, service.decider.step

        def counted(now_s: float) -> Step:
            nonlocal steps
            steps += 1
            return step(now_s)

        service.decider.step = counted  # type: ignore[method-assign]
        for lease in list(driver.leases):
            service.ended(m.Ended(fence=lease.fence, outcome="done"))
        await service.stored()
        assert [lease.workflow for lease in driver.leases[4:]].count("bob") == 2 and steps <= 8
        await closed(service, writer)

    asyncio.run(body())

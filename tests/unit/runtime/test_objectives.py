"""An objective changes what is decided."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.policy.weighted import packed
from wattflow.runtime import messages as m

from .test_recovery import closed, opened, task

QUICK = m.Node(name="quick", cpus=2.0, memory_bytes=1 << 30, speed=2.0, busy=[0.0, 2.0], watts=[50.0, 350.0])
FRUGAL = m.Node(name="frugal", cpus=2.0, memory_bytes=1 << 30, speed=1.0, busy=[0.0, 2.0], watts=[10.0, 30.0])


def first_node(folder: Path, objective: str | None) -> str:
    """Where the first of two tasks goes, on an idle quick and an idle frugal node."""

    async def body() -> str:
        service, driver, writer = await opened(folder)
        for node in (QUICK, FRUGAL):
            service.announce(node)
        submission = m.Submission(workflow="w", tasks=[task("a", estimate_s=10.0)], objective=objective)  # type: ignore[arg-type]
        await service.submit(submission, "me")
        await closed(service, writer)
        return driver.leases[0].node

    return asyncio.run(body())


@pytest.mark.parametrize(("objective", "node"), [("energy", "frugal"), ("makespan", "quick")])
def test_energy_and_makespan_choose_unlike_nodes(tmp_path: Path, objective: str, node: str) -> None:
    assert first_node(tmp_path, objective) == node


def order(folder: Path, objective: str | None) -> list[str]:
    """In which order three tasks run on one CPU."""

    async def body() -> list[str]:
        folder.mkdir()
        service, driver, writer = await opened(folder)
        service.announce(m.Node(name="n", cpus=1.0, memory_bytes=1 << 30))
        tasks = [task("first"), task("long", estimate_s=100.0), task("short", estimate_s=1.0)]
        await service.submit(m.Submission(workflow="w", tasks=tasks, objective=objective, seal=True), "me")  # type: ignore[arg-type]
        while len(driver.leases) < 3:
            service.ended(m.Ended(fence=driver.leases[-1].fence, outcome="done"))
            await service.stored()
        await closed(service, writer)
        return [lease.spec.key for lease in driver.leases]

    return asyncio.run(body())


def test_response_lets_short_tasks_go_first(tmp_path: Path) -> None:
    assert order(tmp_path / "energy", "energy") == ["first", "long", "short"]
    assert order(tmp_path / "response", "response") == ["short", "long", "first"]  # what says nothing goes last


def test_utilisation_fills_a_node_before_the_next(tmp_path: Path) -> None:
    async def body(objective: str | None) -> int:
        folder = tmp_path / str(objective)
        folder.mkdir()
        service, driver, writer = await opened(folder)
        for name in ("a", "b"):
            service.announce(m.Node(name=name, cpus=2.0, memory_bytes=1 << 30))
        for key in ("one", "two"):
            submission = m.Submission(workflow="w", tasks=[task(key)], objective=objective)  # type: ignore[arg-type]
            await service.submit(submission, "me")
        await closed(service, writer)
        return len({lease.node for lease in driver.leases})

    assert asyncio.run(body("utilisation")) == 1
    assert asyncio.run(body(None)) == 2


@pytest.mark.parametrize("objective", ["edp", "cost"])
def test_the_other_objectives_decide_too(tmp_path: Path, objective: str) -> None:
    assert first_node(tmp_path, objective) in ("quick", "frugal")


def test_open_workflows_with_unlike_objectives_are_served_together_each_by_its_own(tmp_path: Path) -> None:
    """Also after a restart, and by the objective's own policy again once they have one in common."""

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        for node in (QUICK, FRUGAL):
            service.announce(node)
        for key, workflow in enumerate(("makespan", "energy", "utilisation", "edp", "response", "cost")):
            one = m.Submission(workflow=workflow, tasks=[task(str(key), estimate_s=10.0)], objective=workflow)  # type: ignore[arg-type]
            await service.submit(one, "me")
        nodes = {lease.workflow: lease.node for lease in driver.leases}
        assert (nodes["energy"], nodes["makespan"]) == ("frugal", "quick")
        assert service.decider.policy == "weighted"
        await closed(service, writer)

        again, second, writer = await opened(tmp_path)
        assert again.decider.policy == "weighted"
        for fence in [lease.fence for lease in second.resumed]:
            again.ended(m.Ended(fence=fence, outcome="done"))
        await again.stored()
        for lease in second.leases:
            again.ended(m.Ended(fence=lease.fence, outcome="done"))
        await again.stored()
        second.leases.clear()
        both = [m.Submission(workflow=name, tasks=[task("next", estimate_s=10.0)]) for name in ("energy", "makespan")]
        await asyncio.gather(*(again.submit(one, "me") for one in both))
        assert {lease.workflow: lease.node for lease in second.leases} == {"energy": "frugal", "makespan": "quick"}
        for lease in second.leases:
            again.ended(m.Ended(fence=lease.fence, outcome="done"))
        await again.stored()
        await again.submit(m.Submission(workflow="energy", tasks=[task("last", estimate_s=10.0)]), "me")
        assert again.decider.policy == "least-energy"
        await closed(again, writer)

    asyncio.run(body())


def test_a_workflow_keeps_the_objective_that_it_was_opened_with(tmp_path: Path) -> None:
    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], objective="energy"), "me")
        with pytest.raises(
            InvalidInput, match=r"with the objective energy, so tasks for makespan cannot.*a Client of its"
        ):
            await service.submit(m.Submission(workflow="w", tasks=[task("b")], objective="makespan"), "me")
        # Beside others with unlike ones, and where none was named, it is refused in as many words.
        await service.submit(m.Submission(workflow="plain", tasks=[task("a")]), "me")
        assert service.decider.policy == "weighted"
        with pytest.raises(InvalidInput, match="was opened without an objective, so tasks for energy cannot join it"):
            await service.submit(m.Submission(workflow="plain", tasks=[task("b")], objective="energy"), "me")
        assert list(service.workflows["plain"].keys) == ["a"]
        await closed(service, writer)

    asyncio.run(body())


def test_an_objective_ends_with_its_workflow(tmp_path: Path) -> None:
    """Whoever comes after a user with an objective, and names none, is served by the server's own policy."""

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(FRUGAL)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], objective="makespan", seal=True), "me")
        assert service.decider.policy == "heft"
        service.ended(m.Ended(fence=driver.leases[0].fence, outcome="done"))
        await service.stored()
        await service.submit(m.Submission(workflow="plain", tasks=[task("a")]), "you")
        assert service.decider.policy == "fifo"
        await closed(service, writer)

    asyncio.run(body())


def test_weights_travel_in_one_number() -> None:
    with pytest.raises(ValueError, match="energy, time, packing"):
        packed(short=1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        packed(energy=2.0)
    assert packed(energy=1.0, time=1.0, packing=1.0, short=1.0) == float((1 << 48) - 1)


def test_a_node_that_never_wakes_is_marked_and_its_work_moves_on(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(m.Node(name="sleepy", cpus=1.0, memory_bytes=1 << 30, sleeps=True, wake_s=5.0))
        service.asleep("sleepy")
        await service.stored()
        service.gone("sleepy", "did not wake")
        service.announce(m.Node(name="other", cpus=1.0, memory_bytes=1 << 30))
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        assert [lease.node for lease in driver.leases] == ["other"]
        assert service.nodes["sleepy"].state == "down"
        await closed(service, writer)

    asyncio.run(body())

"""Responses to lower clocks, learned from ordinary runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from wattflow.runtime import facts
from wattflow.runtime import messages as m
from wattflow.runtime.learned_facts import ENOUGH_RUNS, KEPT_AS, LevelLearning
from wattflow.runtime.learned_facts import GPU_EVERY as EVERY
from wattflow.runtime.records import AttemptRecord, TaskRecord, WorkflowRecord
from wattflow.runtime.service import Service
from wattflow.store import reads
from wattflow.store.schema import open_store

from .test_gpu_learning import ran
from .test_recovery import closed, opened

CARD = m.Device(kind="gpu", model="H200", clocks_mhz=[2000.0, 1800.0, 1600.0], idle_w=100.0, full_w=500.0)
NODE = m.Node(name="n", cpus=2.0, memory_bytes=1 << 30, devices=[CARD])


def learned(half_bound: bool = True) -> LevelLearning:
    """Runs of ten seconds, of which half (or nothing) follows the clock."""
    learning = LevelLearning()
    told = [learning.ended("f", CARD, 10.0, 0.0) for _ in range(ENOUGH_RUNS)]
    slow_s = 10.0 * (0.5 + 0.5 * 2000.0 / 1600.0) if half_bound else 9.9
    told += [learning.ended("f", CARD, slow_s, 1600.0) for _ in range(ENOUGH_RUNS + 1)]
    # Told once, when it becomes known.
    assert told == [False] * (2 * ENOUGH_RUNS - 1) + [True, False]
    return learning


def test_the_part_that_follows_the_clock_is_learned_from_both_clocks() -> None:
    learning = learned()
    assert learning.bound("f", "H200") == pytest.approx(0.5)
    # Of another model and of a function that nobody ran nothing is known.
    assert learning.bound("f", "A100") is None and learning.bound("g", "H200") is None
    assert learned(half_bound=False).bound("f", "H200") == 0.0


def test_runs_below_full_clock_teach_nothing_alone() -> None:
    learning = LevelLearning()
    for _ in range(3 * ENOUGH_RUNS):
        assert not learning.ended("f", CARD, 12.0, 1600.0)
    assert learning.bound("f", "H200") is None and learning.as_learned(NODE) == NODE


def test_an_engine_is_told_of_known_functions_and_of_no_others() -> None:
    told = learned().as_learned(NODE).devices[0]
    assert told.compute_bound == {"f": pytest.approx(0.5)}
    levels = facts.device_of(told).levels
    assert levels is not None
    seconds, joules = levels.cost("f", 2) or (0.0, 0.0)
    assert seconds == pytest.approx(1.125) and 0.5 < joules < 1.0
    assert levels.cost("g", 2) is None
    # Without clocks nothing is said.
    bare = m.Node(name="n", cpus=2.0, memory_bytes=1 << 30, devices=[m.Device(kind="gpu", model="H200")])
    assert learned().as_learned(bare) == bare


def test_one_repeat_of_many_is_tried_below_full_clock() -> None:
    learning = learned()
    tried = [learning.trial_mhz("f", CARD, number) for number in range(2 * EVERY)]
    assert tried.count(1600.0) == 2 and tried.count(0.0) == 2 * EVERY - 2
    assert not any(learning.trial_mhz("g", CARD, number) for number in range(2 * EVERY))
    shared = m.Device(kind="gpu", model="H200", clocks_mhz=CARD.clocks_mhz, sharing="mps")
    assert not any(learning.trial_mhz("f", shared, number) for number in range(2 * EVERY))


def used(memory: float | None, duty: float = 0.8, samples: int = 9, beside: float = 0.0) -> m.GpuUse:
    return m.GpuUse(duty, beside, samples, memory)


def test_counters_at_full_clock_foresee_what_nobody_ran_below_it() -> None:
    learning = LevelLearning()
    told = [learning.counted("f", CARD, used(0.1)) for _ in range(ENOUGH_RUNS + 1)]
    assert told == [False] * (ENOUGH_RUNS - 1) + [True, False]
    assert learning.as_learned(NODE).devices[0].compute_bound == {"f": pytest.approx(0.8)}
    # What was run below full clock goes first.
    for clock, seconds in ((0.0, 10.0), (1600.0, 10.0)):
        for _ in range(ENOUGH_RUNS):
            learning.ended("f", CARD, seconds, clock)
    assert learning.as_learned(NODE).devices[0].compute_bound == {"f": 0.0}


@pytest.mark.parametrize("use", [used(0.9), used(None), used(0.1, samples=2), used(0.1, beside=0.5)])
def test_what_counters_do_not_tell_runs_at_full_clock(use: m.GpuUse) -> None:
    """Bound by memory, not read, too short, or not alone."""
    learning = LevelLearning()
    assert not any(learning.counted("f", CARD, use) for _ in range(2 * ENOUGH_RUNS))
    assert learning.foreseen("f", "H200") is None and learning.as_learned(NODE) == NODE


def test_what_is_kept_of_a_function_is_all_that_is_known_of_it() -> None:
    before, after = learned(), LevelLearning()
    for _ in range(ENOUGH_RUNS):
        before.counted("g", CARD, used(0.1))
    after.restore(dict([before.kept("f", "H200"), before.kept("g", "H200"), ("cap", "another's")]))
    known = after.as_learned(NODE).devices[0].compute_bound
    assert (
        known == before.as_learned(NODE).devices[0].compute_bound == {"f": pytest.approx(0.5), "g": pytest.approx(0.8)}
    )
    assert after.trial_mhz("f", CARD, EVERY) == before.trial_mhz("f", CARD, EVERY) == 1600.0


def test_a_restart_knows_what_was_learned_and_goes_on_learning(tmp_path: Path) -> None:
    def told(service: Service) -> dict[str, float]:
        return service.learning.as_learned(NODE).devices[0].compute_bound

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        for n in range(ENOUGH_RUNS - 1):
            await ran(service, driver.leases, f"a{n}", 10.0, used(0.1))
        assert told(service) == {}
        await closed(service, writer)
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await ran(service, driver.leases, "b", 10.0, used(0.1))
        assert told(service) == {"f": pytest.approx(0.8)}
        await closed(service, writer)
        service, driver, writer = await opened(tmp_path)
        assert told(service) == {"f": pytest.approx(0.8)}
        await closed(service, writer)
        settings = reads.meta(open_store(tmp_path / "s.db"))
        assert [key for key in settings if "H200" in key] == [KEPT_AS + '["f","H200"]'], "one row of a function"

    asyncio.run(body())


@pytest.mark.parametrize(("policy", "tried"), [("wattflow", True), ("wattflow:levels=off", False), ("fifo", False)])
def test_a_slower_run_is_tried_only_where_the_policy_uses_levels(policy: str, tried: bool, tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path, policy)
        service.announce(NODE)
        for n in range(ENOUGH_RUNS + EVERY):
            await ran(service, driver.leases, f"a{n}", 10.0, used(None))
        asked = [one.level for one in driver.leases if one.level is not None]
        assert [(one.value, one.device) for one in asked] == ([(1600.0, 0)] if tried else [])
        await closed(service, writer)

    asyncio.run(body())


def test_a_function_with_a_profile_is_not_tried() -> None:
    known = msgspec.structs.replace(CARD, responses={"f": m.LevelCosts([1.0, 1.1, 1.2], [1.0, 0.9, 0.8])})
    assert not any(learned().trial_mhz("f", known, number) for number in range(2 * EVERY))


@pytest.mark.parametrize("level", [m.Level("clock_mhz", 1600.0), m.Level("cap_w", 400.0, 0)])
def test_a_run_beside_slower_processors_or_under_a_limit_teaches_nothing(level: m.Level, tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        for n in range(ENOUGH_RUNS):
            await ran(service, driver.leases, f"a{n}", 10.0, used(None))
        for n in range(ENOUGH_RUNS):
            flow = WorkflowRecord("w", "w", "o", 1, {}, 0.0)
            task = TaskRecord(1, flow, m.Task(key="a", name="a", function_name="f", command=["true"]), 1, 0.0, 0.0)
            lease = m.Lease(fence=n, task=1, number=1, node="n", workflow="w", spec=task.spec, device=0, level=level)
            end = m.Ended(fence=n, outcome="done", started_s=10.0, ended_s=25.0)
            service.learning.finished(AttemptRecord(n, n, task, 1, "n", 0.0, lease), end, NODE)
        assert service.learning.levels.bound("f", "H200") is None
        await closed(service, writer)

    asyncio.run(body())

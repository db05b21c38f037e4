"""A server's cap changes by its series and by signals, outlives restarts, and gives the clocks back at its end."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from wattflow.live import Engine
from wattflow.model.cluster import Series
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry
from wattflow.runtime import capping as at
from wattflow.runtime import messages as m
from wattflow.runtime.cap_series import CapSeries
from wattflow.runtime.capping import CapBook, Signal
from wattflow.runtime.recovery import restore
from wattflow.runtime.service import Service
from wattflow.store.schema import open_store
from wattflow.store.writer import Writer

from .test_recovery import Hand, closed, task

NODE = m.Node(
    name="n", cpus=4.0, memory_bytes=1 << 30, busy=[0.0, 4.0], watts=[20.0, 120.0], clocks_mhz=[4000.0, 3000.0, 2000.0]
)


class Levelling(Hand):
    """A driver that notes the levels that it is to set."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[m.Level] = []

    def level(self, node: str, order: m.Level) -> None:
        self.levels.append(order)

    @property
    def clock(self) -> float:
        return self.levels[-1].value if self.levels else 0.0


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Have the policy compiled: signals of these tests last for less than that takes."""
    Engine(at.keeper("power-cap", "inf", alone=True))


async def begun(folder: Path, policy: str = "fifo") -> tuple[Service, Levelling, Writer]:
    database = open_store(folder / "s.db")
    writer, driver = Writer(database), Levelling()
    service = restore(database, writer, driver, folder, policy)
    await service.start()
    return service, driver, writer


async def until(true: Callable[[], bool], service: Service) -> None:
    async with asyncio.timeout(60):
        while not true():
            await service.stored()
            await asyncio.sleep(0.01)


async def busy(service: Service) -> None:
    service.announce(NODE)
    tasks = [task(str(number), estimate_s=1000.0) for number in range(4)]
    await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True), "me")


# ---- the book


def test_a_series_repeats_and_tells_its_next_changes() -> None:
    series = CapSeries(Series(10.0, (5.0, 5.0, 7.0, 9.0)), 100.0)
    assert [series.at(time_s) for time_s in (100.0, 119.9, 120.0, 130.0, 140.0, 99.0)] == [5.0, 5.0, 7.0, 9.0, 5.0, 9.0]
    assert series.edges(100.0, 4) == [120.0, 130.0, 140.0, 160.0]
    assert series.edges(120.0, 1) == [130.0] and series.edges(95.0, 1) == [100.0]
    assert CapSeries(Series(10.0, (5.0, 5.0)), 0.0).edges(3.0, 4) == []


def test_a_series_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "cap.json"
    file.write_text(CapSeries(Series(10.0, (5.5, 7.0)), 1.5).text())
    read = CapSeries.read(file)
    assert (read.series, read.origin_s) == (Series(10.0, (5.5, 7.0)), 1.5)


def test_the_lowest_of_all_that_holds_counts() -> None:
    book = CapBook(CapSeries(Series(100.0, (500.0, 300.0)), 0.0))
    book.take(Signal(400.0, "grid", from_s=50.0, until_s=150.0), 10.0, "me")
    assert [book.at(time_s) for time_s in (10.0, 50.0, 100.0, 150.0, 200.0)] == [500.0, 400.0, 300.0, 300.0, 500.0]
    assert book.changes(10.0, 3) == [(50.0, 400.0), (100.0, 300.0), (200.0, 500.0)]
    book.take(Signal(None, "grid"), 60.0, "me")
    assert book.at(60.0) == 500.0
    book.take(Signal(200.0, "for good"), 60.0, "me")
    assert book.changes(60.0, 3) == [] and book.at(160.0) == 200.0
    assert CapBook().changes(0.0) == [] and CapBook().at(0.0) == math.inf


@pytest.mark.parametrize("hidden", [False, True])
def test_changes_of_many_signals_are_found_without_asking_all_at_each(
    hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(5)
    book = CapBook(CapSeries(Series(70.0, (800.0, 300.0, 1e6)), 0.0))
    for number in range(300):
        from_s, watts = float(dice.randrange(1000)), float(dice.randrange(100, 1000))
        book.take(Signal(watts, str(number), from_s=from_s, for_s=float(dice.randrange(1, 200))), 0.0, "me")
    if hidden:
        book.take(Signal(50.0, "lowest"), 0.0, "me")
    edges = [(time_s, book.at(time_s)) for time_s in [0.0, *book.edges(0.0)]]
    changed = [this for before, this in pairwise(edges) if this[1] != before[1]]
    assert changed[16:] or hidden
    asked = Mock(wraps=book.at)
    monkeypatch.setattr(book, "at", asked)
    assert book.changes(0.0) == changed[:16] and asked.call_count == 1


def test_a_signal_begins_now_and_lasts_as_long_as_it_says() -> None:
    book = CapBook()
    for name, signal in (
        ("a", Signal(1.0, "a")),
        ("b", Signal(1.0, "b", for_s=5.0)),
        ("c", Signal(1.0, "c", from_s=3.0, for_s=20.0)),
    ):
        book.take(signal, 10.0, "me")
        held = book.signals[name]
        assert (held.from_s, held.until_s) == {"a": (10.0, math.inf), "b": (10.0, 15.0), "c": (10.0, 23.0)}[name]
    assert book.forget_over(15.0) and set(book.signals) == {"a", "c"} and not book.forget_over(15.0)


@pytest.mark.parametrize(
    ("signal", "told"),
    [
        (Signal(None, "x"), "no signal 'x' holds; there is none"),
        (Signal(5.0, until_s=9.0), "it is over"),
        (Signal(5.0, from_s=20.0, until_s=20.0), "it is over"),
        (Signal(5.0, until_s=20.0, for_s=3.0), "two ends"),
    ],
)
def test_a_signal_that_cannot_hold_is_refused(signal: Signal, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        CapBook().take(signal, 10.0, "me")


@pytest.mark.parametrize(
    "body",
    ['{"watts": 0}', '{"watts": -1}', '{"watts": "5"}', "{}", '{"watts": 5, "name": ""}', '{"watts": 5, "to": 3}',
     '{"watts": 5, "for_s": 0}', '{"watts": 5, "from_s": -1}', '{"watts": 1e400}'],
)  # fmt: skip
def test_a_body_that_is_no_signal_is_refused(body: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(body, type=Signal)


# ---- the policy's text


def test_steps_are_read_as_they_are_written() -> None:
    text = at.keeper("power-cap:order=start", at.steps(500.0, [(10.5, 300.0), (20.0, math.inf)]))
    # A share of its own, also the one by default, holds besides.
    assert text == "power-cap:order=start:share=0.8:steps=500.0/10.5/300.0/20.0/inf"
    assert at.keeper("power-cap:watts=9", "5.0") == "power-cap:watts=9:steps=5.0"
    text = at.keeper("power-cap:order=start", at.steps(500.0, [(10.5, 300.0), (20.0, math.inf)]), alone=True)
    assert text == "power-cap:order=start:steps=500.0/10.5/300.0/20.0/inf"
    assert registry.load(text).name == text and at.plain_policy(text) == "power-cap:order=start" and at.is_keeper(text)
    assert at.keeper("wattflow:levels=off", "7.0") == "power-cap:steps=7.0" and not at.is_keeper("power-cap:watts=7")


@pytest.mark.parametrize("steps", ["many", "5/3", "0", "nan", "5/3/nan", "5/3/4/2/5", "5/3/4/3/5"])
def test_steps_that_are_none_are_refused(steps: str) -> None:
    with pytest.raises(InvalidInput, match="steps is WATTS and then"):
        registry.load(f"power-cap:steps={steps}")


# ---- a service


def test_a_signal_lowers_the_clocks_at_once_and_its_end_gives_them_back(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        await busy(service)
        assert len(driver.leases) == 4 and driver.clock == 0.0
        await service.capping.signal(Signal(90.0, "grid"), "me")
        await until(lambda: driver.clock > 0.0, service)
        assert driver.clock < 4000.0 and service.capping.told()["watts"] == 90.0
        assert (
            "kept below 90 W" in service.capping.sentence() and at.plain_policy(service.decider.policy) == "power-cap"
        )
        await service.capping.signal(Signal(90.0, "grid", for_s=0.2), "me")
        await until(lambda: service.decider.policy == "fifo", service)
        assert driver.clock == 0.0 and service.capping.told()["signals"] == [] and service.capping.sentence() == ""
        await closed(service, writer)

    asyncio.run(body())


@pytest.mark.parametrize("left", [False, True])
def test_clocks_are_given_back_also_where_a_cap_ends_during_a_turn(left: bool, tmp_path: Path) -> None:
    """Placements of one turn are made a few at a time: its step was before the end, by a signal or by a policy."""

    async def body() -> None:
        service, driver, writer = await begun(tmp_path, "power-cap:watts=90" if left else "fifo")
        await busy(service)
        if not left:
            await service.capping.signal(Signal(90.0, "grid"), "me")
        await until(lambda: driver.clock > 0.0, service)
        tasks = [task(f"v{number}", estimate_s=1000.0) for number in range(40)]
        await service.submit(m.Submission(workflow="v", tasks=tasks, seal=True), "me")
        assert len(driver.leases) == 4
        # One whose watts nobody knows takes all of them.
        service.announce(m.Node(name="m", cpus=40.0, memory_bytes=1 << 30))
        while service.turns.under_way is None:
            await asyncio.sleep(0)
        await (service.use("fifo") if left else service.capping.signal(Signal(None, "grid"), "me"))
        await until(lambda: service.decider.policy == "fifo" and len(driver.leases) == 44, service)
        assert not service.decider.lowered() and driver.clock == 0.0
        await closed(service, writer)

    asyncio.run(body())


def test_a_signal_outlives_a_restart_and_is_journalled(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        await busy(service)
        await service.capping.signal(Signal(90.0, "grid"), "me")
        await until(lambda: driver.clock > 0.0, service)
        clock, policy = driver.clock, service.decider.policy
        await closed(service, writer)
        service, driver, writer = await begun(tmp_path)
        assert service.decider.policy == policy and service.decider.own == "fifo"
        # Whether the order had reached the agent before the restart, nobody knows.
        assert driver.clock == clock and service.capping.told()["watts"] == 90.0
        await service.capping.signal(Signal(None, "grid"), "me")
        await until(lambda: service.decider.policy == "fifo", service)
        assert driver.clock == 0.0
        await closed(service, writer)

    asyncio.run(body())


def test_an_end_that_came_while_the_server_was_away_gives_the_clocks_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        await busy(service)
        await service.capping.signal(Signal(90.0, "grid", for_s=600.0), "me")
        await until(lambda: driver.clock > 0.0, service)
        await closed(service, writer)
        later_s = time.time() + 1000.0
        monkeypatch.setattr("wattflow.runtime.clock.time.time", lambda: later_s)
        service, driver, writer = await begun(tmp_path)
        await until(lambda: service.decider.policy == "fifo", service)
        assert driver.levels[-1] == m.Level("clock_mhz", 0.0)
        await closed(service, writer)

    asyncio.run(body())


def test_who_comes_back_is_ordered_its_clock_again(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        await busy(service)
        await service.capping.signal(Signal(90.0, "grid"), "me")
        await until(lambda: driver.clock > 0.0, service)
        told = len(driver.levels)
        service.announce(NODE)  # its agent was silent for a while, and gave its clocks back
        assert driver.levels[told:] == [driver.levels[told - 1]]
        # A clock that it cannot set any more is not ordered.
        service.announce(msgspec.structs.replace(NODE, clocks_mhz=[]))
        assert len(driver.levels) == told + 1
        await closed(service, writer)

    asyncio.run(body())


def test_an_objective_or_another_policy_lifts_no_cap(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        await busy(service)
        await service.capping.signal(Signal(90.0, "grid"), "me")
        await until(lambda: driver.clock > 0.0, service)
        await service.submit(m.Submission(workflow="v", tasks=[task("z")], objective="makespan"), "me")
        assert at.is_keeper(service.decider.policy)
        await service.use("sjf")
        assert at.is_keeper(service.decider.policy) and service.decider.own == "sjf"
        with pytest.raises(InvalidInput):
            await service.use("no-such-policy")
        await service.capping.signal(Signal(None, "grid"), "me")
        await until(lambda: service.decider.policy == "sjf", service)
        await closed(service, writer)

    asyncio.run(body())


def test_an_objective_outlives_a_restart_below_a_cap(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        service.announce(NODE)
        tasks = [task(str(number), estimate_s=1000.0) for number in range(4)]
        await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True, objective="makespan"), "me")
        assert service.decider.policy == "heft"
        await service.capping.signal(Signal(90.0, "grid"), "me")
        await until(lambda: driver.clock > 0.0, service)
        await closed(service, writer)
        service, driver, writer = await begun(tmp_path)
        assert at.is_keeper(service.decider.policy)
        await service.capping.signal(Signal(None, "grid"), "me")
        await until(lambda: not at.is_keeper(service.decider.policy), service)
        assert service.decider.policy == "heft" and service.decider.own == "fifo" and driver.clock == 0.0
        await closed(service, writer)

    asyncio.run(body())


def test_a_cap_of_the_start_is_kept_whatever_a_workflow_wants(tmp_path: Path) -> None:
    async def body() -> None:
        service, _, writer = await begun(tmp_path, "power-cap:watts=90")
        await service.submit(m.Submission(workflow="v", tasks=[task("z")], objective="makespan"), "me")
        assert service.decider.policy == "power-cap:watts=90"
        await closed(service, writer)

    asyncio.run(body())


def test_leaving_a_cap_gives_the_clocks_back(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path, "power-cap:watts=90")
        await busy(service)
        await until(lambda: driver.clock > 0.0, service)
        await service.use("fifo")
        assert service.decider.policy == "fifo"
        await until(lambda: driver.clock == 0.0, service)
        await closed(service, writer)

    asyncio.run(body())


def test_a_series_of_the_start_goes_on_by_itself(tmp_path: Path) -> None:
    async def body() -> None:
        database = open_store(tmp_path / "s.db")
        writer, driver = Writer(database), Levelling()
        service = restore(database, writer, driver, tmp_path, "power-cap")
        service.capping.book.series = CapSeries(Series(1.0, (1000.0, 90.0)), math.floor(service.now()))
        await service.start()
        await busy(service)
        await until(lambda: driver.clock > 0.0, service)
        await until(lambda: driver.clock == 0.0, service)
        await until(lambda: driver.clock > 0.0, service)
        await closed(service, writer)

    asyncio.run(body())


def test_a_task_that_would_run_into_a_lower_cap_waits(tmp_path: Path) -> None:
    """The cap that is announced leaves no room for two; whoever ends before it may start."""

    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        service.announce(m.Node(name="n", cpus=4.0, memory_bytes=1 << 30, busy=[0.0, 4.0], watts=[20.0, 120.0]))
        await service.capping.signal(Signal(50.0, "grid", from_s=service.now() + 100.0), "me")
        tasks = [task("c", estimate_s=10.0), task("a", estimate_s=1000.0), task("b", estimate_s=1000.0)]
        await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True), "me")
        assert sorted(lease.spec.key for lease in driver.leases) == ["a", "c"]
        await closed(service, writer)

    asyncio.run(body())


def test_a_start_without_the_cap_of_before_gives_the_clocks_back(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path, "power-cap:watts=90")
        await busy(service)
        await until(lambda: driver.clock > 0.0, service)
        for lease in driver.leases:
            service.ended(m.Ended(fence=lease.fence, outcome="done"))
        await until(lambda: service.workflows["w"].state == "done", service)
        lowered = service.decider.lowered()
        await closed(service, writer)
        assert lowered, "idle nodes keep their clock"
        service, driver, writer = await begun(tmp_path, "fifo")
        await until(lambda: service.decider.policy == "fifo", service)
        assert driver.levels[-1] == m.Level("clock_mhz", 0.0) and not service.decider.lowered()
        await closed(service, writer)

    asyncio.run(body())


def test_a_signal_above_the_policys_own_cap_lifts_it_not(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await begun(tmp_path, "power-cap:watts=90")
        await busy(service)
        await until(lambda: driver.clock > 0.0, service)
        clock = driver.clock
        await service.capping.signal(Signal(1e6, "grid"), "me")
        assert driver.clock == clock and service.decider.lowered()
        await closed(service, writer)

    asyncio.run(body())


def test_a_raise_that_no_agent_heard_of_is_ordered_again(tmp_path: Path) -> None:
    """The server was killed when the raise was on disk, and was back before its agent noticed."""

    async def body() -> None:
        service, driver, writer = await begun(tmp_path)
        await busy(service)
        await service.capping.signal(Signal(90.0, "grid"), "me")
        await until(lambda: driver.clock > 0.0, service)
        await service.capping.signal(Signal(None, "grid"), "me")
        await until(lambda: service.decider.policy == "fifo", service)
        await closed(service, writer)
        service, driver, writer = await begun(tmp_path)
        assert driver.levels == [m.Level("clock_mhz", 0.0)]
        await closed(service, writer)

    asyncio.run(body())


@pytest.mark.parametrize("hidden", [False, True])
def test_nobody_looks_where_nothing_changes(hidden: bool, tmp_path: Path) -> None:
    """A cap for good, and one below a series whose known changes it hides: no look before the next edge."""

    async def body() -> None:
        service, _, writer = await begun(tmp_path)
        looks, look = [0], service.capping.look

        def counted() -> None:
            looks[0] += 1
            look()

        service.capping.look = counted  # type: ignore[method-assign]
        if hidden:
            service.capping.book.series = CapSeries(Series(100.0, (1000.0, 900.0)), service.now() - 50.0)
        await service.capping.signal(Signal(90.0, "grid"), "me")
        looks[0] = 0
        await asyncio.sleep(0.2)
        assert looks == [0]
        await closed(service, writer)

    asyncio.run(body())


def test_the_end_of_a_signal_is_seen_beyond_the_changes_that_are_known() -> None:
    book = CapBook(CapSeries(Series(10.0, (1000.0, 900.0)), 0.0))
    book.take(Signal(90.0, "grid", for_s=1000.0), 0.0, "me")
    # Sixteen changes of the series, all below the signal: looked at again at the first of them.
    assert book.changes(0.0) == [] and book.edges(0.0, 1) == [10.0]
    assert book.changes(950.0)[0] == (1000.0, 1000.0) and book.edges(995.0, 1) == [1000.0]

"""The rules of the service, one a test: what becomes of tasks, attempts, workflows and the journal."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wattflow.live import CANCEL
from wattflow.live.protocol import Placement, Step
from wattflow.runtime import compaction, turns
from wattflow.runtime import messages as m
from wattflow.runtime.actions import Cancelling
from wattflow.runtime.aside import SetAside
from wattflow.runtime.records import (
    KEPT,
    LONGEST_WAIT_S,
    LOSSES,
    REFUSALS,
    AttemptRecord,
    Recent,
    TaskRecord,
    Trace,
    WorkflowRecord,
    judge,
    met,
    outcomes_after,
)
from wattflow.runtime.service import Service
from wattflow.runtime.turns import PIECE
from wattflow.server import app
from wattflow.store import journal, reads, schema
from wattflow.store.schema import open_store

from .test_recovery import NODE, Hand, closed, in_this_process, opened, task

SMALL = m.Node(name="n", cpus=1.0, memory_bytes=1 << 30)


@asynccontextmanager
async def running(folder: Path, *nodes: m.Node) -> AsyncIterator[tuple[Service, Hand]]:
    service, driver, writer = await opened(folder)
    for node in nodes:
        service.announce(node)
    yield service, driver
    await closed(service, writer)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


async def submit(service: Service, *tasks: m.Task, seal: bool = True, **more: Any) -> m.Accepted:
    return await service.submit(m.Submission(workflow="w", tasks=list(tasks), seal=seal, **more), "me")


async def end(service: Service, lease: m.Lease, outcome: str = "done", **more: Any) -> None:
    service.ended(m.Ended(fence=lease.fence, outcome=outcome, **more))  # type: ignore[arg-type]
    await service.stored()


async def states(service: Service) -> dict[str, str]:
    return {one.key: one.state for one in (await service.outcomes("w", 0, 0)).outcomes}


# ---- verdicts


def record(retries: int = 0) -> TaskRecord:
    flow = WorkflowRecord("w", "w", "me", 1, {}, 0.0)
    return TaskRecord(1, flow, task("a", retries=retries), 1, 0.0, 0.0)


def bad(outcome: str, reason: str = "why") -> m.Ended:
    return m.Ended(fence=1, outcome=outcome, reason=reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("outcome", ["failed", "time_limit"])
def test_a_task_that_fails_is_tried_as_often_again_as_it_says(retries: int, outcome: str) -> None:
    one = record(retries)
    assert [judge(one, bad(outcome), "n").again for _ in range(retries + 1)] == [True] * retries + [False]


def test_refusals_wait_twice_as_long_each_time_and_have_a_cap() -> None:
    one = record()
    found = [judge(one, bad("refused"), "n") for _ in range(REFUSALS)]
    assert [verdict.wait_s for verdict in found] == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_WAIT_S]
    assert [verdict.again for verdict in found] == [True] * (REFUSALS - 1) + [False]
    assert found[0].reason == "why" and "given up after 0 attempts (refused 6 times, lost" in (found[-1].reason or "")
    assert "refused on n: why (6 times)" in (found[-1].reason or "")
    assert one.failures == 0, "a refusal is not the task's own doing"


def test_losses_have_a_cap_and_use_up_no_retries() -> None:
    one = record()
    found = [judge(one, bad("node_lost"), "n") for _ in range(LOSSES)]
    assert [verdict.again for verdict in found] == [True] * (LOSSES - 1) + [False]
    assert [verdict.wait_s for verdict in found] == [0.0] * LOSSES and one.failures == one.refusals == 0
    assert found[-2].reason == "why" and "lost with its node 8 times" in (found[-1].reason or "")


@pytest.mark.parametrize("outcome", ["failed", "refused", "node_lost", "cancelled"])
def test_what_is_being_stopped_is_not_tried_again(outcome: str) -> None:
    assert judge(record(3), bad(outcome), "n").again
    assert not judge(record(3), bad(outcome), "n", stopping=True).again


def test_an_attempt_that_was_stopped_counts_as_no_failure() -> None:
    one = record()
    assert judge(one, bad("cancelled"), "n").again and one.failures == 0 and one.history == []
    one.failures = 1
    assert not judge(one, bad("cancelled"), "n").again


def test_a_tasks_history_has_the_latest_bad_ends_and_met_says_what_was_in_its_way() -> None:
    one = record()
    assert met(one) is None
    for number in range(KEPT + 3):
        judge(one, bad("failed", f"no {number}"), "n")
    assert one.history == [f"failed on n: no {number}" for number in range(3, KEPT + 3)]
    assert met(one) is None, "failures are told where the task is"
    judge(one, bad("refused"), "n")
    judge(one, bad("node_lost"), "k")
    assert met(one) == "refused 1 of 6 times and lost with its node 1 of 8 times (last: node_lost on k: why)"


# ---- tasks and attempts


def test_retries_of_a_task_in_the_service(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a", retries=2), task("b", "a"))
            for number in (1, 2, 3):
                lease = driver.leases[-1]
                assert len(driver.leases) == lease.number == number and lease.spec.key == "a"
                assert await states(service) == {}
                await end(service, lease, "failed", reason=f"no {number}")
            assert len(driver.leases) == 3 and await states(service) == {"a": "failed", "b": "failed"}
            told = {one.key: one.reason for one in (await service.outcomes("w", 0, 0)).outcomes}
            assert told == {"a": "no 3", "b": "a task that it waits for failed"}
            assert service.workflows["w"].state == "failed"

    run(body())


def test_a_report_of_an_attempt_that_is_over_or_unknown_changes_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"), task("b"))
            (first,) = driver.leases
            service.started(first.fence, service.now(), 0.5)
            before = service.attempts[first.fence].started_s
            service.started(first.fence, service.now() + 9.0, 0.5)
            assert service.attempts[first.fence].started_s == before is not None, "it begins once"
            await end(service, first)
            service.started(first.fence, service.now(), 0.0)
            service.started(10**6, service.now(), 0.0)
            await end(service, first, "failed")
            assert await states(service) == {"a": "done"} and len(driver.leases) == 2

    run(body())


def test_why_tells_the_state_of_what_does_not_wait_and_the_reason_of_what_ended_badly(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"), task("b", "a"))
            first, second = service.tasks[1], service.tasks[2]
            assert service.why(first) == "running" and service.why(second) == "it waits for a (running)"
            await end(service, driver.leases[0], "failed", reason="no disk")
            assert service.why(first) == "no disk" and service.why(second) == "a task that it waits for failed"

    run(body())


def test_a_result_is_handed_to_the_children_that_want_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"), task("b", "a", results=["a"]))
            await end(service, driver.leases[0], result=m.Blob(data=b"five"))
            assert [blob.data for blob in driver.leases[1].inputs] == [b"five"]
            await end(service, driver.leases[1])
            first = (await service.outcomes("w", 0, 0)).outcomes[0]
            assert first.result is not None and first.result.data == b"five" and first.reason is None

    run(body())


def held(service: Service) -> list[Callable[[], None]]:
    """From now on what would happen once changes are on disk waits in this list."""
    waiting: list[Callable[[], None]] = []
    service.writer.settled = waiting.append  # type: ignore[assignment, method-assign]
    return waiting


def test_an_attempt_that_ended_or_is_being_stopped_before_it_was_written_is_not_launched(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, NODE) as (service, driver):
            usual = service.writer.settled
            await submit(service, seal=False)
            waiting = held(service)
            given = asyncio.create_task(submit(service, task("a"), task("b")))
            while not service.attempts:
                await asyncio.sleep(0)
            assert driver.leases == [] and len(waiting) == 1, "nothing runs before it is on disk"
            a, b = service.attempts.values()
            a.stopping = True
            service.ended(m.Ended(fence=b.fence, outcome="node_lost"))
            service.writer.settled = usual  # type: ignore[method-assign]
            waiting[0]()
            await given
            await service.stored()
            assert [lease.spec.key for lease in driver.leases] == ["b"], "b's second attempt alone"
            assert driver.leases[0].number == 2 and a.released

    run(body())


def test_a_driver_that_raises_refuses_all_that_it_was_given(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, NODE) as (service, driver):

            def broken(leases: object) -> None:
                raise OSError("no fork")

            driver.launch = broken  # type: ignore[method-assign]
            await submit(service, task("a"))
            await service.stored()
            one = service.tasks[1]
            assert one.refusals == 1 and one.state == "waiting" and not service.attempts
            assert "refused 1 of 6 times (last: refused on n: not launched: OSError: no fork)" in service.why(one)

    run(body())


def test_a_placement_that_cannot_be_made_fails_its_task_and_no_other(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, NODE) as (service, driver):
            usual = service.fences.next

            def once() -> int:
                service.fences.next = usual  # type: ignore[method-assign]
                raise RuntimeError("no number")

            service.fences.next = once  # type: ignore[method-assign]
            await submit(service, task("a", retries=3), task("b"))
            await service.stored()
            assert [lease.spec.key for lease in driver.leases] == ["b"]
            (outcome,) = (await service.outcomes("w", 0, 0)).outcomes
            assert outcome.state == "failed" and outcome.reason == "it could not be placed: RuntimeError: no number"

    run(body())


# ---- workflows


def test_a_workflow_is_open_until_it_is_sealed_and_its_tasks_have_ended(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            assert await submit(service, task("a"), seal=False) == m.Accepted("w", 1, 0)
            await end(service, driver.leases[0])
            flow = service.workflows["w"]
            assert flow.open == 0 and flow.state == "open" and not flow.sealed
            assert await submit(service, task("a"), task("b")) == m.Accepted("w", 1, 1)
            assert flow.sealed and flow.state == "open"
            await end(service, driver.leases[1])
            assert flow.state == "done" and flow.about["ended_s"] == pytest.approx(service.now(), abs=60.0)
            stored = reads.workflow(open_store(tmp_path / "s.db"), "w")
            assert stored is not None and stored["state"] == "done"
            engine = service.decider.engine
            before = engine.counts["stale"]
            engine.put(CANCEL, flow.engine)
            engine.step(service.now())
            assert engine.counts["stale"] == before + 1, "the engine has closed it, too"

    run(body())


def test_sealing_what_has_ended_closes_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"), seal=False)
            await end(service, driver.leases[0])
            await submit(service)
            assert service.workflows["w"].state == "done"

    run(body())


def test_outcomes_are_numbered_and_asked_for_from_a_number_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, *(task(key) for key in "abc"))
            for number in range(3):
                await end(service, driver.leases[number])
            found = await service.outcomes("w", 0, 0)
            numbers = [one.sequence for one in found.outcomes]
            assert numbers == list(range(numbers[0], numbers[0] + 3)) and found.last == numbers[-1] and not found.open
            later = await service.outcomes("w", numbers[0], 0)
            assert [one.key for one in later.outcomes] == ["b", "c"]
            none = await service.outcomes("w", numbers[-1], 0)
            assert none.outcomes == [] and none.last == numbers[-1]

    run(body())


def test_cancelling_what_waits_leaves_what_runs_and_the_workflow_open(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, *(task(key) for key in "abc"), seal=False)
            assert await service.cancel("w", only_waiting=True) == 2
            assert driver.cancelled == [] and await states(service) == {"b": "cancelled", "c": "cancelled"}
            assert not service.workflows["w"].sealed
            reasons = {one.reason for one in (await service.outcomes("w", 0, 0)).outcomes}
            assert reasons == {"cancelled before it started"}
            assert await service.cancel("w", "a") == 1 and await service.cancel("w", "b") == 0
            assert driver.cancelled == [driver.leases[0].fence] and service.attempts[driver.cancelled[0]].stopping
            await end(service, driver.leases[0], "failed")
            assert (await states(service))["a"] == "cancelled", "what was stopped is not tried again"

    run(body())


def test_a_budget_is_used_up_when_more_than_all_of_it_is_spent() -> None:
    flow = WorkflowRecord("w", "w", "me", 1, {"energy_budget_j": 10.0}, 0.0)
    assert flow.spend(10.0) is None
    assert flow.spend(0.5) == "the energy budget of 10 J is used up (10.5 J)"
    flow.close({"done"}, 1.0)
    assert flow.spend(5.0) is None and flow.spent_j == 15.5


@pytest.mark.parametrize(
    ("ends", "state"),
    [({"done"}, "done"), ({"done", "cancelled"}, "cancelled"), ({"failed", "cancelled", "done"}, "failed")],
)
def test_a_workflow_ends_as_the_worst_of_its_tasks(ends: set[str], state: str) -> None:
    flow = WorkflowRecord("w", "w", "me", 1, {}, 0.0, open=1)
    assert not flow.over()
    flow.sealed = True
    assert not flow.over(), "a task is open"
    flow.open = 0
    assert flow.over()
    flow.close(ends, 3.0)
    assert flow.state == state and flow.about["ended_s"] == 3.0 and not flow.over()


# ---- nodes


def test_a_node_that_is_back_goes_on_with_what_it_ran(tmp_path: Path) -> None:
    other = m.Node(name="k", cpus=1.0, memory_bytes=1 << 30)

    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"), task("b"))
            (first,) = driver.leases
            service.gone("n", "silent")
            service.gone("n", "silent")  # told twice, lost once
            await service.stored()
            assert service.tasks[1].losses == 1 and service.nodes["n"].state == "down"
            service.announce(SMALL)
            service.returned("n", [first.fence])
            service.announce(other)
            await service.stored()
            adopted = next(lease for lease in driver.leases[1:] if lease.spec.key == "a")
            assert adopted.node == "n" and adopted.adopts == first.fence and adopted.fence != first.fence
            assert service.tasks[1].losses == 0, "it was none"
            fresh = next(lease for lease in driver.leases[1:] if lease.spec.key == "b")
            assert fresh.node == "k" and fresh.adopts is None

    run(body())


def test_what_a_returned_node_cannot_take_may_go_anywhere_after_the_step(tmp_path: Path) -> None:
    other = m.Node(name="k", cpus=1.0, memory_bytes=1 << 30)

    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"))
            (first,) = driver.leases
            service.gone("n", "silent")
            await service.stored()
            service.returned("n", [first.fence, 10**6])  # the node is still down: nothing can be placed there
            await service.stored()
            assert len(driver.leases) == 1
            service.announce(other)
            await service.stored()
            assert driver.leases[1].node == "k" and driver.leases[1].adopts is None

    run(body())


def test_states_of_nodes_are_what_was_told(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            service.asleep("n")
            await submit(service, task("a"))
            assert service.nodes["n"].state == "waking" and len(driver.leases) == 1, "work wakes the node it is for"
            service.announce(SMALL)
            await service.stored()
            assert service.nodes["n"].state == "on" and len(driver.leases) == 1
            service.gone("nobody", "never was")
            service.load("nobody", m.Load())
            assert "nobody" not in service.nodes

    run(body())


# ---- the journal


@pytest.mark.parametrize("keep_bytes", [0, 1 << 30])
def test_after_a_snapshot_the_journal_goes_on_with_the_next_number(
    tmp_path: Path, keep_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    database = open_store(tmp_path / "s.db")

    async def first() -> int:
        async with running(tmp_path, SMALL) as (service, _):
            await submit(service, task("a"), task("b"), seal=False)
            await compaction.take_snapshot(service, database, tmp_path, keep_bytes)
            (kept,) = journal.snapshots(database)
            left = [entry.sequence for entry in journal.entries(database, kept.sequence, kept.checksum)]
            assert left == list(range(kept.sequence + 1, service.ledger.next_entry))
            whole = reads.first_entry(database)
            assert whole == 1 if keep_bytes else whole is None or whole > kept.sequence
            return service.ledger.next_entry

    async def again(next_entry: int, leases: int) -> int:
        async with running(tmp_path) as (service, driver):
            assert service.ledger.next_entry >= next_entry
            assert [lease.spec.key for lease in driver.resumed] == ["a"] and leases == 0
            await submit(service, task(f"c{next_entry}"), seal=False)
            return service.ledger.next_entry

    numbers = [asyncio.run(first())]
    for _ in range(2):
        numbers.append(asyncio.run(again(numbers[-1], 0)))
    assert numbers == sorted(set(numbers)), "each start goes on where the last one stopped"
    assert not list(tmp_path.glob("engine-*")), "what the snapshot was made in is gone"


def test_an_engine_is_rebuilt_up_to_an_entry(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, _):
            await submit(service, task("a"), seal=False)
            before = service.ledger.next_entry - 1
            await submit(service, task("b"), task("c"), seal=False)
            database = open_store(tmp_path / "s.db")
            then, at = compaction.rebuilt(database, tmp_path, "fifo", before)
            now, last = compaction.rebuilt(database, tmp_path, "fifo")
            assert at.sequence == before < last.sequence and at.time_s <= last.time_s
            assert then.engine.counts["open"] == 1 and now.engine.counts["open"] == 3

    run(body())


# ---- small things


def test_turns_take_placements_piece_by_piece_and_further_steps() -> None:
    def placed(*attempts: int) -> Step:
        return Step([Placement(a, a, 1, a, 0, 0, 0, 0, 0, 1.0) for a in attempts], [], 5.0)

    turn = turns.UnderWay(placed(1, 2, 3), 0.0)
    assert turn.wake_at == 5.0 and not turn.all_placed
    assert [one.attempt for one in turn.next_placements(2)] == [1, 2] and not turn.all_placed
    assert [one.attempt for one in turn.next_placements(2)] == [3] and turn.all_placed
    turn.add(Step(placed(4).placements, [], 2.0))
    assert turn.wake_at == 2.0 and not turn.all_placed
    assert [one.attempt for one in turn.next_placements(9)] == [4] and turn.all_placed


def test_waiters_are_told_once() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        over, waits, broken = loop.create_future(), loop.create_future(), loop.create_future()
        over.set_result(None)
        turns.settle([over, waits])
        turns.settle([over, broken], ValueError("no"))
        assert waits.result() is None and over.result() is None
        with pytest.raises(ValueError, match="no"):
            broken.result()

    run(body())


def test_an_alarm_rings_once_and_never_where_it_has_no_time() -> None:
    async def body() -> None:
        rung = asyncio.Event()
        alarm = turns.Alarm(rung.set)
        alarm.set(math.inf)
        assert alarm._timer is None
        alarm.set(3600.0)
        first = alarm._timer
        assert first is not None and first.when() > asyncio.get_running_loop().time() + 3000, "not before its time"
        alarm.set(-1.0)
        assert first.cancelled()
        await asyncio.wait_for(rung.wait(), 60)
        alarm.set(3600.0)
        alarm.cancel()
        assert alarm._timer is None

    run(body())


def test_the_latest_outcomes_and_traces_are_found() -> None:
    ends = [m.Outcome(key=str(n), task=n, state="done", sequence=2 * n) for n in range(1, 8)]
    for after in range(16):
        assert outcomes_after(ends, after) == [one for one in ends if one.sequence > after]
    assert outcomes_after(ends, 2, most=3) == ends[1:4]
    now_s = [0.0]
    recent: Recent[Trace] = Recent(most=3, for_s=10.0, now=lambda: now_s[0])
    flow = WorkflowRecord("w", "w", "me", 1, {}, 0.0)
    one = TaskRecord(1, flow, task("a"), 1, 0.0, 0.0)
    where = Placement(1, 1, 1, 1, 0, 0, 0, 0, 0, 1.0)
    for fence in range(1, 6):
        now_s[0] = float(fence)
        recent.add(fence, AttemptRecord.begun(one, where, fence, "n", [], 0.0).trace)
    assert [fence for fence in range(1, 6) if recent.get(fence) is not None] == [3, 4, 5]
    assert one.attempts == 5 and one.state == "running" and recent.get(5).number == 5  # type: ignore[union-attr]
    now_s[0] = 14.5  # the third and the fourth were let go of for their age alone
    recent.add(6, AttemptRecord.begun(one, where, 6, "n", [], 0.0).trace)
    assert [fence for fence in range(1, 7) if recent.get(fence) is not None] == [5, 6]
    assert [AttemptRecord.device_of(where._replace(devices=mask)) for mask in (0, 1, 4, 6)] == [-1, 0, 2, 1]


def test_what_is_over_leaves_memory_while_a_snapshot_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        begun, forgot = asyncio.Event(), asyncio.Semaphore(0)

        async def stuck(*_: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def forgetting(*_: Any) -> None:
            forgot.release()

        async def nothing(*_: Any) -> None:
            return None

        for name, stand_in in (("take_snapshot", stuck), ("forget_closed", forgetting), ("thin", nothing)):
            monkeypatch.setattr(app, name, stand_in)
        monkeypatch.setattr(app, "_expire", lambda *_: None)
        ledger = SimpleNamespace(next_entry=0)
        service = SimpleNamespace(ledger=ledger, workflows={"w": None}, aside=SetAside(), now=lambda: 0.0)
        house: Any = SimpleNamespace(
            service=service, database=None, folder=None, keep_journal_bytes=0, keep_s=0.0, background=[]
        )
        loops = [asyncio.create_task(loop) for loop in (app._snapshots(house, 0.001), app._housekeeping(house, 0.001))]
        await asyncio.wait_for(forgot.acquire(), 60)
        ledger.next_entry = app.SNAPSHOT_ENTRIES
        await asyncio.wait_for(begun.wait(), 60)
        for _ in range(3):
            await asyncio.wait_for(forgot.acquire(), 60)
        for loop in loops:
            loop.cancel()

    asyncio.run(body())


def test_what_has_begun_is_not_cancelled_for_a_reason_and_what_is_over_not_at_all(tmp_path: Path) -> None:
    """Between two pieces of a long cancelling a task may have begun, or ended: it is looked at again."""

    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, *(task(key) for key in "abc"), seal=False)
            await end(service, driver.leases[0])
            over, begun, waits = (service.tasks[service.workflows["w"].keys[key]] for key in "abc")
            assert [one.state for one in (over, begun, waits)] == ["done", "running", "waiting"]
            told: list[int] = []
            put = service.decider.put
            service.decider.put = lambda kind, who, **more: told.append(who) or put(kind, who, **more)  # type: ignore
            await Cancelling(service.decider, lambda: None).cancel([over, begun, waits], "too late")
            assert told == [waits.engine] and (begun.reason, waits.reason) == (None, "too late")
            await Cancelling(service.decider, lambda: None).cancel([over, begun])
            assert told == [waits.engine, begun.engine]

    run(body())


def test_a_long_cancelling_lets_others_have_a_turn_after_each_piece(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as (service, _):
            await submit(service, *(task(f"t{number}") for number in range(2 * PIECE + 3)), seal=False)
            turns: list[int] = []
            await Cancelling(service.decider, lambda: turns.append(1)).cancel(list(service.tasks.values()))
            assert len(turns) == 3, "two whole pieces and the rest"

    run(body())


def test_what_is_stated_of_a_function_counts_until_something_is_known(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, _):
            await submit(service, task("a"), seal=False, functions=[m.Function(name="a", cold_start_s=3.0)])
            assert service.decider.cold_start_s("a") == 3.0
            service.decider.cold_start("a", 2.0)
            await submit(service, task("b"), functions=[m.Function(name="a", cold_start_s=9.0)])
            assert service.decider.cold_start_s("a") == 2.0, "what was measured stays"

    run(body())


def test_a_journal_that_a_snapshot_took_whole_goes_on_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is given twice would let a later start leave out the second entry."""
    in_this_process(monkeypatch)
    database = open_store(tmp_path / "s.db")

    async def first() -> journal.StoredSnapshot:
        async with running(tmp_path, SMALL) as (service, _):
            await submit(service, task("a"), seal=False)
            await compaction.take_snapshot(service, database, tmp_path, 0)
        return journal.snapshots(database)[-1]

    async def again() -> int:
        async with running(tmp_path) as (service, _):
            return service.ledger.next_entry

    kept = asyncio.run(first())
    last = journal.head(kept.sequence, kept.checksum)
    with database.begin() as store:  # without the turns since then, which an idle server need not have had
        store.execute(schema.journal.delete())
        store.execute(schema.meta.update().where(schema.meta.c.key == last["key"]).values(value=last["value"]))
    assert asyncio.run(again()) == kept.sequence + 1


def test_what_is_placed_while_a_server_ends_is_begun_by_the_next_one(tmp_path: Path) -> None:
    async def first() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(SMALL)
        asked = asyncio.create_task(submit(service, task("a")))
        while not service.tasks:
            await asyncio.sleep(0)
        await closed(service, writer)
        asked.cancel()
        assert driver.leases == [], "its driver is gone"

    async def again() -> None:
        async with running(tmp_path) as (service, driver):
            await service.stored()
            assert [lease.spec.key for lease in (*driver.resumed, *driver.leases)] == ["a"]

    run(first())
    run(again())


def test_turns_take_the_seconds_that_they_took(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, _):
            began = time.perf_counter()
            await submit(service, task("a"))
            await service.stored()
            took = [service.turns.took_s.quantile(share) for share in (0.0, 1.0)]
            assert all(0.0 <= one <= time.perf_counter() - began + 60.0 for one in took if one is not None)
            assert len(took) == 2 and took[1] is not None

    run(body())

"""Facts of tasks, attempts and snapshots that the service hands on: to the engine, the store and the next start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from wattflow.live.protocol import Placement
from wattflow.model.errors import InvalidInput
from wattflow.runtime import compaction
from wattflow.runtime import messages as m
from wattflow.runtime.records import AttemptRecord, Attempts, Broken, TaskRecord, WorkflowRecord
from wattflow.runtime.service import Service
from wattflow.store import journal, reads
from wattflow.store.schema import open_store

from .test_recovery import NODE, closed, in_this_process, opened, task
from .test_service_rules import SMALL, end, run, running, submit

WHERE = Placement(1, 1, 1, 1, 0, 0, 0, 0, 0, 1.0)


def described(service: Service, key: str) -> dict[str, Any]:
    flow = service.workflows["w"]
    return service.decider.engine.describe(service.tasks[flow.keys[key]].engine)


# ---- to the engine


def test_the_engine_is_told_what_a_task_says_of_itself_and_else_what_its_submission_says(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as (service, _):
            began = service.now()
            own = task("own", deadline_s=30.0, estimate_s=7.0, submit_s=50.0, input_bytes=123)
            await submit(service, own, task("plain"), seal=False, deadline_s=100.0)
            took_s = service.now() - began
            assert described(service, "own")["deadline_s"] == pytest.approx(began + 30.0, abs=took_s)
            assert described(service, "own")["release_s"] == pytest.approx(began + 50.0, abs=took_s)
            assert (described(service, "own")["estimate_s"], described(service, "own")["input_bytes"]) == (7.0, 123.0)
            plain = described(service, "plain")
            assert plain["deadline_s"] == pytest.approx(began + 100.0, abs=took_s)
            assert plain["release_s"] is None and plain["estimate_s"] is None and plain["input_bytes"] == 0.0
            flow = service.decider.engine.describe(service.workflows["w"].engine)
            assert flow["deadline_s"] == pytest.approx(began + 100.0, abs=took_s) and not flow["sealed"]
            assert service.workflows["w"].about["deadline_s"] == flow["deadline_s"]

    run(body())


def test_without_deadlines_there_are_none_and_tags_count_on(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as (service, _):
            for name in ("v", "w"):
                await service.submit(m.Submission(workflow=name, tasks=[task("a"), task("b")]), "me")
            assert described(service, "a")["deadline_s"] is None
            engine = service.decider.engine
            assert [engine.describe(one.engine)["tag"] for one in service.tasks.values()] == [1, 2, 3, 4]
            assert [engine.describe(one.engine)["tag"] for one in service.workflows.values()] == [1, 2]
            assert service.workflows["v"].about["deadline_s"] is None

    run(body())


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, NODE) as (service, driver):
            await submit(service, task("a"), task("b"), seal=False)
            await end(service, driver.leases[0])
            before = service.sequence
        async with running(tmp_path) as (service, driver):
            assert (service.next_task, service.next_workflow, service.sequence) == (3, 2, before)
            await service.submit(m.Submission(workflow="v", tasks=[task("c")], seal=True), "me")
            assert service.tasks[3].spec.key == "c" and service.workflows["w"].open == 1
            (old,) = driver.resumed
            await end(service, old)
            (last,) = (await service.outcomes("w", before, 0)).outcomes
            assert (last.key, last.sequence) == ("b", before + 1)
            everything = await service.outcomes("w", 0, 0)
            assert [one.key for one in everything.outcomes] == ["a", "b"] and everything.open == 0

    run(body())


def test_the_journal_has_no_gap_over_restarts(tmp_path: Path) -> None:
    """A number that is left out is taken for damage by the start after."""

    async def body() -> None:
        written = 0
        for key in "abc":
            async with running(tmp_path) as (service, _):
                assert service.ledger.next_entry == written + 1
                await submit(service, task(key), seal=False)
            numbers = [entry.sequence for entry in journal.entries(open_store(tmp_path / "s.db"), 0)]
            assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > written
            written = len(numbers)

    run(body())


# ---- to the store


def test_the_store_has_the_times_that_were_told_and_else_those_that_were_seen(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, NODE) as (service, driver):
            await submit(service, task("told"), task("seen"))
            told, seen = driver.leases
            placed_s = service.attempts[told.fence].placed_s
            began_s, over_s = placed_s + 1e-4, placed_s + 2e-4
            service.started(seen.fence, began_s, 0.0)
            service.started(seen.fence, began_s + 1e-4, 0.0)  # a second report changes nothing
            await asyncio.sleep(0.001)
            await end(service, told, started_s=began_s, ended_s=over_s)
            before_s = service.now()
            await end(service, seen)
        rows = {row["task"]: row for row in reads.attempts(open_store(tmp_path / "s.db"), "w")}
        assert (rows[told.task]["started_s"], rows[told.task]["ended_s"]) == pytest.approx((began_s, over_s), abs=1e-5)
        assert rows[seen.task]["started_s"] == pytest.approx(began_s, abs=1e-5)
        assert rows[seen.task]["ended_s"] >= before_s

    run(body())


def test_what_was_spent_before_a_restart_counts_against_the_budget(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"), task("b"), task("c"), seal=False, energy_budget_j=10.0)
            first = driver.leases[0]
            await end(service, first)
            service.energy(m.TaskEnergy(first.fence, m.Energy(6.0, 5.0, 7.0, "modelled")))
            await service.stored()
        async with running(tmp_path) as (service, driver):
            assert service.workflows["w"].spent_j == 6.0
            (lease,) = driver.resumed
            await end(service, lease)
            service.energy(m.TaskEnergy(lease.fence, m.Energy(5.0, 4.0, 6.0, "modelled")))
            await service.stored()
            assert service.workflows["w"].spent_j == 11.0

    run(body())


def test_a_task_whose_parent_was_cancelled_is_cancelled_and_did_not_fail(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, SMALL) as (service, driver):
            await submit(service, task("a"), task("b", "a"), task("c"), seal=False)
            await service.cancel("w", "a")
            await end(service, driver.leases[0], "cancelled")
            found = {one.key: (one.state, one.reason) for one in (await service.outcomes("w", 0, 0)).outcomes}
            assert found["b"][0] == "cancelled" and found["b"][1] != "a task that it waits for failed"

    run(body())


# ---- snapshots


def test_a_snapshot_of_many_pieces_comes_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    monkeypatch.setattr(journal, "PIECE_BYTES", 1000)
    monkeypatch.setattr(compaction, "PAUSE_S", 0.0)

    async def body() -> None:
        async with running(tmp_path, NODE) as (service, _):
            database = open_store(tmp_path / "s.db")
            await submit(service, task("a"), seal=False)
            await compaction.take_snapshot(service, database, tmp_path)
            (kept,) = journal.snapshots(database)
            assert kept.size_bytes > 2000
            again, at = compaction.rebuilt(database, tmp_path, "fifo", kept.sequence)
            assert at.sequence == kept.sequence and again.engine.counts["open"] == 1
            assert (at.time_s, at.checksum, again.policy) == (kept.time_s, kept.checksum, "fifo")

    run(body())


@pytest.mark.parametrize("piece", [1, 2, 4, 1000])
def test_a_snapshot_lets_go_of_all_entries_before_it_and_of_none_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    in_this_process(monkeypatch)
    monkeypatch.setattr(compaction, "PAUSE_S", 0.0)
    monkeypatch.setattr(compaction, "PIECE", piece)

    async def body() -> None:
        async with running(tmp_path, NODE) as (service, _):
            database = open_store(tmp_path / "s.db")
            for key in "abc":
                await submit(service, task(key), seal=False)
            last = service.ledger.next_entry - 1
            forget = compaction._forget

            async def later(*given: Any) -> None:
                for key in "xyz":  # entries that no snapshot has yet
                    await submit(service, task(key), seal=False)
                await forget(*given)

            monkeypatch.setattr(compaction, "_forget", later)
            await compaction.take_snapshot(service, database, tmp_path, 0)
            (kept,) = journal.snapshots(database)
            assert kept.sequence >= last and reads.first_entry(database) == kept.sequence + 1
            left = [one.sequence for one in journal.entries(database, kept.sequence, kept.checksum)]
            assert left == list(range(kept.sequence + 1, service.ledger.next_entry)) and left

    run(body())


def test_snapshots_tell_the_bytes_of_the_journal_since_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)

    async def body() -> None:
        async with running(tmp_path, NODE) as (service, _):
            database = open_store(tmp_path / "s.db")
            for key in "ab":
                await submit(service, task(key), seal=False)
                await compaction.take_snapshot(service, database, tmp_path)
            first, second = journal.snapshots(database)
            assert first.journal_bytes == journal.entries_bytes(database, 0, first.sequence) > 0
            assert second.journal_bytes == journal.entries_bytes(database, first.sequence, second.sequence) > 0

    run(body())


@pytest.mark.parametrize(("said", "told"), [("one\ntwo\n", "two"), ("", "status 3")])
def test_a_process_that_fails_to_save_is_told_by_its_last_line(
    monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    class Process:
        returncode = 3

        def communicate(self, wanted: str, timeout: float) -> tuple[str, str]:
            return "", said

        def poll(self) -> int:
            return 3

    monkeypatch.setattr(compaction, "_process", Process)
    with pytest.raises(OSError, match=f"^the engine was not saved: {told}$"):
        asyncio.run(compaction._elsewhere("{}"))


# ---- records


def record(**about: Any) -> TaskRecord:
    return TaskRecord(1, WorkflowRecord("w", "w", "me", 1, {}, 0.0), task("a", **about), 1, 0.0, 0.0)


def test_a_lease_has_the_share_of_its_own_variant_and_the_first_device() -> None:
    one = record(variants=[m.Variant(), m.Variant(name="gpu", gpu=0.5)])
    made = AttemptRecord.begun(one, WHERE._replace(variant=1, devices=0b1100), 7, "n", [m.Blob(data=b"x")], 3.0, 5)
    assert (made.lease.share, made.lease.device, made.lease.variant, made.lease.adopts) == (0.5, 2, 1, 5)
    assert (made.lease.number, made.number, made.placed_s, made.lease.inputs) == (1, 1, 3.0, [m.Blob(data=b"x")])
    plain = AttemptRecord.begun(one, WHERE, 8, "n", [], 4.0)
    assert (plain.lease.share, plain.lease.device, plain.lease.adopts, plain.lease.number) == (0.0, -1, None, 2)


@pytest.mark.parametrize(
    ("placement", "clock"),
    [
        (WHERE, None),
        (WHERE._replace(frequency=1), 2000.0),
        (WHERE._replace(frequency=2), 1000.0),
        (WHERE._replace(frequency=3), None),  # its node announced no such level
        (WHERE._replace(devices=1, level=1), 800.0),
        (WHERE._replace(devices=1, level=2), None),
        (WHERE._replace(devices=1, level=0, frequency=1), 2000.0),
        (WHERE._replace(devices=4, level=1, frequency=1), 2000.0),  # a device that the node has not
    ],
)
def test_a_lease_has_the_clock_of_its_level_where_the_node_announced_it(
    placement: Placement, clock: float | None
) -> None:
    node = m.Node(
        name="n", cpus=1.0, memory_bytes=1 << 30, clocks_mhz=[3000.0, 2000.0, 1000.0],
        devices=[m.Device("gpu", clocks_mhz=[1500.0, 800.0]), m.Device("gpu")],
    )  # fmt: skip
    made = AttemptRecord.begun(record(), placement, 1, "n", [], 0.0)
    made.slow_down(placement, node)
    assert (None if made.lease.level is None else made.lease.level.value) == clock


def test_attempts_are_found_by_fence_and_by_the_engines_id_and_leave_a_trace() -> None:
    attempts, one = Attempts(), record()
    made = AttemptRecord.begun(one, WHERE._replace(attempt=41), 7, "n", [], 3.0)
    attempts.add(made)
    assert attempts.of_engine(41) is made and attempts.of_engine(40) is None and attempts.trace(7) is made.trace
    attempts.remove(made)
    assert attempts.of_engine(41) is None and 7 not in attempts and attempts.trace(8) is None
    assert attempts.trace(7) is made.trace and (made.trace.task, made.trace.number, made.trace.node) == (1, 1, "n")


def test_a_fault_names_the_policy_and_says_what_went_wrong() -> None:
    assert str(Broken.under("fifo", InvalidInput("x.json", "no tasks"))).startswith(
        "the server cannot go on under fifo: "
    )
    assert "no tasks" in str(Broken.under("fifo", InvalidInput("x.json", "no tasks")))
    assert str(Broken.under("sjf", ZeroDivisionError("by nought"))).endswith("ZeroDivisionError: by nought")
    Broken.check(None)
    with pytest.raises(Broken, match=r"^it broke$"):
        Broken.check("it broke")


def test_who_waits_for_ends_is_told_at_once_and_otherwise_when_the_time_is_over() -> None:
    async def body() -> None:
        flow = WorkflowRecord("w", "w", "me", 1, {}, 0.0, open=2)
        found = await flow.ends_after(4, 0.0)
        assert (found.outcomes, found.last, found.open) == ([], 4, 2)
        waits = asyncio.create_task(flow.ends_after(0, 600.0))
        await asyncio.sleep(0)
        flow.outcomes.append(m.Outcome(key="a", task=1, state="done", sequence=9))
        flow.told()
        found = await asyncio.wait_for(waits, 60)
        assert (found.last, [one.key for one in found.outcomes]) == (9, ["a"])
        flow.fault = "it broke"
        assert (await flow.ends_after(0, 600.0)).last == 9, "what is known is told all the same"
        with pytest.raises(Broken, match="it broke"):
            await flow.ends_after(9, 600.0)

    asyncio.run(body())


def test_a_start_says_the_same_to_its_driver_as_the_last_one_knew(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await submit(service, task("a"), m.Task(key="b", name="b", command=["true"], results=["a"]), task("c"))
        first, other = driver.leases
        service.started(other.fence, service.now(), 0.0)
        await end(service, first, result=m.Blob(data=b"of a"))
        before = {lease.fence: lease for lease in driver.leases if lease.fence in service.attempts}
        began_s = service.attempts[other.fence].started_s
        await closed(service, writer)
        again, second, writer = await opened(tmp_path)
        assert {lease.fence: lease for lease in second.resumed} == before and len(before) == 2
        assert [lease.inputs for lease in second.resumed if lease.spec.key == "b"] == [[m.Blob(data=b"of a")]]
        assert again.attempts[other.fence].started_s == began_s
        assert again.attempts[other.fence].number == 1 and again.tasks[1].state == "done"
        await closed(again, writer)

    asyncio.run(body())

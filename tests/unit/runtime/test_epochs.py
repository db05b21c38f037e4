"""A store's lives: what one placed is never taken for what another did, and only the last one writes."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.runtime import messages as m
from wattflow.runtime.compaction import rebuilt, take_snapshot
from wattflow.runtime.store_check import mend, problems
from wattflow.store import epochs, journal, reads
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import open_store
from wattflow.store.statements import Write
from wattflow.store.writer import Writer
from wattflow.store.writing import WritingProcess

from .test_recovery import NODE, Hand, closed, in_this_process, opened, task


def submission(workflow: str, *tasks: m.Task) -> m.Submission:
    return m.Submission(workflow=workflow, tasks=list(tasks), seal=True)


def test_a_store_put_back_from_a_backup_takes_no_result_of_its_later_life(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.stored()
        await closed(service, writer)
        with closing(sqlite3.connect(tmp_path / "s.db")) as source, closing(sqlite3.connect(backup / "s.db")) as copy:
            source.backup(copy)

        service, driver, writer = await opened(tmp_path)
        await service.submit(submission("alices", task("a")), "alice")
        (alices,) = driver.leases
        await closed(service, writer)

        again, second, writer = await opened(backup)
        await again.submit(submission("bobs", task("b")), "bob")
        (bobs,) = second.leases
        assert bobs.task == alices.task and bobs.number == alices.number  # all else is the same
        assert bobs.fence != alices.fence
        again.started(alices.fence, 0.0, 0.0)
        again.ended(m.Ended(fence=alices.fence, outcome="done", result=m.Blob(data=b"alice's")))
        again.energy(m.TaskEnergy(alices.fence, m.Energy(9.0, 9.0, 9.0, "measured")))
        assert again.log(alices.fence, 0, b"alice's output") is None
        again.ended(m.Ended(fence=bobs.fence, outcome="done", result=m.Blob(data=b"bob's")))
        await again.stored()
        (outcome,) = (await again.outcomes("bobs", 0, 0)).outcomes
        assert outcome.result == m.Blob(data=b"bob's")
        assert [row["energy_j"] for row in reads.attempts(open_store(backup / "s.db"), "bobs")] == [None]
        await closed(again, writer)

    asyncio.run(body())


def test_attempts_of_an_earlier_epoch_are_ended_stopped_and_told_apart_by_the_engine(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(submission("w", task("a"), task("b")), "me")
        first = [lease.fence for lease in driver.leases]
        await closed(service, writer)
        again, second, writer = await opened(tmp_path)
        await again.submit(submission("v", task("c")), "me")
        again.ended(m.Ended(fence=first[0], outcome="done"))
        await again.stored()
        (later,) = second.leases
        assert epochs.epoch_of(later.fence) > epochs.epoch_of(first[0]) == epochs.epoch_of(first[1])
        await again.cancel("w")
        await again.cancel("v")
        assert sorted(second.cancelled) == sorted([first[1], later.fence])
        await closed(again, writer)

    asyncio.run(body())


@pytest.mark.parametrize("process", [False, True])
def test_a_server_that_was_taken_over_commits_nothing_more(tmp_path: Path, process: bool) -> None:
    database = open_store(tmp_path / "s.db")
    ended: list[str] = []
    writing = WritingProcess(tmp_path / "s.db") if process else None
    writer = Writer(database, fatal=lambda: ended.append("once"), process=writing)
    writer.epoch = epochs.begin(database)
    writer.put((Write.META, {"key": "mine", "value": "1"}))
    assert writer.wait()
    later = epochs.begin(database)
    assert later > writer.epoch
    writer.put((Write.META, {"key": "mine", "value": "2"}))
    assert not writer.wait(0.5)
    writer.close()
    assert ended == ["once"] and "taken this store over" in str(writer.message)
    assert reads.meta(database)["mine"] == "1"


def test_epochs_grow_with_every_start_and_do_not_fall_behind_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_store(tmp_path / "s.db")
    monkeypatch.setattr("time.time", lambda: epochs.FIRST_S + 1.0)
    assert [epochs.begin(database), epochs.begin(database)] == [1000, 1001]
    monkeypatch.setattr("time.time", lambda: epochs.FIRST_S + 0.5)
    assert epochs.begin(database) == 1002
    assert epochs.begin(database, at_least=5000) == 5000


def broken_store(folder: Path, statement: str) -> sa.Engine:
    """A store with some work in it, and what a statement made of it."""

    async def body() -> None:
        service, driver, writer = await opened(folder)
        service.announce(NODE)
        for number in range(6):
            await service.submit(submission(f"w{number}", task("a")), "me")
        assert isinstance(driver, Hand)
        await closed(service, writer)

    asyncio.run(body())
    database = open_store(folder / "s.db")
    with database.begin() as connection:
        connection.execute(sa.text(statement))
    return database


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM journal WHERE sequence = 3", "entry 3 is missing"),
        ("DELETE FROM journal WHERE sequence <= 2", "entries 1 to 2 are missing"),
        ("DELETE FROM journal WHERE sequence > 5", "missing at its end"),
        (
            "UPDATE journal SET entry = (SELECT entry FROM journal WHERE sequence = 4) WHERE sequence = 3",
            "3 is damaged",
        ),
        ("UPDATE journal SET checksum = 1 WHERE sequence = 2", "entry 2 is damaged"),
    ],
)
def test_a_journal_with_a_gap_or_damage_is_named_and_not_started_from(
    tmp_path: Path, statement: str, message: str
) -> None:
    database = broken_store(tmp_path, statement)
    with pytest.raises(journal.Damaged, match=message) as told:
        rebuilt(database, tmp_path, "fifo")
    assert "wattflow store restore" in str(told.value)


@pytest.mark.slow
def test_snapshots_lie_in_the_store_and_segments_stay_up_to_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        database = open_store(tmp_path / "s.db")
        service.announce(NODE)
        ends = []
        for number in range(3):
            await service.submit(submission(f"w{number}", task("a")), "me")
            await take_snapshot(service, database, tmp_path)
            ends.append(service.ledger.next_entry - 1)
        assert not list(tmp_path.glob("engine-*"))
        assert reads.first_entry(database) == 1
        for entry in (*ends, 2):  # any of it can be looked at again, from another machine, too
            assert rebuilt(database, elsewhere, "fifo", up_to=entry)[1].sequence == entry
        await take_snapshot(service, database, tmp_path, keep_bytes=0)
        (last,) = journal.snapshots(database)
        assert reads.first_entry(database) in (None, last.sequence + 1)
        assert {row["sequence"] for row in reads.rows(database, sa.text("SELECT sequence FROM snapshot_pieces"))} == {  # type: ignore[arg-type]
            last.sequence
        }
        await closed(service, writer)
        with database.begin() as connection:
            connection.execute(sa.text("UPDATE snapshot_pieces SET data = x'00'"))
        with pytest.raises(journal.Damaged, match="snapshot"):
            rebuilt(database, tmp_path, "fifo")

    asyncio.run(body())


def test_of_snapshots_and_journal_as_much_is_kept_as_may_be() -> None:
    known = [journal.StoredSnapshot(n * 10, "fifo", 0.0, 0, "", 100, 50) for n in (1, 2, 3)]
    assert [journal.kept_from(known, most) for most in (0, 249, 250, 399, 400, 449, 450)] == [30, 30, 20, 20, 10, 10, 0]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM journal WHERE sequence = 3", "UPDATE journal SET entry = x'00' WHERE sequence = 4"]
)
def test_a_journal_with_a_gap_is_made_anew_from_the_tables_and_all_tasks_end(tmp_path: Path, statement: str) -> None:
    database = broken_store(tmp_path, statement)
    objects = FolderObjects(tmp_path / "objects")
    assert any("journal" in problem for problem in problems(database, objects, tmp_path))
    assert mend(database, "fifo") == 6
    assert list(problems(database, objects, tmp_path)) == []

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.stored()
        done = 0
        while done < len(driver.leases):
            service.ended(m.Ended(fence=driver.leases[done].fence, outcome="done"))
            await service.stored()
            done += 1
        assert done == 6 and driver.resumed == []
        await closed(service, writer)

    asyncio.run(body())
    assert {row["state"] for row in reads.workflows(database)} == {"done"}
    assert {row["outcome"] for n in range(6) for row in reads.attempts(database, f"w{n}")} == {"done", "node_lost"}


def test_a_check_names_tasks_that_the_engine_does_not_know_and_objects_that_are_gone(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "objects")
    good, bad, gone = (objects.put(data) for data in (b"good", b"bad", b"gone"))

    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        calls = [m.Task(key=name[:4], name="f", function=good, call=m.Blob(object=name), python="3.11")
                 for name in (bad, gone)]  # fmt: skip
        await service.submit(submission("w", *calls, task("lost")), "me")
        await closed(service, writer)

    asyncio.run(body())
    database = open_store(tmp_path / "s.db")
    assert list(problems(database, objects, tmp_path)) == []
    objects.path(bad).write_bytes(b"other")
    objects.path(gone).unlink()
    with database.begin() as connection:  # a task of an engine that nobody has
        connection.execute(sa.text("UPDATE tasks SET spec = CAST(x'92cf2fffffff00ffffff' || substr(spec, 11) AS BLOB) "
                                   "WHERE key = 'lost'"))  # fmt: skip
    told = "\n".join(problems(database, objects, tmp_path))
    assert f"objects are missing: {gone[:12]}… of w/{gone[:4]}" in told
    assert f"objects are damaged: {bad[:12]}… of w/{bad[:4]}" in told
    assert "does not know w/lost" in told

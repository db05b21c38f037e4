"""The store: groups, durability, layouts, trouble, objects."""

from __future__ import annotations

import gc
import sys
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.model.errors import InvalidInput
from wattflow.store import journal, reads, schema
from wattflow.store.objects import FolderObjects, object_name
from wattflow.store.schema import open_store
from wattflow.store.statements import Write
from wattflow.store.writer import LEAST, MOST, Checkpoints, Writer, last_of_each


def workflow(name: str) -> dict[str, object]:
    return {"id": name, "name": name, "owner": "me", "about": b"", "submitted_s": 1.0, "state": "open"}


def task(number: int, name: str) -> dict[str, object]:
    return {"id": number, "workflow": name, "key": str(number), "name": "t", "spec": b"", "submitted_s": 1.0,
            "state": "waiting", "attempts": 0}  # fmt: skip


def state(number: int, value: str) -> dict[str, object]:
    return {
        "b_id": number,
        "state": value,
        "attempts": 1,
        "ended_s": 2.0,
        "sequence": number,
        "result": None,
        "reason": None,
    }


def test_a_store_that_nobody_has_any_more_leaves_no_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python tells of one from 3.13 on, wherever the collector happens to run."""
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    database = open_store(tmp_path / "s.db")
    assert reads.workflows(database) == []
    del database
    gc.collect()
    assert told == []


def test_workflows_come_in_pages_whatever_arrived_at_one_time(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    about = {"name": "w", "owner": "me", "about": b"", "state": "open"}
    rows = [{"id": str(n), "submitted_s": float(n // 3), **about} for n in range(8)]
    with database.begin() as connection:
        connection.execute(sa.insert(schema.workflows), rows)
    told: list[str] = []
    while page := reads.workflows(database, most=3, after=told[-1] if told else None):
        told += [row["id"] for row in page]
    assert told == [str(n) for n in reversed(range(8))]
    assert reads.workflows(database, after="nowhere") == []


def test_what_was_put_is_there_after_it_settled(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    writer = Writer(database)
    writer.put((Write.WORKFLOW, workflow("w")), (Write.TASK, task(1, "w")))
    writer.put((Write.TASK_STATE, state(1, "done")))
    assert writer.wait()
    assert reads.workflows(database)[0]["tasks"] == {"done": 1}
    writer.close()
    assert reads.tasks(open_store(tmp_path / "s.db"), "w")[0]["state"] == "done"


def test_changes_of_one_row_keep_their_order_in_a_group(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    writer = Writer(database)
    rows = [(Write.TASK_STATE, state(1, name)) for name in ("running", "waiting", "running", "done")]
    writer.put((Write.WORKFLOW, workflow("w")), *rows, (Write.TASK, task(1, "w")))
    assert writer.wait()
    assert reads.tasks(database, "w")[0]["state"] == "done"
    writer.close()


def test_many_puts_make_few_commits(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    writer = Writer(database)
    writer.put((Write.WORKFLOW, workflow("w")))
    for number in range(1, 2001):
        writer.put((Write.TASK, task(number, "w")))
    assert writer.wait()
    assert len(reads.tasks(database, "w")) == 2000
    assert writer.figures.commits < 500
    writer.close()


def test_a_batch_is_never_split(tmp_path: Path) -> None:
    """A commit that fails half-way leaves nothing: the second row of the batch breaks the table's rule."""
    database = open_store(tmp_path / "s.db")
    writer = Writer(database, most=1)
    seen: list[int] = []

    @sa.event.listens_for(database, "commit")
    def count(connection: sa.Connection) -> None:
        seen.append(1)

    writer.put(*[(Write.TASK, task(number, "w")) for number in range(50)])
    assert writer.wait()
    assert len(seen) == 1
    writer.close()


def test_a_store_that_refuses_is_tried_until_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: nothing is dropped, trouble is told, and it goes on by itself."""
    database = open_store(tmp_path / "s.db")
    told: list[str | None] = []
    cured, refused = threading.Event(), threading.Event()

    @sa.event.listens_for(database, "before_cursor_execute")
    def full(*_: object) -> None:
        if not cured.is_set() and threading.current_thread().name == "wattflow-writer":
            refused.set()
            raise sa.exc.OperationalError("insert", {}, Exception("database or disk is full"))

    monkeypatch.setattr("wattflow.store.writer.RETRY_S", 0.01)
    writer = Writer(database, trouble=told.append)
    writer.put((Write.WORKFLOW, workflow("w")))
    assert refused.wait(5)
    settled = threading.Event()
    writer.settled(settled.set)
    assert not settled.is_set()
    cured.set()
    assert settled.wait(5)
    assert told == ["database or disk is full", None]
    assert len(reads.workflows(database)) == 1
    writer.close()


def test_older_and_newer_layouts_are_refused_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    open_store(path).dispose()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="older layout"):
        open_store(path)
    assert path.read_bytes() == before
    open_store(path, upgrade=True).dispose()
    open_store(path).dispose()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION - 1)
    with pytest.raises(InvalidInput, match="newer wattflow"):
        open_store(path)


def test_objects_are_kept_once_and_no_name_leads_out(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "o")
    name = objects.put(b"data")
    assert objects.put(b"data") == name == object_name(b"data")
    assert objects.get(name) == b"data" and objects.has(name)
    with pytest.raises(KeyError):
        objects.get("0" * 64)
    for bad in ("../../etc/passwd", "0" * 63, "0" * 65, "A" * 64, ""):
        with pytest.raises(InvalidInput):
            objects.get(bad)


def test_a_commit_whose_answer_was_lost_is_not_made_again(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    lost = threading.Event()

    def lose_the_answer(connection: sa.Connection) -> None:
        if not lost.is_set():
            connection.connection.commit()
            lost.set()
            raise sa.exc.OperationalError("COMMIT", {}, Exception("disk I/O error"))

    sa.event.listen(database, "commit", lose_the_answer)
    writer = Writer(database)
    writer.put((Write.WORKFLOW, workflow("w")), (Write.JOURNAL, {"sequence": 1, "entry": b"x"}))
    assert writer.wait() and lost.is_set()
    writer.put((Write.TASK, task(1, "w")), (Write.JOURNAL, {"sequence": 2, "entry": b"y"}))
    assert writer.wait()
    assert [entry for _, entry in reads.journal(database, 0)] == [b"x", b"y"]
    assert writer.message is None
    writer.close()


def test_a_row_that_can_never_be_written_ends_the_writer_loudly(tmp_path: Path) -> None:
    ended = threading.Event()
    writer = Writer(open_store(tmp_path / "s.db"), fatal=ended.set)
    writer.put((Write.WORKFLOW, workflow("w")))
    writer.put((Write.WORKFLOW, workflow("w")))
    assert ended.wait(30)
    assert writer.message is not None and "UNIQUE" in writer.message
    writer.close()


def test_durations_tell_quantiles_that_are_never_too_short() -> None:
    from wattflow.store.durations import Durations

    found = Durations()
    assert found.quantile(0.5) is None
    for number in range(1, 1001):
        found.add(number / 1e4)
    for share in (0.001, 0.5, 0.99, 1.0):
        true_s = share * 1000 / 1e4
        told_s = found.quantile(share)
        assert told_s is not None and true_s <= told_s * (1 + 1e-9) <= 1.06 * true_s * (1 + 1e-6)
    assert found.longest_s == 0.1
    found.add(1e9)
    assert found.longest_s == found.quantile(1.0) == 1e9


def test_of_several_changes_of_a_row_in_a_group_the_last_is_written() -> None:
    states = [{"b_id": n % 2, "state": str(n)} for n in range(4)]
    assert last_of_each(Write.TASK_STATE, list(states)) == [{"b_id": 0, "state": "2"}, {"b_id": 1, "state": "3"}]
    same = [{"sequence": 1}, {"sequence": 1}]
    assert last_of_each(Write.JOURNAL, list(same)) == same  # never silently: the store is to refuse it


def test_groups_shrink_while_rows_are_slow_and_grow_again(tmp_path: Path) -> None:
    writer = Writer(open_store(tmp_path / "s.db"))
    writer._row_s = 1.0
    writer._waiting.extend([(0.0, ((Write.WORKFLOW, workflow(f"w{n}")),)) for n in range(300)])
    assert len(writer._take().rows[Write.WORKFLOW]) == LEAST
    writer._row_s = 1e-9
    assert len(writer._take().rows[Write.WORKFLOW]) == MOST
    writer._waiting.clear()
    writer.close()


def test_the_log_is_copied_back_by_a_thread_and_not_by_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattflow.store.writer.LOG_BYTES", 1 << 20)
    database = open_store(tmp_path / "s.db")
    checkpoints = Checkpoints(database, every_s=0.01, worth_bytes=1)
    size = (tmp_path / "s.db").stat().st_size
    end_s = time.monotonic() + 30
    number = 0
    while (tmp_path / "s.db").stat().st_size == size:
        assert time.monotonic() < end_s
        with database.begin() as connection:
            connection.execute(sa.insert(schema.journal), {"sequence": number, "entry": b"x" * 10_000})
        number += 1
    checkpoints.close()
    database.dispose()


def test_a_short_log_is_copied_back_when_nothing_is_committed(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    size = (tmp_path / "s.db").stat().st_size
    with database.begin() as connection:
        connection.execute(sa.insert(schema.journal), {"sequence": 1, "entry": b"x" * 100_000})
    assert (tmp_path / "s.db").stat().st_size == size
    checkpoints = Checkpoints(database, every_s=0.01, worth_bytes=1)
    end_s = time.monotonic() + 30
    while (tmp_path / "s.db").stat().st_size == size:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    checkpoints.close()
    database.dispose()


def test_a_task_is_found_by_its_key_among_many_and_answers_come_in_pages(tmp_path: Path) -> None:
    database = open_store(tmp_path / "s.db")
    many = 12_000
    with database.begin() as connection:
        rows = [task(n, "w") | {"key": f"k{n}", "state": "done", "attempts": 2} for n in range(1, many + 1)]
        connection.execute(sa.insert(schema.tasks), rows)
        tried = [{"task": n, "number": i, "fence": 2 * n + i, "node": "n", "device": -1, "variant": 0, "ready_s": 0.0,
                  "placed_s": 0.0} for n in range(1, many + 1) for i in (1, 2)]  # fmt: skip
        connection.execute(sa.insert(schema.attempts), tried)
    (last,) = reads.tasks(database, "w", key=f"k{many}")
    assert last["id"] == many and reads.tasks(database, "w", key="k0") == []
    seen: list[tuple[int, int]] = []
    while page := reads.attempts(database, "w", after=seen[-1][0] if seen else 0, most=999):
        assert len(page) <= 999
        seen += [(row["task"], row["number"]) for row in page]
    assert seen == [(n, i) for n in range(1, many + 1) for i in (1, 2)]
    assert len(reads.attempts(database, "w", key="k7", most=1)) == 1


def _append(database: sa.Engine, sequence: int, before: int) -> int:
    """Write an entry and the head in one transaction, as the server does."""
    data = str(sequence).encode()
    checksum = journal.chained(before, sequence, data)
    head = journal.head(sequence, checksum)
    with database.begin() as connection:
        connection.execute(sa.insert(schema.journal), {"sequence": sequence, "entry": data, "checksum": checksum})
        connection.execute(sa.delete(schema.meta).where(schema.meta.c.key == head["key"]))
        connection.execute(sa.insert(schema.meta), head)
    return checksum


def test_a_journal_is_read_while_it_grows(tmp_path: Path) -> None:
    """A forecast beside a busy server took entries that came meanwhile for ones that are missing."""
    writer, reader = open_store(tmp_path / "s.db"), open_store(tmp_path / "s.db")
    checksum = _append(writer, 2, _append(writer, 1, 0))
    found = journal.entries(reader, 0)
    read = [next(found).sequence]
    _append(writer, 3, checksum)
    read += [entry.sequence for entry in found]
    assert read in ([1, 2], [1, 2, 3])
    with writer.begin() as connection:
        connection.execute(sa.delete(schema.journal).where(schema.journal.c.sequence == 3))
    with pytest.raises(journal.Damaged, match="entry 3 is missing at its end"):
        list(journal.entries(reader, 0))

"""The process that commits: the same rows as a thread writes, one at a time on a store, and nothing lost with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.store import reads, schema, statements
from wattflow.store.schema import Row, open_store
from wattflow.store.statements import Write
from wattflow.store.writer import Writer
from wattflow.store.writing import Refused, WritingProcess, ask_for_short_turns, make_room, settings

Batch = list[tuple[Write, Row]]


def journal(number: int) -> tuple[Write, Row]:
    return Write.JOURNAL, {"sequence": number, "entry": bytes([number % 256]) * number}


def batches(tasks: int = 150) -> list[Batch]:
    """Every change there is, of so many rows that all sizes of statements are used, some rows changed twice."""
    flow: Row = {"id": "w", "name": "w", "owner": "me", "about": b"\x00'\"", "submitted_s": 1.0, "state": "open"}
    made: list[Batch] = [[(Write.WORKFLOW, flow)], []]
    for n in range(tasks):
        key = {"b_task": n, "b_number": 1}
        made[1].append((Write.TASK, {"id": n, "workflow": "w", "key": f"k'{n}", "name": "t", "spec": b"\xff\x00",
                                      "submitted_s": n / 3, "state": "waiting", "attempts": 0}))  # fmt: skip
        made.append([
            (Write.ATTEMPT, {"task": n, "number": 1, "fence": 2**62 + n, "node": "a", "device": -1, "variant": 0,
                              "ready_s": 1.0, "placed_s": 2.0}),
            (Write.ATTEMPT_STARTED, key | {"started_s": 3.0, "cold_s": None}),
            (Write.ATTEMPT_ENDED, key | {"outcome": "done", "started_s": 3.5, "ended_s": 4.0, "cold_s": 0.1,
                                          "cpu_s": 0.2, "peak_bytes": n, "reason": None, "gpu_duty": None,
                                          "gpu_beside": None, "gpu_samples": None}),
            (Write.ATTEMPT_ENERGY, key | {"energy_j": 1.5, "low_j": 1.0, "high_j": 2.0, "marginal_j": 0.5,
                                           "provenance": "modelled"}),
            (Write.TASK_STATE, {"b_id": n, "state": "running", "attempts": 1, "ended_s": None, "sequence": None,
                                 "result": None, "reason": None}),
            (Write.TASK_STATE, {"b_id": n, "state": "done", "attempts": 1, "ended_s": 4.0, "sequence": n,
                                 "result": b"\x01" * n, "reason": "ü"}),
            (Write.ENERGY, {"node": "a", "began_s": float(n), "ended_s": n + 1.0, "counted_j": 1.0, "idle_j": 0.5,
                             "tasks_j": 0.25, "unattributed_j": 0.25, "provenance": "modelled"}),
            (Write.NODE, {"name": "a", "spec": b"", "state": "on", "seen_s": float(n)}),
            (Write.META, {"key": "snapshot", "value": str(n)}),
            journal(n + 1),
        ])  # fmt: skip
    end: Row = {"b_id": "w", "state": "done", "ended_s": 9.0, "about": b"x"}
    forget: Row = {"b_from": 1, "b_to": 100}
    return [*made, [(Write.WORKFLOW_STATE, end), (Write.JOURNAL_FORGET, forget)]]


def contents(database: sa.Engine) -> dict[str, list[tuple[object, ...]]]:
    """All rows but the store's own name."""
    with database.connect() as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key))
                if row[0] != "identity"
            ]
            for table in schema.metadata.sorted_tables
        }


def written(folder: Path, process: WritingProcess | None) -> dict[str, list[tuple[object, ...]]]:
    database = open_store(folder / "s.db")
    writer = Writer(database, process=process)
    for batch in batches():
        writer.put(*batch)
    assert writer.wait()
    found = contents(database)
    assert writer.figures.commit_s.count == writer.figures.disk_s.count == writer.figures.commits > 0
    writer.close()
    return found


def test_process_and_thread_write_the_same(tmp_path: Path) -> None:
    for name in ("thread", "process"):
        (tmp_path / name).mkdir()
    process = WritingProcess(tmp_path / "process" / "s.db")
    process.wait_until_ready()
    there = written(tmp_path / "process", process)
    assert there == written(tmp_path / "thread", None)
    assert len(there["journal"]) == 51 and there["tasks"][149][6] == "done" and len(there["attempts"]) == 150


def test_a_sqlite_that_cannot_change_many_rows_at_once_is_written_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
    wanted = written(tmp_path / "new", None)
    monkeypatch.setattr(statements, "FROM_VALUES", False)
    monkeypatch.setattr(statements.Update, "text", lambda *_: "UPDATE is not understood like this")
    process = WritingProcess(tmp_path / "old" / "s.db")
    process.wait_until_ready()
    assert written(tmp_path / "old", process) == wanted


def test_a_statement_that_is_not_understood_is_never_tried_again(tmp_path: Path) -> None:
    open_store(tmp_path / "s.db").dispose()
    process = WritingProcess(tmp_path / "s.db")
    with pytest.raises(Refused, match="syntax") as refused:
        process.commit([("UPDATE tasks SET state = SET", [()])])
    assert not refused.value.passing
    process.close()


def test_a_process_that_dies_is_replaced_and_nothing_is_lost_or_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattflow.store.writer.RETRY_S", 0.01)
    told: list[str | None] = []
    process = WritingProcess(tmp_path / "s.db")
    process.wait_until_ready()
    database = open_store(tmp_path / "s.db")
    writer = Writer(database, process=process, trouble=told.append)
    for number in range(1, 301):
        writer.put(journal(number))
        if number % 100 == 50:
            assert writer.wait()
            os.kill(process._process.pid, signal.SIGKILL)
    assert writer.wait()
    assert [number for number, _ in reads.journal(database, 0)] == list(range(1, 301))
    assert told and told[-1] is None and "has ended" in str(told[0])
    writer.close()


def test_a_commit_that_was_made_before_the_process_died_is_not_made_again(tmp_path: Path) -> None:
    process = WritingProcess(tmp_path / "s.db")
    process.wait_until_ready()
    database = open_store(tmp_path / "s.db")
    commit, lost = process.commit, threading.Event()

    def without_answer(statements: object) -> tuple[float, float]:
        took = commit(statements)  # type: ignore[arg-type]
        if not lost.is_set():
            lost.set()
            raise Refused("no answer", passing=True)
        return took

    process.commit = without_answer  # type: ignore[method-assign]
    writer = Writer(database, process=process)
    writer.put(journal(1))
    writer.put(journal(2))
    assert writer.wait() and lost.is_set() and writer.message is None
    assert [number for number, _ in reads.journal(database, 0)] == [1, 2]
    writer.close()


def test_what_can_never_be_written_is_told_and_ends_the_writer(tmp_path: Path) -> None:
    ended = threading.Event()
    process = WritingProcess(tmp_path / "s.db")
    process.wait_until_ready()
    writer = Writer(open_store(tmp_path / "s.db"), process=process, fatal=ended.set)
    writer.put(journal(1))
    assert writer.wait()
    writer.put(journal(1))
    assert ended.wait(30) and writer.message is not None and "UNIQUE" in writer.message
    writer.close()


def test_a_process_waits_for_the_one_before_and_ends_with_its_server(tmp_path: Path) -> None:
    """Of a server that was killed a commit may still be under way: the next one reads nothing before that is over."""
    with (tmp_path / "s.db-writer").open("a") as before:
        fcntl.flock(before, fcntl.LOCK_EX)
        process = WritingProcess(tmp_path / "s.db")
        process._socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            process.wait_until_ready()
    process._socket.settimeout(30)
    process.wait_until_ready()
    process._socket.close()
    assert process._process.wait(30) == 0


def test_a_store_that_cannot_be_locked_is_told(tmp_path: Path) -> None:
    process = WritingProcess(tmp_path / "nowhere" / "s.db")
    with pytest.raises(Refused, match="No such file"):
        process.wait_until_ready()
    assert process._process.wait(30) == 0  # whoever has no lock takes no group, though its server is still there
    process.close()


def test_a_process_that_dies_while_it_starts_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattflow.store.writing.sys.executable", "false")
    process = WritingProcess(tmp_path / "s.db")
    with pytest.raises(OSError, match=r"did not start \(see server\.log\)"):
        process.wait_until_ready()
    process.close()


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_log_with_room_may_be_read_by_whom_the_store_may(tmp_path: Path, mode: int) -> None:
    store = tmp_path / "s.db"
    with contextlib.closing(sqlite3.connect(store)) as other:
        settings(other)
        other.execute("create table t (a)")
    store.chmod(mode)
    make_room(store, 1 << 12)
    assert stat.S_IMODE(Path(f"{store}-wal").stat().st_mode) == mode


def test_a_log_with_room_is_an_empty_one_and_never_replaces_one(tmp_path: Path) -> None:
    store, log = tmp_path / "s.db", tmp_path / "s.db-wal"
    make_room(store, 1 << 20)
    assert not log.exists()  # there is no store yet
    database = open_store(store)
    writer = Writer(database)
    writer.put(journal(1))
    assert writer.wait()
    writer.close()
    database.dispose()
    assert not log.exists()
    make_room(store, 1 << 20)
    assert log.stat().st_size == 1 << 20 and not list(tmp_path.glob("*room*"))
    with contextlib.closing(sqlite3.connect(store)) as other:
        assert other.execute("select count(*) from journal").fetchone() == (1,)
        other.execute("insert into journal (sequence, entry) values (2, x'00')")
        other.commit()
        before = log.read_bytes()
        assert len(before) == 1 << 20
        make_room(store, 2 << 20)
        assert log.read_bytes() == before
    assert [number for number, _ in reads.journal(open_store(store), 0)] == [1, 2]


def test_short_turns_leave_priority_and_policy_alone() -> None:
    found: list[object] = []

    def ask() -> None:
        before = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
        asked = ask_for_short_turns()
        found.extend([asked, before == (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))])

    thread = threading.Thread(target=ask)  # a thread of its own: the others of this test run keep theirs
    thread.start()
    thread.join()
    assert found[0] in (True, False) and found[1] is True

"""Backups made while rows are written, put back, and refused where they are not whole; damaged objects."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.store import epochs, reads
from wattflow.store.backup import back_up, put_back, read_manifest
from wattflow.store.objects import FolderObjects, ObjectDamaged
from wattflow.store.schema import StoreTrouble, open_store, read_store
from wattflow.store.statements import Write
from wattflow.store.writer import Writer
from wattflow.store.writing import WritingProcess


def test_a_backup_is_of_one_moment_while_rows_are_written(tmp_path: Path) -> None:
    store, objects = tmp_path / "s.db", FolderObjects(tmp_path / "o")
    name = objects.put(b"large")
    database = open_store(store)
    writer, done = Writer(database, process=WritingProcess(store)), threading.Event()
    writer.epoch = epochs.begin(database)

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            node = {"name": f"n{number}", "spec": b"", "state": "on", "seen_s": float(number)}
            entry = {"sequence": number, "entry": b"x" * 100, "checksum": number}
            writer.put((Write.NODE, node), (Write.JOURNAL, entry))  # always together
            if number % 50 == 0:
                writer.wait()

    thread = threading.Thread(target=write)
    thread.start()
    reading = read_store(store)
    try:
        while len(reads.nodes(database)) < 100:
            pass
        made = [back_up(reading, objects, tmp_path / f"b{n}", lambda _: {name, "f" * 64}) for n in range(3)]
    finally:
        done.set()
        thread.join()
        writer.close()
    for number, manifest in enumerate(made):
        assert manifest.rows["nodes"] == manifest.rows["journal"] >= 100
        assert (manifest.objects, manifest.missing) == (1, ["f" * 64])
        assert read_manifest(tmp_path / f"b{number}") == manifest
        assert (tmp_path / f"b{number}").stat().st_mode & 0o77 == 0
    with pytest.raises(InvalidInput, match="folder of its own"):
        back_up(reading, objects, tmp_path / "b0", lambda _: set())
    _put_back(tmp_path, made[1].rows["nodes"], name)


def _put_back(folder: Path, nodes: int, name: str) -> None:
    target, objects = folder / "again" / "s.db", FolderObjects(folder / "p")
    target.parent.mkdir()
    before = (folder / "b1" / "store.db").read_bytes()
    put_back(folder / "b1", target, objects, at_least=10**13)
    assert (folder / "b1" / "store.db").read_bytes() == before
    database = open_store(target)
    assert len(reads.nodes(database)) == nodes and objects.get(name) == b"large"
    with database.connect() as connection:
        assert epochs.current(connection) == 10**13 + 1
    database.dispose()
    with pytest.raises(InvalidInput, match="--replace"):
        put_back(folder / "b2", target, objects)
    put_back(folder / "b2", target, objects, replace=True)
    assert [path.name for path in target.parent.glob("s.db-before-*") if not path.name.endswith(("wal", "shm"))]
    process = WritingProcess(target)
    process.wait_until_ready()
    with pytest.raises(StoreTrouble, match="another server"):
        put_back(folder / "b2", target, objects, replace=True)
    process.close()


def test_what_is_no_whole_backup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no whole backup"):
        read_manifest(tmp_path)
    database = open_store(tmp_path / "s.db")
    back_up(database, FolderObjects(tmp_path / "o"), tmp_path / "b", lambda _: set())
    with (tmp_path / "b" / "store.db").open("r+b") as file:
        file.seek(4000)
        file.write(b"damage")
    with pytest.raises(InvalidInput, match="damaged"):
        put_back(tmp_path / "b", tmp_path / "t.db", FolderObjects(tmp_path / "p"))
    assert not (tmp_path / "t.db").exists()


def test_a_damaged_object_is_noticed_when_read_and_healed_when_put(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    name = objects.put(b"what it was")
    objects.path(name).write_bytes(b"what it is not")
    with pytest.raises(ObjectDamaged, match=f"object {name}.*another hash"):
        objects.get(name)
    with pytest.raises(KeyError):
        objects.get(name)
    assert objects.put(b"what it was") == name and objects.get(name) == b"what it was"
    assert objects.names() == {name}


def test_a_store_that_is_removed_under_a_server_is_told_and_not_made_anew(tmp_path: Path) -> None:
    store, ended = tmp_path / "s.db", threading.Event()
    database = open_store(store)
    writer = Writer(database, process=WritingProcess(store), fatal=ended.set)
    writer.put((Write.META, {"key": "a", "value": "1"}))
    assert writer.wait()
    store.rename(tmp_path / "elsewhere.db")
    writer.put((Write.META, {"key": "a", "value": "2"}))
    assert ended.wait(10) and "removed or replaced" in str(writer.message)
    writer.close()
    assert not store.exists()

"""A store in a folder of any name: read, written, backed up and asked from other processes where it lies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from wattflow.runtime import compaction
from wattflow.server.reader_process import ReaderProcess
from wattflow.store import epochs, reads
from wattflow.store.backup import back_up, put_back
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import address_of, open_store, read_store
from wattflow.store.statements import Write
from wattflow.store.writer import Writer
from wattflow.store.writing import WritingProcess

NODE = {"name": "n", "spec": b"", "state": "on", "seen_s": 1.0}
NAMES = (
    "höm é", "a=b", "a&b", "a#b", "it's", 'a"b', "a?b", "a?mode=memory", "%41", "100%", "a%2Fb", "a;b", "a:b@c", "a\\b",
    "file:x", "sqlite:", "a+b", "日本", "new\nline", "~",
)  # fmt: skip
odd = pytest.mark.parametrize("name", NAMES)


@odd
def test_a_store_lies_where_its_path_says(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    store, objects = folder / "s.db", FolderObjects(folder / "objects")
    database = open_store(store)
    assert address_of(database) == str(store)
    writer = Writer(database, process=WritingProcess(store))
    writer.epoch = epochs.begin(database)
    writer.put((Write.NODE, NODE))
    writer.wait()
    writer.close()
    for address in (store, address_of(database)):
        reading = read_store(address)
        assert [row["name"] for row in reads.nodes(reading)] == ["n"]
        with pytest.raises(sa.exc.OperationalError, match="readonly"), reading.begin() as connection:
            connection.exec_driver_sql("DELETE FROM nodes")
        reading.dispose()
    back_up(database, objects, folder / "backup", lambda _: set())
    database.dispose()
    put_back(folder / "backup", folder / "again.db", objects)
    again = read_store(folder / "again.db")
    assert len(reads.nodes(again)) == 1
    again.dispose()
    # Beside it nothing was made: `?` ends the path of a URL.
    assert [path.name for path in tmp_path.iterdir()] == [name]


@odd
def test_a_snapshot_is_made_of_the_store_that_is_named(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    database = open_store(folder / "s.db")
    about = msgspec.json.decode(compaction.write_snapshot(address_of(database), folder, 0, "fifo"))
    database.dispose()
    assert (folder / about["file"]).is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.slow
def test_the_process_beside_the_server_finds_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "höm=é&#'?%41 b"
    folder.mkdir()
    database = open_store(folder / "s.db")
    reader = ReaderProcess(address_of(database), folder)
    try:
        with pytest.raises(Exception, match="no workflow"):
            asyncio.run(reader.ask("run", workflow="none"))
    finally:
        reader.close()
        database.dispose()


@pytest.mark.parametrize("password", ["p%40:/?#w", "plain"])
def test_a_database_is_addressed_as_it_is_opened(password: str) -> None:
    pytest.importorskip("psycopg")
    url = sa.URL.create("postgresql+psycopg", "me", password, "host", 5432, "flows")
    database = sa.create_engine(url)
    told = address_of(database)
    assert told.startswith("postgresql://") and sa.make_url(told).set(drivername="postgresql+psycopg") == url
    assert password not in address_of(database, hide_password=True)

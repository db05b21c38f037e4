"""Older layouts are brought up to date, whatever was done of that before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from wattflow.model.errors import InvalidInput
from wattflow.store import reads, schema
from wattflow.store.schema import open_store

GPU = {"gpu_duty": "DOUBLE PRECISION", "gpu_beside": "DOUBLE PRECISION", "gpu_samples": "INTEGER"}
OF_THE_FIRST = ("meta", "workflows", "tasks", "attempts", "nodes", "energy", "journal")


def first_layout(path: Path, done: int = 0) -> None:
    """A store as the first layout was, with so many statements of its own migration done before a kill."""
    database = open_store(path)
    with database.begin() as connection:
        for table in schema.metadata.tables.keys() - set(OF_THE_FIRST):
            connection.execute(sa.text(f"DROP TABLE {table}"))
        connection.execute(sa.text("DROP INDEX attempts_on_gpus"))
        for name in [*GPU][done:]:
            connection.execute(sa.text(f"ALTER TABLE attempts DROP COLUMN {name}"))
        connection.execute(sa.text("UPDATE meta SET value = '1' WHERE key = 'version'"))
    database.dispose()  # the log goes into the file, which is copied alone


def shape(database: sa.Engine) -> dict[str, tuple[set[str], set[str]]]:
    """Tables with their columns and indexes, in whatever order they were made."""
    here = sa.inspect(database)
    return {
        table: (
            {column["name"] for column in here.get_columns(table)},
            {str(index["name"]) for index in here.get_indexes(table)},
        )
        for table in here.get_table_names()
    }


@pytest.mark.parametrize("done", range(len(GPU) + 1))
def test_an_older_migration_that_was_killed_half_way_goes_on(tmp_path: Path, done: int) -> None:
    path = tmp_path / "s.db"
    first_layout(path, done)
    with pytest.raises(InvalidInput, match="older layout 1"):
        open_store(path)
    database = open_store(path, upgrade=True)
    assert shape(database) == shape(open_store(tmp_path / "fresh.db"))
    assert reads.gpu_uses(database) == []
    assert reads.meta(database)["version"] == str(schema.VERSION)


def killed_at(statement: int, path: Path) -> bool:
    """Upgrade in a process that ends without a word before its so manyth statement; False where it had fewer."""
    child = os.fork()
    if child == 0:
        count = 0

        def look(*_: object) -> None:
            nonlocal count
            count += 1
            if count > statement:
                os._exit(9)

        sa.event.listen(sa.Engine, "before_cursor_execute", look)
        open_store(path, upgrade=True)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.slow  # a process for each of a hundred statements
@pytest.mark.parametrize("older", [True, False], ids=["upgrade", "first start"])
def test_a_kill_at_any_statement_leaves_a_store_that_can_go_on(tmp_path: Path, older: bool) -> None:
    fresh = shape(open_store(tmp_path / "fresh.db"))
    first_layout(tmp_path / "older.db", done=1)
    statement = 0
    while True:
        path = tmp_path / f"{statement}.db"
        if older:
            shutil.copy(tmp_path / "older.db", path)
            with pytest.raises(InvalidInput, match="older layout 1"):
                open_store(path)
        killed = killed_at(statement, path)
        database = open_store(path, upgrade=True)
        assert shape(database) == fresh
        database.dispose()
        if not killed:
            break
        statement += 1
    assert statement > len(OF_THE_FIRST)


def test_a_store_whose_making_was_never_finished_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with open_store(path).begin() as connection:  # what a kill between the tables and the version left before
        connection.execute(sa.text("DELETE FROM meta"))
        connection.execute(sa.text("DROP TABLE journal"))
    assert shape(open_store(path)) == shape(open_store(tmp_path / "fresh.db"))


def test_a_column_that_old_rows_could_not_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = open_store(tmp_path / "s.db")
    changed = sa.MetaData()
    sa.Table("meta", changed, sa.Column("key", sa.Text), sa.Column("new", sa.Text, nullable=False))
    monkeypatch.setattr(schema, "metadata", changed)
    with pytest.raises(TypeError, match=r"meta\.new"), database.begin() as connection:
        schema.complete(connection)


def test_a_new_table_and_a_column_with_a_default_come_with_the_next_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    open_store(path).dispose()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    changed = sa.MetaData()
    sa.Table("meta", changed, sa.Column("key", sa.Text), sa.Column("size", sa.Integer, nullable=False,
             server_default="7"))  # fmt: skip
    sa.Table("more", changed, sa.Column("id", sa.Integer, primary_key=True), sa.Column("x", sa.Text, index=True))
    monkeypatch.setattr(schema, "metadata", changed)
    database = open_store(path, upgrade=True)
    assert reads.rows(database, sa.text("SELECT DISTINCT size FROM meta")) == [{"size": 7}]  # type: ignore[arg-type]
    assert "ix_more_x" in shape(database)["more"][1]

"""The store on a real PostgreSQL: the same writes, reads and restarts as on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_rig import empty, url

from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime.compaction import take_snapshot
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.recovery import restore
from wattflow.runtime.service import Service
from wattflow.store import epochs, reads, schema
from wattflow.store.backup import back_up, put_back
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import open_store, read_store
from wattflow.store.statements import Write
from wattflow.store.thinning import pieces
from wattflow.store.writer import Writer

__all__ = ["empty", "url"]
pytestmark = pytest.mark.xdist_group("runtime-postgres")


class Hand:
    """A driver that keeps what it is given."""

    name = "hand"
    queues = False

    def __init__(self) -> None:
        self.leases: list[m.Lease] = []

    async def start(self, sink: Sink) -> None:
        return None

    async def stop(self) -> None:
        return None

    def resume(self, nodes: Sequence[str], leases: Sequence[m.Lease]) -> None:
        self.leases += leases

    def launch(self, leases: Sequence[m.Lease]) -> None:
        self.leases += leases

    def cancel(self, fences: Sequence[int]) -> None:
        return None

    def power(self, node: str, *, on: bool) -> None:
        return None

    def warm(self, node: str, order: m.Warm) -> None:
        return None


def test_a_service_works_and_restarts_on_postgresql(url: str, tmp_path: Path) -> None:
    databases: list[sa.Engine] = []

    async def opened() -> tuple[Service, Hand, Writer]:
        database = open_store(url)
        writer, driver = Writer(database), Hand()
        service = restore(database, writer, driver, tmp_path, "fifo")
        await service.start()
        databases.append(database)
        return service, driver, writer

    async def body() -> None:
        service, driver, writer = await opened()
        service.announce(m.Node(name="n", cpus=1.0, memory_bytes=1 << 30))
        tasks = [m.Task(key=str(n), name="t", command=["true"], parents=["0"] if n else []) for n in range(5)]
        await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True), "me")
        (lease,) = driver.leases
        await take_snapshot(service, databases[-1], tmp_path, keep_bytes=0)
        assert len(list(reads.journal(databases[-1], 0))) <= 2  # what came after it
        await service.stop()
        writer.close()

        again, second, writer = await opened()
        assert [resumed.fence for resumed in second.leases] == [lease.fence]
        done = 0
        while done < len(second.leases):
            fence = second.leases[done].fence
            again.ended(m.Ended(fence=fence, outcome="done", result=m.Blob(data=b"x")))
            again.energy(m.TaskEnergy(fence, m.Energy(1.5, 1.0, 2.0, "modelled")))
            again.window("n", m.Window(float(done), done + 1.0, 2.0, 1.0, 0.5, 0.5, "modelled"))
            again.window("n", m.Window(float(done), done + 1.0, 2.0, 1.0, 0.5, 0.5, "modelled"))
            await again.stored()
            done += 1
        assert done == 5
        await again.stop()
        writer.close()

    asyncio.run(body())
    for used in databases:
        used.dispose()
    database = open_store(url)
    assert reads.workflows(database)[0]["tasks"] == {"done": 5}
    rows = reads.attempts(database, "w")
    assert [row["energy_j"] for row in rows] == [1.5] * 5
    assert len(reads.energy(database, 0.0, 100.0)) == 5
    assert len(reads.outcomes(database, "w", 0, 10)) == 5
    assert list(reads.expire(database, 1e12))
    database.dispose()


def test_whoever_learns_reads_beside_the_server_and_writes_nothing(url: str) -> None:
    open_store(url).dispose()
    database = read_store(url)
    assert reads.meta(database)["version"]
    with pytest.raises(sa.exc.DBAPIError, match="read-only"), database.begin() as connection:
        connection.execute(sa.text("DELETE FROM workflows"))
    database.dispose()


@pytest.mark.parametrize("done", [0, 2])
def test_an_older_layout_is_brought_up_to_date_also_half_way(empty: str, done: int) -> None:
    database = open_store(empty)
    with database.begin() as connection:
        connection.execute(sa.text("DROP INDEX attempts_on_gpus"))
        for name in ["gpu_duty", "gpu_beside", "gpu_samples"][done:]:
            connection.execute(sa.text(f"ALTER TABLE attempts DROP COLUMN {name}"))
        connection.execute(sa.text("UPDATE meta SET value = '1' WHERE key = 'version'"))
    database.dispose()
    database = open_store(empty, upgrade=True)
    assert reads.gpu_uses(database) == []
    here = sa.inspect(database)
    for table in schema.metadata.sorted_tables:
        assert {column["name"] for column in here.get_columns(table.name)} == set(table.columns.keys())
    database.dispose()


def test_a_backup_goes_from_one_database_to_the_other_and_back(empty: str, tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "objects")
    database = open_store(empty)
    writer = Writer(database)
    writer.epoch = epochs.begin(database)
    node = {"name": "n", "spec": b"\x00\xff", "state": "on", "seen_s": 1.5}
    windows = [{"node": "n", "began_s": float(n), "ended_s": n + 1.0, "counted_j": 1.1, "idle_j": 0.5, "tasks_j": 0.5,
                "unattributed_j": 0.1, "provenance": "measured"} for n in range(600)]  # fmt: skip
    writer.put((Write.NODE, node), *((Write.ENERGY, window) for window in windows))
    assert writer.wait()
    for batch in pieces(database, 10_000.0):
        writer.put(*batch)
    writer.put((Write.ENERGY, windows[7]))  # it came before, and is part of a wider one by now
    assert writer.wait()
    writer.close()
    assert len(reads.energy(database, 0.0, 1e6)) == 60
    made = back_up(database, objects, tmp_path / "backup", lambda _: set())
    with pytest.raises(InvalidInput, match="--replace"):
        put_back(tmp_path / "backup", empty, objects)
    put_back(tmp_path / "backup", tmp_path / "s.db", objects)
    there = open_store(tmp_path / "s.db")
    assert len(reads.energy(there, 0.0, 1e6)) == 60 and reads.nodes(there)[0]["spec"] == b"\x00\xff"
    put_back(tmp_path / "backup", empty, objects, replace=True)
    assert reads.nodes(database) == reads.nodes(there)
    assert sum(row["counted_j"] for row in reads.energy(database, 0.0, 1e6)) == pytest.approx(660.0)
    with database.connect() as connection:
        assert (epochs.current(connection) or 0) > made.epoch
    database.dispose()

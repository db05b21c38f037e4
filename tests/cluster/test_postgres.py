"""The store on a real PostgreSQL: the same writes, reads and restarts as on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_rig import empty, url

from wattflow.runtime import messages as m
from wattflow.runtime.compaction import take_snapshot
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.recovery import restore
from wattflow.runtime.service import Service
from wattflow.store import reads, schema
from wattflow.store.database import open_store, read_store
from wattflow.store.writer import Writer

__all__ = ["empty", "url"]
pytestmark = pytest.mark.xdist_group("runtime-postgres")


class Hand:
    """A driver that keeps what it is given."""

    name = "hand"

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

"""A store that 0.1.0 wrote, kept as it was, is brought up to date and goes on where it stopped."""

from __future__ import annotations

import asyncio
import gzip
import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.recovery import restore
from wattflow.runtime.store_check import problems
from wattflow.store import epochs, reads
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import open_store
from wattflow.store.writer import Writer

KEPT = Path(__file__).with_name("of_0_1_0")
"""One node of two processors; a workflow that is over, and one with two attempts under way and two tasks waiting."""


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


@pytest.mark.parametrize("name", ["store", "store_with_snapshot"])
def test_a_store_of_0_1_0_upgrades_and_its_work_goes_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress((KEPT / f"{name}.db.gz").read_bytes()))
    (tmp_path / "engine-3").write_bytes(lzma.decompress((KEPT / "engine-3.xz").read_bytes()))
    with pytest.raises(InvalidInput, match=r"older layout 2.*--upgrade"):
        open_store(path)
    database = open_store(path, upgrade=True)
    assert list(problems(database, FolderObjects(tmp_path / "objects"), tmp_path)) == []

    async def body() -> None:
        writer, driver = Writer(database), Hand()
        service = restore(database, writer, driver, tmp_path, "fifo")
        await service.start()
        first = [lease.fence for lease in driver.leases]
        assert [lease.spec.key for lease in driver.leases] == ["c", "d"]
        done = 0
        while done < len(driver.leases):
            service.ended(m.Ended(fence=driver.leases[done].fence, outcome="done"))
            await service.stored()
            done += 1
        assert [lease.spec.key for lease in driver.leases] == ["c", "d", "f", "e"]
        new = [lease.fence for lease in driver.leases[2:]]
        assert not set(new) & set(first)
        assert {epochs.epoch_of(fence) for fence in new} == {service.fences.epoch}
        await service.stop()
        writer.close()

    asyncio.run(body())
    assert {row["id"]: row["state"] for row in reads.workflows(database)} == {"over": "done", "open": "done"}
    assert [row["energy_j"] for row in reads.attempts(database, "over")] == [2.0, 2.0]
    assert list(problems(database, FolderObjects(tmp_path / "objects"), tmp_path)) == []

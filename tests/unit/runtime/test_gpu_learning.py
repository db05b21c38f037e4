"""How busy tasks keep their GPU: read on the node, stored with the attempt, learned, told to the engine, kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from wattflow.energy.virtual import DEMO_CURVE
from wattflow.live.protocol import row_of
from wattflow.runtime import messages as m
from wattflow.runtime.drivers.local import LocalDriver
from wattflow.runtime.executors.gpu import GpuExecutor, GpuUses, split
from wattflow.runtime.learned_facts import GPU_ENOUGH as ENOUGH
from wattflow.runtime.learned_facts import GpuLearning
from wattflow.runtime.node_agent import make_agent
from wattflow.runtime.recovery import restore
from wattflow.runtime.service import Service
from wattflow.store import reads
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import open_store
from wattflow.store.writer import Writer

from .test_gpu import Counter
from .test_recovery import closed, opened

QUARTER = m.Variant(name="gpu", gpu=0.25)


class Told:
    """A reader that says what a test wants."""

    def __init__(
        self, device: float | None = None, processes: Mapping[int, float] | None = None, memory: float | None = None
    ) -> None:
        self.busy, self.by_pid, self.reads = device, dict(processes or {}), memory

    def device(self, index: int) -> float | None:
        return self.busy

    def memory(self, index: int) -> float | None:
        return self.reads

    def processes(self, index: int) -> Mapping[int, float]:
        return self.by_pid


# ---- readings


def test_the_memory_counter_is_read_while_one_has_the_gpu_to_itself() -> None:
    reader = Told(device=0.9, memory=0.25)
    uses = GpuUses(reader)
    for _ in range(2):
        uses.sample(0, {7: 1.0}, {}, turns=False)
    assert uses.take(7) == m.GpuUse(0.9, 0.0, 2, 0.25)
    uses.sample(0, {7: 1.0}, {}, turns=False)
    uses.sample(0, {7: 0.5, 8: 0.5}, {}, turns=False)
    shared = uses.take(7)
    assert shared is not None and shared.memory is None, "of a part of its run nobody knows"
    reader.reads = None
    uses.sample(0, {9: 1.0}, {}, turns=False)
    assert uses.take(9) == m.GpuUse(0.9, 0.0, 1)


def test_turns_share_the_busy_time_and_tasks_side_by_side_are_busy_independently() -> None:
    assert split(0.6, {1: 1.0, 2: 1.0}, turns=True) == {1: 0.3, 2: 0.3}
    assert split(0.6, {1: 0.25}, turns=False) == {1: 0.6}
    beside = split(0.75, {1: 0.25, 2: 0.5}, turns=False)
    assert beside[1] == beside[2] == pytest.approx(0.5)  # both are idle in half of half the time


def test_processes_of_ours_count_and_others_do_not() -> None:
    uses = GpuUses(Told(device=0.9, processes={os.getpid(): 0.4, 1: 0.5}))
    uses.sample(0, {7: 0.5, 8: 0.25}, {7: os.getpid()}, turns=False)
    assert uses.take(7) == m.GpuUse(0.4, 0.0, 1)
    assert uses.take(8) == m.GpuUse(0.0, pytest.approx(0.2), 1)  # type: ignore[arg-type]
    assert uses.take(8) is None


def test_a_device_that_tells_nothing_teaches_nothing() -> None:
    uses = GpuUses(Told())
    uses.sample(0, {7: 0.5}, {}, turns=False)
    assert uses.take(7) is None


# ---- learning


def node(sharing: str = "mps") -> m.Node:
    device = m.Device(kind="gpu", model="H", memory_bytes=80 << 30, sharing=sharing)  # type: ignore[arg-type]
    return m.Node(name="n", cpus=4.0, memory_bytes=1 << 30, devices=[device])


def taught(runs: list[tuple[float, m.GpuUse]], on: m.Node) -> GpuLearning:
    learning = GpuLearning()
    for runtime_s, use in runs:
        learning.ended("f", QUARTER, on, 0, runtime_s, use)
    return learning


def test_duty_is_a_mean_in_steps_and_company_says_less() -> None:
    variants = [m.Variant(), QUARTER]
    assert taught([], node()).duties("f", variants) == ()
    assert taught([(9.0, m.GpuUse(0.43, 0.0, 40))], node()).duties("f", variants) == (1.0, 0.45)
    moved = taught([(9.0, m.GpuUse(0.4, 0.0, 40)), (9.0, m.GpuUse(0.9, 0.0, 40))], node())
    assert moved.duties("f", variants) == (1.0, 0.5)
    crowded = taught([(9.0, m.GpuUse(0.4, 0.0, 40)), (9.0, m.GpuUse(0.9, 0.5, 40))], node())
    assert crowded.duties("f", variants) == (1.0, 0.4)
    assert taught([(0.5, m.GpuUse(0.4, 0.0, 2))], node()).duties("f", variants) == ()  # too short


@pytest.mark.parametrize(("sharing", "found"), [("mps", 0.5), ("time-slice", None)])
def test_interference_is_the_stretch_beside_others_by_what_they_keep_busy(sharing: str, found: float | None) -> None:
    on = node(sharing)
    runs = [(10.0, m.GpuUse(0.5, 0.0, 50))] + ENOUGH * [(12.0, m.GpuUse(0.5, 0.4, 60))]
    learning = taught(runs, on)
    assert learning.interference("n") == (pytest.approx(found) if found else None)
    assert taught(runs[:-1], on).interference("n") is None
    if found:
        assert learning.news("n") == pytest.approx(found)
        assert learning.news("n") is None
        assert learning.as_learned(on).devices[0].interference == pytest.approx(found)


async def ran(service: Service, leases: list[m.Lease], key: str, runtime_s: float, use: m.GpuUse) -> None:
    spec = m.Task(key=key, name=key, function_name="f", command=["true"], variants=[QUARTER])
    await service.submit(m.Submission(workflow=key, tasks=[spec], seal=True), "me")
    began_s = service.now()
    service.clock._offset_s += runtime_s  # time goes by
    end = m.Ended(fence=leases[-1].fence, outcome="done", started_s=began_s, ended_s=began_s + runtime_s, gpu=use)
    service.ended(end)
    await service.stored()


def engine_says(service: Service) -> tuple[float, float]:
    """Duty of the variant in tasks to come, interference of the GPU."""
    state = service.decider.engine.state
    shape = service.decider.shape([QUARTER], "f", service.learning.gpus.duties("f", [QUARTER]))
    variant = int(state.shapes.variant_first[row_of(shape)])
    device = int(state.nodes.device_first[row_of(service.nodes["n"].engine)])
    interference = float(state.device_classes.interference[int(state.devices.cls[device])])
    return float(state.variants.duty_u[variant]) / 1e6, interference


def test_what_is_learned_reaches_the_engine_and_is_there_after_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(node())
        assert engine_says(service) == (1.0, 0.0)
        await ran(service, driver.leases, "alone", 10.0, m.GpuUse(0.5, 0.0, 50))
        for n in range(ENOUGH):
            await ran(service, driver.leases, f"beside{n}", 12.0, m.GpuUse(0.5, 0.4, 60))
        assert engine_says(service) == (0.5, pytest.approx(0.5, rel=0.01))
        await closed(service, writer)
        again, driver, writer = await opened(tmp_path)
        assert again.learning.gpus.interference("n") == pytest.approx(0.5, rel=0.01)
        assert engine_says(again) == (0.5, pytest.approx(0.5, rel=0.01))
        again.announce(node())
        assert engine_says(again) == (0.5, pytest.approx(0.5, rel=0.01))
        await closed(again, writer)

    asyncio.run(body())


@pytest.mark.slow
def test_a_task_on_a_played_gpu_tells_its_duty(tmp_path: Path) -> None:
    async def body() -> None:
        database, objects = open_store(tmp_path / "s.db"), FolderObjects(tmp_path / "o")
        gpu = GpuExecutor(Counter(), "exclusive", ["H"], [80 << 30], busy=Told(device=0.4))
        driver = LocalDriver(objects, lambda to: make_agent(to, tmp_path / "agent", name="n", executors=(gpu,)))
        writer = Writer(database)
        service = restore(database, writer, driver, tmp_path, "fifo")
        await service.start()
        spec = m.Task(key="k", name="k", function_name="f", command=["sleep", "2"], variants=[QUARTER])
        await service.submit(m.Submission(workflow="w", tasks=[spec], seal=True), "me")
        ends = await service.outcomes("w", 0, 60.0)
        assert [end.state for end in ends.outcomes] == ["done"]
        await service.stored()
        assert service.learning.gpus.duties("f", [QUARTER]) == (0.4,)
        found = reads.gpu_uses(database)
        assert [(row["gpu_duty"], row["gpu_beside"]) for row in found] == [(pytest.approx(0.4), 0.0)]
        await closed(service, writer)

    asyncio.run(body())


@pytest.mark.parametrize(("factor", "variant"), [(0.02, 1), (0.5, 0)])
def test_the_engine_counts_with_a_gpus_watts(tmp_path: Path, factor: float, variant: int) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path, "least-energy")
        device = m.Device(kind="gpu", model="H", memory_bytes=80 << 30, sharing="mps", idle_w=84.0, full_w=700.0)
        service.announce(m.Node(name="n", cpus=4.0, memory_bytes=1 << 30, devices=[device], busy=list(DEMO_CURVE.busy),
                                watts=list(DEMO_CURVE.watts)))  # fmt: skip
        ways = [m.Variant(), m.Variant(name="gpu", gpu=0.25, runtime_factor=factor)]
        spec = m.Task(key="k", name="k", command=["true"], variants=ways, estimate_s=2.0)
        await service.submit(m.Submission(workflow="w", tasks=[spec]), "me")
        assert [lease.variant for lease in driver.leases] == [variant]
        await closed(service, writer)

    asyncio.run(body())

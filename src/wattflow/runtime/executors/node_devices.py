"""Devices of a node and the executors that know them; work without a device goes to plain processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor
from wattflow.runtime.messages import Device, Energy, GpuUse, Lease, TaskEnergy


class DeviceExecutor(Protocol):
    """Runs work on the devices of one kind (``gpu``, ``fpga``); what most of them do not need has a plain answer."""

    kind: str

    def devices(self) -> Sequence[Device]:
        """Return what it found on this node, in the order of their numbers."""

    async def run(self, lease: Lease, device: int, work: AttemptWork, processes: ProcessExecutor) -> Finish:
        """Run work on the device with this number of its kind."""

    def stop(self, fence: int) -> None:
        """End work that runs here and not in a process, which the process executor ends."""
        return

    def joules(self, fence: int) -> tuple[float, str] | None:
        """Device joules of work that is over, with their provenance; None for none."""

    def sample(self) -> None:
        """Called a few times a second while work may be running."""
        return

    def use(self, fence: int) -> GpuUse | None:
        """Tell what work that is over made of its GPU; None where nobody tells, and for other devices."""
        return None

    def busy(self) -> Sequence[float]:
        """How busy each device is, from 0 to 1; empty where nobody tells."""
        return []

    async def close(self) -> None:
        """Let go of the devices."""
        return


class NodeDevices:
    """All device executors of a node. The node's devices are theirs, one kind after the other."""

    def __init__(self, executors: Sequence[DeviceExecutor] = ()) -> None:
        self._executors = tuple(executors)
        self._places: list[tuple[DeviceExecutor, int]] = [
            (executor, number) for executor in executors for number in range(len(executor.devices()))
        ]

    def found(self) -> tuple[Device, ...]:
        """All devices, in the order in which leases number them."""
        return tuple(executor.devices()[number] for executor, number in self._places)

    async def run(self, lease: Lease, work: AttemptWork, processes: Any) -> Finish:
        """Run where the lease says; ``processes`` is the node's own executor."""
        if lease.device < 0:
            finish: Finish = await processes.run(work)
            return finish
        executor, number = self._places[lease.device]
        return await executor.run(lease, number, work, processes)

    def stop(self, fence: int) -> None:
        """End work on any device."""
        for executor in self._executors:
            executor.stop(fence)

    def cpu_s(self) -> Mapping[int, float]:
        """CPU seconds of work that runs outside processes: none so far."""
        return {}

    def sample(self) -> None:
        """Read how busy devices are."""
        for executor in self._executors:
            executor.sample()

    def use(self, fence: int) -> GpuUse | None:
        """Tell what work that is over made of its GPU."""
        uses = (executor.use(fence) for executor in self._executors)
        return next((use for use in uses if use is not None), None)

    def busy(self) -> list[float]:
        """How busy the GPUs are, as far as they tell."""
        return [share for executor in self._executors if executor.kind == "gpu" for share in executor.busy()]

    def with_device_energy(self, joules: list[TaskEnergy]) -> list[TaskEnergy]:
        """Add the devices' joules to the node's, where provenance is the same or worse; the worse one is told."""
        return [self._with_device(one) for one in joules]

    def _with_device(self, joules: TaskEnergy) -> TaskEnergy:
        for executor in self._executors:
            more = executor.joules(joules.fence)
            if more is not None:
                return TaskEnergy(joules.fence, _sum(joules.energy, *more))
        return joules

    async def close(self) -> None:
        """Let go of all devices."""
        for executor in self._executors:
            await executor.close()


ORDER = ("measured", "attributed", "modelled", "guessed")


def _sum(energy: Energy, device_j: float, provenance: str) -> Energy:
    worse = max(energy.provenance, provenance, key=ORDER.index)
    return Energy(energy.energy_j + device_j, energy.low_j + device_j * 0.95, energy.high_j + device_j * 1.05, worse,
                  energy.marginal_j + device_j)  # fmt: skip

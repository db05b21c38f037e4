"""An agent for this machine, put together: executors, devices, meter."""

from __future__ import annotations

import math
import os
from pathlib import Path

from wattflow.energy.meters.probe import MeterSources
from wattflow.energy.virtual import DEMO_CURVE
from wattflow.model.profile import PowerProfile
from wattflow.runtime.agent import Agent
from wattflow.runtime.executors.amd import AmdExecutor
from wattflow.runtime.executors.forking import KEEP_S, Zygote
from wattflow.runtime.executors.gpu import GpuExecutor, Sharing
from wattflow.runtime.executors.limits import ControlGroups
from wattflow.runtime.executors.node_devices import DeviceExecutor, NodeDevices
from wattflow.runtime.executors.privileges import Privileges
from wattflow.runtime.executors.process import ProcessExecutor
from wattflow.runtime.machine import load_reader, this_node
from wattflow.runtime.node_energy import NodeEnergy
from wattflow.runtime.transport import Transport


def device_executors(folder: Path, sharing: Sharing = "exclusive", fpgas: int = 0) -> tuple[DeviceExecutor, ...]:
    """Executors for the GPUs that NVML or AMD's driver shows, and for as many played FPGAs as asked for."""
    found: list[DeviceExecutor] = []
    for gpus in (GpuExecutor.find(sharing), AmdExecutor.find()):
        if gpus is not None:
            found.append(gpus)
    if fpgas:
        from wattflow.runtime.executors.fpga.executor import FpgaExecutor  # NumPy with it

        found.append(FpgaExecutor(folder / "fpga", fpgas))
    return tuple(found)


def make_agent(
    transport: Transport,
    folder: Path,
    *,
    name: str | None = None,
    cpus: float | None = None,
    memory_bytes: int | None = None,
    curve: PowerProfile = DEMO_CURVE,
    preload: tuple[str, ...] = ("cloudpickle",),
    executors: tuple[DeviceExecutor, ...] = (),
    keep_alive_s: float = KEEP_S,
    privileges: Privileges | None = None,
    lineage: str | None = None,
) -> Agent:
    """An agent for this machine.

    Args:
        folder: Where its tasks run and its virtual meter lives.
        preload: Modules that the zygote holds ready.
        executors: For devices that were found here.
        keep_alive_s: How long a function is held warm that nobody uses.
        privileges: Whom tasks run as.
        lineage: What the agent has in common with the one that worked here before: whatever that one left in control
            groups is ended. Without it nothing is known of an earlier life.
    """
    devices = NodeDevices(executors)
    node = this_node(name, cpus, memory_bytes, devices.found(), curve, keep_alive_s)
    groups = ControlGroups.find(lineage or f"{node.name}-{os.getpid()}")
    apart = privileges or Privileges()
    apart.settle(folder, node.name)
    processes = ProcessExecutor(
        Zygote(preload=preload, privileges=apart), max(1, math.ceil(node.cpus)), groups, keep_alive_s
    )
    energy = NodeEnergy(curve, folder / "meter", MeterSources.of_environment())
    return Agent(transport, node, processes, energy, devices, folder / "work", load=load_reader())

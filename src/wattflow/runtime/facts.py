"""Messages about nodes and variants as the model's facts. Light: who only reads the store needs no engine for it."""

from __future__ import annotations

from wattflow.model import cluster as model
from wattflow.model.profile import DeviceProfile, PowerProfile, Provenance, Scope
from wattflow.model.workflow import Variant as ModelVariant
from wattflow.runtime import messages as m

SLEEP_SHARE = 0.1
"""Guess of what a sleeping node draws, of its idle watts: memory that is kept, its controller, its power supply."""


def node_of(node: m.Node) -> model.Node:
    """A node's announcement as the engine's fact."""
    power = None
    if node.busy:
        curve = PowerProfile(tuple(node.busy), tuple(node.watts), Scope.PACKAGE, Provenance(node.provenance))
        power = curve.up_to(max(1, int(node.cpus)))  # of a machine that is larger than what this node may use
    devices = tuple(device_of(device) for device in node.devices)
    sleep = model.Sleep(watts=asleep_w(node), wake_s=node.wake_s, wake_w=node.wake_w) if node.sleeps else None
    return model.Node(
        name=node.name, cores=max(1, int(node.cpus)), allocatable_cores=node.cpus, memory_bytes=node.memory_bytes,
        architecture=node.architecture, features=tuple(node.features), power=power, devices=devices, speed=node.speed,
        sleep=sleep, keep_alive_s=node.keep_alive_s,
    )  # fmt: skip


def device_of(device: m.Device) -> model.Device:
    """A device's announcement as the engine's fact. Its watts rise evenly between the two that it tells."""
    power = DeviceProfile()
    if device.idle_w is not None and device.full_w is not None:
        power = DeviceProfile((0.0, 1.0), (device.idle_w, device.full_w), Provenance.GUESSED)
    return model.Device(
        kind=device.kind, model=device.model, memory_bytes=device.memory_bytes, sharing=device.sharing,
        slots=device.slots, interference=device.interference, power=power,
    )  # fmt: skip


def asleep_w(node: m.Node) -> float:
    """What a node draws asleep: as measured, else a guess from its idle watts. Unknown is not nothing."""
    if node.sleep_w is not None:
        return node.sleep_w
    return SLEEP_SHARE * node.watts[0] if node.watts else 0.0


def variant_of(variant: m.Variant, duty: float = 1.0) -> ModelVariant:
    """A variant's needs as the engine's, with the duty that was measured on its GPU (1 where none was)."""
    device = "fpga" if variant.fpga else "gpu" if variant.gpu > 0 else None
    whole = variant.gpu >= 1
    return ModelVariant(
        name=variant.name, cores=variant.cpus, memory_bytes=variant.memory_bytes, device=device,
        devices=0 if device is None else int(variant.gpu) if whole else 1,
        device_share=variant.gpu if device == "gpu" and not whole else 1.0,
        device_memory_bytes=variant.gpu_memory_bytes, runtime_factor=variant.runtime_factor,
        device_duty=duty, device_duty_from="measured" if duty < 1 else "assumed",
    )  # fmt: skip

"""A cluster as rows of a table: one row per class of equal nodes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass

from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.units import GIB, human_time


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class of nodes. Watts are of one node; None is unknown.

    Attributes:
        label: The nodes' common name, without the number at its end.
        idle_w, full_w: Of the host alone, by its power profile.
        device_idle_w, device_full_w: Of all devices of one node together.
    """

    label: str
    count: int
    cores: int
    threads: int
    memory_gib: float
    speed: float
    zone: str
    devices: str
    idle_w: float | None
    full_w: float | None
    device_idle_w: float
    device_full_w: float
    scope: str | None
    provenance: str | None
    source: str | None
    sleep: str

    def as_dict(self) -> dict[str, object]:
        """Return the row for JSON and CSV."""
        return asdict(self)


def describe_cluster(cluster: Cluster) -> list[ClassRow]:
    """Return one row per class of nodes that are equal in everything but their name, in order of first appearance."""
    classes: dict[tuple[object, ...], list[Node]] = {}
    for node in cluster.nodes:
        classes.setdefault(node.class_key, []).append(node)
    return [_row(nodes) for nodes in classes.values()]


def _row(nodes: list[Node]) -> ClassRow:
    node = nodes[0]
    power = node.power
    return ClassRow(
        label=_label([other.name for other in nodes]),
        count=len(nodes),
        cores=node.cores,
        threads=node.threads,
        memory_gib=node.memory_bytes / GIB,
        speed=node.speed,
        zone=node.zone,
        devices=_devices(node.devices),
        idle_w=None if power is None else power.idle_w,
        full_w=None if power is None else power.full_w,
        device_idle_w=sum(device.power.idle_w for device in node.devices),
        device_full_w=sum(device.power.full_w for device in node.devices),
        scope=None if power is None else str(power.scope),
        provenance=None if power is None else str(power.provenance),
        source=None if power is None else power.source,
        sleep=_sleep(node),
    )


def _label(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    # "node-12" and "node-13" are one kind; a number within the name stays.
    stems = {re.sub(r"[-_.]?\d+$", "", name) for name in names}
    return stems.pop() if len(stems) == 1 else f"{names[0]} …"


def _devices(devices: tuple[Device, ...]) -> str:
    def text(device: Device) -> str:
        memory = f" {device.memory_bytes / GIB:.3g} GiB" if device.memory_bytes else ""
        sharing = f"{device.sharing} {device.slots}" if device.sharing == "time-slice" else device.sharing
        return f"{device.model}{memory} ({device.kind}, {sharing})"

    return ", ".join(f"{count} × {name}" for name, count in Counter(map(text, devices)).items()) or "–"


def _sleep(node: Node) -> str:
    if node.sleep is None:
        return "–"
    after = "" if node.sleep.after_s is None else f" after {human_time(node.sleep.after_s)}"
    return f"{node.sleep.watts:g} W, wakes in {human_time(node.sleep.wake_s)}{after}"

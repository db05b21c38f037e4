"""Write a cluster as a TOML file that reads back as the same cluster.

Curves are written point by point, series value by value; keys at their default are left out. Neighbouring nodes that
are equal but for names that count up from ``-0`` become one table with a count.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattflow.clusters.node_table import PART_KEYS
from wattflow.files.whole import write_text
from wattflow.model.cluster import Cluster, Device, Network, Node, Series, Zone
from wattflow.model.device_levels import DeviceLevels
from wattflow.model.profile import DeviceProfile

_NODE_KEYS = {
    "memory_bytes": "memory", "threads_per_core": "threads_per_core", "smt_slowdown": "smt_slowdown",
    "allocatable_cores": "allocatable_cores", "speed": "speed", "function_speed": "function_speed",
    "architecture": "architecture", "features": "features", "zone": "zone", "tdp_w": "tdp_w",
    "keep_alive_s": "keep_alive", "cold_start_factor": "cold_start_factor", "price_per_hour": "price_per_hour",
    "embodied_kg": "embodied_kg", "lifetime_years": "lifetime_years", "sharing": "sharing",
}  # fmt: skip


def write_cluster(cluster: Cluster, path: Path | str) -> None:
    """Write a cluster file; it appears whole or not at all."""
    write_text(path, cluster_toml(cluster))


def cluster_toml(cluster: Cluster) -> str:
    """Write a cluster as TOML text."""
    lines = [f"name = {_value(cluster.name)}"]
    if cluster.about:
        lines.append(f"about = {_value(cluster.about)}")
    if cluster.currency != "USD":
        lines.append(f"currency = {_value(cluster.currency)}")
    if cluster.storage != Network():
        lines.append(f"storage = {_value(_changed(cluster.storage))}")
    for zone in cluster.zones:
        lines += ["", f"[zones.{_key(zone.name)}]", *toml_lines(_zone(zone))]
    for node, count in _runs(cluster.nodes):
        lines += ["", "[[nodes]]", *toml_lines(_node(node, count))]
    return "\n".join(lines) + "\n"


def _runs(nodes: Sequence[Node]) -> list[tuple[Node, int | None]]:
    """Count equal neighbours; the name of a repeated node is without its number. None: a single node."""
    runs: list[tuple[Node, int | None]] = []
    i = 0
    while i < len(nodes):
        stem = nodes[i].name.removesuffix("-0")
        count = 0
        # The name must end in "-0" and be more than that.
        if stem and stem != nodes[i].name:
            key = nodes[i].class_key
            # Names must count up without a gap, since reading gives them back so.
            while i + count < len(nodes) and nodes[i + count].name == f"{stem}-{count}":
                if nodes[i + count].class_key != key:
                    break
                count += 1
        runs.append((dataclasses.replace(nodes[i], name=stem), count) if count else (nodes[i], None))
        i += count or 1
    return runs


def _node(node: Node, count: int | None) -> dict[str, object]:
    table: dict[str, object] = {"name": node.name}
    if count is not None:
        table["count"] = count
    table |= {"cores": node.cores, "memory": node.memory_bytes}
    defaults = {field.name: field.default for field in dataclasses.fields(Node)}
    for name, key in _NODE_KEYS.items():
        value = getattr(node, name)
        if name == "function_speed":
            if value:
                table[key] = value
        # Memory is written above, default or not: a node file needs it.
        elif value != defaults[name] and name != "memory_bytes":
            table[key] = value
    if node.power is not None:
        table["power"] = dataclasses.asdict(node.power)
    if node.network != Network():
        table["network"] = _changed(node.network)
    for name in ("sleep", "serverless", "faults"):
        part = getattr(node, name)
        if part is not None:
            table[name] = _changed(part)
    levels = [{"speed": level.speed, "power": level.power} for level in node.frequencies]
    if levels != [{"speed": 1.0, "power": 1.0}]:
        table["frequencies"] = levels
    if node.devices:
        table["devices"] = _devices(node.devices)
    return table


def _devices(devices: Sequence[Device]) -> list[dict[str, object]]:
    tables: list[dict[str, object]] = []
    before: Device | None = None
    for device in devices:
        # Neighbours only: the order of devices is their number on the node.
        if device == before:
            count = tables[-1].get("count", 1)
            assert isinstance(count, int)
            tables[-1]["count"] = count + 1
            continue
        before = device
        plain = dataclasses.replace(device, power=DeviceProfile(), levels=None)
        facts = {"kind": device.kind, **_changed(plain)}
        if device.levels is not None:
            facts["levels"] = _levels(device.levels)
        if device.power != DeviceProfile():
            facts["power"] = dataclasses.asdict(device.power)
        tables.append(facts)
    return tables


def _levels(levels: DeviceLevels) -> dict[str, object]:
    table: dict[str, object] = {"knob": levels.knob, "values": levels.values}
    if levels.compute_share is not None:
        table["compute_share"] = levels.compute_share
    if levels.functions:
        table["functions"] = {
            row.function: {"seconds": row.seconds, "joules": row.joules, "provenance": str(row.provenance)}
            for row in levels.functions
        }
    return table


def _changed(part: object) -> dict[str, object]:
    """Return the keys of a small dataclass that have no default or differ from it."""
    assert dataclasses.is_dataclass(part)
    return {
        PART_KEYS.get(field.name, field.name): getattr(part, field.name)
        for field in dataclasses.fields(part)
        if field.default is dataclasses.MISSING or getattr(part, field.name) != field.default
    }


def _zone(zone: Zone) -> dict[str, object]:
    table: dict[str, object] = {}
    if zone.pue != 1:
        table["pue"] = zone.pue
    if zone.carbon_known:
        table["carbon"] = _series(zone.carbon)
    if zone.price_known:
        table["price"] = _series(zone.price)
    return table


def _series(series: Series) -> dict[str, object]:
    return {"step": series.step_s, "values": series.values}


def toml_lines(table: Mapping[str, object]) -> list[str]:
    """Return the lines of one table, one key each."""
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    # TOML's bare keys.
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _value(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is and TOML forbids.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            return "{ " + ", ".join(toml_lines(value)) + " }" if value else "{}"
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"cannot write {value!r}")

"""Clusters as TOML files, read and written, and those by name. ``docs/clusters.md`` describes every key.

What is written reads back as the same cluster: curves point by point, series value by value; keys at their default are
left out. Neighbouring nodes that are equal but for names that count up from ``-0`` become one table with a count.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattflow.clusters import carbon
from wattflow.clusters.node_table import PART_KEYS, build, read_network, read_nodes
from wattflow.files.data_folder import packaged
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.files.whole import small_text, write_text
from wattflow.model.cluster import Cluster, Device, DeviceLevels, Network, Node, Series, Zone
from wattflow.model.errors import InvalidInput, UnknownName, WattflowError, unknown_name
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


def read_cluster(path: Path | str) -> Cluster:
    """Read a cluster file.

    Raises:
        InvalidInput: Something is wrong with it; lists every problem with its place.
    """
    path = Path(path)
    text = small_text(path, "cluster file")
    return parse_cluster(text, str(path), path.parent)


def parse_cluster(text: str, source: str, folder: Path | None = None) -> Cluster:
    """Read a cluster from TOML text; ``folder`` is where its CSV files are looked for."""
    try:
        data = tomllib.loads(text)
    # `RecursionError`: a file of nested brackets.
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(source, f"is not TOML: {error}") from error
    problems = Problems()
    cluster = _read(StrictTable(data, "", problems), folder or Path())
    if len(problems) or cluster is None:
        raise InvalidInput(source, problems.listed())
    return cluster


def _read(root: StrictTable, folder: Path) -> Cluster | None:
    name, about, currency = root.text("name"), root.text("about", ""), root.text("currency", "USD")
    zones = tuple(_read_zone(zone, table, folder) for zone, table in root.named_tables("zones").items())
    nodes = read_nodes(root, folder)
    storage = read_network(root, "storage")
    if not root.data.get("nodes"):
        root.problem("", "needs at least one [[nodes]] table")
    root.finish()
    # After `finish`: scopes only matter where the nodes themselves are right.
    _check_scopes(root, nodes)
    if len(root.problems):
        return None
    facts = {"name": name, "nodes": tuple(nodes), "storage": storage, "about": about, "currency": currency}
    # A cluster without zones has one, of unknown carbon and price.
    return build(root, Cluster, **facts, zones=zones or (Zone(),))


def _check_scopes(root: StrictTable, nodes: list[Node]) -> None:
    """Refuse watts of different scopes: wall and package watts are never added up."""
    by_scope: dict[str, str] = {}
    for node in nodes:
        if node.power is not None:
            by_scope.setdefault(node.power.scope, node.name)
    if len(by_scope) > 1:
        shown = ", ".join(f"{name} is {scope} scope" for scope, name in by_scope.items())
        root.problem("nodes", f"watts of different scope in one cluster ({shown}); use one scope for all nodes")


def _read_zone(name: str, table: StrictTable, folder: Path) -> Zone:
    carbon_g = _read_series(table, "carbon", folder)
    price = _read_series(table, "price", folder)
    facts = {
        "name": name,
        "pue": table.number("pue", 1.0),
        "carbon": carbon_g or Zone().carbon,
        "price": price or Zone().price,
        # A value of 0 is something else than unknown, so it is noted whether it was stated.
        "carbon_known": carbon_g is not None,
        "price_known": price is not None,
    }
    table.finish()
    return build(table, Zone, **facts) or Zone(name)


def _read_series(zone: StrictTable, key: str, folder: Path) -> Series | None:
    """Read a number, the name of a series, or a table with values, a CSV file or a named series with a window."""
    value = zone.value(key)
    if value is None:
        return None
    if isinstance(value, int | float):
        # A number is a series of one value; the step does not matter.
        return Series(3600.0, (zone.number(key),))
    table = (
        StrictTable({"series": value}, zone.place(key), zone.problems) if isinstance(value, str) else zone.table(key)
    )
    if table is None:
        return None
    try:
        return _series_table(table, folder)
    except UnknownName as error:
        table.problem("", error.problems[0].what)
        return None
    except (ValueError, WattflowError) as error:
        table.problem("", str(error))
        return None
    finally:
        table.finish()


def _series_table(table: StrictTable, folder: Path) -> Series | None:
    ways = [key for key in ("values", "csv", "series") if table.has(key)]
    if len(ways) != 1:
        table.problem("", "give exactly one of values, csv or series")
        return None
    if ways == ["values"]:
        values = table.numbers("values")
        return Series(table.duration("step", 3600.0), values)
    window = carbon.SeriesWindow(table.text("start", ""), table.maybe_duration("length"))
    if ways == ["series"]:
        return carbon.named_series(table.text("series"), window).series
    return carbon.read_csv(folder / table.text("csv"), table.text("column", ""), window).series


def preset_names() -> list[str]:
    """Return the names that ``load_cluster`` knows, in alphabetical order."""
    files = (entry.name for entry in packaged("clusters").iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return the TOML of a packaged preset, comments included: a start for a user's own file."""
    if name not in preset_names():
        raise unknown_name("cluster", name, preset_names(), "(or the path of a .toml file)")
    return packaged("clusters", f"{name}.toml").read_text(encoding="utf-8")


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Read a cluster by preset name or from a TOML file.

    Anything that ends in ``.toml``, has a folder in it or is a ``Path`` is a file; everything else is a name.

    Raises:
        InvalidInput: The file is wrong (all problems listed), or there is no such name (the nearest is named).
    """
    text = str(name_or_path)
    # A name never has a slash: files in the working folder are written "./my.toml" or "my.toml".
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text or "\\" in text:
        return read_cluster(name_or_path)
    return parse_cluster(preset_text(text), f"preset {text}")

"""The node tables of a cluster file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wattflow.clusters.power_table import read_device_power, read_power
from wattflow.files.strict_table import StrictTable
from wattflow.model.cluster import (
    CPU_SHARING,
    KNOBS,
    SHARING,
    Device,
    DeviceLevels,
    Faults,
    Frequency,
    FunctionLevels,
    Network,
    Node,
    Serverless,
    Sleep,
)
from wattflow.model.profile import Provenance

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Part = TypeVar("Part", bound="DataclassInstance")
MOST_NODES = 100_000
MOST_THREADS = 1_000_000
PART_KEYS = {
    "bandwidth_bytes_per_s": "bandwidth", "latency_s": "latency", "zone_latency_s": "zone_latency",
    "wake_s": "wake", "enter_s": "enter", "after_s": "after", "time_limit_s": "time_limit",
    "mtbf_s": "mtbf", "repair_s": "repair", "notice_s": "notice", "memory_bytes": "memory",
    "reconfigure_s": "reconfigure",
}  # fmt: skip
"""Keys of a file by field, where they differ: the file's values have their units in them. Read and written by it."""


def build(table: StrictTable, make: Callable[..., T], **facts: object) -> T | None:
    """Make a fact, or note at the table why it cannot be made."""
    try:
        return make(**facts)
    except ValueError as error:
        table.problem("", str(error))
        return None


def read_nodes(root: StrictTable, folder: Path) -> list[Node]:
    """Read all ``[[nodes]]``, templates applied and counts expanded."""
    templates = root.named_tables("templates")
    unused = dict.fromkeys(templates)
    nodes: list[Node] = []
    for table in root.tables("nodes"):
        name = table.data.get("template")
        if isinstance(name, str):
            unused.pop(name, None)
        nodes += _expand(_merged(table, templates), folder)
    for name in unused:  # a template that nobody uses is still read, for its mistakes
        stand_in: dict[str, object] = {"name": name, "cores": 1, "memory": 0}
        table = StrictTable({**stand_in, **templates[name].data}, templates[name].where, root.problems)
        _expand(table, folder)
    return nodes


def _merged(table: StrictTable, templates: Mapping[str, StrictTable]) -> StrictTable:
    if "template" not in table.data:
        return table
    name = table.text("template")
    if name not in templates:
        table.problem("template", f"no template named {name!r}; known: {', '.join(sorted(templates)) or 'none'}")
        return table
    template = templates[name]
    # Problems in a key that a template gave point to the template, not to the node that uses it.
    origins = {key: template.place(key) for key in template.data if key not in table.data}
    # The node's own keys win.
    return StrictTable({**template.data, **table.data}, table.where, table.problems, origins)


def _expand(table: StrictTable, folder: Path) -> list[Node]:
    node = _read_node(table, folder)
    # Asked for although the default is known: with a count of 1 the name still gets "-0".
    counted = table.has("count")
    count = table.whole("count", 1)
    table.finish()
    if not 1 <= count <= MOST_NODES:
        table.problem("count", f"must be 1 … {MOST_NODES:,}, not {count}")
        return []
    if node is None:
        return []
    if not counted:
        return [node]
    return [dataclasses.replace(node, name=f"{node.name}-{i}") for i in range(count)]


def _read_node(table: StrictTable, folder: Path) -> Node | None:
    # Asked for, so that `finish` does not report it: `_merged` has used it already.
    table.has("template")
    name = table.text("name")
    if not name and "name" in table.data:
        table.problem("name", "must not be empty")
    cores, threads_per_core = table.whole("cores"), table.whole("threads_per_core", 1)
    if cores * threads_per_core > MOST_THREADS:
        table.problem("cores", f"{cores} × {threads_per_core} hardware threads are more than {MOST_THREADS:,}")
        # Stand-ins, so that reading goes on to the next problem and no huge curve is made.
        cores = threads_per_core = 1
    return build(
        table,
        Node,
        name=name,
        cores=cores,
        memory_bytes=table.size("memory"),
        threads_per_core=threads_per_core,
        smt_slowdown=table.number("smt_slowdown", 1.5),
        sharing=table.choice("sharing", CPU_SHARING, "fair"),
        allocatable_cores=table.maybe_number("allocatable_cores"),
        speed=table.number("speed", 1.0),
        function_speed=_function_speed(table),
        architecture=table.text("architecture", "x86_64"),
        features=table.texts("features"),
        zone=table.text("zone", "default"),
        # At least one of each: what was wrong is told already, and a curve needs a size.
        power=read_power(table, max(1, cores), max(1, threads_per_core), folder),
        tdp_w=table.maybe_number("tdp_w"),
        devices=_devices(table),
        network=read_network(table, "network"),
        frequencies=_frequencies(table),
        sleep=_part(table, "sleep", Sleep),
        keep_alive_s=table.duration("keep_alive", 600.0),
        cold_start_factor=table.number("cold_start_factor", 1.0),
        serverless=_part(table, "serverless", Serverless),
        faults=_part(table, "faults", Faults),
        price_per_hour=table.number("price_per_hour", 0.0),
        embodied_kg=table.number("embodied_kg", 0.0),
        lifetime_years=table.number("lifetime_years", 4.0),
    )


def _function_speed(node: StrictTable) -> dict[str, float]:
    table = node.table("function_speed")
    # Any key is a function's name here, so all are asked for.
    return {} if table is None else {name: table.number(name) for name in table.data}


def read_network(parent: StrictTable, key: str) -> Network:
    """Read a ``network`` or ``storage`` table; the default link where it is absent."""
    return _part(parent, key, Network) or Network()


def _part(parent: StrictTable, key: str, kind: type[Part]) -> Part | None:
    """Read a table into a small dataclass, whose defaults are the file's; None where it is absent or wrong."""
    table = parent.table(key)
    if table is None:
        return None
    fields = dataclasses.fields(kind)
    made = build(table, kind, **{field.name: _field(table, field) for field in fields})
    table.finish()
    return made


def _field(table: StrictTable, field: dataclasses.Field[object]) -> float | None:
    key = PART_KEYS.get(field.name, field.name)
    # What loses its unit in the file is written with one; all else is a plain number.
    read = table.bandwidth if key == "bandwidth" else table.number if key == field.name else table.duration
    if field.default is None:
        return read(key) if table.has(key) else None
    return read(key) if field.default is dataclasses.MISSING else read(key, field.default)


def _devices(node: StrictTable) -> tuple[Device, ...]:
    devices: list[Device] = []
    for table in node.tables("devices"):
        kind = table.choice("kind", ("gpu", "fpga"), "gpu")
        # The choice has a default only so that reading can go on.
        if "kind" not in table.data:
            table.problem("", "needs 'kind' (gpu or fpga)")
        made = build(
            table,
            Device,
            kind=kind,
            model=table.text("model", "generic"),
            memory_bytes=table.size("memory", 0),
            sharing=table.choice("sharing", SHARING, "exclusive"),
            slots=table.whole("slots", 1),
            speed=table.number("speed", 1.0),
            interference=table.number("interference", 0.0),
            reconfigure_s=table.duration("reconfigure", 0.0),
            power=read_device_power(table, kind),
            tdp_w=table.maybe_number("tdp_w"),
            switch_loss=table.number("switch_loss", 0.0),
            levels=read_levels(table),
        )
        count = table.whole("count", 1)
        table.finish()
        if not 1 <= count <= 1024:
            table.problem("count", f"must be 1 … 1024, not {count}")
        elif made is not None:
            devices += [made] * count
    return tuple(devices)


def _frequencies(node: StrictTable) -> tuple[Frequency, ...]:
    levels: list[Frequency] = []
    for table in node.tables("frequencies"):
        made = build(table, Frequency, speed=table.number("speed"), power=table.number("power"))
        table.finish()
        if made is not None:
            levels.append(made)
    # At least the nominal one.
    return tuple(levels) or (Frequency(),)


_PROVENANCES = tuple(str(one) for one in Provenance)


def read_levels(device: StrictTable) -> DeviceLevels | None:
    """Read a device's levels; None where it has none, or they are wrong, which is noted."""
    table = device.table("levels")
    if table is None:
        return None
    knob = table.choice("knob", KNOBS, KNOBS[0])
    values, share = table.numbers("values"), table.maybe_number("compute_share")
    rows = [_function(name, one) for name, one in table.named_tables("functions").items()]
    table.finish()
    known = tuple(row for row in rows if row is not None)
    try:
        # One wrong function makes the table unusable: a missing row would look like a function nobody
        # measured.
        return DeviceLevels(knob, values, known, share) if len(known) == len(rows) else None
    except ValueError as error:
        table.problem("", str(error))
        return None


def _function(name: str, table: StrictTable) -> FunctionLevels | None:
    seconds, joules = table.numbers("seconds"), table.numbers("joules")
    provenance = Provenance(table.choice("provenance", _PROVENANCES, "measured"))
    table.finish()
    try:
        return FunctionLevels(name, seconds, joules, provenance)
    except ValueError as error:
        table.problem("", str(error))
        return None

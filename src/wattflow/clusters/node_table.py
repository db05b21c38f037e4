"""The node tables of a cluster file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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


import csv
import json
import math
from collections.abc import Sequence

from wattflow.clusters import profiles
from wattflow.files.whole import small_text
from wattflow.model.errors import InvalidInput, UnknownName
from wattflow.model.profile import FORMS, GPU_KNEE, DeviceProfile, PowerProfile, Scope, ends_profile, threads_profile

_SCOPES = tuple(Scope)
_PROVENANCES = tuple(Provenance)


def read_power(node: StrictTable, cores: int, threads_per_core: int, folder: Path) -> PowerProfile | None:
    """Read the ``power`` of a node: a profile's name or file (beside the cluster file), points or a closed form.

    What is against load (named profiles, ``load``, ``linear`` between idle and full) is read cores first.
    """
    value = node.value("power")
    if value is None:
        return None
    if isinstance(value, str) and value.endswith(ENDINGS):
        return _from_file(node, "power", folder / value, (cores, threads_per_core), None)
    if isinstance(value, str):
        try:
            return profiles.resolve_profile(value, cores, threads_per_core)
        except UnknownName as error:
            node.problem("power", error.problems[0].what)
            return None
    # Asked for as a table: other types are told there.
    table = node.table("power")
    if table is not None and table.has("file"):
        scope = Scope(table.choice("scope", _SCOPES, "wall"))
        path = folder / table.text("file")
        table.finish()
        return _from_file(table, "file", path, (cores, threads_per_core), scope)
    return None if table is None else _curve(table, (cores, threads_per_core))


def _from_file(
    table: StrictTable, key: str, path: Path, size: tuple[int, int], scope: Scope | None
) -> PowerProfile | None:
    try:
        return read_power_file(path, *size, scope)
    except InvalidInput as error:
        table.problem(key, str(error))
        return None


def _curve(table: StrictTable, size: tuple[int, int]) -> PowerProfile | None:
    ways = [key for key in ("busy", "load", "form") if table.has(key)]
    if len(ways) != 1:
        table.problem("", "give exactly one of busy + watts, load + watts, form + idle_w + full_w, or file")
        return None
    scope = Scope(table.choice("scope", _SCOPES, "wall"))
    try:
        return _by_form(table, size, scope) if ways == ["form"] else _by_points(table, size, scope)
    except (ValueError, InvalidInput) as error:
        table.problem("", str(error))
        return None
    # In any case: unknown keys are told together with what else is wrong.
    finally:
        table.finish()


def _check_ends(idle_w: float, full_w: float) -> None:
    if idle_w > full_w:
        raise ValueError(f"idle_w {idle_w:g} is above full_w {full_w:g}; are they swapped?")


def _by_form(table: StrictTable, size: tuple[int, int], scope: Scope) -> PowerProfile:
    form = table.choice("form", tuple(FORMS), "linear")
    idle_w, full_w = table.number("idle_w"), table.number("full_w")
    provenance = table.choice("provenance", _PROVENANCES, "modelled")
    source = table.text("source", f"{form} between idle and full watts")
    about = {"scope": scope, "provenance": provenance, "source": source}
    _check_ends(idle_w, full_w)
    # Two ends become a curve cores first, as named profiles do; other forms are over busy threads
    # themselves.
    if form == "linear":
        return ends_profile(idle_w, full_w, size[0], size[1], **about)
    return PowerProfile.from_form(form, size[0] * size[1], idle_w, full_w, **about)


def _by_points(table: StrictTable, size: tuple[int, int], scope: Scope) -> PowerProfile | None:
    key = "busy" if "busy" in table.data else "load"
    before = len(table.problems)
    x, watts = table.numbers(key), table.numbers("watts")
    provenance = table.choice("provenance", _PROVENANCES, "modelled")
    source = table.text("source", "points of the cluster file" if key == "busy" else "load curve of the cluster file")
    # Told already; what follows would only add noise.
    if len(table.problems) > before:
        return None
    if len(x) != len(watts):
        raise ValueError(f"{key} has {len(x)} values and watts {len(watts)}; they must be as many")
    threads = size[0] * size[1]
    if key == "busy" and max(x, default=0.0) > threads:
        raise ValueError(f"busy goes up to {max(x):g}, but the node has {threads} hardware threads")
    if key == "busy":
        return PowerProfile(x, watts, scope, Provenance(provenance), source)
    if max(x, default=0.0) > 1:
        raise ValueError(f"load is a share from 0 to 1, not {max(x):g}; divide percentages by 100")
    points = list(zip(x, watts, strict=True))
    return threads_profile(points, *size, scope=scope, provenance=Provenance(provenance), source=source)


def read_device_power(device: StrictTable, kind: str) -> DeviceProfile:
    """Read the ``power`` of a device: points by share, or idle and full watts with a knee."""
    table = device.table("power")
    if table is None:
        return DeviceProfile()
    try:
        return _shares(table) if table.has("share") else _knee(table, kind)
    except ValueError as error:
        table.problem("", str(error))
        return DeviceProfile()
    finally:
        table.finish()


def _shares(table: StrictTable) -> DeviceProfile:
    share, watts = table.numbers("share"), table.numbers("watts")
    provenance = table.choice("provenance", _PROVENANCES, "modelled")
    return DeviceProfile(share, watts, Provenance(provenance), table.text("source", ""))


def _knee(table: StrictTable, kind: str) -> DeviceProfile:
    idle_w, full_w = table.number("idle_w"), table.number("full_w")
    _check_ends(idle_w, full_w)
    # A GPU flattens at its knee; an FPGA's watts are taken as a straight line.
    knee = table.number("knee", GPU_KNEE if kind == "gpu" else 1.0)
    about = {"provenance": table.choice("provenance", _PROVENANCES, "modelled")}
    source = table.value("source")
    if source is not None:
        about["source"] = table.text("source")
    return DeviceProfile.from_knee(idle_w, full_w, knee, **about)


# A node's watts from a file: what `wattflow machine profile` wrote, or the CSV of a meter beside the machine's load.
#
# A CSV needs watts (``watts``, ``power_w`` or ``w``) and one of ``busy`` (threads), ``load`` (0 … 1) or ``load_pct``
# (also ``cpu_pct``, ``cpu_percent``). Samples of nearly the same load (within 5 % of the machine) are averaged.

ENDINGS = (".json", ".csv")
BIN = 0.05
"""Samples whose load differs by less than this part of the machine are one point."""
_WATTS = ("watts", "power_w", "w")
_LOADS = {"busy": "busy", "load": "load", "load_pct": "percent", "cpu_pct": "percent", "cpu_percent": "percent"}


def read_power_file(path: Path, cores: int, threads_per_core: int, scope: Scope | None = None) -> PowerProfile:
    """Read the profile in a file; ``scope`` is what a CSV's watts cover (the wall by default).

    Raises:
        InvalidInput: It is neither kind of file, or lacks idle watts.
    """
    text = small_text(path, "power file")
    try:
        if path.suffix == ".json":
            return _measured(path, text, cores * threads_per_core)
        return _sampled(path, text, (cores, threads_per_core), scope or Scope.WALL)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(str(path), f"is no power profile: {error}") from error


def _measured(path: Path, text: str, threads: int) -> PowerProfile:
    """Read the points of `wattflow machine profile`: threads really busy, above what was busy in the idle windows."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("kind") != "cpu" or not document.get("points"):
        raise ValueError("expected what `wattflow machine profile FILE` writes, with its points")
    points = [(float(point["busy"]), float(point["watts"])) for point in document["points"]]
    if int(document["points"][0]["k"]) != 0:
        raise ValueError("it has no idle point (k = 0) yet")
    # As `CpuProfile.power_profile`: what ran anyway while idle is no busy thread.
    base = points[0][0]
    busy, watts = [0.0], [points[0][1]]
    for threads_busy, seen_w in points[1:]:
        # Busy threads must rise strictly.
        if threads_busy - base > busy[-1] + 1e-6:
            busy.append(threads_busy - base)
            watts.append(seen_w)
    # Half a thread of tolerance: measured CPU time is a little more than asked for.
    if busy[-1] > threads + 0.5:
        raise ValueError(f"it goes up to {busy[-1]:.3g} busy threads, but the node has {threads}")
    provenance = Provenance.MODELLED if document.get("meter") == "virtual" else Provenance.MEASURED
    source = f"{path.name}: {document.get('node', 'a node')}, {document.get('meter', 'a meter')}"
    return PowerProfile(tuple(busy), tuple(watts), Scope(document["scope"]), provenance, source)


def _sampled(path: Path, text: str, size: tuple[int, int], scope: Scope) -> PowerProfile:
    rows = csv.DictReader(line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    names = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
    watts = next((names[name] for name in _WATTS if name in names), None)
    loads = next((name for name in _LOADS if name in names), None)
    if watts is None or loads is None:
        raise ValueError(f"needs a column of {', '.join(_WATTS)} and one of {', '.join(_LOADS)}")
    threads, kind = size[0] * size[1], _LOADS[loads]
    over = {"busy": float(threads), "load": 1.0, "percent": 100.0}[kind]
    points = _averaged([(_number(row, names[loads]) / over, _number(row, watts)) for row in rows])
    source = f"{path.name}: mean watts of a meter's samples by load"
    if kind == "busy":
        busy = tuple(load * threads for load, _ in points)
        return PowerProfile(busy, tuple(w for _, w in points), scope, Provenance.MEASURED, source)
    return threads_profile(points, *size, scope=scope, provenance=Provenance.MEASURED, source=source)


def _number(row: Mapping[str, str | None], name: str) -> float:
    # An empty cell is unknown, which is told below; it is not 0.
    value = float(row[name] or "nan")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} {row[name]!r} is not a number of at least 0")
    return value


def _averaged(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Average samples into one point for each bin of loads, the lowest standing for idle."""
    if not samples or max(load for load, _ in samples) > 1.0 + 1e-6:
        raise ValueError("needs samples, with loads between none and all of the machine")
    bins: dict[int, list[tuple[float, float]]] = {}
    for load, watts in samples:
        # Rounded, so that bins are centred on multiples of 5 % and the first is idle.
        bins.setdefault(round(load / BIN), []).append((load, watts))
    points = [
        (sum(load for load, _ in mine) / len(mine), sum(watts for _, watts in mine) / len(mine))
        for _, mine in sorted(bins.items())
    ]
    if 0 not in bins or len(points) < 2:
        raise ValueError("needs samples of the idle machine and of at least one load")
    # Idle is idle, whatever the mean of its bin; loads a hair above 1 come from rounding.
    return [(0.0, points[0][1]), *((min(1.0, load), watts) for load, watts in points[1:])]


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

"""The power keys of a cluster file: node curves and device watts."""

from __future__ import annotations

from pathlib import Path

from wattflow.clusters import profiles
from wattflow.clusters.power_file import ENDINGS, read_power_file
from wattflow.files.strict_table import StrictTable
from wattflow.model.errors import InvalidInput, UnknownName
from wattflow.model.load_curve import ends_profile, threads_profile
from wattflow.model.profile import FORMS, GPU_KNEE, DeviceProfile, PowerProfile, Provenance, Scope

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

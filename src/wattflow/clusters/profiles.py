"""Power profiles by name, for cluster files and for ``wattflow profiles``. All are curves against load, and become
watts against busy threads by the one law of `wattflow.model.load_curve`.

| name | what | ships | scope, provenance |
|---|---|---|---|
| ``ccf:<server>`` | idle and full watts of one server (CCF, Apache-2.0) | 18 | wall, modelled |
| ``ccf:<row>`` | the same for any of the 1,088 rows | data folder | wall, modelled |
| ``ichnos:<node>/<governor>`` | fitted line of an Ichnos node (MIT) | all | package, modelled |
| ``turbostat:<node>/<governor>`` | the measured points behind some of them | data folder | package, measured |
| ``spec:<curve>`` | 11-point SPECpower_ssj2008 curve (fair use, never shipped) | data folder | wall, measured |
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wattflow.clusters import ichnos
from wattflow.files.data_folder import data_folder, open_text, packaged
from wattflow.model.errors import MissingData, unknown_name
from wattflow.model.load_curve import threads_profile
from wattflow.model.profile import PowerProfile, Provenance, Scope

FAMILIES = ("ccf", "ichnos", "turbostat", "spec")
_CCF = "cloud-carbon-footprint/ccf-coefficients b0032d928c78 (Apache-2.0; figures from SPECpower_ssj2008)"
_SPEC = "SPECpower_ssj2008 result, by way of green-coding-solutions/spec-power-model 9739f29c03f5"
_TURBOSTAT = "turbostat, mean of 3: GlasgowC3lab/ichnos-results-evaluation 9dea7546a5c1"
_CURVES = ("power_curves", "cpu_power_curves.csv.gz")
_SERVERS = ("power_curves", "specpower_idle_and_full_2026-03.csv.gz")


@dataclass(frozen=True, slots=True)
class NamedProfile:
    """A power curve against load that has a name.

    Attributes:
        threads: Hardware threads of the machine it comes from; for a node with another number the load counts.
        year: Of the measurement or publication, None where not stated.
        shipped: Whether it is part of the package; otherwise it needs the folder of real data.
    """

    name: str
    about: str
    threads: int
    load: tuple[float, ...]
    watts: tuple[float, ...]
    scope: Scope
    provenance: Provenance
    source: str
    licence: str
    year: int | None
    shipped: bool

    @property
    def idle_w(self) -> float:
        return self.watts[0]

    @property
    def full_w(self) -> float:
        return self.watts[-1]

    def for_node(self, cores: int, threads_per_core: int = 1) -> PowerProfile:
        """Return watts against busy threads of a node with so many cores: the load curve read cores first."""
        points = list(zip(self.load, self.watts, strict=True))
        source = f"{self.name}: {self.about}; {self.source}"
        return threads_profile(
            points, cores, threads_per_core, scope=self.scope, provenance=self.provenance, source=source
        )


def list_profiles() -> list[NamedProfile]:
    """Return all profiles that can be used here: the shipped ones, then those of the data folder if it is there."""
    return list(_known().values())


def find_profile(name: str) -> NamedProfile:
    """Find a profile by name.

    Raises:
        UnknownName: There is none; names the nearest.
        MissingData: Its family needs the folder of real data, which is not there.
    """
    # The shipped ones first: most names need no look at the data folder, whose tables are large.
    if name in _shipped():
        return _shipped()[name]
    known = _known()
    if name in known:
        return known[name]
    family = name.partition(":")[0]
    # Rows of the full table are numbered, the shipped servers have names.
    if data_folder() is None and (family in ("spec", "turbostat") or name.removeprefix("ccf:").isdigit()):
        raise MissingData(f"the power profile {name!r} needs the folder of real data; set WATTFLOW_DATA to it")
    raise unknown_name("power profile", name, known, "`wattflow profiles` lists them all")


def resolve_profile(name: str, cores: int, threads_per_core: int = 1) -> PowerProfile:
    """Return the named curve for a node with so many cores. Raises as ``find_profile``."""
    return find_profile(name).for_node(cores, threads_per_core)


def _known() -> dict[str, NamedProfile]:
    folder = data_folder()
    return {**_shipped(), **(_from_folder(folder) if folder is not None else {})}


def _named(profiles: Iterable[NamedProfile]) -> dict[str, NamedProfile]:
    return {profile.name: profile for profile in profiles}


@functools.cache
def _shipped() -> dict[str, NamedProfile]:
    return _named([*_shipped_ccf(), *_shipped_ichnos()])


@functools.cache
def _from_folder(folder: Path) -> dict[str, NamedProfile]:
    curves, servers = folder.joinpath(*_CURVES), folder.joinpath(*_SERVERS)
    found = [*_curves(curves)] if curves.exists() else []
    return _named([*found, *(_all_ccf(servers) if servers.exists() else ())])


def _shipped_ccf() -> Iterator[NamedProfile]:
    text = packaged("profiles", "ccf_servers.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        ends = (float(row["idle_w"]), float(row["full_w"]))
        about = f"{row['vendor']} {row['system']}, {row['chips']} × {row['cpu']}"
        yield _ccf(row["name"], about, int(row["threads"]), ends, (int(row["published"][-4:]), True))


def _all_ccf(path: Path) -> Iterator[NamedProfile]:
    with open_text(path) as file:
        for row in csv.DictReader(file):
            try:
                ends = (float(row["avg. watts @ active idle"]), float(row["avg. watts @ 100%"]))
                threads = int(float(row["# Cores"]) * float(row["# Threads Per Core"]))
            except ValueError:
                continue  # a few rows lack a figure
            # Idle above full is a mistake of the source.
            if not 0 < ends[0] <= ends[1]:
                continue
            about = f"{row['Hardware Vendor']} {row['System']}, {row['Chips']} × {row['CPU Description']}"
            # The column of row numbers has an empty header.
            yield _ccf(row[""], about, threads, ends, (int(row["Published"][-4:]), False))


def _ccf(name: str, about: str, threads: int, ends: tuple[float, float], published: tuple[int, bool]) -> NamedProfile:
    year, shipped = published
    return NamedProfile(
        name=f"ccf:{name}",
        about=about,
        threads=threads,
        load=(0.0, 1.0),
        watts=ends,
        scope=Scope.WALL,
        provenance=Provenance.MODELLED,
        source=_CCF,
        licence="Apache-2.0",
        year=year,
        shipped=shipped,
    )


def _shipped_ichnos() -> Iterator[NamedProfile]:
    for node in ichnos.ichnos_nodes().values():
        for governor, (watts, provenance) in node.curves.items():
            yield NamedProfile(
                name=f"ichnos:{node.name}/{governor}",
                about=f"{node.cpu}, governor {governor}",
                threads=node.threads,
                load=ichnos.loads(),
                watts=watts,
                scope=Scope.PACKAGE,
                provenance=provenance,
                source=ichnos.SOURCE,
                licence="MIT",
                year=None,
                shipped=True,
            )


def _curves(path: Path) -> Iterator[NamedProfile]:
    by_curve: dict[str, list[dict[str, str]]] = {}
    with open_text(path) as file:
        for row in csv.DictReader(file):
            by_curve.setdefault(row["curve"], []).append(row)
    for curve, rows in by_curve.items():
        if len(rows) < 3:
            continue  # single points of other workloads, not a curve
        first = rows[0]
        spec = first["source"] == "specpower_ssj2008"
        points = sorted((float(row["load_pct"]) / 100, float(row["power_W"])) for row in rows)
        yield NamedProfile(
            name=f"spec:{curve}" if spec else f"turbostat:{first['system']}/{first['setting']}",
            about=f"{first['system']}, {first['cpu']}",
            threads=int(float(first["threads"])),
            load=tuple(load for load, _ in points),
            watts=tuple(watts for _, watts in points),
            scope=Scope.WALL if spec else Scope.PACKAGE,
            provenance=Provenance.MEASURED,
            source=_SPEC if spec else _TURBOSTAT,
            licence="SPEC fair use" if spec else "none stated",
            year=int(float(first["year"])) if first["year"] else None,
            shipped=False,
        )

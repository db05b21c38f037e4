"""Power profiles by name, for cluster files and for ``wattflow machine profiles``. All are curves against load, and
become watts against busy threads by the one law of `wattflow.model.load_curve`.

| name | what | scope, provenance |
|---|---|---|
| ``ccf:<server>`` | idle and full watts of 18 servers (CCF, Apache-2.0) | wall, modelled |
| ``ichnos:<node>/<governor>`` | fitted line of an Ichnos node (MIT) | package, modelled |
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from wattflow.clusters import ichnos
from wattflow.files.data_folder import packaged
from wattflow.model.errors import unknown_name
from wattflow.model.load_curve import threads_profile
from wattflow.model.profile import PowerProfile, Provenance, Scope

_CCF = "cloud-carbon-footprint/ccf-coefficients b0032d928c78 (Apache-2.0; figures from SPECpower_ssj2008)"


@dataclass(frozen=True, slots=True)
class NamedProfile:
    """A power curve against load that has a name.

    Attributes:
        threads: Hardware threads of the machine it comes from; for a node with another number the load counts.
        year: Of the measurement or publication, None where not stated.
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
    """Return all profiles that ship."""
    return list(_known().values())


def find_profile(name: str) -> NamedProfile:
    """Find a profile by name.

    Raises:
        UnknownName: There is none; names the nearest.
    """
    if name not in _known():
        raise unknown_name("power profile", name, _known(), "`wattflow machine profiles` lists them all")
    return _known()[name]


def resolve_profile(name: str, cores: int, threads_per_core: int = 1) -> PowerProfile:
    """Return the named curve for a node with so many cores. Raises as ``find_profile``."""
    return find_profile(name).for_node(cores, threads_per_core)


@functools.cache
def _known() -> dict[str, NamedProfile]:
    return {profile.name: profile for profile in [*_servers(), *_ichnos()]}


def _servers() -> Iterator[NamedProfile]:
    text = packaged("profiles", "ccf_servers.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        yield NamedProfile(
            name=f"ccf:{row['name']}",
            about=f"{row['vendor']} {row['system']}, {row['chips']} × {row['cpu']}",
            threads=int(row["threads"]),
            load=(0.0, 1.0),
            watts=(float(row["idle_w"]), float(row["full_w"])),
            scope=Scope.WALL,
            provenance=Provenance.MODELLED,
            source=_CCF,
            licence="Apache-2.0",
            year=int(row["published"][-4:]),
        )


def _ichnos() -> Iterator[NamedProfile]:
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
            )

"""Power profiles by name, for cluster files and for ``wattflow machine profiles``. All are curves against load, and
become watts against busy threads by the one law of `wattflow.model.profile`.

| name | what | scope, provenance |
|---|---|---|
| ``ccf:<server>`` | idle and full watts of 18 servers (CCF, Apache-2.0) | wall, modelled |
| ``ichnos:<node>/<governor>`` | fitted line of an Ichnos node (MIT) | package, modelled |
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wattflow.files.data_folder import packaged
from wattflow.model.errors import unknown_name
from wattflow.model.profile import PowerProfile, Provenance, Scope, threads_profile

# Nodes and power models of the Ichnos project (GlasgowC3lab/ichnos, MIT), at CPU package scope.
#
# Each model is a line fitted to turbostat package watts, P = a · load % + b, with the lowest and highest watts
# measured. The fit lies above the measured idle watts and, near full load, above the measured maximum, so a curve
# here starts at the minimum, follows the line from 10 % load on, and never exceeds the maximum. Entries of the
# governor ``default`` have only the two ends, and Ichnos does not say how they were obtained: those are straight
# lines, marked guessed.

SOURCE = "GlasgowC3lab/ichnos 5e866a5a93af, node_config_models/nodes.json"
_LOADS = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, slots=True)
class IchnosNode:
    """One node or node type.

    Attributes:
        threads: Hardware threads; the file calls them system cores.
        cores: Physical cores: half of the threads, which is what makes ``tdp_per_core`` add up to the data sheet's TDP.
        memory_gb: None where the file does not say.
        tdp_w: None for rented machines.
        curves: By governor, watts at loads 0, 0.1 … 1 and whether they are modelled or guessed.
    """

    name: str
    cpu: str
    threads: int
    cores: int
    memory_gb: int | None
    tdp_w: float | None
    curves: Mapping[str, tuple[tuple[float, ...], Provenance]]


@functools.cache
def ichnos_nodes() -> Mapping[str, IchnosNode]:
    """Return all nodes by name."""
    models = json.loads(packaged("profiles", "ichnos_nodes.json").read_text(encoding="utf-8"))["nodes"]
    return {name: _node(name, model) for name, model in models.items()}


def loads() -> tuple[float, ...]:
    """Return the loads that the watts of a curve belong to."""
    return _LOADS


def _node(name: str, model: Mapping[str, object]) -> IchnosNode:
    threads = _number(model["system_cores"])
    per_core = model.get("tdp_per_core")
    memory = model.get("memory")
    return IchnosNode(
        name=name,
        cpu=str(model["cpu_model"]),
        threads=int(threads),
        # The file says system cores, which are hardware threads.
        cores=int(threads) // 2,
        memory_gb=None if memory is None else int(_number(memory)),
        # Per physical core, of which there are half as many as threads.
        tdp_w=None if per_core is None else _number(per_core) * threads / 2,
        curves={key: _curve(value) for key, value in model.items() if isinstance(value, Mapping)},
    )


def _curve(model: Mapping[str, object]) -> tuple[tuple[float, ...], Provenance]:
    low, high = _number(model["min_watts"]), _number(model["max_watts"])
    line = model.get("linear")
    if not isinstance(line, list):
        return tuple(low + (high - low) * load for load in _LOADS), Provenance.GUESSED
    slope, intercept = _number(line[0]), _number(line[1])
    # The fitted line leaves the measured range at both ends; it is cut to it (module docstring).
    fitted = (min(high, slope * 100 * load + intercept) for load in _LOADS[1:])
    return (low, *fitted), Provenance.MODELLED


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


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
    for node in ichnos_nodes().values():
        for governor, (watts, provenance) in node.curves.items():
            yield NamedProfile(
                name=f"ichnos:{node.name}/{governor}",
                about=f"{node.cpu}, governor {governor}",
                threads=node.threads,
                load=loads(),
                watts=watts,
                scope=Scope.PACKAGE,
                provenance=provenance,
                source=SOURCE,
                licence="MIT",
                year=None,
            )

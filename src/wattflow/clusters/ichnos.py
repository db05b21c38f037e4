"""Nodes and power models of the Ichnos project (GlasgowC3lab/ichnos, MIT), at CPU package scope.

Each model is a line fitted to turbostat package watts, P = a · load % + b, with the lowest and highest watts measured.
The fit lies above the measured idle watts and, near full load, above the measured maximum, so a curve here starts at
the minimum, follows the line from 10 % load on, and never exceeds the maximum. Entries of the governor ``default`` have
only the two ends, and Ichnos does not say how they were obtained: those are straight lines, marked guessed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass

from wattflow.files.data_folder import packaged
from wattflow.model.profile import Provenance

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

"""OpenDC 2.4 ``experiment.json``, read for the workload that it names."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload
from wattflow.traces import opendc
from wattflow.traces.source import Probe, read_json
from wattflow.traces.wfformat_schema import Check


def claims_experiment(probe: Probe) -> bool:
    """Tell whether this is an experiment, which names topologies and workloads."""
    return not probe.folder and '"topologies"' in probe.text() and '"workloads"' in probe.text()


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment's files and the names of its allocation policies."""

    name: str
    topologies: tuple[Path, ...]
    workloads: tuple[Path, ...]
    policies: tuple[str, ...]


def read_experiment(path: Path) -> Experiment:
    """Read the experiment file; paths in it are relative to its folder."""
    check = Check()
    raw = _object(path)

    def paths(key: str) -> tuple[Path, ...]:
        found = []
        for where, entry in check.objects(raw, key, "$"):
            name = check.text(entry, "pathToFile", where)
            if not name:
                check.problem(where, "has no 'pathToFile'")
            else:
                found.append(path.parent / name)
        if not found:
            check.problem(f"$.{key}", "names no file")
        return tuple(found)

    experiment = Experiment(
        name=check.text(raw, "name", "$") or path.parent.name,
        topologies=paths("topologies"),
        workloads=paths("workloads"),
        policies=tuple(
            check.text(entry, "policyName", where) or check.text(entry, "type", where) or ""
            for where, entry in check.objects(raw, "allocationPolicies", "$")
        ),
    )
    if check.problems:
        raise InvalidInput(str(path), check.problems)
    return experiment


def read_workload(path: Path) -> Workload:
    """Read the first workload that an experiment names."""
    experiment = read_experiment(path)
    first = experiment.workloads[0]
    if not first.exists():
        raise InvalidInput(str(path), f"names the workload {first.name!r}, which is not there")
    workload = opendc.read(first)
    notes = workload.notes
    if len(experiment.workloads) > 1:
        notes += (f"the experiment names {len(experiment.workloads)} workloads; this is the first",)
    return dataclasses.replace(workload, name=experiment.name, notes=notes)


def _object(path: Path) -> dict[str, object]:
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise InvalidInput(str(path), "must be a JSON object")
    return raw

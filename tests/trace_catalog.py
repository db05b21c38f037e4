"""Name every file below a folder: the format that loads it, or the other shape that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from research import opendc_topology
from wattflow.model.errors import InvalidInput
from wattflow.traces import registry
from wattflow.traces.source import Probe, probe

OTHER = "a data set of another shape"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file.

    Attributes:
        path: Relative to the folder that was walked.
        format: A name of `registry.formats`, or None.
        load: What to give to `registry.load`: the file, or the folder that it is a part of; None without a format.
        about: The format's line, or which other shape the file has.
    """

    path: Path
    format: str | None
    load: Path | None
    about: str


_SHAPES: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(columns), about)
    for columns, about in (
        (("Machine", "Workflow", "NumberSequences", "Realtime"), "Lotaru task executions by machine"),
        (("Workflow", "Task", "Machine", "Realtime1"), "Lotaru microbenchmarks"),
        (("name", "co2e", "energy", "avg_ci"), "per-task footprints by a model (Ichnos), not a trace"),
        (("node", "governor", "run", "energy_pkg_J"), "measured energy of whole runs"),
        (("run", "function", "start_s", "end_s"), "FaasMeter invocations, for energy attribution"),
        (("run", "second_of_day"), "power samples a second"),
        (("run", "machine", "main_power_column"), "an index of measured runs"),
        (("func_name", "machine", "energy_J"), "measured energy of single function calls"),
        (("timestamp", "cpu_cycles"), "performance counters with power samples"),
        (("run", "t_s", "power_W"), "GPU power samples"),
        (("model_id", "avg_power_watts"), "power of inference configurations"),
        (("dataset", "network", "power_limit"), "GPU training power by limit"),
        (("dataset", "network", "target_metric"), "GPU training epochs to target"),
        (("timestamp", "avg_CI"), "a carbon intensity series"),
        (("datetime_utc", "ci_direct_g_per_kwh"), "a carbon intensity series"),
        (("Time", "Carbon Intensity"), "a carbon intensity series"),
        (("curve", "load_pct", "power_W"), "CPU power curves"),
        (("gpu", "x_value", "power_W"), "GPU power curves"),
        (("gpu", "mig_slice"), "step times on MIG slices"),
        (("sn", "cpu_milli", "memory_mib", "gpu", "model"), "an Alibaba GPU v2023 node list"),
        (("node_name", "gpu_model", "gpu_capacity_num"), "a node list of another kind"),
        (("job_id", "wallclock_req", "submit_time"), "a Slurm job table"),
        (("gmt_create", "exec_time_seconds"), "requests to an image-generation service"),
        (("HashApp", "NumInvocations"), "invocation totals by app"),
        (("AppHash", "AppContainerConcurrency"), "configurations of serverless apps"),
        (("experiment", "scheduler", "makespan_s"), "published results"),
        (("file", "application", "tasks"), "an index of workflow files"),
    )
)


def walk(base: Path) -> tuple[Entry, ...]:
    """Return every file below a folder, in order of path."""
    parts: dict[Path, tuple[str, Path]] = {}
    # The folder itself first, then those below in order: a file that two data sets claim belongs to the
    # deepest.
    for directory in [base, *sorted(p for p in base.rglob("*") if p.is_dir())]:
        for name, member in _members(directory):
            parts[member] = (name, directory)
    return tuple(_entry(base, path, parts) for path in sorted(base.rglob("*")) if path.is_file())


def _members(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a folder that together are one data set."""
    found = Probe(directory, True)
    globs = {
        "wta": ("tasks/**/*.parquet", "workflows/**/*.parquet", "workload/**/*.json"),
        "opendc": ("tasks.parquet", "fragments.parquet"),
        "azure2019": ("invocations*.csv*", "*durations*.csv*", "*memory*.csv*"),
        "iluvatar": ("trace.csv*", "metadata.csv*"),
    }
    for name, patterns in globs.items():
        if registry.claims(name, found):
            for pattern in patterns:
                yield from ((name, member) for member in directory.glob(pattern))


def _entry(base: Path, path: Path, parts: dict[Path, tuple[str, Path]]) -> Entry:
    relative = path.relative_to(base)
    if path in parts:
        name, directory = parts[path]
        return Entry(relative, name, directory, f"part of {registry.about(name)}")
    try:
        found = probe(path)
    except InvalidInput as error:
        return Entry(relative, None, None, f"not readable: {error.problems[0]}")
    format = registry.claimed(found)
    if format is not None:
        return Entry(relative, format, path, registry.about(format))
    return Entry(relative, None, None, f"{OTHER}: {_shape(found)}")


def _shape(found: Probe) -> str:
    """Return one line about a file that is not a workload."""
    name, text = found.name, found.text()
    if name.endswith(".md"):
        return "documentation"
    if name == "manifest.csv":
        return "an index of files"
    if opendc_topology.claims_topology(found):
        return "an OpenDC topology, a cluster (research.opendc_topology)"
    if found.head.startswith(b"PAR1"):
        return "a parquet table"
    if name.endswith((".json", ".jsonl")):
        # Only near the beginning: a workflow may mention schemas far below.
        kind = "a JSON schema" if '"$schema"' in text[:500] else "JSON lines" if name.endswith("l") else "JSON"
        return kind if kind == "a JSON schema" else f"{kind} without a workflow"
    header = found.header()
    # The first line has no separator and the next do: a title above the header.
    if len(header) == 1 and "," in "".join(text.split("\n")[1:3]):
        return "a table with a title line"
    for columns, about in _SHAPES:
        if columns <= set(header):
            return about
    if len(header) > 1:
        return f"a table of {', '.join(header[:4])}{' …' if len(header) > 4 else ''}"
    return "a file of unknown kind"

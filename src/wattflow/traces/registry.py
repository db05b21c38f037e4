"""The table of formats, and load, save, detect over it.

Each format is a module with ``claims(probe) -> bool`` and ``read(path) -> Workload``; those that are written have
``write(workload, path) -> tuple of notes`` too, the notes naming what the format cannot hold. Order matters: the
first format that claims a path reads it, and those of other packages (entry points of ``wattflow.traces``, each a
`Format`) are asked first: they know what ours would take for something else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from wattflow.model import plugins
from wattflow.model.errors import InvalidInput, unknown_name
from wattflow.model.workload import Workload
from wattflow.traces.source import Probe, probe

Reader = Callable[[Path], Workload]
Writer = Callable[[Workload, Path], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its name, where its code lives, whether it is written, and one line about it.

    ``module`` lies in `wattflow.traces`, or is the full name of a module of another package.
    """

    name: str
    about: str
    module: str
    read: str = "read"
    claims: str = "claims"
    write: str | None = None
    endings: tuple[str, ...] = ()
    holds_folder: bool = False


# Order is part of the contract (module docstring): folders of parquet first, whose files others
# might claim, the loosest tests last. `claimed` asks in this order.
FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format("wta", "Workflow Trace Archive, a folder of parquet", "wta", write="write", holds_folder=True),
        Format("opendc", "OpenDC 2.4 tasks and fragments, a folder of parquet", "opendc", write="write",
               holds_folder=True),
        Format("azure2019", "Azure Functions 2019, three tables of counts and percentiles", "azure2019",
               holds_folder=True),
        Format("iluvatar", "Ilúvatar invocation trace with its table of functions", "invocations",
               read="read_iluvatar", claims="claims_iluvatar", holds_folder=True),
        Format("azure2021", "Azure Functions 2021, one row per invocation", "invocations", read="read_azure2021",
               claims="claims_azure2021", write="write_azure2021"),
        Format("flowbench", "FlowBench runs with their DAG", "flowbench"),
        Format("flowbench-dag", "FlowBench DAG alone, runtimes unknown", "flowbench", read="read_dag",
               claims="claims_dag"),
        Format("opendc-experiment", "OpenDC 2.4 experiment.json, read for its workload", "opendc",
               read="read_workload", claims="claims_experiment"),
        Format("alibaba-gpu", "Alibaba GPU v2023 pod list", "alibaba"),
        Format("nextflow", "Nextflow trace, comma- or tab-separated", "nextflow"),
        Format("wfformat", "WfCommons WfFormat 1.0 to 1.6, a file or a folder of files", "wfformat",
               write="write", endings=(".json",), holds_folder=True),
        Format("argo", "Argo Workflow manifests, written only", "argo", write="write",
               endings=(".argo.yaml", ".argo.yml")),
        Format("swf", "Standard Workload Format", "swf", write="write", endings=(".swf",)),
    )
}  # fmt: skip


def _table() -> dict[str, Format]:
    """Return all formats in the order in which they are asked whether a path is theirs."""
    brought: dict[str, Format] = plugins.usable(plugins.TRACES, FORMATS, Format)
    # Ours win a clash of names: `|` keeps the right side's value, in the left side's place.
    return brought | FORMATS


def formats() -> tuple[Format, ...]:
    """Return all formats, by name."""
    return tuple(entry for _, entry in sorted(_table().items()))


def _code(entry: Format, name: str) -> object:
    module = entry.module if "." in entry.module else f"wattflow.traces.{entry.module}"
    return getattr(importlib.import_module(module), name)


def about(format: str) -> str:
    """Return one line about a format."""
    return _known(format).about


def _known(format: str) -> Format:
    table = _table()
    if format not in table:
        raise unknown_name("trace format", format, table)
    return table[format]


def claims(name: str, found: Probe) -> bool:
    """Tell whether the format of this name claims the probe."""
    entry = _known(name)
    return cast(Callable[[Probe], bool], _code(entry, entry.claims))(found)


def claimed(found: Probe) -> str | None:
    """Return the name of the format that claims this probe, or None."""
    return next((name for name in _table() if claims(name, found)), None)


def detect(path: str | Path) -> str:
    """Return the format of a file or folder, by its content and name. Raises InvalidInput where none fits.

    What only looks like JSON counts as WfFormat, whose reader then says what is wrong with it.
    """
    path = Path(path)
    found = probe(path)
    name = claimed(found)
    if name is None and not found.folder and (found.name.endswith(".json") or found.text().lstrip()[:1] in ("{", "[")):
        return "wfformat"
    if name is None and found.name.endswith(FORMATS["argo"].endings):
        raise InvalidInput(
            str(path), "Argo manifests are written only; a finished workflow comes back by `wattflow kube collect`"
        )
    if name is None:
        readable = ", ".join(sorted(_table().keys() - {"argo"}))
        raise InvalidInput(
            str(path), f"not in a format that wattflow reads ({readable}); `wattflow docs formats` shows each"
        )
    return name


def load(path: str | Path, format: str | None = None) -> Workload:
    """Read a workload from a file or folder.

    Args:
        path: A file, packed with gzip or not, or a folder for formats of several files.
        format: A name of `formats`; by default it is detected.

    Raises:
        InvalidInput: With every problem of the file and its place.
    """
    path = Path(path)
    entry = _known(format if format is not None else detect(path))
    if format is not None:
        # A named format skips detection, which is also what tells that a file is missing or empty.
        probe(path)
    return cast(Reader, _code(entry, entry.read))(path)


def format_for(path: Path) -> Format:
    """Return the format that a path to be written names by its ending; a path without one is a WTA folder."""
    # Packing is no format.
    name = path.name.lower().removesuffix(".gz")
    for entry in _table().values():
        if entry.write is not None and any(name.endswith(ending) for ending in entry.endings):
            return entry
    if path.suffix == "":
        return FORMATS["wta"]
    written = ", ".join(entry.name for entry in formats() if entry.write is not None)
    raise InvalidInput(str(path), f"the name does not say which format to write; name one of {written}")


def save(workload: Workload, path: str | Path, format: str | None = None) -> tuple[str, ...]:
    """Write a workload, all of it or nothing.

    Args:
        workload: What to write.
        path: ``.json``, ``.swf`` (also with ``.gz``); without an ending a folder in the WTA format.
        format: A name of `formats` that is written; by default the path says it.

    Returns:
        One line for each thing that the format cannot hold and that was left out.
    """
    path = Path(path)
    entry = _known(format) if format is not None else format_for(path)
    if entry.write is None:
        written = ", ".join(other.name for other in formats() if other.write is not None)
        raise InvalidInput(str(path), f"{entry.name} is read only; formats that are written: {written}")
    return cast(Writer, _code(entry, entry.write))(workload, path)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Report a conversion: the formats, the tasks written, what the reader repaired, what the writer left out."""

    source_format: str
    target_format: str
    tasks: int
    read_notes: tuple[str, ...]
    dropped: tuple[str, ...]


def convert(
    source: str | Path, target: str | Path, *, source_format: str | None = None, target_format: str | None = None
) -> Conversion:
    """Read ``source``, write ``target``: nothing is lost that both formats hold; the rest is named."""
    source, target = Path(source), Path(target)
    # Both formats are settled before anything is read, so that a wrong target costs no time.
    read_as = source_format or detect(source)
    write_as = target_format or format_for(target).name
    workload = load(source, read_as)
    dropped = save(workload, target, write_as)
    return Conversion(read_as, write_as, len(workload), workload.notes, dropped)

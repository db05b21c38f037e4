"""A finished run as one parquet file: its attempts as rows, everything else in the file's metadata.

Version 2 holds the whole run: what it was made of, how each attempt's joules are known, and why each waited. Version 1
had the attempts and the manifest alone; it is read, and says so.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wattflow.clusters.toml_file import cluster_toml, parse_cluster
from wattflow.files.columns import Column, Document, pack, unpack
from wattflow.files.whole import whole_file
from wattflow.lab.figures.metrics import node_provenance
from wattflow.lab.figures.power_series import power_curve, sleeps
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS, ATTEMPT, BAND, OUTCOMES, SLEEP, Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

if TYPE_CHECKING:
    import pyarrow as pa


# The rest of a run file: tasks, edges, power, sleep and the cluster of a run, as columns.
#
# This is the part of a run file that a parquet table of attempts has no place for; `run_file` keeps it compressed in
# the file's metadata. It holds everything exactly: a run that is read back draws and replays like the one that was
# written.

_PER_TASK = ("release_s", "runtime_s", "estimate_s", "deadline_s", "input_bytes", "output_bytes")
POWER = np.dtype([("time_s", "f8"), ("node", "i4"), ("watts", "f8"), ("idle_w", "f8")])
LARGEST_BYTES = 4 << 30
"""Unpacked; what claims to be larger is damaged."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that `Run` needs beside attempts and manifest."""

    workload: Workload
    cluster: Cluster
    power_log: NDArray[np.void] | None
    sleep_log: NDArray[np.void] | None


def pack_inputs(run: Run) -> bytes:
    """Compressed columns."""
    workload = run.workload
    # The child of each edge; `parent` is in the order of children.
    child = np.repeat(np.arange(len(workload), dtype=np.int32), np.diff(workload.parent_start))
    tables = {
        "tasks": _tasks(workload),
        "edges": {
            # As differences: neighbours are alike and pack well.
            "parent": Column(workload.parent.astype(np.int64), form="delta"),
            "child": Column(child.astype(np.int64), form="delta"),
            "bytes": Column(workload.parent_bytes),
        },
        "workflows": {"name": Column(list(workload.workflow_names)), "submit_s": Column(workload.workflow_submit_s)},
    }
    curve = power_curve(run)
    if not curve.rebuilt:  # else it is rebuilt again just as well
        tables["power"] = _power(run)
        asleep = sleeps(run, curve)
        tables["sleep"] = {name: Column(asleep[name]) for name in SLEEP.names or ()}
    about = {
        "name": workload.name,
        "functions": [asdict(function) for function in workload.functions],
        "shapes": [asdict(shape) for shape in workload.shapes],
        "cluster_toml": cluster_toml(run.cluster),
    }
    return zlib.compress(pack(about, {}, tables), 6)


def unpack_inputs(data: bytes, where: str) -> Inputs:
    """Read them back. Raises InvalidInput where they are damaged."""
    if not data:
        raise InvalidInput(where, "is damaged: what the run was made of is missing")
    unpacker = zlib.decompressobj()
    try:
        # Never more than that: a damaged length must not fill the memory.
        document = unpack(unpacker.decompress(data, LARGEST_BYTES), where)
        cluster = parse_cluster(document.about["cluster_toml"], where)
        power = _rows(document, "power", POWER)
        return Inputs(_workload(document), cluster, power, _rows(document, "sleep", SLEEP))
    except (zlib.error, KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidInput(where, f"is damaged: what the run was made of cannot be read ({error})") from None


def _tasks(workload: Workload) -> dict[str, Column]:
    columns = {name: Column(getattr(workload, name)) for name in _PER_TASK}
    columns |= {"shape": Column(workload.shape), "workflow": Column(workload.workflow)}
    if workload.ids is not None:
        columns["id"] = Column(workload.ids)
    return columns


def _power(run: Run) -> dict[str, Column]:
    log = run.power_log
    assert log is not None
    named = set(POWER.names or ()) & set(log.dtype.names or ())
    return {name: Column(np.ascontiguousarray(log[name])) for name in sorted(named)}


def _rows(document: Document, table: str, kind: np.dtype[np.void]) -> NDArray[np.void] | None:
    columns = document.tables.get(table)
    if columns is None:
        return None
    names = [name for name in kind.names or () if name in columns]
    rows = np.zeros(len(columns[names[0]]), np.dtype([(name, kind[name]) for name in names]))
    for name in names:
        rows[name] = columns[name]
    return rows


def _workload(document: Document) -> Workload:
    about, tasks = document.about, document.tables["tasks"]
    edges, flows = document.tables["edges"], document.tables["workflows"]
    ids = tasks.get("id")
    return Workload.of_columns(
        str(about["name"]),
        shapes=[_shape(shape) for shape in about["shapes"]],
        functions=[Function(**function) for function in about["functions"]],
        edges=(np.asarray(edges["parent"], np.int32), np.asarray(edges["child"], np.int32)),
        edge_bytes=np.asarray(edges["bytes"]),
        shape=np.asarray(tasks["shape"]),
        workflow=np.asarray(tasks["workflow"]),
        workflow_names=tuple(flows["name"]),
        workflow_submit_s=np.asarray(flows["submit_s"], np.float64),
        ids=tuple(ids) if ids is not None else None,
        **{name: np.asarray(tasks[name], np.float64) for name in _PER_TASK},
    )


def _shape(about: Mapping[str, Any]) -> Shape:
    given: list[dict[str, Any]] = [
        # JSON has no tuples; variants are compared and hashed.
        {key: tuple(value) if isinstance(value, list) else value for key, value in variant.items()}
        for variant in about["variants"]
    ]
    return Shape(int(about["function"]), tuple(Variant(**one) for one in given), int(about["parts"]))


KEY, INPUTS = b"wattflow", b"wattflow.inputs"
VERSION = 2
WAITS = ("none", "queue", "message", "wake", "cold_start", "data", "hold")
"""The longest stage between ready and start; none below a millisecond."""
PROVENANCES = tuple(str(kind) for kind in Provenance)
_NAMED = ("task_id", "node_name", "variant_name", "outcome_name")
OLD = (
    "this file was written by an older version: tasks that never ran, edges, power and sleep are not in it; "
    "`wattflow simulate --attempts` or `wattflow run --out` writes a new one"
)


def write_run(path: str | os.PathLike[str], run: Run) -> None:
    """Write the run; the file appears whole or not at all."""
    import pyarrow.parquet as pq

    table = run_table(run)
    # Files are opened here: Arrow takes a path for text and cannot encode a name that is not UTF-8.
    with (
        whole_file(path) as draft,
        draft.open("wb") as file,
        pq.ParquetWriter(file, table.schema, compression="zstd") as writer,
    ):
        # Not in the schema's own metadata, which Arrow would write a second time, as text.
        writer.add_key_value_metadata({INPUTS: pack_inputs(run)})
        writer.write_table(table)


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run read back: the rows as they were, and what the file says beside them.

    Attributes:
        attempts: Rows of ATTEMPT, byte for byte.
        names: Task id, node, variant and outcome of each row, by column.
        about: The file's manifest: inputs, seed, options, versions, joules by node and account.
        run: The whole run; None in a file of version 1.
        notes: What a reader should know of the file.
    """

    attempts: NDArray[np.void]
    names: Mapping[str, list[str]]
    about: Mapping[str, Any]
    run: Run | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def makespan_s(self) -> float:
        return float(self.about["makespan_s"])

    def energy_j(self) -> dict[str, float | None]:
        """Return joules of all nodes by account; None where a node's watts are unknown."""
        table = np.array(self.about["energy_j"], np.float64).reshape(-1, len(self.about["accounts"]))
        sums = table.sum(axis=0).tolist()
        return {n: None if math.isnan(j) else j for n, j in zip(self.about["accounts"], sums, strict=True)}


def is_run(path: str | os.PathLike[str]) -> bool:
    """Tell whether the file is a run that `write_run` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with Path(path).open("rb") as file:
            metadata = pq.read_schema(file).metadata or {}
    except (pa.ArrowInvalid, OSError):
        return False
    return KEY in metadata and b'"accounts"' in metadata[KEY]


def read_run(path: str | os.PathLike[str]) -> SavedRun:
    """Read a run back.

    Raises:
        InvalidInput: The file is no run, is damaged, or was written by a version that this one cannot read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not Path(path).is_file():
        raise InvalidInput(str(path), "no such file")
    if not is_run(path):
        raise InvalidInput(
            str(path), "is no run: `wattflow simulate --attempts FILE` and `wattflow run --out` write one"
        )
    try:
        with Path(path).open("rb") as file:
            table = pq.read_table(file)
            about = json.loads(table.schema.metadata[KEY])
            inputs = (pq.read_metadata(file).metadata or {}).get(INPUTS, b"")
    except (pa.ArrowException, OSError, ValueError):
        raise InvalidInput(str(path), "is damaged: it begins as a run, but its rows cannot be read") from None
    version = about.get("version", 1)
    if version > VERSION:
        raise InvalidInput(str(path), f"was written by a newer wattflow (run file {version}, known: {VERSION})")
    fields = ATTEMPT.names or ()
    missing = [name for name in fields if name not in table.column_names]
    if missing:
        raise InvalidInput(str(path), f"was written by another version: it lacks {', '.join(missing)}")
    rows = np.zeros(table.num_rows, ATTEMPT)
    for name in fields:
        rows[name] = table[name].to_numpy()
    names = {name: table[name].to_pylist() for name in _NAMED}
    if version < VERSION:
        return SavedRun(rows, names, about, None, (OLD,))
    return SavedRun(rows, names, about, _whole_run(str(path), rows, table, about, inputs))


def _whole_run(where: str, rows: NDArray[np.void], table: pa.Table, about: Mapping[str, Any], inputs: bytes) -> Run:
    made = unpack_inputs(inputs, where)
    # An index beyond the tables would be somebody else's row, not an error.
    if len(rows) and (int(rows["task"].max()) >= len(made.workload) or int(rows["node"].max()) >= len(about["nodes"])):
        raise InvalidInput(where, "is damaged: its attempts name tasks or nodes that are not in it")
    bands = None
    # A simulated run's bands follow from its cluster.
    if not about["simulated"]:
        bands = np.zeros(len(rows), BAND)
        for name in ("low_j", "high_j"):
            bands[name] = table[name].to_numpy()
        # −1 as in memory: how it is known is not known.
        bands["provenance"] = [PROVENANCES.index(one) if one else -1 for one in table["provenance_name"].to_pylist()]
    return Run(
        workload=made.workload,
        cluster=made.cluster,
        policy=str(about["policy"]),
        attempts=rows,
        energy_j=np.array(about["energy_j"], np.float64).reshape(-1, len(about["accounts"])),
        carbon_g=np.array(about["carbon_g"], np.float64),
        cost=np.array(about["cost"], np.float64),
        peak_w=about["peak_w"],
        makespan_s=about["makespan_s"],
        start_s=about["start_s"],
        lead_s=about["lead_s"],
        power_log=made.power_log,
        scalars=about["scalars"],
        manifest=about["manifest"],
        simulated=about["simulated"],
        bands=bands,
        sleep_log=made.sleep_log,
    )


def run_table(run: Run) -> pa.Table:
    """Columns of the attempts, with names for task, node, function, variant, outcome and wait beside their numbers."""
    import pyarrow as pa

    rows, workload = run.attempts, run.workload
    columns: dict[str, object] = {name: pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()}
    ids = workload.ids
    columns["task_id"] = pa.array(
        [ids[t] for t in rows["task"].tolist()] if ids is not None else rows["task"].astype(str)
    )

    def named(numbers: NDArray[Any], names: list[str]) -> object:
        # Below 0 is no name: null, not the last one.
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32), mask=numbers < 0), pa.array(names))

    shapes = workload.shape[rows["task"]]
    functions = np.array([shape.function for shape in workload.shapes], np.int32)
    columns["node_name"] = named(rows["node"], [node.name for node in run.cluster.nodes])
    columns["function_name"] = named(functions[shapes], [function.name for function in workload.functions])
    columns["workflow_name"] = pa.array([workload.workflow_names[w] for w in workload.workflow[rows["task"]].tolist()])
    flat = [[variant.name for variant in shape.variants] for shape in workload.shapes]
    columns["variant_name"] = pa.array(
        [flat[s][v] for s, v in zip(shapes.tolist(), rows["variant"].tolist(), strict=True)]
    )
    columns["outcome_name"] = named(rows["outcome"], list(OUTCOMES))
    columns["wait_name"] = named(waits(rows), list(WAITS))
    bands = bands_of(run)
    columns["provenance_name"] = named(bands["provenance"], list(PROVENANCES))
    columns |= {name: pa.array(np.ascontiguousarray(bands[name])) for name in ("low_j", "high_j")}
    return pa.table(columns).replace_schema_metadata({KEY: json.dumps(run_manifest(run), default=str).encode()})


def waits(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """For each attempt, where most of the time between ready and start went: an index into ``WAITS``."""
    stages = np.stack(
        [
            rows["placed_s"] - rows["ready_s"],
            *(rows[f"{name}_s"].astype(np.float64) for name in ("message", "wake", "cold", "data", "hold")),
        ]
    )
    # NaN of an attempt that never started counts as no wait.
    stages = np.nan_to_num(stages)
    # The first of equal stages, in the order of `WAITS`.
    longest: NDArray[np.int64] = np.argmax(stages, axis=0) + 1
    return np.where(stages.max(axis=0, initial=0.0) >= 1e-3, longest, 0)


def bands_of(run: Run) -> NDArray[np.void]:
    """Rows of BAND: those of a real run; of a simulated one, how well its node's watts are known, without a band."""
    if run.bands is not None:
        return run.bands
    bands = np.zeros(len(run.attempts), BAND)
    kinds = [node_provenance(node) for node in run.cluster.nodes]
    known = np.array([-1 if kind is None else PROVENANCES.index(kind) for kind in kinds], np.int8)
    # Modelled watts have no error that anybody measured: NaN, not 0.
    bands["low_j"] = bands["high_j"] = np.nan
    bands["provenance"] = known[run.attempts["node"]]
    return bands


def run_manifest(run: Run) -> dict[str, object]:
    """Describe the run beside its rows: inputs, seed, versions, and the joules of every node by account."""
    from wattflow import __version__

    return {
        "wattflow": __version__,
        "version": VERSION,
        "workload": run.workload.name,
        "cluster": run.cluster.name,
        "policy": run.policy,
        "simulated": run.simulated,
        "start_s": run.start_s,
        "lead_s": run.lead_s,
        "makespan_s": run.makespan_s,
        "peak_w": run.peak_w,
        "accounts": list(ACCOUNTS),
        "nodes": [node.name for node in run.cluster.nodes],
        "energy_j": run.energy_j.tolist(),
        "carbon_g": run.carbon_g.tolist(),
        "cost": run.cost.tolist(),
        "scalars": dict(run.scalars),
        "manifest": dict(run.manifest),
    }

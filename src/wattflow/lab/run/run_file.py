"""A finished run as one parquet file: its attempts as rows, everything else in the file's metadata.

Version 2 holds the whole run: what it was made of (`run_inputs`), how each attempt's joules are known, and why each
waited. Version 1 had the attempts and the manifest alone; it is read, and says so.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wattflow.files.whole import whole_file
from wattflow.lab.figures.metrics import node_provenance
from wattflow.lab.run.run_inputs import pack_inputs, unpack_inputs
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.model.run import ACCOUNTS, ATTEMPT, BAND, OUTCOMES, Run

if TYPE_CHECKING:
    import pyarrow as pa

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

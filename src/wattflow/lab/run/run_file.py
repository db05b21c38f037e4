"""A finished run as one parquet file: its attempts as rows, everything else in the file's metadata."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wattflow.files.whole import whole_file
from wattflow.model.errors import InvalidInput
from wattflow.model.run import ACCOUNTS, ATTEMPT, OUTCOMES, Run

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b"wattflow"


def write_run(path: str | os.PathLike[str], run: Run) -> None:
    """Write the run; the file appears whole or not at all."""
    import pyarrow.parquet as pq

    table = run_table(run)
    with whole_file(path) as draft:
        pq.write_table(table, draft, compression="zstd")


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run read back: the rows as they were, and what the file says beside them.

    Attributes:
        attempts: Rows of ATTEMPT, byte for byte.
        names: Task id, node, variant and outcome of each row, by column.
        about: The file's manifest: inputs, seed, options, versions, joules by node and account.
    """

    attempts: NDArray[np.void]
    names: Mapping[str, list[str]]
    about: Mapping[str, Any]

    @property
    def makespan_s(self) -> float:
        return float(self.about["makespan_s"])

    def energy_j(self) -> dict[str, float | None]:
        """Joules of all nodes by account; None where a node's watts are unknown."""
        table = np.array(self.about["energy_j"], np.float64).reshape(-1, len(self.about["accounts"]))
        sums = table.sum(axis=0).tolist()
        return {n: None if math.isnan(j) else j for n, j in zip(self.about["accounts"], sums, strict=True)}


def is_run(path: str | os.PathLike[str]) -> bool:
    """Tell whether the file is a run that `write_run` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError):
        return False
    return KEY in metadata and b'"accounts"' in metadata[KEY]


def read_run(path: str | os.PathLike[str]) -> SavedRun:
    """Read a run back.

    Raises:
        InvalidInput: The file is no run, or lacks a column that this version knows.
    """
    import pyarrow.parquet as pq

    if not Path(path).is_file():
        raise InvalidInput(str(path), "no such file")
    if not is_run(path):
        raise InvalidInput(
            str(path), "is no run: `wattflow simulate --attempts FILE` and `wattflow run --out` write one"
        )
    table = pq.read_table(path)
    fields = ATTEMPT.names or ()
    missing = [name for name in fields if name not in table.column_names]
    if missing:
        raise InvalidInput(str(path), f"was written by another version: it lacks {', '.join(missing)}")
    rows = np.zeros(table.num_rows, ATTEMPT)
    for name in fields:
        rows[name] = table[name].to_numpy()
    names = {name: table[name].to_pylist() for name in ("task_id", "node_name", "variant_name", "outcome_name")}
    return SavedRun(rows, names, json.loads(table.schema.metadata[KEY]))


def run_table(run: Run) -> pa.Table:
    """Columns of the attempts, with names for task, node, variant and outcome beside their numbers."""
    import pyarrow as pa

    rows, workload = run.attempts, run.workload
    columns: dict[str, object] = {name: pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()}
    ids = workload.ids
    columns["task_id"] = pa.array(
        [ids[t] for t in rows["task"].tolist()] if ids is not None else rows["task"].astype(str)
    )
    nodes = pa.array([node.name for node in run.cluster.nodes])
    columns["node_name"] = pa.DictionaryArray.from_arrays(pa.array(rows["node"]), nodes)
    flat = [[variant.name for variant in shape.variants] for shape in workload.shapes]
    shapes = workload.shape[rows["task"]].tolist()
    columns["variant_name"] = pa.array([flat[s][v] for s, v in zip(shapes, rows["variant"].tolist(), strict=True)])
    columns["outcome_name"] = pa.DictionaryArray.from_arrays(pa.array(rows["outcome"].astype(np.int8)), list(OUTCOMES))
    return pa.table(columns).replace_schema_metadata({KEY: json.dumps(run_manifest(run), default=str).encode()})


def run_manifest(run: Run) -> dict[str, object]:
    """Collect what is not in the rows: inputs, seed, versions, and the joules of every node by account."""
    from wattflow import __version__

    return {
        "wattflow": __version__,
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

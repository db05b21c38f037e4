"""A finished run as one parquet file: its attempts as rows, everything else in the file's metadata."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np

from wattflow.files.whole import whole_file
from wattflow.model.run import ACCOUNTS, OUTCOMES, Run

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b"wattflow"


def write_run(path: str | os.PathLike[str], run: Run) -> None:
    """Write the run; the file appears whole or not at all."""
    import pyarrow.parquet as pq

    table = run_table(run)
    with whole_file(path) as draft:
        pq.write_table(table, draft, compression="zstd")


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
    """What is not in the rows: inputs, seed, versions, and the joules of every node by account."""
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

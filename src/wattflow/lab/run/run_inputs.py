"""The rest of a run file: tasks, edges, power, sleep and the cluster of a run, as columns.

This is the part of a run file that a parquet table of attempts has no place for; `run_file` keeps it compressed in the
file's metadata. It holds everything exactly: a run that is read back draws and replays like the one that was written.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.clusters.toml_file import parse_cluster
from wattflow.clusters.toml_write import cluster_toml
from wattflow.files.columns import Column, Document, pack, unpack
from wattflow.lab.figures.power_series import power_curve, sleeps
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.model.run import SLEEP, Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload

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

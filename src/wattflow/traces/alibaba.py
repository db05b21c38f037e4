"""Alibaba GPU cluster trace v2023: pod lists. Node lists are clusters (`clusters.alibaba_cluster`).

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023. CPU is in thousandths of a core, memory in MiB, ``gpu_milli`` in thousandths of one GPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattflow.model.units import MIB
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import UNKNOWN_RUNTIME_S, Shape, Workload
from wattflow.traces import log_tables
from wattflow.traces.source import Probe, stem

_POD = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


def claims(probe: Probe) -> bool:
    """Recognise a pod list, by its header."""
    return not probe.folder and set(_POD) <= set(probe.header())


def read(path: Path) -> Workload:
    """Read a pod list. A pod runs from when it was scheduled to its deletion; lists without times give structure only.

    Pods that were never scheduled have no known runtime: they stay, since they are part of what asks for room, with a
    runtime of 1 s, an unknown estimate, and ``runtime_known`` false.
    """
    table = log_tables.read_csv(path, *_POD)
    skips = log_tables.Skips(len(table), "pods", table.bad_rows)
    numbers = {}
    for name in (*_POD[1:], "creation_time", "deletion_time", "scheduled_time"):
        numbers[name], bad = table.numbers(name)
        skips.drop(bad, f"whose {name} is not a number")
    for name in _POD[1:]:
        # `~(x >= 0)` and not `x < 0`: NaN, an unknown need, must go too.
        skips.drop(~(numbers[name] >= 0) | (numbers[name] > 1e12), f"with an unknown or negative {name}")
    # The trace shares single GPUs only; a share of several has no meaning in its paper.
    skips.drop((numbers["num_gpu"] > 1) & (numbers["gpu_milli"] != 1000), "with shares of several GPUs")
    skips.drop(numbers["gpu_milli"] > 1000, "with more than the whole of a GPU")
    skips.drop((numbers["num_gpu"] > 0) & (numbers["gpu_milli"] == 0), "with a GPU and no share of it")
    skips.drop(numbers["num_gpu"] > 1024, "with more than 1,024 GPUs")
    created, deleted, scheduled = (numbers[f"{name}_time"] for name in ("creation", "deletion", "scheduled"))
    # NaN compares false, so lists without times keep all their pods.
    skips.drop((deleted < scheduled) | (created < 0), "that end before they start")
    skips.none_left(path)
    keep = skips.keep
    return _workload(table, keep, {name: values[keep] for name, values in numbers.items()}, (stem(path), skips.notes))


def _workload(
    table: log_tables.TraceTable,
    keep: log_tables.Mask,
    numbers: dict[str, log_tables.Floats],
    about: tuple[str, list[str]],
) -> Workload:
    name, notes = about
    created = numbers["creation_time"]
    # Some of the published lists have the columns of times, others do not.
    timed = bool(np.isfinite(created).any())
    # Times count from the first pod, as everywhere in a workload.
    origin = float(np.nanmin(created)) if timed else 0.0
    runtime = numbers["deletion_time"] - numbers["scheduled_time"]
    known = np.isfinite(runtime)
    if not known.all():
        notes.append(f"{np.count_nonzero(~known)} pods have no known runtime; 1 s stands in for it")
    if not timed:
        notes.append("the list has no times: all pods are released at 0, in order of the list")

    def kept(column: str) -> list[str]:
        return [text for text, stays in zip(table.texts(column), keep.tolist(), strict=True) if stays]

    shape, rows = log_tables.distinct(
        numbers["cpu_milli"].tolist(),
        numbers["memory_mib"].tolist(),
        numbers["num_gpu"].tolist(),
        numbers["gpu_milli"].tolist(),
        kept("gpu_spec"),
    )
    columns: dict[str, np.ndarray] = {"runtime_known": known}
    columns |= {column: np.array(kept(column), np.str_) for column in ("qos", "pod_phase") if table.has(column)}
    if timed:
        columns["scheduled_s"] = numbers["scheduled_time"] - origin
    return Workload.of_columns(
        name,
        release_s=np.nan_to_num(created - origin) if timed else np.zeros(len(runtime)),
        runtime_s=np.where(known, runtime, UNKNOWN_RUNTIME_S),
        estimate_s=runtime,
        shapes=[Shape(0, (_variant(row),)) for row in rows],
        functions=[Function("pod")],
        shape=shape,
        ids=_unique(kept("name")),
        columns=columns,
        notes=tuple(notes),
    )


def _variant(row: tuple[object, ...]) -> Variant:
    cpu, memory, gpus, share = (float(str(value)) for value in row[:4])
    models = tuple(model for model in str(row[4]).split("|") if model)
    if gpus == 0:
        # No models for a pod without a GPU, whatever its `gpu_spec` says: it fits any node.
        return Variant(cores=cpu / 1000, memory_bytes=int(memory * MIB), device_models=())
    return Variant(
        name="gpu",
        cores=cpu / 1000,
        memory_bytes=int(memory * MIB),
        device="gpu",
        devices=int(gpus),
        device_share=share / 1000,
        device_models=models,
    )


def _unique(names: list[str]) -> tuple[str, ...] | None:
    # Two pods of one name: numbers stand in for ids, since ids must be unique.
    return tuple(names) if len(set(names)) == len(names) and all(names) else None

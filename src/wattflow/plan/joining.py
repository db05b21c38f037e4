"""Workflows one after the other as one workload, and the load that they are on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workflow import Function
from wattflow.model.workload import Shape, Workload
from wattflow.policy.levels import levels

Floats = NDArray[np.float64]


def capacity(cluster: Cluster) -> float:
    """Return seconds of work per second that the owned cores do."""
    return sum(node.cores * node.speed for node in cluster.nodes if node.serverless is None)


def core_seconds(workload: Workload) -> float:
    """Work of a workload, each task in its first variant."""
    cores = np.array([shape.variants[0].cores * shape.parts for shape in workload.shapes])
    return float((workload.runtime_s * cores[workload.shape]).sum())


def joined(parts: Sequence[Workload], submit_s: Floats, cluster: Cluster, slack: float, name: str) -> Workload:
    """Return workflows one after the other, each submitted at its time, with a deadline of ``slack`` critical paths.

    Tasks of no length take a millisecond, so that every ratio is finite.
    """
    kinds = list(dict.fromkeys(map(id, parts)))
    # By object: workflows that are drawn again share their shapes.
    first = {key: next(part for part in parts if id(part) == key) for key in kinds}
    shapes: list[Shape] = []
    functions: list[Function] = []
    shape_at: dict[int, int] = {}
    path_s: dict[int, float] = {}
    for key, part in first.items():
        shape_at[key] = len(shapes)
        shapes += [Shape(s.function + len(functions), s.variants, s.parts) for s in part.shapes]
        functions += list(part.functions)
        path_s[key] = float(levels(part, cluster).path.max())
    sizes = np.array([len(part) for part in parts])
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return Workload.of_columns(
        name,
        release_s=np.concatenate([np.full(len(p), at) for p, at in zip(parts, submit_s, strict=True)]),
        # A ratio to the critical path is taken of every task.
        runtime_s=np.concatenate([np.maximum(p.runtime_s, 1e-3) for p in parts]),
        shapes=tuple(shapes),
        functions=tuple(functions),
        shape=np.concatenate([p.shape + shape_at[id(p)] for p in parts]).astype(np.int32),
        workflow=np.repeat(np.arange(len(parts)), sizes).astype(np.int32),
        workflow_submit_s=np.asarray(submit_s, np.float64),
        input_bytes=np.concatenate([p.input_bytes for p in parts]),
        output_bytes=np.concatenate([p.output_bytes for p in parts]),
        deadline_s=np.concatenate(
            [np.full(len(p), at + slack * path_s[id(p)]) for p, at in zip(parts, submit_s, strict=True)]
        ),
        edges=(
            np.concatenate([p.parent + at for p, at in zip(parts, base, strict=True)]).astype(np.int32),
            np.concatenate(
                [np.repeat(np.arange(len(p)), np.diff(p.parent_start)) + at for p, at in zip(parts, base, strict=True)]
            ).astype(np.int32),
        ),
        edge_bytes=np.concatenate([p.parent_bytes for p in parts]),
    )


def together(parts: Sequence[Workload], submit_s: Floats | None = None) -> Workload:
    """Return workflows of one driver as one workload, in their order, each when it came or at another time.

    Their shapes may differ, their functions are those of one list that grew.
    """
    # Shifted copies, so that what arrived stays as it was.
    if submit_s is not None:
        parts = [_moved(part, at) for part, at in zip(parts, submit_s.tolist(), strict=True)]
    shapes: dict[Shape, int] = {}
    number = _numbers(parts, shapes)
    sizes = np.array([len(part) for part in parts])
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    flows = np.concatenate([[0], np.cumsum([len(part.workflow_names) for part in parts])[:-1]])
    child = [np.repeat(np.arange(len(part)), np.diff(part.parent_start)) for part in parts]
    return Workload.of_columns(
        "arrived",
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in (
                "release_s",
                "runtime_s",
                "estimate_s",
                "input_bytes",
                "output_bytes",
                "deadline_s",
                "workflow_submit_s",
            )
        },
        shapes=tuple(shapes),
        # One list that grew: the longest holds all others.
        functions=max((part.functions for part in parts), key=len),  # an engine only learns of more
        shape=np.concatenate([which[part.shape] for which, part in zip(number, parts, strict=True)]),
        workflow=np.concatenate([part.workflow + at for part, at in zip(parts, flows, strict=True)]),
        edges=(
            np.concatenate([part.parent + at for part, at in zip(parts, base, strict=True)]),
            np.concatenate([one + at for one, at in zip(child, base, strict=True)]),
        ),
        edge_bytes=np.concatenate([part.parent_bytes for part in parts]),
    )


def _numbers(parts: Sequence[Workload], shapes: dict[Shape, int]) -> list[NDArray[np.int32]]:
    """Return for each part the number of each of its shapes, those that it uses put into the list."""
    found = []
    # By object first: a shape's own hash goes through all its variants, and parts of one stream share their shapes.
    by_object: dict[int, int] = {}
    alike: dict[tuple[int, int], NDArray[np.int32]] = {}
    for part in parts:
        key = id(part.shapes), id(part.shape)
        if key not in alike:
            # A workflow of a long stream carries the shapes of all others, and each costs rows of an engine's tables.
            number = np.zeros(len(part.shapes), np.int32)
            for at in np.unique(part.shape).tolist():
                shape = part.shapes[at]
                if id(shape) not in by_object:
                    by_object[id(shape)] = shapes.setdefault(shape, len(shapes))
                number[at] = by_object[id(shape)]
            alike[key] = number
        found.append(alike[key])
    return found


def _moved(part: Workload, submit_s: float) -> Workload:
    """Return the workflow with all its times as if submitted then."""
    by_s = submit_s - float(part.workflow_submit_s[0])
    return replace(
        part,
        release_s=part.release_s + by_s,
        deadline_s=part.deadline_s + by_s,
        workflow_submit_s=part.workflow_submit_s + by_s,
    )

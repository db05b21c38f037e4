"""Small workloads and clusters for sums done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reference.facts import Result
from wattflow.model.cluster import Cluster, Node, Zone
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload


def tasks(runtimes: Sequence[float], **columns: Any) -> Workload:
    """Tasks released at 0 unless ``release`` says otherwise, all of one shape unless ``shapes`` does."""
    runtime_s = np.array(runtimes, float)
    release_s = np.array(columns.pop("release", np.zeros(len(runtime_s))), float)
    function = columns.pop("function", Function("f"))
    shape = Shape(0, tuple(columns.pop("variants", (Variant(),))), columns.pop("parts", 1))
    columns = {"shapes": (shape,), "functions": (function,)} | columns
    return Workload.of_columns("hand", release_s=release_s, runtime_s=runtime_s, **columns)


def edges(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(parents, children) from pairs."""
    return np.array([p for p, _ in pairs], np.int32), np.array([c for _, c in pairs], np.int32)


def node(cores: int = 1, **facts: Any) -> Node:
    return Node("n", cores, facts.pop("memory_bytes", 100), **facts)


def nodes(*found: Node, zones: tuple[Zone, ...] = (Zone(),)) -> Cluster:
    """A cluster of these, named by their place."""
    return Cluster("hand", tuple(replace(one, name=f"n{i}") for i, one in enumerate(found)), zones)


def starts(result: Result, count: int) -> list[float]:
    """Start of each task's successful attempt."""
    return [next(r.start_s for r in result.records if r.task == t and r.outcome == "done") for t in range(count)]


def ends(result: Result, count: int) -> list[float]:
    """End of each task's successful attempt."""
    return [next(r.end_s for r in result.records if r.task == t and r.outcome == "done") for t in range(count)]

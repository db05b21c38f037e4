"""Sizes of a workload that tables of a frame are made for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.model.workload import Workload


def jobs(load: Workload) -> int:
    """Rows for jobs, with one for none."""
    return int(load.workflow.max()) + 2 if len(load) else 2


def record_rows(load: Workload) -> int:
    """Rows for attempts: each part of each task, and room for retries before the table grows."""
    parts = np.array([shape.parts for shape in load.shapes] or [1], np.int64)
    rows = len(load) if parts.max() == 1 else int(parts[load.shape].sum())
    # A table that is full grows; a few spare rows save that where a few tasks are tried again.
    return rows + rows // 64 + 512


def levels(load: Workload) -> NDArray[np.int64]:
    """Give each task's longest path from a root, in edges."""
    level = np.zeros(len(load), np.int64)
    for t in load.topological_order().tolist():
        parents = load.parents_of(t)
        if len(parents):
            level[t] = level[parents].max() + 1
    return level

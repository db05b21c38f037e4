"""Figures of a frame's run: slowdowns, their tail, and waits by stage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.model.run import Run

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
STAGES = ("client", "broker", "placer", "message", "host", "data")


def slowdowns(run: Run) -> NDArray[np.float64]:
    """End minus first ready over the runtime on the fastest host, of each finished task with a runtime above 0."""
    rows = run.attempts
    speed = max(node.speed for node in run.cluster.nodes)
    done = rows["outcome"] == 0
    # The common case, without a search by task.
    if len(rows) == len(run.workload) and done.all():
        response, task = rows["end_s"] - rows["ready_s"], rows["task"]
    else:
        ready = np.full(len(run.workload), np.inf)
        np.minimum.at(ready, rows["task"], rows["ready_s"])
        end = run.end_s_by_task()
        task = np.flatnonzero(np.isfinite(end))
        response = end[task] - ready[task]
    ideal = run.workload.runtime_s[task] / speed
    known = ideal > 0
    return np.asarray(response[known] / ideal[known])


def tail(run: Run) -> dict[str, float]:
    """Percentiles of the slowdown and its mean."""
    values = slowdowns(run)
    if not len(values):
        return {"mean": float("nan")} | {f"p{p:g}": float("nan") for p in PERCENTILES}
    return {"mean": float(values.mean())} | {
        f"p{p:g}": float(v) for p, v in zip(PERCENTILES, np.percentile(values, PERCENTILES))
    }


def waits_s(run: Run) -> dict[str, float]:
    """Return the mean seconds a task spent at each stage before it ran."""
    count = max(1, len(run.workload))
    return {stage: run.scalars[f"wait_{stage}_s"] / count for stage in STAGES}

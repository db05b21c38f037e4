"""How long people wait: from a workflow's submission to the end of its last task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.model.run import Run


def workflow_response_s(run: Run, end_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Response of each workflow, given the end of each task; NaN where a task of it was not finished."""
    workload = run.workload
    last = np.full(len(workload.workflow_submit_s), -np.inf)
    # inf marks a workflow with an open task through the maximum.
    np.maximum.at(last, workload.workflow, np.where(np.isnan(end_s), np.inf, end_s))
    response = last - workload.workflow_submit_s
    return np.asarray(np.where(np.isfinite(response), response, np.nan), np.float64)


def response_values(run: Run, end_s: NDArray[np.float64]) -> dict[str, float | None]:
    """Return the mean and 95th percentile over workflows; unknown where one was not finished."""
    response = workflow_response_s(run, end_s)
    if not len(response) or np.isnan(response).any():
        return {"workflow_response_mean_s": None, "workflow_response_p95_s": None}
    return {
        "workflow_response_mean_s": float(response.mean()),
        "workflow_response_p95_s": float(np.quantile(response, 0.95)),
    }

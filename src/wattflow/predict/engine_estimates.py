"""Estimates for the engine: predictions instead of the truth."""

from __future__ import annotations

from wattflow.model.workload import Workload
from wattflow.predict import runtime
from wattflow.predict.observations import of_workload


def with_predictions(workload: Workload, model: runtime.RuntimeModel, machine: str = "") -> Workload:
    """Return the workload with estimates from a model; a task that was never profiled has none (NaN).

    ``machine`` is the machine predictions are made for where the trace names none: the one of speed 1.
    """
    rows = of_workload(workload, machine)
    return workload.with_estimates(model.predict(rows).runtime_s)

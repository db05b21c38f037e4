"""Estimates for the engine: predictions instead of the truth, or the truth with a known error."""

from __future__ import annotations

import numpy as np

from wattflow.model.workload import Workload
from wattflow.predict import runtime
from wattflow.predict.observations import of_workload


def with_predictions(workload: Workload, model: runtime.RuntimeModel, machine: str = "") -> Workload:
    """Return the workload with estimates from a model; a task that was never profiled has none (NaN).

    ``machine`` is the machine predictions are made for where the trace names none: the one of speed 1.
    """
    rows = of_workload(workload, machine)
    return workload.with_estimates(model.predict(rows).runtime_s)


def with_error(workload: Workload, runtime_error: float, seed: int = 0) -> Workload:
    """Return the workload with estimates that miss the truth by a log-normal factor.

    ``runtime_error`` is the standard deviation of log(estimate / truth): 0.3 is about 30 % either way. The factor has
    median 1. Error 0 gives the truth; the same seed gives the same estimates.
    """
    if not (np.isfinite(runtime_error) and runtime_error >= 0):
        raise ValueError(f"a runtime error must be a number ≥ 0, not {runtime_error}")
    # Median 1, not mean 1: half of the estimates are too low, as in practice.
    factor = np.exp(runtime_error * np.random.default_rng(seed).standard_normal(len(workload)))
    return workload.with_estimates(workload.runtime_s * factor)

"""One row at a time, compiled: what a scheduler asks in the middle of a decision."""

from __future__ import annotations

import math

import numba
import numpy as np

from wattflow.predict import runtime


class RowPredictor:
    """Point predictions of a fitted runtime model for single rows, equal to `RuntimeModel.predict` on known tasks."""

    def __init__(self, model: runtime.RuntimeModel) -> None:
        core, process = model.core, model.core.process
        self._task = {name: i for i, name in enumerate(model.names.tasks)}
        self._machine = {name: i for i, name in enumerate(model.names.machines)}
        self._data = {name: i for i, name in enumerate(model.names.data)}
        self._ran = core.ran
        scales = np.exp(process.scales)
        near = np.exp(-(process.distance**2) / (2 * scales[5] ** 2))
        self._arrays = (
            np.ascontiguousarray(np.column_stack([
                core.backbone.intercept, core.backbone.slope, core.backbone.floor,
                np.sqrt(np.maximum(core.backbone.lowest, 1.0) * np.maximum(core.backbone.highest, 1.0)),
            ])),
            np.ascontiguousarray(core.backbone.offset), near, scales, process.start, process.places.machine,
            process.places.log_size, process.places.data, process.weight,
        )  # fmt: skip
        self._shift = {
            kind: np.asarray(found.shift * np.minimum(found.scale**2, 0.5))
            for kind, found in model.calibrations.items()
        }

    def predict_s(self, task: str, machine: str, size: float = math.nan, data: str = "") -> float:
        """Seconds; NaN for a task that was never profiled."""
        k = self._task.get(task, -1)
        if k < 0:
            return math.nan
        m = self._machine.get(machine, self._ran.shape[1] - 1)
        log_s = _log_seconds(k, m, size, self._data.get(data, -1), self._arrays)
        kind = runtime.KNOWN if self._ran[k, m] else runtime.NEW_MACHINE
        shift = self._shift.get(kind)
        return math.exp(log_s - (shift[k] if shift is not None else 0.0))


@numba.njit(cache=True, error_model="numpy")
def _log_seconds(k, m, size, data, arrays):  # type: ignore[no-untyped-def]
    line, offset, near, scales, start, machines, log_sizes, datas, weight = arrays
    known = size if size == size else line[k, 3]
    seconds = max(line[k, 0] + line[k, 1] * known / 1e9, line[k, 2])
    log_size = math.log((size if size == size else 0.0) / 1e9 + 1e-6)
    total = math.log(seconds) + offset[k, m]
    for i in range(start[k], start[k + 1]):
        close = near[m, machines[i]]
        gap = log_size - log_sizes[i]
        value = scales[0] * scales[0] * close
        if data >= 0 and datas[i] == data:
            value += scales[1] * scales[1] + scales[2] * scales[2] * close
        value += math.exp(-gap * gap / (2 * scales[6] * scales[6])) * (
            scales[3] * scales[3] + scales[4] * scales[4] * close
        )
        total += value * weight[i]
    return total

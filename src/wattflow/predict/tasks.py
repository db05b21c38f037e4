"""All that is predicted of a task: runtime, memory, cores and watts apart; energy is runtime times watts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.predict import needs
from wattflow.predict import runtime as times
from wattflow.predict.observations import Benchmarks, Floats, Observations, Texts, in_order

# Fewer cannot be split into folds.
_LEAST_POWER_ROWS = 20


@dataclass(frozen=True, slots=True)
class TaskModel:
    """Models of one set of finished tasks; None where the set said nothing of it."""

    runtime: times.RuntimeModel
    memory: needs.NeedModel | None
    cores: needs.NeedModel | None
    power: times.RuntimeModel | None


@dataclass(frozen=True, slots=True)
class PowerPrediction:
    """Watts per row with their interval, and what about the row was new to the model."""

    power_w: Floats
    low_w: Floats
    high_w: Floats
    novelty: Texts

    @classmethod
    def of(cls, found: times.Prediction) -> PowerPrediction:
        """Turn the prediction of a model that was fitted to watts into one of watts."""
        return cls(found.runtime_s, found.low_s, found.high_s, found.novelty)


@dataclass(frozen=True, slots=True)
class TaskPrediction:
    """Per row. Unknown is NaN; ``power`` is None where no watts were learned."""

    runtime: times.Prediction
    request_bytes: Floats
    request_cores: Floats
    power: PowerPrediction | None

    @property
    def energy_j(self) -> tuple[Floats, Floats, Floats]:
        """Return (joules, low, high): the product; the ends take both log intervals as independent."""
        time_s, watts = self.runtime, self.power
        if watts is None:
            unknown = np.full(len(time_s.runtime_s), np.nan)
            return unknown, unknown, unknown
        point = time_s.runtime_s * watts.power_w
        ends = [np.log([p[0], p[1]]) for p in ((time_s.low_s, time_s.high_s), (watts.low_w, watts.high_w))]
        middle = sum(end.mean(axis=0) for end in ends)
        # Widths of two independent log intervals add by squares, so the product's is narrower than their
        # product.
        apart = np.hypot(*((high - low) / 2 for low, high in ends))
        return point, np.exp(middle - apart), np.exp(middle + apart)


def fit(rows: Observations, benchmarks: Benchmarks | None = None) -> TaskModel:
    """Fit everything the rows allow, in the order they finished; `not_learned` says what they did not allow."""
    rows = in_order(rows)
    # Rows without a run are each a group of their own.
    group = np.where(rows.run != "", rows.run, np.arange(len(rows)).astype(np.str_))
    memory = None
    if np.isfinite(rows.peak_bytes).any():
        memory = needs.fit(rows.task, rows.peak_bytes, group, asked=rows.request_bytes)
    # 5 % for cores: one core too few only slows a task down, memory too little kills it.
    cores = needs.fit(rows.task, rows.used_cores, group, 0.05) if np.isfinite(rows.used_cores).any() else None
    known = _with_energy(rows)
    power = None
    if known.sum() >= _LEAST_POWER_ROWS:
        some = rows.take(known)
        # The same model on watts in place of seconds: both are positive, and differ by machine.
        power = times.fit(replace(some, runtime_s=some.energy_j / some.runtime_s), benchmarks)
    return TaskModel(times.fit(rows, benchmarks), memory, cores, power)


def _with_energy(rows: Observations) -> NDArray[np.bool_]:
    return np.isfinite(rows.energy_j) & (rows.energy_j > 0) & (rows.runtime_s > 0)


def not_learned(rows: Observations) -> tuple[str, ...]:
    """Say what stands in the rows and was not learned, and why, one sentence each."""
    count = int(_with_energy(rows).sum())
    if np.isfinite(rows.energy_j).any() and count < _LEAST_POWER_ROWS:
        return (f"energy_j was not learned: {count} rows have joules and a runtime, {_LEAST_POWER_ROWS} are needed",)
    return ()


def predict(model: TaskModel, rows: Observations, level: float = 0.9) -> TaskPrediction:
    """Predict every row."""
    return TaskPrediction(
        model.runtime.predict(rows, level),
        model.memory.request(rows.task, rows.request_bytes) if model.memory else rows.request_bytes,
        model.cores.request(rows.task, rows.request_cores) if model.cores else rows.request_cores,
        PowerPrediction.of(model.power.predict(rows, level)) if model.power else None,
    )

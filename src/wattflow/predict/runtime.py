"""Runtime of a task on a machine: an ensemble of a process and plain members, with calibrated intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.predict import conformal, text, training
from wattflow.predict.core import BEYOND, INPUTS, MEMBERS, REGIMES, Core, Names, Rows, numbers
from wattflow.predict.observations import Benchmarks, Floats, Ints, Observations, Texts, in_order

KNOWN, NEW_SOURCE = training.KNOWN, training.NEW_SOURCE
NEW_MACHINE, NEW_TASK = training.NEW_MACHINE, training.NEW_TASK
NEW_BOTH = "new machine and source"
BEYOND_SIZES, NO_SIZE = "beyond the sizes seen", "size missing"
ADVICE = {
    KNOWN: "",
    NEW_SOURCE: "",
    BEYOND_SIZES: "sizes lie outside those the model was fitted on: intervals are wider the farther they lie",
    NO_SIZE: "sizes are missing that runtimes depend on: a typical size is assumed and intervals are wide",
    NEW_MACHINE: "run the micro-benchmarks or a few tasks on this machine to narrow the interval",
    NEW_BOTH: "run the micro-benchmarks or a few tasks on this machine to narrow the interval",
    NEW_TASK: "never profiled: run the workflow once on down-sampled input and fit again",
}
_LEAST_ROWS, _LEAST_MACHINES = 20, 3
_LEAST_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Prediction:
    """Per row: point and interval in seconds, and what about the row was new to the model.

    A never-profiled task has no point (NaN), only the wide interval of the tasks it resembles.
    """

    runtime_s: Floats
    low_s: Floats
    high_s: Floats
    novelty: Texts
    level: float

    def provenance(self) -> list[Provenance]:
        """Return ``modelled``, or ``guessed`` where the task was never profiled."""
        return [Provenance.GUESSED if kind == NEW_TASK else Provenance.MODELLED for kind in self.novelty.tolist()]

    def advice(self) -> list[str]:
        """Say what to do about the novelty of each row, one per kind found."""
        kinds = (NEW_MACHINE, NEW_BOTH, NEW_TASK, BEYOND_SIZES, NO_SIZE)
        return list(dict.fromkeys(ADVICE[kind] for kind in kinds if (self.novelty == kind).any()))


@dataclass(frozen=True, slots=True)
class RuntimeModel:
    """A fitted model of runtimes. The last column of offsets stands for a machine nothing is known about.

    Attributes:
        size_column: Which of ``size_names`` each task is predicted from.
        weights: For each novelty, weights of the members, [regime, member].
        calibrations: For each novelty, how wrong the model is, by `core.INPUTS`.
        stretch_error: Error added per unit of log size outside the sizes seen.
        usual_stretch: For each novelty, what its intervals already hold of that.
    """

    names: Names
    size_names: tuple[str, ...]
    size_column: Ints
    core: Core
    weights: dict[str, Floats]
    calibrations: dict[str, training.Calibrations]
    stretch_error: float
    usual_stretch: dict[str, float]

    def size(self, observations: Observations) -> Floats:
        """Return the size each row is predicted from; unknown where the table has no such column."""
        columns = [
            observations.sizes[:, observations.size_names.index(name)]
            if name in observations.size_names
            else np.full(len(observations), np.nan)
            for name in self.size_names
        ]
        if not columns:
            return np.full(len(observations), np.nan)
        task = np.maximum(numbers(observations.task, self.names.tasks), 0)
        return np.asarray(np.column_stack(columns)[np.arange(len(task)), self.size_column[task]])

    def rows(self, observations: Observations) -> Rows:
        return Rows(
            numbers(observations.task, self.names.tasks),
            numbers(observations.machine, self.names.machines),
            self.size(observations),
            numbers(observations.data, self.names.data),
        )

    def predict(self, observations: Observations, level: float = 0.9) -> Prediction:
        """Predict every row. A task the model never saw has no point, only a wide interval: unknown stays unknown."""
        rows = self.rows(observations)
        kind = self.kind(observations, rows)
        members, regime = self.core.members(rows), self.core.regime(rows)
        log_s = np.full(len(rows.task), np.nan)
        unknown = np.flatnonzero(kind == NEW_TASK)
        if len(unknown):
            names, which = np.unique(observations.task[unknown], return_inverse=True)
            likeness = text.likeness(names.tolist(), self.names.tasks)[which]
            log_s[unknown] = self.core.resemble(rows.take(unknown), likeness)
        point, low, high = (np.full(len(log_s), np.nan) for _ in range(3))
        for name in self.calibrations:
            for known, calibration in enumerate(self.calibrations[name]):
                some = np.flatnonzero((kind == name) & (regime % len(INPUTS) == known))
                # Any task for rows without one: their scale is not used.
                task = np.maximum(rows.task[some], 0)
                extra = np.zeros(len(some))
                if name == NEW_TASK:
                    task = np.zeros(len(some), np.int64)
                else:
                    log_s[some] = (members[some] * self.weights[name][regime[some]]).sum(axis=1)
                    central = regime[some] < len(
                        INPUTS
                    )  # among the largest sizes a trend's own error outweighs skewness
                    point[some] = np.exp(np.where(central, calibration.point(log_s[some], task), log_s[some]))
                    extra = self.reach(rows.take(some), name)
                ends = calibration.interval(log_s[some], task, level, extra)
                low[some], high[some] = np.exp(ends[0]), np.exp(ends[1])
        return Prediction(point, low, high, self.novelty(rows, kind), level)

    def reach(self, rows: Rows, kind: str) -> Floats:
        """Return the log error that the size adds: how far outside the sizes seen it lies, or that it is missing."""
        outside = np.maximum(self.core.stretch(rows) - self.usual_stretch[kind], 0.0) * self.stretch_error
        # Without a size the error is what sizes do to this task.
        return np.where(np.isfinite(rows.size), outside, self.core.plain.spread[np.maximum(rows.task, 0)])

    def scale(self, task: str) -> float:
        """Return the typical log error of a known task, on a known machine if measured; 1 for an unknown task."""
        found = self.calibrations.get(KNOWN) or self.calibrations.get(NEW_MACHINE)
        return float(found[1].scale[self.names.tasks.index(task)]) if found and task in self.names.tasks else 1.0

    def kind(self, observations: Observations, rows: Rows) -> Texts:
        """Return which interval a row gets, by what is new about it, the worst first: task, machine, source."""
        machine = np.where(rows.machine < 0, self.core.ran.shape[1] - 1, rows.machine)
        # Long enough for every kind: numpy would cut longer texts silently.
        kind = np.full(len(rows.task), KNOWN, dtype="<U24")
        elsewhere = ~np.isin(observations.source, self.names.sources)
        strange = self.core.ran[np.maximum(rows.task, 0), machine] == 0
        # In this order: each overwrites what is less new.
        kind[elsewhere], kind[strange], kind[elsewhere & strange] = NEW_SOURCE, NEW_MACHINE, NEW_BOTH
        kind[rows.task < 0] = NEW_TASK
        return kind

    def novelty(self, rows: Rows, kind: Texts) -> Texts:
        """Say what is new about each row, for people: its kind, and where task and machine are known, its size."""
        named = kind.copy()
        seen = (kind == KNOWN) | (kind == NEW_SOURCE)
        named[seen & (self.core.stretch(rows) > np.log(BEYOND))] = BEYOND_SIZES
        # Where sizes hardly matter, a missing one is no news.
        matters = self.core.plain.spread[np.maximum(rows.task, 0)] > _LEAST_SPREAD
        named[seen & matters & ~np.isfinite(rows.size)] = NO_SIZE
        return named

    @property
    def blend(self) -> dict[str, dict[str, float]]:
        """Return weights above 0 by novelty and regime, for people."""
        return {
            f"{kind}, {regime}": {MEMBERS[m]: round(float(w[m]), 3) for m in np.flatnonzero(w > 0)}
            for kind, table in self.weights.items()
            for regime, w in zip(REGIMES, table, strict=True)
        }


def fit(
    observations: Observations,
    benchmarks: Benchmarks | None = None,
    kinds: Sequence[str] = (KNOWN, NEW_SOURCE, NEW_MACHINE, NEW_TASK),
    seed: int = 0,
) -> RuntimeModel:
    """Fit runtimes of finished tasks, in the order they finished.

    Args:
        benchmarks: Place machines that ran few tasks or none.
        kinds: Novelties to calibrate intervals for; rows that are new in another way get no interval.
    """
    known = np.isfinite(observations.runtime_s) & (observations.runtime_s > 0)
    observations = in_order(observations.take(known))
    if len(observations) < _LEAST_ROWS:
        raise InvalidInput("training rows", f"{len(observations)} with a runtime; at least {_LEAST_ROWS} are needed")
    trainer = training.CoreTrainer(observations, benchmarks or {}, seed)
    # Once for all kinds: it does not depend on what is new.
    beyond = trainer.beyond()
    weights, usual = {}, {}
    calibrations: dict[str, training.Calibrations] = {}
    for kind in kinds:
        if kind == NEW_TASK:
            calibrations[kind] = (trainer.unknown(),) * 3
            continue
        missed = trainer.left_out(kind)
        weights[kind] = trainer.weigh(missed, beyond)
        if kind == NEW_SOURCE:
            weights[kind] = trainer.trend(missed, weights[kind])
        found = trainer.calibrations(missed, weights[kind])
        # skewness among the inputs of one run says nothing of the next run, that of known sources nothing of a new one
        if trainer.one_run or kind == NEW_SOURCE:
            found = _unshifted(found)
        calibrations[kind] = found
        # Nine tenths of the rows left out lay within: intervals hold that much already.
        usual[kind] = float(np.quantile(missed.stretch, 0.9)) if len(missed.stretch) else 0.0
    outside = training.stretch_error(beyond, next(iter(weights.values()))) if weights else 0.0
    if NEW_MACHINE in weights and len(np.unique(trainer.machine)) < 2:  # none could be left out: trust the factors
        weights[NEW_MACHINE] = np.zeros_like(weights[NEW_MACHINE])
        weights[NEW_MACHINE][:, 0] = 1.0
    if NEW_MACHINE in calibrations and NEW_SOURCE in calibrations:
        weights[NEW_BOTH], usual[NEW_BOTH] = weights[NEW_MACHINE], usual[NEW_SOURCE]
        calibrations[NEW_BOTH] = calibrations[NEW_SOURCE]
        if len(np.unique(trainer.machine)) < 2:  # what can be told is which member reads sizes best
            missed = trainer.left_out(NEW_SOURCE)
            weights[NEW_BOTH] = trainer.by_size(missed, beyond, weights[NEW_MACHINE])
            calibrations[NEW_BOTH] = _unshifted(trainer.calibrations(missed, weights[NEW_BOTH]))
    _add_machine_errors(calibrations, trainer)
    # Last, on everything: all that was measured above came from parts.
    core = trainer.fit(np.arange(len(observations)))
    return RuntimeModel(
        trainer.names,
        observations.size_names,
        trainer.size_column,
        core,
        weights,
        calibrations,
        outside,
        usual,
    )


def _unshifted(found: training.Calibrations) -> training.Calibrations:
    one, two, three = (replace(part, shift=0.0) for part in found)
    return one, two, three


def _add_machine_errors(calibrations: dict[str, training.Calibrations], trainer: training.CoreTrainer) -> None:
    """Widen what could not be left out: machines where there are too few, machine and source together."""
    if NEW_MACHINE not in calibrations:
        return
    few = len(np.unique(trainer.machine)) < _LEAST_MACHINES
    spread = trainer.table.disagreement()
    if few:
        one, two, three = (conformal.widened(part, spread) for part in calibrations[NEW_MACHINE])
        calibrations[NEW_MACHINE] = (one, two, three)
    if NEW_BOTH not in calibrations:
        return
    both = []
    for known in range(len(INPUTS)):
        alone = np.full(len(trainer.names.tasks), spread)
        if not few:  # the part of the error that is the machine's
            alone = calibrations[NEW_MACHINE][known].scale
            if KNOWN in calibrations:
                # Variances subtract: what is left of the error on new machines is the machine's own.
                alone = np.sqrt(np.maximum(alone**2 - calibrations[KNOWN][known].scale ** 2, 0.0))
        both.append(conformal.widened(calibrations[NEW_BOTH][known], alone))
    calibrations[NEW_BOTH] = (both[0], both[1], both[2])

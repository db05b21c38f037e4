"""Runtime of a task on a machine: backbone × machine factor, a smoothed residual, calibrated intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance
from wattflow.predict import backbone as lines
from wattflow.predict import conformal, factors, kriging, text
from wattflow.predict.observations import Benchmarks, Floats, Ints, Observations, Texts

KNOWN, NEW_SOURCE, NEW_MACHINE, NEW_TASK = "known", "new source", "new machine", "new task"
NEW_BOTH = "new machine and source"
ADVICE = {
    KNOWN: "",
    NEW_SOURCE: "",
    NEW_MACHINE: "run the micro-benchmarks or a few tasks on this machine to narrow the interval",
    NEW_BOTH: "run the micro-benchmarks or a few tasks on this machine to narrow the interval",
    NEW_TASK: "never profiled: run the workflow once on down-sampled input and fit again",
}
_FAR = 3.0
_FOLDS = 5
_LEAST_ROWS, _LEAST_MACHINES = 20, 3
_NEIGHBOURS, _SHARPNESS = 3, 4.0


@dataclass(frozen=True, slots=True)
class Names:
    """Tasks, machines, sources and input data by number."""

    tasks: tuple[str, ...]
    machines: tuple[str, ...]
    sources: tuple[str, ...]
    data: tuple[str, ...]

    @classmethod
    def of(cls, rows: Observations, benchmarks: Benchmarks) -> Names:
        machines = sorted(set(rows.machine.tolist()) | set(benchmarks))
        data = sorted(set(rows.data.tolist()) - {""})
        return cls(tuple(np.unique(rows.task).tolist()), tuple(machines), tuple(np.unique(rows.source).tolist()),
                   tuple(data))  # fmt: skip


def numbers(texts: Texts, names: Sequence[str]) -> Ints:
    """Position of each text among the names; −1 where it is not one."""
    position = {name: i for i, name in enumerate(names)}
    return np.array([position.get(text, -1) for text in texts.tolist()], np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Observations as numbers."""

    task: Ints
    machine: Ints
    size: Floats
    data: Ints

    def take(self, rows: Ints) -> Rows:
        return Rows(self.task[rows], self.machine[rows], self.size[rows], self.data[rows])

    @property
    def places(self) -> kriging.Places:
        size = np.where(np.isfinite(self.size), self.size, 0.0)
        return kriging.Places(self.machine, np.log(size / lines.SIZE_UNIT + 1e-6), self.data)


@dataclass(frozen=True, slots=True)
class Core:
    """Backbone with all offsets filled, and the process over its residual. ``ran`` marks pairs really seen."""

    backbone: lines.Backbone
    ran: Ints
    process: kriging.Kriging

    def predict(self, rows: Rows) -> Floats:
        """Natural log of seconds; NaN for an unknown task."""
        known = np.flatnonzero((rows.task >= 0) & np.isfinite(self.backbone.slope[rows.task]))
        result = np.full(len(rows.task), np.nan)
        some = rows.take(known)
        machine = np.where(some.machine < 0, self.backbone.offset.shape[1] - 1, some.machine)
        some = replace(some, machine=machine)
        result[known] = self.backbone.predict(some.task, machine, some.size)
        result[known] += self.process.predict(some.task, some.places)
        return result

    def resemble(self, rows: Rows, likeness: Floats) -> Floats:
        """Natural log of seconds of unknown tasks: what the known tasks most like them by name would take.

        ``likeness`` is [row, known task]; tasks this core never fitted do not count.
        """
        fitted = np.isfinite(self.backbone.slope)
        weight = np.where(fitted[None, :], np.maximum(likeness, 1e-3) ** _SHARPNESS, 0.0)
        total, mass = np.zeros(len(rows.task)), np.zeros(len(rows.task))
        nearest = np.argsort(-weight, axis=1, kind="stable")[:, :_NEIGHBOURS]
        machine = np.where(rows.machine < 0, self.backbone.offset.shape[1] - 1, rows.machine)
        for rank in range(nearest.shape[1]):
            task = nearest[:, rank]
            found = self.backbone.predict(task, machine, rows.size)
            share = np.where(np.isfinite(found), weight[np.arange(len(task)), task], 0.0)
            total += share * np.where(np.isfinite(found), found, 0.0)
            mass += share
        return np.where(mass > 0, total / np.maximum(mass, 1e-300), np.nan)


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
        """``modelled``, or ``guessed`` where the task was never profiled."""
        return [Provenance.GUESSED if kind == NEW_TASK else Provenance.MODELLED for kind in self.novelty.tolist()]

    def advice(self) -> list[str]:
        """What to do about the novelty of each row, one per kind found."""
        return [ADVICE[kind] for kind in (NEW_MACHINE, NEW_BOTH, NEW_TASK) if (self.novelty == kind).any()]


@dataclass(frozen=True, slots=True)
class RuntimeModel:
    """A fitted model of runtimes. The last column of offsets stands for a machine nothing is known about."""

    names: Names
    size_name: str
    core: Core
    calibrations: dict[str, conformal.Calibration]

    def size(self, observations: Observations) -> Floats:
        """The size this model predicts from; unknown where the table has no such column."""
        if self.size_name in observations.size_names:
            return observations.sizes[:, observations.size_names.index(self.size_name)]
        return np.full(len(observations), np.nan)

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
        log_s = self.core.predict(rows)
        novelty = self.novelty(observations, rows)
        unknown = np.flatnonzero(novelty == NEW_TASK)
        if len(unknown):
            names, which = np.unique(observations.task[unknown], return_inverse=True)
            likeness = text.likeness(names.tolist(), self.names.tasks)[which]
            log_s[unknown] = self.core.resemble(rows.take(unknown), likeness)
        point, low, high = (np.full(len(log_s), np.nan) for _ in range(3))
        for kind, calibration in self.calibrations.items():
            some = np.flatnonzero((novelty == kind) & np.isfinite(log_s))
            task = np.maximum(rows.task[some], 0)
            if kind == NEW_TASK:
                task = np.zeros(len(some), np.int64)
            else:
                point[some] = np.exp(calibration.point(log_s[some], task))
            ends = calibration.interval(log_s[some], task, level)
            low[some], high[some] = np.exp(ends[0]), np.exp(ends[1])
        return Prediction(point, low, high, novelty, level)

    def scale(self, task: str) -> float:
        """Typical log error of a known task, on a known machine where that was measured; 1 for an unknown task."""
        found = self.calibrations.get(KNOWN) or self.calibrations.get(NEW_MACHINE)
        return float(found.scale[self.names.tasks.index(task)]) if found and task in self.names.tasks else 1.0

    def novelty(self, observations: Observations, rows: Rows) -> Texts:
        """What is new about each row, the worst first: task, machine, source."""
        machine = np.where(rows.machine < 0, self.core.ran.shape[1] - 1, rows.machine)
        kind = np.full(len(rows.task), KNOWN, dtype="<U24")
        elsewhere = ~np.isin(observations.source, self.names.sources)
        strange = self.core.ran[np.maximum(rows.task, 0), machine] == 0
        kind[elsewhere], kind[strange], kind[elsewhere & strange] = NEW_SOURCE, NEW_MACHINE, NEW_BOTH
        kind[rows.task < 0] = NEW_TASK
        return kind


def fit(
    observations: Observations,
    benchmarks: Benchmarks | None = None,
    kinds: Sequence[str] = (KNOWN, NEW_SOURCE, NEW_MACHINE, NEW_TASK),
    seed: int = 0,
) -> RuntimeModel:
    """Fit runtimes of finished tasks.

    Args:
        benchmarks: Place machines that ran few tasks or none.
        kinds: Novelties to calibrate intervals for; rows that are new in another way get no interval.
    """
    known = np.isfinite(observations.runtime_s) & (observations.runtime_s > 0)
    observations = observations.take(known)
    if len(observations) < _LEAST_ROWS:
        raise InvalidInput("training rows", f"{len(observations)} with a runtime; at least {_LEAST_ROWS} are needed")
    names = Names.of(observations, benchmarks or {})
    trainer = _Trainer(observations, names, factors.benchmark_table(benchmarks or {}, names.machines, names.tasks))
    trainer.choose_size()
    everything = np.arange(len(observations))
    scales = trainer.tune(everything, seed)
    core = trainer.fit(everything, scales)
    calibrations = {kind: trainer.calibrate(kind, scales) for kind in kinds}
    _add_machine_errors(calibrations, trainer)
    size_name = observations.size_names[trainer.size_column] if observations.size_names else ""
    return RuntimeModel(names, size_name, core, calibrations)


def _add_machine_errors(calibrations: dict[str, conformal.Calibration], trainer: _Trainer) -> None:
    """Widen what could not be left out: machines where there are too few, machine and source together."""
    if NEW_MACHINE not in calibrations:
        return
    few = len(np.unique(trainer.machine)) < _LEAST_MACHINES
    alone = calibrations[NEW_MACHINE].scale
    if few:
        spread = trainer.table.disagreement()
        calibrations[NEW_MACHINE] = conformal.widened(calibrations[NEW_MACHINE], spread)
        alone = np.full(len(alone), spread)
    elif KNOWN in calibrations:  # the part of the error that is the machine's
        alone = np.sqrt(np.maximum(alone**2 - calibrations[KNOWN].scale ** 2, 0.0))
    if NEW_SOURCE in calibrations:
        calibrations[NEW_BOTH] = conformal.widened(calibrations[NEW_SOURCE], alone)


class _Trainer:
    """One training set; fits cores on parts of it and measures what they miss on the rest."""

    def __init__(self, observations: Observations, names: Names, table: factors.BenchmarkTable) -> None:
        self.observations, self.names, self.table = observations, names, table
        self.log_s = np.log(observations.runtime_s)
        self.task = numbers(observations.task, names.tasks)
        self.machine = numbers(observations.machine, names.machines)
        self.data = numbers(observations.data, names.data)
        self.size_column = 0
        self.distance = _distances(table, len(names.machines))

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.names.tasks), len(self.names.machines) + 1

    def rows(self, chosen: Ints) -> Rows:
        sizes = self.observations.sizes
        size = sizes[:, self.size_column] if sizes.shape[1] else np.full(len(self.observations), np.nan)
        return Rows(self.task[chosen], self.machine[chosen], size[chosen], self.data[chosen])

    def choose_size(self) -> None:
        """The size that predicts best over held-out sources (or runs) with the backbone alone."""
        costs = []
        kind = NEW_SOURCE if len(self.names.sources) > 1 else KNOWN
        for column in range(self.observations.sizes.shape[1]):
            self.size_column = column
            errors = []
            for train, test, _ in self.folds(kind):
                core = self.backbone(train)
                rows = self.rows(test)
                errors.append(np.abs(self.log_s[test] - core.predict(rows.task, rows.machine, rows.size)))
            costs.append(float(np.nanmean(np.minimum(np.concatenate(errors), 1.0))))
        self.size_column = int(np.argmin(costs)) if costs else 0

    def backbone(self, chosen: Ints) -> lines.Backbone:
        rows = self.rows(chosen)
        return lines.fit_backbone(rows.task, rows.machine, rows.size, self.log_s[chosen], self.counts)

    def tune(self, chosen: Ints, seed: int) -> Floats:
        rows, fitted = self.rows(chosen), self.backbone(chosen)
        residual = self.log_s[chosen] - fitted.predict(rows.task, rows.machine, rows.size)
        return kriging.tune(residual, rows.task, rows.places, self.distance, seed)

    def fit(self, chosen: Ints, scales: Floats) -> Core:
        rows, fitted = self.rows(chosen), self.backbone(chosen)
        residual = self.log_s[chosen] - fitted.predict(rows.task, rows.machine, rows.size)
        process = kriging.fit_kriging(residual, rows.task, rows.places, self.distance, (self.counts[0], scales))
        ran = np.isfinite(fitted.offset).astype(np.int64)
        return Core(replace(fitted, offset=_filled(fitted.offset, self.table)), ran, process)

    def calibrate(self, kind: str, scales: Floats) -> conformal.Calibration:
        """Residuals of rows that were new in this way, from inner folds."""
        residual, group = np.full(len(self.log_s), np.nan), np.zeros(len(self.log_s), np.int64)
        likeness = text.likeness(self.names.tasks, self.names.tasks) if kind == NEW_TASK else None
        for train, test, g in self.folds(kind):
            core, rows = self.fit(train, scales), self.rows(test)
            found = core.predict(rows) if likeness is None else core.resemble(rows, likeness[rows.task])
            residual[test] = self.log_s[test] - found
            group[test] = g
        if kind == NEW_TASK:
            return conformal.calibrate_worst_group(residual, group)
        return conformal.calibrate(residual, self.task, group, self.counts[0])

    def folds(self, kind: str) -> Iterator[tuple[Ints, Ints, int]]:
        """(train, test, group): by run, source, machine or workflow; with one group only, by task or run."""
        rows = self.observations
        column = {KNOWN: rows.run, NEW_SOURCE: rows.source, NEW_MACHINE: rows.machine, NEW_TASK: rows.workflow}[kind]
        for candidate in (column, rows.task if kind == NEW_TASK else rows.run, np.arange(len(rows)).astype(np.str_)):
            found, group = np.unique(candidate, return_inverse=True)
            if len(found) > 1:
                break
        if len(found) > _FOLDS:
            group = np.random.default_rng(0).permutation(len(found))[group] % _FOLDS
        for g in range(int(group.max()) + 1):
            yield np.flatnonzero(group != g), np.flatnonzero(group == g), g


def _distances(table: factors.BenchmarkTable, machines: int) -> Floats:
    """How unlike machines are, by their benchmarks; far where nothing is known."""
    distance = np.full((machines + 1, machines + 1), _FAR)
    for a in range(machines + 1):
        for b in range(machines + 1):
            if a == b:
                distance[a, b] = 0.0
            elif max(a, b) < machines and len(table.log_s):
                found = table.distance(table.log_s[:, a], table.log_s[:, b])
                distance[a, b] = found if np.isfinite(found) else _FAR
    return distance


def _filled(offset: Floats, table: factors.BenchmarkTable) -> Floats:
    """Offsets for every task and machine: seen, else from the machine's other tasks, else from benchmarks."""
    filled = offset.copy()
    some = np.isfinite(offset)
    seen = np.flatnonzero(some.any(axis=0))
    mean = np.where(some, offset, 0.0).sum(axis=1) / np.maximum(some.sum(axis=1), 1)
    setting = factors.choose_setting(offset, table, seen)
    for m in range(offset.shape[1]):
        missing = np.flatnonzero(~some[:, m] & some.any(axis=1))
        if not len(missing):
            continue
        if some[:, m].any():
            effect = float(np.median((offset[:, m] - mean)[some[:, m]]))
            filled[missing, m] = mean[missing] + effect
        elif m < table.log_s.shape[1] and np.isfinite(table.log_s[:, m]).any():
            filled[missing, m] = factors.predict_offsets(offset, table, seen, (table.log_s[:, m], setting))[missing]
        else:
            filled[missing, m] = mean[missing]
    return filled

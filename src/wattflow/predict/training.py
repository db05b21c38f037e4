"""Fits cores on parts of a training set, weighs their members by what they miss on the rest, calibrates intervals.

A machine that has run nothing but micro-benchmarks gets factors from them. For each task the benchmarks are weighed by
how well they tracked that task over the machines already known; the new machine's factor is the weighted mean of its
benchmark ratios. A benchmark of the task itself weighs more. How sharp the weights are is chosen by leaving out each
known machine in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.predict import backbone as lines
from wattflow.predict import conformal, kriging, plain, text
from wattflow.predict.conformal import Calibration
from wattflow.predict.core import BEYOND, INPUTS, MEMBERS, REGIMES, Core, Names, Rows, numbers, resemble
from wattflow.predict.observations import Benchmarks, Floats, Ints, Observations

Setting = tuple[float, float, float, float]
"""Tolerance, power, weight of the task's own benchmark, share of a factor common to all tasks."""
_NO_BENCHMARKS = 0.5  # natural log: machines nothing is known of differ by about this much
_DEFAULT: Setting = (0.1, 1.0, 10.0, 0.0)  # too few machines to choose by: mostly the benchmark of the task itself
_GRID: tuple[Setting, ...] = tuple(
    itertools.product((0.02, 0.05, 0.1, 0.2), (1.0, 2.0), (1.0, 3.0, 10.0, 30.0), (0.0, 0.25, 0.5))
)


@dataclass(frozen=True, slots=True)
class BenchmarkTable:
    """Natural logs of benchmark seconds, [benchmark, machine], and which benchmark is which task's own."""

    log_s: Floats
    own: Floats

    def distance(self, one: Floats, other: Floats) -> float:
        """Return the root mean square difference of two machines' columns over the benchmarks both have."""
        both = np.isfinite(one) & np.isfinite(other)
        return float(np.sqrt(np.mean((one[both] - other[both]) ** 2))) if both.any() else float("nan")

    def disagreement(self) -> float:
        """Measure how differently benchmarks rate one machine against another: the error to expect of a factor."""
        spreads = []
        for a in range(self.log_s.shape[1]):
            for b in range(a):
                ratio = self.log_s[:, a] - self.log_s[:, b]
                ratio = ratio[np.isfinite(ratio)]
                # Two ratios say too little of a spread.
                if len(ratio) > 2:
                    spreads.append(float(ratio.std()))
        return float(np.median(spreads)) if spreads else _NO_BENCHMARKS


def benchmark_table(benchmarks: Benchmarks, machines: Sequence[str], tasks: Sequence[str]) -> BenchmarkTable:
    """Tabulate benchmarks. Several names with the same seconds everywhere are one benchmark."""
    names = sorted({name for row in benchmarks.values() for name in row})
    table = np.array([[benchmarks.get(m, {}).get(name, np.nan) for m in machines] for name in names], np.float64)
    table = np.log(table) if len(names) else np.zeros((0, len(machines)))
    distinct: dict[tuple[float, ...], list[str]] = {}
    for name, row in zip(names, table, strict=True):
        if np.isfinite(row).any():
            # NaN is not equal to itself, so a number stands in while rows are compared.
            distinct.setdefault(tuple(np.where(np.isfinite(row), row, -1e9).tolist()), []).append(name)
    values = np.array([list(row) for row in distinct], np.float64).reshape(len(distinct), len(machines))
    position = {task: k for k, task in enumerate(tasks)}
    own = np.zeros((len(tasks), len(distinct)))
    for b, members in enumerate(distinct.values()):
        for name in members:
            if name in position:
                own[position[name], b] = 1.0
    return BenchmarkTable(np.where(values <= -1e8, np.nan, values), own)


def choose_setting(offset: Floats, table: BenchmarkTable, seen: Ints) -> Setting:
    """Choose how sharply to weigh benchmarks: what would have placed each known machine best had it been left out."""
    # With two machines, leaving one out leaves nothing to compare with.
    if len(seen) < 3 or not len(table.log_s):
        return _DEFAULT
    total = np.zeros(len(_GRID))
    for out in seen.tolist():
        found = _estimates(offset, table, seen[seen != out], table.log_s[:, out], _GRID)
        # Median and mean together, as everywhere in this package (`blend.relative_cost`).
        error = np.abs(offset[:, out] - found)
        error = error[:, np.isfinite(error).all(axis=0)]
        if error.shape[1]:
            total += np.median(error, axis=1) + error.mean(axis=1)
    return _GRID[int(np.argmin(total))]


def predict_offsets(offset: Floats, table: BenchmarkTable, seen: Ints, new: tuple[Floats, Setting]) -> Floats:
    """Predict the offsets [task] of a machine from (its benchmark logs, the setting) and those of machines ``seen``."""
    return np.asarray(_estimates(offset, table, seen, new[0], (new[1],))[0])


def _estimates(
    offset: Floats, table: BenchmarkTable, seen: Ints, column: Floats, settings: Sequence[Setting]
) -> Floats:
    """Estimate [setting, task]. Tasks that ran on the same machines are estimated together, against those only."""
    result = np.full((len(settings), len(offset)), np.nan)
    ran = np.isfinite(offset[:, seen])
    # Tasks that ran on different machines have different references, so they are not mixed.
    for pattern in np.unique(ran, axis=0):
        if pattern.any():
            tasks = np.flatnonzero((ran == pattern).all(axis=1))
            part = BenchmarkTable(table.log_s, table.own[tasks])
            result[:, tasks] = _complete(offset[tasks][:, seen[pattern]], part, seen[pattern], column, settings)
    return result


def _complete(offset: Floats, table: BenchmarkTable, seen: Ints, column: Floats, settings: Sequence[Setting]) -> Floats:
    mean = offset.mean(axis=1)
    # Benchmarks must be known on all reference machines, or their centre would be another.
    usable = np.isfinite(column) & np.isfinite(table.log_s[:, seen]).all(axis=1)
    if not usable.any():
        # No benchmark of the new machine: it is a machine like the mean.
        return np.tile(mean, (len(settings), 1))
    bench = table.log_s[usable][:, seen]
    centre = bench.mean(axis=1, keepdims=True)
    ratio, own = column[usable] - centre[:, 0], table.own[:, usable] > 0
    behaviour = offset - mean[:, None]
    apart = ((behaviour[:, None, :] - (bench - centre)[None]) ** 2).mean(axis=2)
    # The same, for the mean task: one factor for all, which is steadier with few benchmarks.
    together = (((bench - centre) - behaviour.mean(axis=0)) ** 2).mean(axis=1)
    found = np.empty((len(settings), len(offset)))
    kept: dict[tuple[float, float], tuple[Floats, float]] = {}
    for i, (tolerance, power, own_weight, common) in enumerate(settings):
        # Many settings share these two numbers, and the powers are what costs.
        if (tolerance, power) not in kept:
            weight = (together + tolerance**2) ** -power
            kept[tolerance, power] = ((apart + tolerance**2) ** -power, float(weight @ ratio / weight.sum()))
        weight, shared = kept[tolerance, power]
        weight = weight * np.where(own, own_weight, 1.0)
        found[i] = mean + (1.0 - common) * (weight @ ratio) / weight.sum(axis=1) + common * shared
    return found


Bools = NDArray[np.bool_]
KNOWN, NEW_SOURCE, NEW_MACHINE, NEW_TASK = "known", "new source", "new machine", "new task"
_FAR = 3.0
_FOLDS = 5
_LEAST_TASKS = 3
"""With fewer, nothing can be left out that tells of tasks never seen."""
_LEAST_WEIGHED = 30
_REPEATED = (0.7, 0.5)
"""Weight of the same input's earlier runtime where no run was there to be left out: so much, and so much more where
the input explains all of the spread (`plain.likeness_of_inputs`). The process over all inputs gets the rest."""
_REPEAT_ERROR, _REPEAT_SHARE = 0.12, 0.3
"""Then the interval assumes this error, and at most this share of the error on other inputs."""
# Members that cannot be told from time where all rows are of one run (`CoreTrainer.handicap`).
_BY_MACHINE, _ONE_RUN = ("process", "backbone", "median here", "last here", "line here", "least squares here"), 0.15
_CARRIED = ("process", "backbone", "line here", "least squares here")
_STEADIED = 0.1
"""Drawing a repeat towards its task helps most where there is one repeat; where a run of few is left out, it pays this:
later there will be one more."""
_FEW_RUNS = 3
_SURE = 2.0
"""A blend must gain this many standard errors over the best single member, or that one answers alone."""
_FAILS_CLEARLY = 1.5
"""A line that misses this many times as much as the blend on sources left out is not followed beyond them."""
_STRETCH_ERROR = 0.3
"""Error per unit of log size outside the sizes seen, where it could not be measured."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Misses of members on rows left out of their training: [row, member] log residuals, and how the rows lay."""

    residual: Floats
    regime: Ints
    group: Ints
    stretch: Floats
    ran: Bools

    def only(self, rows: Bools) -> LeftOut:
        """Return the same misses with all other rows unknown."""
        return replace(self, residual=np.where(rows[:, None], self.residual, np.nan))


class CoreTrainer:
    """One training set; fits cores on parts of it and measures what they miss on the rest."""

    def __init__(self, observations: Observations, benchmarks: Benchmarks, seed: int) -> None:
        self.names = Names.of(observations, benchmarks)
        self.observations = observations
        self.table = benchmark_table(benchmarks, self.names.machines, self.names.tasks)
        self.log_s = np.log(observations.runtime_s)
        self.task = numbers(observations.task, self.names.tasks)
        self.machine = numbers(observations.machine, self.names.machines)
        self.data = numbers(observations.data, self.names.data)
        # One more machine: the one that nobody knows.
        counts = (len(self.names.tasks), len(self.names.machines) + 1)
        self.size_column = plain.best_sizes(self.task, self.machine, observations.sizes, self.log_s, counts)
        self.size = size_of(observations, self.size_column, self.task)
        self.distance = _distances(self.table, len(self.names.machines))
        self.likeness = plain.likeness_of_inputs(self.task, self.data, self.log_s)
        self._left_out: dict[tuple[int, ...], LeftOut] = {}
        self.scales = self.tune(seed)

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.names.tasks), len(self.names.machines) + 1

    def rows(self, chosen: Ints) -> Rows:
        return Rows(self.task[chosen], self.machine[chosen], self.size[chosen], self.data[chosen])

    def backbone(self, chosen: Ints) -> lines.Backbone:
        rows = self.rows(chosen)
        return lines.fit_backbone(rows.task, rows.machine, rows.size, self.log_s[chosen], self.counts)

    def tune(self, seed: int) -> Floats:
        everything = np.arange(len(self.log_s))
        rows, fitted = self.rows(everything), self.backbone(everything)
        residual = self.log_s - fitted.predict(rows.task, rows.machine, rows.size)
        return kriging.tune(residual, rows.task, rows.places, self.distance, seed)

    def fit(self, chosen: Ints) -> Core:
        rows, fitted, log_s = self.rows(chosen), self.backbone(chosen), self.log_s[chosen]
        residual = log_s - fitted.predict(rows.task, rows.machine, rows.size)
        process = kriging.fit_kriging(residual, rows.task, rows.places, self.distance, (self.counts[0], self.scales))
        ran = np.isfinite(fitted.offset).astype(np.int64)
        counts = (*self.counts, len(self.names.data))
        others = plain.fit_plain(rows.task, rows.machine, rows.size, rows.data, log_s, counts)
        offset = filled(fitted.offset, self.table)
        return Core(replace(fitted, offset=offset), ran, process, plain.carried(others, offset))

    def left_out(self, kind: str) -> LeftOut:
        """Return what members miss on rows that are new in this way, from inner folds. Equal folds are fitted once."""
        folds = list(self.folds(kind))
        # The folds' content, roughly: kinds with the same folds share the fits, which are what costs.
        key = tuple(int(part) for _, test, g in folds for part in (g, len(test), test[:50].sum()))
        if key not in self._left_out:
            self._left_out[key] = self._miss(folds)
        missed = self._left_out[key]
        if kind == NEW_SOURCE:
            return missed
        # a run left out may take its machine along: such rows tell of new machines, not of known ones
        fitting = missed.only(missed.ran == (kind == KNOWN))
        if np.isfinite(fitting.residual[:, 0]).sum() >= _LEAST_WEIGHED:
            return fitting
        # Enough rows were not left out in the right way: blocks of time instead.
        if kind == KNOWN and not self.one_run:
            return self._miss(list(_cut(self.time_blocks)))
        return missed

    def beyond(self) -> LeftOut:
        """Return what members miss on sizes beyond those they were fitted on: each task's smaller half predicts the
        larger."""
        size = np.where(np.isfinite(self.size), self.size, 0.0)
        middle = lines.medians(size, self.task, self.counts[0])[self.task]
        # Well above the middle, so that the halves do not touch.
        small, large = np.flatnonzero(size <= middle), np.flatnonzero(size > BEYOND * np.maximum(middle, 1.0))
        folds = [(small, large, 0)] if len(large) and len(small) else []
        return self._miss(folds)

    def _miss(self, folds: list[tuple[Ints, Ints, int]]) -> LeftOut:
        count = len(self.log_s)
        residual, group = np.full((count, len(MEMBERS)), np.nan), np.zeros(count, np.int64)
        regime, stretch, ran = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, bool)
        for train, test, g in folds:
            core, rows = self.fit(train), self.rows(test)
            residual[test] = self.log_s[test, None] - core.members(rows)
            regime[test], stretch[test], group[test] = core.regime(rows), core.stretch(rows), g
            ran[test] = core.ran[rows.task, rows.machine] > 0
        return LeftOut(residual, regime, group, stretch, ran)

    @property
    def repeated(self) -> float:
        """Return how far to trust an input's earlier runtime where no repeat could be left out."""
        least, more = _REPEATED
        return min(1.0, least + more * self.likeness)

    def weigh(self, missed: LeftOut, beyond: LeftOut) -> Floats:
        """Weigh members [regime, member] by rows left out; a regime with few such rows borrows from the nearest."""
        good = np.isfinite(missed.residual).all(axis=1)
        weights = np.zeros((len(REGIMES), len(MEMBERS)))
        # The process alone, until enough rows say otherwise.
        weights[:, 0] = 1.0
        if good.sum() >= _LEAST_WEIGHED:
            weights[:] = conformal.choose(missed.residual[good], self.task[good], handicap=self.handicap, sure=_SURE)
        have = np.zeros(len(REGIMES), bool)
        for r in range(len(REGIMES)):
            some = good & (missed.regime == r)
            if some.sum() >= _LEAST_WEIGHED:
                weights[r], have[r] = (
                    conformal.choose(missed.residual[some], self.task[some], handicap=self.handicap, sure=_SURE),
                    True,
                )
        repeated = self.repeated
        # Regime 1: the input is known from another machine. Regime 2: from this one (`core.INPUTS`).
        if not have[1]:
            weights[1] = 0.0
            weights[1, [MEMBERS.index(name) for name in ("same input", "same input, steadied")]] = repeated / 2
            weights[1, 0] = 1.0 - repeated
        if not have[2]:
            weights[2] = (1.0 - repeated) * weights[1]
            weights[2, MEMBERS.index("same input here")] += repeated
        far = np.isfinite(beyond.residual).all(axis=1)
        if not have[3] and far.sum() >= _LEAST_WEIGHED:
            weights[3] = conformal.choose(beyond.residual[far], self.task[far], handicap=self.handicap, sure=_SURE)
        # Large sizes of a known input: as at other sizes.
        for r in (4, 5):
            if not have[r]:
                weights[r] = weights[r - 3]
        return weights

    def by_size(self, missed: LeftOut, beyond: LeftOut, otherwise: Floats) -> Floats:
        """Weigh members, the same in all regimes, by sources left out and sizes beyond those seen, taken together.

        Only members that carry over to another machine take part: on one machine nobody sees the others fail.
        """
        carried = [MEMBERS.index(name) for name in _CARRIED]
        residual = np.concatenate([missed.residual, beyond.residual])[:, carried]
        good = np.isfinite(residual).all(axis=1)
        if good.sum() < _LEAST_WEIGHED:
            return otherwise
        task = np.concatenate([self.task, self.task])[good]
        weights = np.zeros((len(REGIMES), len(MEMBERS)))
        weights[:, carried] = conformal.choose(residual[good], task, handicap=self.handicap[carried], sure=_SURE)
        return weights

    def trend(self, missed: LeftOut, weights: Floats) -> Floats:
        """Weigh for a new source: the plain line of least squares, unless it fails clearly on sources left out.

        Those have sizes like the others; what is new may be many times larger. There what bends back to the sizes seen
        is no guide, and of the lines the one that leans on the largest rows lies nearest.
        """
        found, line = weights.copy(), MEMBERS.index("least squares here")
        residual = combined(missed, weights)
        for r in range(len(REGIMES)):
            some = np.isfinite(missed.residual).all(axis=1) & (missed.regime == r)
            if some.sum() < _LEAST_WEIGHED:
                continue
            ours, plainly = (conformal.relative_cost(part[some]) for part in (residual, missed.residual[:, line]))
            if plainly <= _FAILS_CLEARLY * ours:
                # Wholly: a little of what bends back is still no guide.
                found[r] = 0.0
                found[r, line] = 1.0
        return found

    def calibrations(self, missed: LeftOut, weights: Floats) -> Calibrations:
        """Return how wrong the weighted members were on the rows left out, by `INPUTS`."""
        return calibrations(missed, weights, self.task, len(self.names.tasks), self.likeness)

    @property
    def one_run(self) -> bool:
        """Tell whether all rows are of one run, so that none can be left out."""
        return len(np.unique(self.observations.run)) < 2

    @property
    def handicap(self) -> Floats:
        """Burden members by machine where all rows are of one run: its machine and its time cannot be told apart.

        With few runs those pay whose advantage shrinks with each run more.
        """
        burden = np.zeros(len(MEMBERS))
        if self.one_run:
            burden[[i for i, name in enumerate(MEMBERS) if name in _BY_MACHINE]] = _ONE_RUN
        elif len(np.unique(self.observations.run)) <= _FEW_RUNS:
            burden[MEMBERS.index("same input, steadied")] = _STEADIED
        return burden

    def unknown(self) -> conformal.Calibration:
        """Measure how wrong the likeness of names is for tasks of a workflow left out; wide without another task."""
        if len(self.names.tasks) < _LEAST_TASKS:
            return conformal.calibrate_worst_group(np.zeros(0), np.zeros(0, np.int64))
        residual, group = np.full(len(self.log_s), np.nan), np.zeros(len(self.log_s), np.int64)
        likeness = text.likeness(self.names.tasks, self.names.tasks)
        for train, test, g in self.folds(NEW_TASK):
            fitted, rows = self.backbone(train), self.rows(test)
            fitted = replace(fitted, offset=filled(fitted.offset, self.table))
            residual[test] = self.log_s[test] - resemble(fitted, rows, likeness[rows.task])
            group[test] = g
        return conformal.calibrate_worst_group(residual, group)

    def folds(self, kind: str) -> Iterator[tuple[Ints, Ints, int]]:
        """Yield (train, test, group) by run, source, machine or workflow; with one group only, by task, run or time."""
        rows = self.observations
        column = {KNOWN: rows.run, NEW_SOURCE: rows.source, NEW_MACHINE: rows.machine, NEW_TASK: rows.workflow}[kind]
        for candidate in (column, rows.task if kind == NEW_TASK else rows.run, self.time_blocks):
            found, group = np.unique(candidate, return_inverse=True)
            if len(found) > 1:
                break
        # More groups than folds are dealt out, in a fixed order.
        if len(found) > _FOLDS:
            group = np.random.default_rng(0).permutation(len(found))[group] % _FOLDS
        yield from _cut(group)

    @property
    def time_blocks(self) -> Ints:
        """Cut the rows of each task on each machine, in the order they finished, into consecutive blocks of time.

        Pairs begin with different parts, so that pairs of few rows do not all fall into the first.
        """
        pair = np.unique(self.task * self.counts[1] + self.machine, return_inverse=True)[1]
        order = np.argsort(pair, kind="stable")
        count = np.bincount(pair)
        place = np.empty(len(pair), np.int64)
        place[order] = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
        # Consecutive fifths of each pair's rows; the pair's number shifts where they begin.
        return np.asarray((place * _FOLDS // np.maximum(count[pair], _FOLDS) + pair) % _FOLDS)


def _cut(group: Ints) -> Iterator[tuple[Ints, Ints, int]]:
    for g in range(int(group.max()) + 1):
        yield np.flatnonzero(group != g), np.flatnonzero(group == g), g


def size_of(observations: Observations, column: Ints, task: Ints) -> Floats:
    """Return the size that each row's task is predicted from; unknown where there is none."""
    if not observations.sizes.shape[1]:
        return np.full(len(task), np.nan)
    return observations.sizes[np.arange(len(task)), column[np.maximum(task, 0)]]


Calibrations = tuple[Calibration, Calibration, Calibration]
"""By `INPUTS`: the task never ran on the input, ran elsewhere, ran on the same machine."""


def calibrations(missed: LeftOut, weights: Floats, task: Ints, tasks: int, likeness: float) -> Calibrations:
    """Return how wrong the blend was on inputs of each kind; what could not be left out is assumed.

    The more of the spread comes with the input (``likeness``), the less of the error on other inputs is chance.
    """
    residual = combined(missed, weights)
    parts: list[Calibration | None] = []
    for known in range(len(INPUTS)):
        some = np.isfinite(residual) & (missed.regime % len(INPUTS) == known)
        measured = conformal.calibrate(residual[some], task[some], missed.group[some], tasks)
        parts.append(measured if some.sum() >= 20 else None)
    # Whatever was measured, in the order of what it says about new inputs.
    new = parts[0] or parts[1] or parts[2] or conformal.calibrate(residual, task, missed.group, tasks)
    chance = _REPEAT_SHARE * np.sqrt(1.0 - likeness**2) * new.scale
    scale = np.minimum(np.hypot(_REPEAT_ERROR, chance), np.maximum(new.scale, _REPEAT_ERROR))
    assumed = replace(new, scale=scale, shift=0.0, median_error=np.nan, mean_error=np.nan)
    # The nearest kind that was measured, else what is assumed.
    return new, parts[1] or parts[2] or assumed, parts[2] or assumed


def combined(missed: LeftOut, weights: Floats) -> Floats:
    """Log residuals of the weighted members on the rows left out."""
    return np.asarray((missed.residual * weights[missed.regime]).sum(axis=1))


def stretch_error(beyond: LeftOut, weights: Floats) -> float:
    """Return the typical error per unit of log size outside the sizes seen."""
    residual = combined(beyond, weights)
    some = np.isfinite(residual) & (beyond.stretch > np.log(BEYOND))
    if some.sum() < _LEAST_WEIGHED:
        return _STRETCH_ERROR
    return float(
        # Between 0.1 and 1: a few odd rows must not make intervals useless, or none.
        np.clip(np.sqrt(np.mean(np.minimum(np.abs(residual[some] / beyond.stretch[some]), 2.0) ** 2)), 0.1, 1.0)
    )


def _distances(table: BenchmarkTable, machines: int) -> Floats:
    """Return how unlike machines are, by their benchmarks; far where nothing is known."""
    distance = np.full((machines + 1, machines + 1), _FAR)
    np.fill_diagonal(distance, 0.0)
    for a in range(machines if len(table.log_s) else 0):
        for b in range(a):
            found = table.distance(table.log_s[:, a], table.log_s[:, b])
            distance[a, b] = distance[b, a] = found if np.isfinite(found) else _FAR
    return distance


def filled(offset: Floats, table: BenchmarkTable) -> Floats:
    """Fill offsets for every task and machine: seen, else from the machine's other tasks, else from benchmarks."""
    result = offset.copy()
    some = np.isfinite(offset)
    seen = np.flatnonzero(some.any(axis=0))
    # Of the machines where it ran.
    mean = np.where(some, offset, 0.0).sum(axis=1) / np.maximum(some.sum(axis=1), 1)
    setting = choose_setting(offset, table, seen)
    for m in range(offset.shape[1]):
        missing = np.flatnonzero(~some[:, m] & some.any(axis=1))
        if not len(missing):
            continue
        if some[:, m].any():
            # The machine's other tasks tell how fast it is.
            effect = float(np.median((offset[:, m] - mean)[some[:, m]]))
            result[missing, m] = mean[missing] + effect
        elif m < table.log_s.shape[1] and np.isfinite(table.log_s[:, m]).any():
            result[missing, m] = predict_offsets(offset, table, seen, (table.log_s[:, m], setting))[missing]
        else:
            result[missing, m] = mean[missing]
    return result

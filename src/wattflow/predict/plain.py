"""The plain ways to say how long a task takes, as members of the ensemble: medians, last values and lines by key.

Each is what a short script would do. None is good everywhere; each is best somewhere: the median where input sizes say
nothing, the same input's earlier run where inputs come again, a line per machine where machines differ in slope. The
ensemble (`blend`) weighs them by what they missed on rows left out, so that it cannot lose badly to any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wattflow.predict import backbone as lines
from wattflow.predict.compiled import compiled
from wattflow.predict.observations import Floats, Ints

# `core.MEMBERS` and the columns of `Plain.predict` have this order.
NAMES = (
    "median",
    "median here",
    "last here",
    "line",
    "line here",
    "least squares here",
    "same input",
    "same input here",
    "same input, steadied",
)
"""*Here* is on the same machine. A member that does not know a row answers NaN."""
_REWEIGHTS, _TOLERANCE = 15, 0.1
_LEAST_HELD, _LEAST_INPUTS, _LEAST_SPREAD = 10, 4, 0.02
_HELD_STEADIED, _HELD_HERE = 4.0, 6.0
"""A single run is held at this many deviations of the task's other inputs."""
_CLEARLY = 1.1
"""A size column other than the first must miss this many times fewer seconds: less is within what chance does."""
_REPEAT, _PRIOR_REPEATS = 0.1, 2.0  # runs on one input differ by about 10 %, until some were seen


@dataclass(frozen=True, slots=True)
class Keyed:
    """A number by whole-number key; keys ascend."""

    key: Ints
    value: Floats

    @classmethod
    def medians(cls, key: Ints, value: Floats) -> Keyed:
        """Return the median of each key's values; keys below 0 are left out."""
        some = key >= 0
        found, group = np.unique(key[some], return_inverse=True)
        return cls(found.astype(np.int64), lines.medians(value[some], group.astype(np.int64), len(found)))

    @classmethod
    def median_seconds(cls, key: Ints, log_s: Floats) -> Keyed:
        """Take the median of seconds: between two runs lies their mean, not the root of their product."""
        # Seconds, not logs: for two runs the median is their mean.
        found = cls.medians(key, np.exp(log_s))
        return cls(found.key, np.log(found.value))

    def at(self, key: Ints) -> Floats:
        """Return the values; NaN where the key is not known."""
        if not len(self.key):
            return np.full(len(key), np.nan)
        # The key may be beyond the last one; whether it is there is tested next.
        place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[place] == key, self.value[place], np.nan)


@dataclass(frozen=True, slots=True)
class Plain:
    """Fitted plain members, all in natural logs of seconds.

    Attributes:
        pair: [median, last, intercept, slope, floor, and the line of least squares' two][task, machine]; NaN: unknown.
        task: The same of [task].
        data: By task and input; ``here`` by task, input and machine; ``steadied`` drawn towards the task's median by as
            much as runs on one input differ among themselves; a wild single run is held in.
        spread: How much the size moves each task: standard deviation of its line over the sizes seen, in logs.
    """

    pair: Floats
    task: Floats
    data: Keyed
    here: Keyed
    steadied: Keyed
    inputs: int
    spread: Floats

    def data_key(self, task: Ints, data: Ints) -> Ints:
        # One number for task and input; -1 for what has no identity.
        return np.where((data >= 0) & (task >= 0), task * self.inputs + data, -1)

    def here_key(self, task: Ints, data: Ints, machine: Ints) -> Ints:
        key = self.data_key(task, data)
        # Built on `data_key`: `serving.RowPredictor` makes the same numbers.
        return np.where((key >= 0) & (machine >= 0), key * self.pair.shape[2] + machine, -1)

    def predict(self, task: Ints, machine: Ints, size: Floats, data: Ints) -> Floats:
        """Predict log seconds, [row, member] in the order of `NAMES`; NaN where a member does not know the row."""
        here, alone = self.pair[:, task, machine], self.task[:, task]
        gigabytes = size / lines.SIZE_UNIT
        key = self.data_key(task, data)
        return np.column_stack([
            alone[0], here[0], here[1], _line(alone[2], alone[3], alone[4], gigabytes),
            _line(here[2], here[3], here[4], gigabytes), _line(here[5], here[6], here[4], gigabytes),
            self.data.at(key), self.here.at(self.here_key(task, data, machine)), self.steadied.at(key),
        ])  # fmt: skip


def _line(intercept: Floats, slope: Floats, floor: Floats, x: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.log(np.maximum(intercept + slope * x, floor)))


def fit_plain(
    task: Ints, machine: Ints, size: Floats, data: Ints, log_s: Floats, counts: tuple[int, int, int]
) -> Plain:
    """Fit all members on rows in the order they finished. ``counts`` is (tasks, machines, inputs)."""
    tasks, machines, inputs = counts
    x = size / lines.SIZE_UNIT
    pair = by_group(task * machines + machine, x, log_s, tasks * machines).reshape(7, tasks, machines)
    alone = by_group(task, x, log_s, tasks)
    empty = Keyed(np.zeros(0, np.int64), np.zeros(0))
    draft = Plain(pair, alone, empty, empty, empty, max(inputs, 1), np.zeros(0))
    key = draft.data_key(task, data)
    # Single runs far off are held in before medians are taken.
    tame = _held(log_s, task * machines + machine, np.ones_like(task), pair[0].ravel(), _HELD_HERE)
    return replace(
        draft,
        data=Keyed.medians(key, log_s),
        here=Keyed.median_seconds(draft.here_key(task, data, machine), tame),
        steadied=_steadied(key, log_s, alone[0], draft.inputs),
        spread=_spreads(_line(alone[2, task], alone[3, task], alone[4, task], x), task, tasks),
    )


def carried(fitted: Plain, offset: Floats) -> Plain:
    """Carry lines to machines where a task never ran: the mean of those it has, by the machines' factors.

    ``offset`` holds the natural logs of the factors, [task, machine], all known.
    """
    lined = np.isfinite(fitted.pair[5])
    # Unknown factors count as 1, so that the division is defined; such pairs are masked.
    factor = np.exp(np.where(np.isfinite(offset), offset, 0.0))
    count = np.maximum(lined.sum(axis=1), 1)
    pair = fitted.pair.copy()
    missing = ~np.isfinite(fitted.pair[0]) & lined.any(axis=1)[:, None]
    for part in range(2, len(pair)):
        at_one = np.where(lined, fitted.pair[part], 0.0) / factor
        pair[part] = np.where(missing, (at_one.sum(axis=1) / count)[:, None] * factor, pair[part])
    return replace(fitted, pair=pair)


def _steadied(key: Ints, log_s: Floats, centre: Floats, inputs: int) -> Keyed:
    """Return medians by task and input, drawn towards the task's by v / n against the variance between inputs."""
    some = key >= 0
    found, group = np.unique(key[some], return_inverse=True)
    if not len(found):
        return Keyed(np.zeros(0, np.int64), np.zeros(0))
    median = lines.medians(log_s[some], group.astype(np.int64), len(found))
    count = np.bincount(group, minlength=len(found))
    task, tasks = found // inputs, len(centre)
    median = _held(median, task, count, centre, _HELD_STEADIED)
    # Capped on the slow side: a stuck run counts at most 1.
    inside = np.bincount(task[group], weights=np.minimum(log_s[some] - median[group], 1.0) ** 2, minlength=tasks)
    # Degrees of freedom: repeats beyond the first of each input.
    spare = np.bincount(task, weights=count - 1.0, minlength=tasks)
    within = (inside + _PRIOR_REPEATS * _REPEAT**2) / (spare + _PRIOR_REPEATS)
    between = _spreads(median, task, tasks) ** 2
    # With two inputs or fewer the variance between them is chance.
    several = np.bincount(task, minlength=tasks) > 2
    replicated = several[task] & (count > 1)
    # Share of the variance that is between inputs (James and Stein's shrinkage).
    share = np.where(replicated, between[task] / (between[task] + within[task] / count + 1e-12), 1.0)
    return Keyed(found.astype(np.int64), centre[task] + share * (median - centre[task]))


def _held(median: Floats, task: Ints, count: Ints, centre: Floats, deviations: float) -> Floats:
    """Hold a single run far outside what the task's other inputs took at so many robust deviations of theirs."""
    away = median - centre[task]
    # 1.4826 turns a median absolute deviation into a standard one, for normal errors.
    typical = 1.4826 * lines.medians(np.abs(away), task, len(centre))
    enough = np.bincount(task, minlength=len(centre)) >= _LEAST_HELD
    # Never narrower than what repeats differ by.
    most = np.where(enough, deviations * np.maximum(typical, _REPEAT), np.inf)
    return np.where(count == 1, centre[task] + np.clip(away, -most[task], most[task]), median)


def _spreads(value: Floats, task: Ints, tasks: int) -> Floats:
    """Return the standard deviation of each task's values; 0 where there are none."""
    good = np.isfinite(value)
    value, task = value[good], task[good]
    count = np.maximum(np.bincount(task, minlength=tasks), 1)
    mean = np.bincount(task, weights=value, minlength=tasks) / count
    return np.asarray(np.sqrt(np.bincount(task, weights=(value - mean[task]) ** 2, minlength=tasks) / count))


def best_sizes(task: Ints, machine: Ints, sizes: Floats, log_s: Floats, counts: tuple[int, int]) -> Ints:
    """Choose each task's size column whose lines, one per machine, miss the fewest seconds; the first if as good."""
    tasks, machines = counts
    if sizes.shape[1] < 2:
        return np.zeros(tasks, np.int64)
    pair, seconds = task * machines + machine, np.exp(log_s)
    missed = np.zeros((sizes.shape[1], tasks))
    for column in range(sizes.shape[1]):
        x = sizes[:, column] / lines.SIZE_UNIT
        found = by_group(pair, x, log_s, tasks * machines)[:, pair]
        line = np.exp(_line(found[5], found[6], found[4], x))
        # Where no line could be fitted the median answers.
        line = np.where(np.isfinite(line), line, np.exp(found[0]))
        missed[column] = np.bincount(task, weights=np.abs(line - seconds), minlength=tasks)
    # The first column that is not clearly worse than the best: `argmin` of booleans finds it.
    return np.asarray(np.argmin(missed > _CLEARLY * missed.min(axis=0) + 1e-12, axis=0), np.int64)


@compiled
def _even_line(x: Floats, t: Floats) -> tuple[float, float]:
    """Fit a line (a, b) for errors that grow with the root of the seconds, by reweighted least squares."""
    mean, weight = t.mean(), np.ones(t.size)
    a, b = 0.0, 0.0
    for _ in range(_REWEIGHTS):
        s0, s1, s2, r0, r1 = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(t.size):
            # Divided by t: errors are taken to grow with the root of the seconds.
            w = weight[i] / t[i]
            s0 += w
            s1 += w * x[i]
            s2 += w * x[i] * x[i]
            r0 += w * t[i]
            r1 += w * x[i] * t[i]
        determinant = s0 * s2 - s1 * s1
        # One size only.
        if determinant <= 1e-9 * s0 * s2:
            return r0 / s0, 0.0
        a, b = (r0 * s2 - r1 * s1) / determinant, (r1 * s0 - r0 * s1) / determinant
        for i in range(t.size):
            weight[i] = 1.0 / max(abs(a + b * x[i] - t[i]) / math.sqrt(t[i] * mean), _TOLERANCE)
    return a, b


@compiled
def by_group(group: Ints, x: Floats, log_s: Floats, count: int) -> Floats:
    """Fit [median, last, intercept, slope, floor, least squares' two] of each group; lines where two sizes were seen.

    The first line stands between relative error and seconds, the second is fitted to seconds: it leans on the largest
    rows, which lie nearest to what a larger input will take.
    """
    found = np.full((7, count), np.nan)
    # Merge sort is stable: the last row of a group is the one that finished last.
    order = np.argsort(group, kind="mergesort")
    begin = 0
    while begin < order.size:
        end = begin
        while end < order.size and group[order[end]] == group[order[begin]]:
            end += 1
        rows, g = order[begin:end], group[order[begin]]
        # of seconds: between two runs lies their mean, not the root of their product
        found[0, g], found[1, g] = math.log(np.median(np.exp(log_s[rows]))), log_s[rows[-1]]
        known = rows[np.isfinite(x[rows])]
        if known.size > 1 and x[known].max() > x[known].min():
            seconds = np.exp(log_s[known])
            a, b = _even_line(x[known], seconds)
            # Half of the fastest run is the floor, as in the backbone.
            found[2, g], found[3, g], found[4, g] = a, b, 0.5 * seconds.min()
            apart = x[known] - x[known].mean()
            slope = (apart * seconds).sum() / (apart * apart).sum()
            found[5, g], found[6, g] = seconds.mean() - slope * x[known].mean(), slope
        begin = end
    return found


def likeness_of_inputs(task: Ints, data: Ints, log_s: Floats) -> float:
    """Estimate how much of a task's spread comes with the input, from one run of each: 0 none, 1 all.

    An input that is large is slow for every task that reads it. So the correlation, over inputs, of how far different
    tasks lie from their own medians tells identity from noise, without any input having run twice.
    """
    known = data >= 0
    task, data, log_s = task[known], data[known], log_s[known]
    if not len(task):
        return 0.0
    tasks, inputs = int(task.max()) + 1, int(data.max()) + 1
    away = log_s - lines.medians(log_s, task, tasks)[task]
    # Tasks that hardly vary would turn noise into large scores.
    typical = np.maximum(1.4826 * lines.medians(np.abs(away), task, tasks), _LEAST_SPREAD)
    score = np.clip(away / typical[task], -3.0, 3.0)
    common = np.bincount(task, minlength=tasks)[task] >= _LEAST_INPUTS
    pair, place = np.unique((task * inputs + data)[common], return_inverse=True)
    if not len(pair):
        return 0.0
    # Mean score of each task on each input, so that repeats count once.
    mean = np.bincount(place, weights=score[common]) / np.bincount(place)
    total, squares, count = (np.bincount(pair % inputs, weights=w) for w in (mean, mean**2, np.ones(len(pair))))
    # Pairs of different tasks on one input: their products, over the mean square, are a correlation.
    pairs = float((count * (count - 1.0)).sum())
    return float(np.clip((total**2 - squares).sum() / max(pairs, 1.0) / max(np.mean(mean**2), 1e-12), 0.0, 1.0))

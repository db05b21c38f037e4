"""The plain ways to say how long a task takes, as members of the ensemble: medians, last values and lines by key.

Each is what a short script would do. None is good everywhere; each is best somewhere: the median where input sizes say
nothing, the same input's earlier run where inputs come again, a line per machine where machines differ in slope. The
ensemble (`blend`) weighs them by what they missed on rows left out, so that it cannot lose badly to any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from wattflow.predict import backbone as lines
from wattflow.predict.observations import Floats, Ints

NAMES = (
    "median",
    "median here",
    "last here",
    "line",
    "line here",
    "same input",
    "same input here",
)
"""*Here* is on the same machine. A member that does not know a row answers NaN."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A number by whole-number key; keys ascend."""

    key: Ints
    value: Floats

    @classmethod
    def medians(cls, key: Ints, value: Floats) -> Keyed:
        """The median of each key's values; keys below 0 are left out."""
        some = key >= 0
        found, group = np.unique(key[some], return_inverse=True)
        return cls(found.astype(np.int64), lines.medians(value[some], group.astype(np.int64), len(found)))

    def at(self, key: Ints) -> Floats:
        """The values; NaN where the key is not known."""
        if not len(self.key):
            return np.full(len(key), np.nan)
        place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[place] == key, self.value[place], np.nan)


@dataclass(frozen=True, slots=True)
class Plain:
    """Fitted plain members, all in natural logs of seconds.

    Attributes:
        pair: [median, last, intercept, slope, floor][task, machine]; NaN where unknown.
        task: [median, intercept, slope, floor][task].
        data: By task and input; ``here`` by task, input and machine.
        spread: How much the size moves each task: standard deviation of its line over the sizes seen, in logs.
    """

    pair: Floats
    task: Floats
    data: Keyed
    here: Keyed
    inputs: int
    spread: Floats

    def data_key(self, task: Ints, data: Ints) -> Ints:
        return np.where((data >= 0) & (task >= 0), task * self.inputs + data, -1)

    def here_key(self, task: Ints, data: Ints, machine: Ints) -> Ints:
        key = self.data_key(task, data)
        return np.where((key >= 0) & (machine >= 0), key * self.pair.shape[2] + machine, -1)

    def predict(self, task: Ints, machine: Ints, size: Floats, data: Ints) -> Floats:
        """Natural log of seconds, [row, member] in the order of `NAMES`; NaN where a member does not know the row."""
        here, alone = self.pair[:, task, machine], self.task[:, task]
        gigabytes = size / lines.SIZE_UNIT
        with np.errstate(invalid="ignore"):
            line_here = np.log(np.maximum(here[2] + here[3] * gigabytes, here[4]))
            line = np.log(np.maximum(alone[1] + alone[2] * gigabytes, alone[3]))
        return np.column_stack([
            alone[0], here[0], here[1], line, line_here, self.data.at(self.data_key(task, data)),
            self.here.at(self.here_key(task, data, machine)),
        ])  # fmt: skip


def fit_plain(
    task: Ints, machine: Ints, size: Floats, data: Ints, log_s: Floats, counts: tuple[int, int, int]
) -> Plain:
    """Fit all members on rows in the order they finished. ``counts`` is (tasks, machines, inputs)."""
    tasks, machines, inputs = counts
    pair = _by_group(task * machines + machine, size / lines.SIZE_UNIT, log_s, tasks * machines)
    alone = _by_group(task, size / lines.SIZE_UNIT, log_s, tasks)
    empty = Keyed(np.zeros(0, np.int64), np.zeros(0))
    unfinished = Plain(pair.reshape(5, tasks, machines), alone[[0, 2, 3, 4]], empty, empty, max(inputs, 1), alone[0])
    return Plain(
        unfinished.pair, unfinished.task, Keyed.medians(unfinished.data_key(task, data), log_s),
        Keyed.medians(unfinished.here_key(task, data, machine), log_s), unfinished.inputs,
        _spread(task, size / lines.SIZE_UNIT, unfinished.task),
    )  # fmt: skip


def _spread(task: Ints, x: Floats, alone: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        curve = np.log(np.maximum(alone[1, task] + alone[2, task] * x, alone[3, task]))
    good = np.isfinite(curve)
    count = np.maximum(np.bincount(task[good], minlength=alone.shape[1]), 1)
    mean = np.bincount(task[good], weights=curve[good], minlength=alone.shape[1]) / count
    squares = np.bincount(task[good], weights=(curve[good] - mean[task[good]]) ** 2, minlength=alone.shape[1])
    return np.asarray(np.sqrt(squares / count))


@numba.njit(cache=True, error_model="numpy")
def _by_group(group, x, log_s, count):  # type: ignore[no-untyped-def]
    """[median, last, intercept, slope, floor] of each group's rows; a line only where two sizes were seen."""
    found = np.full((5, count), np.nan)
    order = np.argsort(group, kind="mergesort")
    begin = 0
    while begin < order.size:
        end = begin
        while end < order.size and group[order[end]] == group[order[begin]]:
            end += 1
        rows, g = order[begin:end], group[order[begin]]
        found[0, g], found[1, g] = np.median(log_s[rows]), log_s[rows[-1]]
        known = rows[np.isfinite(x[rows])]
        if known.size > 1 and x[known].max() > x[known].min():
            seconds = np.exp(log_s[known])
            a, b = lines.relative_line(x[known], seconds)
            found[2, g], found[3, g], found[4, g] = a, b, 0.5 * seconds.min()
        begin = end
    return found

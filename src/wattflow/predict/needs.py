"""What a task needs at most: memory or cores to request so that at most a small share of tasks outgrows it.

Per task the request is the largest need seen plus a margin in units of the task's own spread. The margin is common to
all tasks and is the smallest that kept failures below the target on runs left out of the training rows. A task with
too few finished runs keeps the user's request: unknown stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattflow.predict.evaluate import group_folds
from wattflow.predict.observations import Floats, Texts

LEAST_RUNS = 5
_MARGINS = tuple(float(m) for m in np.round(np.concatenate([np.arange(0, 2, 0.1), np.arange(2, 8.1, 0.5)]), 2))
_LEAST_SPREAD = 0.02
_SAFETY = 0.5


@dataclass(frozen=True, slots=True)
class NeedModel:
    """Upper bounds by task, in the unit of the need (bytes, cores)."""

    tasks: tuple[str, ...]
    log_largest: Floats
    spread: Floats
    margin: float
    failure_target: float
    expected_failures: float

    def request(self, task: Texts, asked: Floats) -> Floats:
        """What to request: the bound, never more than the user asked for; the user's request for unknown tasks."""
        place = {name: i for i, name in enumerate(self.tasks)}
        number = np.array([place.get(name, -1) for name in task.tolist()], np.int64)
        known = number >= 0
        safe = np.maximum(number, 0)
        if not self.tasks:
            return asked.copy()
        bound = np.exp(self.log_largest[safe] + self.margin * self.spread[safe])
        bound = np.where(known, bound, asked)
        return np.where(np.isfinite(asked), np.fmin(bound, asked), bound)


def fit(task: Texts, need: Floats, group: Texts, failure_target: float = 0.01) -> NeedModel:
    """Fit on finished tasks. ``group`` (a sample, a run) is never split while the margin is chosen."""
    good = np.isfinite(need) & (need > 0)
    task, need, group = task[good], need[good], group[good]
    folds = list(group_folds(group, 5)) if len(np.unique(group)) > 1 else []
    scores = np.full(len(need), np.nan)
    for train, test in folds:
        names, largest, spread = _bounds(task[train], need[train])
        place = {name: i for i, name in enumerate(names)}
        for row in test.tolist():
            if task[row] in place:
                k = place[task[row]]
                scores[row] = (np.log(need[row]) - largest[k]) / spread[k]
    known = scores[np.isfinite(scores)]
    margin, expected = _MARGINS[-1], 0.0
    for candidate in _MARGINS:
        failures = float(np.mean(known > candidate)) if len(known) else 0.0
        if failures <= failure_target * _SAFETY:
            margin, expected = candidate, failures
            break
    names, largest, spread = _bounds(task, need)
    return NeedModel(names, largest, spread, margin, failure_target, expected)


def _bounds(task: Texts, need: Floats) -> tuple[tuple[str, ...], Floats, Floats]:
    names, largest, spread = [], [], []
    for name in np.unique(task).tolist():
        logs = np.log(need[task == name])
        if len(logs) >= LEAST_RUNS:
            names.append(str(name))
            largest.append(float(logs.max()))
            spread.append(max(float(logs.std()), _LEAST_SPREAD))
    return tuple(names), np.array(largest), np.array(spread)


def over_allocation(allocated: Floats, asked: Floats, peak: Floats) -> tuple[float, float]:
    """(bytes held and not used, share of failures). A failed try wastes what it held and is repeated as asked."""
    failed = allocated < peak
    waste = np.where(failed, allocated + np.maximum(asked - peak, 0.0), allocated - peak)
    return float(waste.sum()), float(failed.mean())

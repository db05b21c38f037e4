"""What a task needs at most: memory or cores to request so that at most a small share of tasks outgrows it.

    request = largest so far · times · exp(spread_weight · spread + few / √n) + share · typical need

*spread* is that of the task's own logs, n how often it ran. ``1.5 × largest so far`` and its like are points of this
family. Its four numbers are common to all tasks and are those that would have wasted least, with failures below half
the target, had they been used in time: each block of the training rows with what had finished before it. The last term
keeps tiny tasks from failing over a few bytes; it costs next to nothing.

A task that never ran, or only a time or two, is bounded by what its user asked for: people ask for too much, and by
about as much for one task as for the next. Its request is

    asked · reach · the largest share of their request that tasks with runs have used

and never below the first bound; with few known tasks, or where tasks have used all they asked for, it is as asked.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from wattflow.predict.observations import Floats, Ints, Texts

_BLOCKS, _ROWS_MOST, _LEAST_ROWS = 10, 3000, 200
_SAFETY = 0.5
_RETRY = 2.0
_PRIOR_SPREAD, _PRIOR_RUNS = 0.1, 2.0
Rule = tuple[float, float, float, float]
"""Times, spread weight, few, share."""
_RULES: tuple[Rule, ...] = tuple(
    itertools.product((1.0, 1.1, 1.2, 1.35, 1.5, 2.0), (0.0, 0.5, 1.0), (0.4, 0.8), (0.03, 0.06))
)
_DEFAULT: Rule = (1.1, 0.5, 0.4, 0.03)
_LEAST_RUNS, _LEAST_TASKS, _REACH = 4, 5, 1.5
"""Runs of a task before its own largest need is trusted, tasks before what they used of their requests is, and how far
above it a new task may go."""


@dataclass(frozen=True, slots=True)
class NeedModel:
    """Upper bounds by task, in the unit of the need (bytes, cores).

    Attributes:
        log_largest, spread, runs: Of each task's finished runs.
        typical: Mean need of all rows.
        share_of_asked: What a task with few runs or none gets of its user's request.
        expected_failures: Share of rows that outgrew their request when the rule was chosen; NaN: too few rows to say.
    """

    tasks: tuple[str, ...]
    log_largest: Floats
    spread: Floats
    runs: Floats
    typical: float
    share_of_asked: float
    rule: Rule
    failure_target: float
    expected_failures: float

    def request(self, task: Texts, asked: Floats) -> Floats:
        """What to request: the bound, never more than the user asked for; by the user's request for unknown tasks."""
        place = {name: i for i, name in enumerate(self.tasks)}
        number = np.array([place.get(name, -1) for name in task.tolist()], np.int64)
        if not self.tasks:
            return asked.copy()
        safe = np.maximum(number, 0)
        runs = np.where(number >= 0, self.runs[safe], 0.0)
        bound = _bound(self.log_largest[safe], self.spread[safe], self.runs[safe], self.typical, self.rule)
        bound = np.where(runs > 0, bound, np.where(np.isfinite(asked), 0.0, np.nan))
        few = (runs < _LEAST_RUNS) & np.isfinite(asked)
        bound = np.where(few, np.fmax(bound, self.share_of_asked * asked), bound)
        return np.where(np.isfinite(asked), np.fmin(bound, asked), bound)


def _bound(log_largest: Floats, spread: Floats, runs: Floats, typical: float, rule: Rule) -> Floats:
    times, spread_weight, few, share = rule
    grown = log_largest + spread_weight * spread + few / np.sqrt(runs)
    return np.asarray(np.exp(grown) * times + share * typical)


def fit(
    task: Texts,
    need: Floats,
    group: Texts | None = None,
    failure_target: float = 0.01,
    asked: Floats | None = None,
) -> NeedModel:
    """Fit on finished tasks, in the order they finished. ``group`` (a sample, a run) ends before a block does.

    ``asked`` is what users requested for them; without it, unknown tasks keep their request.
    """
    good = np.isfinite(need) & (need > 0)
    task, need = task[good], need[good]
    block = _blocks(len(need), group[good] if group is not None else None)
    names, number = np.unique(task, return_inverse=True)
    rule, expected = _DEFAULT, float("nan")
    if len(need) >= _LEAST_ROWS:
        rule, expected = _choose(number, np.log(need), block, (len(names), failure_target))
    largest, spread, runs = _seen(number, np.log(need), len(names))
    typical = float(need.mean()) if len(need) else 0.0
    share = 1.0 if asked is None else _share(number, need / asked[good], len(names))
    return NeedModel(tuple(names.tolist()), largest, spread, runs, typical, share, rule, failure_target, expected)


def _share(task: Ints, used: Floats, tasks: int) -> float:
    """What new tasks get of their request: `_REACH` times the most that any known one used of its own, at most all."""
    known = np.isfinite(used)
    if len(np.unique(task[known])) < _LEAST_TASKS:
        return 1.0
    return min(1.0, _REACH * float(used[known].max()))


def _blocks(rows: int, group: Texts | None) -> Ints:
    """Blocks of time of about equal length; one ends only where a group (a run) ends."""
    block = np.arange(rows) * _BLOCKS // max(rows, 1)
    if group is None or rows < 2:
        return block
    joined = np.flatnonzero(group[1:] == group[:-1]) + 1
    for row in joined.tolist():
        block[row] = block[row - 1]
    return block


def _choose(task: Ints, log_need: Floats, block: Ints, about: tuple[int, float]) -> tuple[Rule, float]:
    """The cheapest rule that kept failures low, each block requested with what had finished before it."""
    tasks, target = about
    parts = []
    for b in range(1, _BLOCKS):
        past, now = block < b, np.flatnonzero(block == b)
        if not past.any() or not len(now):
            continue
        largest, spread, runs = _seen(task[past], log_need[past], tasks)
        now = now[runs[task[now]] > 0]
        k = task[now]
        typical = np.full(len(now), np.exp(log_need[past]).mean())
        parts.append(np.column_stack([largest[k], spread[k], runs[k], typical, np.exp(log_need[now])]))
    rows = np.concatenate(parts) if parts else np.zeros((0, 5))
    if len(rows) < _LEAST_ROWS:
        return _DEFAULT, float("nan")
    rows = np.random.default_rng(0).permutation(rows)[:_ROWS_MOST]
    best: tuple[bool, float, Rule, float] | None = None
    for rule in _RULES:
        bound = _bound(rows[:, 0], rows[:, 1], rows[:, 2], 1.0, (*rule[:3], 0.0)) + rule[3] * rows[:, 3]
        failed = bound < rows[:, 4]
        held = float(np.where(failed, bound + _RETRY * rows[:, 4], bound).sum())
        share = float(failed.mean())
        safe = (failed.sum() + 1.0) / len(rows) <= target * _SAFETY
        candidate = (not safe, held if safe else share, rule, share)
        if best is None or candidate[:2] < best[:2]:
            best = candidate
    assert best is not None
    return best[2], best[3]


def _seen(task: Ints, log_need: Floats, tasks: int) -> tuple[Floats, Floats, Floats]:
    """(largest, spread, runs) of each task; spreads of few runs lean on a usual one."""
    runs = np.bincount(task, minlength=tasks).astype(np.float64)
    largest = np.full(tasks, -np.inf)
    np.maximum.at(largest, task, log_need)
    mean = np.bincount(task, weights=log_need, minlength=tasks) / np.maximum(runs, 1.0)
    squares = np.bincount(task, weights=(log_need - mean[task]) ** 2, minlength=tasks)
    spread = np.sqrt((squares + _PRIOR_RUNS * _PRIOR_SPREAD**2) / (runs + _PRIOR_RUNS))
    return largest, np.asarray(spread), runs


def over_allocation(allocated: Floats, asked: Floats, peak: Floats) -> tuple[float, float]:
    """(bytes held and not used, share of failures). A failed try wastes what it held and is repeated as asked."""
    failed = allocated < peak
    waste = np.where(failed, allocated + np.maximum(asked - peak, 0.0), allocated - peak)
    return float(waste.sum()), float(failed.mean())

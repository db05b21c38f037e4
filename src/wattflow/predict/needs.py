"""Peak needs of a task: memory or cores to request so that at most a small share of tasks outgrows it.

    request = top so far · times · exp(spread_weight · spread + few / √n) + share · typical need

*top* is the largest need or, for tasks with many runs, the one that all but 2 % stayed below: the few above it are
repeated as asked, which can be cheaper than to hold the largest for all.
*spread* is that of the task's own logs, n how often it ran. ``1.5 × largest so far`` and its like are points of this
family. Its five numbers are common to all tasks and are those that would have wasted least, with failures below half
the target, had they been used in time: each block of the training rows with what had finished before it. The last term
keeps tiny tasks from failing over a few bytes; it costs next to nothing.

A task that never ran, or only a time or two, is bounded by what its user asked for: people ask for too much, and by
about as much for one task as for the next. Its request is

    asked · reach · the largest share of their request that tasks with runs have used

and never below the first bound; with few known tasks, or where tasks have used all they asked for, it is as asked.
Where another task of the same tool (the last part of its name) has run often enough, twice its top is enough.

All of this has to earn its place: until it has wasted less than the plain rule on this source's own past, block of time
by block of time, and failed no more often, the plain rule is used: ``1.5 × largest`` once a task ran five times, as
asked before.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.predict.observations import Floats, Ints, Texts

_BLOCKS, _ROWS_MOST, _LEAST_ROWS = 10, 3000, 200
_SAFETY = 0.5
_RETRY = 2.0
_PRIOR_SPREAD, _PRIOR_RUNS = 0.1, 2.0
Rule = tuple[float, float, float, float, float]
"""Times, spread weight, few, share, and 1 where the top is not the largest need but the one few exceed."""
_HIGH = 0.98
_RULES: tuple[Rule, ...] = tuple(
    itertools.product((1.0, 1.1, 1.2, 1.35, 1.5, 2.0), (0.0, 0.5, 1.0), (0.4, 0.8), (0.03, 0.06), (0.0, 1.0))
)
_DEFAULT: Rule = (1.1, 0.5, 0.4, 0.03, 0.0)
_LEAST_RUNS, _LEAST_TASKS, _LEAST_FEW = 4, 5, 50
"""Runs of a task before its own largest need is trusted, tasks before what they used of their requests is."""
_KIN = 2.0
_REACH, _REACHES = 1.5, (1.1, 1.25, 1.5, 2.0)
_PLAIN_TIMES, _PLAIN_RUNS = 1.5, 5


@dataclass(frozen=True, slots=True)
class NeedModel:
    """Upper bounds by task, in the unit of the need (bytes, cores).

    Attributes:
        log_largest, log_high, spread, runs: Of each task's finished runs.
        typical: Mean need of all rows.
        share_of_asked: What a task with few runs or none gets of its user's request; NaN where requests were not
            learned: then one with few runs goes by its own.
        expected_failures: Share of rows that outgrew their request when the rule was chosen; NaN: too few rows to say.
        plain, plain_few: The plain rule is used for tasks with runs of their own, for those with few: on this source's
            past it was not beaten there.
    """

    tasks: tuple[str, ...]
    log_largest: Floats
    log_high: Floats
    spread: Floats
    runs: Floats
    typical: float
    share_of_asked: float
    rule: Rule
    failure_target: float
    expected_failures: float
    plain: bool = False  # model files written before there was a plain rule have no such fields
    plain_few: bool = False

    def request(self, task: Texts, asked: Floats) -> Floats:
        """Request the bound, never more than the user asked for; the user's own request for unknown tasks."""
        place = {name: i for i, name in enumerate(self.tasks)}
        number = np.array([place.get(name, -1) for name in task.tolist()], np.int64)
        if not self.tasks:
            return asked.copy()
        safe = np.maximum(number, 0)
        runs = np.where(number >= 0, self.runs[safe], 0.0)
        parts = (self.log_largest[safe], self.log_high[safe], self.spread[safe], self.runs[safe])
        bound = _bound(parts, self.typical, self.rule)
        bound = np.where(runs > 0, bound, np.where(np.isfinite(asked), 0.0, np.nan))
        share = 1.0 if np.isnan(self.share_of_asked) else self.share_of_asked
        few = (runs < (1 if np.isnan(self.share_of_asked) else _LEAST_RUNS)) & np.isfinite(asked)
        enough = np.fmin(share * asked, _KIN * self._kin(task) + self.rule[3] * self.typical)
        bound = np.where(few, np.fmax(bound, enough), bound)
        plain = np.where(runs < _LEAST_RUNS, self.plain_few, self.plain)
        bound = np.where(plain, _plain(self.log_largest[safe], runs, asked), bound)
        return np.where(np.isfinite(asked), np.fmin(bound, asked), bound)

    def _kin(self, task: Texts) -> Floats:
        """The largest need of tasks of the same tool that ran often enough; infinite where there is none."""
        largest: dict[str, float] = {}
        for name, log_need, runs in zip(self.tasks, self.log_largest.tolist(), self.runs.tolist(), strict=True):
            if runs >= _LEAST_RUNS:
                largest[_tool(name)] = max(largest.get(_tool(name), 0.0), float(np.exp(log_need)))
        return np.array([largest.get(_tool(name), np.inf) for name in task.tolist()])


def _tool(task: str) -> str:
    return task.replace("/", ":").rsplit(":", 1)[-1]


Past = tuple[Floats, Floats, Floats, Floats]
"""Of the finished runs: log of the largest need, log of the one few exceed, spread of the logs, number."""


def _bound(past: Past, typical: float | Floats, rule: Rule) -> Floats:
    largest, high, spread, runs = past
    times, spread_weight, few, share, top = rule
    grown = (high if top else largest) + spread_weight * spread + few / np.sqrt(runs)
    return np.asarray(np.exp(grown) * times + share * typical)


def fit(
    task: Texts,
    need: Floats,
    group: Texts | None = None,
    failure_target: float = 0.01,
    asked: Floats | None = None,
) -> NeedModel:
    """Fit on finished tasks, in the order they finished. ``group`` (a sample, a run) ends before a block does.

    ``asked`` is what users requested for them; without it, tasks that never ran keep their request.
    """
    good = np.isfinite(need) & (need > 0)
    task, need = task[good], need[good]
    request = np.full(len(need), np.nan) if asked is None else asked[good]
    block = _blocks(len(need), group[good] if group is not None else None)
    names, number = np.unique(task, return_inverse=True)
    rule, expected, reach = _DEFAULT, float("nan"), _REACH
    rows = _InTime.of(number, need, request, block, len(names))
    if rows is not None:
        (rule, expected), reach = _choose(rows, failure_target), _choose_reach(rows, failure_target)
    past = _seen(number, np.log(need), len(names))
    typical = float(need.mean()) if len(need) else 0.0
    share = float("nan") if asked is None else min(1.0, reach * _used(number, need / request))
    # Without requests there is nothing to fall back on before a task ran five times.
    known, few = (False, False) if not np.isfinite(request).all() else (True, True)
    if known and rows is not None:
        known, few = (not won for won in _beaten(rows, failure_target))
    return NeedModel(tuple(names.tolist()), *past, typical, share, rule, failure_target, expected, known, few)


def _blocks(rows: int, group: Texts | None) -> Ints:
    """Blocks of time of about equal length; one ends only where a group (a run) ends."""
    block = np.arange(rows) * _BLOCKS // max(rows, 1)
    if group is None or rows < 2:
        return block
    joined = np.flatnonzero(group[1:] == group[:-1]) + 1
    for row in joined.tolist():
        block[row] = block[row - 1]
    return block


@dataclass(frozen=True, slots=True)
class _InTime:
    """Rows requested with what had finished before their block.

    Attributes:
        seen: The task's runs so far.
        typical, used: Typical need so far, and the largest share of a request used so far.
        need, asked: What the row needed and what was asked for it (NaN: unknown).
        block: Block of time of the row.
    """

    seen: Past
    typical: Floats
    used: Floats
    need: Floats
    asked: Floats
    block: Floats

    def take(self, rows: NDArray[np.bool_]) -> _InTime:
        """The chosen rows."""
        seen = (self.seen[0][rows], self.seen[1][rows], self.seen[2][rows], self.seen[3][rows])
        rest = (self.typical, self.used, self.need, self.asked, self.block)
        return _InTime(seen, *(part[rows] for part in rest))

    @property
    def few(self) -> NDArray[np.bool_]:
        """Rows that go by what was asked for them."""
        return (self.seen[3] < _LEAST_RUNS) & np.isfinite(self.asked)

    @classmethod
    def of(cls, task: Ints, need: Floats, asked: Floats, block: Ints, tasks: int) -> _InTime | None:
        parts = []
        for b in range(1, _BLOCKS):
            past, now = block < b, np.flatnonzero(block == b)
            if not past.any() or not len(now):
                continue
            seen = [part[task[now]] for part in _seen(task[past], np.log(need[past]), tasks)]
            typical, used = need[past].mean(), _used(task[past], need[past] / asked[past])
            parts.append(
                np.column_stack(
                    [*seen, np.full((len(now), 2), (typical, used)), need[now], asked[now], np.full(len(now), b)]
                )
            )
        rows = np.concatenate(parts) if parts else np.zeros((0, 9))
        rows = rows[(rows[:, 3] > 0) | np.isfinite(rows[:, 7])]
        if len(rows) < _LEAST_ROWS:
            return None
        rows = np.random.default_rng(0).permutation(rows)[:_ROWS_MOST].T
        return cls((rows[0], rows[1], rows[2], rows[3]), *rows[4:])


def _choose(rows: _InTime, target: float) -> tuple[Rule, float]:
    """The cheapest rule that kept failures low among rows that go by their own task's runs."""
    own = ~rows.few
    if own.sum() < _LEAST_ROWS:
        return _DEFAULT, float("nan")
    need = rows.need[own]
    seen = (rows.seen[0][own], rows.seen[1][own], rows.seen[2][own], rows.seen[3][own])
    best: tuple[bool, float, Rule, float] | None = None
    for rule in _RULES:
        bound = _bound(seen, rows.typical[own], rule)
        failed = bound < need
        held = float(np.where(failed, bound + _RETRY * need, bound).sum())
        share = float(failed.mean())
        safe = (failed.sum() + 1.0) / len(need) <= target * _SAFETY
        candidate = (not safe, held if safe else share, rule, share)
        if best is None or candidate[:2] < best[:2]:
            best = candidate
    assert best is not None
    return best[2], best[3]


def _choose_reach(rows: _InTime, target: float) -> float:
    """How far above what known tasks used of their requests new ones may go: as little as kept failures low."""
    few = rows.few
    if len(rows.need) < _LEAST_ROWS or few.sum() < _LEAST_FEW:
        return _REACH
    for reach in _REACHES:
        failed = np.minimum(reach * rows.used[few], 1.0) * rows.asked[few] < np.minimum(rows.need, rows.asked)[few]
        if (failed.sum() + 1.0) / len(rows.need) <= target * _SAFETY:
            return reach
    return _REACHES[-1]


def _beaten(rows: _InTime, target: float) -> tuple[bool, bool]:
    """Tell whether ours beats the plain rule on later blocks: for tasks with runs of their own, for those with few.

    Beaten is the plain rule where ours wastes less and fails no more often than it, or than half the target. The rule
    and the reach of a block are chosen on the blocks before it, since one chosen on a block looks better there than it
    will be on the next.
    """
    gain, failed, count = np.zeros(2), np.zeros((2, 2)), np.zeros(2)
    for b in np.unique(rows.block)[1:].tolist():
        past, now = rows.take(rows.block < b), rows.take(rows.block == b)
        requests = (
            _own(now, _choose(past, target)[0], _choose_reach(past, target)),
            _plain(now.seen[0], now.seen[3], now.asked),
        )
        need = np.minimum(now.need, now.asked)  # what outgrew even its request says nothing about a rule below it
        for part, some in enumerate((~now.few, now.few)):
            if some.any():
                wasted = [over_allocation(request[some], now.asked[some], need[some]) for request in requests]
                gain[part] += wasted[1][0] - wasted[0][0]
                failed[part] += [share * some.sum() for _, share in wasted]
                count[part] += some.sum()
    allowed = np.maximum(failed[:, 1], target * _SAFETY * count)
    won = (gain > 0.0) & (failed[:, 0] <= allowed)
    return bool(won[0]), bool(won[1])


def _own(rows: _InTime, rule: Rule, reach: float) -> Floats:
    """Requests of rows by a rule, as `NeedModel.request` makes them, without kin."""
    seen = (*rows.seen[:3], np.maximum(rows.seen[3], 1.0))  # a task that never ran has no bound of its own
    bound = np.where(rows.seen[3] > 0, _bound(seen, rows.typical, rule), 0.0)
    asked = np.where(np.isfinite(rows.asked), rows.asked, np.inf)
    few = np.fmax(bound, np.minimum(reach * rows.used, 1.0) * asked)
    return np.minimum(np.where(rows.few, few, bound), asked)


def _plain(log_largest: Floats, runs: Floats, asked: Floats) -> Floats:
    """1.5 × the largest need of tasks that ran five times, as asked before; never more than asked."""
    bound = np.where(runs >= _PLAIN_RUNS, _PLAIN_TIMES * np.exp(log_largest), np.inf)
    return np.where(np.isfinite(asked), np.fmin(bound, asked), bound)


def _used(task: Ints, used: Floats) -> float:
    """The largest share of its request that any task has used; 1 where too few tasks tell."""
    known = np.isfinite(used)
    return float(used[known].max()) if len(np.unique(task[known])) >= _LEAST_TASKS else 1.0


def _seen(task: Ints, log_need: Floats, tasks: int) -> Past:
    """Of each task; spreads of few runs lean on a usual one."""
    runs = np.bincount(task, minlength=tasks).astype(np.float64)
    order = np.lexsort((log_need, task))
    end = np.cumsum(runs).astype(np.int64)
    ranked = np.append(log_need[order], -np.inf)
    place = end - 1 - np.floor(runs * (1.0 - _HIGH)).astype(np.int64)
    largest, high = (np.where(runs > 0, ranked[np.maximum(at, 0)], -np.inf) for at in (end - 1, place))
    mean = np.bincount(task, weights=log_need, minlength=tasks) / np.maximum(runs, 1.0)
    squares = np.bincount(task, weights=(log_need - mean[task]) ** 2, minlength=tasks)
    spread = np.sqrt((squares + _PRIOR_RUNS * _PRIOR_SPREAD**2) / (runs + _PRIOR_RUNS))
    return largest, high, np.asarray(spread), runs


def over_allocation(allocated: Floats, asked: Floats, peak: Floats) -> tuple[float, float]:
    """(bytes held and not used, share of failures). A failed try wastes what it held and is repeated as asked."""
    failed = allocated < peak
    waste = np.where(failed, allocated + np.maximum(asked - peak, 0.0), allocated - peak)
    return float(waste.sum()), float(failed.mean())

"""Energy of function calls: duration and watts from what is known when a call starts.

Members are ways to read the finished calls of the same function on the same machine (`calls_seen`): the one that
*started* last, the last finished, medians and means of a few, calls under a like load. Their weights come from the
training calls; boosted trees correct the blend for load and for readings that are out of line, by as large a share as
helps on calls left out. Before any call has finished, a function's calls on other machines stand in. Energy is duration
times watts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from research.calls_seen import HISTORY, LOAD, MEMBERS, Calls, Seen, observe, waves
from wattflow.predict import conformal, trees
from wattflow.predict.evaluate import group_folds
from wattflow.predict.observations import Floats, Ints, Texts

__all__ = ["MEMBERS", "SETTINGS", "CallModel", "Calls", "Seen", "fit", "observe", "waves"]
_LEAST_WEIGHED, _TIME_BLOCKS = 30, 3
_SURE, _SEEDS = 2.0, 3
_CLASSES, _BUSY, _SCATTERED = 5, 10, 0.3
_SHARES = (0.25, 0.5, 0.75, 1.0)
# Few rounds and leaves: training sets are small.
SETTINGS = (trees.BoostSetting(leaves=7, rounds=40), trees.BoostSetting(leaves=7, rounds=80))
"""Trees that may correct the blend; none at all is always among the choices."""


def wild_cost(residual: Floats) -> float:
    """Score residuals where factors of ten are common: an error counts at most 1, and the median twice."""
    error = conformal.errors(residual, 1.0)
    return float(2.0 * np.median(error) + error.mean())


@dataclass(frozen=True, slots=True)
class CallModel:
    """Duration and watts of calls, with intervals of their product. Function medians stand in before any finished.

    Attributes:
        median_log: Of each function, [function, seconds or watts].
        weights: Of `MEMBERS`.
        trees: Correct the log of energy; already shrunk to the share that helped.
        history: Whether predictions use finished calls.
    """

    functions: tuple[str, ...]
    median_log: Floats
    weights: Floats
    trees: trees.Trees
    calibration: conformal.Calibration
    history: bool

    def parts(self, calls: Calls, seen: Seen) -> tuple[Floats, Floats]:
        """Return (log seconds, log watts) of each call before trees correct their sum."""
        place = {name: i for i, name in enumerate(self.functions)}
        overall = np.median(self.median_log, axis=0)
        median = np.array([self.median_log[place[f]] if f in place else overall for f in calls.function.tolist()])
        if self.history:  # of a function never seen, the machine's own reading tells more than other functions' median
            new = np.array([f not in place for f in calls.function.tolist()]) & np.isfinite(seen.machine_log_w)
            median[new, 1] = seen.machine_log_w[new]
        known = _known(seen, self.history) == 1
        read = [
            # NaN times a weight of 0 would be NaN; what is unknown takes the median anyway.
            np.where(known, np.nan_to_num(log) @ self.weights, median[:, c])
            for c, log in enumerate((seen.log_s, seen.log_w))
        ]
        return read[0], read[1]

    def predict(self, calls: Calls, seen: Seen, level: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Return (joules, low, high) of each call."""
        log_j = self._log_energy(calls, seen)
        low, high = self.calibration.interval(log_j, _class(seen, self.history), level)
        return np.exp(log_j), np.exp(low), np.exp(high)

    def _log_energy(self, calls: Calls, seen: Seen) -> Floats:
        seconds, watts = self.parts(calls, seen)
        return np.asarray(seconds + watts + self.trees.predict(_features(seen, self.history)))


def fit(
    calls: Calls,
    seen: Seen,
    group: Texts,
    history: bool = True,
    settings: tuple[trees.BoostSetting, ...] = SETTINGS,
) -> CallModel:
    """Fit on finished calls; inner folds keep ``group`` together. ``history`` lets predictions use finished calls."""
    energy = np.log(calls.energy_j)
    known = _known(seen, history)
    weights = np.zeros(len(MEMBERS))
    # Until enough calls are known, the one that started last answers (`calls_seen`).
    weights[0] = 1.0
    if known.sum() >= _LEAST_WEIGHED:
        missed = energy[:, None] - seen.log_s - seen.log_w
        block = np.unique(group, return_inverse=True)[1]
        weights = conformal.choose(missed[known == 1], block[known == 1], wild_cost, sure=_SURE)
    functions, medians = _medians(calls)
    draft = CallModel(functions, medians, weights, trees.none(), conformal.unknown(_CLASSES), history)
    # Ranks of starts, cut into equal parts: blocks of time.
    time = (np.argsort(np.argsort(calls.start_s, kind="stable")) * _TIME_BLOCKS // len(calls)).astype(np.str_)
    # Both ways of leaving out, since a group may tell of the next moment, and a moment of the next
    # group.
    folds = [list(group_folds(name, _TIME_BLOCKS)) for name in (group, time)]
    missed = np.array([_left_out(draft, calls, seen, part) for part in folds])
    chosen, residual = _corrected(draft, calls, seen, folds, missed, settings)
    # Ten groups at most: `calibrate` leaves out one at a time.
    number = np.concatenate([np.unique(name, return_inverse=True)[1] % 10 for name in (group, time)])
    calibration = conformal.calibrate(residual.ravel(), np.tile(_class(seen, history), 2), number, _CLASSES)
    return replace(draft, trees=chosen, calibration=calibration)


def _medians(calls: Calls) -> tuple[tuple[str, ...], Floats]:
    """Return functions and the median logs of their seconds and watts, whose product is the median energy."""
    functions = tuple(np.unique(calls.function).tolist())
    logs = np.column_stack([np.log(calls.duration_s), np.log(calls.energy_j)])
    medians = np.array([np.median(logs[calls.function == f], axis=0) for f in functions])
    # Medians of seconds and of energy, so that their product is the median energy; the median of watts
    # would not be.
    medians[:, 1] -= medians[:, 0]
    return functions, medians


Folds = list[tuple[Ints, Ints]]


def _left_out(draft: CallModel, calls: Calls, seen: Seen, folds: Folds) -> Floats:
    """Return what the blend misses, the medians that stand in made without the fold."""
    missed = np.full(len(calls), np.nan)
    for train, test in folds:
        functions, medians = _medians(calls.take(train))
        part = replace(draft, functions=functions, median_log=medians)
        seconds, watts = part.parts(calls.take(test), seen.take(test))
        missed[test] = np.log(calls.energy_j[test]) - seconds - watts
    return missed


def _corrected(
    draft: CallModel,
    calls: Calls,
    seen: Seen,
    folds: list[Folds],
    missed: Floats,
    settings: tuple[trees.BoostSetting, ...],
) -> tuple[trees.Trees, Floats]:
    """Train trees, shrunk, of least error on groups and on blocks of time left out, taken together, or none.

    Returns them with the residuals left out, [way of leaving out, call].
    """
    rows = _features(seen, draft.history)
    # None at all is the first candidate: trees must beat it.
    best, chosen, residual = _both(missed), None, missed
    for setting in settings:
        moved = np.zeros_like(missed)
        for way, part in enumerate(folds):
            for train, test in part:
                moved[way, test] = _trees(rows[train], missed[way, train], setting).predict(rows[test])
        for share in _SHARES:
            if (cost := _both(missed - share * moved)) < best:
                best, chosen, residual = cost, (setting, share), missed - share * moved
    if chosen is None:
        return trees.none(), residual
    seconds, watts = draft.parts(calls, seen)
    # The whole training set, once the setting is chosen.
    found = _trees(rows, np.log(calls.energy_j) - seconds - watts, chosen[0])
    return shrunk(found, chosen[1]), residual


def _trees(rows: Floats, missed: Floats, setting: trees.BoostSetting) -> trees.Trees:
    """Average a few ensembles, each on another sample: readings scatter by factors, and one tree's luck with it."""
    return mean([trees.boost(rows, missed, setting, seed) for seed in range(_SEEDS)])


def _both(residual: Floats) -> float:
    return wild_cost(residual[0]) + wild_cost(residual[1])


def _known(seen: Seen, history: bool) -> Ints:
    return (np.isfinite(seen.log_s[:, 0]) & history).astype(np.int64)


def _class(seen: Seen, history: bool) -> Ints:
    """Class calls by what the error depends on: nothing finished; else how many run and how readings scatter."""
    busy = seen.table[:, LOAD.index("running")] >= _BUSY
    scattered = np.nan_to_num(seen.table[:, len(LOAD) + HISTORY.index("scatter")]) >= _SCATTERED
    return np.where(_known(seen, history) == 1, 1 + 2 * busy + scattered, 0)


def _features(seen: Seen, history: bool) -> Floats:
    """Return the trees' columns: no levels of seconds or watts, which would not carry over to other machines."""
    table = seen.table.copy()
    if not history:
        table[:, len(LOAD) :] = np.nan
    return table


def mean(ensembles: Sequence[trees.Trees]) -> trees.Trees:
    """Average several ensembles into one."""
    count, shift = len(ensembles), np.cumsum([0] + [len(e.value) for e in ensembles])

    def joined(name: str, moved: bool) -> Ints:
        # Children are numbered from each ensemble's own 0; leaves' -1 is never followed.
        return np.concatenate([getattr(e, name) + (s if moved else 0) for e, s in zip(ensembles, shift, strict=False)])

    return trees.Trees(
        joined("root", True),
        joined("feature", False),
        np.concatenate([e.threshold for e in ensembles]),
        joined("left", True),
        joined("right", True),
        joined("missing", False),
        np.concatenate([e.value for e in ensembles]) / count,
        sum(e.base for e in ensembles) / count,
    )


def shrunk(ensemble: trees.Trees, share: float) -> trees.Trees:
    """Shrink the trees: they count by a share of what they say."""
    return replace(ensemble, value=ensemble.value * share, base=ensemble.base * share)

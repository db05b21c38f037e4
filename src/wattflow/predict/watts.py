"""Watts of a node from its usage counters: lines and boosted trees, weighed together.

The weights come from predicting each later block of time from the blocks before it, once for rows like those seen and
once for rows unlike them: trees do well among what they saw and cannot go beyond it, lines go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Scope
from wattflow.predict import conformal, trees
from wattflow.predict.observations import Floats, Ints

COUNTERS = ("bpf_cpu_time_us", "cache_miss", "cpu_cycles", "cpu_instructions")
_LINES = {
    "line": (0, 1, 2, 3),
    "line in cycles": (2,),
    "line in time and cycles": (0, 2),
    "line in instructions": (2, 3),
}
_BOOSTED = {
    "boosting": trees.BoostSetting(loss="l2", rounds=150),
    "flat boosting": trees.BoostSetting(leaves=6, rounds=120),
}
_CORRECTION = trees.BoostSetting(loss="l2", leaves=8, rounds=60)
_CORRECTED = {
    "line and boosting": ("line", _CORRECTION),
    "line in cycles and boosting": ("line in cycles", _CORRECTION),
}
KINDS = (*_LINES, *_BOOSTED, *_CORRECTED)
# Blocks of time; the first two only train, and the third is not calibrated on, since little is known then.
_BLOCKS, _FIRST, _SETTLED, _LEVELS = 8, 2, 3, 6
_REFERENCES, _NEIGHBOUR = 400, 5
_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25)
_UNIT, _REACH = 1e9, 1.5
_LEAST_ROWS, _LEAST_WEIGHED = 24, 25
NEAR, FAR = 0, 1


@dataclass(frozen=True, slots=True)
class Line:
    """Watts linear in the counters; a counter counts at most half as much again as was ever seen of it."""

    weight: Floats
    most: Floats

    def predict(self, rows: Floats) -> Floats:
        # Features hold log(1 + counter); the 1 does not matter for counters of millions.
        raw = np.minimum(np.exp(rows[:, : len(self.most)]) / _UNIT, self.most)
        return np.asarray(np.log(np.maximum(raw @ self.weight[1:] + self.weight[0], 1e-3)))


@dataclass(frozen=True, slots=True)
class Corrected:
    """A line, and trees for what it misses: between the rows seen the trees help, beyond them the line goes on."""

    line: Line
    trees: trees.Trees

    def predict(self, rows: Floats) -> Floats:
        return np.asarray(self.line.predict(rows) + self.trees.predict(rows))


Learner = Line | Corrected | trees.Trees


@dataclass(frozen=True, slots=True)
class Familiar:
    """Tells rows like those of the training from others: distance to the fifth nearest of a sample of them."""

    centre: Floats
    width: Floats
    reference: Floats
    usual: float
    share: float = 1.0
    """Of the usual distance: within it a row is not novel. Files written before there was a share have none."""

    @classmethod
    def of(cls, rows: Floats, share: float = 1.0) -> Familiar:
        """Take the distance that all but a twentieth of the rows keep to each other as the usual one."""
        centre, width = np.median(rows, axis=0), np.maximum(rows.std(axis=0), 1e-6)
        # Spaced over time, so that every phase of the training is among the references.
        spaced = np.unique(np.linspace(0, len(rows) - 1, min(_REFERENCES, len(rows))).astype(np.int64))
        draft = cls(centre, width, (rows[spaced] - centre) / width, 1.0)
        # One further neighbour: each row finds itself among the references.
        kept = float(np.quantile(draft._distance(rows, _NEIGHBOUR + 1), 0.95))
        return cls(centre, width, draft.reference, kept, share)

    def _distance(self, rows: Floats, neighbour: int) -> Floats:
        scaled = (rows - self.centre) / self.width
        squares = ((scaled[:, None, :] - self.reference[None]) ** 2).sum(axis=2)
        place = min(neighbour, len(self.reference)) - 1
        return np.asarray(np.sqrt(np.partition(squares, place, axis=1)[:, place]))

    def regime(self, rows: Floats) -> Ints:
        """Return `NEAR` or `FAR` of each row."""
        return (self.excess(rows) > 0).astype(np.int64)

    def novel(self, rows: Floats) -> Ints:
        """Tell rows whose interval is that of loads never seen: fewer are near enough for it than for the weights."""
        return (self._distance(rows, _NEIGHBOUR) > self.share * self.usual).astype(np.int64)

    def excess(self, rows: Floats) -> Floats:
        """Return how far beyond the usual distance each row lies, in units of it; 0 where it is usual."""
        return np.maximum(self._distance(rows, _NEIGHBOUR) / max(self.usual, 1e-9) - 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class WattsModel:
    """log watts from the logs of counters and their ratios.

    Attributes:
        learners: Members by name; ``weights`` [near or far, member].
        costs: Mean relative error of each member, and of the ``blend``, on later blocks of time.
        drift: Error added per unit of distance beyond ``reached``, what far rows had while the model was calibrated.
    """

    learners: Mapping[str, Learner]
    weights: Floats
    familiar: Familiar
    scope: Scope
    least_w: float
    most_w: float
    calibration: conformal.Calibration
    costs: Mapping[str, float]
    drift: float
    reached: float

    def predict(self, counters: Mapping[str, Floats], level: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Predict (watts, low, high) of each row; never beyond half as much again as the watts seen in training."""
        rows = features(counters)
        regime, excess = self.familiar.regime(rows), self.familiar.excess(rows)
        log_w = (_held(self.learners, rows, (self.least_w, self.most_w)) * self.weights[regime]).sum(axis=1)
        extra = self.drift * np.clip(excess - self.reached, 0.0, 3.0)
        low, high = self.calibration.interval(log_w, self.familiar.novel(rows), level, extra)
        return np.exp(log_w), np.exp(low), np.exp(high)

    @property
    def kind(self) -> str:
        """Return the member of most weight on rows like those seen."""
        return list(self.learners)[int(np.argmax(self.weights[NEAR]))]


def _held(learners: Mapping[str, Learner], rows: Floats, seen: tuple[float, float]) -> Floats:
    """Predict log watts, [row, member], each held within what is possible."""
    found = np.column_stack([learner.predict(rows) for learner in learners.values()])
    # Below the least seen by a tenth at most: idle watts do not fall much further.
    return np.clip(found, np.log(seen[0] * 0.9), np.log(seen[1] * _REACH))


def features(counters: Mapping[str, Floats]) -> Floats:
    """Compute logs of the counters, cycles per busy second, instructions per cycle, misses per instruction."""
    missing = [name for name in COUNTERS if name not in counters]
    if missing:
        raise InvalidInput("counters", f"{', '.join(missing)} missing; needed: {', '.join(COUNTERS)}")
    raw = np.column_stack([np.asarray(counters[name], np.float64) for name in COUNTERS])
    logs = np.log(np.maximum(raw, 0.0) + 1.0)
    return np.column_stack([logs, logs[:, 2] - logs[:, 0], logs[:, 3] - logs[:, 2], logs[:, 1] - logs[:, 3]])


def fit(counters: Mapping[str, Floats], watts: Floats, scope: Scope, kinds: Sequence[str] = KINDS) -> WattsModel:
    """Fit members on rows in time order, weigh them by later blocks predicted from earlier ones, calibrate."""
    rows, target = features(counters), np.log(watts)
    if len(rows) < _LEAST_ROWS:
        raise InvalidInput("training rows", f"{len(rows)} with watts; at least {_LEAST_ROWS} are needed")
    folds = _folds(rows)
    share = _usual_share(rows, folds)
    parts = [_left_out((rows, target), kinds, fold, number, share) for number, fold in enumerate(folds)]
    found = _Missed.pooled(parts)
    later = found.block < _BLOCKS - _FIRST
    weights = _weigh(found.take(later), kinds)
    blended = (found.residual * weights[found.regime]).sum(axis=1)
    settled = found.block >= _SETTLED - _FIRST  # with little past the errors are larger than they will be
    calibration = conformal.calibrate(blended[settled], found.novel[settled], found.block[settled], 2)
    costs = {kind: _cost(found.residual[later, i]) for i, kind in enumerate(kinds)} | {"blend": _cost(blended[later])}
    return WattsModel(
        {kind: train(kind, rows, target) for kind in kinds}, weights, Familiar.of(rows, share), scope,
        float(watts.min()), float(watts.max()), calibration, costs, *_drift(blended[later], found.excess[later]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Missed:
    """Log residuals [row, member] of rows left out, how unlike the rows learned from each was, and its fold."""

    residual: Floats
    regime: Ints
    novel: Ints
    excess: Floats
    block: Ints

    @classmethod
    def pooled(cls, parts: Sequence[_Missed]) -> _Missed:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def take(self, chosen: NDArray[np.bool_]) -> _Missed:
        """Return the chosen rows."""
        return _Missed(*(getattr(self, name)[chosen] for name in self.__slots__))


Fold = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""Rows learned from, rows left out."""


def _folds(rows: Floats) -> list[Fold]:
    """(learned from, left out): each later block of time with those before it, then each level of load with all others.

    Blocks of time come back to loads seen before; only a level left out tells how far off a load never seen will be.
    """
    block = np.arange(len(rows)) * _BLOCKS // len(rows)
    busy = np.argsort(np.argsort(rows[:, 0], kind="stable")) * _LEVELS // len(rows)
    in_time = [(block < b, block == b) for b in range(_FIRST, _BLOCKS)]
    return in_time + [(busy != level, busy == level) for level in range(_LEVELS)]


def _usual_share(rows: Floats, folds: Sequence[Fold]) -> float:
    """Choose how near is near: so that later times mostly are, and levels of load left out mostly are not."""

    def told_apart(share: float) -> float:
        far = [float(Familiar.of(rows[past], share).novel(rows[out]).mean()) for past, out in folds]
        in_time, levels = far[: _BLOCKS - _FIRST], far[_BLOCKS - _FIRST :]
        return float(np.mean(levels) - np.mean(in_time))

    return max(_SHARES, key=told_apart)


def _left_out(data: tuple[Floats, Floats], kinds: Sequence[str], fold: Fold, number: int, share: float) -> _Missed:
    """Return what each member misses on rows left out.

    Of a level of load left out only novel rows count, and for intervals alone: else the future would teach the past.
    """
    (rows, target), (past, out) = data, fold
    learners = {kind: train(kind, rows[past], target[past]) for kind in kinds}
    seen = np.exp(target[past])
    residual = target[out, None] - _held(learners, rows[out], (float(seen.min()), float(seen.max())))
    familiar = Familiar.of(rows[past], share)
    about = (familiar.regime(rows[out]), familiar.novel(rows[out]), familiar.excess(rows[out]))
    missed = _Missed(residual, *about, np.full(int(out.sum()), number))
    return missed if number < _BLOCKS - _FIRST else missed.take(missed.novel == FAR)


def _cost(residual: Floats) -> float:
    return float(np.mean(np.abs(np.expm1(-np.clip(residual, -2.0, 2.0)))))


def _weigh(found: _Missed, kinds: Sequence[str]) -> Floats:
    """Weights [near or far, member]; on far rows only members that go on beyond the data have any."""
    weights = np.tile(conformal.choose(found.residual, found.block, _cost), (2, 1))
    near = found.take(found.regime == NEAR)
    if len(near.block) >= _LEAST_WEIGHED:
        weights[NEAR] = conformal.choose(near.residual, near.block, _cost)
    going_on = [i for i, kind in enumerate(kinds) if kind in _LINES or kind in _CORRECTED]
    far = found.take(found.regime == FAR)
    if len(far.block) < _LEAST_WEIGHED:
        far = found
    if going_on:
        weights[FAR] = 0.0
        weights[FAR, going_on] = conformal.choose(far.residual[:, going_on], far.block, _cost)
    return weights


def _drift(residual: Floats, excess: Floats) -> tuple[float, float]:
    """Return (typical error per unit of distance beyond the usual, the distance that most far rows kept within)."""
    far = excess > 0.0
    if far.sum() < 10:
        return 0.1, 0.0
    # Excess near 0 would make slopes of noise.
    slope = np.minimum(np.abs(residual[far]) / np.maximum(excess[far], 0.5), 0.5)
    return float(np.sqrt(np.mean(slope**2))), float(np.quantile(excess[far], 0.75))


def train(kind: str, rows: Floats, target: Floats) -> Learner:
    """Train one kind of learner on all rows."""
    if kind in _LINES:
        return _line(rows, target, _LINES[kind])
    if kind in _BOOSTED:
        return trees.boost(rows, target, _BOOSTED[kind])
    if kind in _CORRECTED:
        name, setting = _CORRECTED[kind]
        line = _line(rows, target, _LINES[name])
        return Corrected(line, trees.boost(rows, target - line.predict(rows), setting))
    raise ValueError(f"no learner named {kind!r}; known: {', '.join(KINDS)}")


def _line(rows: Floats, target: Floats, columns: Sequence[int]) -> Line:
    raw = np.exp(rows[:, : len(COUNTERS)]) / _UNIT
    design = np.column_stack([np.ones(len(raw)), raw[:, columns]])
    # Columns of very different size: scaled for the solver, and back.
    scale = np.maximum(np.abs(design).max(axis=0), 1e-12)
    # In watts, not in logs: a line in logs is no line.
    found = np.linalg.lstsq(design / scale, np.exp(target), rcond=None)[0] / scale
    weight = np.zeros(len(COUNTERS) + 1)
    weight[[0, *(c + 1 for c in columns)]] = found
    return Line(weight, raw.max(axis=0) * _REACH)

"""Watts of a node from its usage counters: a line, boosted trees or a small neural network, whichever wins inside.

A watts model can stand in for P(k): `power_profile` reads it at k busy threads and gives a `PowerProfile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wattflow.model.profile import PowerProfile, Provenance, Scope
from wattflow.predict import boosting, conformal, network, trees
from wattflow.predict.observations import Floats, Ints

COUNTERS = ("bpf_cpu_time_us", "cache_miss", "cpu_cycles", "cpu_instructions")
_SETTINGS = (boosting.Setting(), boosting.Setting(loss="l2"), boosting.Setting(trainer="sklearn"))
_BLOCKS = 6


@dataclass(frozen=True, slots=True)
class Line:
    """Watts linear in the counters, fitted to relative error."""

    weight: Floats

    def predict(self, rows: Floats) -> Floats:
        return np.asarray(np.log(np.maximum(np.exp(rows[:, : len(self.weight) - 1]) @ self.weight[1:] / 1e9
                                            + self.weight[0], 1e-3)))  # fmt: skip


Learner = Line | trees.Trees | network.Network


@dataclass(frozen=True, slots=True)
class WattsModel:
    """log watts from the logs of counters and their ratios; ``kind`` names the learner that won."""

    kind: str
    learner: Learner
    scope: Scope
    least_w: float
    most_w: float
    calibration: conformal.Calibration
    costs: Mapping[str, float]

    def predict(self, counters: Mapping[str, Floats], level: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """(watts, low, high) of each row; never beyond 10 % outside the watts seen in training."""
        rows = features(counters)
        log_w = np.clip(self.learner.predict(rows), np.log(self.least_w * 0.9), np.log(self.most_w * 1.1))
        group = _band(log_w, self.least_w, self.most_w)
        low, high = self.calibration.interval(log_w, group, level)
        return np.exp(log_w), np.exp(low), np.exp(high)


def features(counters: Mapping[str, Floats]) -> Floats:
    """Logs of the counters, cycles per busy second, instructions per cycle, misses per instruction."""
    raw = np.column_stack([np.asarray(counters[name], np.float64) for name in COUNTERS])
    logs = np.log(np.maximum(raw, 0.0) + 1.0)
    return np.column_stack([logs, logs[:, 2] - logs[:, 0], logs[:, 3] - logs[:, 2], logs[:, 1] - logs[:, 3]])


def fit(counters: Mapping[str, Floats], watts: Floats, scope: Scope, kinds: tuple[str, ...] = ()) -> WattsModel:
    """Fit every kind of learner on blocks of time, keep the one with the least left-out error, calibrate it."""
    rows, target = features(counters), np.log(watts)
    block = np.array([str(i * _BLOCKS // len(watts)) for i in range(len(watts))])
    best: tuple[float, str, Floats] | None = None
    costs: dict[str, float] = {}
    for kind in kinds or ("line", "network", *(f"boosting {i}" for i in range(len(_SETTINGS)))):
        residual = np.full(len(target), np.nan)
        for b in np.unique(block):
            out = block == b
            residual[out] = target[out] - train(kind, rows[~out], target[~out]).predict(rows[out])
        cost = float(np.mean(np.abs(np.expm1(-np.clip(residual, -1, 1)))))
        costs[kind] = cost
        if best is None or cost < best[0]:
            best = (cost, kind, residual)
    assert best is not None
    least, most = float(watts.min()), float(watts.max())
    group = _band(target - best[2], least, most)
    number = np.unique(block, return_inverse=True)[1]
    calibration = conformal.calibrate(best[2], group, number, _BANDS)
    return WattsModel(best[1], train(best[1], rows, target), scope, least, most, calibration, costs)


def train(kind: str, rows: Floats, target: Floats) -> Learner:
    """Train one kind of learner on all rows."""
    match kind.split():
        case ["line"]:
            raw = np.exp(rows[:, : len(COUNTERS)]) / 1e9
            design = np.column_stack([np.ones(len(raw)), raw]) / np.exp(target)[:, None]
            return Line(np.asarray(np.linalg.lstsq(design, np.ones(len(raw)), rcond=None)[0], np.float64))
        case ["network"]:
            return network.fit_network(rows, target)
        case ["boosting", number]:
            return boosting.fit(rows, target, _SETTINGS[int(number)])
        case _:
            raise ValueError(f"no learner named {kind!r}; known: line, network, boosting N")


_BANDS = 6


def _band(log_w: Floats, least: float, most: float) -> Ints:
    """Bands of predicted watts, so that idle and full load have intervals of their own."""
    share = (log_w - np.log(least)) / max(np.log(most) - np.log(least), 1e-9)
    return np.asarray(np.clip((share * _BANDS).astype(np.int64), 0, _BANDS - 1))


def busy_counters(counters: Mapping[str, Floats], threads: int) -> dict[int, dict[str, float]]:
    """Median counters seen with about k busy threads (CPU milliseconds per second / 1000), for the k that were seen."""
    busy = np.clip(np.rint(np.asarray(counters[COUNTERS[0]]) / 1000.0), 0, threads).astype(np.int64)
    return {
        int(k): {name: float(np.median(np.asarray(counters[name])[busy == k])) for name in COUNTERS}
        for k in np.unique(busy)
        if np.sum(busy == k) >= 5
    }


def power_profile(model: WattsModel, counters_at: Mapping[int, Mapping[str, float]], source: str) -> PowerProfile:
    """P(k) read off the model at the counters seen with k busy threads: what the HPE algorithm then decides with."""
    busy = sorted(counters_at)
    table = {name: np.array([counters_at[k][name] for k in busy]) for name in COUNTERS}
    watts = model.predict(table)[0]
    return PowerProfile(tuple(float(k) for k in busy), tuple(float(w) for w in watts), model.scope,
                        Provenance.MODELLED, source)  # fmt: skip

"""Energy of function calls: duration and watts predicted apart from what is known when a call starts.

Backbone of each: the last finished calls of the same function on the same machine, else the function's calls on
other machines; boosted trees correct it for how busy the endpoint is. Energy is the product.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields

import numpy as np

from wattflow.predict import boosting, conformal
from wattflow.predict.observations import Floats, Ints, Texts

_RECENT = 5
_NAMES = (
    "warm", "running", "just_started", "gap_s", "history", "since_s", "last_w", "recent_w", "last_s", "recent_s",
    "anchor_w", "anchor_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calls:
    """Finished calls in order of start. ``block`` is one endpoint allocation; ``wave`` calls started together."""

    function: Texts
    machine: Texts
    block: Texts
    wave: Texts
    warm: Floats
    start_s: Floats
    duration_s: Floats
    power_w: Floats

    def __len__(self) -> int:
        return len(self.function)

    @property
    def energy_j(self) -> Floats:
        return self.duration_s * self.power_w

    def take(self, rows: Ints) -> Calls:
        """The chosen calls."""
        return Calls(**{part.name: getattr(self, part.name)[rows] for part in fields(self)})


@dataclass(frozen=True, slots=True)
class Seen:
    """What was known at each call's start; history columns are NaN where nothing had finished."""

    table: Floats
    recent_log_s: Floats
    recent_log_w: Floats

    def take(self, rows: Ints) -> Seen:
        """The chosen rows."""
        return Seen(self.table[rows], self.recent_log_s[rows], self.recent_log_w[rows])


def observe(calls: Calls) -> Seen:
    """Only the past of each call: running calls, recent starts, and calls of its function that had finished."""
    count = len(calls)
    table = np.full((count, 10), np.nan)
    end_s = calls.start_s + calls.duration_s
    log_s, log_w = np.log(calls.duration_s), np.log(calls.power_w)
    pair = np.char.add(np.char.add(calls.function, "@"), calls.machine)
    for block in np.unique(calls.block):
        rows = np.flatnonzero(calls.block == block)
        start = calls.start_s[rows]
        for i, now in zip(rows.tolist(), start.tolist(), strict=True):
            before = rows[(start <= now) & (rows != i)]
            running = int(np.sum(end_s[before] > now))
            recent = int(np.sum(calls.start_s[before] > now - 0.1))
            gap = now - calls.start_s[before].max() if len(before) else 100.0
            table[i, :4] = calls.warm[i], running, recent, min(gap, 100.0)
    for name in np.unique(pair):
        rows = np.flatnonzero(pair == name)
        order = rows[np.argsort(end_s[rows], kind="stable")]
        for i in rows.tolist():
            done = order[: int(np.searchsorted(end_s[order], calls.start_s[i], side="right"))]
            table[i, 4] = min(len(done), 50)
            if len(done):
                last, few = done[-1], done[-_RECENT:]
                table[i, 5:] = (min(calls.start_s[i] - end_s[last], 100.0), log_w[last], log_w[few].mean(),
                                log_s[last], log_s[few].mean())  # fmt: skip
    return Seen(table, table[:, 9].copy(), table[:, 7].copy())


@dataclass(frozen=True, slots=True)
class CallModel:
    """Duration and watts of calls, with intervals of their product. Function medians stand in before any finished."""

    functions: tuple[str, ...]
    median_log: Floats
    duration: boosting.Chosen
    power: boosting.Chosen
    calibration: conformal.Calibration
    history: bool
    names: tuple[str, ...] = field(default=_NAMES)

    def predict(self, calls: Calls, seen: Seen, level: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """(joules, low, high) of each call."""
        rows, anchors = _rows(self, calls, seen)
        log_j = anchors.sum(axis=1) + self.duration.model.predict(rows) + self.power.model.predict(rows)
        group = _known(seen, self.history)
        low, high = self.calibration.interval(log_j, group, level)
        return np.exp(log_j), np.exp(low), np.exp(high)


def fit(
    calls: Calls,
    seen: Seen,
    group: Texts,
    history: bool = True,
    settings: tuple[boosting.Setting, ...] = boosting.SETTINGS,
) -> CallModel:
    """Fit on finished calls; inner folds keep ``group`` together. ``history`` lets predictions use finished calls."""
    functions = tuple(np.unique(calls.function).tolist())
    logs = np.column_stack([np.log(calls.duration_s), np.log(calls.power_w)])
    medians = np.array([[float(np.median(logs[calls.function == f, c])) for c in (0, 1)] for f in functions])
    empty = boosting.Chosen.__new__(boosting.Chosen)
    model = CallModel(functions, medians, empty, empty, conformal.calibrate(np.zeros(0), np.zeros(0, np.int64),
                      np.zeros(0, np.int64), 2), history)  # fmt: skip
    rows, anchors = _rows(model, calls, seen)
    parts = [boosting.choose(rows, logs[:, c] - anchors[:, c], group, settings) for c in (0, 1)]
    residual = parts[0].residual + parts[1].residual
    number = np.unique(group, return_inverse=True)[1].astype(np.int64) % 10
    calibration = conformal.calibrate(residual, _known(seen, history), number, 2)
    return CallModel(functions, medians, parts[0], parts[1], calibration, history)


def _known(seen: Seen, history: bool) -> Ints:
    return (np.isfinite(seen.recent_log_s) & history).astype(np.int64)


def _rows(model: CallModel, calls: Calls, seen: Seen) -> tuple[Floats, Floats]:
    place = {name: i for i, name in enumerate(model.functions)}
    overall = model.median_log.mean(axis=0)
    median = np.array([model.median_log[place[f]] if f in place else overall for f in calls.function.tolist()])
    table, recent = seen.table, np.column_stack([seen.recent_log_s, seen.recent_log_w])
    if not model.history:
        table, recent = table.copy(), np.full_like(recent, np.nan)
        table[:, 4:] = np.nan
    anchors = np.where(np.isfinite(recent), recent, median)
    return np.column_stack([table, anchors]), anchors


def waves(block: Texts, start_s: Floats, gap_s: float = 0.3) -> Texts:
    """Name calls of one block that follow each other within ``gap_s``: they share a meter reading."""
    names = np.empty(len(block), dtype="<U32")
    last: dict[str, tuple[float, int]] = {}
    for i in np.argsort(start_s, kind="stable").tolist():
        before, number = last.get(block[i], (-np.inf, -1))
        number += start_s[i] - before > gap_s
        last[block[i]] = (float(start_s[i]), number)
        names[i] = f"{_short(block[i])}:{number}"
    return names


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]

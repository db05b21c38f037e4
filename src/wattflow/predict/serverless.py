"""Energy of function calls: duration and watts from what is known when a call starts.

Members are ways to read the finished calls of the same function on the same machine: the one that *started* last (its
meter reading is the freshest; the one that *finished* last may have begun long before), the last finished, medians and
means of a few, calls under a like load. Their weights come from the training calls; boosted trees correct the blend for
how busy the endpoint is only where they win on calls left out. Before any call has finished, a function's calls on
other machines stand in. Energy is duration times watts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace

import numpy as np

from wattflow.predict import blend, boosting, conformal, trees
from wattflow.predict.observations import Floats, Ints, Texts

_RECENT, _FEW, _LOOK = 5, 3, 12
_LOAD_WIDTH, _LEAST_WEIGHED, _TIME_BLOCKS = 0.5, 30, 3
MEMBERS = ("started last", "finished last", "median of three", "mean of five", "steady duration", "like load")
SETTINGS = (boosting.Setting(rounds=0), boosting.Setting(leaves=7, rounds=40), boosting.Setting(loss="l2", rounds=80))


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
    """What was known at each call's start.

    Attributes:
        table: Warm, running, just started, seconds since the last start, finished calls of the function here, seconds
            since the last of them.
        log_s, log_w: Natural logs of seconds and watts by member, [row, member]; NaN where nothing had finished.
    """

    table: Floats
    log_s: Floats
    log_w: Floats

    def take(self, rows: Ints) -> Seen:
        """The chosen rows."""
        return Seen(self.table[rows], self.log_s[rows], self.log_w[rows])


def observe(calls: Calls) -> Seen:
    """Only the past of each call: running calls, recent starts, and calls of its function that had finished."""
    table = np.full((len(calls), 6), np.nan)
    end_s = np.where(np.isfinite(calls.duration_s), calls.start_s + calls.duration_s, np.inf)  # unknown: not finished
    for block in np.unique(calls.block):
        rows = np.flatnonzero(calls.block == block)
        start = calls.start_s[rows]
        for i, now in zip(rows.tolist(), start.tolist(), strict=True):
            before = rows[(start <= now) & (rows != i)]
            running = int(np.sum(end_s[before] > now))
            recent = int(np.sum(calls.start_s[before] > now - 0.1))
            gap = now - calls.start_s[before].max() if len(before) else 100.0
            table[i, :4] = calls.warm[i], running, recent, min(gap, 100.0)
    logs = (np.log(calls.duration_s), np.log(calls.power_w))
    found = np.full((2, len(calls), len(MEMBERS)), np.nan)
    load = np.log1p(table[:, 1])
    pair = np.char.add(np.char.add(calls.function, "@"), calls.machine)
    for name in np.unique(pair):
        rows = np.flatnonzero(pair == name)
        order = rows[np.argsort(end_s[rows], kind="stable")]
        for i in rows.tolist():
            done = order[: int(np.searchsorted(end_s[order], calls.start_s[i], side="right"))]
            table[i, 4] = min(len(done), 50)
            if len(done):
                table[i, 5] = min(calls.start_s[i] - end_s[done[-1]], 100.0)
                found[:, i] = _read(calls.start_s, logs, load, (i, done))
    return Seen(table, found[0], found[1])


def _read(start_s: Floats, logs: tuple[Floats, Floats], load: Floats, about: tuple[int, Ints]) -> Floats:
    """[seconds or watts, member] of a call from the finished ones, given in the order they finished."""
    call, done = about
    begun = done[-4 * _LOOK :]
    begun = begun[np.argsort(start_s[begun], kind="stable")]
    latest, few, look = begun[-1], begun[-_FEW:], begun[-_LOOK:]
    age = np.arange(len(look))[::-1]
    near = np.exp(-age - np.abs(load[look] - load[call]) / _LOAD_WIDTH)
    found = [
        (log[latest], log[done[-1]], np.median(log[few]), log[done[-_RECENT:]].mean(), log[latest],
         float(near @ log[look] / near.sum()))
        for log in logs
    ]  # fmt: skip
    table = np.array(found)
    table[0, MEMBERS.index("steady duration")] = np.median(logs[0][few])
    return table


@dataclass(frozen=True, slots=True)
class CallModel:
    """Duration and watts of calls, with intervals of their product. Function medians stand in before any finished.

    Attributes:
        median_log: Of each function, [function, seconds or watts].
        weights: Of `MEMBERS`.
        trees: Correct the log of energy.
        history: Whether predictions use finished calls.
    """

    functions: tuple[str, ...]
    median_log: Floats
    weights: Floats
    trees: boosting.Chosen
    calibration: conformal.Calibration
    history: bool

    def parts(self, calls: Calls, seen: Seen) -> tuple[Floats, Floats]:
        """(log seconds, log watts) of each call before trees correct their sum."""
        place = {name: i for i, name in enumerate(self.functions)}
        overall = np.median(self.median_log, axis=0)
        median = np.array([self.median_log[place[f]] if f in place else overall for f in calls.function.tolist()])
        known = _known(seen, self.history) == 1
        read = [np.where(known, np.nan_to_num(log) @ self.weights, median[:, c])
                for c, log in enumerate((seen.log_s, seen.log_w))]  # fmt: skip
        return read[0], read[1]

    def predict(self, calls: Calls, seen: Seen, level: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """(joules, low, high) of each call."""
        log_j = self._log_energy(calls, seen)
        low, high = self.calibration.interval(log_j, _known(seen, self.history), level)
        return np.exp(log_j), np.exp(low), np.exp(high)

    def _log_energy(self, calls: Calls, seen: Seen) -> Floats:
        seconds, watts = self.parts(calls, seen)
        return np.asarray(seconds + watts + self.trees.model.predict(_features(seen, seconds, watts, self.history)))


def fit(
    calls: Calls,
    seen: Seen,
    group: Texts,
    history: bool = True,
    settings: tuple[boosting.Setting, ...] = SETTINGS,
) -> CallModel:
    """Fit on finished calls; inner folds keep ``group`` together. ``history`` lets predictions use finished calls."""
    functions = tuple(np.unique(calls.function).tolist())
    logs = np.column_stack([np.log(calls.duration_s), np.log(calls.power_w)])
    energy = logs.sum(axis=1)
    medians = np.array(
        [[float(np.median(part[calls.function == f])) for part in (logs[:, 0], energy)] for f in functions]
    )
    medians[:, 1] -= medians[:, 0]  # watts such that the product is the median energy
    known = _known(seen, history)
    weights = np.zeros(len(MEMBERS))
    weights[0] = 1.0
    if known.sum() >= _LEAST_WEIGHED:
        missed = energy[:, None] - seen.log_s - seen.log_w
        block = np.unique(group, return_inverse=True)[1]
        weights = blend.choose(missed[known == 1], block[known == 1], blend.wild_cost)
    none = boosting.Chosen(trees.none(), boosting.Setting(rounds=0), np.zeros(0), {})
    draft = CallModel(functions, medians, weights, none, conformal.unknown(2), history)
    seconds, watts = draft.parts(calls, seen)
    rows = _features(seen, seconds, watts, history)
    chosen = _corrected(rows, energy - seconds - watts, (group, calls.start_s), settings)
    number = np.unique(group, return_inverse=True)[1].astype(np.int64) % 10
    return replace(draft, trees=chosen, calibration=conformal.calibrate(chosen.residual, known, number, 2))


def _corrected(
    rows: Floats, missed: Floats, about: tuple[Texts, Floats], settings: tuple[boosting.Setting, ...]
) -> boosting.Chosen:
    """Trees that win over none both on groups left out and on blocks of time left out; else none."""
    group, start_s = about
    chosen = boosting.choose(rows, missed, group, settings)
    if chosen.setting.rounds:
        block = (np.argsort(np.argsort(start_s, kind="stable")) * _TIME_BLOCKS // len(start_s)).astype(np.str_)
        none = boosting.Setting(rounds=0)
        if boosting.choose(rows, missed, block, (none, chosen.setting)).setting == none:
            return boosting.choose(rows, missed, group, (none,))
    return chosen


def _known(seen: Seen, history: bool) -> Ints:
    return (np.isfinite(seen.log_s[:, 0]) & history).astype(np.int64)


def _features(seen: Seen, log_s: Floats, log_w: Floats, history: bool) -> Floats:
    table = seen.table.copy()
    if not history:
        table[:, 4:] = np.nan
    return np.column_stack([table, log_s, log_w])


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

"""Function calls, and what was known of each at its start: load, and the finished calls of its function there.

The finished call that *started* last is the reference: its meter reading is the freshest. The table then says how the
endpoint was loaded at that call and is now, how far other finished calls lie from it, and how unusual the last calls of
other functions on the machine were: a meter that reads low does so for all of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

import numpy as np

from wattflow.predict.observations import Floats, Ints, Texts

MEMBERS = ("started last", "finished last", "median of three", "mean of five", "steady duration", "like load")
LOAD = ("warm", "running", "just started", "seconds since a start", "same function running")
HISTORY = (
    "finished", "seconds since an end", "running then", "just started then", "seconds since a start then", "load grew",
    "age", "seconds since its end", "three", "nine", "all", "finished last", "scatter",
    "others unusual", "age of others",
)  # fmt: skip
"""Columns of `Seen.table`: of the endpoint, then of finished calls. *Then* is at the reference's start; *three*,
*nine*, *all* and *finished last* are logs of joules above the reference's."""
_RECENT, _FEW, _LOOK, _WINDOW = 5, 3, 12, 48
_LOAD_WIDTH, _LONG_S, _VERY_LONG_S, _MANY = 0.5, 100.0, 1e4, 50


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
        """Return the chosen calls."""
        return Calls(**{part.name: getattr(self, part.name)[rows] for part in fields(self)})


@dataclass(frozen=True, slots=True)
class Seen:
    """Facts known at each call's start.

    Attributes:
        table: Columns `LOAD`, then `HISTORY`; NaN where nothing had finished.
        log_s, log_w: Natural logs of seconds and watts by member, [row, member]; NaN where nothing had finished.
        machine_log_w: Log of the watts of the machine's finished call, of any function, that started last.
    """

    table: Floats
    log_s: Floats
    log_w: Floats
    machine_log_w: Floats

    def take(self, rows: Ints) -> Seen:
        """Return the chosen rows."""
        return Seen(self.table[rows], self.log_s[rows], self.log_w[rows], self.machine_log_w[rows])


def observe(calls: Calls) -> Seen:
    """Look only at the past of each call: running calls, recent starts, and calls that had finished."""
    end_s = np.where(np.isfinite(calls.duration_s), calls.start_s + calls.duration_s, np.inf)  # unknown: not finished
    load = _load(calls, end_s)
    history = np.full((len(calls), len(HISTORY)), np.nan)
    logs = np.array([np.log(calls.duration_s), np.log(calls.power_w)])
    found = np.full((2, len(calls), len(MEMBERS)), np.nan)
    unusual = np.full(len(calls), np.nan)
    pair = np.char.add(np.char.add(calls.function, "@"), calls.machine)
    for name in np.unique(pair):
        rows = np.flatnonzero(pair == name)
        order = rows[np.argsort(end_s[rows], kind="stable")]
        for i in rows.tolist():
            # `right`: a call that ended at the very moment counts as finished.
            done = order[: int(np.searchsorted(end_s[order], calls.start_s[i], side="right"))]
            if len(done):
                past = _Past(i, done, calls.start_s, end_s)
                found[:, i] = _read(logs, np.log1p(load[:, 1]), past)
                history[i, :-2], unusual[i] = _history(logs, load, past)
    history[:, -2:] = _others(calls, end_s, unusual)
    return Seen(np.column_stack([load, history]), found[0], found[1], _machine_readings(calls, end_s, logs[1]))


def _machine_readings(calls: Calls, end_s: Floats, log_w: Floats) -> Floats:
    """Log watts of the finished call that started last on each call's machine; NaN before any has finished."""
    found = np.full(len(calls), np.nan)
    for machine in np.unique(calls.machine):
        rows = np.flatnonzero(calls.machine == machine)
        order = rows[np.argsort(end_s[rows], kind="stable")]
        freshest = order[_last_started(calls.start_s[order])]
        done = np.searchsorted(end_s[order], calls.start_s[rows], side="right")
        found[rows[done > 0]] = log_w[freshest[done[done > 0] - 1]]
    return found


def _last_started(start_s: Floats) -> Ints:
    """Place of the largest start among the first n, for each n."""
    newest = np.maximum.accumulate(start_s)
    return np.maximum.accumulate(np.where(start_s == newest, np.arange(len(start_s)), 0))


def _load(calls: Calls, end_s: Floats) -> Floats:
    """Return [row, `LOAD`] of each call's endpoint allocation."""
    table = np.zeros((len(calls), len(LOAD)))
    for block in np.unique(calls.block):
        rows = np.flatnonzero(calls.block == block)
        start = calls.start_s[rows]
        for i, now in zip(rows.tolist(), start.tolist(), strict=True):
            # Also those that started at the same instant: they share the endpoint.
            before = rows[(start <= now) & (rows != i)]
            running = before[end_s[before] > now]
            # Nobody before: as if long ago.
            gap = now - calls.start_s[before].max() if len(before) else _LONG_S
            # A tenth of a second: calls that started together share one meter reading.
            table[i] = (
                calls.warm[i],
                len(running),
                np.sum(calls.start_s[before] > now - 0.1),
                min(gap, _LONG_S),
                np.sum(calls.function[running] == calls.function[i]),
            )
    return table


class _Past:
    """A call and the finished ones of its function on its machine, by end and by start; the latest few only."""

    def __init__(self, call: int, done: Ints, start_s: Floats, end_s: Floats) -> None:
        self.call, self.count = call, len(done)
        # The latest few: what is old says little, and cost must not grow with the day.
        self.ended = done[-_WINDOW:]
        self.begun = self.ended[np.argsort(start_s[self.ended], kind="stable")]
        self.now = float(start_s[call])
        self.age_s = self.now - float(start_s[self.begun[-1]])
        self.since_s = self.now - float(end_s[self.begun[-1]])
        self.idle_s = self.now - float(end_s[self.ended[-1]])


def _read(logs: Floats, load: Floats, past: _Past) -> Floats:
    """Read [seconds or watts, member] of a call from the finished ones."""
    latest, few, look = past.begun[-1], past.begun[-_FEW:], past.begun[-_LOOK:]
    # Weights fall by e with each call back in time, and with distance in load.
    near = np.exp(-np.arange(len(look))[::-1] - np.abs(load[look] - load[past.call]) / _LOAD_WIDTH)
    table = np.array([
        (log[latest], log[past.ended[-1]], np.median(log[few]), log[past.ended[-_RECENT:]].mean(), log[latest],
         float(near @ log[look] / near.sum()))
        for log in logs
    ])  # fmt: skip
    # Watts of the freshest call, but seconds of the last three: durations are steadier than meter
    # readings.
    table[0, MEMBERS.index("steady duration")] = np.median(logs[0][few])
    return table


def _history(logs: Floats, load: Floats, past: _Past) -> tuple[Floats, float]:
    """Return `HISTORY` without its last two, and how far the call itself lies above the finished ones."""
    energy, begun, latest = logs.sum(axis=0), past.begun, past.begun[-1]
    of = energy[latest]
    typical = float(np.median(energy[begun]))
    row = (
        min(past.count, _MANY), min(past.idle_s, _LONG_S), load[latest, 1], load[latest, 2], load[latest, 3],
        np.log1p(load[past.call, 1]) - np.log1p(load[latest, 1]), min(past.age_s, _VERY_LONG_S),
        min(past.since_s, _VERY_LONG_S), np.median(energy[begun[-_FEW:]]) - of, np.median(energy[begun[-9:]]) - of,
        typical - of, energy[past.ended[-1]] - of, np.std(energy[begun[-6:]]),
    )  # fmt: skip
    # How far the call itself lay off: used for others only once it has finished (`_others`).
    return np.array(row), float(energy[past.call]) - typical


def _others(calls: Calls, end_s: Floats, unusual: Floats) -> Floats:
    """Return [row, (how unusual, seconds ago)] of the last five finished calls of other functions on the machine."""
    found = np.full((len(calls), 2), np.nan)
    for machine in np.unique(calls.machine):
        rows = np.flatnonzero((calls.machine == machine) & np.isfinite(end_s))
        order = rows[np.argsort(end_s[rows], kind="stable")]
        for i in np.flatnonzero(calls.machine == machine).tolist():
            # Four windows: other functions are many, and most of the latest may be this one's.
            done = order[: int(np.searchsorted(end_s[order], calls.start_s[i], side="right"))][-4 * _WINDOW :]
            done = done[calls.function[done] != calls.function[i]]
            if len(done):
                last = done[np.argsort(calls.start_s[done], kind="stable")][-_RECENT:]
                known = unusual[last][np.isfinite(unusual[last])]
                found[i, 0] = np.median(known) if len(known) else np.nan
                found[i, 1] = min(calls.start_s[i] - calls.start_s[last[-1]], _VERY_LONG_S)
    return found


def waves(block: Texts, start_s: Floats, gap_s: float = 0.3) -> Texts:
    """Name calls of one block that follow each other within ``gap_s``: they share a meter reading."""
    names = np.empty(len(block), dtype="<U32")
    last: dict[str, tuple[float, int]] = {}
    for i in np.argsort(start_s, kind="stable").tolist():
        before, number = last.get(block[i], (-np.inf, -1))
        # A gap begins a new wave; equal waves share a reading and must not be cut between folds.
        number += start_s[i] - before > gap_s
        last[block[i]] = (float(start_s[i]), number)
        names[i] = f"{_short(block[i])}:{number}"
    return names


def _short(text: str) -> str:
    # Names of blocks may be long; a fixed width keeps the array small.
    return hashlib.sha256(text.encode()).hexdigest()[:12]

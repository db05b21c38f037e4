"""Plain baselines that every prediction is judged against, on the same split: what an afternoon's script would do.

They are written on their own, with scikit-learn and dictionaries, and share no code with the models they judge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.preprocessing import OneHotEncoder

from research.call_energy import Calls
from wattflow.predict.observations import Benchmarks, Floats, Ints, Observations, Texts

Baseline = Callable[[Observations, Observations], Floats]


def _keys(rows: Observations, names: Sequence[str]) -> list[tuple[str, ...]]:
    return list(zip(*(getattr(rows, name).tolist() for name in names), strict=True))


def by_key(value: Callable[[list[float]], float], *levels: Sequence[str]) -> Baseline:
    """A value of each key's past runtimes; a key that was never seen falls to the next, wider level, then to all."""

    def predict(train: Observations, test: Observations) -> Floats:
        found = np.full(len(test), np.nan)
        for names in levels:
            past: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
            for key, seconds in zip(_keys(train, names), train.runtime_s.tolist(), strict=True):
                past[key].append(seconds)
            for i, key in enumerate(_keys(test, names)):
                if np.isnan(found[i]) and key in past:
                    found[i] = value(past[key])
        return np.where(np.isfinite(found), found, value(train.runtime_s.tolist()))

    return predict


def _median(values: list[float]) -> float:
    return float(np.median(values))


def _last(values: list[float]) -> float:
    return values[-1]


def line(*names: str, size: int = 0) -> Baseline:
    """Least squares of seconds on one size, for each key; a key with one size falls to its task, then to all."""

    def fitted(train: Observations, levels: Sequence[str]) -> dict[tuple[str, ...], tuple[float, float, float]]:
        rows: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for i, key in enumerate(_keys(train, levels)):
            rows[key].append(i)
        found = {}
        for key, some in rows.items():
            x, y = train.sizes[some, size], train.runtime_s[some]
            good = np.isfinite(x)
            if good.sum() > 1 and np.ptp(x[good]) > 0:
                slope, intercept = np.polyfit(x[good] / 1e9, y[good], 1)
                found[key] = (float(intercept), float(slope), float(y.min()))
        return found

    def predict(train: Observations, test: Observations) -> Floats:
        result = by_key(_median, *dict.fromkeys([tuple(names), ("task",)]))(train, test)
        for levels in dict.fromkeys([("task",), tuple(names)]):
            lines = fitted(train, levels)
            for i, key in enumerate(_keys(test, levels)):
                if key in lines and np.isfinite(test.sizes[i, size]):
                    intercept, slope, least = lines[key]
                    result[i] = max(intercept + slope * test.sizes[i, size] / 1e9, 0.5 * least)
        return result

    return predict


def _table(train: Observations, test: Observations) -> tuple[Floats, Floats, list[list[str]], list[list[str]]]:
    logs = [np.log(np.nan_to_num(rows.sizes, nan=0.0) + 1.0) for rows in (train, test)]
    names = ("task", "machine", "data")
    return (*logs, *([list(key) for key in _keys(rows, names)] for rows in (train, test)))  # type: ignore[return-value]


def linear(train: Observations, test: Observations) -> Floats:
    """One linear regression of the log of seconds: logs of sizes, and task, machine and data one-hot."""
    one, other, names, asked = _table(train, test)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(names)
    model = Ridge(1e-3).fit(np.hstack([one, encoder.transform(names)]), np.log(train.runtime_s))
    return np.asarray(np.exp(model.predict(np.hstack([other, encoder.transform(asked)]))))


def boosting(loss: str, categories: bool) -> Baseline:
    """Histogram gradient boosting of the log of seconds: logs of sizes; task, machine and data by number."""

    def predict(train: Observations, test: Observations) -> Floats:
        one, other, names, asked = _table(train, test)
        columns = [sorted({row[c] for row in names}) for c in range(3)]
        numbers = [{name: i for i, name in enumerate(column)} for column in columns]
        code = [
            np.array([[float(numbers[c].get(row[c], np.nan)) for c in range(3)] for row in part])
            for part in (names, asked)
        ]
        kept = [c for c in range(3) if not categories or (c < 2 and len(columns[c]) < 250)]
        named = [one.shape[1] + i for i in range(len(kept))] if categories else None
        model = HistGradientBoostingRegressor(
            loss=loss, max_iter=200, early_stopping=False, random_state=0, categorical_features=named
        )
        model.fit(np.hstack([one, code[0][:, kept]]), np.log(train.runtime_s))
        return np.asarray(np.exp(model.predict(np.hstack([other, code[1][:, kept]]))))

    return predict


def scaled(benchmarks: Benchmarks, size: int = 0) -> Baseline:
    """A line per task over all machines, each machine's seconds scaled by the task's own micro-benchmark.

    Where a task has none, by the geometric mean of the machine's.
    """

    def speed(rows: Observations) -> Floats:
        usual = {m: float(np.exp(np.mean(np.log(list(found.values()))))) for m, found in benchmarks.items()}
        return np.array([
            benchmarks.get(m, {}).get(t, usual.get(m, 1.0)) for t, m in zip(rows.task, rows.machine, strict=True)
        ])  # fmt: skip

    def predict(train: Observations, test: Observations) -> Floats:
        plain = replace(train, runtime_s=train.runtime_s / speed(train))
        return line("task", size=size)(plain, test) * speed(test)

    return predict


def runtimes(sizes: int = 1) -> dict[str, Baseline]:
    """All plain ways to predict runtimes; a line for each of the first ``sizes`` size columns."""
    found: dict[str, Baseline] = {
        "median per task": by_key(_median, ("task",)),
        "median per task and machine": by_key(_median, ("task", "machine"), ("task",)),
        "median per task and tag": by_key(_median, ("task", "data"), ("task",)),
        "median per task, tag and machine": by_key(_median, ("task", "data", "machine"), ("task", "data"), ("task",)),
        "last per task": by_key(_last, ("task",)),
        "last per task and machine": by_key(_last, ("task", "machine"), ("task",)),
        "linear": linear,
        "boosting": boosting("absolute_error", False),
        "boosting, categories": boosting("squared_error", True),
    }
    for size in range(sizes):
        found[f"line per task, size {size}"] = line("task", size=size)
        found[f"line per task and machine, size {size}"] = line("task", "machine", size=size)
    return found


def watts(train: tuple[Floats, Floats], test: Floats) -> dict[str, Floats]:
    """Watts of the test rows from (counters, watts) of the training rows, all in time order."""
    x, y = train
    return {
        "linear": np.asarray(LinearRegression().fit(x, y).predict(test)),
        "linear, positive": np.asarray(LinearRegression(positive=True).fit(x, y).predict(test)),
        "linear in cycles": np.asarray(LinearRegression().fit(x[:, 2:3], y).predict(test[:, 2:3])),
        "linear in CPU time": np.asarray(LinearRegression().fit(x[:, :1], y).predict(test[:, :1])),
        "boosting": np.asarray(HistGradientBoostingRegressor(random_state=0).fit(x, y).predict(test)),
        "median": np.full(len(test), np.median(y)),
        "last": np.full(len(test), y[-1]),
    }


def largest_so_far(times: float) -> Callable[[Observations, Observations], Floats]:
    """Memory: so many times the task's largest peak so far, at most what the user asked for; unknown: as asked."""

    def predict(train: Observations, test: Observations) -> Floats:
        largest: dict[str, float] = {}
        for task, peak in zip(train.task.tolist(), train.peak_bytes.tolist(), strict=True):
            largest[task] = max(largest.get(task, 0.0), peak)
        bound = np.array([times * largest.get(task, np.inf) for task in test.task.tolist()])
        return np.fmin(bound, test.request_bytes)

    return predict


MEMORY = {
    "1.1 × largest so far": largest_so_far(1.1),
    "1.5 × largest so far": largest_so_far(1.5),
    "2 × largest so far": largest_so_far(2.0),
}


def joules(calls: Calls, train: Ints, test: Ints, history: bool) -> dict[str, Floats]:
    """Joules of calls: the last finished ones of the function there, or medians by key of the training calls."""
    energy, end_s = np.log(calls.energy_j), calls.start_s + calls.duration_s
    keys: dict[str, tuple[Texts, ...]] = {
        "median per function": (calls.function,),
        "median per function and machine": (calls.function, calls.machine),
    }
    found = {name: _by_columns(columns, energy, train, test) for name, columns in keys.items()}
    for count, name in ((1, "last call"), (5, "mean of the last five")) if history else ():
        values = found["median per function"].copy()
        for place, i in enumerate(test.tolist()):
            same = (calls.function == calls.function[i]) & (calls.machine == calls.machine[i])
            done = np.flatnonzero(same & (end_s <= calls.start_s[i]))
            if len(done):
                values[place] = energy[done[np.argsort(end_s[done], kind="stable")][-count:]].mean()
        found[name] = values
    return {name: np.exp(values) for name, values in found.items()}


def _by_columns(columns: tuple[Texts, ...], value: Floats, train: Ints, test: Ints) -> Floats:
    past: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for i in train.tolist():
        for width in range(len(columns) + 1):
            past[tuple(str(column[i]) for column in columns[:width])].append(float(value[i]))
    result = np.empty(len(test))
    for place, i in enumerate(test.tolist()):
        key = tuple(str(column[i]) for column in columns)
        while key not in past:
            key = key[:-1]
        result[place] = np.median(past[key])
    return result

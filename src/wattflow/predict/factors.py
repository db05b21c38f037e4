"""Machine factors of a machine that has run nothing but micro-benchmarks.

For each task the benchmarks are weighed by how well they tracked that task over the machines already known; the new
machine's factor is the weighted mean of its benchmark ratios. A benchmark of the task itself weighs more. How sharp
the weights are is chosen by leaving out each known machine in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattflow.predict.observations import Benchmarks, Floats, Ints

_NO_BENCHMARKS = 0.5  # natural log: machines nothing is known of differ by about this much
_DEFAULT = (0.1, 1.0, 10.0, 0.0)  # too few machines to choose by: mostly the benchmark of the task itself
_GRID = tuple(itertools.product((0.02, 0.05, 0.1, 0.2), (1.0, 2.0), (1.0, 3.0, 10.0, 30.0), (0.0, 0.25, 0.5)))


@dataclass(frozen=True, slots=True)
class BenchmarkTable:
    """Natural logs of benchmark seconds, [benchmark, machine], and which benchmark is which task's own."""

    log_s: Floats
    own: Floats

    def distance(self, one: Floats, other: Floats) -> float:
        """Root mean square difference of two machines' columns over the benchmarks both have."""
        both = np.isfinite(one) & np.isfinite(other)
        return float(np.sqrt(np.mean((one[both] - other[both]) ** 2))) if both.any() else float("nan")

    def disagreement(self) -> float:
        """How differently benchmarks rate one machine against another: the error to expect of a factor from them."""
        spreads = []
        for a in range(self.log_s.shape[1]):
            for b in range(a):
                ratio = self.log_s[:, a] - self.log_s[:, b]
                ratio = ratio[np.isfinite(ratio)]
                if len(ratio) > 2:
                    spreads.append(float(ratio.std()))
        return float(np.median(spreads)) if spreads else _NO_BENCHMARKS


def benchmark_table(benchmarks: Benchmarks, machines: Sequence[str], tasks: Sequence[str]) -> BenchmarkTable:
    """Benchmarks as a table. Several names with the same seconds everywhere are one benchmark."""
    names = sorted({name for row in benchmarks.values() for name in row})
    table = np.array([[benchmarks.get(m, {}).get(name, np.nan) for m in machines] for name in names], np.float64)
    table = np.log(table) if len(names) else np.zeros((0, len(machines)))
    distinct: dict[tuple[float, ...], list[str]] = {}
    for name, row in zip(names, table, strict=True):
        if np.isfinite(row).any():
            distinct.setdefault(tuple(np.where(np.isfinite(row), row, -1e9).tolist()), []).append(name)
    values = np.array([list(row) for row in distinct], np.float64).reshape(len(distinct), len(machines))
    position = {task: k for k, task in enumerate(tasks)}
    own = np.zeros((len(tasks), len(distinct)))
    for b, members in enumerate(distinct.values()):
        for name in members:
            if name in position:
                own[position[name], b] = 1.0
    return BenchmarkTable(np.where(values <= -1e8, np.nan, values), own)


def predict_offsets(offset: Floats, table: BenchmarkTable, seen: Ints, new: Floats) -> Floats:
    """Offsets [task] of a machine with benchmark logs ``new`` from the offsets of the machines ``seen``."""
    setting = _DEFAULT
    if len(seen) >= 3:
        costs = [_left_out_cost(offset, table, seen, setting) for setting in _GRID]
        setting = _GRID[int(np.argmin(costs))]
    return _estimate(offset, table, seen, (new, setting))


def _left_out_cost(offset: Floats, table: BenchmarkTable, seen: Ints, setting: tuple[float, ...]) -> float:
    total = 0.0
    for out in seen.tolist():
        rest = seen[seen != out]
        error = np.abs(offset[:, out] - _estimate(offset, table, rest, (table.log_s[:, out], setting)))
        error = error[np.isfinite(error)]
        if len(error):
            total += float(np.median(error) + error.mean())
    return total


def _estimate(offset: Floats, table: BenchmarkTable, seen: Ints, new: tuple[Floats, tuple[float, ...]]) -> Floats:
    """Tasks that ran on the same machines are estimated together, each against those machines only."""
    result = np.full(len(offset), np.nan)
    ran = np.isfinite(offset[:, seen])
    for pattern in np.unique(ran, axis=0):
        if pattern.any():
            tasks = np.flatnonzero((ran == pattern).all(axis=1))
            part = BenchmarkTable(table.log_s, table.own[tasks])
            result[tasks] = _estimate_complete(offset[tasks][:, seen[pattern]], part, seen[pattern], new)
    return result


def _estimate_complete(
    offset: Floats, table: BenchmarkTable, seen: Ints, new: tuple[Floats, tuple[float, ...]]
) -> Floats:
    column, (tolerance, power, own_weight, common) = new
    mean = offset.mean(axis=1)
    usable = np.isfinite(column) & np.isfinite(table.log_s[:, seen]).all(axis=1)
    if not usable.any():
        return np.asarray(mean)
    bench = table.log_s[usable][:, seen]
    centre = bench.mean(axis=1, keepdims=True)
    ratio = column[usable] - centre[:, 0]
    behaviour = offset - mean[:, None]
    weight = (((behaviour[:, None, :] - (bench - centre)[None]) ** 2).mean(axis=2) + tolerance**2) ** -power
    weight = weight * np.where(table.own[:, usable] > 0, own_weight, 1.0)
    common_weight = (((bench - centre) - behaviour.mean(axis=0)) ** 2).mean(axis=1) + tolerance**2
    common_weight = common_weight**-power
    together = float(common_weight @ ratio / common_weight.sum())
    return np.asarray(mean + (1.0 - common) * (weight @ ratio) / weight.sum(axis=1) + common * together)

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

Setting = tuple[float, float, float, float]
"""Tolerance, power, weight of the task's own benchmark, share of a factor common to all tasks."""
_NO_BENCHMARKS = 0.5  # natural log: machines nothing is known of differ by about this much
_DEFAULT: Setting = (0.1, 1.0, 10.0, 0.0)  # too few machines to choose by: mostly the benchmark of the task itself
_GRID: tuple[Setting, ...] = tuple(
    itertools.product((0.02, 0.05, 0.1, 0.2), (1.0, 2.0), (1.0, 3.0, 10.0, 30.0), (0.0, 0.25, 0.5))
)


@dataclass(frozen=True, slots=True)
class BenchmarkTable:
    """Natural logs of benchmark seconds, [benchmark, machine], and which benchmark is which task's own."""

    log_s: Floats
    own: Floats

    def distance(self, one: Floats, other: Floats) -> float:
        """Return the root mean square difference of two machines' columns over the benchmarks both have."""
        both = np.isfinite(one) & np.isfinite(other)
        return float(np.sqrt(np.mean((one[both] - other[both]) ** 2))) if both.any() else float("nan")

    def disagreement(self) -> float:
        """Measure how differently benchmarks rate one machine against another: the error to expect of a factor."""
        spreads = []
        for a in range(self.log_s.shape[1]):
            for b in range(a):
                ratio = self.log_s[:, a] - self.log_s[:, b]
                ratio = ratio[np.isfinite(ratio)]
                # Two ratios say too little of a spread.
                if len(ratio) > 2:
                    spreads.append(float(ratio.std()))
        return float(np.median(spreads)) if spreads else _NO_BENCHMARKS


def benchmark_table(benchmarks: Benchmarks, machines: Sequence[str], tasks: Sequence[str]) -> BenchmarkTable:
    """Tabulate benchmarks. Several names with the same seconds everywhere are one benchmark."""
    names = sorted({name for row in benchmarks.values() for name in row})
    table = np.array([[benchmarks.get(m, {}).get(name, np.nan) for m in machines] for name in names], np.float64)
    table = np.log(table) if len(names) else np.zeros((0, len(machines)))
    distinct: dict[tuple[float, ...], list[str]] = {}
    for name, row in zip(names, table, strict=True):
        if np.isfinite(row).any():
            # NaN is not equal to itself, so a number stands in while rows are compared.
            distinct.setdefault(tuple(np.where(np.isfinite(row), row, -1e9).tolist()), []).append(name)
    values = np.array([list(row) for row in distinct], np.float64).reshape(len(distinct), len(machines))
    position = {task: k for k, task in enumerate(tasks)}
    own = np.zeros((len(tasks), len(distinct)))
    for b, members in enumerate(distinct.values()):
        for name in members:
            if name in position:
                own[position[name], b] = 1.0
    return BenchmarkTable(np.where(values <= -1e8, np.nan, values), own)


def choose_setting(offset: Floats, table: BenchmarkTable, seen: Ints) -> Setting:
    """Choose how sharply to weigh benchmarks: what would have placed each known machine best had it been left out."""
    # With two machines, leaving one out leaves nothing to compare with.
    if len(seen) < 3 or not len(table.log_s):
        return _DEFAULT
    total = np.zeros(len(_GRID))
    for out in seen.tolist():
        found = _estimates(offset, table, seen[seen != out], table.log_s[:, out], _GRID)
        # Median and mean together, as everywhere in this package (`blend.relative_cost`).
        error = np.abs(offset[:, out] - found)
        error = error[:, np.isfinite(error).all(axis=0)]
        if error.shape[1]:
            total += np.median(error, axis=1) + error.mean(axis=1)
    return _GRID[int(np.argmin(total))]


def predict_offsets(offset: Floats, table: BenchmarkTable, seen: Ints, new: tuple[Floats, Setting]) -> Floats:
    """Predict the offsets [task] of a machine from (its benchmark logs, the setting) and those of machines ``seen``."""
    return np.asarray(_estimates(offset, table, seen, new[0], (new[1],))[0])


def _estimates(
    offset: Floats, table: BenchmarkTable, seen: Ints, column: Floats, settings: Sequence[Setting]
) -> Floats:
    """Estimate [setting, task]. Tasks that ran on the same machines are estimated together, against those only."""
    result = np.full((len(settings), len(offset)), np.nan)
    ran = np.isfinite(offset[:, seen])
    # Tasks that ran on different machines have different references, so they are not mixed.
    for pattern in np.unique(ran, axis=0):
        if pattern.any():
            tasks = np.flatnonzero((ran == pattern).all(axis=1))
            part = BenchmarkTable(table.log_s, table.own[tasks])
            result[:, tasks] = _complete(offset[tasks][:, seen[pattern]], part, seen[pattern], column, settings)
    return result


def _complete(offset: Floats, table: BenchmarkTable, seen: Ints, column: Floats, settings: Sequence[Setting]) -> Floats:
    mean = offset.mean(axis=1)
    # Benchmarks must be known on all reference machines, or their centre would be another.
    usable = np.isfinite(column) & np.isfinite(table.log_s[:, seen]).all(axis=1)
    if not usable.any():
        # No benchmark of the new machine: it is a machine like the mean.
        return np.tile(mean, (len(settings), 1))
    bench = table.log_s[usable][:, seen]
    centre = bench.mean(axis=1, keepdims=True)
    ratio, own = column[usable] - centre[:, 0], table.own[:, usable] > 0
    behaviour = offset - mean[:, None]
    apart = ((behaviour[:, None, :] - (bench - centre)[None]) ** 2).mean(axis=2)
    # The same, for the mean task: one factor for all, which is steadier with few benchmarks.
    together = (((bench - centre) - behaviour.mean(axis=0)) ** 2).mean(axis=1)
    found = np.empty((len(settings), len(offset)))
    kept: dict[tuple[float, float], tuple[Floats, float]] = {}
    for i, (tolerance, power, own_weight, common) in enumerate(settings):
        # Many settings share these two numbers, and the powers are what costs.
        if (tolerance, power) not in kept:
            weight = (together + tolerance**2) ** -power
            kept[tolerance, power] = ((apart + tolerance**2) ** -power, float(weight @ ratio / weight.sum()))
        weight, shared = kept[tolerance, power]
        weight = weight * np.where(own, own_weight, 1.0)
        found[i] = mean + (1.0 - common) * (weight @ ratio) / weight.sum(axis=1) + common * shared
    return found

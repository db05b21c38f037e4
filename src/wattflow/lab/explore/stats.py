"""Effects on a figure: paired with everything else equal, and shares of its variance."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.frames.frame import Frame
from wattflow.lab.explore.design import Design
from wattflow.lab.explore.exploration import Row
from wattflow.lab.explore.point import DesignPoint, described
from wattflow.lab.figures.statistics import mean_interval

MECHANISMS = (
    "stealing", "rebalancing", "speculation", "preemption", "data", "hints", "faults", "barriers", "elasticity",
)  # fmt: skip
"""Sections of a frame that may be there or not."""

FACTORS = ("frame", "policy", "cluster", "workload")
REPEATS = 400
SEEDS = "seeds"
"""The factor in which points differ that are equal in all others."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Change of a figure from one level of an axis to another, over pairs of points that are equal otherwise.

    Attributes:
        change: As a share, from the geometric mean of the ratios: −0.2 is 20 % less.
        low, high: 95 % t interval over blocks (workloads where there are several, else seeds); None with one block.
        pairs, blocks: How many pairs there are, and how many independent groups of them.
    """

    axis: str
    before: str
    after: str
    change: float
    low: float | None
    high: float | None
    pairs: int
    blocks: int


Level = tuple[str, Hashable]
"""Where a point lies on an axis, and all the rest of it."""


def effects(design: Design, rows: Sequence[Row], figure: str) -> list[Effect]:
    """Measure the effect of every mechanism, frame axis, frame and policy on a figure (all above 0).

    A level is compared with the first before it that has partners: the absence of a mechanism, else the order listed.
    """
    points = {point.key: point for point in design.points}
    found: list[Effect] = []
    for axis in axes_of(design):
        levels: dict[str, dict[Hashable, Row]] = {}
        for row in rows:
            level, rest = axis.split(points[row["key"]])
            levels.setdefault(level, {})[rest] = row
        names = sorted(levels, key=axis.order)
        for number, after in enumerate(names):
            tried = (_effect(axis.name, (n, levels[n]), (after, levels[after]), figure) for n in names[:number])
            # The first partner that gives pairs: not every pair of levels has been run.
            found += itertools.islice((effect for effect in tried if effect is not None), 1)
    return found


@dataclass(frozen=True, slots=True)
class Axis:
    """Something that differs between points: splits a point into its level and the rest."""

    name: str
    split: Callable[[DesignPoint], Level]
    order: Callable[[str], int]


def axes_of(design: Design) -> list[Axis]:
    """Mechanisms, axes inside frames, frames and policies that have more than one level."""
    sections = [*dict.fromkeys([*design.axes, *MECHANISMS])]
    found = [_inner_axis(design, path) for path in sections]
    if len(design.levels("design")) > 1:
        found.append(_axis(design, "frame", _split_design))
    if len(design.levels("policy")) > 1:
        found.append(_axis(design, "policy", lambda p: (p.policy, (p.title, _around(p, policy=False)))))
    return [axis for axis in found if len({axis.split(point)[0] for point in design.points}) > 1]


def _axis(design: Design, name: str, split: Callable[[DesignPoint], Level]) -> Axis:
    first = {level: n for n, level in enumerate(dict.fromkeys(split(point)[0] for point in design.points))}
    return Axis(name, split, lambda level: first[level])


def _inner_axis(design: Design, path: str) -> Axis:
    """Read a section or a key of a frame. A mechanism's first level is its absence, where a frame lacks it."""

    @functools.cache
    def parts(frame: Frame) -> tuple[object, str]:
        facts = described(frame)
        *outer, last = path.split(".")
        table: object = facts
        for key in outer:
            table = table.get(key) if isinstance(table, dict) else None
        # Taken out of the table: what is left is "all the rest" that must be equal.
        value = table.pop(last, None) if isinstance(table, dict) else None
        return value, json.dumps(facts, sort_keys=True)

    def split(point: DesignPoint) -> Level:
        value, rest = parts(point.frame)
        label = point.factors.get(path) or (f"no {path}" if value is None else f"{path} ({_short(value)})")
        return label, (rest, _around(point))

    axis = _axis(design, path, split)
    if path not in MECHANISMS:
        return axis
    # Absence first, so that an effect reads as "with" against "without".
    return Axis(path, split, lambda level: -1 if level == f"no {path}" else axis.order(level))


def _short(value: object) -> str:
    """Return the telling part of a section: what is neither 0 nor off."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{k} {v}" for k, v in value.items() if v and not isinstance(v, dict | tuple)) or "on"


def _split_design(point: DesignPoint) -> Level:
    return point.design, (tuple(point.factors.values()), _around(point))


def _around(point: DesignPoint, *, policy: bool = True) -> tuple[Hashable, ...]:
    return (point.policy if policy else "", point.place.content, point.source.content, point.seed)


def _effect(
    axis: str, before: tuple[str, Mapping[Hashable, Row]], after: tuple[str, Mapping[Hashable, Row]], figure: str
) -> Effect | None:
    pairs: list[tuple[Row, float]] = []
    for rest, row in after[1].items():
        other = before[1].get(rest)
        a, b = (row.get(figure), other.get(figure)) if other is not None else (None, None)
        if a is not None and b is not None and a > 0 and b > 0:
            # Ratios, so that workloads decades apart weigh the same.
            pairs.append((row, math.log(a / b)))
    if not pairs:
        return None
    blocks = _blocks(pairs)
    mean, half = mean_interval([math.fsum(block) / len(block) for block in blocks])
    low, high = (None, None) if half is None else (math.expm1(mean - half), math.expm1(mean + half))
    return Effect(axis, before[0], after[0], math.expm1(mean), low, high, len(pairs), len(blocks))


def _blocks(pairs: Sequence[tuple[Row, float]]) -> list[list[float]]:
    """Group pairs by workload and cluster, or by seed where there is one workload: within, they depend."""
    for names in (("workload", "cluster"), ("seed",)):
        groups: dict[tuple[object, ...], list[float]] = {}
        for row, value in pairs:
            groups.setdefault(tuple(row[name] for name in names), []).append(value)
        # Several blocks, or there is no interval; seeds are the last resort.
        if len(groups) > 1:
            break
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the variance that belongs to a factor, or to an interaction (several factors)."""

    factors: tuple[str, ...]
    share: float
    freedom: int


@dataclass(frozen=True, slots=True)
class Variance:
    """A figure's variance, divided.

    Attributes:
        shares: Of the logarithm's sum of squares; main effects, interactions, then seeds; they sum to 1.
        within: The same without what the workload and the cluster alone explain, None where nothing is left.
        intervals: 95 % bootstrap intervals over workloads of the ``within`` shares by factors; empty with fewer than 3.
        left_out: Workloads left out because some of their points have no value.
    """

    figure: str
    shares: tuple[Share, ...]
    within: Mapping[tuple[str, ...], float] | None
    intervals: Mapping[tuple[str, ...], tuple[float, float]]
    left_out: tuple[str, ...] = ()

    def share(self, *factors: str) -> float:
        """Return the share of a factor or an interaction; 0 where it has one level only."""
        return next((s.share for s in self.shares if s.factors == factors), 0.0)


def variance(rows: Sequence[Row], figure: str) -> Variance | None:
    """Divide the variance of the logarithm of a figure over frame, policy, cluster, workload and their interactions.

    The design is a full product, so the sums of squares of the classical analysis of variance are orthogonal and add
    up (Fisher 1925; Montgomery, Design and Analysis of Experiments, ch. 5). None where nothing varies.
    """
    cube, names, left_out = _cube(rows, figure)
    if cube is None:
        return None
    shares = decompose(cube, names)
    if not shares:
        return None
    # A workload's own level says nothing of frames or policies.
    outside = {("cluster",), ("workload",), ("cluster", "workload")}
    within = _within(shares, outside)
    intervals: dict[tuple[str, ...], tuple[float, float]] = {}
    if "workload" in names and cube.shape[names.index("workload")] > 2:
        intervals = _bootstrap(cube, names, outside)
    return Variance(figure, tuple(shares), within, intervals, left_out)


Cube = NDArray[np.float64]


def _cube(rows: Sequence[Row], figure: str) -> tuple[Cube | None, tuple[str, ...], tuple[str, ...]]:
    """Logarithms by factor (those with several levels) and seed; workloads with gaps are left out."""
    value: dict[tuple[object, ...], float] = {}
    for row in rows:
        if (number := row.get(figure)) is not None and number > 0:
            value[tuple(row[name] for name in (*FACTORS, "seed"))] = math.log(number)
    levels = [list(dict.fromkeys(row[name] for row in rows)) for name in (*FACTORS, "seed")]
    loads = FACTORS.index("workload")
    whole = []
    for load in levels[loads]:
        cells = itertools.product(*(level if n != loads else [load] for n, level in enumerate(levels)))
        # A factorial with gaps is not orthogonal: such a workload leaves as a whole.
        whole += [load] if all(cell in value for cell in cells) else []
    left_out = tuple(str(load) for load in levels[loads] if load not in whole)
    if not whole:
        return None, (), left_out
    levels[loads] = whole
    shape = [len(level) for level in levels]
    cube = np.array([value[cell] for cell in itertools.product(*levels)]).reshape(shape)
    kept = [n for n in range(len(FACTORS)) if shape[n] > 1]
    cube = cube.reshape([*(shape[n] for n in kept), shape[-1]])
    return cube, tuple(FACTORS[n] for n in kept), left_out


def decompose(cube: Cube, names: Sequence[str]) -> list[Share]:
    """Divide up the sum of squares of a full factorial. The last dimension repeats; the others are the factors."""
    total = float(((cube - cube.mean()) ** 2).sum())
    # Relative: sums of logarithms that are all equal leave a rounding.
    if total <= 1e-18 * max(1.0, float((cube**2).sum())):
        return []
    cells = cube.mean(axis=-1)
    effects_by: dict[tuple[int, ...], Cube] = {(): np.asarray(cells.mean())}
    shares = []
    for order in range(1, len(names) + 1):
        for chosen in itertools.combinations(range(len(names)), order):
            others = tuple(n for n in range(len(names)) if n not in chosen)
            effect = cells.mean(axis=others, keepdims=True)
            for size in range(order):
                for inner in itertools.combinations(chosen, size):
                    # Inclusion and exclusion: what lower orders explain is taken out of each interaction.
                    effect = effect - effects_by[inner]
            effects_by[chosen] = effect
            # Each effect stands for so many cells.
            squares = float((effect**2).sum()) * cube.size / effect.size
            freedom = math.prod(cells.shape[n] - 1 for n in chosen)
            shares.append(Share(tuple(names[n] for n in chosen), squares / total, freedom))
    noise = float(((cube - cells[..., None]) ** 2).sum())
    if cube.shape[-1] > 1:
        shares.append(Share((SEEDS,), noise / total, cells.size * (cube.shape[-1] - 1)))
    return shares


def _within(shares: Sequence[Share], outside: set[tuple[str, ...]]) -> dict[tuple[str, ...], float] | None:
    left = math.fsum(share.share for share in shares if share.factors not in outside)
    if left <= 1e-12:
        return None
    return {share.factors: share.share / left for share in shares if share.factors not in outside}


def _bootstrap(
    cube: Cube, names: Sequence[str], outside: set[tuple[str, ...]]
) -> dict[tuple[str, ...], tuple[float, float]]:
    """Percentile intervals from workloads drawn with replacement, always the same draws."""
    axis = list(names).index("workload")
    # Always the same draws: a report that is made twice is the same.
    rng = np.random.default_rng(0)
    found: dict[tuple[str, ...], list[float]] = {}
    for _ in range(REPEATS):
        drawn = rng.integers(0, cube.shape[axis], cube.shape[axis])
        within = _within(decompose(np.take(cube, drawn, axis=axis), names), outside) or {}
        for factors, share in within.items():
            found.setdefault(factors, []).append(share)
    return {
        factors: (float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975)))
        for factors, values in found.items()
    }

"""A week of Kepler-like metrics of a node whose curve is known, and how far the fitted one is off."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wattflow.kube.curves import fit

WEEK_S, STEP_S, THREADS = 7 * 86400, 60, 32
BENDS = (0.6, 0.8, 1.0, 1.4)


def truth(busy: np.ndarray, bend: float) -> np.ndarray:
    """Watts of the machine that made the metrics."""
    return np.asarray(80 + 200 * (busy / THREADS) ** bend)


def recorded(seed: int, bend: float) -> list[tuple[float, float, float]]:
    """A week: daily load with jumps that no pod explains, noise of 4 %, spikes, gaps, restarts that show as nothing."""
    draw = np.random.default_rng(seed)
    at = np.arange(0.0, WEEK_S, STEP_S)
    jumps = np.repeat(draw.uniform(-0.3, 0.3, len(at) // 30 + 1), 30)[: len(at)]
    busy = THREADS * np.clip(0.35 + 0.3 * np.sin(2 * np.pi * at / 86400) + jumps, 0.01, 1)
    watts = truth(busy, bend) * draw.normal(1, 0.04, len(at))
    watts[draw.random(len(at)) < 0.01] *= 3
    for gap in draw.integers(0, len(at) - 300, 5):
        watts[gap : gap + 300] = np.nan
    watts[draw.random(len(at)) < 0.005] = 0.0
    return list(zip(at.tolist(), busy.tolist(), watts.tolist(), strict=True))


def worst(seeds: Iterable[int]) -> dict[float, float]:
    """The largest part by which a fitted curve is off anywhere from idle to full, by bend."""
    loads = np.linspace(0, THREADS, 21)
    found = {}
    seeds = list(seeds)
    for bend in BENDS:
        off = []
        for seed in seeds:
            curve = fit(recorded(seed, bend), THREADS, "kepler").curve
            off.append(float(np.abs(np.array([curve.at(one) for one in loads]) / truth(loads, bend) - 1).max()))
        found[bend] = max(off)
    return found

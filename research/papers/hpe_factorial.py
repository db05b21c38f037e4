"""Parts of the energy-aware scheduler's saving: guarantee × curves known × placement, eight corners."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from research.papers import hpe_model as model
from wattflow.model.run import Run
from wattflow.policy import registry

FACTORS = ("guarantee", "curves", "placement")
LEVELS = {
    "guarantee": ("100 %", "80 %"),
    "curves": ("mean", "own"),
    "placement": ("kubernetes", "marginal watts"),
}
Corner = tuple[int, int, int]
"""Level of each factor: 0 as the default scheduler has it, 1 as the energy-aware one does."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One corner, or one factor's share of the difference."""

    makespan_s: float
    energy_wh: float


def corners(setting: model.Setting) -> dict[Corner, Effect]:
    """All eight, means over the repetitions. Joules are those of the true curves, whatever the policy believes."""
    true = model.testbed(setting)
    # By level: 0 sees the mean curve, 1 each node's own.
    believed = (model.with_mean_curve(true), true)
    results: dict[Corner, Effect] = {}
    for guarantee, curves, placement in itertools.product((0, 1), repeat=3):
        policy = registry.load(("kubernetes", "hpe")[placement])
        policy = policy.with_settings(guarantees=((1.0, model.ENERGY_AWARE)[guarantee],))
        # Times depend on what the policy believes, joules on what is true.
        runs = model.repeat(setting, believed[curves], policy)

        def joules(run: Run) -> float:
            return model.on_true_curves(run, true)

        results[guarantee, curves, placement] = Effect(
            model.mean(runs, lambda run: run.makespan_s), model.mean(runs, joules) / model.J_PER_WH
        )
    return results


def shares(results: Mapping[Corner, Effect]) -> dict[str, Effect]:
    """Each factor's part of the way from default to energy-aware: its mean step over all orders of the factors.

    (Shapley values: they sum to the whole difference.) Positive is saved.
    """
    parts: dict[str, Effect] = {}
    for number, name in enumerate(FACTORS):
        seconds = watt_hours = 0.0
        for corner in itertools.product((0, 1), repeat=len(FACTORS)):
            if corner[number]:
                continue
            before = results[corner[0], corner[1], corner[2]]
            stepped = [level | (i == number) for i, level in enumerate(corner)]
            after = results[stepped[0], stepped[1], stepped[2]]
            # How often exactly these factors are set before this one, over all orders.
            weight = _weight(sum(corner))
            seconds += weight * (before.makespan_s - after.makespan_s)
            watt_hours += weight * (before.energy_wh - after.energy_wh)
        parts[name] = Effect(seconds, watt_hours)
    return parts


def _weight(others: int) -> float:
    """Share of the orders in which exactly these ``others`` come first."""
    count = len(FACTORS)
    return math.factorial(others) * math.factorial(count - 1 - others) / math.factorial(count)

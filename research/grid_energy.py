"""Joules that a run takes from the grid beside a renewable supply and a battery, from its watts over time."""

from __future__ import annotations

import numpy as np

from wattflow.lab.figures.power_series import power_curve
from wattflow.model.cluster import Series
from wattflow.model.run import Run
from wattflow.policy.renewable import EFFICIENCY


def grid_j(run: Run, supply_w: Series, battery_j: float = 0.0) -> float:
    """Return joules from the grid: drawn beyond the supply once the battery, empty at the start, is empty again."""
    curve = power_curve(run)
    steps = curve.steps
    first, last = np.floor(curve.start_s / supply_w.step_s), np.ceil(curve.end_s / supply_w.step_s)
    # The supply changes at its own steps, which are in nobody's log.
    turns = np.arange(first, last + 1) * supply_w.step_s
    times = np.unique(np.concatenate([[curve.start_s, curve.end_s], steps.time_s, turns]))
    times = times[(times >= curve.start_s) & (times <= curve.end_s)]
    watts = np.zeros(len(times))
    for node in np.unique(steps.group).tolist():
        mine = steps.group == node
        at = np.searchsorted(steps.time_s[mine], times, side="right") - 1
        # Nodes have no watts before their first step.
        watts += np.where(at >= 0, steps.value[mine][np.maximum(at, 0)], 0.0)
    charge = taken = 0.0
    for start_s, end_s, drawn_w in zip(times[:-1], times[1:], watts[:-1], strict=True):
        given_w = supply_w.values[int(start_s // supply_w.step_s) % len(supply_w.values)]
        spare_j = (given_w - float(drawn_w)) * float(end_s - start_s)
        charge += EFFICIENCY * spare_j if spare_j > 0 else spare_j
        # Below 0 it comes from the grid; the battery is empty then, never in debt.
        taken += max(0.0, -charge)
        charge = min(max(0.0, charge), battery_j)
    return taken

"""How well a run stayed below a cap on its watts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattflow.model.cluster import Series
from wattflow.model.run import Run

ROUNDING_W = 1e-6
"""Sums of watts at the cap itself stray by less."""


@dataclass(frozen=True, slots=True)
class CapKept:
    """A run beside its cap.

    Attributes:
        over: Watt-seconds above the cap, as a part of those that it allows.
        time: Part of the time above it.
    """

    over: float
    time: float


def cap_kept(run: Run, cap_w: Series) -> CapKept:
    """Compare the log of watts with the cap, from the run's start to its last end."""
    log = run.power_log
    assert log is not None, "the run was made without its log of watts"
    end_s = run.start_s + run.span_s
    steps = np.arange(np.ceil(run.start_s / cap_w.step_s) * cap_w.step_s, end_s, cap_w.step_s)
    times = np.unique(np.concatenate([[run.start_s, end_s], log["time_s"], steps]))
    times = times[(times >= run.start_s) & (times <= end_s)]
    watts = np.zeros(len(times) - 1)
    for node in range(len(run.cluster.nodes)):
        mine = log[log["node"] == node]
        # The last change up to a time stands; before a node's first one it draws nothing.
        at = np.searchsorted(mine["time_s"], times[:-1], side="right") - 1
        watts += np.where(at >= 0, mine["watts"][at], 0.0) if len(mine) else 0.0
    held_s = np.diff(times)
    # A run without length is above nothing.
    if not len(held_s):
        return CapKept(0.0, 0.0)
    # In the middle of each interval: at its edge a rounding would take the step before.
    allowed = np.array([cap_w.at(float(t)) for t in times[:-1] + held_s / 2])
    above = np.where(watts > allowed + ROUNDING_W, watts - allowed, 0.0)
    return CapKept(
        float((above * held_s).sum() / (allowed * held_s).sum()), float(held_s[above > 0].sum() / held_s.sum())
    )

"""Overheads that a workflow system adds to the tasks: a line with two terms, fitted to recorded makespans.

recorded ≈ simulated + a · tasks on the longest chain + b · x, with a and b ≥ 0. Each task on the chain waits for the
one before it to be noticed, submitted and started. The second term is work that is done one by one whatever the graph:
x is the number of tasks, or the gigabytes that all of them read, as through one link. Of the two the one that predicts
left-out instances better is kept, unless its link would be slower than a link can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.papers.recorded_replay import Replay

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """Seconds that the workflow system adds.

    Attributes:
        chain_s: For each task on the longest chain.
        task_s, gb_s: For each task, or for each gigabyte read; one of them is 0.
        left_out: Makespan of each instance as a fit to all the others predicts it, in their order.
        error: Median over the instances of |predicted − recorded| / recorded for these.
    """

    chain_s: float
    task_s: float
    gb_s: float
    left_out: tuple[float, ...]
    error: float


def grouped(found: Sequence[Replay], least: int) -> dict[str, list[Replay]]:
    """Instances by application; those of an application with fewer than ``least`` by workflow system."""
    counts: dict[str, int] = {}
    for one in found:
        counts[one.application] = counts.get(one.application, 0) + 1
    groups: dict[str, list[Replay]] = {}
    for one in found:
        # Too few of an application to fit two terms: it is fitted together with others of its workflow system.
        name = one.application if counts[one.application] >= least else one.application.split("/")[0]
        groups.setdefault(name, []).append(one)
    return groups


def fit(some: Sequence[Replay], slowest_bytes_per_s: float) -> Fit:
    """The better of both lines. Needs three instances or more."""
    chain = np.array([one.chain for one in some], np.float64)
    by_task = _line(some, chain, np.array([one.tasks for one in some], np.float64))
    by_gb = _line(some, chain, np.array([one.moved_gb for one in some], np.float64))
    (chain_s, task_s), left_out, error = by_task
    # A link slower than that would only hide what the other term says.
    if by_gb[2] < error and by_gb[0][1] <= 1e9 / slowest_bytes_per_s:
        return Fit(by_gb[0][0], 0.0, by_gb[0][1], tuple(by_gb[1].tolist()), by_gb[2])
    return Fit(chain_s, task_s, 0.0, tuple(left_out.tolist()), error)


def _line(some: Sequence[Replay], chain: Floats, other: Floats) -> tuple[tuple[float, float], Floats, float]:
    """The terms, the left-out predictions and their median error. Errors count relative to what was recorded."""
    recorded = np.array([one.recorded_s for one in some])
    simulated = np.array([one.simulated_s for one in some])
    # Relative errors: an instance of hours must not outweigh a hundred of minutes.
    rows = np.stack([chain, other], axis=1) / recorded[:, None]
    missing = (recorded - simulated) / recorded
    left_out = np.zeros(len(some))
    for i in range(len(some)):
        # Predicted by all others: an error that the fit itself could not hide.
        rest = np.arange(len(some)) != i
        left_out[i] = simulated[i] + recorded[i] * float(rows[i] @ least_squares(rows[rest], missing[rest]))
    terms = least_squares(rows, missing)
    return (float(terms[0]), float(terms[1])), left_out, float(np.median(np.abs(left_out - recorded) / recorded))


def least_squares(rows: Floats, wanted: Floats) -> Floats:
    """Two coefficients, neither negative: the best of both terms, either alone, and none."""
    best, least = np.zeros(2), float(wanted @ wanted)
    for use in ([0, 1], [0], [1]):
        answer = np.linalg.lstsq(rows[:, use], wanted, rcond=None)[0]
        rest = rows[:, use] @ answer - wanted
        # Less than none of a term has no meaning; then one term alone, or neither.
        if (answer >= 0).all() and float(rest @ rest) < least:
            best, least = np.zeros(2), float(rest @ rest)
            best[use] = answer
    return best

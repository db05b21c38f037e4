"""One simulated run as the few numbers that settings are judged by: joules, waiting of workflows, deadlines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate

Floats = NDArray[np.float64]
BOUND = 1.02
BASELINE, PUNCTUAL = "kubernetes", "eft:sleep=120"
"""Nobody waits longer than ``BOUND`` × as under the baseline with all nodes on; no deadline is missed that the punctual
policy meets."""


@dataclass(frozen=True, slots=True)
class Result:
    """One policy on one stream, or the means of several.

    Attributes:
        energy_j: All nodes, from the first release to the last end.
        mean_s, p95_s: Response of workflows: end − submission.
        missed: Workflows that ended after their deadline.
        tail_s: Mean response of the slowest quarter: a steadier figure than p95 where workflows are few, for training.
    """

    energy_j: float
    mean_s: float
    p95_s: float
    makespan_s: float
    missed: frozenset[int] = frozenset()
    tail_s: float = math.nan


def tail_of(response_s: Floats) -> float:
    """Return the mean of the largest quarter."""
    return float(np.sort(response_s)[-max(1, len(response_s) // 4) :].mean())


def measure(
    workload: Workload, cluster: Cluster, policy: str | Policy, seed: int, options: SimOptions | None = None
) -> Result:
    """Simulate one policy; estimates are the workload's (or drawn by the options with the seed)."""
    return result_of(simulate(workload, cluster, policy, seed=seed, options=options))


def result_of(run: Run) -> Result:
    """Reduce a run to what counts."""
    workload = run.workload
    end_s = np.zeros(len(workload.workflow_names))
    # A task that was given up (a time limit, its tries) ends with the run, and its workflow is late.
    task_end_s = run.end_s_by_task()
    given_up = np.isnan(task_end_s)
    np.maximum.at(end_s, workload.workflow, np.where(given_up, run.start_s + run.span_s, task_end_s))
    due_s = np.full(len(end_s), np.inf)
    # Also without a deadline: a workflow with a task that was given up counts as late.
    np.minimum.at(due_s, workload.workflow, np.where(given_up, -np.inf, workload.deadline_s))
    response_s = end_s - workload.workflow_submit_s
    late = frozenset(np.flatnonzero(end_s > due_s + 1e-6).tolist())
    return Result(run.total_j, float(response_s.mean()), p95_of(response_s), run.makespan_s, late, tail_of(response_s))


def p95_of(response_s: Floats) -> float:
    """Return numpy's 95th percentile, to the bit: its own way there takes longer than simulating fifty tasks."""
    ordered = np.sort(response_s)
    at = 0.95 * (len(ordered) - 1)
    low = int(at)
    share = at - low
    below, above = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)])
    return above - (above - below) * (1.0 - share) if share >= 0.5 else below + (above - below) * share


def mean(results: Sequence[Result]) -> Result:
    """Means over seeds; deadlines are judged by seed, so none are kept."""
    energy_j, mean_s, p95_s, makespan_s = (
        float(np.mean([getattr(r, name) for r in results])) for name in ("energy_j", "mean_s", "p95_s", "makespan_s")
    )
    return Result(energy_j, mean_s, p95_s, makespan_s)


def ratios(ours: Result, base: Result) -> dict[str, float]:
    """Return the mean response, p95 response and makespan over the baseline's."""
    return {n: getattr(ours, n) / max(1e-9, getattr(base, n)) for n in ("mean_s", "p95_s", "makespan_s")}


def slower(ours: Result, base: Result) -> float:
    """Return the largest of the three."""
    return float(max(ratios(ours, base).values()))

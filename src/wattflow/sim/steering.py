"""Policies that are steered by what is observed, in a simulation: what they are told, and how their answer is put in.

A policy's ``steer`` is asked at arrivals, with a bounded window of the workflows that have arrived: as they are
estimated, and of tasks that have ended the true runtimes, for a simulation measures without error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wattflow.engine import life
from wattflow.kernel.jit import jit as entry
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import arrivals
from wattflow.policy.base import Policy, Seen, Steering

MOST_TASKS = 2_000
"""Tasks of the window that is told, at most; the last workflow is told whatever its size."""
FLOWS, LARGE = 4, 8_000
"""Workflows that are told where these have at most so many tasks: large ones would leave a window of one before they
end, and nothing would be known of any."""


class Steered:
    """Asks a policy's steering as workflows arrive.

    Attributes:
        until_s: How far the run may go before it is asked; inf when all have arrived.
        steering: The policy's.
    """

    def __init__(self, policy: Policy, known: Workload, cluster: Cluster) -> None:
        assert policy.steer is not None
        self.steering: Steering = policy.steer(policy, cluster)
        self._runtime_s = known.runtime_s
        self._flows = list(arrivals.workflows(known))
        self._submit_s = [float(flow.workflow_submit_s[0]) for _, flow in self._flows]
        self._arrived, self._count = 0, len(known)
        self._find_next()

    def _find_next(self) -> None:
        """Find the next arrival at which to ask; after the steering has looked, for it counts from there."""
        submit_s, last = self._submit_s, len(self._submit_s)
        due = self._arrived
        while due < last and not self.steering.is_due(due + 1):
            due += 1
        self.until_s = submit_s[due] if due < last else math.inf

    def ask(self, world: Any) -> Policy | None:
        """Return the policy for what has been observed by now, if it is another."""
        now_s = self.until_s
        while self._arrived < len(self._submit_s) and self._submit_s[self._arrived] <= now_s:
            self._arrived += 1
        first, tasks = self._arrived, 0
        while first > 0:
            more = tasks + len(self._flows[first - 1][0])
            if tasks > 0 and more > (LARGE if self._arrived - first < FLOWS else MOST_TASKS):
                break
            first, tasks = first - 1, more
        end_s = np.full(self._count, np.nan)
        records = np.asarray(world.records[: int(world.pulse.record_n[0])])
        done = records[records["outcome"] == 0]
        # Of several parts the last end counts, whatever the order of the records; fmax passes over the NaN of before.
        np.fmax.at(end_s, done["task"], done["end_s"])
        chosen = self._flows[first : self._arrived]
        runtime_s = [np.where(np.isfinite(end_s[rows]), self._runtime_s[rows], np.nan) for rows, _ in chosen]
        # A workflow with an open task has no end: `max` hands the NaN on.
        ends = np.array([end_s[rows].max() for rows, _ in chosen])
        found = self.steering.consider(now_s, Seen(first, [flow for _, flow in chosen], runtime_s, ends))
        self._find_next()
        return found


def put_in(policy: Policy, state: Any, world: Any, cluster: Cluster, sleep_after_s: Any) -> None:
    """Use other numbers of the same rules from now on; ``sleep_after_s``: the classes' time-outs without a policy."""
    set_numbers(policy, state, cluster, sleep_after_s)
    recheck(state.handle(), world.handle())


def set_numbers(policy: Policy, state: Any, cluster: Cluster, sleep_after_s: Any) -> None:
    """Set a policy's numbers and let it prepare."""
    for i, value in enumerate(policy.params.values()):
        state.params[i] = value
    state.classes.sleep_after_s[:] = sleep_after_s
    if policy.prepare is not None:
        policy.prepare(state, cluster)


@entry
def recheck(state, world):
    """`life.recheck`, called from Python."""
    life.recheck(state, world)


__all__ = ["MOST_TASKS", "Steered", "put_in", "recheck", "set_numbers"]

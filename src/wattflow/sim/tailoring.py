"""Policies that fit themselves to what arrives, in a simulation: when they are asked, and how their answer is put in.

A policy's ``tailor`` is asked at the first arrival and, where it says when (``tailor_next``), again after so many
more. It is given the workflows that have arrived by then, as they are estimated, and nothing else.
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
from wattflow.policy.base import Policy


class Tailoring:
    """Asks a policy again as workflows arrive.

    Attributes:
        next_s: When it is asked next; inf for never.
        until_s: How far the run may go before that.
    """

    def __init__(self, policy: Policy, known: Workload, cluster: Cluster) -> None:
        assert policy.tailor is not None
        self.next_s = math.inf
        self._policy, self._tailor, self._cluster = policy, policy.tailor, cluster
        self._workflows = arrivals.workflows(known)
        self._ahead = next(self._workflows, None)
        self._arrived: list[Workload] = []
        self._submit_s = np.sort(known.workflow_submit_s[np.unique(known.workflow)])
        self._beforehand = getattr(policy.tailor, "beforehand", False)

    @property
    def until_s(self) -> float:
        # Just before the arrival, so that the answer counts for it already.
        return math.nextafter(self.next_s, -math.inf) if self._beforehand and self.next_s < math.inf else self.next_s

    def ask(self, now_s: float) -> Policy:
        """Return the policy for those that have arrived by now."""
        while self._ahead is not None and self._ahead[1].workflow_submit_s[0] <= now_s:
            self._arrived.append(self._ahead[1])
            self._ahead = next(self._workflows, None)
        seen, wanted = len(self._arrived), 0
        if self._policy.tailor_next is not None:
            # At least one more, or it would be asked at the same time for ever.
            wanted = max(seen + 1, self._policy.tailor_next(self._policy, seen))
        self.next_s = float(self._submit_s[wanted - 1]) if 0 < wanted <= len(self._submit_s) else math.inf
        return self._tailor(self._policy, self._arrived, self._cluster)

    def first(self) -> Policy:
        """Return the policy to begin with."""
        return self.ask(float(self._submit_s[0]) if len(self._submit_s) else 0.0)


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


__all__ = ["Tailoring", "put_in", "recheck", "set_numbers"]

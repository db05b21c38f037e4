"""One workload on one cluster under one policy's rules, simulated again and again with other numbers of the policy.

Setting up takes ten times as long as running a few hundred tasks, and settings of one policy differ in numbers alone:
the tables as they are before the first event are kept, and copied back for each run.
"""

from __future__ import annotations

from typing import Any

from wattflow.kernel import jit
from wattflow.model.cluster import Cluster
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.policy.base import Policy
from wattflow.sim import steering
from wattflow.sim.simulate import Simulation
from wattflow.sim.world_build import SimOptions

Prepared = dict[Any, tuple[Any, Any]]
"""The policy's memory and the classes' time-outs as `Policy.prepare` left them, by the policy's numbers and the time of
the start."""


class Repeated(Simulation):
    """A simulation that can begin anew. Runs share memory: take what is needed of one before the next.

    Args:
        prepared: What `prepare` has left, shared by simulations of one policy on one cluster. Only for a policy that
            prepares by the cluster and its numbers alone, and writes nothing but its memory and time-outs.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: Policy,
        *,
        seed: int = 0,
        options: SimOptions | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self._prepared = prepared
        super().__init__(workload, cluster, policy, seed=seed, options=options)

    def _open(self) -> None:
        # Before `_open`, which writes the first events. In one piece, so that to begin anew is one copy of bytes.
        self.state, self.world = self.state.copy(), self.world.copy()
        self._before = self.state.keep(), self.world.keep()
        super()._open()

    def again(self, policy: Policy) -> Run:
        """To the end under other numbers of the same rules; ranks must not depend on them."""
        self.state.take_back(self._before[0])
        self.world.take_back(self._before[1])
        self.policy = policy
        with jit.compiling():
            self._set_numbers(policy)
            super()._open()
        return self.run()

    def _set_numbers(self, policy: Policy) -> None:
        key = (*policy.params.values(), float(self.state.clock.now[0]))
        memory, after_s = (None, None) if self._prepared is None else self._prepared.get(key, (None, None))
        if memory is None or len(memory) != len(self.state.memory):
            steering.set_numbers(policy, self.state, self.cluster, self._sleep_after_s)
            if self._prepared is not None:
                self._prepared[key] = self.state.memory.copy(), self.state.classes.sleep_after_s.copy()
            return
        self.state.params[: len(policy.params)] = list(policy.params.values())
        self.state.memory[:] = memory
        self.state.classes.sleep_after_s[:] = after_s


__all__ = ["Prepared", "Repeated"]

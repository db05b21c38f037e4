"""One workload on one cluster under one policy's rules, simulated again and again with other numbers of the policy.

Setting up takes ten times as long as running a few hundred tasks, and settings of one policy differ in numbers alone:
the tables as they are before the first event are kept, and copied back for each run.
"""

from __future__ import annotations

from wattflow.kernel import jit
from wattflow.model.run import Run
from wattflow.policy.base import Policy
from wattflow.sim import steering
from wattflow.sim.simulate import Simulation


class Repeated(Simulation):
    """A simulation that can begin anew. Runs share memory: take what is needed of one before the next."""

    def _open(self) -> None:
        # Before `_open`, which writes the first events.
        self._before = self.state.copy(), self.world.copy()
        super()._open()

    def again(self, policy: Policy) -> Run:
        """To the end under other numbers of the same rules; ranks must not depend on them."""
        state, world = self._before
        try:
            self.state.copy_from(state)
            self.world.copy_from(world)
        except ValueError:  # tables grew in the last run
            self.state, self.world = state.copy(), world.copy()
        self.policy = policy
        with jit.compiling():
            steering.set_numbers(policy, self.state, self.cluster, self._sleep_after_s)
            super()._open()
        return self.run()


__all__ = ["Repeated"]

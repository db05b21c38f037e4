"""Another policy's rules in the middle of a simulation, as `live.Engine.use` takes them up on a live engine.

What a policy says of itself stands in the State: flags, offers, numbers, notes, ranks, time-outs and the order of the
queue. `Exchange.put_in` writes those of the policy that takes over; what runs goes on as it was placed. Offers of
all policies that took turns stay in the table of variants, one block behind the other, for attempts name them by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.engine import groups, queue, tables
from wattflow.engine.build import build_offers, follow
from wattflow.engine.settings import PolicySettings
from wattflow.engine.tables import State
from wattflow.kernel.functions import Functions
from wattflow.kernel.jit import jit as entry
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import arrivals, bind
from wattflow.policy.base import Policy
from wattflow.sim import steering

Block = tuple[Any, Any]
"""First variant of each shape's offers, and how many there are."""


class Exchange:
    """The rules of one simulation.

    Args:
        known: The workload as it is estimated.
        policy: The one that the State was built for.
    """

    def __init__(self, state: State, known: Workload, cluster: Cluster, policy: Policy) -> None:
        self._state, self._known, self._cluster = state, known, cluster
        shapes = state.shapes
        self._blocks: dict[Any, Block] = {
            _offers(policy.settings): (shapes.variant_first.copy(), shapes.variant_n.copy())
        }

    def put_in(self, policy: Policy, world: Any, sleep_after_s: Any) -> Functions:
        """Decide by another policy from now on; ``sleep_after_s``: the classes' time-outs before it prepares."""
        state = self._state
        self._offer(policy.settings)
        pods = int(state.rules.pods[0])
        follow(state.rules[0], policy.settings)
        state.params[:] = state.memory[:] = 0
        arrivals.note_places(state, self._known, self._cluster, policy, None)
        functions = bind.bind(policy, state)
        steering.set_numbers(policy, state, self._cluster, sleep_after_s)
        with np.errstate(over="ignore"):
            # Free pods are part of what makes two nodes equal.
            if int(state.rules.pods[0]) != pods:
                groups.rebuild(state.handle())
            refill(state.handle(), functions, _waiting(state))
            steering.recheck(state.handle(), world.handle())
        return functions

    def _offer(self, settings: PolicySettings) -> None:
        state, key = self._state, _offers(settings)
        if key not in self._blocks:
            made, first = build_offers(self._known, self._cluster, settings), len(state.variants)
            state.replace(
                **{name: np.concatenate([getattr(state, name), made[name]]) for name in ("variants", "class_ok")}
            )
            state.rules["bare"] |= made["rules"].bare
            self._blocks[key] = made["shapes"].variant_first + first, made["shapes"].variant_n
        state.shapes.variant_first[:], state.shapes.variant_n[:] = self._blocks[key]


def _offers(settings: PolicySettings) -> tuple[tuple[float, ...], tuple[int, ...]]:
    return settings.guarantees, settings.frequencies


def _waiting(state: State) -> Any:
    """List the tasks in the queue in order of entry."""
    rows = np.flatnonzero(state.tasks.state == tables.READY)
    return rows[np.argsort(state.tasks.sequence[rows], kind="stable")].astype(np.int64)


@entry
def refill(state, functions, tasks):
    """`queue.refill`, called from Python."""
    queue.refill(state, tasks, functions.priority)


__all__ = ["Exchange"]

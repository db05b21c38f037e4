"""Frames that decide with a policy of the engine: each placer has a State of its own, which shows what the placer sees.

Before each decision the nodes of that State take over the placer's view of the hosts: exact, or as old as the last
refresh plus the placer's own placements. The policy scores every host that could take the task, as it does in the core;
the cheapest one, the lower index among equals, gets it. A policy's order of the queue (priority or rank) is taken once,
at the start. What a policy does by ``act`` (sleep, wake, frequencies) has no place in a frame and is left out; plans
and orders that change with time are refused.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import NO_DEVICE
from wattflow.engine.tables import State as View
from wattflow.frames.kernel import ask_policy, frame_tables, jit
from wattflow.frames.kernel.frame_tables import FrameState
from wattflow.model.cluster import Cluster
from wattflow.model.errors import BrokenPolicy, InvalidInput
from wattflow.model.workload import Workload
from wattflow.policy import bind
from wattflow.policy.base import Policy
from wattflow.sim.simulate import Simulation

# As `kernel.ask_policy` calls it: three whole numbers in, one out.
_CALLED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_NOBODY = -1


def check(policy: Policy) -> None:
    """Refuse what a frame cannot follow."""
    if policy.plan is not None:
        raise InvalidInput(policy.name, "plans ahead; a frame's placers decide task by task. Use a policy with a score")
    if policy.settings.dynamic:
        raise InvalidInput(policy.name, "orders its queue anew at each decision, which a frame's queues do not")
    if policy.settings.selection != "ordered":
        raise InvalidInput(policy.name, f"selects by {policy.settings.selection!r}; a placer takes its queue in order")


class Views:
    """The policy and one State per placer. Keep it as long as the frame's state is in use."""

    def __init__(self, policy: Policy, workload: Workload, cluster: Cluster, placers: int, seed: int) -> None:
        check(policy)
        self.policy, self.workload = policy, workload
        # A whole simulation, for its State: ranks, notes and numbers are as in the core.
        first = Simulation(workload, cluster, policy, seed=seed).state
        self.views: list[View] = [first, *(first.copy() for _ in range(placers - 1))]
        self.variants = [_cpu_variant(first, shape) for shape in range(len(workload.shapes))]
        self.score = bind.compiled(policy, first, "score")
        self.error: Exception | None = None
        self._state: FrameState | None = None
        self._callback: Any = None

    def keys(self) -> NDArray[np.float64] | None:
        """Return one number per task, smaller first; None: in order of arrival."""
        if self.policy.priority is None and self.policy.rank is None:
            return None
        view = self.views[0]
        priority = bind.compiled(self.policy, view, "priority")
        return np.array([priority(view.handle(), t) for t in range(len(self.workload))], np.float64)

    def attach(self, state: FrameState) -> None:
        """Let the placers of a frame's state ask this policy from now on."""
        self._state = state
        if jit.COMPILED:
            self._callback = _CALLED(self._answer)
            # Kept in `_callback` as well: ctypes would free the code as soon as nobody holds it.
            state.i[frame_tables.ASKED] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        else:
            state.i[frame_tables.ASKED] = id(self)
            ask_policy.PLAIN[id(self)] = self._answer
            # The number may be another object's later: a finished run must not answer for it.
            weakref.finalize(self, ask_policy.PLAIN.pop, id(self), None)

    def raise_error(self) -> None:
        """Raise what went wrong while compiled code was asking."""
        if self.error is not None:
            raise self.error

    def _answer(self, placer: int, task: int, room: int) -> int:
        """Answer compiled code, which no exception may cross: it is kept, and no host is given."""
        # After an error the kernel still asks until its call ends; the policy is not asked again.
        if self.error is not None:
            return _NOBODY
        try:
            return self._choose(placer, task, bool(room))
        except Exception as error:
            self.error = error
            return _NOBODY

    def _choose(self, placer: int, task: int, room: bool) -> int:
        s = self._state
        assert s is not None
        hosts = _able(s, placer, task, room)
        if not len(hosts):
            return _NOBODY
        view = self.views[placer]
        # After the hosts were found, which is cheap: with none there is nothing to show.
        _look(view, s, placer)
        count = len(hosts)
        if self.policy.score is None:
            return int(hosts[0])
        variant = self.variants[int(s.shape[task])]
        view.candidates.node[:count] = hosts
        view.candidates.device[:count] = -1
        view.candidates.variant[:count] = variant
        view.counts["candidate_n"] = count
        cost = view.cost[:count]
        self.score(view.handle(), task, variant, cost)
        if np.isnan(cost).any():
            raise BrokenPolicy(f"{self.policy.name} gives task {task} a cost that is no number")
        # The first of equal costs: hosts are in order of their numbers, as ties go in the core.
        best = int(np.argmin(cost))
        return int(hosts[best]) if np.isfinite(cost[best]) else _NOBODY


def _able(s: FrameState, placer: int, task: int, room: bool) -> NDArray[np.int64]:
    """List a placer's hosts that could run the task; with ``room``, those it believes to have room for it now."""
    shape = int(s.shape[task])
    low, high = int(s.p_low[placer]), int(s.p_high[placer])
    able = (s.h_known[low:high] == 1) & (s.s_fits[shape, low:high] == 1)
    if room and s.i[frame_tables.EXACT] == 1:
        able &= s.h_used[low:high] + s.s_need[shape] <= s.h_capacity[low:high]
        able &= s.h_used_memory[low:high] + s.s_memory[shape] <= s.h_memory[low:high]
        able &= s.h_state[low:high] == frame_tables.ON
    elif room:
        able &= s.seen[placer, low:high] + s.s_need[shape] <= s.h_capacity[low:high]
    found: NDArray[np.int64] = np.flatnonzero(able) + low
    return found


def _look(view: View, s: FrameState, placer: int) -> None:
    """Show the policy what the placer sees."""
    exact = s.i[frame_tables.EXACT] == 1
    taken = s.h_used + s.h_queued + s.h_coming if exact else s.seen[placer]
    view.clock["now"] = s.f[frame_tables.NOW]
    # Requests stand for busy cores: a frame's hosts offer no more than their physical ones.
    view.nodes["used_u"] = view.nodes["alloc_u"] = taken
    view.nodes["used_mem"] = s.h_used_memory
    # An old view knows cores, not attempts.
    view.nodes["running"] = s.h_running if exact else taken // frame_tables.MICRO
    if s.t_node.size > 1:
        view.tasks["node"] = s.t_node[: len(view.tasks)]


def _cpu_variant(view: View, shape: int) -> int:
    """Return the engine's number of the variant that a frame runs: the first without a device."""
    form = view.shapes[shape]
    rows = range(int(form.variant_first), int(form.variant_first + form.variant_n))
    return next((v for v in rows if view.variants[v].device == NO_DEVICE), int(form.variant_first))

"""Workflows that are open in a live State, and when each ends in a roll-out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import FAILED, PARKED, PLACED, READY, UNKNOWN, WAITING, State
from wattflow.live.forecast import Ends

Floats = NDArray[np.float64]
_STILL = (WAITING, READY, PLACED, PARKED)


@dataclass(frozen=True, slots=True)
class OpenFlows:
    """Workflows with tasks that wait or run; a task without a workflow is one of its own.

    Attributes:
        flow: Number of every task's workflow among them; −1 of all others.
        rows: Tasks that wait or run.
        submit_s, due_s: By number.
        never: Tasks that no roll ends: placeholders, and what waits for them.
    """

    now_s: float
    flow: NDArray[np.int64]
    rows: NDArray[np.int64]
    submit_s: Floats
    due_s: Floats
    never: frozenset[int]

    @classmethod
    def of(cls, state: State) -> OpenFlows:
        """As it is now."""
        tasks, count = state.tasks, len(state.tasks)
        states, owner = np.asarray(tasks["state"]), np.asarray(tasks["workflow"]).astype(np.int64)
        rows = np.flatnonzero(np.isin(states, _STILL))
        key = np.where(owner > 0, owner, len(state.workflows) + np.arange(count))
        keys = np.unique(key[rows])
        flow = np.full(len(state.workflows) + count, -1, np.int64)
        flow[keys] = np.arange(len(keys))
        flow = np.where(states < FAILED, flow[key], -1)
        due_s, submit_s = np.full(len(keys), np.inf), np.zeros(len(keys))
        known = np.flatnonzero(flow >= 0)
        np.minimum.at(due_s, flow[known], np.asarray(state.extra["deadline"])[known])
        submit_s[flow[known]] = np.maximum(0.0, np.asarray(tasks["release"])[known])
        owned = keys < len(state.workflows)
        due_s[owned] = np.minimum(due_s[owned], np.asarray(state.workflows["deadline"])[keys[owned]])
        submit_s[owned] = np.asarray(state.workflows["submit"])[keys[owned]]
        return cls(float(state.clock.now[0]), flow, rows, submit_s, due_s, _behind_placeholders(state))

    def ends(self, state: State, done: NDArray[Any]) -> Ends:
        """After a roll: those that nothing ended count as long again."""
        end_s = np.full(len(self.submit_s), self.now_s)
        np.maximum.at(end_s, self.flow[done["task"]], done["end_s"])
        left = self.rows[np.isin(np.asarray(state.tasks["state"])[self.rows], _STILL)]
        end_s[self.flow[left]] = 2.0 * float(state.clock.now[0]) - self.now_s
        return Ends(self.submit_s, self.due_s, end_s)


def _behind_placeholders(state: State) -> frozenset[int]:
    """Tasks that stand for unknown work, and all that waits for them."""
    found: set[int] = set()
    ahead = np.flatnonzero(np.asarray(state.tasks["state"]) == UNKNOWN).tolist()
    while ahead:
        task = ahead.pop()
        if task not in found:
            found.add(task)
            first, count = int(state.links["child_first"][task]), int(state.links["child_n"][task])
            ahead += np.asarray(state.child[first : first + count]).tolist()
    return frozenset(found)


__all__ = ["OpenFlows"]

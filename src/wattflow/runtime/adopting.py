"""Attempts that were given up with their node and run on there: when the node's agent is back, their tasks go on.

A node that is silent is lost, and its tasks wait again. Where its agent was only cut off or paused, it comes back with
the processes of those attempts. A task that still waits by then is placed there before anything else may be made of it;
its lease names the attempt that it *adopts*, and the agent goes on with that process under the new fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wattflow.live.protocol import Placement
from wattflow.runtime.decider import Decider
from wattflow.runtime.nodes import Nodes
from wattflow.runtime.records import AttemptRecord, Attempts, TaskRecord


class Adopting:
    """Lost attempts whose tasks wait.

    Args:
        tasks: Of open workflows, by number.
        attempts: Knows which tasks attempts that are over belonged to.
    """

    def __init__(self, decider: Decider, nodes: Nodes, tasks: Mapping[int, TaskRecord], attempts: Attempts) -> None:
        self._decider, self._nodes, self._tasks, self._attempts = decider, nodes, tasks, attempts
        self._pinned: list[TaskRecord] = []

    def returned(self, node: str, fences: Iterable[int]) -> None:
        """The agent of a node is back, with these attempts. Their tasks, as far as they wait, may go there only, until
        the next step is over (`settle`)."""
        found = []
        for fence in fences:
            trace = self._attempts.trace(fence)
            task = self._tasks.get(trace.task) if trace is not None else None
            # Placed elsewhere meanwhile, or over: then the old process is an orphan, and the driver stops it.
            if task is not None and task.state == "waiting" and task.lost is not None and task.lost.fence == fence:
                found.append(task)
        if found and (record := self._nodes.get(node)) is not None:
            self._decider.pin([task.engine for task in found], record.engine)
            self._pinned += found

    def adopted(self, task: TaskRecord, node: str, placement: Placement) -> int | None:
        """The attempt that a new one goes on with; None where it begins anew. Asked once for a placement."""
        # Whatever is decided now, there is one chance: a second adoption of the same process would run it under two
        # fences.
        lost, task.lost = task.lost, None
        if lost is None or task not in self._pinned or lost.node != node or lost.lease.variant != placement.variant:
            return None
        # A process cannot move to another device; begun anew there, the old one is stopped as an orphan.
        if lost.lease.device != AttemptRecord.device_of(placement):
            return None
        task.losses -= 1  # it was none
        return lost.fence

    def settle(self) -> None:
        """Let what was not placed go anywhere again."""
        left = [task.engine for task in self._pinned if task.state == "waiting"]
        if left:
            self._decider.pin(left, None)
        self._pinned = []

"""The verdict on a task after an attempt that did not end well: tried again after a while, or failed for good.

A refusal and a lost node are not the task's own doing at first sight, so they do not use up its ``retries``; but a
payload that no node can load, or one that takes its node down, must not go round for ever. Each has a cap.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattflow.runtime.messages import Ended
from wattflow.runtime.records import TaskRecord

REFUSALS, LOSSES = 6, 8
"""So many refusals, or lost nodes, and the task has failed. Six refusals take half a minute (see `wait_s`)."""
LONGEST_WAIT_S = 30.0
KEPT = 10
"""Bad ends that a task's history names; the store has all attempts."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Return whether the task is tried again, and after how long; ``reason`` is what the task is told to have met."""

    again: bool
    wait_s: float = 0.0
    reason: str | None = None


def judge(task: TaskRecord, end: Ended, node: str, stopping: bool = False) -> Verdict:
    """Count a bad end against its task and say what follows from it."""
    said = end.reason or end.outcome
    if end.outcome != "cancelled":
        task.history = [*task.history[1 - KEPT :], f"{end.outcome} on {node}: {said}"]
    if end.outcome == "refused":
        task.refusals += 1
        # Doubled each time: what a node lacks now (an object on its way, a daemon that restarts) it may have in a
        # while.
        again, wait_s = task.refusals < REFUSALS, min(LONGEST_WAIT_S, 2.0 ** (task.refusals - 1))
        return Verdict(again and not stopping, wait_s, said if again else _given_up(task))
    if end.outcome == "node_lost":
        task.losses += 1
        again = task.losses < LOSSES
        return Verdict(again and not stopping, reason=said if again else _given_up(task))
    # Not the task's fault and not asked for: its agent stopped it as an orphan, or made room for somebody else.
    if end.outcome == "cancelled":
        return Verdict(not stopping and task.failures <= task.spec.retries, reason=said)
    task.failures += 1
    return Verdict(task.failures <= task.spec.retries and not stopping, reason=said)


def met(task: TaskRecord) -> str | None:
    """Tell what a task that waits has met so far, in words; None where nothing was in its way."""
    counts = ((task.refusals, REFUSALS, "refused"), (task.losses, LOSSES, "lost with its node"))
    told = [f"{what} {count} of {most} times" for count, most, what in counts if count]
    return f"{' and '.join(told)} (last: {task.history[-1]})" if told and task.history else None


def _given_up(task: TaskRecord) -> str:
    """The reason of a task that is given up, with what it met, the same in a row once."""
    times: dict[str, int] = {}
    for one in task.history:
        times[one] = times.get(one, 0) + 1
    listed = "; ".join(one if count == 1 else f"{one} ({count} times)" for one, count in times.items())
    tried = f"refused {task.refusals} times, lost with its node {task.losses} times"
    return f"given up after {task.attempts} attempts ({tried}): {listed}"

"""The shadow: a bounded window of what has arrived, replayed under the reference with all nodes on.

Runtimes are those that were measured, else estimates as far off as those of ended tasks were. A window begins with the
backlog that the replay before it left: of workflows that have dropped out, the work that was not done by then, each
running task with the share of its runtime that was left. Without it a window would begin on an empty cluster, the
shadow would be too quick, and at high load the reference itself would look late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining
from wattflow.policy.base import Policy, Seen
from wattflow.sim import simulate

Floats = NDArray[np.float64]
MOST_TASKS = 12_000
"""Tasks that are replayed, at most; a driver's window has far fewer unless workflows are large."""
LEAST_S = 1e-3
"""Runtime of a task that is done: it keeps its place in the DAG and takes no time."""
AHEAD_S = 1.0
GROWING = 1.3
"""Workflows that wait in the last quarter of arrivals over those in the two before, above which a backlog grows."""
SOME = 6
"""Tasks that have ended, from which on their runtimes say something of those of others."""


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A workflow as it was replayed last: when each of its tasks began and ended."""

    flow: Workload
    start_s: Floats
    end_s: Floats


class Shadow:
    """Replays windows one after the other.

    Attributes:
        waiting: Workflows that waited for a place when each of the last window arrived.
    """

    def __init__(self, cluster: Cluster, reference: Policy) -> None:
        self.cluster, self._reference = cluster, reference
        self.waiting: Floats = np.zeros(0)
        self._last: dict[int, _Replayed] = {}

    def responses(self, first: int, flows: Sequence[Workload]) -> Floats:
        """End − submission of each workflow under the reference; ``first`` is the number of the first's arrival."""
        before = self._backlog(first, float(flows[0].workflow_submit_s[0]), MOST_TASKS - sum(map(len, flows)))
        numbers, parts = [*before, *range(first, first + len(flows))], [*before.values(), *flows]
        window = joining.together(parts)
        run = simulate(window, self.cluster, self._reference)
        start_s, end_s = run.start_s_by_task(), run.end_s_by_task()
        found = responses(end_s, window)
        self.waiting = waiting_at(window.workflow_submit_s[len(before) :], window, start_s, end_s)
        bounds = np.cumsum([0, *map(len, parts)])
        self._last = {
            number: _Replayed(part, start_s[a:b], end_s[a:b])
            for number, part, a, b in zip(numbers, parts, bounds[:-1], bounds[1:], strict=True)
            if np.isfinite(end_s[a:b]).all()  # one that was given up holds nothing
        }
        return found[len(before) :]

    def _backlog(self, first: int, begin_s: float, room: int) -> dict[int, Workload]:
        """Workflows before the window with work that the shadow had not done when it begins, the latest first served
        where there are too many tasks."""
        found: dict[int, Workload] = {}
        for number in sorted((n for n in self._last if n < first), reverse=True):
            one = self._last[number]
            if one.end_s.max(initial=-math.inf) > begin_s:
                room -= len(one.flow)
                if room < 0:
                    break
                found[number] = remainder(one.flow, one.start_s, one.end_s, begin_s)
        return dict(sorted(found.items()))


def remainder(flow: Workload, start_s: Floats, end_s: Floats, at_s: float) -> Workload:
    """The workflow as it stands at a time, with the work that is left; it is submitted `AHEAD_S` before.

    What is done passes in that second and what runs is placed, before what waits may begin: else a task that waits
    would take the place of one that runs.
    """
    begin_s = at_s - AHEAD_S
    left = np.clip((end_s - begin_s) / np.maximum(1e-9, end_s - start_s), 0.0, 1.0)
    left[end_s <= at_s] = 0.0
    return replace(
        flow,
        runtime_s=np.maximum(LEAST_S, left * flow.runtime_s),
        estimate_s=np.maximum(LEAST_S, left * flow.estimate_s),
        release_s=np.where(start_s >= at_s, np.maximum(flow.release_s, at_s), begin_s),
        workflow_submit_s=np.full(1, begin_s),
    )


def filled(seen: Seen) -> tuple[list[Workload], float]:
    """Each workflow with the runtimes that were measured, else its estimates as far off as those of ended tasks were,
    and how far one task errs beyond that (σ of the logarithm; NaN while too few have ended).

    Where nothing was estimated, the mean of what has ended stands in.
    """
    told = np.concatenate([flow.estimate_s for flow in seen.flows])
    known = np.concatenate(list(seen.runtime_s))
    both = np.isfinite(told) & np.isfinite(known)
    bias = float(known[both].sum() / max(1e-9, told[both].sum())) if both.sum() >= SOME else 1.0
    usual_s = float(np.nanmean(known)) if np.isfinite(known).any() else 1.0
    guess_s = np.maximum(LEAST_S, np.where(np.isfinite(told), told * bias, usual_s))
    ended = np.isfinite(known)
    error = (
        float(np.std(np.log(np.maximum(LEAST_S, known[ended]) / guess_s[ended]))) if ended.sum() >= SOME else math.nan
    )
    runtime_s = np.where(ended, np.maximum(LEAST_S, known), guess_s)
    parts = np.split(runtime_s, np.cumsum([len(flow) for flow in seen.flows])[:-1])
    return [replace(flow, runtime_s=part) for flow, part in zip(seen.flows, parts, strict=True)], error


def waiting_at(arrivals_s: Floats, workload: Workload, start_s: Floats, end_s: Floats) -> Floats:
    """Workflows of which a task could run and has no place yet, at each of some ascending times.

    O((tasks + times) log tasks).
    """
    ready_s = workload.release_s.copy()
    child = np.repeat(np.arange(len(workload)), np.diff(workload.parent_start))
    # A task that was given up never ends, and those that would have followed never could run.
    np.maximum.at(ready_s, child, np.where(np.isnan(end_s), np.inf, end_s)[workload.parent])
    count = len(arrivals_s)
    first = np.searchsorted(arrivals_s, ready_s, side="right")
    last = np.searchsorted(arrivals_s, np.where(np.isnan(start_s), np.inf, start_s), side="left")
    some = np.flatnonzero(last > first)
    some = some[np.lexsort((first[some], workload.workflow[some]))]
    # A workflow counts once where several of its tasks wait: each adds what those before it have not covered. Numbers
    # of one workflow lie above those of the workflows before it, so one running maximum serves all.
    above = workload.workflow[some].astype(np.int64) * (count + 1)
    covered = np.maximum.accumulate(np.concatenate([[0], last[some] + above]))[:-1]
    begin = np.minimum(last[some], np.maximum(first[some] + above, covered) - above)
    change = np.bincount(begin, minlength=count + 1) - np.bincount(last[some], minlength=count + 1)
    return np.cumsum(change)[:count].astype(np.float64)


def backlog_grows(waiting: Floats) -> bool:
    """Tell whether many more workflows wait at the last arrivals than before; one number for each arrival.

    Not those that are open: where workflows last as long as many gaps between arrivals, more and more are under way
    while the cluster fills or the long ones come last, though nobody waits.
    """
    # The first quarter fills an empty cluster and says nothing.
    _, *middle, last = (float(part.mean()) for part in np.array_split(waiting, 4))
    # One workflow more, too: shares of small numbers jump.
    return last > GROWING * max(middle) + 1.0


def responses(end_s: Floats, workload: Workload) -> Floats:
    """End − submission of each workflow; one that was given up never ends."""
    last = np.zeros(len(workload.workflow_names))
    np.maximum.at(last, workload.workflow, np.where(np.isnan(end_s), np.inf, end_s))
    return last - workload.workflow_submit_s


__all__ = ["MOST_TASKS", "Shadow", "backlog_grows", "filled", "remainder", "responses", "waiting_at"]

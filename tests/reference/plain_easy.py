"""EASY backfilling for rigid parallel jobs on equal processors, written down plainly and apart from the engine.

Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, doi:10.1109/71.932708: jobs start first come, first served. When the head
does not fit it is promised the *shadow time*, when by the estimates enough processors will be free; those that are
free then beyond its need are *extra*. A later job that fits now may start if it ends by the shadow time by its own
estimate, or if it takes no more than the extra processors.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """A rigid job; it never runs longer than its estimate."""

    submit_s: float
    runtime_s: float
    estimate_s: float
    width: int


def starts_s(jobs: list[Job], processors: int) -> list[float]:
    """When each job starts; jobs are in order of submission."""
    start = [0.0] * len(jobs)
    running: list[tuple[float, int]] = []  # (true end, job)
    queue: list[int] = []
    free, coming = processors, 0
    while coming < len(jobs) or running:
        now = min(
            running[0][0] if running else float("inf"), jobs[coming].submit_s if coming < len(jobs) else float("inf")
        )
        while running and running[0][0] <= now:
            free += jobs[heapq.heappop(running)[1]].width
        while coming < len(jobs) and jobs[coming].submit_s <= now:
            queue.append(coming)
            coming += 1
        for job in _chosen(
            jobs, queue, [(start[j] + jobs[j].estimate_s, jobs[j].width) for _, j in running], free, now
        ):
            queue.remove(job)
            start[job] = now
            free -= jobs[job].width
            heapq.heappush(running, (now + jobs[job].runtime_s, job))
    return start


def _chosen(jobs: list[Job], queue: list[int], ends: list[tuple[float, int]], free: int, now: float) -> list[int]:
    """The jobs that start now, in order."""
    chosen: list[int] = []
    waiting = list(queue)
    while waiting and jobs[waiting[0]].width <= free:
        job = waiting.pop(0)
        chosen.append(job)
        free -= jobs[job].width
        ends = [*ends, (now + jobs[job].estimate_s, jobs[job].width)]
    if not waiting:
        return chosen
    shadow, there = float("inf"), free
    for end, width in sorted(ends):
        if there >= jobs[waiting[0]].width and end > shadow:
            break
        there += width
        if there >= jobs[waiting[0]].width:
            shadow = end
    extra = there - jobs[waiting[0]].width
    for job in waiting[1:]:
        ends_in_time = now + jobs[job].estimate_s <= shadow
        if jobs[job].width <= free and (ends_in_time or jobs[job].width <= extra):
            chosen.append(job)
            free -= jobs[job].width
            extra -= 0 if ends_in_time else jobs[job].width
    return chosen

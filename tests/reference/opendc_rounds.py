"""The OpenDC rule as a loop of its own: decisions in rounds of a second, the host with the fewest tasks first.

A task that arrives or ends asks for a round; it takes place at the next multiple of the period. In a round the queue
is gone through in order, each task goes to the host with the fewest tasks that has the cores for it (ties: the lowest
index), and after each placement the queue is read anew from its head. A task with parents enters the queue when its
last parent ends: that end asks for a round of its own, so a child starts at the next multiple after it.
Times are whole milliseconds, as in the files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq


@dataclass(frozen=True)
class Host:
    """A host with its linear power model."""

    cores: int
    mhz: float
    idle_w: float
    full_w: float


@dataclass
class Job:
    """A task of the trace and what became of it."""

    number: int
    submit_ms: int
    duration_ms: int
    cores: int
    mhz: float
    parents: set[int]
    host: int = -1
    start_ms: int = -1
    end_ms: int = -1


@dataclass(frozen=True)
class Rounds:
    """Makespan from the first submission to the last end; energy of all hosts over that time."""

    makespan_s: float
    energy_j: float
    jobs: tuple[Job, ...]


def read_hosts(folder: Path) -> list[Host]:
    hosts = []
    for cluster in json.loads((folder / "topology.json").read_text())["clusters"]:
        for row in cluster["hosts"]:
            cpu, power = row["cpu"], row["cpuPowerModel"]
            if power["modelType"] != "linear":
                raise ValueError(f"this loop knows linear hosts only, not {power['modelType']!r}")
            host = Host(cpu["coreCount"], cpu["coreSpeed"], power["idlePower"], power["maxPower"])
            hosts += [host] * row.get("count", 1)
    return hosts


def read_jobs(folder: Path) -> list[Job]:
    """Tasks in order of id; one fragment each."""
    fragments = {row["id"]: row for row in pq.read_table(folder / "trace" / "fragments.parquet").to_pylist()}
    jobs = []
    for row in sorted(pq.read_table(folder / "trace" / "tasks.parquet").to_pylist(), key=lambda r: r["id"]):
        fragment = fragments[row["id"]]
        jobs.append(Job(
            row["id"], row["submission_time"], fragment["duration"], row["cpu_count"], fragment["cpu_usage"],
            set(row.get("parents") or ()),
        ))  # fmt: skip
    return jobs


def opendc_rounds(folder: Path, period_ms: int = 1000, strictly_later: bool = False) -> Rounds:
    """Run the folder's trace on its topology.

    ``strictly_later`` is OpenDC's own pacing: what asks for a round exactly on a multiple waits a whole period.
    """
    hosts, jobs = read_hosts(folder), read_jobs(folder)
    by_number = {job.number: job for job in jobs}
    waiting = sorted(jobs, key=lambda job: (job.submit_ms, job.number))
    queue: list[Job] = []
    running: list[Job] = []
    blocked: list[Job] = []
    round_ms: int | None = None
    while waiting or running or queue or blocked:
        times = [job.end_ms for job in running] + ([waiting[0].submit_ms] if waiting else [])
        now_ms = min(times + ([round_ms] if round_ms is not None else []))
        asked = False
        for job in [job for job in running if job.end_ms == now_ms]:
            running.remove(job)
            asked = True
        while waiting and waiting[0].submit_ms == now_ms:
            blocked.append(waiting.pop(0))
            asked = True
        free = [job for job in blocked if all(0 <= by_number[p].end_ms <= now_ms for p in job.parents)]
        queue += free
        blocked = [job for job in blocked if job not in free]
        if round_ms == now_ms or (asked and now_ms % period_ms == 0 and not strictly_later):
            _round(queue, running, hosts, now_ms)
            round_ms = None
        if queue and asked and round_ms is None:
            round_ms = (now_ms // period_ms + 1) * period_ms
    return _result(hosts, jobs)


def _round(queue: list[Job], running: list[Job], hosts: list[Host], now_ms: int) -> None:
    free = [host.cores - sum(job.cores for job in running if job.host == h) for h, host in enumerate(hosts)]
    tasks = [sum(job.host == h for job in running) for h in range(len(hosts))]
    placed = True
    while placed and max(free) > 0:
        placed = False
        for job in queue:
            able = [h for h in range(len(hosts)) if job.cores <= free[h]]
            if able:
                job.host = min(able, key=lambda h: (tasks[h], h))
                job.start_ms, job.end_ms = now_ms, now_ms + job.duration_ms
                free[job.host] -= job.cores
                tasks[job.host] += 1
                running.append(job)
                queue.remove(job)
                placed = True
                break


def _result(hosts: list[Host], jobs: list[Job]) -> Rounds:
    """Host watts are idle + (full − idle) · used MHz / all MHz, so energy is a plain sum."""
    makespan_s = (max(job.end_ms for job in jobs) - min(job.submit_ms for job in jobs)) / 1000
    energy_j = sum(host.idle_w for host in hosts) * makespan_s
    for job in jobs:
        host = hosts[job.host]
        share = job.mhz / (host.cores * host.mhz)
        energy_j += (host.full_w - host.idle_w) * share * job.duration_ms / 1000
    return Rounds(makespan_s, energy_j, tuple(jobs))

"""Queues of a job log: how long its jobs wait first in first out, with EASY backfilling and under our own policy.

`fifo` as shipped skips what does not fit; in strict order nobody overtakes the head of the queue.

A log's jobs know nothing of each other, so each is a workflow of its own. Read as one workflow, the critical path of
the whole log would give every job months of slack, and a policy that spends slack would spend it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from research.papers.findings import Figure, Findings, Progress, Sheet
from wattflow import traces
from wattflow.files.data_folder import data_file
from wattflow.files.strict_table import StrictTable
from wattflow.lab.figures.metrics import metrics
from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workload import Workload
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.sim import simulate

FIFO, STRICT, EASY, OURS = "fifo", "fifo, strict order", "fifo, EASY backfilling", "wattflow"
_MEMORY = 1 << 50
"""Logs say little of memory; it never decides."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of the file."""

    log: str
    nodes: int
    cores: int
    idle_w: float
    full_w: float
    most_queue_h: float


@dataclass(frozen=True, slots=True)
class Queue:
    """Waiting of a log's jobs under one policy."""

    policy: str
    jobs: int
    mean_h: float
    p95_h: float
    bounded_slowdown: float | None
    makespan_d: float


def read(table: StrictTable) -> LogSettings:
    """The keys of this kind."""
    settings = LogSettings(
        log=table.text("log"),
        nodes=table.whole("nodes"),
        cores=table.whole("cores"),
        idle_w=table.number("idle_w", 100.0),
        full_w=table.number("full_w", 200.0),
        most_queue_h=table.number("most_queue_h", 3.1),
    )
    for key in ("nodes", "cores"):
        if getattr(settings, key) < 1:
            table.problem(key, f"must be at least 1, not {getattr(settings, key)}")
    if not 0.0 <= settings.idle_w <= settings.full_w:
        table.problem("idle_w", f"must lie between 0 and full_w ({settings.full_w:g}), not {settings.idle_w:g}")
    return settings


def machine(settings: LogSettings) -> Cluster:
    """Equal nodes with a straight line of watts."""
    watts = PowerProfile((0.0, float(settings.cores)), (settings.idle_w, settings.full_w))
    # One node after another: names say nothing here.
    nodes = (Node(f"n{i}", settings.cores, _MEMORY, power=watts) for i in range(settings.nodes))
    return Cluster("log", tuple(nodes))


def policies() -> dict[str, Policy]:
    """The policies that are compared."""
    fifo = registry.load("fifo")
    return {
        FIFO: fifo,
        STRICT: fifo.with_settings(queue="strict"),
        EASY: fifo.with_settings(queue="easy-backfill"),
        OURS: registry.load(OURS),
    }


def queue(workload: Workload, cluster: Cluster, name: str, policy: Policy) -> Queue:
    """Simulate the log under one policy."""
    run = simulate(workload, cluster, policy)
    # From release to start, as logs count a queue.
    waited_h = (run.start_s_by_task() - workload.release_s) / 3600.0
    return Queue(
        name,
        len(workload),
        float(waited_h.mean()),
        float(np.quantile(waited_h, 0.95)),
        metrics(run)["bounded_slowdown_mean"],
        run.makespan_s / 86400.0,
    )


def run(settings: LogSettings, progress: Progress) -> Findings:
    """The log under every policy."""
    workload, cluster = traces.load(data_file(settings.log)), machine(settings)
    found = []
    for number, (name, policy) in enumerate(policies().items()):
        progress(number / len(policies()), name)
        found.append(queue(workload, cluster, name, policy))
    return outcome(found, settings)


def outcome(found: list[Queue], settings: LogSettings) -> Findings:
    """The table and the figures."""
    rows = tuple(
        (
            one.policy,
            f"{one.mean_h:.2f}",
            f"{one.p95_h:.2f}",
            "" if one.bounded_slowdown is None else f"{one.bounded_slowdown:.1f}",
            f"{one.makespan_d:.1f}",
        )
        for one in found
    )
    title = f"{found[0].jobs:,} jobs on {settings.nodes} nodes of {settings.cores} cores"
    columns = ("policy", "mean queue h", "p95 h", "mean bounded slowdown", "makespan d")
    figures = []
    for one in found:
        ours = one.policy == OURS
        goal, ok = (f"≤{settings.most_queue_h:g}", one.mean_h <= settings.most_queue_h) if ours else ("none", True)
        name = {EASY: "easy", STRICT: "strict"}.get(one.policy, one.policy)
        figures.append(Figure(f"job_log_mean_queue_{name}", one.mean_h, "h", goal, ok))
    return Findings((Sheet(title, columns, rows),), tuple(figures), {"queues": [asdict(one) for one in found]}, NOTES)


NOTES = (
    "Bounded slowdown is (queue + run) / max(run, 10 s), at least 1, its mean over all jobs, as published tables have "
    "it. Watts are assumed; queues do not depend on them but under wattflow.",
)

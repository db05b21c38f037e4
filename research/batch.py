"""The batch problem of RLScheduler: jobs of the synthetic log `lublin_256` on 256 processors, by bounded slowdown.

Zhang, Dai, He, Bao, Xie: RLScheduler: an automated HPC batch job scheduler using reinforcement learning, SC '20,
doi:10.1109/SC41405.2020.00035, judges ten random sequences of 1,024 jobs, without and with backfilling. Which ones is
not published, so ours are others; runtimes are known, as there. Bounded slowdown of a job is the larger of 1 and
(wait + run) / max(run, 10 s); Feitelson, Rudolph, Schwiegelshohn, Sevcik and Wong, doi:10.1007/3-540-63574-2_14.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattflow.files.data_folder import data_file
from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workload import Workload
from wattflow.sim import SimOptions, simulate
from wattflow.traces import swf

POLICIES = ("fifo", "wfp3", "unicep", "sjf", "f1", "wattflow", "learned")
LENGTH, SEQUENCES = 1024, 10
PROCESSORS = 256


def machine() -> Cluster:
    """One pool of processors; its watts do not matter here."""
    power = PowerProfile.from_form("linear", PROCESSORS, 1000.0, 5000.0)
    return Cluster("lublin", (Node("pool", PROCESSORS, 1 << 50, power=power),))


def sequences(count: int = SEQUENCES, seed: int = 1) -> list[Workload]:
    """Runs of consecutive jobs that begin at random places of the log."""
    log = swf.read(Path(data_file("batch_logs_swf")) / "lublin_256.swf.gz", "cores")
    first = np.random.default_rng([seed, 61]).integers(0, len(log) - LENGTH, count)
    return [_cut(log, at) for at in first.tolist()]


def _cut(log: Workload, at: int) -> Workload:
    """The jobs from a place on, each a workflow of its own, the first submitted at time 0."""
    some = slice(at, at + LENGTH)
    release_s = log.release_s[some] - log.release_s[at]
    return Workload.of_columns(
        f"lublin_256 from job {at}",
        release_s=release_s,
        runtime_s=np.maximum(1.0, log.runtime_s[some]),
        shapes=log.shapes,
        functions=log.functions,
        shape=log.shape[some],
        workflow=np.arange(LENGTH, dtype=np.int32),
        workflow_submit_s=release_s,
    )


def bounded_slowdown(workload: Workload, policy: str, queue: str) -> float:
    """Mean over the jobs."""
    run = simulate(workload, machine(), policy, options=SimOptions(queue=queue))
    response_s = run.end_s_by_task() - workload.release_s
    return float(np.maximum(1.0, response_s / np.maximum(workload.runtime_s, 10.0)).mean())


def table(count: int = SEQUENCES) -> dict[str, tuple[float, float]]:
    """Each policy's mean over the sequences: the queue in strict order, and with EASY backfilling."""
    drawn = sequences(count)
    return {
        policy: (
            float(np.mean([bounded_slowdown(w, policy, "strict") for w in drawn])),
            float(np.mean([bounded_slowdown(w, policy, "easy-backfill") for w in drawn])),
        )
        for policy in POLICIES
    }

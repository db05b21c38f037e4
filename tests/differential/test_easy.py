"""EASY in the engine beside a plain EASY of its own, on logs like that of the KTH machine of 100 processors."""

from __future__ import annotations

import numpy as np
import pytest

from reference.plain_easy import Job, starts_s
from wattflow.lab.figures.metrics import metrics
from wattflow.model.cluster import Cluster, Node
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.sim.simulate import SimOptions, simulate

PROCESSORS = 100


def drawn(seed: int, count: int) -> list[Job]:
    """Mostly narrow jobs of powers of two, run times over four decades, estimates rounded up to far too much."""
    rng = np.random.default_rng([seed, 1996])
    width = np.minimum(PROCESSORS, 2 ** rng.integers(0, 8, count)) * (rng.random(count) < 0.75)
    width = np.where(width == 0, rng.integers(1, PROCESSORS + 1, count), width)
    runtime = np.round(np.exp(rng.normal(6.0, 2.0, count))) + 1.0
    estimate = np.ceil(runtime * rng.choice([1.0, 2.0, 10.0], count) / 300.0) * 300.0
    gaps = rng.exponential(float((width * runtime).mean()) / PROCESSORS / 0.85, count)
    submit = np.round(np.cumsum(gaps))
    return [
        Job(float(s), float(r), float(e), int(w)) for s, r, e, w in zip(submit, runtime, estimate, width, strict=True)
    ]


def as_workload(jobs: list[Job]) -> Workload:
    widths = sorted({job.width for job in jobs})
    return Workload.of_columns(
        "log",
        release_s=np.array([job.submit_s for job in jobs]),
        runtime_s=np.array([job.runtime_s for job in jobs]),
        shapes=[Shape(0, (Variant(),), parts=width) for width in widths],
        shape=np.array([widths.index(job.width) for job in jobs], np.int32),
        workflow=np.arange(len(jobs), dtype=np.int32),
    ).with_estimates(np.array([job.estimate_s for job in jobs]))


@pytest.mark.parametrize("seed", range(3))
def test_starts_and_mean_bounded_slowdown_are_those_of_a_plain_easy(seed: int) -> None:
    jobs = drawn(seed, 400)
    machine = Cluster("machine", tuple(Node(f"p{i}", 1, 0) for i in range(PROCESSORS)))
    run = simulate(as_workload(jobs), machine, "fifo", options=SimOptions(queue="easy-backfill"))
    plain = np.array(starts_s(jobs, PROCESSORS))
    assert run.start_s_by_task() == pytest.approx(plain)
    wait = plain - np.array([job.submit_s for job in jobs])
    seconds = np.array([job.runtime_s for job in jobs])
    slowdown = np.maximum(1.0, (wait + seconds) / np.maximum(seconds, 10.0))
    assert metrics(run)["bounded_slowdown_mean"] == pytest.approx(slowdown.mean())
    assert slowdown.mean() > 2.0  # the machine is busy enough to tell

"""The experiment on a job log: waiting under each policy, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from research.papers import experiment, job_log
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload

SETTINGS = job_log.LogSettings("a.swf", 1, 2, 100.0, 200.0, 3.1)


def test_queues_by_hand() -> None:
    # Two cores. Job 0 (one core, 2 h), job 1 (two cores, 1 h, waits 2 h for both), job 2 (one core, 1 h): in order
    # it waits 3 h behind job 1, backfilled it starts at once beside job 0.
    workload = Workload.of_columns(
        "log", release_s=np.zeros(3), runtime_s=np.array([7200.0, 3600.0, 3600.0]), shape=np.array([0, 1, 0], np.int32),
        shapes=(Shape(0, (Variant(cores=1),)), Shape(0, (Variant(cores=2),))), one_each=True,
    )  # fmt: skip
    cluster = job_log.machine(SETTINGS)
    found = {name: job_log.queue(workload, cluster, name, policy) for name, policy in job_log.policies().items()}
    assert found[job_log.STRICT].mean_h == pytest.approx((0 + 2 + 3) / 3)
    assert found[job_log.FIFO].mean_h == pytest.approx((0 + 2 + 0) / 3)
    assert found[job_log.EASY].mean_h == pytest.approx((0 + 2 + 0) / 3)
    assert found[job_log.EASY].bounded_slowdown == pytest.approx((1 + 3 + 1) / 3)
    made = job_log.outcome(list(found.values()), SETTINGS)
    assert [f.name for f in made.figures][2] == "job_log_mean_queue_easy"
    assert all(f.ok for f in made.figures)
    late = job_log.Queue(job_log.OURS, 3, 815.0, 900.0, 1.0, 1.0)
    assert not job_log.outcome([late], SETTINGS).figures[0].ok


def test_the_file_is_read() -> None:
    chosen = experiment.load(str(Path(__file__).parents[3] / "experiments" / "hpc2n.toml")).settings
    assert isinstance(chosen, job_log.LogSettings)
    assert (chosen.nodes, chosen.cores) == (120, 2)

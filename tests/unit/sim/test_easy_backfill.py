"""EASY: what the head of the queue leaves over is for others, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.model.cluster import Cluster, Node
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.sim.simulate import SimOptions, simulate

EASY = SimOptions(queue="easy-backfill")


def jobs(rows: list[tuple[float, int]]) -> Workload:
    """Jobs of (seconds, processors), all there from the start."""
    widths = sorted({width for _, width in rows})
    return Workload.of_columns(
        "jobs",
        release_s=np.zeros(len(rows)),
        runtime_s=np.array([seconds for seconds, _ in rows]),
        shapes=[Shape(0, (Variant(),), parts=width) for width in widths],
        shape=np.array([widths.index(width) for _, width in rows]),
        workflow=np.arange(len(rows)),
    )


def starts(rows: list[tuple[float, int]], processors: int) -> list[float]:
    cluster = Cluster("machine", tuple(Node(f"p{i}", 1, 0) for i in range(processors)))
    return simulate(jobs(rows), cluster, "fifo", options=EASY).start_s_by_task().tolist()


def test_a_long_job_runs_on_processors_that_the_head_leaves_over() -> None:
    # Four of ten processors are busy until 10 s. The head wants eight: then it leaves two over, and a job of 100 s on
    # one of them delays nobody. A second and a third would: the third must wait for the head's end.
    found = starts([(10.0, 4), (20.0, 8), (100.0, 1), (100.0, 1), (100.0, 1)], 10)
    assert found == pytest.approx([0.0, 10.0, 0.0, 0.0, 30.0])


def test_a_gang_must_fit_into_what_is_left_over() -> None:
    # Two are left over: a gang of three would take one of the head's, a gang of two would not.
    assert starts([(10.0, 4), (20.0, 8), (100.0, 3)], 10)[2] == pytest.approx(30.0)
    assert starts([(10.0, 4), (20.0, 8), (100.0, 2)], 10)[2] == 0.0


def test_what_ends_in_time_takes_nothing_from_what_is_left_over() -> None:
    found = starts([(10.0, 4), (20.0, 8), (10.0, 4), (100.0, 2)], 10)
    assert found == pytest.approx([0.0, 10.0, 0.0, 0.0])

"""Frames that decide with the engine's policies, on what their placers see."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wattflow.frames import frame as frames
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.frame_run import run_frame
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import BrokenPolicy, InvalidInput
from wattflow.model.profile import PowerProfile
from wattflow.model.run import Run
from wattflow.model.workload import Workload
from wattflow.policy import view
from wattflow.policy.base import Policy

pytestmark = pytest.mark.slow  # the frames' kernel is compiled for no fast test: 18 s


def cluster(count: int = 3) -> Cluster:
    power = PowerProfile.from_form("linear", 2, 10.0, 20.0)
    return Cluster("c", tuple(Node(f"n{h}", 2, 1 << 30, power=power) for h in range(count)))


def tasks(*rows: tuple[float, float]) -> Workload:
    release, runtime = (np.array(side, np.float64) for side in zip(*rows))
    return Workload.of_columns("w", release_s=release, runtime_s=runtime)


def hosts_of(run: Run) -> list[int]:
    return [int(row["node"]) for row in sorted(run.attempts, key=lambda row: int(row["task"]))]


def fullest(state, task, variant, out):
    for c in range(out.size):
        out[c] = -view.load(state, c)


def broken(state, task, variant, out):
    out[:] = math.nan


def last_first(state, task):
    return -float(task)


FULLEST = Policy("fullest", score=fullest, compiled=False)


def test_a_placer_sees_the_load_that_is_there() -> None:
    run = run_frame(Frame("x"), tasks((0, 9), (1, 9), (2, 9)), cluster(), FULLEST)
    assert hosts_of(run) == [0, 0, 1]


def test_a_placer_with_an_old_view_decides_on_the_old_load() -> None:
    placers = frames.Placers(count=2, refresh_s=100.0, binding="early", route="round-robin")
    frame = Frame("x", "decentralised", placers=placers, hosts=frames.Hosts(queue=True))
    # Each placer knows its own placements: both send two tasks to host 0, where the exact view would turn to others.
    least = Policy("emptiest", score=lambda state, task, variant, out: _fill(state, out), compiled=False)
    run = run_frame(frame, tasks((0, 9), (0.1, 9), (0.2, 9), (0.3, 9)), cluster(2), least)
    assert hosts_of(run) == [0, 0, 1, 1]


def _fill(state, out):
    for c in range(out.size):
        out[c] = view.load(state, c)


def test_a_policys_order_is_the_queues() -> None:
    policy = Policy("last", score=fullest, priority=last_first, compiled=False)
    run = run_frame(Frame("x"), tasks((0, 1), (0, 1), (0, 1)), cluster(1), policy)
    # Two slots: tasks 2 and 1 go first, task 0 waits for them.
    assert [float(row["start_s"]) for row in sorted(run.attempts, key=lambda row: int(row["task"]))] == [1.0, 0.0, 0.0]


def test_a_broken_policy_is_named() -> None:
    with pytest.raises(BrokenPolicy, match="broken"):
        run_frame(Frame("x"), tasks((0, 1)), cluster(), Policy("broken", score=broken, compiled=False))


def test_what_a_frame_cannot_follow_is_refused() -> None:
    with pytest.raises(InvalidInput, match="plans ahead"):
        run_frame(Frame("x"), tasks((0, 1)), cluster(), "engine:heft")


def test_decisions_still_take_their_time() -> None:
    frame = Frame("x", placers=frames.Placers(service=Delay(0.5)))
    run = run_frame(frame, tasks((0, 1), (0, 1)), cluster(), FULLEST)
    assert [float(row["start_s"]) for row in run.attempts] == [0.5, 1.0]
    assert run.policy == "x / engine:fullest"

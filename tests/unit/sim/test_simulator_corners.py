"""Corners of the engine that random cases do not reach."""

from __future__ import annotations

import numpy as np
import pytest

from reference.engine_side import POLICIES
from reference.hand import edges, node, nodes, tasks
from wattflow.model.cluster import Device, Network
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape
from wattflow.policy.base import Plan, Policy
from wattflow.sim import SimOptions, simulate

FIFO = POLICIES["fifo"]


def test_a_single_task_fetches_its_input() -> None:
    run = simulate(tasks([1.0], input_bytes=np.array([50.0])), nodes(node(network=Network(10, 1.0))), FIFO)
    assert run.attempts["start_s"].tolist() == [6.0]


def test_a_single_task_resumes_from_its_checkpoint() -> None:
    saving = Function("f", checkpoint_s=3, checkpoint_cost_s=0.5)
    options = SimOptions(task_faults=((0, 0, 0.7),))
    run = simulate(tasks([10.0], function=saving), nodes(node()), FIFO, options=options)
    assert run.attempts["end_s"].tolist() == pytest.approx([8.05, 12.55])


def test_seven_slices_of_a_mig_device_fit() -> None:
    card = Device("gpu", sharing="mig", power=DeviceProfile((0.0, 1.0), (10.0, 80.0)))
    variants = (Variant("slice", 0.5, 0, "gpu", 1, 1 / 7),)
    run = simulate(tasks([4.0] * 8, variants=variants), nodes(node(8, devices=(card,))), FIFO)
    assert sorted(run.attempts["start_s"].tolist()) == [0.0] * 7 + [4.0]
    assert run.account_j("run") == pytest.approx(4 * 70 + 4 * 10, rel=1e-5)


def test_a_pinned_task_does_not_hold_back_others_of_its_shape() -> None:
    """Task 0 keeps node 0 busy; task 1 waits for node 0, and task 2 is free to start on node 1."""

    def plan(workload, cluster, params):  # type: ignore[no-untyped-def]
        return Plan(np.array([0, 0, 1], np.int32), np.array([0.0, 1.0, 2.0]))

    run = simulate(tasks([5.0, 5.0, 5.0]), nodes(node(), node()), Policy("planned", plan=plan))
    assert run.start_s_by_task().tolist() == [0.0, 5.0, 0.0]
    assert run.attempts[np.argsort(run.attempts["task"])]["node"].tolist() == [0, 0, 1]


def test_several_fpgas_are_loaded_together() -> None:
    cards = tuple(Device("fpga", reconfigure_s=seconds) for seconds in (1.0, 3.0))
    pair = (Variant("pair", 1, 0, "fpga", 2),)
    run = simulate(tasks([2.0, 2.0], variants=pair, edges=edges((0, 1))), nodes(node(4, devices=cards)), FIFO)
    assert run.attempts["cold_s"].tolist() == [3.0, 0.0]
    assert run.attempts["end_s"].tolist() == [5.0, 7.0]


def test_a_gang_is_finished_only_if_its_last_attempt_is() -> None:
    """Part 0 of task 0 ends well each time, part 1 is on the slow node that is lost four times."""
    work = tasks([2.0], shapes=(Shape(0, (Variant(),), 2),))
    outages = tuple((1, 4.0 * k + 3.0, 4.0 * k + 3.5) for k in range(8))
    run = simulate(work, nodes(node(), node(speed=0.1)), FIFO, options=SimOptions(outages=outages))
    assert not run.finished[0]
    assert np.isnan(run.end_s_by_task()[0])

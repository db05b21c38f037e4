"""From a workload and a cluster to tables: rules that follow from the facts, and tasks that nothing could run."""

from __future__ import annotations

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.engine.build import build_state, uniform_grid
from wattflow.model.cluster import Device, Node, Serverless
from wattflow.model.errors import InfeasibleTask
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape


def rule(name: str, *, cold_s: float = 0.0, edge_bytes: float = 0.0, limit_s: float = np.inf) -> int:
    work = tasks(
        [1.0, 1.0], function=Function("f", cold_start_s=cold_s), edges=edges((0, 1)), edge_bytes=np.array([edge_bytes])
    )
    state = build_state(work, nodes(node(), node(serverless=Serverless(1.0, time_limit_s=limit_s))))
    return int(state.rules[name][0])


def test_rules_say_what_the_workload_has() -> None:
    assert [rule("cold"), rule("cold", cold_s=0.1)] == [0, 1]
    assert [rule("has_data"), rule("has_data", edge_bytes=0.5)] == [0, 1]
    assert [rule("limits"), rule("limits", limit_s=900.0)] == [0, 1]


def refusal(cluster_nodes: tuple[Node, ...], *variants: Variant, parts: int = 1, count: int = 1) -> str:
    work = tasks([1.0] * count, shapes=(Shape(0, variants, parts),))
    with pytest.raises(InfeasibleTask) as error:
        build_state(work, nodes(*cluster_nodes))
    return str(error.value)


def test_a_task_that_no_node_could_run_says_what_its_first_variant_lacks() -> None:
    small = (node(4, memory_bytes=100, devices=(Device("gpu", "a"),)),)
    assert "needs 9 cores, the most on one node is 4" in refusal(small, Variant(cores=9), Variant(memory_bytes=999))
    assert "needs 101 bytes of memory, a node has 100" in refusal(small, Variant(memory_bytes=101))
    assert "needs architecture riscv" in refusal(small, Variant(architecture="riscv"))
    assert "needs the feature 'sgx'" in refusal(small, Variant(features=("sgx",)))
    assert "needs 2 gpu(s) that fit, a node has 1" in refusal(small, Variant(device="gpu", devices=2))
    assert "of model b or c that fit, a node has 0" in refusal(small, Variant(device="gpu", device_models=("b", "c")))


def test_a_refusal_counts_the_other_tasks_like_it() -> None:
    assert "(and 2 more tasks like it)" in refusal((node(),), Variant(cores=2), count=3)
    assert "more task" not in refusal((node(),), Variant(cores=2), count=1)


def test_parts_that_the_empty_cluster_cannot_hold_at_once() -> None:
    """Two nodes of 4 cores and 100 bytes hold 2 x 4 parts of a core, and 2 x 3 of 33 bytes."""
    pair = (node(4), node(4))
    assert "needs 9 parts of 1 cores at once; the empty cluster holds 8" in refusal(pair, Variant(), parts=9)
    assert "the empty cluster holds 6" in refusal(pair, Variant(memory_bytes=33), parts=7)
    for fitting in (Shape(0, (Variant(),), 8), Shape(0, (Variant(memory_bytes=33),), 6)):
        build_state(tasks([1.0], shapes=(fitting,)), nodes(*pair))


def test_a_curve_on_an_even_grid_is_the_curve() -> None:
    values, per_unit = uniform_grid((0.0, 1.0, 4.0), (10.0, 40.0, 70.0), 4.0)
    assert (values.tolist(), per_unit) == ([10.0, 40.0, 50.0, 60.0, 70.0], 1.0)
    assert uniform_grid((0.0,), (5.0,), 0.0)[0].tolist() == [5.0]


def test_a_class_row_holds_what_its_nodes_are() -> None:
    """Two cores of two threads that together do the work of 4 / 1.6 = 2.5: the further two threads add 0.5 in all."""
    curve = PowerProfile((0.0, 4.0), (10.0, 50.0))
    kind = build_state(tasks([1.0]), nodes(node(2, threads_per_core=2, smt_slowdown=1.6, power=curve))).classes[0]
    assert (kind.cores, kind.threads, kind.idle_w, kind.full_w, kind.tdp_w) == (2.0, 4.0, 10.0, 50.0, 50.0)
    assert kind.smt_gain == pytest.approx(0.25)
    assert (kind.sleepable, kind.serverless, kind.limit_s, kind.mtbf_s) == (0, 0, np.inf, np.inf)

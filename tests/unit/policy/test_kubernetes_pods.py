"""What kube-scheduler does with pods without requests, many nodes and many pods; scores computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattflow.engine import fit
from wattflow.live import Engine
from wattflow.model.cluster import Cluster, Node
from wattflow.model.run import Run
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import registry
from wattflow.sim import simulate

GIB, MIB = 1 << 30, 1 << 20
BARE = registry.load("kubernetes").with_settings(guarantees=(0.0,))


def pods(count: int, variant: Variant) -> Workload:
    return Workload.of_columns(
        "pods", release_s=np.zeros(count), runtime_s=np.full(count, 9.0), shapes=[Shape(0, (variant,))]
    )


def nodes_of(run: Run) -> list[int]:
    rows = run.attempts[np.argsort(run.attempts["task"], kind="stable")]
    return [int(node) for node in rows["node"]]


def test_pods_without_requests_count_a_little_and_balance_has_no_say() -> None:
    cluster = Cluster("two", (Node("a", 4, 8 * GIB), Node("b", 2, 64 * GIB)))
    # First a: 2.5 % and 2.4 % used, ⌊(97 + 97) / 2⌋ = 97; b: 5 % and 0.3 %, ⌊(95 + 99) / 2⌋ = 97. Then a 95, b 97;
    # a 95, b 94; a 92, b 94; a 92, b 92. With BalancedAllocation a would have had 99 against 97 points more at first.
    run = simulate(pods(5, Variant(memory_bytes=GIB)), cluster, BARE)
    assert nodes_of(run) == [0, 1, 0, 1, 0]


def test_pods_without_requests_fit_beyond_all_cores() -> None:
    run = simulate(pods(5, Variant(memory_bytes=GIB)), Cluster("one", (Node("a", 2, 8 * GIB),)), BARE)
    assert run.start_s_by_task().tolist() == [0.0] * 5


def test_a_missing_memory_request_counts_when_scored_by_use_only() -> None:
    cluster = Cluster("two", (Node("a", 4, 1000 * MIB), Node("b", 3, 64 * GIB)))
    # a: ⌊(75 + 80) / 2⌋ = 77 by use, 1 − 0.25 / 2 → 87 balanced: 164. b: ⌊(66 + 99) / 2⌋ = 82 and 83: 165.
    # Without the 200 MiB a would have had 87 + 87.
    assert nodes_of(simulate(pods(1, Variant(memory_bytes=0)), cluster, "kubernetes")) == [1]


@pytest.mark.parametrize(
    ("count", "enough"), [(3, 3), (99, 99), (100, 100), (200, 100), (250, 120), (1000, 420), (5000, 500), (6000, 300)]
)
def test_how_many_nodes_are_enough(count: int, enough: int) -> None:
    assert fit.enough_nodes(count) == enough


def test_many_nodes_are_sampled_from_a_rotating_start() -> None:
    cluster = Cluster("many", tuple(Node(f"n{i}", 1, GIB) for i in range(250)))
    # 120 of 250 are enough: 0–119, 120–239, 240–249 and 1–110 (0 is full), 111–231 without 120.
    run = simulate(pods(4, Variant(memory_bytes=MIB)), cluster, "kubernetes")
    assert nodes_of(run) == [0, 120, 1, 111]


def test_a_node_takes_110_pods_and_another_of_equal_use_takes_more() -> None:
    one = Cluster("one", (Node("a", 4, 64 * GIB),))
    run = simulate(pods(112, Variant(cores=0.01, memory_bytes=MIB)), one, "kubernetes")
    starts_s = run.start_s_by_task()
    assert (starts_s == 0.0).sum() == 110
    assert (starts_s[110:] == 9.0).all()
    # No other policy is a kubelet.
    assert simulate(pods(112, Variant(cores=0.01, memory_bytes=MIB)), one, "fifo").start_s_by_task().max() == 0.0
    # Equal use, but one large pod in place of two small ones: the nodes are told apart.
    small, large = Variant(cores=0.5, memory_bytes=8 * GIB), Variant(cores=1, memory_bytes=16 * GIB)
    mixed = Workload.of_columns(
        "mixed", release_s=np.concatenate([np.zeros(3), [1.0]]), runtime_s=np.full(4, 9.0),
        shapes=[Shape(0, (small,)), Shape(0, (large,))], shape=np.array([0, 1, 0, 0], np.int32),
    )  # fmt: skip
    two = replace(one, nodes=(*one.nodes, Node("b", 4, 64 * GIB)))
    narrow = registry.load("kubernetes").with_settings(pods=2)
    assert nodes_of(simulate(mixed, two, narrow)) == [0, 1, 0, 1]


def test_a_live_engine_leaves_the_number_of_pods_to_its_driver() -> None:
    engine = Engine("kubernetes", Cluster("one", (Node("a", 4, 64 * GIB),)))
    assert int(engine.state.rules["pods"][0]) > 110
    engine.use("fifo")
    assert int(engine.state.rules["pods"][0]) == 0

"""Queue orders and plain placements against decisions worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattflow.model.cluster import Cluster, Node
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.sim import simulate

GIB = 2**30


def node(
    name: str, cores: int = 2, *, speed: float = 1.0, memory: int = 64 * GIB, idle_w: float = 10.0, core_w: float = 5.0
):
    profile = PowerProfile((0.0, float(cores)), (idle_w, idle_w + core_w * cores))
    return Node(name, cores, memory, speed=speed, power=profile)


def jobs(
    runtime_s: list[float], release_s: list[float] | None = None, variants: list[Variant] | None = None
) -> Workload:
    kinds = variants or [Variant()] * len(runtime_s)
    return Workload.of_columns(
        "jobs",
        release_s=np.array(release_s or [0.0] * len(runtime_s)),
        runtime_s=np.array(runtime_s),
        shapes=[Shape(0, (kind,)) for kind in kinds],
        shape=np.arange(len(runtime_s), dtype=np.int32),
    )


def places(workload: Workload, nodes: list[Node], policy: str, seed: int = 0) -> str:
    """The node of each task in task order, as the first letters of their names."""
    run = simulate(workload, Cluster("by-hand", tuple(nodes)), policy, seed=seed)
    rows = run.attempts[np.argsort(run.attempts["task"], kind="stable")]
    return "".join(nodes[n].name for n in rows["node"])


def order(workload: Workload, policy: str, cores: int = 1) -> list[int]:
    """Tasks in the order of their starts on one node."""
    run = simulate(workload, Cluster("one", (node("a", cores),)), policy)
    return np.argsort(run.start_s_by_task(), kind="stable").tolist()


@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_least_loaded_fills_evenly_and_prefers_the_lower_index(policy: str) -> None:
    assert places(jobs([9.0] * 5), [node("a"), node("b", 4), node("c")], policy) == "abcba"


def test_round_robin_passes_the_turn_on() -> None:
    nodes = [node("a", 1), node("b", 1), node("c", 1)]
    # One-second jobs every two seconds; the second one blocks b for good.
    workload = jobs([1, 100, 1, 1, 1, 1], [0, 2, 4, 6, 8, 10])
    assert places(workload, nodes, "round-robin") == "abcaca"


def test_random_is_even_seeded_and_repeatable() -> None:
    nodes = [node(name, 200) for name in "abcd"]
    once = places(jobs([5.0] * 200), nodes, "random", seed=3)
    assert once == places(jobs([5.0] * 200), nodes, "random", seed=3)
    assert once != places(jobs([5.0] * 200), nodes, "random", seed=4)
    assert all(30 <= once.count(name) <= 70 for name in "abcd")


def test_most_allocated_fills_one_node_before_the_next() -> None:
    assert places(jobs([9.0] * 5), [node("a", 2), node("b", 4)], "most-allocated") == "aabbb"


def test_kubernetes_weighs_free_share_and_balance() -> None:
    nodes = [node("a", 4, memory=8 * GIB), node("b", 8, memory=8 * GIB)]
    # a: shares 1/4 and 1/4: least ⌊(75 + 75) / 2⌋ = 75, balanced 100.
    # b: shares 1/8 and 1/4: ⌊(87 + 75) / 2⌋ = 81 and ⌊93.75⌋ = 93.
    assert places(jobs([9.0], variants=[Variant(memory_bytes=2 * GIB)]), nodes, "kubernetes") == "a"
    # 3 cores, 2 GiB. a: 3/4, 1/4: (25 + 75) / 2 = 50 and 75. b: 3/8, 1/4: ⌊(62 + 75) / 2⌋ = 68 and ⌊93.75⌋ = 93.
    assert places(jobs([9.0], variants=[Variant(cores=3, memory_bytes=2 * GIB)]), nodes, "kubernetes") == "b"


def test_sjf_takes_the_shortest() -> None:
    assert order(jobs([5.0, 1.0, 3.0]), "sjf") == [1, 2, 0]


def test_sjf_takes_the_unknown_last() -> None:
    workload = jobs([5.0, 1.0, 3.0]).with_estimates(np.array([5.0, np.nan, 3.0]))
    assert order(workload, "sjf") == [2, 0, 1]


def test_wfp3_cubes_the_wait_over_the_runtime() -> None:
    # At 10 s: (10 / 8)³ = 1.95 against (1 / 1)³ = 1; from 8.5 s on: (1.5 / 1)³ = 3.4.
    assert order(jobs([10, 8, 1], [0, 0, 9]), "wfp3") == [0, 1, 2]
    assert order(jobs([10, 8, 1], [0, 0, 8.5]), "wfp3") == [0, 2, 1]


def test_wfp3_favours_the_wide_and_unicep_the_narrow() -> None:
    kinds = [Variant(cores=8), Variant(cores=8), Variant(cores=2)]
    # At 10 s both have waited 10 s for 5 s of work.
    workload = jobs([10, 5, 5], [0, 0, 0], kinds)
    assert order(workload, "wfp3", cores=8) == [0, 1, 2]
    assert order(workload, "unicep", cores=8) == [0, 2, 1]


def test_unicep_divides_the_wait() -> None:
    # At 10 s: 10 / 8 = 1.25 against 1 / 1 = 1, and 1.5 / 1 from 8.5 s on.
    assert order(jobs([10, 8, 1], [0, 0, 9]), "unicep") == [0, 1, 2]
    assert order(jobs([10, 8, 1], [0, 0, 8.5]), "unicep") == [0, 2, 1]


def test_f1_lets_arrival_outweigh_length() -> None:
    # log10(1000) · 1 + 870 · log10(1) = 3 against log10(10) · 1 + 870 · log10(2) = 263.
    assert order(jobs([10, 1000, 10], [0, 1, 2]), "f1") == [0, 1, 2]
    # Arrived together: the shorter one.
    assert order(jobs([10, 1000, 10], [0, 1, 1]), "f1") == [0, 2, 1]


def test_min_min_and_max_min_differ_in_who_gets_the_fast_node() -> None:
    nodes = [node("s", 1), node("f", 1, speed=2.0)]
    assert places(jobs([4.0, 10.0]), nodes, "min-min") == "fs"
    assert places(jobs([4.0, 10.0]), nodes, "max-min") == "sf"


@pytest.mark.parametrize("policy", ["eft", "min-min", "max-min", "eft:sleep=120"])
def test_busy_threads_count_for_whoever_wants_the_first_end(policy: str) -> None:
    """A whole core of a slower node ends sooner, for all together, than the second thread of a quick one."""
    nodes = [replace(node(name, 1, speed=speed), threads_per_core=2) for name, speed in (("f", 1.1), ("s", 1.0))]
    assert sorted(places(jobs([10.0, 10.0]), nodes, policy)) == ["f", "s"]


def two_workflows() -> Workload:
    """A chain of 1 + 5 s, three tasks of 3 s side by side, and before both a single task of 2 s."""
    return Workload.of_columns(
        "two",
        release_s=np.zeros(6),
        runtime_s=np.array([2.0, 3.0, 3.0, 3.0, 1.0, 5.0]),
        workflow=np.array([0, 1, 1, 1, 2, 2], np.int32),
        edges=(np.array([4], np.int32), np.array([5], np.int32)),
    )


def test_shortest_workflow_and_shortest_critical_path_disagree() -> None:
    # Work: 2, 9 and 6 s; critical paths: 2, 3 and 6 s.
    assert order(two_workflows(), "fifo:order=work") == [0, 4, 5, 1, 2, 3]
    assert order(two_workflows(), "fifo:order=path") == [0, 1, 2, 3, 4, 5]

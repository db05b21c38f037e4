"""The GPU allocation experiment: arrivals, the rivals' rules by hand, curves, and the claim itself on real lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from research.papers import fgd_paper
from research.papers.alibaba_cluster import load_alibaba
from wattflow.clusters import describe_cluster
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.errors import InvalidInput, MissingData
from wattflow.model.profile import Provenance
from wattflow.model.units import GIB
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.sim.simulate import Simulation


def gpu_node(name: str, gpus: int = 2, cores: int = 8) -> Node:
    return Node(name, cores, 64 * GIB, devices=(Device("gpu", "a", 16 * GIB, "mps"),) * gpus)


def pods(*wanted: tuple[float, int, float]) -> Workload:
    """Pods by (cores, GPUs, share of each)."""
    kinds = sorted(set(wanted))
    shapes = [
        Shape(0, (Variant("gpu", cores, GIB, "gpu" if gpus else None, gpus, share if gpus else 1.0),))
        for cores, gpus, share in kinds
    ]
    count = len(wanted)
    return Workload.of_columns(
        "pods",
        release_s=np.zeros(count),
        runtime_s=np.ones(count),
        shapes=shapes,
        shape=np.array([kinds.index(one) for one in wanted], np.int32),
    )


def places(arrivals: Workload, nodes: list[Node], policy: str) -> list[tuple[int, int]]:
    """(node, device) of each pod, in order of arrival."""
    sim = Simulation(
        fgd_paper.inflated(arrivals, 0.0, None), Cluster("c", tuple(nodes)), fgd_paper.policy_of(policy, arrivals)
    )
    sim.advance(float(len(arrivals)))
    rows = sim.state.attempts
    by_task = {int(row["task"]): (int(row["node"]), int(row["device"])) for row in rows[: len(arrivals)]}
    return [by_task[task] for task in range(len(arrivals))]


HALF, WHOLE, PLAIN = (1.0, 1, 0.5), (1.0, 1, 1.0), (1.0, 0, 0.0)


def test_arrivals_are_the_list_in_another_order_and_then_more_of_it() -> None:
    listed = pods(HALF, WHOLE, PLAIN, (2.0, 2, 1.0))
    drawn = fgd_paper.inflated(listed, 9.0, 3)
    assert sorted(drawn.shape[:4].tolist()) == sorted(listed.shape.tolist())
    asked = np.cumsum(fgd_paper.pod_gpus(drawn))
    assert asked[-1] >= 9.0 > asked[-2]
    assert drawn.release_s.tolist() == list(range(len(drawn)))
    assert fgd_paper.inflated(listed, 9.0, 3).shape.tolist() == drawn.shape.tolist()
    assert fgd_paper.inflated(listed, 9.0, None).shape.tolist() == listed.shape.tolist()


def test_curve_counts_what_was_placed() -> None:
    found = fgd_paper.fill(
        fgd_paper.inflated(pods(HALF, WHOLE, HALF), 0.0, None),
        Cluster("c", (gpu_node("a", 2),)),
        fgd_paper.policy_of("best-fit", pods(HALF, WHOLE)),
        0,
    )
    # Two GPUs: 0.25 after the first pod, 0.75 after the second, all after the third.
    at = {round(float(x), 2): float(y) for x, y in zip(fgd_paper.GRID, found.allocated, strict=True)}
    assert (at[0.24], at[0.25], at[0.74], at[0.75], at[1.0], at[1.3]) == (0.0, 0.25, 0.25, 0.75, 1.0, 1.0)
    # One GPU: the whole one no longer fits beside the half, and the second half arrives beyond the last share.
    none = fgd_paper.fill(
        fgd_paper.inflated(pods(HALF, WHOLE, HALF), 0.0, None),
        Cluster("c", (gpu_node("a", 1),)),
        fgd_paper.policy_of("best-fit", pods(HALF, WHOLE)),
        0,
    )
    assert float(none.allocated[100]) == 0.5
    assert float(none.allocated[-1]) == 0.5


def test_a_pod_that_fits_nowhere_is_passed_over() -> None:
    arrivals = fgd_paper.inflated(pods(HALF, (99.0, 1, 1.0), HALF), 0.0, None)
    found = fgd_paper.fill(arrivals, Cluster("c", (gpu_node("a", 2),)), fgd_paper.policy_of("best-fit", arrivals), 0)
    # It arrives (0.25, then 0.75 of two GPUs) and takes nothing.
    at = {round(float(x), 2): float(y) for x, y in zip(fgd_paper.GRID, found.allocated, strict=True)}
    assert (at[0.25], at[0.75], at[1.0]) == (0.25, 0.25, 0.5)


def test_of_equal_points_the_first_node_is_taken() -> None:
    # They differ by less than a point: 0.1 of 128 cores.
    nodes = [gpu_node("a", 2, 16), gpu_node("b", 2, 15)]
    assert places(pods((0.1, 1, 0.5)), nodes, "best-fit")[0][0] == 0
    # Under packing a pod without a GPU goes to the first node whatever runs there.
    assert [node for node, _ in places(pods(PLAIN, PLAIN), nodes, "gpu-packing")] == [0, 0]


def test_best_fit_takes_the_node_with_least_left_over() -> None:
    assert places(pods(WHOLE), [gpu_node("big", 4), gpu_node("small", 1)], "best-fit")[0][0] == 1
    assert places(pods(HALF, HALF), [gpu_node("a", 2)], "best-fit") == [(0, 0), (0, 0)]


def test_dot_product_takes_the_node_with_least_of_what_is_asked() -> None:
    # Many cores and one GPU against few cores and four: a pod that asks for cores goes to the second.
    nodes = [gpu_node("cores", 1, 64), gpu_node("gpus", 4, 8)]
    assert places(pods((8.0, 1, 0.1)), nodes, "dot-product")[0][0] == 1
    assert places(pods((0.1, 1, 1.0)), nodes, "dot-product")[0][0] == 0


def test_gpu_packing_takes_used_gpus_then_used_nodes_then_idle_ones() -> None:
    nodes = [gpu_node("a", 4), gpu_node("b", 2)]
    # Best fit begins with b; a half joins the half there, a whole one its other GPU, and only the next opens a.
    assert places(pods(HALF, HALF, WHOLE, WHOLE), nodes, "gpu-packing") == [(1, 4), (1, 4), (1, 5), (0, 0)]


def test_gpu_clustering_keeps_equal_requests_together() -> None:
    nodes = [gpu_node("a", 2), gpu_node("b", 2)]
    assert [node for node, _ in places(pods(HALF, WHOLE, HALF, WHOLE), nodes, "gpu-clustering")] == [0, 1, 0, 1]
    # Best fit would fill one node first.
    assert [node for node, _ in places(pods(HALF, WHOLE, HALF), nodes, "best-fit")] == [0, 0, 0]


def test_settings_are_read_strictly() -> None:
    problems = Problems()
    fgd_paper.read(StrictTable({"policies": ["fgd", "nonesuch"], "repeats": 0, "arrived": 2.0}, "", problems))
    text = " ".join(f"{one.where} {one.what}" for one in problems.listed())
    assert "nonesuch" in text
    assert "repeats must be at least 1" in text
    assert "arrived must be above 0" in text
    fgd_paper.read(StrictTable({"policies": ["fgd", "pwr"]}, "", problems))
    assert "must have fgd and a rival" in problems.listed()[-1].what


def test_outcome_tells_a_short_figure() -> None:
    settings = fgd_paper.FillingSettings("c", "l", True, 1.3, 1, 0, ("fgd", "random", "pwr"), (100.0,))
    low, high = np.minimum(fgd_paper.GRID, 0.8), np.minimum(fgd_paper.GRID, 0.9)
    found = {"fgd": [fgd_paper.Filling(low, 1.0, 1e-6)], "random": [fgd_paper.Filling(high, 1.0, 1e-6)]}
    outcome = fgd_paper.outcome(settings, found, (6.0, 10, 2))
    lines = [str(figure) for figure in outcome.figures]
    assert "figure fgd_ahead_of_best_rival_at_100_pct -10 points goal >0 short" in lines
    assert "figure fgd_fewer_unallocated_than_best_rival -100 % goal none ok" in lines
    assert lines[-1] == "figure alibaba_experiment_s 6 s goal ≤5 short"
    assert outcome.sheets[0].rows[0][:2] == ("fgd", "80.00 ±0.00")


def test_picture_is_drawn(tmp_path: Path) -> None:
    fgd_paper.draw(
        {"fgd": np.minimum(fgd_paper.GRID, 0.9), "random": np.minimum(fgd_paper.GRID, 0.8)}, tmp_path / "a.svg"
    )
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_fgd_allocates_more_than_best_fit_on_the_real_lists(data_dir: Path) -> None:
    cluster, listed = load_alibaba(), fgd_paper.load_pods("default")
    assert (len(listed), len(cluster.nodes), fgd_paper.gpus_of(cluster)) == (8152, 1523, 6212)
    arrivals = fgd_paper.inflated(listed, 1.05 * 6212, 0)
    full = {
        name: fgd_paper.fill(arrivals, cluster, fgd_paper.policy_of(name, listed), 0).allocated[100]
        for name in ("fgd", "best-fit")
    }
    assert full["fgd"] > full["best-fit"] + 0.01
    assert full["fgd"] > 0.94


def test_alibaba_without_the_data_folder_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WATTFLOW_DATA", str(tmp_path))
    with pytest.raises(MissingData, match="WATTFLOW_DATA"):
        load_alibaba()


@pytest.mark.data
@pytest.mark.usefixtures("data_dir")
def test_alibaba_has_its_1523_nodes() -> None:
    cluster = load_alibaba()
    rows = describe_cluster(cluster)
    assert len(cluster.nodes) == sum(row.count for row in rows) == 1523
    assert len(rows) == 27
    assert sum(len(node.devices) for node in cluster.nodes) == 6212
    assert {node.power.provenance for node in cluster.nodes if node.power} == {Provenance.GUESSED}
    assert {device.sharing for node in cluster.nodes for device in node.devices} == {"mps"}
    node = cluster.nodes[0]
    assert (node.name, node.cores, node.memory_bytes, node.devices) == ("openb-node-0000", 32, 256 * GIB, ())


def test_a_bad_node_list_is_refused_with_all_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,x,1,0,\nb,4000,1,1,H900\nc,4000,1,0,\n")
    with pytest.raises(InvalidInput) as caught:
        load_alibaba(tmp_path / "a.csv")
    assert [problem.where for problem in caught.value.problems] == ["line 2", "line 3"]
    (tmp_path / "b.csv").write_text("sn,cpus\n")
    with pytest.raises(InvalidInput, match="lacks the columns"):
        load_alibaba(tmp_path / "b.csv")

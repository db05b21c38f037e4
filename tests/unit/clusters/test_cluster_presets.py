"""The presets: what each promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wattflow.clusters import describe_cluster, load_cluster, preset_names, write_cluster
from wattflow.clusters.toml_file import preset_text
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import InvalidInput, UnknownName
from wattflow.model.profile import Scope
from wattflow.model.units import GIB
from wattflow.model.workflow import Function, Task, Variant, Workflow
from wattflow.model.workload import Workload
from wattflow.sim import simulate

RECORDED = Path(__file__).parents[3] / "research" / "data" / "h200_clocks.csv"
PACKAGED = ["bench-5000", "bench-64x4", "edge-cloud", "equal", "h200", "hpe", "hpe-2x96", "ichnos", "mixed"]


def test_the_names() -> None:
    assert preset_names() == PACKAGED


@pytest.mark.parametrize("name", PACKAGED)
def test_every_preset_loads_and_says_what_it_is(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert cluster.about
    assert all(node.power is not None and node.power.idle_w <= node.power.full_w for node in cluster.nodes)
    assert all(
        device.power.idle_w <= device.power.full_w and (device.tdp_w is None or device.power.full_w <= device.tdp_w)
        for node in cluster.nodes
        for device in node.devices
    )
    assert preset_text(name).startswith("#")


def test_hpe_starts_190_one_core_jobs_and_all_210_at_80_percent() -> None:
    nodes = load_cluster("hpe").nodes
    assert [(node.cores, node.threads, node.tdp_w) for node in nodes] == [(48, 96, 400.0)] * 4
    assert sum(int(node.request_cores) for node in nodes) == 190
    assert sum(int(node.request_cores / 0.8) for node in nodes) >= 210
    assert sum(len(node.devices) for node in nodes) == 2
    assert {device.model for node in nodes for device in node.devices} == {"A100X"}


def test_hpe_curves_differ_and_bracket_the_papers_mean_power() -> None:
    cluster = load_cluster("hpe")
    curves = [node.power for node in cluster.nodes if node.power is not None]
    assert len({curve.watts for curve in curves}) == 4
    assert {curve.scope for curve in curves} == {Scope.WALL}
    gpus_w = sum(device.power.idle_w for node in cluster.nodes for device in node.devices)
    busy_w = sum(curve.at(node.request_cores) for node, curve in zip(cluster.nodes, curves, strict=True))
    assert gpus_w + sum(curve.idle_w for curve in curves) < 540 < 560 < gpus_w + busy_w < 1000


def test_ichnos_is_package_scope_and_node_by_node_different() -> None:
    cluster = load_cluster("ichnos")
    assert {node.power.scope for node in cluster.nodes if node.power} == {Scope.PACKAGE}
    e5 = [node.power for node in cluster.nodes if node.tdp_w == 190 and node.power]
    assert len({curve.watts for curve in e5}) == len(e5) == 8
    assert all(node.tdp_w and node.power and node.power.full_w <= 1.3 * node.tdp_w for node in cluster.nodes)


def test_ichnos_sleeps_by_assumption_and_can_do_without() -> None:
    cluster = load_cluster("ichnos")
    assert all(node.sleep is not None for node in cluster.nodes)
    assert "sleep assumed" in cluster.about
    assert all(node.sleep is None for node in cluster.without_sleep().nodes)


@pytest.mark.parametrize("name", ["mixed", "hpe", "edge-cloud", "ichnos"])
def test_all_cores_busy_draw_87_percent_of_the_watts_above_idle(name: str) -> None:
    """What load_curve measured, in every preset whose nodes have two threads a core."""
    nodes = [node for node in load_cluster(name).nodes if node.threads_per_core == 2 and node.power]
    assert nodes
    for node in nodes:
        assert node.power is not None
        share = (node.power.at(node.cores) - node.power.idle_w) / (node.power.full_w - node.power.idle_w)
        assert share == pytest.approx(0.87)


def test_mixed_has_what_the_demo_needs() -> None:
    nodes = load_cluster("mixed").nodes
    assert {device.sharing for node in nodes for device in node.devices} == {"mps", "mig", "time-slice", "exclusive"}
    assert {device.kind for node in nodes for device in node.devices} == {"gpu", "fpga"}
    assert all(node.sleep is not None for node in nodes)
    assert any(node.function_speed for node in nodes)
    assert any(len(node.frequencies) > 1 for node in nodes)
    assert {node.architecture for node in nodes} == {"x86_64", "aarch64"}
    assert len({node.speed for node in nodes}) >= 4


def test_edge_cloud_is_strongly_heterogeneous() -> None:
    cluster = load_cluster("edge-cloud")
    speeds = [node.speed for node in cluster.nodes]
    full = [node.power.full_w for node in cluster.nodes if node.power and node.serverless is None]
    assert max(speeds) / min(speeds) >= 5
    assert max(full) / min(full) >= 50
    assert sum(node.sleep is not None for node in cluster.nodes) >= 20
    assert [node.name for node in cluster.nodes if node.serverless] == ["functions"]
    assert all(node.faults for node in cluster.nodes if "spot" in node.features)
    edge, cloud = cluster.zones
    assert edge.carbon_known
    assert edge.carbon.mean > 1.3 * cloud.carbon.mean > 0


def test_the_benchmark_clusters_have_their_shape() -> None:
    small, large = load_cluster("bench-64x4"), load_cluster("bench-5000")
    assert [node.cores for node in small.nodes] == [4] * 64
    assert [row.count for row in describe_cluster(large)] == [250] * 20
    assert len({(row.cores, row.idle_w, row.full_w) for row in describe_cluster(large)}) == 20


def test_rows_describe_a_cluster() -> None:
    rows = {row.label: row for row in describe_cluster(load_cluster("mixed"))}
    assert rows["fast"].count == 3
    assert rows["gpu-mig"].devices == "1 × A100 74.5 GiB (gpu, mig), 1 × T4 14.9 GiB (gpu, time-slice 4)"
    assert rows["epyc"].sleep == "8 W, wakes in 90 s"
    assert rows["epyc"].as_dict()["provenance"] == "modelled"
    assert describe_cluster(load_cluster("bench-64x4"))[0].sleep == "–"


def test_unknown_watts_stay_unknown_in_rows() -> None:
    nodes = tuple(Node(name, 4, GIB) for name in ("a-7", "a-9", "a-11"))
    (row,) = describe_cluster(Cluster("c", nodes))
    assert (row.label, row.count, row.idle_w, row.full_w, row.scope, row.provenance) == ("a", 3, None, None, None, None)
    mixed = describe_cluster(Cluster("c", (Node("x", 4, GIB), Node("y", 4, GIB))))
    assert mixed[0].label == "x …"


def test_a_name_or_a_file(tmp_path: Path) -> None:
    cluster = load_cluster("bench-64x4")
    write_cluster(cluster, tmp_path / "mine.toml")
    assert load_cluster(tmp_path / "mine.toml") == load_cluster(str(tmp_path / "mine.toml")) == cluster
    with pytest.raises(UnknownName, match="did you mean 'mixed'"):
        load_cluster("mixd")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_cluster("mixed.toml")
    with pytest.raises(UnknownName):
        preset_text("alibaba")


def test_h200_has_the_rows_that_were_measured() -> None:
    rows = [line.split(",") for line in RECORDED.read_text().splitlines() if ",clock_mhz," in line]
    found = {(kernel, float(level)): (float(seconds), float(joules)) for kernel, _, level, seconds, joules, *_ in rows}
    (levels,) = {device.levels for node in load_cluster("h200").nodes for device in node.devices}
    assert levels is not None and {one.function for one in levels.functions} == {kernel for kernel, _ in found}
    for one in levels.functions:
        for at, value in enumerate(levels.values):
            measured = np.divide(found[one.function, value], found[one.function, levels.values[0]])
            assert (one.seconds[at], one.joules[at]) == pytest.approx(tuple(measured), abs=1e-4), (one.function, value)


def test_levels_of_h200_save_joules_and_only_of_what_was_measured() -> None:
    gpu = (Variant("gpu", 1, 0, "gpu", 1),)
    for function, saved in (("memory_copy", 0.05), ("stranger", 0.0)):
        work = Workflow("work", (Task("a", "a", function, 100.0, gpu),), functions=(Function(function),))
        on, off = (
            simulate(Workload.of(work), load_cluster("h200"), policy).total_j
            for policy in ("wattflow", "wattflow:levels=off")
        )
        assert on <= (1 - saved) * off + 1e-6 and (saved > 0) == (on < off)

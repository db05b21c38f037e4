"""The sums of the Argo benchmark: makespan and energy from a log, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import kube_argo

    return kube_argo


def test_energy_is_each_nodes_curve_over_the_makespan(bench: ModuleType) -> None:
    curve = bench.resolve_profile(bench.CLASSES[0].profile, bench.CLASSES[0].cores)
    rows = [
        bench.Row("a", "old-0", 2.0, 1.0, 5.0),
        bench.Row("b", "old-0", 1.0, 3.0, 10.0),
    ]
    assert bench.makespan_s(rows) == 10.0
    busy = curve.at(0) * 1 + curve.at(2) * 2 + curve.at(3) * 2 + curve.at(1) * 5
    idle = curve.at(0) * 10
    assert bench.energy_j(bench.Log(rows, {}), ["old-0", "old-1"]) == pytest.approx(busy + idle)
    # asleep from 2 s on, woken at 6 s, asleep again at 9 s: five of the ten seconds
    naps = {"old-1": [(2.0, 6.0), (9.0, float("inf"))]}
    less = 5.0 * (curve.at(0) - bench.kube_naps.ASLEEP_W)
    assert bench.energy_j(bench.Log(rows, naps), ["old-0", "old-1"]) == pytest.approx(busy + idle - less)


def test_a_log_is_read_as_it_was_written(bench: ModuleType, tmp_path: Path) -> None:
    log = bench.Log([bench.Row("a", "old-0", 2.0, 1.0, 5.0, "flow")], {"old-0": [[6.0, float("inf")]]})
    log.write(tmp_path / "log")
    assert bench.Log.read(tmp_path / "log") == log


def test_a_node_sleeps_from_the_hooks_end_until_it_is_woken(bench: ModuleType, tmp_path: Path) -> None:
    words = ("", str(tmp_path / "naps"), "0", "0", "sleep", "n-0")
    bench.kube_naps.main(*words)
    (spans,) = bench.kube_naps.asleep(tmp_path / "naps", 0.0).values()
    assert len(spans) == 1 and spans[0][0] > 1e9 and spans[0][1] == float("inf")


def test_a_task_lasts_its_runtime_divided_by_the_speed_of_its_node(bench: ModuleType) -> None:
    import json

    from wattflow import generate
    from wattflow.traces import documents

    (workflow,) = documents.of_workload(generate.workload("chain", tasks=3, seed=1))[0]
    document = bench.manifest(workflow, "wattflow", 2.0)
    assert document["spec"]["schedulerName"] == "wattflow"
    dag = document["spec"]["templates"][0]["dag"]["tasks"]
    for task, planned in zip(workflow.tasks, dag):
        values = {one["name"]: one["value"] for one in planned["arguments"]["parameters"]}
        seconds = json.loads(values["rig-seconds"])
        assert task.runtime_s is not None
        for one in bench.CLASSES:
            assert seconds[one.name] == pytest.approx(2 * task.runtime_s / one.speed, abs=1e-3)


def test_sections_follow_one_another_where_one_task_separates_them(bench: ModuleType) -> None:
    import graphlib

    from wattflow import generate
    from wattflow.traces import documents

    def ancestors(parents: dict[str, list[str]]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for id in graphlib.TopologicalSorter(parents).static_order():
            found[id] = set().union(*(found[one] | {one} for one in parents[id]))
        return found

    from wattflow.kube.argo.graph import Graph

    (workflow,) = documents.of_workload(generate.workload("montage", tasks=300, seed=1))[0]
    document = bench.manifest(workflow, "wattflow", 1.0)
    assert len(document["spec"]["templates"][0]["dag"]["tasks"]) > 1
    graph = Graph.of(document)
    names = {id: task.annotations["wattflow.io/task-id"] for id, task in graph.tasks.items()}
    nested = {names[id]: [names[one] for one in task.parents] for id, task in graph.tasks.items()}
    assert ancestors(nested) == ancestors({task.id: list(task.parents) for task in workflow.tasks})


def test_a_workflow_without_such_a_task_stays_one_dag(bench: ModuleType) -> None:
    apart = {"a": [], "b": ["a"], "c": ["a"], "d": ["c"]}
    assert bench.kube_sections.sections(apart, least=2) == [["a", "b", "c", "d"]]
    joined = apart | {"e": ["b", "d"], "f": ["e"], "g": ["e", "a"]}
    first, second = bench.kube_sections.sections(joined, least=2)
    assert set(first) == {"a", "b", "c", "d", "e"} and set(second) == {"f", "g"}

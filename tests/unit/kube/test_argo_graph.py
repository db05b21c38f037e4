"""The graph of Argo workflows from their spec alone."""

from __future__ import annotations

import pytest
import yaml

from wattflow.kube.argo.graph import Graph, task_id
from wattflow.model.errors import InvalidInput

LEAF = {"name": "leaf", "container": {"image": "x", "resources": {"requests": {"cpu": "1"}}}}


def workflow(text: str, *more: dict[str, object], name: str = "wf") -> dict[str, object]:
    templates = [*yaml.safe_load(text), LEAF, *more]
    return {"metadata": {"name": name}, "spec": {"entrypoint": templates[0]["name"], "templates": templates}}


def parents(graph: Graph) -> dict[str, tuple[str, ...]]:
    return {id: task.parents for id, task in graph.tasks.items()}


def test_a_diamond_with_both_kinds_of_dependencies() -> None:
    graph = Graph.of(workflow("""
- name: main
  dag:
    tasks:
    - {name: d, template: leaf, depends: "b.Succeeded && (c || c.Failed)"}
    - {name: a, template: leaf}
    - {name: b, template: leaf, dependencies: [a]}
    - {name: c, template: leaf, dependencies: [a]}
"""))  # fmt: skip
    assert parents(graph) == {"wf.a": (), "wf.b": ("wf.a",), "wf.c": ("wf.a",), "wf.d": ("wf.b", "wf.c")}
    assert graph.tasks["wf.a"].requests == {"cpu": "1"}


def test_steps_groups_follow_one_another_and_nest() -> None:
    graph = Graph.of(workflow("""
- name: main
  steps:
  - - {name: one, template: leaf}
    - {name: two, template: inner}
  - - {name: end, template: leaf}
- name: inner
  dag: {tasks: [{name: x, template: leaf}, {name: y, template: leaf, dependencies: [x]}]}
"""))  # fmt: skip
    assert parents(graph) == {
        "wf[0].one": (), "wf[0].two.x": (), "wf[0].two.y": ("wf[0].two.x",), "wf[1].end": ("wf[0].one", "wf[0].two.y"),
    }  # fmt: skip


def test_known_fan_out_is_expanded_with_items_sequence_and_parameter() -> None:
    raw = workflow("""
- name: main
  steps:
  - - {name: a, template: leaf, withItems: [u, {k: 1}]}
  - - {name: b, template: leaf, withSequence: {count: 2}}
  - - {name: c, template: leaf, withParam: "{{workflow.parameters.list}}"}
""")
    raw["spec"]["arguments"] = {"parameters": [{"name": "list", "value": "[1, 2]"}]}  # type: ignore[index]
    graph = Graph.of(raw)
    assert list(graph.tasks) == ["wf[0].a(0)", "wf[0].a(1)", "wf[1].b(0)", "wf[1].b(1)", "wf[2].c(0)", "wf[2].c(1)"]
    assert graph.find("wf[0].a(1:k:1)") == "wf[0].a(1)"


def test_unknown_fan_out_is_a_placeholder_until_pods_appear() -> None:
    graph = Graph.of(workflow("""
- name: main
  dag:
    tasks:
    - {name: list, template: leaf}
    - {name: work, template: inner, withParam: "{{tasks.list.outputs.result}}", dependencies: [list]}
    - {name: end, template: leaf, dependencies: [work]}
- name: inner
  dag: {tasks: [{name: x, template: leaf}, {name: y, template: leaf, dependencies: [x]}]}
"""))  # fmt: skip
    assert graph.tasks["wf.work(*)"].placeholder
    assert graph.tasks["wf.end"].parents == ("wf.work(*)",)
    assert graph.find("wf.work(3:abc).x") == "wf.work(3).x"
    assert graph.tasks["wf.work(3).y"].parents == ("wf.work(3).x",)
    assert graph.tasks["wf.work(3).x"].parents == ("wf.list",)
    assert graph.placeholder_of("wf.work(3).y") == "wf.work(*)"
    assert graph.find("wf.other") is None


def test_template_ref_brings_its_neighbours() -> None:
    raw = workflow("""
- name: main
  steps: [[{name: a, templateRef: {name: shared, template: outer}}]]
""")
    shared = {"spec": {"templates": yaml.safe_load("""
- name: outer
  steps: [[{name: b, template: hidden}]]
- {name: hidden, script: {image: x, source: "true"}}
""")}}  # fmt: skip
    graph = Graph.of(raw, lambda where, wanted, cluster: shared if where == "shared" else None)
    assert list(graph.tasks) == ["wf[0].a[0].b"]
    assert Graph.of(raw).tasks["wf[0].a"].placeholder


def test_suspend_has_no_pod_and_order_passes_through_it() -> None:
    graph = Graph.of(workflow("""
- name: main
  steps:
  - - {name: a, template: leaf}
  - - {name: wait, template: pause}
  - - {name: b, template: leaf, when: "{{x}} == 1"}
- {name: pause, suspend: {}}
"""))  # fmt: skip
    assert parents(graph) == {"wf[0].a": (), "wf[2].b": ("wf[0].a",)}
    assert graph.tasks["wf[2].b"].maybe


def test_recursion_ends_in_a_placeholder() -> None:
    graph = Graph.of(workflow("""
- name: main
  steps: [[{name: again, template: main, when: "{{x}} == 1"}]]
"""))  # fmt: skip
    assert [task.placeholder for task in graph.tasks.values()] == [True]


@pytest.mark.parametrize(
    ("name", "id"),
    [("wf.a(0)", "wf.a"), ("wf.a(2:x y)(1)", "wf.a(2)"), ("wf.a(0:k:v,l:w).b(1)", "wf.a(0).b"), ("wf", "wf")],
)
def test_node_names_become_ids(name: str, id: str) -> None:
    assert task_id(name) == id


def test_what_cannot_run_is_said() -> None:
    with pytest.raises(InvalidInput, match="entrypoint 'none'"):
        Graph.of({"metadata": {"name": "wf"}, "spec": {"entrypoint": "none", "templates": [LEAF]}})
    cycle = workflow("""
- name: main
  dag: {tasks: [{name: x, template: leaf, dependencies: [y]}, {name: y, template: leaf, dependencies: [x]}]}
""")
    with pytest.raises(InvalidInput, match="cycle through x, y"):
        Graph.of(cycle)

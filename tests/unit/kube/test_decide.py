"""The live engine as decider: pods and nodes in Kubernetes' words, through a real engine."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from wattflow.kube import accounting, objects
from wattflow.kube.argo import engine_workflows
from wattflow.kube.argo.graph import GraphTask
from wattflow.kube.argo.watching import ArgoWorkflow, Flows
from wattflow.kube.decider_port import Wanted
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.estimates import FUNCTION
from wattflow.live import Engine
from wattflow.live.shielding import Shielding
from wattflow.model.profile import PowerProfile
from wattflow.policy import portfolio, registry
from wattflow.policy.base import Policy

from .making import node, pod

pytestmark = pytest.mark.slow
CHEAP, DEAR = PowerProfile((0, 4), (50, 70)), PowerProfile((0, 4), (50, 200))


def add(decider: EngineDecider, one: objects.Node, power: PowerProfile | None = CHEAP) -> None:
    decider.set_node(one, accounting.node_allocatable(one), power)


def want(decider: EngineDecider, *pods: objects.Pod) -> None:
    for one in pods:
        decider.want(Wanted(one, accounting.pod_requests(one)))


def chosen(decider: EngineDecider, now_s: float) -> dict[str, str]:
    return {choice.uid.removeprefix("uid-"): choice.node for choice in decider.step(now_s).choices}


def test_the_cheaper_node_first_and_no_more_than_fits() -> None:
    decider = EngineDecider("least-energy")
    add(decider, node("dear"), DEAR)
    add(decider, node("cheap"), CHEAP)
    want(decider, *(pod(f"p{i}", cpu="2") for i in range(5)))
    first = chosen(decider, 1.0)
    assert first == {"p0": "cheap", "p1": "cheap", "p2": "dear", "p3": "dear"}
    for uid in first:
        decider.started(f"uid-{uid}")
    decider.ended("uid-p2")
    assert chosen(decider, 2.0) == {"p4": "dear"}


def test_load_of_others_refusals_and_resizes_count() -> None:
    decider = EngineDecider("least-energy")
    add(decider, node("a"))
    decider.set_load("a", {"cpu": 3000, "memory": 0, "pods": 1})
    want(decider, pod("x", cpu="2"))
    assert chosen(decider, 1.0) == {}
    decider.set_load("a", {"cpu": 1000, "memory": 0, "pods": 1})
    assert chosen(decider, 2.0) == {"x": "a"}
    decider.refused("uid-x", 10.0)
    assert chosen(decider, 3.0) == {}
    assert chosen(decider, 10.0) == {"x": "a"}
    decider.started("uid-x")
    want(decider, pod("y", cpu="1"))
    decider.resized("uid-x", {"cpu": 3000})
    assert chosen(decider, 11.0) == {}
    decider.resized("uid-x", {"cpu": 1000})
    assert chosen(decider, 12.0) == {"y": "a"}


@pytest.mark.parametrize("policy", ["hpe", "wattflow", "learned"])
def test_no_policy_gives_less_than_is_requested(policy: str) -> None:
    decider = EngineDecider(policy)
    add(decider, node("a"))
    want(decider, *(pod(f"p{i}", cpu="1") for i in range(6)))
    assert len(chosen(decider, 1.0)) == 4, "80 % of a request is the admission's business; five would not fit"


@pytest.mark.parametrize("rule", [portfolio.FLAGSHIP, portfolio.SOONEST, portfolio.THRIFT, portfolio.SPREAD])
def test_whatever_a_shield_chooses_places_pods(rule: float) -> None:
    """Requests are whole here, and the flagship's rule took none of these."""
    decider = EngineDecider("kubernetes")
    add(decider, node("n"))
    decider.use(portfolio.PORTFOLIO.with_params(rule=rule))
    want(decider, pod("p"))
    assert chosen(decider, 1.0) == {"p": "n"}


def test_mig_slices_are_counted_by_the_names_of_nvidias_plugin() -> None:
    decider = EngineDecider("least-energy")
    small, large = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
    add(decider, node("cut", allocatable={small: "2", large: "1"}))
    add(decider, node("whole", allocatable={"nvidia.com/gpu": "1"}))
    wishes = {"a": small, "b": small, "c": small, "d": large, "e": "nvidia.com/gpu"}
    for name, slice_ in wishes.items():
        container = {"name": "main", "resources": {"requests": {"cpu": "100m", slice_: "1"}, "limits": {slice_: "1"}}}
        want(decider, pod(name, containers=[container]))
    assert chosen(decider, 1.0) == {"a": "cut", "b": "cut", "d": "cut", "e": "whole"}
    decider.ended("uid-a")
    assert chosen(decider, 2.0) == {"c": "cut"}


def test_a_node_that_goes_takes_its_pods_with_it() -> None:
    decider = EngineDecider("least-energy")
    add(decider, node("a"))
    want(decider, pod("x", cpu="4"))
    assert chosen(decider, 1.0) == {"x": "a"}
    decider.drop_node("a")
    add(decider, node("b"))
    assert chosen(decider, 2.0) == {}, "the pod is bound to a node that is gone; it is not placed again"
    want(decider, pod("y", cpu="4"))
    assert chosen(decider, 3.0) == {"y": "b"}


def test_selectors_taints_and_cordons_are_the_engines_business() -> None:
    decider = EngineDecider("least-energy")
    add(decider, node("plain"))
    add(decider, node("ssd", {"disk": "ssd"}))
    add(decider, node("tainted", {"disk": "ssd"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]))
    add(decider, node("cordoned", {"disk": "ssd"}, unschedulable=True))
    want(decider, pod("a", cpu="4", nodeSelector={"disk": "ssd"}), pod("b", cpu="4", nodeSelector={"disk": "ssd"}))
    assert chosen(decider, 1.0) == {"a": "ssd"}
    assert "1" in decider.why("uid-b")
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cordoned", "tainted"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    want(decider, pod("c", cpu="4", affinity=affinity, tolerations=[{"key": "k", "value": "v"}]))
    assert chosen(decider, 2.0) == {"c": "tainted"}
    add(decider, node("cordoned", {"disk": "ssd"}))
    assert chosen(decider, 3.0) == {"b": "cordoned"}


def test_counts_of_pods_and_extended_resources() -> None:
    decider = EngineDecider("least-energy")
    add(decider, node("a", allocatable={"pods": "3", "example.com/x": "2"}))
    decider.set_load("a", {"cpu": 100, "pods": 1})
    asks = {"name": "c", "resources": {"requests": {"cpu": "100m", "example.com/x": "2"}}}
    want(decider, pod("x", containers=[asks]), pod("y", containers=[asks]), pod("z", cpu="100m"))
    assert chosen(decider, 1.0) == {"x": "a", "z": "a"}
    decider.ended("uid-x")
    assert chosen(decider, 2.0) == {"y": "a"}
    want(decider, pod("w"))
    assert chosen(decider, 3.0) == {}, "the node has its three pods"


def test_only_the_nodes_that_counts_allow() -> None:
    decider = EngineDecider("least-energy")
    for name in ("a", "b"):
        add(decider, node(name))
    one = pod("x", cpu="1")
    decider.want(Wanted(one, accounting.pod_requests(one), nodes=()))
    assert chosen(decider, 1.0) == {}
    decider.want(Wanted(one, accounting.pod_requests(one), nodes=("b",)))
    assert chosen(decider, 2.0) == {"x": "b"}


def member(name: str, size: int = 3) -> objects.Pod:
    one = pod(name, cpu="4")
    notes = {"wattflow.io/gang": "g", "wattflow.io/gang-size": str(size)}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=notes))


@pytest.mark.parametrize("how", ["deleted", "its node is"])
def test_a_gang_that_loses_a_member_while_its_nodes_wake_waits_for_a_full_number(how: str) -> None:
    decider = EngineDecider("least-energy")
    for name in ("a", "b"):
        add(decider, node(name))
    want(decider, member("x", 2), member("y", 2))
    (where,) = {found["x"] for found in [chosen(decider, 1.0)]}
    if how == "deleted":
        decider.ended("uid-x")
    else:
        decider.drop_node(where)
        add(decider, node(where))
    decider.refused("uid-y", 0.0)
    assert chosen(decider, 2.0) == {} and chosen(decider, 3.0) == {}
    assert decider.why("uid-y") == "its gang has 1 of 2 pods"
    want(decider, member("z", 2))
    assert set(chosen(decider, 4.0)) == {"y", "z"}


def test_of_a_gang_whose_last_member_goes_nothing_is_left() -> None:
    decider = EngineDecider("least-energy")
    for name in ("a", "b"):
        add(decider, node(name))
    want(decider, member("x", 2), member("y", 2))
    assert set(chosen(decider, 1.0)) == {"x", "y"}
    decider.ended("uid-x")
    decider.refused("uid-y", 0.0)
    decider.unwant("uid-y")
    assert chosen(decider, 2.0) == {}
    assert not decider.engine.step(3.0).placements


def test_a_gang_starts_whole_or_not_at_all() -> None:
    decider = EngineDecider("least-energy")
    for name in ("a", "b"):
        add(decider, node(name))
    want(decider, member("x"), member("y"))
    assert chosen(decider, 1.0) == {}
    assert decider.why("uid-x") == "its gang has 2 of 3 pods"
    want(decider, member("z"))
    assert chosen(decider, 2.0) == {}, "two nodes for three members"
    add(decider, node("c"))
    choices = decider.step(3.0).choices
    assert {choice.node for choice in choices} == {"a", "b", "c"} and len({choice.group for choice in choices}) == 1
    for choice in choices:
        decider.refused(choice.uid, 0.0)
    assert len(chosen(decider, 4.0)) == 3


WORKFLOW = """
entrypoint: main
priority: 0
templates:
- name: main
  dag: {tasks: [{name: a, template: leaf}, {name: b, template: leaf, dependencies: [a]}, {name: c, template: leaf}]}
- {name: leaf, container: {image: x, resources: {requests: {cpu: 1}}}}
"""


def flow_pod(task: str, flow: str = "wf", cpu: str = "1100m") -> objects.Pod:
    one = pod(f"{flow}-{task}", cpu=cpu)
    notes = {"workflows.argoproj.io/node-name": f"{flow}.{task}"}
    labels = {"workflows.argoproj.io/workflow": flow}
    return msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, annotations=notes, labels=labels)
    )


def submitted(flows: Flows, name: str = "wf", priority: int = 0) -> None:
    spec = yaml.safe_load(WORKFLOW) | {"priority": priority}
    meta = objects.Metadata(name=name, namespace="default")
    flows.on_workflow("ADDED", ArgoWorkflow(metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec))))


def test_tasks_of_a_workflow_are_in_the_engine_before_their_pods_and_wait_for_them() -> None:
    flows = Flows()
    decider = EngineDecider("least-energy", flows=flows)
    add(decider, node("n"))
    submitted(flows)
    want(decider, flow_pod("a"))
    assert chosen(decider, 1.0) == {"wf-a": "n"}
    assert decider.engine.counts["open"] >= 5, "three tasks and their gates are known; only one has a pod"
    assert chosen(decider, 2.0) == {}
    decider.ended("uid-wf-a")
    want(decider, flow_pod("b"), flow_pod("c", cpu="2"))
    assert chosen(decider, 3.0) == {"wf-b": "n", "wf-c": "n"}, "c has another size than guessed and goes by itself"
    for task in ("b", "c"):
        decider.ended(f"uid-wf-{task}")
    decider.step(4.0)
    flows.on_workflow("DELETED", ArgoWorkflow(metadata=objects.Metadata(name="wf", namespace="default")))
    decider.step(5.0)
    assert decider.engine.counts["open"] == 0


@pytest.mark.parametrize("wanted", ["²", "8E", "1e40", "{{inputs.parameters.cpu}}", -1, None, ["x"], 1e300])
def test_a_template_whose_request_cannot_be_read_costs_it_its_request(wanted: object) -> None:
    """Argo's definitions take any text there, and another template's pod opens the whole graph."""
    spec = yaml.safe_load(WORKFLOW)
    for one in spec["templates"]:
        if "container" in one:
            spec["templates"].append({"name": "odd", "container": {"resources": {"requests": {"cpu": wanted}}}})
            break
    dag = next(one["dag"] for one in spec["templates"] if "dag" in one)
    dag["tasks"].append({"name": "z", "template": "odd", "dependencies": ["a"]})
    told: list[str] = []
    flows = Flows(on_unread=lambda workflow, what: told.append(what))
    decider = EngineDecider("least-energy", flows=flows)
    add(decider, node("n"))
    meta = objects.Metadata(name="wf", namespace="default")
    flows.on_workflow("ADDED", ArgoWorkflow(metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec))))
    want(decider, flow_pod("a"))
    assert chosen(decider, 1.0) == {"wf-a": "n"}
    assert all("requests.cpu of template odd" in one for one in told)
    assert bool(told) == (wanted not in ("8E", "1e40", -1))


def test_a_pod_that_argo_made_is_never_held_back_by_our_edges() -> None:
    flows = Flows()
    decider = EngineDecider("least-energy", flows=flows)
    add(decider, node("n"))
    submitted(flows)
    want(decider, flow_pod("b"))
    assert chosen(decider, 1.0) == {"wf-b": "n"}, "Argo says it is ready, though we never saw its parent"


@pytest.mark.parametrize("finish_first", [False, True])
def test_older_workflows_go_first_if_asked_and_priority_goes_before_that(finish_first: bool) -> None:
    flows = Flows()
    decider = EngineDecider("fifo", flows=flows, finish_first=finish_first)
    add(decider, node("n", allocatable={"cpu": "1100m"}))
    submitted(flows, "old")
    submitted(flows, "new")
    submitted(flows, "urgent", priority=5)
    want(decider, flow_pod("a", "new"), flow_pod("a", "old"), flow_pod("a", "urgent"))
    order = []
    for now_s in range(1, 4):
        (found,) = chosen(decider, float(now_s))
        order.append(found)
        decider.ended(f"uid-{found}")
    expected = ["urgent-a", "old-a", "new-a"] if finish_first else ["urgent-a", "new-a", "old-a"]
    assert order == expected


FUNCTIONS = """
entrypoint: main
templates:
- name: main
  dag: {tasks: [{name: a, template: one}, {name: b, template: two, dependencies: [a]}]}
- {name: one, metadata: {annotations: {wattflow.io/function: first}},
   container: {image: x, resources: {requests: {cpu: 1}}}}
- {name: two, metadata: {annotations: {wattflow.io/function: second}},
   container: {image: x, resources: {requests: {cpu: 1}}}}
"""


def test_tasks_of_other_functions_are_part_of_the_workflow_as_well() -> None:
    flows = Flows()
    decider = EngineDecider("least-energy", flows=flows)
    add(decider, node("n"))
    meta = objects.Metadata(name="wf", namespace="default")
    raw = msgspec.Raw(msgspec.json.encode(yaml.safe_load(FUNCTIONS)))
    flows.on_workflow("ADDED", ArgoWorkflow(metadata=meta, spec=raw))
    for number, (task, function) in enumerate((("a", "first"), ("b", "second"))):
        one = flow_pod(task)
        one.metadata.annotations[FUNCTION] = function
        want(decider, one)
        assert chosen(decider, float(number + 1)) == {f"wf-{task}": "n"}
        assert decider._structure is not None and f"uid-wf-{task}" in decider._structure._by_uid, task
        decider.ended(f"uid-wf-{task}")


DATA = """
entrypoint: main
templates:
- name: main
  dag: {tasks: [{name: a, template: one}, {name: b, template: two, dependencies: [a]}]}
- {name: one, metadata: {annotations: {wattflow.io/output-bytes: "4e10"}},
   container: {image: x, resources: {requests: {cpu: 1}}}}
- {name: two, metadata: {annotations: {wattflow.io/input-bytes: "2e10"}},
   container: {image: x, resources: {requests: {cpu: 1}}}}
"""


@pytest.mark.parametrize("data", [False, True])
def test_sizes_of_data_count_where_asked(data: bool) -> None:
    flows = Flows()
    decider = EngineDecider("least-energy", flows=flows, data=data)
    add(decider, node("n"))
    raw = msgspec.Raw(msgspec.json.encode(yaml.safe_load(DATA)))
    flows.on_workflow("ADDED", ArgoWorkflow(metadata=objects.Metadata(name="wf", namespace="default"), spec=raw))
    want(decider, flow_pod("a"))
    decider.step(1.0)
    assert bool(decider.engine.state.rules["has_data"]) == data


def test_no_more_goes_between_two_tasks_than_the_one_writes_and_the_other_reads() -> None:
    def task(**notes: str) -> GraphTask:
        return GraphTask("t", "t", annotations={f"wattflow.io/{key}-bytes": value for key, value in notes.items()})

    assert engine_workflows._bytes_between(task(output="4e10"), task(input="2e10")) == 2e10
    assert engine_workflows._bytes_between(task(output="4e10"), task()) == 4e10
    assert engine_workflows._bytes_between(task(), task(input="7")) == 0.0
    assert engine_workflows._bytes_between(task(output="much"), task(input="7")) == 0.0


def test_a_workflow_whose_objective_is_its_makespan_is_due_at_once() -> None:
    flows = Flows()
    for name, notes in (
        ("fast", {"wattflow.io/objective": "makespan"}),
        ("due", {"wattflow.io/objective": "makespan", "wattflow.io/deadline-s": "60"}),
        ("frugal", {"wattflow.io/objective": "energy"}),
        ("wrong", {"wattflow.io/objective": "beauty", "wattflow.io/deadline-s": "soon"}),
    ):
        meta = objects.Metadata(name=name, namespace="default", annotations=notes)
        spec = msgspec.Raw(msgspec.json.encode(yaml.safe_load(WORKFLOW)))
        flows.on_workflow("ADDED", ArgoWorkflow(metadata=meta, spec=spec))
    assert {key: flow.deadline_s for key, flow in flows.known.items()} == {
        "default/fast": 0.0, "default/due": 60.0, "default/frugal": None, "default/wrong": None,
    }  # fmt: skip


class Answered(Shielding):
    """A rehearsal whose answer is there after the third second."""

    def consider(self, engine: Engine, now_s: float) -> Policy | None:
        return registry.load("least-energy") if now_s == 3.0 else None


def test_what_a_rehearsal_chose_decides_at_once() -> None:
    decider = EngineDecider("fifo", rehearsing=Answered("fifo"))
    add(decider, node("a"), DEAR)
    add(decider, node("b"), CHEAP)
    want(decider, pod("first", cpu="1"))
    assert chosen(decider, 0.0) == {"first": "a"}
    decider.started("uid-first")
    decider.step(1.0)
    decider.ended("uid-first")
    decider.step(2.0)
    want(decider, pod("second", cpu="1"))
    decider.step(3.0)
    assert decider.look_ahead(3.0)
    assert decider.engine.policy.name == "least-energy"
    want(decider, pod("third", cpu="1"))
    assert chosen(decider, 4.0) == {"third": "b"}

"""What an engine answers about itself: `why`, `describe`, `explain`, `known`, `counts`, to the word and the number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from wattflow.live import (
    CANCEL,
    EDGE,
    ESTIMATE,
    FAILED,
    FINISHED,
    LOAD,
    NODE,
    PLACEHOLDER,
    PREEMPT,
    REFUSED,
    SEAL,
    STARTED,
    TASK,
    Apart,
    Constraint,
    Engine,
    Explained,
    Match,
    Power,
    Spread,
    Taint,
    Together,
    Toleration,
    UnknownId,
    Why,
)
from wattflow.model.cluster import Device, Node
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Variant
from wattflow.policy import registry

from .test_engine import CURVE, GIB, engine_with, one_core

SMALL = [Variant(cores=1, memory_bytes=GIB)]


def reasons(engine: Engine, task: int) -> dict[str, int]:
    found = engine.why(task)
    assert found.state == "waiting", found
    return found.reasons


# Why a task waits


def test_why_tells_each_state_of_a_task() -> None:
    engine, _ = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    first = engine.put(TASK, shape, workflow=flow)
    child = engine.put(TASK, shape, workflow=flow)
    engine.put(EDGE, first, child)
    held = engine.put(TASK, PLACEHOLDER, workflow=flow)
    later = engine.put(TASK, shape, release_s=50.0)
    second = engine.put(TASK, shape)
    (one,) = engine.step(1.0).placements
    assert [engine.why(t).state for t in (first, child, held, second)] == [
        "placed",
        "pending",
        "placeholder",
        "waiting",
    ]
    assert engine.why(later) == Why("not arrived", until_s=50.0)
    engine.put(REFUSED, one.attempt, until_s=9.0)
    engine.step(2.0)
    assert engine.why(first) == Why("parked", until_s=9.0) and engine.why(second).state == "placed"
    engine.put(CANCEL, second)
    engine.put(CANCEL, later)
    engine.step(3.0)
    assert engine.why(later).state == "ended", "a task without a workflow is forgotten at its end"
    engine.put(CANCEL, child)
    engine.step(4.0)
    assert engine.why(child).state == "cancelled", "one of an open workflow is remembered"


def test_why_names_the_first_thing_that_keeps_each_node_out() -> None:
    engine = Engine("fifo")
    small = engine.node(Node("small", 1, 8 * GIB))
    engine.node(Node("lean", 8, GIB // 2))
    engine.node(Node("arm", 8, 8 * GIB, architecture="arm64"))
    engine.node(Node("tainted", 8, 8 * GIB), taints=(Taint("mine"),))
    down, draining = (engine.node(Node(name, 8, 8 * GIB)) for name in ("down", "draining"))
    engine.step(0.0)
    engine.put(NODE, down, state=Power.DOWN)
    engine.put(NODE, draining, state=Power.DRAINING)
    task = engine.put(TASK, engine.shape([Variant(cores=2, memory_bytes=GIB, architecture="x86_64")]))
    assert engine.step(1.0).placements == []
    assert reasons(engine, task) == {
        "cores": 1, "memory": 1, "kind of node": 1, "mine": 1, "down": 1, "draining": 1,
    }  # fmt: skip
    assert str(engine.why(task)) == "0/6: 1 cores, 1 down, 1 draining, 1 kind of node, 1 memory, 1 mine"
    engine.pin(task, small)
    assert reasons(engine, task)["pinned to another"] == 3


def test_why_counts_whole_amounts_as_enough() -> None:
    engine, (node,) = engine_with(2)
    engine.put(LOAD, node, cores=1.0, memory_bytes=7 * GIB)
    engine.step(1.0)
    fits = engine.shape([Variant(cores=1, memory_bytes=GIB)])
    more_cores = engine.put(TASK, engine.shape([Variant(cores=1.000001, memory_bytes=GIB)]))
    more_memory = engine.put(TASK, engine.shape([Variant(cores=1, memory_bytes=GIB + 1)]))
    engine.step(2.0)
    assert reasons(engine, more_cores) == {"cores": 1} and reasons(engine, more_memory) == {"memory": 1}
    engine.put(TASK, fits, tag=1)
    assert [one.tag for one in engine.step(3.0).placements] == [1]


def test_a_task_that_some_variant_would_fit_is_held_by_the_policy_and_says_until_when() -> None:
    engine, _ = engine_with(4, 4)
    engine.use(registry.load("power-cap", share=0.01))
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=10.0) for _ in range(2)]
    assert len(engine.step(1.0).placements) == 1
    found = engine.why(tasks[1])
    assert (found.state, found.nodes, found.reasons) == ("held", 2, {}) and str(found) == "held"


def test_why_names_labels_names_taints_and_counted_rules() -> None:
    engine = Engine("fifo")
    engine.node(Node("a", 8, 8 * GIB), labels={"zone": "x"})
    engine.node(Node("b", 8, 8 * GIB), labels={"zone": "y"}, taints=(Taint("k", "v"),))
    engine.step(0.0)

    def waits(**rules: object) -> dict[str, int]:
        rule = engine.constraint(Constraint(**rules))  # type: ignore[arg-type]
        task = engine.put(TASK, engine.shape(SMALL, constraint=rule, groups=("own",) if "spread" in rules else ()))
        engine.step(float(engine.state.clock.now[0]))
        return reasons(engine, task)

    assert waits(nodes=("c",)) == {"another node is named": 1, "k": 1}
    assert waits(any_of=((Match("disk"),),), tolerates=(Toleration("k"),)) == {"disk": 2}
    two = ((Match("zone", "in", ("x",)), Match("gpu")), (Match("zone", "in", ("q",)),))
    assert waits(any_of=two, tolerates=(Toleration(),)) == {"gpu": 1, "zone": 1}
    assert waits(together=(Together("db"),)) == {"together with db": 1, "k": 1}
    busy = engine.shape(SMALL, groups=("web",))
    engine.put(TASK, busy)
    engine.step(1.0)
    assert waits(apart=(Apart("web"),)) == {"apart from web": 1, "k": 1}


def test_operators_of_matches() -> None:
    engine = Engine("fifo")
    node = engine.node(Node("a", 64, 64 * GIB), labels={"n": "5", "word": "x"})
    engine.step(0.0)

    def goes(*matches: Match) -> bool:
        rule = engine.constraint(Constraint(any_of=(matches,)))
        engine.put(TASK, engine.shape(SMALL, constraint=rule))
        return [one.node for one in engine.step(float(engine.state.clock.now[0])).placements] == [node]

    assert goes(Match("n")) and not goes(Match("m"))
    assert goes(Match("m", "absent")) and not goes(Match("n", "absent"))
    assert goes(Match("n", "in", ("4", "5"))) and not goes(Match("n", "in", ("4",)))
    assert goes(Match("m", "not-in", ("4",))) and not goes(Match("n", "not-in", ("4", "5")))
    assert goes(Match("n", "gt", ("4",))) and not goes(Match("n", "gt", ("5",)))
    assert goes(Match("n", "lt", ("6",))) and not goes(Match("n", "lt", ("5",)))
    assert (
        not goes(Match("word", "gt", ("1",))) and not goes(Match("n", "lt", ())) and not goes(Match("m", "lt", ("9",)))
    )


def test_a_toleration_matches_key_value_and_effect_where_they_are_said() -> None:
    engine = Engine("fifo")
    engine.node(Node("a", 64, 64 * GIB), taints=(Taint("k", "v", "NoExecute"),))
    engine.step(0.0)

    def goes(one: Toleration) -> bool:
        rule = engine.constraint(Constraint(tolerates=(one,)))
        engine.put(TASK, engine.shape(SMALL, constraint=rule))
        return bool(engine.step(float(engine.state.clock.now[0])).placements)

    for yes in (Toleration(), Toleration("k"), Toleration("k", "v"), Toleration("", None, "NoExecute")):
        assert goes(yes), yes
    for no in (Toleration("j"), Toleration("k", "w"), Toleration("k", "v", "NoSchedule")):
        assert not goes(no), no


# Present facts


def test_describe_tells_a_node_whole() -> None:
    engine = Engine("fifo")
    node = engine.node(Node("n", 4, 8 * GIB), labels={"a": "1"}, taints=(Taint("t"),), counts={"pods": 3})
    engine.step(0.0)
    engine.put(LOAD, node, cores=0.5, memory_bytes=GIB, counts={"pods": 1})
    engine.step(1.0)
    assert engine.describe(node) == {
        "what": "node", "id": node, "name": "n", "state": "ON", "labels": {"a": "1"}, "taints": [Taint("t")],
        "cores": 4.0, "cores_used": 0.5, "memory_bytes": 8 * GIB, "memory_used_bytes": GIB, "others_cores": 0.5,
        "counts_free": {"pods": 2}, "running": 0, "frequency": 0,
    }  # fmt: skip


def test_describe_tells_a_task_and_its_attempt_whole() -> None:
    engine, (node,) = engine_with(4, max_retries=2)
    shape = engine.shape([Variant(cores=2, memory_bytes=GIB)], "f")
    flow = engine.workflow(submit_s=0.5, deadline_s=77.0, tag=3)
    task = engine.put(TASK, shape, workflow=flow, estimate_s=10.0, release_s=1.0, deadline_s=50.0, input_bytes=9, tag=8)
    waits = engine.put(TASK, shape, workflow=flow, node=node)
    engine.put(EDGE, task, waits)
    (one,) = engine.step(2.0).placements
    assert engine.describe(task) == {
        "what": "task", "id": task, "state": "placed", "tag": 8, "shape": shape, "workflow": flow, "estimate_s": 10.0,
        "release_s": 1.0, "deadline_s": 50.0, "parents_open": 0, "tries": 0, "parts_running": 1, "node": None,
        "input_bytes": 9.0,
    }  # fmt: skip
    told = engine.describe(waits)
    assert (told["state"], told["parents_open"], told["node"], told["estimate_s"]) == ("pending", 1, node, None)
    assert (told["release_s"], told["deadline_s"]) == (None, None)
    attempt = engine.describe(one.attempt)
    assert attempt == {
        "what": "attempt", "id": one.attempt, "task": task, "node": node, "stage": "assumed", "stopping": False,
        "part": 0, "attempt_no": 0, "variant": 0, "cores": 2.0, "memory_bytes": GIB, "devices": 0, "placed_s": 2.0,
        "started_s": None, "expected_end_s": 12.0, "marginal_j": attempt["marginal_j"],
    }  # fmt: skip
    assert engine.describe(flow) == {
        "what": "workflow", "id": flow, "tag": 3, "submit_s": 0.5, "deadline_s": 77.0, "open": 2, "sealed": False,
        "started": True,
    }  # fmt: skip
    engine.put(PREEMPT, one.attempt)
    engine.put(SEAL, flow)
    engine.step(3.0)
    assert engine.describe(one.attempt)["stopping"] is True and engine.describe(flow)["sealed"] is True
    engine.put(FAILED, one.attempt)
    engine.step(4.0)
    assert engine.describe(task)["tries"] == 0, "what was taken back is no try"


def test_describe_tells_a_shape_whole() -> None:
    engine, _ = engine_with(1)
    rule = engine.constraint(Constraint(nodes=("n0",)))
    offers = [Variant(cores=1), Variant(cores=2)]
    shape = engine.shape(offers, "f", 2, 3, rule, {"b": 1, "a": 2}, ("y", "x"))
    for _ in range(2):
        engine.put(TASK, shape)
    engine.step(1.0)
    assert engine.describe(shape) == {
        "what": "shape", "id": shape, "function": "f", "parts": 2, "level": 3, "variants": offers,
        "counts": {"a": 2, "b": 1}, "groups": ["x", "y"], "constraint": Constraint(nodes=("n0",)), "tasks": 2,
        "waiting": 2,
    }  # fmt: skip
    assert engine.describe(engine.put(TASK, PLACEHOLDER))["shape"] == PLACEHOLDER


def test_ids_of_other_kinds_and_rows_that_never_were_are_unknown() -> None:
    engine, (node,) = engine_with(1)
    shape, flow = one_core(engine), engine.workflow()
    task = engine.put(TASK, shape, workflow=flow)
    (one,) = engine.step(1.0).placements
    ahead = 1 << 32  # the same row in a generation that it has not reached
    for identity in (node, task, one.attempt, shape, flow):
        assert engine.describe(identity)["id"] == identity
        with pytest.raises(UnknownId):
            engine.describe(identity + ahead * ((1 << 24) - 1 - (identity // ahead) % (1 << 24)))
    wrong: list[Callable[[], object]] = [
        lambda: engine.put(SEAL, node), lambda: engine.put(FINISHED, node), lambda: engine.put(NODE, task, state=0),
        lambda: engine.put(EDGE, task, node), lambda: engine.put(TASK, task), lambda: engine.put(TASK, shape, node),
        lambda: engine.pin(task, task), lambda: engine.why(node), lambda: engine.explain(shape),
        lambda: engine.drop(task), lambda: engine.prefer([node]), lambda: engine.shape(SMALL, constraint=shape),
        lambda: engine.put(STARTED, one.attempt + 10_000), lambda: engine.put(CANCEL, task + 100_000),
    ]  # fmt: skip
    for call in wrong:
        with pytest.raises(UnknownId):
            call()


# What each candidate would cost


def test_explain_lists_every_candidate_with_its_variant_and_how_many_are_alike() -> None:
    engine = Engine("least-energy")
    curves = [PowerProfile((0.0, 4.0), (10.0, 10.0 + 8 * k)) for k in (1, 2)]
    dear = engine.node(Node("dear", 4, 8 * GIB, power=curves[1]))
    cheap = [engine.node(Node(f"cheap{i}", 4, 8 * GIB, power=curves[0])) for i in range(3)]
    engine.step(0.0)
    engine.put(LOAD, dear, cores=4.0)
    for node in cheap:
        engine.put(LOAD, node, cores=4.0)
    shape = engine.shape([Variant(cores=1), Variant(cores=2, runtime_factor=0.5)])
    task = engine.put(TASK, shape, estimate_s=10.0)
    engine.step(1.0)
    assert engine.explain(task) == []
    for node in (dear, *cheap):
        engine.put(LOAD, node, cores=0.0)
    engine.put(ESTIMATE, task, 20.0)
    found = None
    hand = engine.by_hand()
    hand.open(2.0)
    found = engine.explain(task)
    assert [(one.node in cheap, one.variant, one.alike) for one in found] == [
        (True, 0, 3), (True, 1, 3), (False, 0, 1), (False, 1, 1),
    ]  # fmt: skip
    assert [one.cost for one in found] == sorted(one.cost for one in found)
    assert found[0].cost == pytest.approx(2.0 * 20.0) and found[2].cost == pytest.approx(4.0 * 20.0)
    for one in found:
        assert sum(one.terms.values()) == pytest.approx(one.cost)


def test_moves_are_compared_by_size() -> None:
    one = Explained(1, 0, 2.0, 1, moved={"a": 0.5, "b": -2.0})
    other = Explained(2, 0, 3.0, 1, moved={"a": 0.5, "c": 1.0})
    assert list(one.against(other).items()) == [("b", -2.0), ("c", -1.0)]


# What is known of workflows


def test_known_workflows_are_as_they_were_put() -> None:
    engine, _ = engine_with(1)
    busy = engine.put(TASK, one_core(engine), estimate_s=5.0)
    shape, wide = one_core(engine), engine.shape([Variant(cores=2)], "g", parts=2)
    flow = engine.workflow(submit_s=3.0, deadline_s=100.0)
    a = engine.put(TASK, shape, workflow=flow, estimate_s=7.0, input_bytes=11.0)
    b = engine.put(TASK, wide, workflow=flow, release_s=9.0, deadline_s=60.0)
    c = engine.put(TASK, shape, workflow=flow, estimate_s=8.0, deadline_s=400.0)
    engine.put(EDGE, a, c, size_bytes=5.0)
    engine.put(EDGE, b, c, size_bytes=6.0)
    loose = engine.put(TASK, shape, release_s=20.0, deadline_s=90.0)
    engine.step(4.0)
    row = {task: task & ((1 << 32) - 1) for task in (a, b, c, loose, busy)}
    found = engine.known([int(flow & ((1 << 32) - 1))], [row[loose], row[busy]])
    assert found is not None and len(found) == 5
    assert found.workflow.tolist() == [0, 0, 0, 1, 2] and found.workflow_names == ("0", "1", "2")
    assert found.estimate_s.tolist() == [7.0, 0.0, 8.0, 0.0, 5.0] == found.runtime_s.tolist()
    assert found.release_s.tolist() == [3.0, 9.0, 3.0, 20.0, 4.0]
    assert found.workflow_submit_s.tolist() == [3.0, 20.0, 4.0]
    assert found.deadline_s.tolist() == [100.0, 60.0, 100.0, 90.0, math.inf]
    assert found.input_bytes.tolist() == [11.0, 0.0, 0.0, 0.0, 0.0]
    assert found.parent_start.tolist() == [0, 0, 0, 2, 2, 2] and sorted(found.parent.tolist()) == [0, 1]
    assert dict(zip(found.parent.tolist(), found.parent_bytes.tolist(), strict=True)) == {0: 5.0, 1: 6.0}
    shapes = [found.shapes[k] for k in found.shape.tolist()]
    assert [(one.parts, found.functions[one.function].name) for one in shapes[:3]] == [
        (1, "task"),
        (2, "g"),
        (1, "task"),
    ]
    assert engine.known([]) is None


def test_ranks_and_slack_are_written_when_a_workflow_comes_and_again_when_it_changes() -> None:
    engine = Engine("heft")
    engine.node(Node("n", 1, 8 * GIB, power=CURVE))
    engine.step(0.0)
    shape, flow = one_core(engine), engine.workflow()
    short, long = (engine.put(TASK, shape, workflow=flow, estimate_s=s, tag=int(s)) for s in (1.0, 2.0))
    (one,) = engine.step(1.0).placements
    assert one.tag == 2, "the longer one has the greater rank"
    tail = engine.put(TASK, shape, workflow=flow, estimate_s=100.0, tag=100)
    side = engine.put(TASK, shape, workflow=flow, estimate_s=30.0, tag=30)
    engine.put(EDGE, short, tail)
    assert engine.step(2.0).placements == []
    order = []
    for now in range(3, 6):
        engine.put(FINISHED, one.attempt)
        (one,) = engine.step(float(now)).placements
        order.append(one.tag)
    assert order[0] == 1 and sorted(order) == [1, 30, 100], "what the long tail waits for goes first now"
    assert long and side


@pytest.mark.parametrize("policy", ["heft", "wattflow:order=path"])
def test_workflows_that_come_before_the_first_node_are_ranked_when_it_joins(policy: str) -> None:
    engine = Engine(policy)
    shape = one_core(engine)
    flows = [engine.workflow(), engine.workflow()]
    for flow, seconds in zip(flows, (9.0, 2.0), strict=True):
        engine.put(TASK, shape, workflow=flow, estimate_s=seconds, tag=int(seconds))
        engine.put(TASK, shape, workflow=flow, estimate_s=seconds + 1.0, tag=int(seconds) + 1)
    assert engine.step(0.0).placements == []
    engine.node(Node("n", 1, 8 * GIB, power=CURVE))
    (one,) = engine.step(1.0).placements
    assert one.tag == {"heft": 10, "wattflow:order=path": 2}[policy]


def test_counts_are_of_now() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    for _ in range(3):
        engine.put(TASK, shape)
    assert engine.counts["open"] == 0, "not folded yet"
    (one,) = engine.step(1.0).placements
    found = engine.counts
    assert (found["waiting"], found["running"], found["open"], found["decisions"]) == (2, 1, 3, 1)
    engine.put(FINISHED, one.attempt)
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    found = engine.counts
    assert (found["stale"], found["waiting"], found["running"], found["open"]) == (1, 1, 1, 2)


def test_the_cluster_is_what_is_there_now() -> None:
    engine = Engine("fifo")
    card = Device("gpu", "m", GIB, power=DeviceProfile((0.0, 1.0), (1.0, 2.0)))
    node = engine.node(Node("a", 2, GIB, zone="east", devices=(card,)))
    engine.node(Node("b", 4, GIB))
    engine.step(0.0)
    assert [(one.name, one.zone) for one in engine.cluster.nodes] == [("a", "east"), ("b", "default")]
    assert {zone.name for zone in engine.cluster.zones} == {"east", "default"}
    engine.node(Node("b", 8, 2 * GIB))
    engine.put(NODE, node, state=Power.DOWN)
    engine.step(1.0)
    assert [one.cores for one in engine.cluster.nodes] == [2, 8], "a node that is down is still one of them"


def test_a_spread_that_waits_says_so() -> None:
    engine = Engine("fifo")
    for i in range(2):
        engine.node(Node(f"n{i}", 1 if i else 8, 8 * GIB), labels={"z": str(i)})
    engine.step(0.0)
    rule = engine.constraint(Constraint(spread=(Spread("own", "z"),)))
    shape = engine.shape(SMALL, constraint=rule, groups=("own",))
    tasks = [engine.put(TASK, shape, tag=i) for i in range(4)]
    assert len(engine.step(1.0).placements) == 3
    assert reasons(engine, tasks[3]) == {"spread of own": 1, "cores": 1}
    assert np.isinf(engine.why(tasks[3]).until_s)

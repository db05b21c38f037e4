"""Tables that are full are made larger and nobody notices: everything beyond the rows that there are at first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattflow.engine.validate import validate_state
from wattflow.live import (
    EDGE,
    FINISHED,
    GONE,
    PLACEHOLDER,
    REFUSED,
    SEAL,
    STARTED,
    TASK,
    Apart,
    Constraint,
    Engine,
    Match,
    Taint,
)
from wattflow.live.fork import fork, load, save
from wattflow.live.growth import (
    Extents,
    empty_state,
    grow_attempts,
    grow_nodes,
    grow_tasks,
    grow_workflows,
    grown,
    widened,
)
from wattflow.model.cluster import Device, Frequency, Node
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant

from .test_engine import GIB, engine_with, one_core, tags


def curve(watts: float) -> PowerProfile:
    return PowerProfile((0.0, 1.0, 2.0), (watts, watts + 7.0, watts + 11.0))


def test_more_tasks_attempts_workflows_and_edges_than_rows_at_first() -> None:
    engine, _ = engine_with(600)
    shape = engine.shape([Variant(cores=1, memory_bytes=1)])
    flows = [engine.workflow(submit_s=float(w), deadline_s=1e4 + w, tag=w) for w in range(150)]
    assert len(set(flows)) == 150
    tasks = [engine.put(TASK, shape, workflow=flows[t % 150], estimate_s=1.0 + t, tag=t) for t in range(1500)]
    for child in range(150, 1500):
        engine.put(EDGE, tasks[child - 150], tasks[child], size_bytes=float(child))
    assert len(set(tasks)) == 1500
    told = [engine.describe(flow) for flow in flows]
    assert [(one["tag"], one["submit_s"], one["deadline_s"]) for one in told] == [
        (w, float(w), 1e4 + w) for w in range(150)
    ]
    for layer in range(10):
        step = engine.step(float(layer))
        assert sorted(tags(step)) == list(range(150 * layer, 150 * layer + 150))
        assert [engine.describe(one.task)["tag"] for one in step.placements] == tags(step)
        validate_state(engine.state)
        for one in step.placements:
            engine.put(FINISHED, one.attempt)
    for flow in flows:
        engine.put(SEAL, flow)
    engine.step(100.0)
    assert engine.counts["open"] == engine.counts["running"] == engine.counts["stale"] == 0
    more = [engine.put(TASK, shape, tag=t) for t in range(600)]
    placed = engine.step(101.0).placements
    assert len({one.attempt for one in placed}) == 600 and {one.task for one in placed} == set(more)
    assert all(engine.describe(task)["gone"] for task in tasks), "rows are used again under another generation"


def test_room_that_is_taken_ahead_is_exactly_so_much_and_changes_no_decision() -> None:
    engine, _ = engine_with(4)
    engine.room(tasks=5000, attempts=700)
    assert (len(engine.state.tasks), len(engine.state.attempts)) == (5000, 700)
    engine.room(tasks=10, attempts=10)
    assert (len(engine.state.tasks), len(engine.state.attempts)) == (5000, 700), "never less"
    for tag in range(6):
        engine.put(TASK, one_core(engine), tag=tag)
    assert tags(engine.step(1.0)) == [0, 1, 2, 3]


def test_free_rows_are_taken_in_order_and_the_newest_before_those_that_were_there() -> None:
    state = empty_state()
    for table, head, grow in (
        ("tasks", "free_task", grow_tasks),
        ("attempts", "free_attempt", grow_attempts),
    ):
        rows = getattr(state, table)
        old = len(rows)
        assert list_of(rows.next, int(state.counts[head][0])) == list(range(old))
        grow(state, old + 5)
        rows = getattr(state, table)
        assert list_of(rows.next, int(state.counts[head][0])) == [*range(old, old + 5), *range(old)]
    old = len(state.workflows)
    grow_workflows(state, old + 3)
    order = list_of(state.workflows.first_task, int(state.counts["free_workflow"][0]))
    assert order == [*range(old, old + 3), *range(1, old)], "row 0 is for tasks without a workflow"
    assert (state.workflows.generation[1:] == 1).all() and (state.attempts.generation == 1).all()


def list_of(following: Any, first: int) -> list[int]:
    found = []
    while first >= 0:
        found.append(first)
        first = int(following[first])
    return found


def test_more_nodes_of_one_class_than_its_block_holds_keep_their_constraints() -> None:
    engine = Engine("fifo")
    names = [f"n{i}" for i in range(150)]
    nodes = {}
    rule = engine.constraint(Constraint(any_of=((Match("odd", "in", ("1",)),),)))
    for i, name in enumerate(names):
        nodes[name] = engine.node(Node(name, 1, GIB), labels={"odd": str(i % 2)})
    engine.step(0.0)
    shape = engine.shape([Variant(cores=1, memory_bytes=GIB)], constraint=rule)
    for tag in range(150):
        engine.put(TASK, shape, tag=tag)
    placed = engine.step(1.0).placements
    assert sorted(one.node for one in placed) == sorted(nodes[name] for name in names[1::2])
    for one in placed:
        engine.put(FINISHED, one.attempt)
    for name in names[1:100:2]:
        engine.put(GONE, nodes[name])
    placed = engine.step(2.0).placements
    assert sorted(one.node for one in placed) == sorted(nodes[name] for name in names[101::2])
    validate_state(engine.state)


@pytest.mark.parametrize("others", [3, 64])
def test_a_node_that_leaves_a_class_hands_its_place_on_with_every_bit(others: int) -> None:
    """The last of the class takes its place: names, taints and likings go with it, from another word of bits too."""
    engine = Engine("fifo")
    first = [engine.node(Node(f"n{i}", 1, GIB)) for i in range(others)]
    last = engine.node(Node("last", 1, GIB), labels={"gold": "1"}, taints=(Taint("soft", effect="PreferNoSchedule"),))
    named = engine.constraint(Constraint(nodes=("last",)))
    liked = engine.constraint(Constraint(prefer=((5.0, (Match("gold"),)),)))
    engine.step(0.0)
    engine.put(GONE, first[0])
    engine.step(1.0)
    engine.put(TASK, engine.shape([Variant(cores=1)], constraint=named), tag=1)
    (one,) = engine.step(2.0).placements
    assert one.node == last
    engine.put(FINISHED, one.attempt)
    engine.put(TASK, engine.shape([Variant(cores=1)], constraint=liked), tag=2)
    (two,) = engine.step(3.0).placements
    assert two.node == last
    validate_state(engine.state)


def test_more_classes_functions_and_frequencies_than_columns_at_first() -> None:
    """Each node is of a class of its own and fastest for one function: that is where the task goes."""
    engine = Engine("eft")
    nodes = [
        engine.node(
            Node(
                f"n{i}", 2, 8 * GIB, speed=1.0, function_speed={f"f{i}": 8.0}, power=curve(20.0 + i),
                frequencies=tuple(Frequency(1.0 - 0.01 * k, 1.0 - 0.02 * k) for k in range(i % 7 + 1)),
            )
        )
        for i in range(20)
    ]  # fmt: skip
    engine.step(0.0)
    for i in range(20):
        engine.put(TASK, engine.shape([Variant(cores=1)], f"f{i}"), estimate_s=80.0, tag=i)
    placed = engine.step(1.0).placements
    assert [(one.tag, one.node) for one in placed] == [(i, nodes[i]) for i in range(20)]
    for one in placed:
        told = engine.describe(one.attempt)
        assert told["expected_end_s"] - told["placed_s"] == pytest.approx(10.0)
    assert set(engine.functions) == {f"f{i}" for i in range(20)}
    assert engine.function_name(3) == "f3"
    levels = engine.state.frequency_power.shape[1]
    assert levels >= 7 and engine.state.frequency_power[engine.state.nodes.cls[6], 6] == pytest.approx(0.88)


def test_the_speed_of_a_function_that_comes_later_is_that_of_each_node() -> None:
    engine = Engine("eft")
    engine.node(Node("slow", 2, 8 * GIB, power=curve(1.0)))
    fast = engine.node(Node("fast", 2, 8 * GIB, function_speed={"late": 4.0}, power=curve(1.0)))
    engine.step(0.0)
    engine.put(TASK, engine.shape([Variant(cores=1)], Function("late")), estimate_s=40.0)
    (one,) = engine.step(1.0).placements
    assert one.node == fast and engine.describe(one.attempt)["expected_end_s"] == pytest.approx(11.0)


def test_more_devices_and_kinds_of_them_than_rows_at_first() -> None:
    engine = Engine("least-loaded")
    models = [f"m{i}" for i in range(12)]
    for i, model in enumerate(models):
        card = Device("gpu", model, 8 * GIB, power=DeviceProfile((0.0, 1.0), (10.0 + i, 100.0 + i)))
        engine.node(Node(f"g{i}", 4, 64 * GIB, devices=(card,) * 3))
    engine.step(0.0)
    for i, model in enumerate(models):
        shape = engine.shape([Variant(cores=1, device="gpu", devices=2, device_models=(model,))])
        engine.put(TASK, shape, tag=i)
    placed = engine.step(1.0).placements
    names = {identity: name for name, identity in engine.nodes.items()}
    assert {one.tag: names[one.node] for one in placed} == {i: f"g{i}" for i in range(12)}
    assert all(bin(one.devices).count("1") == 2 and one.devices < 8 for one in placed)
    validate_state(engine.state)
    for one in placed:
        engine.put(FINISHED, one.attempt)
    engine.put(GONE, engine.nodes["g0"])
    engine.step(2.0)
    card = Device("gpu", "new", 8 * GIB, power=DeviceProfile((0.0, 1.0), (10.0, 100.0)))
    engine.node(Node("again", 4, 64 * GIB, devices=(card,) * 3))
    engine.put(TASK, engine.shape([Variant(cores=1, device="gpu", devices=3, device_models=("new",))]), tag=99)
    assert tags(engine.step(3.0)) == [99], "the rows of the devices that left are used again"
    validate_state(engine.state)


def test_more_shapes_and_variants_than_rows_at_first_are_told_apart() -> None:
    engine, _ = engine_with(4)
    shapes = [engine.shape([Variant(cores=1, memory_bytes=i), Variant(cores=2, memory_bytes=i)]) for i in range(90)]
    assert len(set(shapes)) == 90
    assert [engine.describe(shape)["variants"][0].memory_bytes for shape in shapes] == list(range(90))
    assert engine.shape([Variant(cores=1, memory_bytes=5), Variant(cores=2, memory_bytes=5)]) == shapes[5]
    engine.put(TASK, shapes[77], tag=7)
    (one,) = engine.step(1.0).placements
    assert engine.describe(one.attempt)["memory_bytes"] == 77 and one.variant == 0
    for shape in shapes:
        engine.drop(shape)
    assert engine.describe(shapes[77])["tasks"] == 1, "it goes when its last task has ended"
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    assert all(engine.describe(shape).get("gone") for shape in shapes)
    fresh = engine.shape([Variant(cores=3)])
    assert fresh not in shapes and engine.describe(fresh)["variants"][0].cores == 3


def test_more_constraints_counters_and_domains_than_rows_at_first() -> None:
    engine = Engine("fifo")
    for i in range(12):
        engine.node(Node(f"n{i}", 40, 64 * GIB), labels={"rack": str(i // 2)})
    engine.step(0.0)
    shapes = []
    for i in range(40):
        rule = engine.constraint(Constraint(apart=(Apart(f"g{i}", "rack"),)))
        shapes.append(engine.shape([Variant(cores=1, memory_bytes=1)], constraint=rule, groups=(f"g{i}",)))
    for shape in shapes:
        for _ in range(8):
            engine.put(TASK, shape, tag=shape)
    placed = engine.step(1.0).placements
    racks = {engine.nodes[f"n{i}"]: i // 2 for i in range(12)}
    for shape in shapes:
        where = [racks[one.node] for one in placed if one.tag == shape]
        assert sorted(where) == list(range(6)), "one in each rack, and two wait"


def test_a_fork_of_a_grown_engine_grows_on_alone() -> None:
    engine, _ = engine_with(300)
    shape = engine.shape([Variant(cores=1, memory_bytes=1)])
    for tag in range(280):
        engine.put(TASK, shape, tag=tag)
    placed = engine.step(1.0).placements
    copy = fork(engine)
    assert len(copy.state.attempts) < 2 * 280 + 64
    for tag in range(1000, 1020):
        copy.put(TASK, shape, tag=tag)
    assert len(copy.step(2.0).placements) == 20 and engine.counts["running"] == 280
    copy.put(FINISHED, placed[0].attempt)
    engine.put(REFUSED, placed[0].attempt)
    assert [one.tag for one in copy.step(3.0).ended] == [0] and tags(engine.step(3.0)) == [0]
    validate_state(copy.state)
    validate_state(engine.state)


def test_what_was_put_but_not_folded_goes_into_forks_and_files(tmp_path: Path) -> None:
    engine, (node,) = engine_with(2)
    for tag in range(3):
        engine.put(TASK, one_core(engine), tag=tag, release_s=5.0 if tag == 2 else None)
    engine.put(GONE, node)
    save(engine, tmp_path / "saved", notes={"mine": [1, 2]})
    loaded, notes = load(tmp_path / "saved")
    assert notes == {"mine": [1, 2]}
    for each in (fork(engine), loaded, engine):
        assert each.step(1.0).placements == [] and not each.nodes and each.counts["waiting"] == 2
        each.node(Node("other", 4, 8 * GIB))
        assert tags(each.step(2.0)) == [0, 1] and tags(each.step(5.0)) == [2]


def test_a_step_has_room_for_every_action_that_it_may_order() -> None:
    """Each attempt stopped, each node slept and woken, and 64 that a policy asks for: compiled code checks no bound."""
    state = empty_state()
    for grow, rows in ((grow_attempts, 3000), (grow_nodes, 500)):
        grow(state, rows)
        assert len(state.actions) >= len(state.attempts) + 4 * len(state.nodes) + 64


def test_grown_and_widened_tables_keep_what_they_had() -> None:
    assert grown(np.array([1, 2], np.int32), 4, -1).tolist() == [1, 2, -1, -1]
    assert widened(np.array([[1], [2]], np.int32), 3, 7).tolist() == [[1, 7, 7], [2, 7, 7]]


def test_blocks_are_powers_of_two_and_are_given_out_again() -> None:
    extents = Extents(used=1, smallest=2)
    assert [extents.room(count) for count in (0, 1, 2, 3, 4, 5, 8, 9)] == [2, 2, 2, 4, 4, 8, 8, 16]
    assert (extents.take(3), extents.take(1), extents.used) == (1, 5, 7)
    extents.give(1, 3)
    assert (extents.take(4), extents.take(4), extents.used) == (1, 7, 11)


def test_a_placeholder_takes_no_row_of_attempts_and_many_of_them_end_in_one_step() -> None:
    engine, _ = engine_with(1)
    flow = engine.workflow()
    held = [engine.put(TASK, PLACEHOLDER, workflow=flow, tag=t) for t in range(80)]
    last = engine.put(TASK, one_core(engine), workflow=flow, tag=99)
    for one in held:
        engine.put(EDGE, one, last)
    assert engine.step(1.0).placements == [] and engine.describe(last)["parents_open"] == 80
    for one in held[:-1]:
        engine.put(SEAL, one)
    assert engine.step(2.0).placements == [] and engine.describe(last)["parents_open"] == 1
    engine.put(SEAL, held[-1])
    (placed,) = engine.step(3.0).placements
    engine.put(STARTED, placed.attempt)
    engine.step(4.0)
    assert engine.describe(placed.attempt)["started_s"] == 4.0

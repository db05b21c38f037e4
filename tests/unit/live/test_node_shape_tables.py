"""Rows of nodes, classes, devices, shapes and offers, value by value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattflow.engine import tables
from wattflow.live import FINISHED, GONE, LOAD, NODE, STARTED, TASK, BadEvent, Engine, Power, Taint
from wattflow.live.nodebook import _disturbed, intern_bit
from wattflow.live.protocol import row_of
from wattflow.live.shapebook import _distance, _likeness, shape_facts
from wattflow.model.cluster import Cluster, Device, Frequency, Node, Serverless, Sleep, Zone
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.policy.base import Policy

from .test_engine import CURVE, GIB, engine_with, one_core, tags

CARD = Device("gpu", "a", 8 * GIB, power=DeviceProfile((0.0, 1.0), (10.0, 90.0)))


# Nodes


def test_a_new_node_is_down_and_empty_until_its_step() -> None:
    engine = Engine("fifo")
    node = engine.node(Node("n", 4, 3 * GIB, allocatable_cores=3.5), counts={"ports": 7, "slots": 2})
    row = engine.state.nodes[row_of(node)]
    assert (row.capacity_u, row.request_u, row.capacity_mem) == (3_500_000, 3_500_000, 3 * GIB)
    assert (row.power_state, row.used_u, row.alloc_u, row.used_mem, row.running) == (tables.DOWN, 0, 0, 0, 0)
    assert (row.first_attempt, row.first_container, row.pos, row.cls, row.device_n) == (-1, -1, 0, 0, 0)
    assert engine.state.node_counts[0].tolist() == [7, 2, 0, 0, 0, 0, 0, 0]
    assert not engine.state.other_counts[0].any() and engine._nodes.resources == {"ports": 0, "slots": 1}
    engine.step(0.0)
    assert row.power_state == tables.ON


def test_the_row_of_a_node_that_was_used_is_empty_for_the_next() -> None:
    engine, (node,) = engine_with(2)
    engine.resource("ports")
    engine.put(LOAD, node, cores=0.5, memory_bytes=GIB, counts={"ports": 3})
    engine.put(TASK, one_core(engine))
    engine.step(1.0)
    engine.put(GONE, node)
    engine.step(2.0)
    other = engine.node(Node("m", 2, 8 * GIB, power=CURVE))
    row, marks = engine.state.nodes[0], engine.state.node_marks[0]
    assert row_of(other) == 0 and other != node
    assert (row.used_u, row.used_mem, row.running, marks.other_u, marks.other_mem, marks.warming) == (0, 0, 0, 0, 0, 0)
    assert not engine.state.node_counts[0].any() and not engine.state.other_counts[0].any()
    assert (row.first_attempt, row.idle_since, row.on_at) == (-1, 0.0, 0.0)


def test_a_platform_offers_at_most_its_burst() -> None:
    engine = Engine("fifo")
    engine.node(Node("small", 3, GIB, serverless=Serverless(burst=50)))
    engine.node(Node("large", 1000, GIB, serverless=Serverless(burst=50)))
    engine.node(Node("endless", 1000, GIB, serverless=Serverless(burst=10**15)))
    assert engine.state.nodes.capacity_u[:3].tolist() == [3_000_000, 50_000_000, 1_000_000_000]
    assert engine.state.nodes.request_u[:3].tolist() == [3_000_000, 1_000_000_000, 1_000_000_000]
    assert engine.state.rules.limits[0] == 0
    engine.node(Node("short", 10, GIB, serverless=Serverless(burst=50, time_limit_s=900.0)))
    assert engine.state.rules.limits[0] == 1


def test_nodes_that_differ_in_name_cores_or_memory_alone_are_of_one_class() -> None:
    engine = Engine("fifo")
    first = Node("a", 4, GIB, power=CURVE)
    for node in (
        first,
        replace(first, name="b", memory_bytes=9 * GIB),
        replace(first, name="c", allocatable_cores=3.0),
    ):
        engine.node(node)
    engine.node(replace(first, name="d", speed=2.0))
    state = engine.state
    assert state.nodes.cls[:4].tolist() == [0, 0, 0, 1] and state.nodes.pos[:4].tolist() == [0, 1, 2, 0]
    assert state.classes.count[:2].tolist() == [3, 1] and state.classes.room[:2].tolist() == [64, 64]
    assert state.classes.first[:2].tolist() == [0, 64] and state.classes.memory[0] == 9 * GIB
    assert state.class_nodes[[0, 1, 2, 3, 64, 65]].tolist() == [0, 1, 2, -1, 3, -1]
    assert engine._nodes.examples[:3].tolist() == [0, 3, -1]


def test_a_class_has_its_watts_speeds_zone_and_frequencies() -> None:
    base = Cluster("c", (Node("base", 1, GIB, zone="z0"),), (Zone("z0"), Zone("z1")))
    engine = Engine("fifo", base)
    engine.function(Function("f"))
    engine.function(Function("g"))
    levels = (Frequency(), Frequency(0.7, 0.5))
    bent = PowerProfile((0.0, 1.0, 4.0), (50.0, 90.0, 130.0))
    node = Node("n", 4, GIB, speed=2.0, function_speed={"g": 3.0}, power=bent, zone="z1", frequencies=levels)
    engine.node(node)
    engine.node(Node("plain", 4, GIB, zone="other"))
    state = engine.state
    assert state.classes.zone[:3].tolist() == [0, 1, 2]
    assert state.speed[1:3, :3].tolist() == [[2.0, 3.0, 1.0], [1.0, 1.0, 1.0]]
    first, count = int(state.classes.grid_first[1]), int(state.classes.grid_n[1])
    busy = np.arange(count) / state.classes.grid_per_core[1]
    assert state.classes.grid_first[0] == 1 and first >= 2 and busy[-1] == pytest.approx(4.0)
    assert np.allclose(state.grid[first : first + count], np.interp(busy, bent.busy, bent.watts))
    assert (state.classes.grid_n[2], state.classes.grid_per_core[2]) == (1, 0.0)
    assert state.grid[state.classes.grid_first[2]] == 0.0
    assert state.frequency_speed[1:3, :2].tolist() == [[1.0, 0.7], [1.0, 1.0]]
    assert state.frequency_power[1:3, :2].tolist() == [[1.0, 0.5], [1.0, 1.0]]


def test_a_place_that_falls_free_is_the_lasts_and_an_empty_class_goes() -> None:
    engine = Engine("fifo")
    nodes = [engine.node(Node(f"n{i}", 4, GIB)) for i in range(4)]
    engine.node(Node("odd", 4, GIB, speed=3.0))
    engine.step(0.0)
    state = engine.state
    engine.put(GONE, nodes[1])
    engine.step(1.0)
    assert state.class_nodes[:4].tolist() == [0, 3, 2, -1] and state.nodes.pos[:4].tolist() == [0, -1, 2, 1]
    assert state.classes.count[0] == 3 and engine._nodes.examples[0] == 0
    engine.put(GONE, nodes[0])
    engine.step(2.0)
    assert state.class_nodes[:3].tolist() == [2, 3, -1] and engine._nodes.examples[0] == 2
    engine.put(GONE, nodes[3])
    engine.step(3.0)
    assert state.class_nodes[:2].tolist() == [2, -1] and state.nodes.pos[2] == 0
    engine.put(GONE, nodes[2])
    engine.step(4.0)
    assert engine._nodes.examples[:2].tolist() == [-1, 4] and state.classes.count[0] == 0
    assert not state.class_ok[:, 0].any() and list(engine.nodes) == ["odd"]
    engine.node(Node("new", 8, GIB, speed=5.0))
    assert state.nodes.cls[0] == 0 and state.classes.first[0] == 0, "the first class and its places are used again"


def test_variants_suit_a_class_by_its_greatest_node() -> None:
    engine, (small,) = engine_with(2)
    shape = one_core(engine, 4.0)
    first = int(engine.state.shapes.variant_first[row_of(shape)])
    assert engine.state.class_ok[first, 0] == 0
    engine.put(NODE, small, cores=4.0)
    assert engine.state.class_ok[first, 0] == 1
    engine.put(TASK, shape, tag=1)
    assert tags(engine.step(1.0)) == [1]


def test_a_node_that_becomes_another_moves_to_its_class_and_keeps_what_runs() -> None:
    engine = Engine("fifo")
    levels = tuple(Frequency(1.0 - 0.1 * k) for k in range(3))
    nodes = [engine.node(Node(f"n{i}", 4, 8 * GIB, power=CURVE, frequencies=levels)) for i in range(2)]
    engine.put(TASK, one_core(engine))
    engine.step(0.0)
    state = engine.state
    state.nodes.frequency[0] = 2
    engine.node(Node("n0", 4, 8 * GIB, power=CURVE, frequencies=levels[:2], speed=2.0))
    assert state.nodes.cls[:2].tolist() == [1, 0] and state.nodes.pos[:2].tolist() == [0, 0]
    assert state.nodes.frequency[0] == 1 and state.nodes.running[0] == 1, "the last level that it has"
    assert state.classes.count[:2].tolist() == [1, 1] and engine._nodes.examples[:2].tolist() == [1, 0]
    engine.node(Node("n1", 4, 8 * GIB, power=CURVE, frequencies=levels[:2], speed=2.0))
    assert state.nodes.cls[:2].tolist() == [1, 1] and state.classes.count[1] == 2
    assert engine._nodes.examples[:2].tolist() == [-1, 0] and len(engine._nodes._classes) == 1
    assert engine._nodes.changed and nodes
    engine.step(1.0)
    engine.node(Node("n1", 4, 8 * GIB, power=CURVE, frequencies=levels[:2], speed=2.0))
    assert not engine._nodes.changed, "the same again"


def test_counts_of_a_known_node_change_by_the_difference() -> None:
    engine = Engine("fifo")
    node = engine.node(Node("n", 4, 8 * GIB), counts={"ports": 5, "old": 2})
    engine.step(0.0)
    engine.put(TASK, engine.shape([Variant(cores=1)], counts={"ports": 2}))
    engine.step(1.0)
    assert engine.describe(node)["counts_free"] == {"ports": 3, "old": 2}
    assert engine.node(Node("n", 4, 8 * GIB), counts={"ports": 9, "new": 1}) == node
    engine.step(2.0)
    assert engine.describe(node)["counts_free"] == {"ports": 7, "old": 0, "new": 1}


def test_labels_and_taints_that_stay_are_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("fifo")
    taints = (Taint("t"),)
    engine.node(Node("n", 4, 8 * GIB), {"a": "1"}, taints)
    told: list[Any] = []
    monkeypatch.setattr(type(engine._nodes), "relabel", lambda self, *what: told.append(what))
    engine.node(Node("n", 4, 8 * GIB), {"a": "1"}, taints)
    assert told == []
    engine.node(Node("n", 4, 8 * GIB), {"a": "2"}, taints)
    engine.node(Node("n", 4, 8 * GIB), {"a": "1"}, ())
    assert told == [(0, {"a": "2"}, taints), (0, {"a": "1"}, ())]


@pytest.mark.parametrize(
    ("own", "policys", "expected"), [(7.0, None, 7.0), (None, None, np.inf), (7.0, 3.0, 3.0), (None, 3.0, 3.0)]
)
def test_the_time_out_of_sleep_is_the_policys_or_the_nodes(
    own: float | None, policys: float | None, expected: float
) -> None:
    for later in (False, True):
        engine = Engine("fifo")
        policy = Policy("mine", sleep_after_s=policys)
        node = Node("n", 4, 8 * GIB, power=CURVE, sleep=Sleep(2.0, wake_s=5.0, after_s=own))
        if later:
            engine.node(node)
            engine.use(policy)
        else:
            engine.use(policy)
            engine.node(node)
        engine.node(Node("awake", 4, 8 * GIB, power=CURVE))
        assert engine.state.classes.sleep_after_s[0] == expected
        assert engine.state.classes.sleepable[1] == 0 and engine.state.classes.sleep_after_s[1] != 3.0


def test_at_most_63_names_have_a_bit() -> None:
    names: dict[str, int] = {}
    assert [intern_bit(names, f"m{k}", "models") for k in range(63)] == list(range(63))
    assert intern_bit(names, "m5", "models") == 5
    with pytest.raises(BadEvent, match="at most 63 different models are supported; 'more' is one too many"):
        intern_bit(names, "more", "models")
    assert len(names) == 63


def test_devices_stay_and_take_over_how_tasks_disturb_each_other() -> None:
    other = replace(CARD, model="b", interference=0.5)
    assert _disturbed((CARD,), (other,)) == (replace(CARD, interference=0.5),)
    assert _disturbed((CARD, CARD), (other,)) == (CARD, CARD) and _disturbed((), ()) == ()


def test_device_rows_of_a_node_that_is_gone_are_used_again() -> None:
    engine = Engine("fifo")
    nodes = [engine.node(Node(f"n{i}", 4, 8 * GIB, devices=(CARD,) * count)) for i, count in enumerate((2, 1, 4))]
    assert engine.state.nodes.device_first[:3].tolist() == [0, 2, 3]
    engine.step(0.0)
    engine.put(GONE, nodes[0])
    engine.step(1.0)
    engine.node(Node("next", 4, 8 * GIB, devices=(CARD,)))
    engine.node(Node("same", 4, 8 * GIB, devices=(CARD,) * 2))
    assert engine.state.nodes.device_first[[0, 3]].tolist() == [7, 0]
    assert engine.state.devices.node[[0, 1, 7]].tolist() == [3, 3, 0]


# Shapes


def test_a_new_shape_is_empty_and_the_first_free_row() -> None:
    engine = Engine("fifo")
    first = engine.shape([Variant(cores=1), Variant(cores=2)], "f", parts=2, level=3)
    entry = engine.state.shapes[row_of(first)]
    assert row_of(first) == 1 and (entry.function, entry.parts, entry.level, entry.constraint) == (0, 2, 3, 0)
    assert (entry.tasks, entry.head, entry.tail, entry.waiting, entry.failed, entry.ghosts) == (0, -1, -1, 0, 0, 0)
    assert (entry.variant_first, entry.variant_n) == (0, 2)
    second = engine.shape([Variant(cores=3)], "g")
    assert row_of(second) == 2 and engine.state.shapes.variant_first[2] == 2
    engine.drop(first)
    third = engine.shape([Variant(cores=4), Variant(cores=5)])
    assert row_of(third) == 1 and third != first and engine.state.shapes.variant_first[1] == 0


def test_equal_shapes_are_one_in_whatever_order_they_are_told() -> None:
    variants = [Variant(cores=1)]
    one = shape_facts(variants, "f", 1, 0, 0, {"b": 1, "a": 2}, ("y", "x"))
    assert one == shape_facts(variants, "f", 1, 0, 0, {"a": 2, "b": 1}, ("x", "y"))
    assert one.counts == (("a", 2), ("b", 1)) and one.groups == ("x", "y")
    engine = Engine("fifo")
    first = engine.shape(variants, counts={"b": 1, "a": 2}, groups=("y", "x"))
    assert first == engine.shape(variants, counts={"a": 2, "b": 1}, groups=("x", "y"))
    engine.drop(first)
    assert engine.shape(variants, groups=("x",)) != first


def test_a_shape_that_is_asked_for_again_is_not_dropped() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    engine.put(TASK, shape)
    (one,) = engine.step(1.0).placements
    engine.drop(shape)
    assert engine._shapes.dropped == {row_of(shape)}
    assert one_core(engine) == shape and engine._shapes.dropped == set()
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    assert one_core(engine) == shape
    engine.drop(shape)
    assert engine._shapes.dropped == set() and engine._shapes.facts == {}


def test_shapes_and_variants_double() -> None:
    engine = Engine("fifo")
    for number in range(8):
        engine.shape([Variant(cores=1 + k + 10 * number) for k in range(8)])
    state = engine.state
    assert len(state.shapes) == 16 == len(state.active_shapes) and len(state.variants) == 64
    assert (state.shapes.generation == 1).all()
    engine.shape([Variant(cores=500)])
    assert len(state.variants) == len(state.class_ok) == len(state.variant_counts) == 2 * 65
    assert state.variants.need_u[64] == 500_000_000 and engine._nodes.variants_used == 65


def test_a_variant_row_has_its_needs_counts_and_nothing_of_the_shape_before() -> None:
    engine = Engine("fifo")
    engine.node(Node("n", 4, 8 * GIB, architecture="arm", features=("x", "y"), devices=(CARD,)))
    rich = Variant("v", 2, GIB, "gpu", 1, 0.5, GIB, device_models=("a",), architecture="arm", features=("y",))
    first = engine.shape([rich], counts={"ports": 3})
    state = engine.state
    row = state.variants[0]
    names = engine._nodes.names
    assert (row.need_u, row.memory, row.devices, row.board, row.origin) == (2_000_000, GIB, 1, -1, 0)
    assert row.architecture == names.architectures["arm"] and row.features == 1 << names.features["y"]
    assert state.variant_counts[0].tolist() == [3] + [0] * 7 and row.counts_n == 1
    engine.drop(first)
    engine.shape([Variant(cores=1)])
    row = state.variants[0]
    assert (row.need_u, row.memory, row.devices, row.architecture, row.features, row.counts_n) == (
        1_000_000,
        0,
        0,
        -1,
        0,
        0,
    )
    assert not state.variant_counts[0].any() and row.device == tables.NO_DEVICE


def test_a_shape_in_the_rows_of_one_that_is_gone_leaves_its_neighbours_as_they_are() -> None:
    engine = Engine("fifo")
    first = engine.shape([Variant(cores=1)])
    engine.shape([Variant(cores=2, memory_bytes=GIB)], counts={"ports": 3})
    before = engine.state.variants[1:2].tobytes()
    engine.drop(first)
    engine.shape([Variant(cores=3)])
    assert engine.state.variants.need_u[0] == 3_000_000 and engine.state.variants[1:2].tobytes() == before


def test_variants_that_need_the_same_are_alike_across_shapes_and_others_are_not() -> None:
    engine = Engine("fifo")
    engine.shape([Variant(cores=1), Variant(cores=2)])
    engine.shape([Variant(cores=2)], parts=2)
    engine.shape([Variant(cores=2)], counts={"ports": 1})
    state = engine.state
    likes = [int(state.variants.likeness[v]) for v in range(4)]
    assert likes[1] == likes[2] and len({likes[0], likes[1], likes[3]}) == 3 and all(one % 2 == 1 for one in likes)
    assert max(one.bit_length() for one in likes) <= 64
    assert _likeness(state.variants[1], state.variant_counts[1]) == likes[1]


def test_a_function_with_a_cold_start_needs_containers_and_one_without_none() -> None:
    engine = Engine("fifo")
    engine.function(
        Function(
            "warm", cold_start_s=0.0, compute_bound=0.5, failure_rate=0.25, checkpoint_s=7.0, checkpoint_cost_s=2.0
        )
    )
    row = engine.state.functions[0]
    assert (row.compute_bound, row.failure_rate, row.checkpoint_s, row.checkpoint_cost_s) == (0.5, 0.25, 7.0, 2.0)
    assert engine.state.rules.cold[0] == 0 and len(engine.state.containers) == 1
    engine.function(Function("cold", cold_start_s=1.5))
    assert engine.state.rules.cold[0] == 1 and len(engine.state.containers) == 1 << 16
    assert engine.state.counts.free_container[0] == 0 and engine.state.functions.cold_start_s[:2].tolist() == [0.0, 1.5]
    engine.state.counts["free_container"] = 5
    engine.function(Function("colder", cold_start_s=2.5))
    assert engine.state.counts.free_container[0] == 5, "the containers that there are stay"
    assert engine.functions["cold"].cold_start_s == 1.5
    engine.shape([Variant(cores=1)], "cold")
    assert engine.functions["cold"].cold_start_s == 1.5, "a name alone changes nothing"
    engine.shape([Variant(cores=1)], "new")
    assert engine.state.functions.compute_bound[3] == 1.0 and list(engine.functions) == [
        "warm",
        "cold",
        "colder",
        "new",
    ]


def test_offers_are_as_far_apart_as_variant_guarantee_and_level() -> None:
    engine = Engine("fifo")
    engine.shape([Variant(cores=1), Variant(cores=2)])
    a, b = engine.state.variants[0], engine.state.variants[1]
    assert _distance(a, a) == (False, 0.0, False) and _distance(a, b) == (True, 0.0, False)
    b.origin, b.guarantee, b.frequency = a.origin, 0.25, a.frequency + 1
    assert _distance(a, b) == (False, 0.75, True)
    b.frequency, b.level = a.frequency, a.level + 1
    assert _distance(b, a) == (False, 0.75, True)


def test_attempts_that_run_are_named_by_the_offers_of_the_policy_in_use() -> None:
    engine, _ = engine_with(8)
    other = engine.shape([Variant(cores=4)])
    shape = engine.shape([Variant(cores=9), Variant(cores=2)])
    engine.put(TASK, shape, tag=1)
    engine.put(TASK, other, tag=2)
    placed = {one.tag: one for one in engine.step(1.0).placements}
    for one in placed.values():
        engine.put(STARTED, one.attempt)
    engine.step(2.0)
    for name in ("kubernetes", "wattflow", "fifo"):
        engine.use(name)
        state = engine.state
        for tag, (form, origin) in {1: (shape, 1), 2: (other, 0)}.items():
            v = int(state.attempts.variant[row_of(placed[tag].attempt)])
            first, count = int(state.shapes.variant_first[row_of(form)]), int(state.shapes.variant_n[row_of(form)])
            assert first <= v < first + count and state.variants.origin[v] == origin, name
            assert engine.describe(placed[tag].attempt)["variant"] == origin
    assert engine.describe(placed[1].attempt)["cores"] == 2.0


def test_a_state_that_is_none_is_refused_and_power_has_its_names() -> None:
    engine, (node,) = engine_with(1)
    with pytest.raises(BadEvent, match="NODE: 99 is no state of a node"):
        engine.put(NODE, node, state=99)
    for state in (Power.DRAINING, Power.ON, Power.DOWN):
        engine.put(NODE, node, state=state)
        engine.step(1.0)
        assert engine.describe(node)["state"] == state.name


def test_nothing_of_one_amount_alone_is_told_and_leaves_the_other() -> None:
    engine, nodes = engine_with(2, 2)
    engine.put(NODE, nodes[0], cores=0.0)
    engine.put(NODE, nodes[1], memory_bytes=0)
    engine.step(1.0)
    told = [engine.describe(node) for node in nodes]
    assert [(one["cores"], one["memory_bytes"]) for one in told] == [(0.0, 8 * GIB), (2.0, 0)]
    engine.put(NODE, nodes[0], cores=1.0)
    engine.put(NODE, nodes[1], memory_bytes=1)
    engine.step(2.0)
    told = [engine.describe(node) for node in nodes]
    assert [(one["cores"], one["memory_bytes"]) for one in told] == [(1.0, 8 * GIB), (2.0, 1)]


def test_others_use_of_the_first_resource_is_no_use_of_cores() -> None:
    engine = Engine("fifo")
    node = engine.node(Node("n", 4, 8 * GIB), counts={"first": 5, "second": 7})
    engine.step(0.0)
    engine.put(LOAD, node, cores=1.0, memory_bytes=GIB, counts={"first": 1, "second": 3})
    engine.step(1.0)
    told = engine.describe(node)
    assert told["counts_free"] == {"first": 4, "second": 4} and told["others_cores"] == 1.0
    assert (told["cores_used"], told["memory_used_bytes"]) == (1.0, GIB)
    engine.put(LOAD, node, counts={"first": 2})
    engine.step(2.0)
    told = engine.describe(node)
    assert told["counts_free"] == {"first": 3, "second": 4} and told["others_cores"] == told["cores_used"] == 0.0
    engine.node(Node("n", 4, 8 * GIB), counts={"first": 6, "second": 7})
    engine.step(3.0)
    assert engine.describe(node)["counts_free"] == {"first": 4, "second": 4}

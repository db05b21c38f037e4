"""A node that is there is told anew: another speed, curve or sleep state counts from the next decision on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wattflow.engine.validate import validate_state
from wattflow.live import FINISHED, NODE, TASK, Constraint, Engine, Match, Power
from wattflow.model.cluster import Node, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant

GIB = 1 << 30
CURVE = PowerProfile((0.0, 4.0), (50.0, 130.0))
LEAN = PowerProfile((0.0, 4.0), (50.0, 60.0))
NODES = tuple(Node(f"n{i}", 4, 8 * GIB, power=CURVE) for i in range(3))


def engine_of(policy: str, nodes: tuple[Node, ...] = NODES) -> tuple[Engine, list[int], int]:
    engine = Engine(policy)
    ids = [engine.node(node) for node in nodes]
    engine.step(0.0)
    return engine, ids, engine.shape([Variant(cores=1.0, memory_bytes=GIB)])


@pytest.mark.parametrize(
    ("policy", "change"), [("least-energy", {"power": LEAN}), ("eft", {"speed": 2.0}), ("least-energy", {"speed": 4.0})]
)
def test_what_is_learned_of_a_node_decides(policy: str, change: dict[str, object]) -> None:
    engine, ids, shape = engine_of(policy)
    engine.put(TASK, shape, estimate_s=100.0, tag=0)
    (first,) = engine.step(1.0).placements
    assert first.node == ids[0]
    assert engine.node(replace(NODES[2], **change)) == ids[2]  # type: ignore[arg-type]
    for tag in range(1, 4):
        engine.put(TASK, shape, estimate_s=100.0, tag=tag)
        (placed,) = engine.step(1.0 + tag).placements
        assert placed.node == ids[2]
    validate_state(engine.state)


def test_what_runs_on_it_goes_on() -> None:
    engine, _, shape = engine_of("least-energy")
    engine.put(TASK, shape, estimate_s=100.0, tag=7)
    (placed,) = engine.step(1.0).placements
    used = engine.state.nodes.used_u.copy()
    engine.node(replace(NODES[0], speed=3.0, power=LEAN))
    engine.step(2.0)
    assert (engine.state.nodes.used_u == used).all() and engine.counts["running"] == 1
    validate_state(engine.state)
    engine.put(FINISHED, placed.attempt)
    (ended,) = engine.step(3.0).ended
    assert ended.tag == 7 and engine.state.nodes.used_u.sum() == 0
    validate_state(engine.state)


def test_labels_and_a_constraint_hold_in_the_new_class() -> None:
    engine = Engine("least-loaded")
    ids = [engine.node(node, labels={"disk": "ssd" if i else "none"}) for i, node in enumerate(NODES)]
    only = engine.constraint(Constraint(any_of=((Match("disk", "in", ("ssd",)),),)))
    shape = engine.shape([Variant(cores=4.0, memory_bytes=GIB)], constraint=only)
    engine.step(0.0)
    for i, speed in ((1, 2.0), (0, 3.0), (2, 4.0)):
        engine.node(replace(NODES[i], speed=speed), labels={"disk": "ssd" if i else "none"})
    for tag in range(3):
        engine.put(TASK, shape, tag=tag)
    placed = engine.step(1.0).placements
    assert sorted(one.node for one in placed) == sorted(ids[1:])
    validate_state(engine.state)


def test_a_node_that_sleeps_stays_asleep() -> None:
    nodes = tuple(replace(node, sleep=Sleep(3.0, 5.0, 1.0, 40.0, after_s=10.0)) for node in NODES)
    engine, ids, _ = engine_of("least-energy", nodes)
    engine.step(20.0)
    engine.put(NODE, ids[0], state=Power.ASLEEP)
    engine.step(21.0)
    before = int(engine.state.nodes.power_state[0])
    engine.node(replace(nodes[0], sleep=Sleep(1.0, 50.0, 1.0, 40.0, after_s=10.0)))
    engine.step(22.0)
    assert int(engine.state.nodes.power_state[0]) == before
    assert float(engine.state.classes.wake_s[int(engine.state.nodes.cls[0])]) == 50.0
    validate_state(engine.state)


def test_thousands_of_changes_leak_no_classes() -> None:
    engine, _, shape = engine_of("least-energy")
    for turn in range(1, 3001):
        engine.node(replace(NODES[turn % 3], speed=1.0 + turn / 1000))
    engine.put(TASK, shape, tag=1)
    assert len(engine.step(1.0).placements) == 1
    assert len(engine.state.classes) <= 16 and len(engine.state.class_nodes) <= 1024
    validate_state(engine.state)

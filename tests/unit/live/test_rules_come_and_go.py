"""Counted rules, preferences and rows of a hand over a long life: tables are written anew, and nothing is forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.engine.validate import validate_state
from wattflow.live import (
    FINISHED,
    GONE,
    TASK,
    Apart,
    Constraint,
    Engine,
    Match,
    Placement,
    Spread,
    Taint,
    Together,
)
from wattflow.live.caller_choice import NONE, PLACE, SLEEP, WAIT, WAKE
from wattflow.live.fork import fork
from wattflow.model.cluster import Node, Sleep
from wattflow.model.workflow import Variant

from .test_engine import CURVE, GIB, one_core

SMALL = [Variant(cores=1, memory_bytes=1)]


def named(engine: Engine, placed: list[Placement]) -> list[str]:
    names = {identity: name for name, identity in engine.nodes.items()}
    return sorted(names[one.node] for one in placed)


def ended(engine: Engine, placed: list[Placement], now_s: float) -> list[Placement]:
    for one in placed:
        engine.put(FINISHED, one.attempt)
    return list(engine.step(now_s).placements)


def test_rules_that_come_and_go_by_the_hundred_leave_those_that_stay_as_they_are() -> None:
    engine = Engine("fifo")
    for i in range(4):
        engine.node(Node(f"n{i}", 8, 8 * GIB), labels={"zone": str(i % 2)})
    stays = engine.constraint(Constraint(apart=(Apart("web", "zone"),)))
    web = engine.shape(SMALL, constraint=stays, groups=("web",))
    engine.put(TASK, web, tag=1)
    kept = list(engine.step(0.0).placements)
    for turn in range(120):
        rule = engine.constraint(Constraint(apart=(Apart(f"g{turn}"),), spread=(Spread(f"g{turn}", "zone"),)))
        shape = engine.shape(SMALL, constraint=rule, groups=(f"g{turn}", "web") if turn % 3 == 0 else (f"g{turn}",))
        engine.drop(rule)
        engine.drop(shape)
    engine.step(1.0)
    assert len(engine.state.conditions) < 400 and len(engine.state.counted) < 400, "rows out of use are used again"
    engine.put(TASK, web, tag=2)
    engine.put(TASK, web, tag=3)
    more = list(engine.step(2.0).placements)
    assert [one.tag for one in more] == [2], "one in each zone: the third waits"
    zones = {name: int(name[1:]) % 2 for name in engine.nodes}
    assert {zones[name] for name in named(engine, kept + more)} == {0, 1}
    assert [one.tag for one in ended(engine, kept, 3.0)] == [3]
    validate_state(engine.state)


def test_labels_that_change_all_the_time_are_numbered_anew_and_counted_right() -> None:
    engine = Engine("fifo")
    engine.node(Node("fixed", 8, 8 * GIB), labels={"rack": "r0"})
    rule = engine.constraint(Constraint(apart=(Apart("own", "rack"),)))
    own = engine.shape(SMALL, constraint=rule, groups=("own",))
    engine.put(TASK, own, tag=1)
    first = list(engine.step(0.0).placements)
    for turn in range(1, 200):
        name = f"short{turn}"
        node = engine.node(Node(name, 8, 8 * GIB), labels={"rack": f"r{turn}"})
        engine.put(TASK, own, tag=turn)
        (one,) = engine.step(float(turn)).placements
        assert one.node == node, "the only rack that is free"
        engine.put(FINISHED, one.attempt)
        engine.put(GONE, node)
        engine.step(turn + 0.5)
    engine.node(Node("twin", 8, 8 * GIB), labels={"rack": "r0"})
    engine.put(TASK, own, tag=500)
    assert engine.step(300.0).placements == [], "its rack is taken"
    assert [one.tag for one in ended(engine, first, 301.0)] == [500]


def test_a_relabelled_node_takes_its_running_tasks_to_the_other_domain() -> None:
    engine = Engine("fifo")
    for name, zone in (("a", "x"), ("b", "y")):
        engine.node(Node(name, 8, 8 * GIB), labels={"zone": zone})
    pair = engine.constraint(Constraint(together=(Together("db", "zone"),)))
    db = engine.shape(SMALL, constraint=engine.constraint(Constraint(nodes=("a",))), groups=("db",))
    near = engine.shape(SMALL, constraint=pair)
    engine.put(TASK, db)
    engine.step(0.0)
    engine.node(Node("a", 8, 8 * GIB), labels={"zone": "z"})
    engine.node(Node("c", 8, 8 * GIB), labels={"zone": "x"})
    engine.put(TASK, near)
    assert named(engine, list(engine.step(1.0).placements)) == ["a"], "nobody of the group is in x any more"
    engine.node(Node("a", 8, 8 * GIB), labels={})
    engine.put(TASK, near)
    assert engine.step(2.0).placements == [], "a node without the label is in no domain"


def test_preferences_are_kept_through_forks_and_when_nodes_change() -> None:
    engine = Engine("fifo")
    for i in range(3):
        engine.node(Node(f"n{i}", 1, 8 * GIB), labels={"tier": str(i)})
    likes = Constraint(prefer=((2.0, (Match("tier", "in", ("1",)),)), (5.0, (Match("tier", "in", ("2",)),))))
    shape = engine.shape(SMALL, constraint=engine.constraint(likes))
    for tag in range(2):
        engine.put(TASK, shape, tag=tag)
    engine.step(0.0)
    copy = fork(engine)
    for each in (engine, copy):
        placed = [each.describe(each.nodes[f"n{i}"])["running"] for i in range(3)]
        assert placed == [0, 1, 1]
    engine.node(Node("n0", 1, 8 * GIB), labels={"tier": "2"}, taints=(Taint("slow", effect="PreferNoSchedule"),))
    engine.node(Node("n3", 1, 8 * GIB), labels={"tier": "2"})
    engine.put(TASK, shape, tag=5)
    assert named(engine, list(engine.step(1.0).placements)) == ["n3"], "a soft taint takes one off"


def test_the_liked_node_of_equal_cost_stands_first_among_the_rows_of_a_hand() -> None:
    def made() -> tuple[Engine, int]:
        engine = Engine("least-energy")
        for i in range(4):
            engine.node(Node(f"n{i}", 2, 8 * GIB, power=CURVE), labels={"gold": "1"} if i == 2 else {})
        engine.step(0.0)
        rule = engine.constraint(Constraint(prefer=((1.0, (Match("gold"),)),)))
        return engine, engine.put(TASK, engine.shape(SMALL, constraint=rule), estimate_s=10.0)

    engine, _ = made()
    (one,) = engine.step(1.0).placements
    assert named(engine, [one]) == ["n2"]
    for rows in (1, 2, 16):
        engine, task = made()
        hand = engine.by_hand(rows=rows)
        hand.open(1.0)
        wanted, shown = hand.wanted()
        assert wanted == task and int(shown[0]["node"]) == engine.nodes["n2"]
        assert len(shown) + hand.lost == 2, "equal nodes are one row, but for the one that is liked"
        assert shown[0]["kind"] == PLACE and shown[0]["task"] == task
        hand.wanted(0)
        assert [p.node for p in hand.close().placements] == [engine.nodes["n2"]]


def test_a_hand_that_waits_leaves_the_task_and_one_that_chooses_another_row_places_there() -> None:
    engine = Engine("least-energy")
    for i, cores in enumerate((2, 4, 8)):
        engine.node(Node(f"n{i}", cores, 8 * GIB, power=CURVE))
    engine.step(0.0)
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=10.0, tag=t) for t in range(2)]
    hand = engine.by_hand()
    hand.open(1.0)
    task, rows = hand.wanted()
    assert task == tasks[0] and len(rows) == 3
    assert list(rows["cost"]) == sorted(rows["cost"]) or rows["cost"][0] == rows["cost"].min()
    last = int(rows["node"][-1])
    task, rows = hand.wanted(len(rows) - 1)
    assert task == tasks[1]
    task, rows = hand.wanted(NONE)
    assert task == -1 and len(rows) == 0
    step = hand.close()
    assert [(one.task, one.node) for one in step.placements] == [(tasks[0], last)]
    assert engine.counts["waiting"] == 1
    assert [one.task for one in engine.step(2.0).placements] == [tasks[1]]


def test_joint_rows_let_nodes_sleep_and_wake_by_hand() -> None:
    engine = Engine("least-energy")
    sleep = Sleep(2.0, wake_s=5.0, enter_s=1.0)
    nodes = [engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE, sleep=sleep)) for i in range(2)]
    engine.step(0.0)
    engine.put(TASK, one_core(engine), estimate_s=10.0)
    hand = engine.by_hand(joint=True)
    hand.open(1.0)
    _, rows = hand.wanted()
    kinds = [int(kind) for kind in rows["kind"]]
    assert kinds.count(PLACE) == 2 and kinds.count(WAIT) == 1 and kinds.count(SLEEP) == 2
    at = next(i for i, row in enumerate(rows) if row["kind"] == SLEEP and int(row["node"]) == nodes[0])
    _, rows = hand.wanted(at)
    assert engine.describe(nodes[0])["state"] == "FALLING"
    woken = [int(row["node"]) for row in rows if row["kind"] == WAKE]
    assert woken == [nodes[0]] and [int(row["node"]) for row in rows if row["kind"] == SLEEP] == [nodes[1]]
    waiting = next(i for i, row in enumerate(rows) if row["kind"] == WAIT)
    assert np.isinf(rows["cost"][waiting]) and int(rows["node"][waiting]) == -1
    task, _ = hand.wanted(waiting)
    assert task == -1
    step = hand.close()
    assert step.placements == [] and [a.who for a in step.actions] == [nodes[0]]


@pytest.mark.parametrize("parts", [2, 3])
def test_a_gang_by_hand_is_placed_whole_or_given_back_whole(parts: int) -> None:
    engine = Engine("least-energy")
    for i in range(3):
        engine.node(Node(f"n{i}", 1, 8 * GIB, power=CURVE))
    engine.step(0.0)
    task = engine.put(TASK, one_core(engine, parts=parts), estimate_s=10.0)
    hand = engine.by_hand()
    hand.open(1.0)
    for number in range(parts):
        wanted, rows = hand.wanted(0 if number else NONE)
        assert wanted == task and sum(rows["alike"]) == 3 - number
    wanted, _ = hand.wanted(NONE)
    assert wanted == -1 and engine.counts["running"] == 0
    assert hand.close().placements == []
    placed = engine.step(2.0).placements
    assert [one.part for one in placed] == list(range(parts)) and len({one.node for one in placed}) == parts
    validate_state(engine.state)

"""Rows that a hand is shown, field by field, and what each answer does."""

from __future__ import annotations

import math
from typing import Any

import pytest

from wattflow.engine.settings import PolicySettings
from wattflow.engine.validate import validate_state
from wattflow.live import NODE, STARTED, TASK, Act, Constraint, Engine, Match, Power
from wattflow.live.caller_choice import NONE, PLACE, SLEEP, WAIT, WAKE
from wattflow.live.protocol import row_of
from wattflow.model.cluster import Device, Node, Sleep
from wattflow.model.errors import BrokenPolicy
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Variant
from wattflow.policy.base import Policy

from .test_engine import CURVE, GIB, one_core

CARD = Device("gpu", "a", 8 * GIB, power=DeviceProfile((0.0, 1.0), (10.0, 90.0)))


SLOW = Sleep(2.0, wake_s=5.0, enter_s=1.0)


def _falling(state: Any, task: int, variant: int, out: Any) -> None:
    """Cost less the later a node has come: ten less the row."""
    for c in range(out.size):
        out[c] = 10.0 - state.candidates[c].node


def _equal(state: Any, task: int, variant: int, out: Any) -> None:
    out[:] = 4.0


def _one_is_no_number(state: Any, task: int, variant: int, out: Any) -> None:
    out[:] = 1.0
    if out.size > 2:
        out[2] = math.nan


def policy(score: Any, **settings: Any) -> Policy:
    return Policy("by-row", score=score, settings=PolicySettings(**settings))


def unlike(count: int, score: Any = _falling, **more: Any) -> tuple[Engine, list[int]]:
    """Return an engine with nodes of which no two are alike."""
    engine = Engine(policy(score))
    nodes = [engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE, **more)) for i in range(count)]
    engine.step(0.0)
    return engine, nodes


def shown(rows: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name].item() for name in names) for row in rows]


def test_a_row_tells_its_candidate_whole() -> None:
    engine = Engine(policy(_falling, grouped=True))
    nodes = [engine.node(Node(f"n{i}", 2, 8 * GIB, power=CURVE)) for i in range(2)]
    odd = engine.node(Node("odd", 4, 8 * GIB, power=CURVE, devices=(CARD, CARD)))
    engine.step(0.0)
    variants = [Variant(cores=1), Variant(cores=1, device="gpu", devices=1)]
    task = engine.put(TASK, engine.shape(variants), estimate_s=5.0)
    hand = engine.by_hand()
    hand.open(1.0)
    wanted, rows = hand.wanted()
    assert wanted == task and set(rows["task"].tolist()) == {task} and set(rows["kind"].tolist()) == {PLACE}
    told = shown(rows, "cost", "node", "node_row", "alike", "origin", "device", "task_row")
    first = int(engine.state.shapes.variant_first[1])
    assert set(rows["variant"].tolist()) == {first, first + 1}
    assert [v - first for v in rows["variant"].tolist()] == rows["origin"].tolist()
    assert told[0][:4] == (8.0, odd, 2, 1), "the cheapest stands first"
    assert sorted(told)[-1] == (10.0, nodes[0], 0, 2, 0, -1, row_of(task)), "two are alike"
    assert {one[5] for one in told if one[4] == 1} <= {0, 1} and {one[4] for one in told} == {0, 1}
    assert hand.lost == 0


@pytest.mark.parametrize(("most", "lost"), [(1, 3), (2, 2), (3, 1), (4, 0), (5, 0)])
def test_the_cheapest_stands_first_however_few_rows_there_are_and_each_row_is_of_one_candidate(
    most: int, lost: int
) -> None:
    engine, nodes = unlike(4)
    task = engine.put(TASK, one_core(engine))
    hand = engine.by_hand(rows=most)
    hand.open(1.0)
    _, rows = hand.wanted()
    told = shown(rows, "node_row", "cost", "node", "alike", "task", "task_row", "kind", "device", "origin", "variant")
    first = int(engine.state.shapes.variant_first[1])
    assert told[0][0] == 3 and hand.lost == lost and len({one[0] for one in told}) == len(told) == min(most, 4)
    for one in told:
        assert one == (one[0], 10.0 - one[0], nodes[one[0]], 1, task, row_of(task), PLACE, -1, 0, first)
    last = len(told) - 1
    assert hand.wanted(last)[0] == -1
    assert [one.node for one in hand.close().placements] == [told[last][2]]
    hand.open(2.0)
    assert hand.lost == 0, "counted for each instant"


@pytest.mark.parametrize("most", [1, 2, 3])
def test_of_equal_costs_the_first_node_stands_first(most: int) -> None:
    engine, nodes = unlike(3, _equal)
    engine.put(TASK, one_core(engine))
    hand = engine.by_hand(rows=most)
    hand.open(1.0)
    _, rows = hand.wanted()
    assert rows["node"].tolist() == nodes[:most] and hand.lost == 3 - most


@pytest.mark.parametrize("most", [1, 2, 8])
def test_of_equal_costs_and_one_node_the_first_device_stands_first(most: int) -> None:
    engine = Engine(policy(_equal))
    other = Device("gpu", "b", 8 * GIB, power=DeviceProfile((0.0, 1.0), (10.0, 90.0)))
    engine.node(Node("n", 4, 8 * GIB, power=CURVE, devices=(CARD, other)))
    engine.step(0.0)
    engine.put(TASK, engine.shape([Variant(cores=1, device="gpu", devices=1)]))
    hand = engine.by_hand(rows=most)
    hand.open(1.0)
    _, rows = hand.wanted()
    assert rows["device"].tolist() == [0, 1][:most]
    assert hand.lost == 2 - len(rows)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_of_equal_costs_the_best_liked_stands_first_then_the_first_node(most: int) -> None:
    engine = Engine(policy(_equal))
    tiers = ("", "gold", "silver", "gold")
    for i, tier in enumerate(tiers):
        engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE), labels={"tier": tier})
    engine.step(0.0)
    likes = ((1.0, (Match("tier", "in", ("silver",)),)), (2.0, (Match("tier", "in", ("gold",)),)))
    engine.put(TASK, one_core(engine, constraint=engine.constraint(Constraint(prefer=likes))))
    hand = engine.by_hand(rows=most)
    hand.open(1.0)
    _, rows = hand.wanted()
    assert engine.describe(int(rows["node"][0]))["name"] == "n1" and len(rows) == most
    hand.wanted(0)
    assert [one.node for one in hand.close().placements] == [engine.nodes["n1"]]


def test_a_cheaper_node_stands_before_one_that_is_liked() -> None:
    for most in (1, 2):
        engine = Engine(policy(_falling))
        for i in range(2):
            engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE), labels={"gold": "1"} if i == 0 else {})
        engine.step(0.0)
        rule = engine.constraint(Constraint(prefer=((1.0, (Match("gold"),)),)))
        engine.put(TASK, one_core(engine, constraint=rule))
        hand = engine.by_hand(rows=most)
        hand.open(1.0)
        _, rows = hand.wanted()
        assert int(rows["node"][0]) == engine.nodes["n1"]


def test_without_a_score_every_row_costs_nothing() -> None:
    engine = Engine(Policy("none", settings=PolicySettings()))
    for i in range(3):
        engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE))
    engine.step(0.0)
    engine.put(TASK, one_core(engine))
    hand = engine.by_hand()
    hand.open(1.0)
    _, rows = hand.wanted()
    assert rows["cost"].tolist() == [0.0] * 3 and engine.counts["scored"] == 0


def test_scored_candidates_and_decisions_are_counted() -> None:
    engine, _ = unlike(3)
    before = engine.counts
    for tag in range(2):
        engine.put(TASK, one_core(engine), tag=tag)
    hand = engine.by_hand()
    hand.open(1.0)
    hand.wanted()
    assert engine.counts["scored"] == before["scored"] + 3 and engine.counts["decisions"] == before["decisions"]
    hand.wanted(0)
    assert engine.counts["scored"] == before["scored"] + 6 and engine.counts["decisions"] == before["decisions"] + 1
    hand.wanted(0)
    hand.close()
    assert engine.counts["decisions"] == before["decisions"] + 2 and engine.counts["running"] == 2


@pytest.mark.parametrize("joint", [False, True])
def test_a_cost_that_is_no_number_breaks_the_policy_and_names_the_task(joint: bool) -> None:
    engine, _ = unlike(3, _one_is_no_number)
    task = engine.put(TASK, one_core(engine))
    hand = engine.by_hand(joint=joint)
    hand.open(1.0)
    with pytest.raises(BrokenPolicy, match="policy 'by-row' returned NaN"):
        hand.wanted()
    assert engine.state.choice.bad_task[0] == row_of(task)
    assert engine.state.choice.bad_variant[0] == engine.state.shapes.variant_first[1]


def test_two_candidates_of_three_are_numbers_and_do_not_break() -> None:
    engine, nodes = unlike(2, _one_is_no_number)
    engine.put(TASK, one_core(engine))
    hand = engine.by_hand()
    hand.open(1.0)
    assert shown(hand.wanted()[1], "cost", "node") == [(1.0, nodes[0]), (1.0, nodes[1])]


def test_the_cost_of_a_gangs_second_part_is_looked_at_too() -> None:
    for joint in (False, True):
        engine = Engine(policy(_breaks_when_one_runs))
        for i in range(2):
            engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE))
        engine.step(0.0)
        engine.put(TASK, one_core(engine, parts=2))
        hand = engine.by_hand(joint=joint)
        hand.open(1.0)
        hand.wanted()
        with pytest.raises(BrokenPolicy):
            hand.wanted(0)


def _breaks_when_one_runs(state: Any, task: int, variant: int, out: Any) -> None:
    out[:] = math.nan if state.counts[0].running > 0 else 1.0


# Waiting


def test_a_task_that_waits_is_passed_over_and_the_next_is_asked_about() -> None:
    engine, nodes = unlike(3)
    tasks = [engine.put(TASK, one_core(engine, cores), tag=i) for i, cores in enumerate((1.0, 2.0, 3.0))]
    hand = engine.by_hand()
    hand.open(1.0)
    asked = [hand.wanted()[0], hand.wanted(NONE)[0], hand.wanted(0)[0], hand.wanted(NONE)[0]]
    assert asked == [*tasks, -1]
    step = hand.close()
    assert [(one.tag, one.node) for one in step.placements] == [(1, nodes[2])]
    assert engine.counts["waiting"] == 2 and engine.counts["running"] == 1
    assert [(one.tag, one.node) for one in engine.step(2.0).placements] == [(0, nodes[2]), (2, nodes[1])]
    validate_state(engine.state)


def test_a_shape_that_fits_nowhere_is_not_asked_about_and_holds_no_other_back() -> None:
    engine, _ = unlike(2)
    engine.put(TASK, one_core(engine, 64.0), tag=1)
    small = engine.put(TASK, one_core(engine), tag=2)
    for joint in (False, True):
        hand = engine.by_hand(joint=joint)
        hand.open(1.0)
        wanted, rows = hand.wanted()
        assert wanted == small and set(rows["task"][rows["kind"] == PLACE].tolist()) == {small}
        assert hand.wanted(NONE)[0] == -1
        assert hand.close().placements == []
    assert engine.counts["waiting"] == 2


def test_without_a_task_nothing_is_wanted_jointly_or_not() -> None:
    engine, _ = unlike(2, sleep=Sleep(2.0, wake_s=5.0))
    for joint in (False, True):
        hand = engine.by_hand(joint=joint)
        hand.open(1.0)
        task, rows = hand.wanted()
        assert task == -1 and len(rows) == 0
        assert hand.wanted()[0] == -1 and hand.close().placements == []


def test_a_pinned_task_is_shown_its_node_alone_and_another_of_its_shape_all() -> None:
    for joint in (False, True):
        engine, nodes = unlike(3)
        shape = one_core(engine)
        pinned = engine.put(TASK, shape, node=nodes[0])
        free = engine.put(TASK, shape)
        hand = engine.by_hand(joint=joint)
        hand.open(1.0)
        task, rows = hand.wanted()
        assert task == pinned and rows["node"][rows["kind"] == PLACE].tolist() == [nodes[0]]
        task, rows = hand.wanted(0)
        assert task == free and sorted(rows["node"][rows["kind"] == PLACE].tolist()) == nodes


def test_a_pinned_task_that_does_not_fit_leaves_its_shape_to_the_others() -> None:
    engine, nodes = unlike(2)
    big, shape = one_core(engine, 2.0), one_core(engine)
    engine.put(TASK, big)
    (one,) = engine.step(1.0).placements
    assert one.node == nodes[1]
    engine.put(TASK, big, node=nodes[1], tag=1)
    other = engine.put(TASK, big, tag=2)
    hand = engine.by_hand()
    hand.open(2.0)
    assert hand.wanted()[0] == other
    hand.wanted(0)
    assert [p.tag for p in hand.close().placements] == [2] and shape != big


# Together


def test_joint_rows_are_each_shapes_first_task_then_waiting_sleeping_and_waking() -> None:
    engine = Engine(policy(_falling))
    sleep = Sleep(2.0, wake_s=5.0, enter_s=1.0)
    nodes = [engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE, sleep=sleep)) for i in range(3)]
    engine.step(0.0)
    engine.put(NODE, nodes[0], state=Power.ASLEEP)
    small, large = one_core(engine), one_core(engine, 4.0)
    first = engine.put(TASK, small)
    engine.put(TASK, small)
    second = engine.put(TASK, large)
    hand = engine.by_hand(joint=True)
    hand.open(1.0)
    task, rows = hand.wanted()
    placing = shown(rows[rows["kind"] == PLACE], "cost", "task", "node")
    assert placing[0][0] == 8.0 and task == placing[0][1]
    assert sorted(placing) == sorted([(8.0, first, nodes[2]), (9.0, first, nodes[1]), (8.0, second, nodes[2])])
    rest = shown(
        rows[rows["kind"] != PLACE],
        "kind",
        "node",
        "node_row",
        "alike",
        "task",
        "task_row",
        "variant",
        "origin",
        "device",
        "cost",
    )
    nothing = (-1, -1, 0, -1, -1, math.inf)
    assert rest[0] == (WAIT, -1, -1, 0, *nothing)
    assert sorted(rest[1:]) == sorted([
        (WAKE, nodes[0], 0, 1, *nothing), (SLEEP, nodes[1], 1, 1, *nothing), (SLEEP, nodes[2], 2, 1, *nothing),
    ])  # fmt: skip
    assert hand.lost == 0


@pytest.mark.parametrize(("most", "lost"), [(7, 0), (6, 1), (5, 2), (4, 3), (2, 5)])
def test_joint_rows_that_do_not_fit_are_counted_and_the_cheapest_is_shown(most: int, lost: int) -> None:
    engine = Engine(policy(_falling))
    for i in range(3):
        engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE, sleep=Sleep(2.0, wake_s=5.0)))
    engine.step(0.0)
    engine.put(TASK, one_core(engine))
    hand = engine.by_hand(rows=most, joint=True)
    hand.open(1.0)
    _, rows = hand.wanted()
    assert hand.lost == lost and len(rows) == min(most, 7) and rows["cost"][0] == 8.0


def test_a_node_that_sleeps_is_woken_by_hand_and_one_that_works_is_not_shown() -> None:
    engine = Engine(policy(_falling))
    nodes = [engine.node(Node(f"n{i}", 2 + i, 8 * GIB, power=CURVE, sleep=SLOW)) for i in range(3)]
    engine.step(0.0)
    engine.put(TASK, one_core(engine))
    (one,) = engine.step(1.0).placements
    assert one.node == nodes[2]
    engine.put(STARTED, one.attempt)
    engine.put(NODE, nodes[0], state=Power.ASLEEP)
    engine.put(TASK, one_core(engine))
    hand = engine.by_hand(joint=True)
    hand.open(2.0)
    _, rows = hand.wanted()
    kinds = shown(rows[rows["kind"] != PLACE], "kind", "node")
    assert sorted(kinds) == sorted([(WAIT, -1), (WAKE, nodes[0]), (SLEEP, nodes[1])])
    at = rows["kind"].tolist().index(WAKE)
    task, rows = hand.wanted(at)
    assert task >= 0 and engine.describe(nodes[0])["state"] == "WAKING"
    assert sorted(shown(rows[rows["kind"] != PLACE], "kind", "node")) == sorted([(WAIT, -1), (SLEEP, nodes[1])])
    at = rows["kind"].tolist().index(SLEEP)
    task, rows = hand.wanted(at)
    assert engine.describe(nodes[1])["state"] == "FALLING"
    assert (WAKE, nodes[1]) in shown(rows, "kind", "node")
    assert hand.wanted(0)[0] == -1
    step = hand.close()
    assert [(a.kind, a.who) for a in step.actions][:2] == [(Act.WAKE, nodes[0]), (Act.SLEEP, nodes[1])]
    assert len(step.placements) == 1 and engine.counts["running"] == 2


def test_a_task_placed_jointly_is_gone_and_the_next_of_its_shape_is_shown() -> None:
    engine, nodes = unlike(2)
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, tag=tag) for tag in range(3)]
    hand = engine.by_hand(joint=True)
    hand.open(1.0)
    asked = [hand.wanted()[0]]
    for _ in range(3):
        asked.append(hand.wanted(0)[0])
    assert asked == [*tasks, -1]
    step = hand.close()
    assert [(one.tag, one.node, one.part, one.attempt_no) for one in step.placements] == [
        (t, nodes[1], 0, 0) for t in range(3)
    ]
    validate_state(engine.state)


def test_waiting_jointly_ends_the_instant_by_the_row_and_by_no_choice() -> None:
    for choose_row in (False, True):
        engine, _ = unlike(2)
        for cores in (1.0, 2.0):
            engine.put(TASK, one_core(engine, cores))
        hand = engine.by_hand(joint=True)
        hand.open(1.0)
        _, rows = hand.wanted()
        assert hand.wanted(rows["kind"].tolist().index(WAIT) if choose_row else NONE)[0] == -1
        assert hand.wanted()[0] == -1
        assert hand.close().placements == [] and engine.counts["waiting"] == 2


# Gangs


@pytest.mark.parametrize("joint", [False, True])
def test_a_gang_that_is_closed_half_way_is_given_back(joint: bool) -> None:
    engine, nodes = unlike(2)
    gang = engine.put(TASK, one_core(engine, parts=2))
    used, free = engine.state.nodes.used_u.tolist(), int(engine.state.counts.free_attempt[0])
    epoch = int(engine.state.clock.epoch[0])
    hand = engine.by_hand(joint=joint)
    hand.open(1.0)
    hand.wanted()
    assert hand.wanted(0)[0] == gang and engine.counts["running"] == 1
    assert hand.close().placements == []
    assert engine.counts["running"] == 0 and engine.state.nodes.used_u.tolist() == used
    assert (engine.state.counts.free_attempt[0], engine.state.clock.epoch[0]) == (free, epoch)
    validate_state(engine.state)
    assert [(one.part, one.node) for one in engine.step(2.0).placements] == [(0, nodes[1]), (1, nodes[1])]


@pytest.mark.parametrize("joint", [False, True])
def test_a_gang_whose_second_part_fits_nowhere_is_given_back_and_the_others_are_asked(joint: bool) -> None:
    engine = Engine(policy(_falling))
    (node,) = [engine.node(Node("n", 3, 8 * GIB, power=CURVE))]
    engine.step(0.0)
    engine.put(TASK, one_core(engine, 2.0, parts=2), tag=1)
    single = engine.put(TASK, one_core(engine), tag=2)
    hand = engine.by_hand(joint=joint)
    hand.open(1.0)
    _, rows = hand.wanted()
    at = next(i for i, row in enumerate(rows) if row["task"] != single and row["kind"] == PLACE)
    task, rows = hand.wanted(at)
    assert task == single and engine.counts["running"] == 0
    hand.wanted(0)
    assert [(one.tag, one.node) for one in hand.close().placements] == [(2, node)]
    assert engine.counts["waiting"] == 1
    validate_state(engine.state)


def test_two_gangs_are_placed_one_after_the_other_with_their_parts_as_chosen() -> None:
    for joint in (False, True):
        engine, nodes = unlike(3)
        shape = one_core(engine, parts=2)
        gangs = [engine.put(TASK, shape, tag=tag) for tag in range(2)]
        hand = engine.by_hand(joint=joint)
        hand.open(1.0)
        asked, rows = hand.wanted()
        order = [asked]
        for _ in range(4):
            last = max(i for i, row in enumerate(rows) if row["kind"] == PLACE) if asked >= 0 else 0
            asked, rows = hand.wanted(last)
            order.append(asked)
        assert order == [gangs[0], gangs[0], gangs[1], gangs[1], -1]
        placed = hand.close().placements
        assert [(one.tag, one.part) for one in placed] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert {one.node for one in placed} <= set(nodes) and engine.counts["decisions"] == 4
        siblings = engine.state.attempts.sibling[[row_of(one.attempt) for one in placed]].tolist()
        rows_of = [row_of(one.attempt) for one in placed]
        assert siblings == [rows_of[1], rows_of[0], rows_of[3], rows_of[2]]
        validate_state(engine.state)


@pytest.mark.parametrize("joint", [False, True])
def test_attempts_grow_where_a_gang_needs_one_row_more_than_there_is(joint: bool) -> None:
    engine = Engine(policy(_falling))
    engine.node(Node("n", 400, 8 * GIB, power=CURVE))
    engine.step(0.0)
    tiny = engine.shape([Variant(cores=0.001)])
    for tag in range(254):
        engine.put(TASK, tiny, tag=tag)
    engine.step(1.0)
    for parts in (2, 1):
        engine.put(TASK, engine.shape([Variant(cores=1)], parts=parts), tag=parts)
        hand = engine.by_hand(joint=joint)
        hand.open(5.0 - parts)
        asked = hand.wanted()[0]
        assert len(engine.state.attempts) == (256 if parts == 2 else 512)
        while asked >= 0:
            asked = hand.wanted(0)[0]
        assert [one.tag for one in hand.close().placements] == [parts] * parts
    assert engine.counts["running"] == 257
    validate_state(engine.state)


def test_an_instant_by_hand_says_when_to_come_back_and_goes_on_as_a_step() -> None:
    engine, _ = unlike(1)
    engine.put(TASK, one_core(engine), release_s=9.0)
    hand = engine.by_hand()
    hand.open(1.0)
    assert hand.wanted()[0] == -1
    step = hand.close()
    assert (step.wake_at, step.placements, step.actions, step.rejected, step.ended) == (9.0, [], [], [], [])
    hand.open(9.0)
    assert hand.wanted()[0] >= 0
    hand.wanted(0)
    step = hand.close()
    assert len(step.placements) == 1 and step.wake_at == math.inf


def test_a_shape_that_fits_nowhere_jointly_is_passed_over_until_a_node_gains_room() -> None:
    engine, _ = unlike(2)
    large, small = one_core(engine, 64.0), one_core(engine)
    engine.put(TASK, large)
    task = engine.put(TASK, small)
    hand = engine.by_hand(joint=True)
    hand.open(1.0)
    assert hand.wanted()[0] == task
    failed = engine.state.shapes.failed
    assert failed[row_of(large)] == engine.state.clock.epoch[0] and failed[row_of(small)] == 0
    hand.wanted(0)
    hand.close()


def test_a_pinned_task_that_fits_nowhere_jointly_leaves_its_shape_to_the_others() -> None:
    engine, nodes = unlike(2)
    shape = one_core(engine, 2.0)
    engine.put(TASK, shape)
    (one,) = engine.step(1.0).placements
    assert one.node == nodes[1]
    engine.put(TASK, shape, node=nodes[1], tag=1)
    engine.put(TASK, shape, tag=2)
    hand = engine.by_hand(joint=True)
    hand.open(2.0)
    assert hand.wanted()[0] == -1, "jointly the first of each shape is asked about"
    assert engine.state.shapes.failed[row_of(shape)] != engine.state.clock.epoch[0]
    hand.close()
    assert [p.tag for p in engine.step(2.0).placements] == [2]

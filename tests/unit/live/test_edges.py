"""Limits and last cases of docs/driving.md: the one that is just allowed, and the next that is not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from wattflow.live import (
    CANCEL,
    EDGE,
    FAILED,
    FINISHED,
    GONE,
    LOAD,
    NODE,
    PLACEHOLDER,
    REFUSED,
    SEAL,
    STARTED,
    TASK,
    BadEvent,
    Constraint,
    Engine,
    Match,
    Power,
    UnknownId,
)
from wattflow.live.caller_choice import NONE, PLACE, SLEEP, WAIT
from wattflow.live.constraints import holds, tolerates
from wattflow.live.fork import fork
from wattflow.live.growth import grown
from wattflow.live.journal import Journal, recover
from wattflow.live.object_codec import Decoder
from wattflow.live.past_decision import explain_past
from wattflow.live.protocol import Taint, Toleration, row_of
from wattflow.live.recent_workflows import Arrived, ArrivedWindow
from wattflow.live.roll import SeedRange, roll
from wattflow.model.cluster import Device, Node, Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Variant

from .test_engine import CURVE, GIB, engine_with, one_core, tags

CARD = Device("gpu", "a", 8 * GIB, power=DeviceProfile((0.0, 1.0), (10.0, 90.0)))


# What there may be


def test_a_node_has_at_most_64_devices() -> None:
    engine = Engine("fifo")
    engine.node(Node("most", 64, 8 * GIB, devices=(CARD,) * 64))
    with pytest.raises(BadEvent, match="node more has 65 devices; at most 64"):
        engine.node(Node("more", 64, 8 * GIB, devices=(CARD,) * 65))
    assert list(engine.nodes) == ["most"]


def test_there_are_at_most_63_feature_tags() -> None:
    engine = Engine("fifo")
    engine.node(Node("all", 8, 8 * GIB, features=tuple(f"f{i}" for i in range(63))))
    task = engine.put(TASK, engine.shape([Variant(cores=1, features=("f0", "f62"))]))
    assert [one.task for one in engine.step(0.0).placements] == [task]
    with pytest.raises(BadEvent, match=r"at most 63 different feature tags are supported; 'odd' is one too many"):
        engine.shape([Variant(cores=1, features=("odd",))])


def test_a_shape_has_a_variant_and_a_part_at_least() -> None:
    engine = Engine("fifo")
    with pytest.raises(BadEvent, match="at least one variant and one part"):
        engine.shape([Variant(cores=1)], parts=0)
    assert engine.shape([Variant(cores=1)], parts=1) == engine.shape([Variant(cores=1)])


def test_nothing_is_an_amount_and_less_than_nothing_is_none() -> None:
    engine, (node,) = engine_with(4)
    engine.put(NODE, node, cores=0.0, memory_bytes=0)
    engine.step(1.0)
    assert (engine.describe(node)["cores"], engine.describe(node)["memory_bytes"]) == (0.0, 0)
    engine.put(LOAD, node, cores=0.0, memory_bytes=0)
    for event in ({"cores": -1.0}, {"memory_bytes": -1}):
        with pytest.raises(BadEvent, match="must not be negative"):
            engine.put(NODE, node, **event)


def test_ids_name_one_kind_and_a_row_that_there_is() -> None:
    engine, (node,) = engine_with(4)
    task = engine.put(TASK, one_core(engine))
    for wrong in (node, task + 5000, 0, -1):
        with pytest.raises(UnknownId):
            engine.put(CANCEL, wrong)
    with pytest.raises(UnknownId):
        engine.put(STARTED, task)
    engine.put(CANCEL, task)


# Matches


@pytest.mark.parametrize(
    ("op", "values", "allowed"),
    [("gt", ("4",), True), ("gt", ("5",), False), ("lt", ("6",), True), ("lt", ("5",), False), ("lt", (), False)],
)
def test_numbers_are_compared_strictly(op: str, values: tuple[str, ...], allowed: bool) -> None:
    assert holds(Match("n", op, values), {"n": "5"}) is allowed
    assert not holds(Match("n", op, values), {"n": "many"}) and not holds(Match("n", op, values), {})


def test_a_toleration_says_key_value_and_effect_or_leaves_them_open() -> None:
    taint = Taint("k", "v", "NoSchedule")
    assert tolerates((Toleration("k", "v", "NoSchedule"),), taint) and tolerates((Toleration(""),), taint)
    assert tolerates((Toleration("x"), Toleration("k")), taint) and not tolerates((), taint)
    for wrong in (Toleration("x"), Toleration("k", "w"), Toleration("k", None, "NoExecute")):
        assert not tolerates((wrong,), taint), wrong


# Decisions by hand


def test_rows_that_place_nothing_name_no_task_and_cost_more_than_all() -> None:
    engine = Engine("least-loaded")
    for i in range(3):
        engine.node(Node(f"n{i}", 2, 8 * GIB, power=CURVE, sleep=Sleep(2.0, wake_s=5.0)))
    engine.step(0.0)
    first, second = (engine.put(TASK, one_core(engine, cores)) for cores in (1.0, 2.0))
    hand = engine.by_hand(joint=True)
    hand.open(1.0)
    task, rows = hand.wanted()
    assert task in (first, second) and hand.lost == 0
    kinds = rows["kind"].tolist()
    assert kinds.count(WAIT) == 1 and kinds[0] == PLACE and set(rows["task"][rows["kind"] == PLACE]) == {first, second}
    for row in rows[rows["kind"] != PLACE]:
        assert (row["task"], row["device"], row["cost"]) == (-1, -1, math.inf)
    (wait,) = rows[rows["kind"] == WAIT]
    assert (wait["node"], wait["alike"]) == (-1, 0)
    (asleep,) = rows[rows["kind"] == SLEEP]
    assert asleep["alike"] == 3 and asleep["node"] in engine.nodes.values()
    assert hand.wanted(kinds.index(WAIT))[0] == -1, "who waits is asked nothing more in this instant"
    assert list(hand.close().placements) == [] and engine.counts["waiting"] == 2


def test_what_is_not_asked_any_more_is_nothing_and_a_step_goes_on_as_ever() -> None:
    engine, _ = engine_with(1)
    engine.put(TASK, one_core(engine), tag=1)
    engine.put(TASK, one_core(engine), tag=2)
    hand = engine.by_hand()
    hand.open(1.0)
    hand.wanted()
    assert hand.wanted(0)[0] == -1 and hand.wanted(NONE)[0] == -1
    step = hand.close()
    assert tags(step) == [1]
    engine.put(FINISHED, step.placements[0].attempt)
    assert tags(engine.step(2.0)) == [2]


# What was


def test_a_past_decision_is_found_however_its_time_was_told(tmp_path: Path) -> None:
    for name in ("plain", "named"):
        engine = Engine("least-loaded")
        with Journal(engine, tmp_path / name):
            engine.node(Node("n", 2, 8 * GIB))
            task = engine.put(TASK, one_core(engine))
            step = engine.step(3.0) if name == "plain" else engine.step(now_s=3.0)
            other = engine.put(TASK, one_core(engine, 64.0))
            engine.step(4.0)
        past = explain_past(tmp_path / name, task)
        assert past.at_s == 3.0 and list(past.placements) == list(step.placements)
        assert [past.names[one.node] for one in past.candidates] == ["n"]
        with pytest.raises(UnknownId, match="was not placed"):
            explain_past(tmp_path / name, other)


def test_a_journal_of_one_call_is_recovered_and_numbered_on(tmp_path: Path) -> None:
    engine = Engine("least-loaded")
    with Journal(engine, tmp_path):
        engine.node(Node("n", 2, 8 * GIB))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal-1", "snapshot-1"]
    with recover(tmp_path) as again:
        assert list(again.engine.nodes) == ["n"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["journal-2", "snapshot-2"]


@pytest.mark.parametrize("name", ["os:system", "wattflow.live.engine:Engine.step", "wattflow.live.engine:", "os:a.b"])
def test_a_file_names_classes_of_ours_alone(name: str) -> None:
    with pytest.raises(InvalidInput, match="no class that a saved engine may hold"):
        Decoder({}, "here").decode({"!": "object", "n": 0, "of": name, "v": {}})


def test_tasks_without_a_workflow_are_read_64_at_a_time_and_kept_as_many() -> None:
    engine, _ = engine_with(100)
    arrived, shape = Arrived(most_flows=3), engine.shape([Variant(cores=1)])
    arrived.note(engine, 0.0, engine.step(0.0))
    for tag in range(65):
        engine.put(TASK, shape, estimate_s=5.0, tag=tag)
    arrived.note(engine, 1.0, made := engine.step(1.0))
    placed = made.placements
    arrived.read(engine)
    assert len(arrived) == 2 and arrived.arrived == 65 and arrived.forgotten == 0
    for one in placed:
        engine.put(STARTED, one.attempt)
    arrived.note(engine, 2.0, engine.step(2.0))
    engine.put(FINISHED, placed[64].attempt)
    engine.put(FINISHED, placed[0].attempt)
    arrived.note(engine, 9.0, engine.step(9.0))
    arrived.read(engine)
    assert arrived.ended == 2
    seen = ArrivedWindow().take(arrived.told())
    ended = np.flatnonzero(np.isfinite(seen.end_s))
    assert len(seen.flows) == 65 and seen.end_s[ended].tolist() == [9.0, 9.0]
    assert [seen.runtime_s[i].tolist() for i in ended.tolist()] == [[7.0], [7.0]]


def test_what_began_and_was_refused_or_failed_is_timed_from_its_next_start() -> None:
    engine, _ = engine_with(1)
    arrived = Arrived()
    arrived.note(engine, 0.0, engine.step(0.0))
    engine.put(TASK, one_core(engine), estimate_s=5.0)

    def step(now_s: float) -> list[int]:
        made = engine.step(now_s)
        arrived.note(engine, now_s, made)
        arrived.read(engine)
        return [one.attempt for one in made.placements]

    (attempt,) = step(1.0)
    engine.put(STARTED, attempt)
    assert step(2.0) == []
    engine.put(FAILED, attempt)
    (attempt,) = step(10.0)
    engine.put(REFUSED, attempt)
    (attempt,) = step(11.0)
    engine.put(STARTED, attempt)
    step(20.0)
    engine.put(FINISHED, attempt)
    step(24.0)
    assert ArrivedWindow().take(arrived.told()).runtime_s[0].tolist() == [4.0] and arrived.ended == 1


# Looks ahead


def test_a_look_must_be_ahead_and_have_a_seed() -> None:
    engine, _ = engine_with(2)
    engine.put(TASK, one_core(engine), estimate_s=10.0)
    engine.step(5.0)
    for until_s in (5.0, 4.0, math.nan):
        with pytest.raises(InvalidInput, match="is not after now"):
            roll(engine, ["fifo"], until_s)
    with pytest.raises(InvalidInput, match="at least one"):
        roll(engine, ["fifo"], 6.0, seeds=())
    for wrong in ((0.0, 1.0), (2.0, 1.0)):
        with pytest.raises(InvalidInput, match="0 < low <= high"):
            roll(engine, ["fifo"], 100.0, interval=lambda tag, wrong=wrong: wrong)  # type: ignore[misc]


def test_a_figure_over_seeds_has_a_mean_and_extremes_and_leaves_out_what_is_not_known() -> None:
    assert SeedRange.of([1.0, math.nan, 4.0]) == SeedRange(2.5, 1.0, 4.0)
    assert all(
        math.isnan(value) for value in (SeedRange.of([math.nan]).mean, SeedRange.of([]).low, SeedRange.of([]).high)
    )


def test_what_waits_for_a_placeholder_stays_open_in_a_look_and_the_rest_ends() -> None:
    engine, _ = engine_with(4)
    flow = engine.workflow()
    unknown = engine.put(TASK, PLACEHOLDER, workflow=flow)
    children = [engine.put(TASK, one_core(engine), workflow=flow, estimate_s=1.0) for _ in range(3)]
    engine.put(EDGE, unknown, children[0])
    engine.put(EDGE, children[0], children[1])
    engine.step(1.0)
    (found,) = roll(engine, ["fifo"], math.inf)
    assert (found.ended.mean, found.open.mean) == (1.0, 3.0)


# Nodes and rows


def test_a_sealed_workflow_that_never_had_a_task_is_closed() -> None:
    engine, _ = engine_with(1)
    flow = engine.workflow()
    engine.put(SEAL, flow)
    engine.step(1.0)
    assert engine.describe(flow) == {"what": "workflow", "id": flow, "gone": True}


def test_the_row_of_a_node_that_is_gone_is_used_again_and_the_first_of_several() -> None:
    engine, nodes = engine_with(1, 1, 1)
    for node in (nodes[2], nodes[0]):
        engine.put(GONE, node)
    engine.step(1.0)
    again = [engine.node(Node(name, 1, 8 * GIB)) for name in ("x", "y", "z")]
    assert [row_of(node) for node in again] == [row_of(nodes[0]), row_of(nodes[2]), 3]
    assert not set(again) & set(nodes)
    engine.step(2.0)
    assert engine.describe(again[0])["state"] == Power.ON.name


def test_a_fork_with_nodes_that_leave_forgets_them_alone() -> None:
    engine, nodes = engine_with(1, 1)
    engine.put(GONE, nodes[0])
    copy = fork(engine)
    copy.step(1.0)
    assert list(copy.nodes) == ["n1"] and list(engine.nodes) == ["n0", "n1"]
    engine.step(1.0)
    assert list(engine.nodes) == ["n1"]


def test_a_constraint_that_names_nodes_and_labels_wants_both() -> None:
    engine = Engine("least-loaded")
    wanted = {}
    for name, labels in (("a", {"zone": "x"}), ("b", {"zone": "x"}), ("c", {})):
        wanted[name] = engine.node(Node(name, 4, 8 * GIB), labels=labels)
    rule = engine.constraint(Constraint(nodes=("b", "c"), any_of=((Match("zone", "in", ("x",)),),)))
    engine.put(TASK, one_core(engine, constraint=rule))
    assert [one.node for one in engine.step(0.0).placements] == [wanted["b"]]


def test_a_grown_table_has_its_rows_and_the_filling() -> None:
    assert grown(np.array([1, 2]), 4, 7).tolist() == [1, 2, 7, 7]

"""Copies of an engine, what is written of it, and looks ahead: exact where a closed form exists."""

from __future__ import annotations

import enum
import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattflow.live import (
    EDGE,
    FAILED,
    FINISHED,
    PLACEHOLDER,
    REFUSED,
    STARTED,
    TASK,
    Constraint,
    Engine,
    Match,
    Power,
    Taint,
    journal,
)
from wattflow.live.fork import fork, load, save
from wattflow.live.journal import Journal, recover, told
from wattflow.live.object_codec import Decoder, Encoder, cloned
from wattflow.live.past_decision import explain_past
from wattflow.live.protocol import UnknownId
from wattflow.live.recent_workflows import Arrived, ArrivedWindow
from wattflow.live.roll import draw_left, roll
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Variant

from .test_engine import GIB, engine_with, one_core, tags
from .test_recent_workflows import put_chain, step

CURVE = PowerProfile((0.0, 1.0, 2.0), (10.0, 30.0, 40.0))


# Values


def there_and_back(value: object) -> object:
    return Decoder({}, "here").decode(json.loads(json.dumps(Encoder({}).encode(value))))


def test_every_kind_of_value_comes_back_as_it_was() -> None:
    shared = [1, 2]
    values: dict[str, Any] = {
        "numbers": (1, 2.5, -3, True, None, "word"), "odd": (math.inf, -math.inf), "sets": ({3, 1}, frozenset({"a"})),
        "again": [shared, shared], "array": np.array([[1, 2], [3, 4]], np.int32), "enum": Power.DOWN,
        "named": Match("k", "in", ("v",)), "numpy": np.float64(1.5), "keys": {(1, "a"): "x"},
        "records": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    }  # fmt: skip
    found = there_and_back(values)
    assert isinstance(found, dict) and list(found) == list(values)
    assert found["again"][0] is found["again"][1], "what was one is one"
    for name in ("array", "records"):
        assert np.array_equal(found[name], values[name]) and found[name].dtype == values[name].dtype
        found[name] = values[name] = None
    assert found == values
    assert math.isnan(there_and_back(math.nan))  # type: ignore[arg-type]


class Colour(enum.Enum):
    RED = 1


@dataclass
class Foreign:
    x: int = 1


@pytest.mark.parametrize(
    "data",
    [
        {"!": "object", "n": 0, "of": "os:system", "v": {}},
        {"!": "object", "n": 0, "of": "wattflow.live.engine:Engine.step", "v": {}},
        {"!": "object", "n": 0, "of": "wattflow.live.growth:grown", "v": {}},
        {"!": "object", "n": 0, "of": "wattflow.live.nowhere:X", "v": {}},
        {"!": "odd", "v": 1, "n": 0},
        {"!": "float", "v": "1.5"},
        {"v": 1},
        {"!": "again", "v": 7},
        {"!": "enum", "of": "wattflow.live.protocol:Power", "v": "NONE"},
    ],
)
def test_data_that_no_encoder_made_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput, match=r"here.*damaged"):
        Decoder({}, "here").decode(data)


def test_objects_of_others_are_not_written() -> None:
    with pytest.raises(TypeError, match="cannot be written"):
        Encoder({}).encode(Foreign())
    with pytest.raises(TypeError):
        Encoder({}).encode(object())


def test_clones_change_alone_and_share_what_cannot_change() -> None:
    frozen = Match("k")
    value = {"list": [[1], [2]], "plain": [1, 2], "set": {1}, "array": np.zeros(2), "frozen": frozen}
    memo: dict[int, object] = {}
    made = {name: cloned(item, memo) for name, item in value.items()}
    made["list"][0].append(9)
    made["plain"].append(9)
    made["set"].add(9)
    made["array"][0] = 9
    assert value["list"] == [[1], [2]] and value["plain"] == [1, 2] and value["set"] == {1}
    assert value["array"].tolist() == [0.0, 0.0] and made["frozen"] is frozen  # type: ignore[attr-defined]
    assert cloned(value["list"], memo) is made["list"], "one copy of each"


# Files


def test_a_file_of_another_version_or_none_of_ours_is_refused_by_name(tmp_path: Path) -> None:
    engine, _ = engine_with(1)
    save(engine, tmp_path / "good")
    with zipfile.ZipFile(tmp_path / "good") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(parts["engine.json"])
    head["version"] += 1
    with zipfile.ZipFile(tmp_path / "newer", "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, json.dumps(head) if name == "engine.json" else data)
    with pytest.raises(InvalidInput, match=r"newer.*version"):
        load(tmp_path / "newer")
    (tmp_path / "text").write_text("nothing")
    with pytest.raises(InvalidInput, match="holds no engine"):
        load(tmp_path / "text")


def test_what_is_loaded_keeps_labels_taints_constraints_timers_and_the_policys_numbers(tmp_path: Path) -> None:
    engine = Engine("least-energy:sleep=40")
    node = engine.node(Node("n", 2, 8 * GIB, power=CURVE), {"zone": "x"}, (Taint("t"),), {"pods": 2})
    rule = engine.constraint(Constraint(any_of=((Match("zone", "in", ("x",)),),)))
    engine.step(1.0)
    shape = one_core(engine)
    engine.put(TASK, shape, tag=1, release_s=70.0)
    engine.step(2.0)
    save(engine, tmp_path / "e")
    again, notes = load(tmp_path / "e")
    assert notes == {} and again.policy.params == engine.policy.params
    assert again.policy.sleep_after_s == engine.policy.sleep_after_s and again.policy.settings == engine.policy.settings
    assert (
        again.describe(node) == engine.describe(node)
        and again.constraint(Constraint(any_of=((Match("zone", "in", ("x",)),),))) == rule
    )
    again.node(Node("n", 2, 8 * GIB, power=CURVE), {"zone": "x"}, (), {"pods": 2})
    assert again.step(69.0).placements == [] and tags(again.step(70.0)) == [1]


# Calls and journals


def test_a_call_that_was_refused_is_refused_again_and_told_as_nothing(tmp_path: Path) -> None:
    engine, _ = engine_with(1)
    with Journal(engine, tmp_path / "j"):
        shape = one_core(engine)
        with pytest.raises(UnknownId):
            engine.put(FINISHED, 12345)
        with pytest.raises(WattflowError):
            engine.use("no-such-policy")
        engine.put(TASK, shape, tag=1)
        assert tags(engine.step(1.0)) == [1]
        names = [name for name, *_ in told(tmp_path / "j")]
        assert names == ["shape", "put", "use", "put", "step"]
    again = recover(tmp_path / "j")
    assert again.engine.counts == engine.counts
    again.close()


def test_calls_come_back_with_their_arguments() -> None:
    told_before: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("put", (Power.ON, 3), {"retry": False}),
        ("step", (1.5,), {}),
        ("node", (Node("n", 2, GIB, power=CURVE), {"a": "b"}, (Taint("t"),), {"pods": 1}), {}),
    ]
    for name, arguments, fields in told_before:
        found = journal.decode(journal.encode(name, arguments, fields))
        assert found[0] == name and len(found[1]) == len(arguments) and list(found[2]) == list(fields)
    with pytest.raises(WattflowError):
        journal.tell(Engine("fifo"), ("close", [], {}))


def test_a_closed_journal_writes_no_more_and_the_engine_goes_on(tmp_path: Path) -> None:
    engine, _ = engine_with(2)
    journal = Journal(engine, tmp_path / "j", sync=True)
    engine.put(TASK, one_core(engine), tag=1)
    engine.step(1.0)
    before = list(told(tmp_path / "j"))
    journal.close()
    engine.put(TASK, one_core(engine), tag=2)
    assert tags(engine.step(2.0)) == [2] and list(told(tmp_path / "j")) == before
    engine.by_hand()


def test_a_snapshot_without_its_journal_is_enough_and_leftovers_of_earlier_ones_do_not_count(tmp_path: Path) -> None:
    engine, _ = engine_with(2)
    journal = Journal(engine, tmp_path)
    engine.put(TASK, one_core(engine), tag=1)
    engine.step(1.0)
    journal.checkpoint()
    journal.close()
    (tmp_path / "journal-2").unlink()
    (tmp_path / "journal-1").write_bytes(b"an old one that was not deleted in time\n")
    (tmp_path / "unrelated").write_text("x")
    again = recover(tmp_path)
    assert again.engine.counts["running"] == 1 and (tmp_path / "unrelated").exists()
    again.close()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="no snapshot"):
        recover(tmp_path / "empty")


def test_the_last_of_several_decisions_is_explained_as_it_was_made(tmp_path: Path) -> None:
    engine = Engine("least-energy")
    for i, watts in enumerate((10.0, 20.0, 30.0)):
        engine.node(Node(f"n{i}", 2, 8 * GIB, power=PowerProfile((0.0, 2.0), (5.0, 5.0 + watts))))
    engine.step(0.0)
    with Journal(engine, tmp_path / "j"):
        shape = engine.shape([Variant(cores=2)])
        tasks = [engine.put(TASK, shape, estimate_s=10.0, tag=t) for t in range(2)]
        first = {one.task: one for one in engine.step(1.0).placements}
        engine.put(FAILED, first[tasks[0]].attempt)
        (second,) = engine.step(now_s=4.0).placements
        past = explain_past(tmp_path / "j", tasks[0])
        assert past.at_s == 4.0 and list(past.placements) == [second]
        assert [past.names[one.node] for one in past.candidates] == ["n0", "n2"], "the other held n1 by then"
        other = explain_past(tmp_path / "j", tasks[1])
        assert other.at_s == 1.0 and [other.names[one.node] for one in other.candidates] == ["n1", "n2"]
        assert engine.counts["running"] == 2


# Looks ahead


def live_of(nodes: int = 1, policy: str = "fifo") -> Engine:
    return Engine(policy, Cluster("c", tuple(Node(f"n{i}", 2, 2**36, power=CURVE) for i in range(nodes))))


def test_what_is_left_is_the_estimate_less_what_has_run_and_never_nothing() -> None:
    live = live_of()
    shape = live.shape((Variant(cores=1),))
    tasks = [live.put(TASK, shape, estimate_s=s) for s in (10.0, 2.0, 6.0)]
    placed = live.step(0.0).placements
    for one in placed:
        live.put(STARTED, one.attempt)
    live.step(1.0)
    unknown = live.put(TASK, shape)
    live.step(5.0)
    left = draw_left(live.state, 0.0, 0)
    at = {task: float(left[task & 0xFFFFFFFF]) for task in (*tasks, unknown)}
    assert at[tasks[0]] == pytest.approx(6.0), "it began at 1"
    assert at[tasks[1]] == pytest.approx(0.05 * 2.0), "longer than it should: a little more"
    assert at[tasks[2]] == 6.0, "it waits"
    assert at[unknown] == pytest.approx((10.0 + 2.0 + 6.0) / 3), "no estimate: the mean of the others"


def test_what_ran_on_a_fast_node_has_done_more() -> None:
    live = Engine("fifo", Cluster("c", (Node("fast", 1, 2**36, speed=4.0, power=CURVE),)))
    task = live.put(TASK, live.shape((Variant(cores=1),)), estimate_s=40.0)
    (one,) = live.step(0.0).placements
    live.put(STARTED, one.attempt)
    live.step(0.0)
    live.step(5.0)
    assert float(draw_left(live.state, 0.0, 0)[task & 0xFFFFFFFF]) == pytest.approx(40.0 - 5.0 * 4.0)


def test_draws_lie_around_the_interval_and_those_of_a_running_task_beyond_what_it_ran() -> None:
    live = live_of(200)
    shape = live.shape((Variant(cores=2),))
    for tag in range(400):
        live.put(TASK, shape, estimate_s=10.0, tag=tag)
    for one in live.step(0.0).placements:
        live.put(STARTED, one.attempt)
    live.step(0.0)
    live.step(8.0)
    left = draw_left(live.state, lambda tag: (5.0, 20.0), 3)
    waiting = np.flatnonzero(np.asarray(live.state.tasks["state"]) == 1)
    assert len(waiting) == 200
    inside = np.mean((left[waiting] > 5.0) & (left[waiting] < 20.0))
    assert 0.84 < inside < 0.96 and 9.0 < np.median(left[waiting]) < 11.0
    running = np.asarray(live.state.attempts["task"])
    running = running[running >= 0]
    assert (left[running] > 0.0).all() and np.mean(left[running] < 0.05 * 10.0 + 1e-9) < 0.3
    same = draw_left(live.state, lambda tag: (5.0, 20.0), 3)
    assert np.array_equal(left, same) and not np.array_equal(left, draw_left(live.state, lambda tag: (5.0, 20.0), 4))
    with pytest.raises(InvalidInput, match="0 < low <= high"):
        draw_left(live.state, lambda tag: (20.0, 5.0), 3)


def test_a_look_counts_late_open_and_unknown_tasks_and_leaves_placeholders_open() -> None:
    live = live_of()
    shape, flow = live.shape((Variant(cores=2),)), live.workflow()
    a = live.put(TASK, shape, workflow=flow, estimate_s=10.0, deadline_s=10.0)
    live.put(TASK, shape, workflow=flow, estimate_s=10.0, deadline_s=19.0)
    live.put(TASK, shape, workflow=flow, deadline_s=25.0)
    held = live.put(TASK, PLACEHOLDER, workflow=flow)
    behind = live.put(TASK, shape, workflow=flow, estimate_s=1.0)
    live.put(EDGE, held, behind)
    live.step(0.0)
    (seen,) = roll(live, ["fifo"], until_s=26.0)
    assert (seen.ended.mean, seen.open.mean, seen.unknown) == (2.0, 3.0, 1)
    assert seen.late.mean == 2.0, "one ended at 20, one is open past 25; the first ends on time"
    (whole,) = roll(live, ["fifo"], until_s=math.inf)
    assert (whole.ended.mean, whole.open.mean) == (3.0, 2.0) and whole.policy == "fifo"
    assert whole.energy_j.mean == pytest.approx(27.0 * 40.0) and whole.energy_j.low == whole.energy_j.high
    assert whole.response_s.mean == pytest.approx((10.0 + 20.0 + 27.0) / 3) and a, "the unknown one takes the mean"


def test_parked_tasks_come_back_at_their_time_in_a_look() -> None:
    live = live_of()
    task = live.put(TASK, live.shape((Variant(cores=2),)), estimate_s=10.0)
    (one,) = live.step(0.0).placements
    live.put(REFUSED, one.attempt, until_s=50.0)
    live.step(1.0)
    (seen,) = roll(live, ["fifo"], until_s=math.inf)
    assert seen.energy_j.mean == pytest.approx(49.0 * 10.0 + 10.0 * 40.0)
    assert live.why(task).state == "parked", "the engine is as it was"


def test_a_look_where_nothing_ends_has_no_response() -> None:
    live = live_of()
    live.put(TASK, live.shape((Variant(cores=2),)), estimate_s=100.0)
    live.step(0.0)
    (seen,) = roll(live, ["fifo"], until_s=5.0)
    assert math.isnan(seen.response_s.mean) and seen.ended.mean == 0.0 and seen.open.mean == 1.0


# What arrived of late


def test_tasks_without_a_workflow_are_each_one_and_end_alone() -> None:
    engine, arrived = live_of(2), Arrived()
    engine.step(0.0)
    shape = engine.shape((Variant(cores=2),))
    for seconds in (5.0, 6.0, 7.0):
        engine.put(TASK, shape, estimate_s=seconds)
    placed = step(engine, arrived, 1.0)
    assert arrived.arrived == 3 and len(placed) == 2
    for attempt in placed:
        engine.put(STARTED, attempt)
    step(engine, arrived, 2.0)
    engine.put(FINISHED, placed[0])
    step(engine, arrived, 6.5)
    seen = ArrivedWindow().take(arrived.told(anew=True))
    assert arrived.ended == 1 and [len(flow) for flow in seen.flows] == [1, 1, 1]
    assert seen.runtime_s[0].tolist() == [4.5] and np.isnan(np.concatenate(seen.runtime_s[1:])).all()
    assert seen.end_s[0] == 6.5 and np.isnan(seen.end_s[1:]).all()


def test_a_failed_or_refused_attempt_says_nothing_about_a_runtime() -> None:
    engine, arrived = live_of(), Arrived()
    engine.step(0.0)
    engine.put(TASK, engine.shape((Variant(cores=2),)), estimate_s=5.0)
    (first,) = step(engine, arrived, 1.0)
    engine.put(STARTED, first)
    step(engine, arrived, 2.0)
    engine.put(FAILED, first)
    (second,) = step(engine, arrived, 3.0)
    engine.put(REFUSED, second)
    (third,) = step(engine, arrived, 4.0)
    engine.put(FINISHED, third)
    step(engine, arrived, 9.0)
    (runtime_s,) = ArrivedWindow().take(arrived.told(anew=True)).runtime_s
    assert np.isnan(runtime_s).all() and arrived.ended == 1, "nobody said when it began"


def test_what_is_forgotten_is_counted() -> None:
    engine, arrived = live_of(), Arrived(most_flows=2, most_tasks=100)
    engine.step(0.0)
    for number in range(5):
        put_chain(engine, 2)
        step(engine, arrived, float(number))
    assert (len(arrived), arrived.forgotten, arrived.arrived, ArrivedWindow().take(arrived.told(anew=True)).number) == (
        2,
        3,
        5,
        3,
    )


def test_forks_of_what_arrived_do_not_matter_to_the_engine() -> None:
    engine, arrived = live_of(), Arrived()
    put_chain(engine, 3)
    step(engine, arrived, 0.0)
    copy = fork(engine)
    copy.put(TASK, copy.shape((Variant(cores=1),)), tag=5)
    copy.step(1.0)
    assert arrived.arrived == 1 and engine.counts["open"] == 3

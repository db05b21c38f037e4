"""Terms of costs, facts that moved them, looks ahead and copies: the last cases."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattflow.engine.settings import PolicySettings
from wattflow.live import (
    FINISHED,
    REFUSED,
    STARTED,
    TASK,
    Constraint,
    Engine,
    Match,
    Taint,
    UnknownId,
    Why,
)
from wattflow.live.journal import Journal
from wattflow.live.past_decision import explain_past
from wattflow.live.protocol import make_id, row_of
from wattflow.live.roll import SeedRange, _spread, draw_left, roll
from wattflow.model.cluster import Device, Node
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Variant
from wattflow.policy.base import Facts, Policy
from wattflow.policy.terms import REST

from .test_engine import CURVE, GIB, engine_with, one_core


def _row(state: Any, task: int, variant: int, out: Any) -> None:
    for c in range(out.size):
        out[c] = 1.0 + state.candidates[c].node


def _one(state: Any, task: int, variant: int, out: Any) -> None:
    out[:] = 1.0


def _endless(state: Any, task: int, variant: int, out: Any) -> None:
    out[:] = math.inf


def test_terms_are_told_with_what_they_leave() -> None:
    engine = Engine(Policy("mine", score=_row, terms={"one": _one}, settings=PolicySettings(queue="strict")))
    for i in range(3):
        engine.node(Node(f"n{i}", 1 + i, 8 * GIB, power=CURVE))
    engine.step(0.0)
    engine.put(TASK, one_core(engine, 9.0))
    engine.step(1.0)
    task = engine.put(TASK, one_core(engine))
    engine.step(2.0)
    told = engine.explain(task)
    assert [(one.cost, one.terms) for one in told] == [
        (1.0, {"one": 1.0}),
        (2.0, {"one": 1.0, REST: 1.0}),
        (3.0, {"one": 1.0, REST: 2.0}),
    ]
    assert [row_of(one.node) for one in told] == [0, 1, 2] and {one.alike for one in told} == {1}
    assert all(one.moved == {} for one in told)


def test_a_cost_without_terms_or_without_end_is_all_rest() -> None:
    for score, rest in ((_row, 1.0), (_endless, math.inf)):
        engine = Engine(Policy("mine", score=score, settings=PolicySettings(queue="strict")))
        engine.node(Node("n", 1, 8 * GIB, power=CURVE))
        engine.step(0.0)
        engine.put(TASK, one_core(engine, 9.0))
        task = engine.put(TASK, one_core(engine))
        engine.step(1.0)
        (told,) = engine.explain(task)
        assert told.cost == rest and told.terms == {REST: rest}


def _facts(state: Any, task: int, variant: int, out: Any) -> None:
    """Write two facts of each candidate; the second node has none."""
    for c in range(state.counts[0].candidate_n):
        out[2 * c] = state.candidates[c].node
        out[2 * c + 1] = np.nan if state.candidates[c].node == 1 else 7.0


def test_facts_that_moved_a_cost_are_told_largest_first_and_only_where_all_are_known() -> None:
    seen: list[Any] = []

    def moved(state: Any, facts: Any, variants: Any) -> Any:
        seen.append((facts.tolist(), len(variants)))
        return np.column_stack([facts[:, 0] - 1.5, facts[:, 1] - 6.0])

    facts = Facts(2, _facts, ("node", "seven"), moved)
    engine = Engine(Policy("mine", score=_row, facts=facts, settings=PolicySettings(queue="strict")))
    for i in range(3):
        engine.node(Node(f"n{i}", 1 + i, 8 * GIB, power=CURVE))
    engine.step(0.0)
    engine.put(TASK, one_core(engine, 9.0))
    task = engine.put(TASK, one_core(engine))
    engine.step(1.0)
    told = engine.explain(task)
    assert [list(one.moved.items()) for one in told] == [
        [("node", -1.5), ("seven", 1.0)],
        [],
        [("seven", 1.0), ("node", 0.5)],
    ]
    assert sorted(seen[0][0]) == [[0.0, 7.0], [2.0, 7.0]] and seen[0][1] == 2 and len(seen) == 1


def test_who_does_not_wait_has_no_candidates_and_a_shape_that_fits_nowhere_none() -> None:
    engine, (node,) = engine_with(1)
    task = engine.put(TASK, one_core(engine))
    assert engine.explain(task) == []
    (one,) = engine.step(1.0).placements
    assert engine.explain(task) == [] and engine.why(task).state == "placed"
    engine.put(FINISHED, one.attempt)
    engine.step(2.0)
    assert engine.explain(task) == [] and engine.why(task).state == "ended"
    large = engine.put(TASK, one_core(engine, 9.0))
    engine.step(3.0)
    assert engine.explain(large) == [] and engine.why(large).reasons == {"cores": 1} and node


def test_ids_that_were_never_given_are_not_described() -> None:
    engine, (node,) = engine_with(1)
    for identity in (0, make_id(9, 0, 1), node + 1000, node + (1 << 50)):
        with pytest.raises(UnknownId):
            engine.describe(identity)
    assert engine.describe(node)["name"] == "n0"


def test_devices_are_lacking_until_as_many_are_free_as_are_wanted() -> None:
    engine = Engine("fifo")
    card = Device("gpu", "a", 8 * GIB, "exclusive", power=DeviceProfile((0.0, 1.0), (10.0, 90.0)))
    engine.node(Node("n", 16, 8 * GIB, power=CURVE, devices=(card,) * 3))
    engine.step(0.0)
    pair, single = (engine.shape([Variant(cores=1, device="gpu", devices=count)]) for count in (2, 1))
    engine.put(TASK, pair)
    engine.step(1.0)
    other, one = engine.put(TASK, pair), engine.put(TASK, single)
    engine.step(2.0)
    assert engine.why(other).reasons == {"devices": 1} and engine.why(one).state == "placed"
    last = engine.put(TASK, single)
    engine.step(3.0)
    assert engine.why(last).reasons == {"devices": 1}


def test_the_first_label_that_is_missing_is_named_and_a_taint_before_it() -> None:
    engine = Engine("fifo")
    engine.node(Node("a", 1, 8 * GIB), labels={"x": "1"})
    engine.node(Node("b", 1, 8 * GIB), taints=(Taint("soft", effect="PreferNoSchedule"), Taint("hard")))
    engine.step(0.0)
    rule = engine.constraint(Constraint(any_of=((Match("x"), Match("y")), (Match("z"),))))
    task = engine.put(TASK, one_core(engine, constraint=rule))
    engine.step(1.0)
    assert engine.why(task).reasons == {"y": 1, "hard": 1}
    named = engine.put(TASK, one_core(engine, constraint=engine.constraint(Constraint(nodes=("c",)))))
    engine.step(2.0)
    assert engine.why(named).reasons == {"another node is named": 1, "hard": 1}


def test_why_in_words_counts_nodes_and_says_until_when() -> None:
    assert str(Why("waiting", 5, {"cores": 3, "asleep": 2})) == "0/5: 3 cores, 2 asleep"
    engine, _ = engine_with(1)
    (one,) = [engine.put(TASK, one_core(engine))]
    (placed,) = engine.step(1.0).placements
    engine.put(REFUSED, placed.attempt, until_s=9.0)
    engine.step(2.0)
    assert (engine.why(one).state, engine.why(one).until_s) == ("parked", 9.0)
    later = engine.put(TASK, one_core(engine), release_s=30.0)
    engine.step(3.0)
    assert (engine.why(later).state, engine.why(later).until_s) == ("not arrived", 30.0)


# Looks ahead


def test_medians_and_spreads_come_from_the_interval_by_tag() -> None:
    engine, _ = engine_with(1)
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=s, tag=k) for k, s in enumerate((4.0, 0.0, math.nan, 8.0))]
    engine.step(1.0)
    rows = [row_of(task) for task in tasks]
    median, sigma = _spread(engine.state, 0.5)
    assert median[rows].tolist() == [4.0, 6.0, 6.0, 8.0] and set(sigma.tolist()) == {0.5}
    asked: list[int] = []

    def interval(tag: int) -> tuple[float, float]:
        asked.append(tag)
        return (2.0, 18.0) if tag == 0 else (5.0, 5.0)

    median, sigma = _spread(engine.state, interval)
    assert asked == [0, 3] and median[rows].tolist() == [6.0, 6.0, 6.0, 5.0]
    assert sigma[rows].tolist() == pytest.approx([math.log(9.0) / (2 * 1.6448536269514722), 0.0, 0.0, 0.0])
    wrong: dict[int, tuple[float, float]] = {0: (0.0, 5.0), 1: (-1.0, 5.0), 2: (5.0, 4.0)}
    for number in wrong:
        with pytest.raises(InvalidInput, match="is not 0 < low <= high"):
            _spread(engine.state, lambda tag: wrong[number])  # noqa: B023


def test_draws_are_one_stream_for_each_seed_and_lie_as_their_sigma_says() -> None:
    engine, _ = engine_with(1)
    task = engine.put(TASK, one_core(engine, 9.0), estimate_s=10.0)
    engine.step(1.0)
    rng = np.random.default_rng([5, 21])
    drawn = rng.standard_normal(len(engine.state.tasks))
    left = draw_left(engine.state, 0.4, 5)
    assert left[row_of(task)] == pytest.approx(10.0 * math.exp(0.4 * drawn[row_of(task)]))


def test_who_was_placed_and_has_not_begun_has_all_of_it_left() -> None:
    engine, _ = engine_with(4)
    shape = one_core(engine)
    tasks = [engine.put(TASK, shape, estimate_s=10.0) for _ in range(2)]
    first, _ = engine.step(1.0).placements
    engine.put(STARTED, first.attempt)
    engine.step(3.0)
    engine.step(7.0)
    left = draw_left(engine.state, 0.0, 0)
    assert [left[row_of(task)] for task in tasks] == [6.0, 10.0]


def test_a_spread_of_one_value_is_that_value() -> None:
    assert SeedRange.of([3.0]) == SeedRange(3.0, 3.0, 3.0) and SeedRange.of([1.0, math.nan, 5.0]) == SeedRange(
        3.0, 1.0, 5.0
    )
    assert math.isnan(SeedRange.of([]).mean) and math.isnan(SeedRange.of([math.nan]).high)


def test_a_look_of_several_policies_begins_from_the_same_present_also_after_a_planner() -> None:
    engine, _ = engine_with(2)
    shape, flow = one_core(engine), engine.workflow()
    for seconds in (9.0, 1.0, 5.0, 3.0):
        engine.put(TASK, shape, workflow=flow, estimate_s=seconds, deadline_s=6.0)
    engine.put(TASK, shape, workflow=flow, estimate_s=1.0, release_s=4.0, deadline_s=50.0)
    engine.put(TASK, one_core(engine, 1.0, function="g"), workflow=flow)
    engine.step(0.0)
    first = roll(engine, ["fifo", "heft", "fifo"], math.inf)
    assert first[0] == first[2] and first[0].unknown == 1 and first[0].ended.mean == 6.0
    assert [one.policy for one in first] == ["fifo", "heft", "fifo"]
    (short,) = roll(engine, ["fifo"], 5.0)
    assert short.ended.mean + short.open.mean == 6.0 and short.late.mean == 0.0
    (past,) = roll(engine, ["fifo"], 6.5)
    assert past.late.mean > 0.0


# What was


def test_a_decision_of_the_first_call_is_found_and_one_never_made_is_not(tmp_path: Path) -> None:
    engine, (node,) = engine_with(1)
    task = engine.put(TASK, one_core(engine))
    other = engine.put(TASK, one_core(engine))
    with Journal(engine, tmp_path / "j"):
        engine.step(1.0)
        past = explain_past(tmp_path / "j", task)
        assert past.at_s == 1.0 and [one.node for one in past.candidates] == [node] and past.names == {node: "n0"}
        assert [one.task for one in past.placements] == [task]
        with pytest.raises(UnknownId, match=f"{other} was not placed since the snapshot"):
            explain_past(tmp_path / "j", other)

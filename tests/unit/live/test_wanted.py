"""`wanted` with the first least cost decides as `step` does, alone, jointly and for many engines at once."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.kernel import jit
from wattflow.live import FINISHED, STARTED, TASK, Engine, Placement, caller_choice
from wattflow.live.caller_choice import NONE, PLACE, SLEEP, WAIT
from wattflow.live.protocol import row_of
from wattflow.model.workflow import Function, Variant
from wattflow.testing.sample_states import sample_states

POLICIES = ("fifo", "sjf", "least-energy", "kubernetes", "wattflow")


def shapes(engine: Engine) -> list[int]:
    gpu = Variant("gpu", 1, 2**30, "gpu", 1, 0.5, 2**32, runtime_factor=0.3)
    return [
        engine.shape((Variant(cores=1, memory_bytes=2**30),)),
        engine.shape((Variant(cores=2), gpu), "g"),
        engine.shape((Variant(cores=0.5),), "g"),
        engine.shape((Variant(cores=1),), parts=3),
    ]


def filled(policy: str, seed: int, tasks: int = 40, sample: int = 1, kinds: int = 4) -> Engine:
    engine = Engine(policy, sample_states()[sample].cluster, seed=seed)
    rng = np.random.default_rng(seed)
    known = shapes(engine)
    for tag in range(tasks):
        engine.put(TASK, known[rng.integers(kinds)], estimate_s=float(rng.uniform(1, 9)), tag=tag)
    return engine


def plain(placements: list[Placement]) -> list[tuple[int, int, int, int, int]]:
    return [(p.tag, p.part, p.node, p.variant, p.devices) for p in placements]


def by_argmin(engine: Engine, now_s: float, most: int = 256) -> list[Placement]:
    hand = engine.by_hand(rows=most)
    hand.open(now_s)
    task, rows = hand.wanted()
    while task >= 0:
        best = int(np.argmin(rows["cost"]))
        assert best == 0
        task, rows = hand.wanted(best if np.isfinite(rows["cost"][best]) else NONE)
    return list(hand.close().placements)


@pytest.mark.parametrize("policy", POLICIES)
def test_argmin_equals_step_where_few_of_many_places_are_shown(policy: str) -> None:
    stepped, chosen = filled(policy, 7), filled(policy, 7)
    for now in range(3):
        assert plain(by_argmin(chosen, float(now), most=2)) == plain(list(stepped.step(float(now)).placements))


@pytest.mark.parametrize("policy", POLICIES)
def test_argmin_equals_step_over_several_instants(policy: str) -> None:
    stepped, chosen = filled(policy, 7), filled(policy, 7)
    for now in range(6):
        ours, theirs = by_argmin(chosen, float(now)), list(stepped.step(float(now)).placements)
        assert plain(ours) == plain(theirs)
        for name in ("nodes", "devices", "attempts", "tasks", "shapes"):
            assert getattr(chosen.state, name).tobytes() == getattr(stepped.state, name).tobytes(), name
        for engine, placements in ((stepped, theirs), (chosen, ours)):
            for placement in placements[::2]:
                engine.put(STARTED, placement.attempt)
                engine.put(FINISHED, placement.attempt)


def test_waiting_leaves_the_task_and_another_choice_is_carried_out() -> None:
    engine = filled("least-energy", 3, kinds=3)
    hand = engine.by_hand()
    hand.open(0.0)
    first, rows = hand.wanted()
    assert len(rows) > 2
    assert set(rows["kind"]) == {PLACE}
    last = rows[-1].copy()
    second, _ = hand.wanted(len(rows) - 1)
    third, _ = hand.wanted(NONE)
    assert len({first, second, third}) == 3
    step = hand.close()
    assert [(p.task, p.node) for p in step.placements] == [(first, int(last["node"]))]
    assert engine.counts["waiting"] == 39
    assert second in [p.task for p in engine.step(0.0).placements]


def test_a_gang_is_asked_part_by_part_and_undone_whole() -> None:
    engine = Engine("fifo", sample_states()[0].cluster)
    gang = engine.shape((Variant(cores=1),), parts=3)
    engine.put(TASK, gang, estimate_s=5.0)
    before = engine.state.nodes.used_u.copy()
    hand = engine.by_hand()
    hand.open(0.0)
    task, _ = hand.wanted()
    again, _ = hand.wanted(0)
    assert again == task
    assert hand.wanted(NONE)[0] == -1
    assert hand.close().placements == []
    assert engine.state.nodes.used_u.tolist() == before.tolist()
    assert not engine.state.functions.started.any()  # a policy that counts starts must not see those undone
    assert [p.part for p in by_argmin(engine, 1.0)] == [0, 1, 2]


def test_a_gang_among_joint_rows_is_asked_part_by_part_then_all_shapes_again() -> None:
    engine = Engine("fifo", sample_states()[0].cluster)
    shapes = [engine.shape((Variant(cores=1),), parts=2), engine.shape((Variant(cores=1.0, memory_bytes=1 << 20),))]
    gang, single = (engine.put(TASK, shape, estimate_s=5.0) for shape in shapes)
    hand = engine.by_hand(joint=True)
    hand.open(0.0)
    _, rows = hand.wanted()
    assert set(rows["task"][rows["kind"] == PLACE].tolist()) == {gang, single}
    task, rows = hand.wanted(int(np.flatnonzero(rows["task"] == gang)[0]))
    assert task == gang and set(rows["task"].tolist()) == {gang}
    task, rows = hand.wanted(0)
    assert task == single and WAIT in rows["kind"].tolist()
    assert hand.wanted(0)[0] == -1
    assert [(p.task, p.part) for p in hand.close().placements] == [(gang, 0), (gang, 1), (single, 0)]


def test_joint_rows_show_every_waiting_shape_and_waiting_and_sleeping() -> None:
    engine = filled("least-energy", 5, sample=2, kinds=3)
    hand = engine.by_hand(joint=True)
    hand.open(0.0)
    task, rows = hand.wanted()
    placing = rows[rows["kind"] == PLACE]
    assert len(set(placing["task"].tolist())) == 3  # no node has a GPU, the CPU variants fit
    assert np.count_nonzero(rows["kind"] == WAIT) == 1
    assert SLEEP in rows["kind"]
    assert rows["cost"][0] == placing["cost"].min()
    other = int(np.flatnonzero((rows["kind"] == PLACE) & (rows["task"] != task))[0])
    taken = int(rows["task"][other])
    _, rows = hand.wanted(other)
    asleep = rows[rows["kind"] == SLEEP][0].copy()
    hand.wanted(int(np.flatnonzero(rows["kind"] == SLEEP)[0]))
    assert hand.wanted(NONE)[0] == -1
    step = hand.close()
    assert taken in [p.task for p in step.placements]
    assert [a.who for a in step.actions] == [int(asleep["node"])]


def test_rows_that_do_not_fit_are_counted() -> None:
    engine = filled("least-energy", 3)
    hand = caller_choice.CallerChoice(engine, rows=2)
    hand.open(0.0)
    _, rows = hand.wanted()
    assert len(rows) == 2
    assert hand.lost > 0


@pytest.mark.skipif(not jit.COMPILED, reason="about compiled code")
def test_attempt_rows_grow_in_the_middle_of_an_instant() -> None:
    engine = Engine("fifo", sample_states()[3].cluster)
    shape = engine.shape((Variant(cores=0.001),), Function("small"))
    for tag in range(700):
        engine.put(TASK, shape, tag=tag)
    assert len(by_argmin(engine, 0.0)) == len(set(range(700)))


def test_attempt_rows_grow_before_a_choice_that_finds_none_free() -> None:
    engine = Engine("fifo", sample_states()[3].cluster)
    shape = engine.shape((Variant(cores=0.001),), Function("small"))
    full = len(engine.state.attempts)
    for tag in range(full):
        engine.put(TASK, shape, tag=tag)
    assert len(engine.step(0.0).placements) == full
    engine.put(TASK, shape, tag=full)
    assert [one.tag for one in by_argmin(engine, 1.0)] == [full] and len(engine.state.attempts) > full


def test_of_a_task_that_was_planned_only_the_planned_variant_is_shown() -> None:
    engine = Engine("fifo", sample_states()[3].cluster)
    task = engine.put(TASK, engine.shape((Variant(cores=1), Variant(cores=0.5))), tag=1)
    engine.state.tasks.pinned_variant[row_of(task)] = 1  # as a planner pins it
    assert [one.variant for one in by_argmin(engine, 0.0)] == [1]

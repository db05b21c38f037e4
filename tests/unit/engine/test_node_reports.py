"""A live engine's timers, and what becomes of a node that is told to warm, sleep, wake, offer or use other amounts."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import agenda, containers, life, reports
from wattflow.engine.build import build_state, container_table
from wattflow.engine.tables import (
    ACT_SLEEP,
    ACT_WAKE,
    ACT_WARM,
    ASLEEP,
    FALLING,
    HOT,
    NODE_MARKS,
    ON,
    TIMERS,
    WAKING,
    State,
)
from wattflow.engine.validate import validate_state
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.model.cluster import Sleep
from wattflow.model.workflow import Function


@jit.jit
def push(state, at_s, what, who, generation):
    agenda.push(state, at_s, what, who, generation)


@jit.jit
def pop(state):
    agenda.pop(state)
    return agenda.next_time(state)


@jit.jit
def forget_warming(state, node):
    agenda.forget_warming(state, node)


@jit.jit
def warm(state, node, fn):
    life.warm(state, None, node, fn)


@jit.jit
def warmed(state, node, fn):
    life.warmed(state, None, node, fn)


@jit.jit
def cold(state, node, fn):
    reports.cold(state, None, node, fn)


@jit.jit
def keep(state, node, fn):
    containers.keep(state, node, fn)


@jit.jit
def fall_asleep(state, node):
    life.fall_asleep(state, None, node)


@jit.jit
def wake(state, node):
    life.wake(state, None, node)


@jit.jit
def set_room(state, node, capacity_u, capacity_mem):
    reports.set_room(state, node, capacity_u, capacity_mem)


@jit.jit
def load(state, node, cores_u, memory):
    reports.load(state, node, cores_u, memory)


def live_state(enter_s: float = 4.0, wake_s: float = 30.0) -> State:
    """Two nodes that sleep after 60 s and keep containers for 100 s; it is 10 s."""
    kind = node(4, sleep=Sleep(1.0, wake_s, enter_s, after_s=60.0), keep_alive_s=100.0)
    state = build_state(tasks([1.0], function=Function("f", cold_start_s=2.0)), nodes(kind, kind))
    state.replace(
        node_marks=record_table(NODE_MARKS, 2), timers=record_table(TIMERS, 64), containers=container_table(4)
    )
    state.counts["free_container"] = 0
    state.clock["now"] = 10.0
    return state


def listed(state: State) -> list[tuple[float, int, int]]:
    rows = state.timers[: int(state.counts.timer_n[0])]
    return sorted((float(row.time), int(row.what), int(row.who)) for row in rows)


def actions(state: State) -> list[tuple[int, int, int]]:
    rows = state.actions[: int(state.counts.action_n[0])]
    return [(int(row.kind), int(row.node), int(row.value)) for row in rows]


@pytest.mark.parametrize("seed", range(4))
def test_timers_come_by_time_and_of_one_time_in_their_order(seed: int) -> None:
    state, rng = live_state(), random.Random(seed)
    inside: list[tuple[float, int, int, int, int]] = []
    asked = 0
    for _ in range(120):
        if len(inside) < 60 and (rng.random() < 0.55 or not inside):
            row = float(rng.randrange(8)), asked, rng.randrange(5), rng.randrange(9), rng.randrange(7)
            push(state.handle(), row[0], *row[2:])
            asked += 1
            inside.append(row)
        else:
            first = min(inside)
            top = state.timers[0]
            assert (top.time, top.sequence, top.what, top.who, top.generation) == first
            inside.remove(first)
            assert pop(state.handle()) == min(inside, default=(math.inf,))[0]
        assert int(state.counts.timer_n[0]) == len(inside)
        assert int(state.clock.sequence[0]) == asked


def test_a_container_made_ahead_of_need_is_asked_for_and_comes_in_time() -> None:
    state = live_state()
    with np.errstate(over="ignore"):
        warm(state.handle(), 1, 0)
        state.functions["cold_start_s"] = 3.5
        warm(state.handle(), 1, 0)
        assert listed(state) == [(12.0, agenda.WARM, 1), (13.5, agenda.WARM, 1)]
        assert actions(state) == [(ACT_WARM, 1, 0)] * 2
        assert state.node_marks.warming.tolist() == [0, 2]
        fall_asleep(state.handle(), 1)  # not while anything is made there
        assert int(state.nodes.power_state[1]) == ON and len(actions(state)) == 2
        for left in (1, 0):
            pop(state.handle())
            warmed(state.handle(), 1, 0)
            assert state.node_marks.warming.tolist() == [0, left]
            assert (10.0 + 60.0, agenda.SLEEP, 1) in listed(state) or left
    assert int(state.nodes.idle_since[1]) == 10
    assert len([row for row in range(4) if state.containers.idle_since[row] == 10.0]) == 2
    validate_state(state)


def test_warming_ends_with_a_node_that_is_lost_and_leaves_nothing_on_one_that_sleeps() -> None:
    state = live_state()
    for place in (0, 1, 1):
        warm(state.handle(), place, 0)
    forget_warming(state.handle(), 1)
    assert state.node_marks.warming.tolist() == [1, 0]
    assert sorted((what, who) for _, what, who in listed(state)) == sorted(
        [(agenda.WARM, 0), (agenda.LOOK, 1), (agenda.LOOK, 1)]
    )
    state.nodes.power_state[0] = ASLEEP
    warmed(state.handle(), 0, 0)
    assert int(state.nodes.first_container[0]) == -1 and int(state.node_marks.warming[0]) == 0


def test_a_function_that_is_cold_on_a_node_has_nothing_there_and_nothing_on_its_way() -> None:
    state = live_state()
    for fn in (0, HOT, 0):
        warm(state.handle(), 1, fn)
    warm(state.handle(), 0, 0)
    with np.errstate(over="ignore"):
        for fn in (0, HOT):
            keep(state.handle(), 1, fn)
        keep(state.handle(), 0, 0)
        cold(state.handle(), 1, 0)
    assert state.node_marks.warming.tolist() == [1, 1]
    assert sorted((what, who) for _, what, who in listed(state)) == sorted(
        [(agenda.WARM, 0), (agenda.LOOK, 1), (agenda.LOOK, 1), (agenda.WARM, 1)]
    )
    first = int(state.nodes.first_container[1])
    assert int(state.containers.function[first]) == HOT and int(state.containers.next_node[first]) == -1
    assert int(state.nodes.first_container[0]) >= 0
    with np.errstate(over="ignore"):
        cold(state.handle(), 1, HOT)  # the last: its idling begins anew
        assert (70.0, agenda.SLEEP, 1) in listed(state) and int(state.node_marks.warming[1]) == 0
        before = len(listed(state))
        cold(state.handle(), 1, HOT)
    assert len(listed(state)) == before
    validate_state(state)


@pytest.mark.parametrize(("enter_s", "falling"), [(4.0, FALLING), (0.0, ASLEEP)])
def test_a_node_falls_asleep_only_when_it_is_on_and_empty(enter_s: float, falling: int) -> None:
    state = live_state(enter_s)
    with np.errstate(over="ignore"):
        state.nodes.running[0] = 1
        fall_asleep(state.handle(), 0)
        assert actions(state) == []
        state.nodes.running[0] = 0
        fall_asleep(state.handle(), 0)
        assert (actions(state), int(state.nodes.power_state[0])) == ([(ACT_SLEEP, 0, 0)], falling)
        assert int(state.counts.asleep_n[0]) == 1
        fall_asleep(state.handle(), 0)
        assert len(actions(state)) == 1
        wake(state.handle(), 0)
    if falling == FALLING:  # it wakes when it is down
        assert (len(actions(state)), int(state.nodes.wake_wanted[0])) == (1, 1)
    else:
        assert actions(state)[1:] == [(ACT_WAKE, 0, 0)]
        assert (int(state.nodes.power_state[0]), float(state.nodes.on_at[0])) == (WAKING, 40.0)
        assert int(state.counts.asleep_n[0]) == 0


def test_a_node_offers_other_amounts_and_others_use_some() -> None:
    state = live_state()
    epoch = int(state.clock.epoch[0])
    with np.errstate(over="ignore"):
        set_room(state.handle(), 0, 3_000_000, -1)
        assert (int(state.nodes.capacity_u[0]), int(state.nodes.request_u[0])) == (3_000_000, 3_000_000)
        set_room(state.handle(), 0, -1, 0)
        assert (int(state.nodes.capacity_u[0]), int(state.nodes.capacity_mem[0])) == (3_000_000, 0)
        set_room(state.handle(), 0, 0, 50)
        assert (int(state.nodes.capacity_u[0]), int(state.nodes.capacity_mem[0])) == (0, 50)
        assert int(state.clock.epoch[0]) == epoch + 3
        for cores_u, memory, looks in ((5, 7, 3), (6, 7, 3), (6, 6, 4), (5, 9, 5), (5, 9, 5)):
            load(state.handle(), 1, cores_u, memory)
            row, mark = state.nodes[1], state.node_marks[1]
            assert (int(row.used_u), int(row.alloc_u), int(row.used_mem)) == (cores_u, cores_u, memory)
            assert (int(mark.other_u), int(mark.other_mem)) == (cores_u, memory)
            assert int(state.clock.epoch[0]) == epoch + looks  # less in use is room that grew
    validate_state(state)

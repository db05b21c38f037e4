"""Which nodes stand for others, and which for themselves: data, containers, preferences, reservations, caps, sleep."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.engine import fit, groups
from wattflow.engine.build import build_state
from wattflow.engine.tables import ASLEEP, DOWN, DRAINING, FALLING, HOT, MASK_ROWS, ON, WAKING, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.model.cluster import Sleep
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape


@jit.jit
def candidates(state, variant, task):
    return fit.candidates(state, variant, task)


@jit.jit
def rooms(state, variant, node, more_u, more_mem):
    return fit.rooms(state, variant, node, more_u, more_mem)


@jit.jit
def note_backfill(state, variant, node, end, sign):
    fit.note_backfill(state, variant, node, end, sign)


@jit.jit
def take(state, variant, node):
    fit.take(state, variant, node, -1)


@jit.jit
def set_power(state, node, power_state):
    groups.leave(state, node)
    state.nodes[node].power_state = power_state
    groups.rejoin(state, node)


def found(state: State, task: int = 0, variant: int = 0) -> list[int]:
    count = candidates(state.handle(), variant, task)
    assert np.all(state.candidates.device[:count] == -1)
    return [int(each) for each in state.candidates.node[:count]]


@pytest.mark.parametrize(("at", "size", "expected"), [(2, 5.0, [0, 2]), (2, 0.0, [0]), (0, 5.0, [0]), (-1, 5.0, [0])])
def test_a_node_that_holds_data_stands_for_itself(at: int, size: float, expected: list[int]) -> None:
    """Three equal nodes are one candidate; the child's bytes lie on one of them, or nowhere."""
    work = tasks([1.0] * 3, edges=edges((0, 1), (0, 2)), edge_bytes=np.array([size, 9.0]))
    state = build_state(work, nodes(*[node(2)] * 3))
    state.tasks.node[0] = at
    assert found(state, task=1) == expected
    if at == 2 and size:
        with np.errstate(over="ignore"):
            set_power(state.handle(), 2, DOWN)
        assert found(state, task=1) == [0]


def test_data_on_the_first_node_counts_where_the_search_does_not_reach_it() -> None:
    work = tasks([1.0] * 2, edges=edges((0, 1)), edge_bytes=np.array([5.0]))
    state = build_state(work, nodes(*(node(2 + k) for k in range(5))))
    state.tasks.node[0], state.rules["score_limit"] = 0, 2
    state.choice["scan_at"], state.choice["scan_left"] = 3, 1
    assert found(state, task=1) == [3, 0]


@pytest.mark.parametrize("kind", [0, HOT])
def test_a_node_with_a_warm_container_stands_for_itself(kind: int) -> None:
    state = build_state(tasks([1.0], function=Function("f", cold_start_s=1.0)), nodes(*[node(2)] * 3))
    assert found(state) == [0]
    state.containers.node[0], state.containers.next_function[0] = 2, -1
    if kind == HOT:
        state.counts["hot_container"] = 0
    else:
        state.functions.first_container[0] = 0
    assert found(state) == [0, 2]
    state.containers.node[0] = 0
    assert found(state) == [0]


def wished(levels: list[list[int]], allowed: list[int]) -> State:
    """Four equal nodes; a rule allows some, and its tasks prefer these, then those."""
    state = build_state(tasks([1.0]), nodes(*[node(2)] * 4))
    words = np.array([[sum(1 << n for n in places)] for places in levels], np.uint64).reshape(-1, 1)
    rows = record_table(MASK_ROWS, 2)
    rows.wish_first[1], rows.wish_n[1] = 1, len(levels)
    state.replace(
        masks=np.array([[15], [sum(1 << n for n in allowed)]], np.uint64), mask_rows=rows,
        wishes=np.concatenate([np.zeros((1, 1), np.uint64), words]),
    )  # fmt: skip
    state.shapes["constraint"], state.rules["wishes"] = 1, 1
    return state


def test_a_group_stands_once_for_each_level_of_preference() -> None:
    assert found(wished([[2, 3], [0, 1]], [0, 1, 2, 3])) == [2, 0]
    assert found(wished([[2, 3], [0, 1]], [1, 3])) == [3, 1]
    assert found(wished([[3], [0, 1, 2]], [0, 1])) == [0]
    assert found(wished([[0, 1, 2, 3]], [1, 2])) == [1]  # one level is none
    state = wished([[2, 3], [0, 1]], [0, 1, 2, 3])
    state.rules["wishes"] = 0
    assert found(state) == [0]


def test_a_rule_names_the_first_node_of_a_group_that_it_allows() -> None:
    state = wished([], [2, 3])
    assert found(state) == [2]
    with np.errstate(over="ignore"):
        set_power(state.handle(), 0, DOWN)
        set_power(state.handle(), 3, DOWN)
    assert found(state) == [2]  # a group of two, of which it allows the second
    with np.errstate(over="ignore"):
        set_power(state.handle(), 1, DOWN)
    assert found(state) == [2]
    state = wished([], [2, 3])
    state.masks[1] = 0
    assert found(state) == []
    state.shapes["constraint"] = 0
    assert found(state) == [0]
    state.rules["tainted"], state.masks[0, 0] = 1, 8
    assert found(state) == [3]


def test_a_reserved_node_does_not_stand_for_its_twins() -> None:
    state = build_state(tasks([1.0]), nodes(*[node(2)] * 3))
    state.choice["reserved"], state.choice["shadow"] = 0, math.inf
    assert found(state) == [0, 1]
    state.choice["reserved"] = 1
    assert found(state) == [0]


def test_under_a_cap_the_search_goes_on_where_it_ended() -> None:
    """Five kinds of nodes, two candidates at a time."""
    state = build_state(tasks([1.0]), nodes(*(node(2 + k) for k in range(5))))
    state.rules["score_limit"] = 2
    state.choice["scan_at"], state.choice["scan_left"] = 3, 5
    looks = []
    for _ in range(3):
        looks.append((found(state), int(state.choice.scan_at[0]), int(state.choice.scan_left[0])))
    assert looks == [([3, 4], 0, 3), ([0, 1], 2, 1), ([2], 2, 0)]
    state.rules["score_limit"] = 0
    assert found(state) == [0, 1, 2, 3, 4]


def sleepy() -> State:
    """Two kinds of nodes that are on, two that sleep, one of which is falling asleep still."""
    state = build_state(tasks([1.0]), nodes(*(node(2 + k, sleep=Sleep(1.0, 2.0)) for k in range(4))))
    with np.errstate(over="ignore"):
        for place, power_state in ((1, ASLEEP), (3, FALLING)):
            set_power(state.handle(), place, power_state)
    state.counts["asleep_n"] = 2
    return state


def test_sleeping_nodes_come_last_or_only_where_none_that_is_on_fits() -> None:
    state = sleepy()
    assert sorted(found(state)) == [0, 2]
    state.rules["wakes"] = 1
    both = found(state)
    assert (sorted(both[:2]), sorted(both[2:])) == ([0, 2], [1, 3])
    state.rules["wakes"] = 0
    with np.errstate(over="ignore"):
        for place, power_state in ((0, DOWN), (2, DRAINING)):
            set_power(state.handle(), place, power_state)
    assert sorted(found(state)) == [1, 3]
    state.counts["asleep_n"] = 0
    assert found(state) == []


def test_a_pinned_task_looks_at_its_node_alone() -> None:
    state = sleepy()
    for place, expected in ((0, [0]), (2, [2]), (1, [1])):
        state.tasks["pinned"] = place
        assert found(state) == expected
    with np.errstate(over="ignore"):
        set_power(state.handle(), 0, WAKING)
        set_power(state.handle(), 2, DOWN)
    state.tasks["pinned"] = 0
    assert found(state) == [0]
    state.tasks["pinned"] = 2
    assert found(state) == []


def test_ungrouped_nodes_all_stand_for_themselves() -> None:
    state = build_state(tasks([1.0]), nodes(*[node(2)] * 3))
    state.rules["grouped"] = 0
    assert found(state) == [0, 1, 2]


def two_needs() -> State:
    """A node of 4 cores and 100 bytes; variant 0 needs 2 cores and 30 bytes, variant 1 one core and nothing."""
    shapes = (Shape(0, (Variant(cores=2, memory_bytes=30),)), Shape(0, (Variant(cores=1),)))
    work = tasks([1.0, 1.0], shapes=shapes, shape=np.array([0, 1], np.int32))
    return build_state(work, nodes(node(4), node(4)))


def test_rooms_are_the_parts_that_a_node_could_take() -> None:
    state = two_needs()
    assert [rooms(state.handle(), v, 0, 0, 0) for v in (0, 1)] == [2, 4]
    assert [rooms(state.handle(), 0, 0, more, 0) for more in (0, 1, 2_000_000, 2_000_001, 9_000_000)] == [2, 1, 1, 0, 0]
    assert [rooms(state.handle(), 0, 0, 0, more) for more in (40, 41, 70, 71, 200)] == [2, 1, 1, 0, 0]
    state.nodes.used_u[0], state.nodes.used_mem[0] = 3_000_000, 80
    assert rooms(state.handle(), 0, 0, 0, 0) == 0
    state.nodes.freed_u[0], state.nodes.freed_mem[0] = 1_000_000, 10  # what ends before
    assert [rooms(state.handle(), v, 0, 0, 0) for v in (0, 1)] == [1, 2]
    for power_state, expected in ((ON, 1), (ASLEEP, 1), (WAKING, 1), (FALLING, 1), (DOWN, 0), (DRAINING, 0)):
        state.nodes.power_state[0] = power_state
        assert rooms(state.handle(), 0, 0, 0, 0) == expected
    state.class_ok[0, :] = 0
    assert rooms(state.handle(), 0, 1, 0, 0) == 0


def test_what_is_placed_before_the_head_uses_up_the_spare_room_unless_it_ends_in_time() -> None:
    """The head needs 2 of 4 cores. With one in use, a further core leaves it as many places; with two it takes one."""
    state = two_needs()
    state.choice["head"], state.choice["shadow"], state.choice["spare"] = 0, 10.0, 3
    note_backfill(state.handle(), 1, 0, 10.0, 1)
    assert (int(state.nodes.freed_u[0]), int(state.nodes.freed_mem[0]), int(state.choice.spare[0])) == (1_000_000, 0, 3)
    note_backfill(state.handle(), 0, 0, 9.0, 1)
    note_backfill(state.handle(), 1, 0, 10.0, -1)
    assert (int(state.nodes.freed_u[0]), int(state.nodes.freed_mem[0])) == (2_000_000, 30)
    state.nodes.freed_u[0] = state.nodes.freed_mem[0] = 0
    note_backfill(state.handle(), 0, 0, 10.5, 1)  # one of two places
    assert int(state.choice.spare[0]) == 2
    state.nodes.used_u[0] = 1_000_000
    note_backfill(state.handle(), 1, 0, 10.5, 1)
    assert int(state.choice.spare[0]) == 2
    state.nodes.used_u[0] = 2_000_000
    note_backfill(state.handle(), 1, 0, 10.5, 1)
    assert int(state.choice.spare[0]) == 1
    note_backfill(state.handle(), 1, 0, 10.5, -1)
    assert (int(state.choice.spare[0]), int(state.nodes.freed_u[0])) == (2, 0)


@pytest.mark.parametrize(
    ("reserved", "shadow_s", "spare", "expected"),
    [(-2, 0.0, 0, [0, 1]), (-1, 1.0, 0, [0, 1]), (-1, 0.9, 0, []), (-1, 0.9, 1, [0, 1]), (1, 0.9, 0, [0]),
     (0, 0.9, 0, [1]), (0, 1.0, 0, [0, 1])],
)  # fmt: skip
def test_a_candidate_must_not_delay_the_head(reserved: int, shadow_s: float, spare: int, expected: list[int]) -> None:
    """Each node has 2 cores free, one place for the head; the task of 1 s takes it. The head may have one node of both,
    or any."""
    state = two_needs()
    with np.errstate(over="ignore"):
        take(state.handle(), 0, 0)
        take(state.handle(), 1, 1)
        take(state.handle(), 1, 1)
    state.choice["reserved"], state.choice["head"] = reserved, 0
    state.choice["shadow"], state.choice["spare"] = shadow_s, spare
    assert found(state, task=1, variant=1) == expected

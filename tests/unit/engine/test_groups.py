"""Groups of equal nodes against plain sets: the lowest node, the second, and the lowest that rules and wishes leave."""

from __future__ import annotations

import random

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import groups
from wattflow.engine.build import build_state
from wattflow.engine.tables import BOARDS, COUNTABLE, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table

SMALL, LARGE = 64, 150
"""Nodes of the first class fill one word of a mask; those of the second begin with the next word."""


@jit.jit
def low_bit(x):
    return groups.low_bit(x)


@jit.jit
def lowest(state, group, constraint, wish):
    return groups.lowest_allowed(state, group, constraint), groups.lowest_of(state, group, constraint, wish)


@jit.jit
def second(state, group):
    return groups.second(state, group)


@jit.jit
def move(state, node, used_u):
    groups.leave(state, node)
    state.nodes[node].used_u = used_u
    groups.rejoin(state, node)


@jit.jit
def allowed(state, node, constraint):
    return groups.allowed(state, node, constraint)


@jit.jit
def grew(state, node):
    groups.room_grew(state, node)
    groups.room_grew_widely(state)


@jit.jit
def count_key(state, node):
    return groups.count_key(state, node)


def two_classes() -> State:
    return build_state(tasks([1.0]), nodes(*[node(2)] * SMALL, *[node(4)] * LARGE))


def bits(places: list[int]) -> np.ndarray:
    """Words of a mask in which these places are set."""
    words = np.zeros(4, np.uint64)
    for place in places:
        words[place >> 6] |= np.uint64(1) << np.uint64(place & 63)
    return words


def test_the_lowest_bit_of_every_number() -> None:
    for at in range(64):
        assert low_bit(np.uint64(1) << np.uint64(at)) == at
        assert low_bit((np.uint64(1) << np.uint64(at)) | (np.uint64(1) << np.uint64(63))) == at


def test_a_groups_lowest_and_second_node_while_nodes_come_and_go() -> None:
    """Nodes move between three states at random; each group's members are those of a plain set."""
    state, rng = two_classes(), random.Random(2)
    used = [0] * (SMALL + LARGE)
    with np.errstate(over="ignore"):
        for turn in range(400):
            n = (
                rng.randrange(SMALL + LARGE) if turn >= LARGE else SMALL + turn
            )  # first all of the second class in order
            used[n] = rng.randrange(3)
            move(state.handle(), n, used[n])
    there: dict[tuple[bool, int], list[int]] = {}
    for n, amount in enumerate(used):
        there.setdefault((n < SMALL, amount), []).append(n)
    assert int(state.counts.active_n[0]) == len(there) == 6
    listed = state.active_groups[:6].tolist()
    assert [int(state.groups.place[g]) for g in listed] == list(range(6))
    for members in there.values():
        g = int(state.nodes.group[members[0]])
        assert {int(state.nodes.group[n]) for n in members} == {g} and g in listed
        assert (int(state.groups.count[g]), int(state.groups.node[g])) == (len(members), members[0])
        assert second(state.handle(), g) == members[1]


def test_when_all_rows_of_groups_are_used_the_empty_ones_are_forgotten() -> None:
    """Room for 2 x 3 + 64 groups: a node that passes through a hundred states ends in the group of its last."""
    state = build_state(tasks([1.0]), nodes(*[node(4)] * 3))
    with np.errstate(over="ignore"):
        for used_u in range(100):
            move(state.handle(), 1, used_u)
    assert int(state.counts.active_n[0]) == 2 and int(state.counts.group_n[0]) < 100
    assert state.nodes.group[0] == state.nodes.group[2] != state.nodes.group[1]
    assert int(state.groups.free_u[int(state.nodes.group[1])]) == 4_000_000 - 99


@pytest.mark.parametrize("seed", range(3))
def test_the_lowest_node_that_a_rule_allows_and_that_is_liked(seed: int) -> None:
    state, rng = two_classes(), random.Random(seed)
    every = range(SMALL + LARGE)
    may, liked = [rng.sample(every, share) for share in (30, 60)]
    state.replace(
        masks=np.array([bits(list(every)), bits(may), bits([])]), wishes=np.array([bits([]), bits(liked), bits(may)])
    )
    with np.errstate(over="ignore"):
        for n in every:
            move(state.handle(), n, rng.randrange(4))
    first = {0: 0, 1: SMALL}
    for g in state.active_groups[: int(state.counts.active_n[0])].tolist():
        start = first[int(state.groups.cls[g])]
        mine = [n - start for n in every if int(state.nodes.group[n]) == g]
        both = [n for n in mine if n + start in may and n + start in liked]
        fit = [n for n in mine if n + start in may]
        assert lowest(state.handle(), g, 0, 0) == (mine[0], -1)
        assert lowest(state.handle(), g, 1, 1) == (min(fit, default=-1), min(both, default=-1))
        assert lowest(state.handle(), g, 1, 2) == (min(fit, default=-1), min(fit, default=-1))
        assert lowest(state.handle(), g, 2, 2) == (-1, -1)
    assert [bool(allowed(state.handle(), n, 1)) for n in every] == [n in may for n in every]


def test_changes_of_nodes_bear_stamps_where_costs_are_kept() -> None:
    state = two_classes()
    state.replace(
        boards=record_table(BOARDS, 1), touched=np.zeros(256, np.int64), touched_words=np.zeros(4, np.int64),
        touch_ring=np.full(4, -1, np.int32),
    )  # fmt: skip
    with np.errstate(over="ignore"):
        for n in (0, SMALL + 70, SMALL, SMALL + 70, 5):
            move(state.handle(), n, 1)
    assert int(state.touches.now[0]) == 5
    assert {int(at): int(state.touched[at]) for at in np.flatnonzero(state.touched)} == {0: 1, 134: 4, 64: 3, 5: 5}
    assert state.touched_words.tolist() == [5, 3, 4, 0]
    assert state.touch_ring.tolist() == [134, 5, 134, 64]  # the latest four, each at its stamp's place


def test_a_rebuild_makes_kept_costs_void() -> None:
    state = two_classes()
    state.replace(boards=record_table(BOARDS, 2))
    state.boards["owner"] = 7
    with np.errstate(over="ignore"):
        groups.rebuild(state.handle())
    assert state.boards.owner.tolist() == [0, 0]


def test_room_that_grew_is_worth_a_look() -> None:
    state = two_classes()
    state.clock["epoch"] = state.freed.size + 3
    grew(state.handle(), 9)
    assert (int(state.freed[3]), int(state.clock.epoch[0])) == (9, state.freed.size + 5)
    assert int(state.choice.floor[0]) == state.freed.size + 5


def test_free_countable_resources_tell_nodes_apart() -> None:
    """The same amounts of other resources, or other amounts of the same, are another key; nothing is none."""
    state = two_classes()
    amounts = [[0] * COUNTABLE, [3, 0], [0, 3], [4, 0], [3, 3], [3, 0]]
    state.replace(node_counts=np.array([(row + [0] * COUNTABLE)[:COUNTABLE] for row in amounts], np.int64))
    with np.errstate(over="ignore"):
        keys = [int(count_key(state.handle(), n)) for n in range(6)]
    assert keys[0] == 0 and keys[1] == keys[5] and len(set(keys[:5])) == 5

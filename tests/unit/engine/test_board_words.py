"""Kept costs word by word: when a board serves, what it keeps, and which place it names, against a plain search."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import boards
from wattflow.engine.boards import HELD_COST, NEVER, STALE, WORTH_IT
from wattflow.engine.build import build_state
from wattflow.engine.tables import ASLEEP, BOARDS, DOWN, MASK_ROWS, ON, WAKING, State
from wattflow.kernel import jit
from wattflow.kernel.records import record_table

PLACES = 192


@jit.jit
def serves(state, task):
    return boards.serves(state, task)


@jit.jit
def best_place(state, board, constraint):
    return boards.best_place(state, board, constraint)


@jit.jit
def keep(state, board, place, cost):
    boards._keep(state, board, place, cost)


@jit.jit
def fits(state, variant, node):
    return boards._fits(state, variant, node)


@jit.jit
def board_of(state, variant):
    return boards.board_of(state, variant)


def boarded(count: int = 2) -> State:
    """192 nodes, each in a group of its own, with costs kept on some boards."""
    state = build_state(tasks([1.0]), nodes(*[node(4)] * PLACES))
    state.replace(
        boards=record_table(BOARDS, count), board_costs=np.full((count, PLACES), NEVER),
        board_lows=np.full((count, 3), NEVER), board_synced=np.zeros((count, 3), np.int64),
        touched=np.zeros(PLACES, np.int64), touched_words=np.zeros(3, np.int64), touch_ring=np.zeros(64, np.int32),
        masks=np.zeros((4, 3), np.uint64), mask_rows=record_table(MASK_ROWS, 4),
    )  # fmt: skip
    state.masks[0] = ~np.uint64(0)
    state.nodes.group[:] = np.arange(PLACES)
    state.groups.count[:PLACES] = 1
    return state


def test_a_board_serves_where_nothing_else_decides() -> None:
    state = boarded()
    state.rules["local"] = state.rules["has_score"] = state.rules["grouped"] = 1
    state.counts["active_n"] = WORTH_IT
    assert serves(state.handle(), 0)

    def served(table: np.ndarray, name: str, value: int) -> bool:
        before = table[name].copy()
        table[name] = value
        found = bool(serves(state.handle(), 0))
        table[name] = before
        return found

    others = ("local", 0), ("has_score", 0), ("grouped", 0), ("samples", 1), ("has_data", 1), ("cold", 1), ("limits", 1)
    assert [served(state.rules, name, value) for name, value in others] == [False] * 7
    assert [served(state.rules, "score_limit", most) for most in (0, 1, 63, 64)] == [True, False, False, True]
    assert not served(state.counts, "active_n", WORTH_IT - 1)
    assert [served(state.choice, "reserved", node) for node in (-2, -1, 0)] == [True, False, False]
    assert served(state.tasks, "pinned", -1) and not served(state.tasks, "pinned", 0)
    state.counts["asleep_n"] = 1  # counts only where the policy wakes nodes
    assert served(state.rules, "wakes", 0) and not served(state.rules, "wakes", 1)
    state.counts["asleep_n"] = 0
    assert served(state.rules, "wakes", 1)
    state.mask_rows["wish_n"] = 1  # a preference counts only where the rules say that there are any
    assert served(state.rules, "wishes", 0) and not served(state.rules, "wishes", 1)
    state.mask_rows["wish_n"] = 0
    assert served(state.rules, "wishes", 1)
    state.replace(boards=record_table(BOARDS, 0))
    assert not serves(state.handle(), 0)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_place_is_the_least_cost_and_of_equal_ones_the_lowest_node(seed: int) -> None:
    state, rng = boarded(), random.Random(seed)
    may = rng.sample(range(PLACES), 20)
    for place in may:
        state.masks[1, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
    state.masks[2, 1] = 1  # one node only, the first of its word
    costs = [rng.choice([NEVER, HELD_COST, *range(1, 6)]) for _ in range(PLACES)]
    for place, cost in enumerate(costs):
        keep(state.handle(), 1, place, 0.5)  # a cost that rises again leaves its word to be looked through
        keep(state.handle(), 1, place, cost)
    for row, places in ((0, range(PLACES)), (1, sorted(may)), (2, [64]), (3, [])):
        known = [(costs[place], place) for place in places if costs[place] < NEVER]
        expected = min(known, default=(NEVER, -1))
        assert best_place(state.handle(), 1, row) == expected
    state.rules["tainted"] = 1  # even a task without a rule is kept off some nodes
    state.masks[0] = state.masks[1]
    assert best_place(state.handle(), 1, 0) == best_place(state.handle(), 1, 1)


def test_the_first_allowed_node_stands_for_its_group() -> None:
    """Nodes 3, 7 and 70 are alike; a rule leaves 7 and 70."""
    state = boarded()
    alike = [3, 7, 70]
    state.nodes.group[alike] = 3
    state.groups.count[3], state.groups.low[3], state.groups.words[3] = 3, 3, 3
    for place in alike:
        state.group_bits[3, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
        keep(state.handle(), 0, place, 2.0)
        state.masks[1, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
    state.masks[1, 0] &= ~(np.uint64(1) << np.uint64(3))
    assert best_place(state.handle(), 0, 0) == (2.0, 3)
    assert best_place(state.handle(), 0, 1) == (2.0, 7)


def test_the_least_of_a_word_is_known_or_to_be_looked_for() -> None:
    state = boarded()
    lows = []
    for place, cost in ((64, 5.0), (65, 3.0), (66, 3.0), (64, 9.0), (65, 4.0), (66, 2.0)):
        keep(state.handle(), 0, place, cost)
        lows.append(float(state.board_lows[0, 1]))
    assert lows == [5.0, 3.0, 3.0, 3.0, STALE, STALE]
    assert best_place(state.handle(), 0, 0) == (2.0, 66)
    assert state.board_lows[0].tolist() == [NEVER, 2.0, NEVER]
    assert state.board_costs[0, 64:68].tolist() == [9.0, 4.0, 2.0, NEVER]


def test_a_node_fits_by_cores_memory_power_and_class() -> None:
    state = boarded()
    state.variants["memory"] = 30
    for states, fitting in (((ON, WAKING), True), ((ASLEEP, DOWN), False)):
        for power_state in states:
            state.nodes.power_state[0] = power_state
            assert bool(fits(state.handle(), 0, 0)) is fitting
    state.nodes.power_state[0] = ON
    for used_u, used_mem, fitting in ((3_000_000, 70, True), (3_000_001, 70, False), (3_000_000, 71, False)):
        state.nodes.used_u[0], state.nodes.used_mem[0] = used_u, used_mem
        assert bool(fits(state.handle(), 0, 0)) is fitting
    state.nodes.used_u[0], state.nodes.used_mem[0] = 0, 0
    state.rules["pods"], state.nodes.running[0] = 2, 1
    assert fits(state.handle(), 0, 0)
    state.nodes.running[0] = 2
    assert not fits(state.handle(), 0, 0)
    state.rules["pods"] = 0
    assert fits(state.handle(), 0, 0)
    state.class_ok[0, 0] = 0
    assert not fits(state.handle(), 0, 0)


def test_variants_that_are_alike_share_a_board_and_the_oldest_is_given_away() -> None:
    state = boarded(2)
    state.replace(variants=np.repeat(state.variants, 4).view(type(state.variants)))
    state.variants["likeness"] = [5, 6, 5, 7]
    state.variants["board"] = -1
    state.board_synced[:] = 3
    state.rules["score_limit"] = 64
    assert [int(board_of(state.handle(), v)) for v in (0, 2, 1, 0)] == [0, 0, 1, 0]
    assert state.variants.board.tolist() == [0, 1, 0, -1]
    assert state.boards.synced.tolist() == [-1, -1] and np.all(state.board_synced == -1)
    assert int(board_of(state.handle(), 3)) == 0  # made first
    assert state.boards.owner.tolist() == [7, 6]
    assert int(board_of(state.handle(), 2)) == 1
    assert int(state.touches.following[0]) == 0 and math.isinf(NEVER)

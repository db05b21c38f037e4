"""Sizes of tables at first and when they grow. Ids are rows, so a journal replays only where sizes are the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from wattflow.engine import tables
from wattflow.live import EDGE, FINISHED, TASK, Constraint, Engine, Match, growth
from wattflow.live.counting import CountBook, Term
from wattflow.live.fork import _between_steps, _blank, fork
from wattflow.live.growth import Extents, empty_state
from wattflow.live.inbox import Inbox
from wattflow.model.cluster import Device, Frequency, Node
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant

from .test_engine import GIB, engine_with

FIRST: dict[str, tuple[int, ...]] = {
    "clock": (1,), "rules": (1,), "counts": (1,), "choice": (1,), "nodes": (64,), "classes": (8,),
    "class_nodes": (64,), "devices": (8,), "device_classes": (8,), "functions": (8,), "shapes": (8,),
    "variants": (64,), "tasks": (1024,), "extra": (1024,), "attempts": (256,), "groups": (192,),
    "group_bits": (192, 1), "group_slots": (1024,), "active_groups": (192,), "active_shapes": (8,),
    "candidates": (144,), "cost": (144,), "containers": (1,), "actions": (576,), "workflows": (64,),
    "placed": (256,), "class_ok": (64, 8), "speed": (8, 8), "frequency_speed": (8, 4), "frequency_power": (8, 4),
    "grid": (64,), "device_grid": (64,), "level_seconds": (1, 1), "level_power": (1, 1), "links": (1024,),
    "child": (64,), "parent": (64,), "parent_bytes": (64,), "gang": (288,), "scratch": (1024,), "params": (24,),
    "memory": (64,), "marks": (1024,), "node_marks": (64,), "node_counts": (64, 8), "other_counts": (64, 8),
    "variant_counts": (64, 8), "masks": (1, 1), "freed": (4096,), "timers": (1024,), "ended": (1024,),
    "blocks": (64,), "mask_rows": (1,), "bases": (1, 1), "wishes": (1, 1), "wish_weights": (1,), "terms": (1,),
    "conditions": (1,), "counted": (1,), "tallies": (1,), "domains": (64, 8), "domain_bits": (1, 1), "boards": (0,),
    "board_costs": (0, 1), "board_lows": (0, 1), "board_synced": (0, 1), "touches": (1,), "touched": (0,),
    "touched_words": (0,), "touch_ring": (0,),
}  # fmt: skip


def shapes_of(state: Any) -> dict[str, tuple[int, ...]]:
    return {name: getattr(state, name).shape for name in state.NAMES}


def told(table: Any) -> dict[str, int | float]:
    """Return the numbers of a table of one row that are not 0."""
    return {name: table[name][0].item() for name in table.dtype.names if table[name][0] != 0}


def test_an_empty_state_has_these_rows_and_columns() -> None:
    assert shapes_of(empty_state()) == FIRST


def test_an_empty_state_holds_nothing_but_ends_of_lists() -> None:
    state = empty_state()
    assert told(state.clock) == {"retry_at": np.inf, "epoch": 1}
    assert told(state.choice) == {"reserved": -2} and told(state.rules) == told(state.touches) == {}
    assert told(state.counts) == {
        "extra_n": 1024, "held_first": -1, "free_container": -1, "hot_container": -1, "free_workflow": 1,
        "sealed_first": -1,
    }  # fmt: skip
    for name in ("class_nodes", "freed", "blocks", "group_slots", "domains"):
        assert (getattr(state, name) == -1).all(), name
    for name in ("speed", "frequency_speed", "frequency_power", "level_seconds", "level_power"):
        assert (getattr(state, name) == 1.0).all(), name
    for name in ("masks", "bases"):
        assert (getattr(state, name) == ~np.uint64(0)).all(), name
    for name in ("class_ok", "grid", "device_grid", "child", "parent", "parent_bytes", "params", "memory", "cost"):
        assert not getattr(state, name).any(), name
    assert state.masks is not state.bases and not np.shares_memory(state.masks, state.bases)
    assert state.shapes.parts.tolist() == [1] + [0] * 7
    for column in (state.shapes.head, state.shapes.tail, state.functions.first_container, state.nodes.pos):
        assert (column == -1).all()
    for column in (state.nodes.first_attempt, state.nodes.first_container, state.attempts.task):
        assert (column == -1).all()
    assert (state.nodes.power_state == tables.DOWN).all() and (state.tasks.state == tables.FREE).all()
    for column in (state.marks.generation, state.attempts.generation, state.node_marks.generation):
        assert (column == 1).all()


def test_row_0_of_workflows_is_that_of_none_and_is_never_given_out() -> None:
    state = empty_state()
    assert state.workflows.generation.tolist() == [0] + [1] * 63
    assert state.workflows.first_task.tolist() == [-1, *range(2, 64), -1]


@pytest.mark.parametrize(("column", "rows"), [("tasks", 1024), ("attempts", 256)])
def test_free_rows_are_listed_in_order(column: str, rows: int) -> None:
    assert getattr(empty_state(), column).next.tolist() == [*range(1, rows), -1]


def test_more_tasks_are_free_before_those_that_were() -> None:
    state = empty_state()
    state.counts["free_task"] = 7
    growth.grow_tasks(state, 1500)
    assert {len(getattr(state, name)) for name in ("tasks", "links", "marks", "extra", "ended", "scratch")} == {1500}
    assert state.tasks.next[1024:].tolist() == [*range(1025, 1500), 7]
    assert (state.tasks.state == tables.FREE).all() and (state.marks.generation == 1).all()
    counts = state.counts[0]
    assert (counts.free_task, counts.extra_n, counts.newest_tasks, counts.newest_attempts) == (1024, 1500, 1024, 0)


def test_more_attempts_are_free_before_those_that_were() -> None:
    state = empty_state()
    state.attempts.task[:], state.attempts.generation[:] = 3, 5
    state.counts["free_attempt"] = 9
    growth.grow_attempts(state, 2000)
    assert state.attempts.next[256:].tolist() == [*range(257, 2000), 9]
    assert state.attempts.task.tolist() == [3] * 256 + [-1] * 1744
    assert state.attempts.generation.tolist() == [5] * 256 + [1] * 1744
    assert len(state.placed) == len(state.scratch) == 2000 and len(state.actions) == 2000 + 4 * 64 + 64
    assert (state.counts.free_attempt[0], state.counts.newest_attempts[0]) == (256, 256)
    growth.grow_attempts(state, 2001)
    assert (state.counts.free_attempt[0], state.attempts.next[2000]) == (2000, 256)


def test_scratch_and_actions_never_shrink() -> None:
    state = empty_state()
    growth.grow_tasks(state, 4000)
    state.replace(actions=growth.grown(state.actions, 9000))
    growth.grow_attempts(state, 300)
    assert len(state.scratch) == 4000 and len(state.actions) == 9000
    growth.grow_nodes(state, 65)
    assert len(state.actions) == 9000


def test_more_workflows_are_free_before_those_that_were() -> None:
    state = empty_state()
    growth.grow_workflows(state, 100)
    assert state.workflows.first_task[64:].tolist() == [*range(65, 100), 1]
    assert (state.workflows.generation[64:] == 1).all() and state.counts.free_workflow[0] == 64


def test_more_nodes_stand_nowhere_and_groups_have_room_for_all() -> None:
    state = empty_state()
    state.nodes.pos[:], state.nodes.power_state[:], state.node_marks.generation[:] = 0, tables.ON, 4
    state.counts["group_n"] = state.counts["active_n"] = 3
    growth.grow_nodes(state, 100)
    for column in (state.nodes.pos, state.nodes.first_attempt, state.nodes.first_container, state.domains[:, 0]):
        assert (column[64:] == -1).all()
    assert (state.nodes.pos[:64] == 0).all() and (state.nodes.power_state[:64] == tables.ON).all()
    assert (state.nodes.power_state[64:] == tables.DOWN).all()
    assert state.node_marks.generation.tolist() == [4] * 64 + [1] * 36
    assert state.node_counts.shape == state.other_counts.shape == (100, 8)
    assert len(state.groups) == len(state.active_groups) == 2 * 100 + 64
    assert state.group_bits.shape == (264, 1) and len(state.group_slots) == 2048
    assert (state.group_slots == -1).all() and not state.group_bits.any()
    assert len(state.candidates) == len(state.cost) == 100 + 2 * 8 + 64 and len(state.gang) == 2 * 180
    assert len(state.actions) == 256 + 4 * 100 + 64
    assert (state.counts.group_n[0], state.counts.active_n[0]) == (0, 0)


@pytest.mark.parametrize(("nodes", "slots"), [(96, 1024), (97, 2048)])
def test_slots_of_groups_are_a_power_of_two_at_least_four_times_the_groups(nodes: int, slots: int) -> None:
    state = empty_state()
    growth.grow_nodes(state, nodes)
    growth.grow_groups(state, 3)
    assert len(state.groups) == 2 * nodes + 64 and len(state.group_slots) == slots
    assert state.group_bits.shape == (2 * nodes + 64, 3)


def test_candidates_grow_with_devices_and_never_shrink() -> None:
    state = empty_state()
    before = state.candidates
    growth.grow_candidates(state)
    assert state.candidates is before
    state.replace(devices=growth.grown(state.devices, 9))
    growth.grow_candidates(state)
    assert (len(state.candidates), len(state.cost), len(state.gang)) == (146, 146, 292)


@pytest.mark.parametrize(
    ("local", "limit", "boards", "synced"), [(0, 0, 0, 0), (0, 5, 0, 0), (1, 0, 256, 0), (1, 5, 256, 256)]
)
def test_costs_are_kept_where_the_policy_lets_them_and_are_void_at_first(
    local: int, limit: int, boards: int, synced: int
) -> None:
    state = empty_state()
    state.replace(class_nodes=growth.grown(state.class_nodes, 192, -1))
    state.rules["local"], state.rules["score_limit"], state.touches["now"] = local, limit, 77
    growth.fit_boards(state)
    assert state.touches.now[0] == 1 and len(state.boards) == boards
    assert state.board_costs.shape == (boards, 192) and state.board_lows.shape == (boards, 3)
    assert state.board_synced.shape == (synced, 3) and len(state.touch_ring) == 4096
    assert state.touched.tolist() == [1] * 192 and state.touched_words.tolist() == [1] * 3
    assert not state.board_costs.any() and not state.touch_ring.any()


def test_edges_double_and_stay() -> None:
    state = empty_state()
    for name in ("child", "parent", "parent_bytes"):
        getattr(state, name)[:] = np.arange(64)
    growth.double_edges(state)
    for name in ("child", "parent", "parent_bytes"):
        assert getattr(state, name).tolist() == [*range(64), *[0] * 64], name


def test_blocks_begin_where_they_are_told_and_are_of_two_s_powers() -> None:
    extents = Extents()
    assert [extents.room(count) for count in (0, 1, 2, 3, 4, 5, 8, 9)] == [1, 1, 2, 4, 4, 8, 8, 16]
    assert [extents.take(count) for count in (1, 3, 2)] == [0, 1, 5] and extents.used == 7
    extents.give(1, 3)
    assert [extents.take(4), extents.take(4)] == [1, 7] and extents.used == 11
    wide = Extents(used=1, smallest=64)
    assert [wide.room(1), wide.room(64), wide.room(65), wide.take(2), wide.used] == [64, 64, 128, 1, 65]


# What a copy leaves out


@pytest.mark.parametrize(
    ("used", "kept"), [(0, 64), (15, 79), (16, 81), (700, 700 + 43 + 64), (950, 1024), (1024, 1024)]
)
def test_a_copy_keeps_used_rows_a_sixteenth_more_and_64(used: int, kept: int) -> None:
    state = empty_state()
    state.tasks.state[:used] = tables.DONE
    made = growth.without_spare(state)
    assert {len(made[name]) for name in ("tasks", "links", "marks", "extra", "ended")} == {kept}
    assert made["counts"].extra_n[0] == kept and state.counts.extra_n[0] == 1024
    assert len(made["attempts"]) == len(made["placed"]) == 64


def test_a_row_was_used_when_it_holds_something_or_has_another_generation() -> None:
    state = empty_state()
    state.tasks.state[0], state.marks.generation[1] = tables.DONE, 2
    task = growth._unused_task(state)
    assert [task(0), task(1), task(2)] == [False, False, True]
    state.attempts.task[0], state.attempts.generation[1] = 0, 2
    attempt = growth._unused_attempt(state)
    assert [attempt(0), attempt(1), attempt(2)] == [False, False, True]


def test_of_rows_that_came_later_only_the_newest_are_searched() -> None:
    state = empty_state()
    growth.grow_tasks(state, 4096)
    growth.grow_attempts(state, 2048)
    state.tasks.state[1024:1030] = tables.DONE
    state.attempts.task[256:260] = 0
    made = growth.without_spare(state)
    assert len(made["tasks"]) == 1030 + 1030 // 16 + 64 and len(made["attempts"]) == 260 + 260 // 16 + 64


def test_free_lists_of_a_copy_end_where_they_ended() -> None:
    whole, short = empty_state(), empty_state()
    whole.tasks.next[-1], whole.attempts.next[-1] = 11, 12
    growth.end_lists(short, whole)
    assert (short.tasks.next[-1], short.attempts.next[-1]) == (-1, -1), "tables of one size are left alone"
    short.replace(tasks=short.tasks[:100].copy(), attempts=short.attempts[:50].copy())
    growth.end_lists(short, whole)
    assert (short.tasks.next[-1], short.attempts.next[-1], short.tasks.next[-2]) == (11, 12, 99)


def test_a_copy_has_blank_tables_where_nothing_is_kept_between_steps() -> None:
    state = empty_state()
    state.cost[:], state.grid[:] = 5.0, 6.0
    made = _between_steps(state, ("cost",), {"child": state.child[:8]})
    assert made.cost.tolist() == [0.0] * 144 and made.grid.tolist() == [6.0] * 64 and len(made.child) == 8
    assert state.cost.tolist() == [5.0] * 144 and len(state.child) == 64


@pytest.mark.parametrize("rows", [(1 << 17) - 1, 1 << 17, (1 << 17) + 1])
def test_blank_tables_of_any_size_are_zeros_of_that_size(rows: int) -> None:
    blank = _blank(np.ones((rows, 1)))
    assert blank.shape == (rows, 1) and blank.dtype == np.float64 and not blank.any()


# What grows in an engine


def test_events_double_with_all_that_lists_them() -> None:
    engine, _ = engine_with(1)
    shape = engine.shape([Variant(cores=1)])
    room = len(engine._desk.events)
    assert room == 1024 and len(engine._desk.tally) == 16 and engine._inbox.count == 0
    for tag in range(room):
        engine.put(TASK, shape, tag=tag)
    assert len(engine._desk.events) == room
    engine.put(TASK, shape, tag=room)
    for name in ("events", "order", "arrivals", "fresh", "changed", "rejected"):
        assert len(getattr(engine._desk, name)) == 2 * room, name
    assert engine._inbox.count == room + 1 and isinstance(engine._inbox, Inbox)
    assert [one.tag for one in engine.step(0.0).placements] == [0]
    assert engine.counts["waiting"] == room


def test_workflows_double_and_the_next_has_the_first_new_row() -> None:
    engine = Engine("fifo")
    rows = [engine.workflow() & 0xFFFFFF for _ in range(64)]
    assert rows == list(range(1, 65)) and len(engine.state.workflows) == 128


def test_attempts_double_in_a_step_that_needs_more() -> None:
    engine, _ = engine_with(300)
    shape = engine.shape([Variant(cores=1, memory_bytes=1)])
    for tag in range(300):
        engine.put(TASK, shape, tag=tag)
    step = engine.step(0.0)
    assert len(step.placements) == 300 and len(engine.state.attempts) == 512 == len(engine._desk.placements)
    assert len(engine._desk.actions) == len(engine.state.actions) == 512 + 4 * 64 + 64


def test_edges_double_in_a_step_that_needs_more_and_each_is_folded_once() -> None:
    engine, _ = engine_with(1)
    shape, flow = engine.shape([Variant(cores=1)]), engine.workflow()
    tasks = [engine.put(TASK, shape, workflow=flow, tag=tag) for tag in range(100)]
    for one, other in itertools.pairwise(tasks):
        engine.put(EDGE, one, other, size_bytes=2.0)
    before = int(engine.state.clock.instant[0])
    step = engine.step(0.0)
    assert [one.tag for one in step.placements] == [0] and step.rejected == []
    assert engine.state.counts.open[0] == 100 and engine.describe(tasks[50])["parents_open"] == 1
    assert engine.state.parent_bytes.sum() == 198.0 and engine.state.clock.instant[0] == before + 1


def test_classes_double_and_keep_speeds_and_frequencies() -> None:
    engine = Engine("fifo")
    engine.function(Function("f"))
    for number in range(9):
        levels = tuple(Frequency(1.0 - 0.1 * k, 1.0 - 0.2 * k) for k in range(4))
        engine.node(
            Node(f"n{number}", 4, GIB, speed=1.0 + number, function_speed={"f": 2.0 + number}, frequencies=levels)
        )
    state = engine.state
    assert len(state.classes) == 16 == len(state.speed) and state.class_ok.shape == (64, 16)
    assert state.frequency_speed.shape == state.frequency_power.shape == (16, 4)
    assert state.speed[:9, 0].tolist() == [2.0 + number for number in range(9)]
    assert (state.speed[9:] == 1.0).all() and (state.frequency_speed[9:] == 1.0).all()
    assert np.allclose(state.frequency_speed[8], [1.0, 0.9, 0.8, 0.7])
    assert np.allclose(state.frequency_power[8], [1.0, 0.8, 0.6, 0.4]) and (state.frequency_power[9:] == 1.0).all()
    assert engine._nodes.examples.tolist() == [*range(9), *[-1] * 7]


def test_functions_and_their_speeds_double() -> None:
    engine = Engine("fifo")
    engine.node(Node("n", 4, GIB, speed=3.0))
    for number in range(9):
        engine.function(Function(f"f{number}", cold_start_s=0.0))
    assert len(engine.state.functions) == 16 and engine.state.speed.shape == (8, 16)
    assert (engine.state.functions.first_container == -1).all()
    assert engine.state.speed[0].tolist() == [3.0] * 9 + [1.0] * 7


def test_nodes_double_and_rows_are_given_out_from_the_first() -> None:
    engine, nodes = engine_with(1)
    rows = [nodes[0] & 0xFFFFFF] + [engine.node(Node(f"x{k}", 1, GIB)) & 0xFFFFFF for k in range(64)]
    assert rows == list(range(65)) and len(engine.state.nodes) == 128 == len(engine.state.domains)
    assert engine.state.classes.room[0] in (64, 128) and len(engine.state.class_nodes) >= 128


def test_a_class_of_more_than_64_nodes_has_a_block_of_twice_as_many() -> None:
    engine = Engine("fifo")
    for number in range(65):
        engine.node(Node(f"n{number}", 4, GIB))
    state = engine.state
    first = int(state.classes.first[0])
    assert (state.classes.room[0], state.classes.count[0], first) == (128, 65, 64)
    assert len(state.class_nodes) == 2 * (64 + 128), "twice what is in use"
    assert state.class_nodes[:64].tolist() == [-1] * 64
    assert state.class_nodes[first : first + 128].tolist() == [*range(65), *[-1] * 63]
    assert state.masks.shape[1] == state.bases.shape[1] == state.wishes.shape[1] == 6
    assert state.group_bits.shape[1] == 2
    engine.node(Node("other", 8, GIB))
    assert state.classes.first[1] == 0, "the old block is free"


def test_devices_and_their_kinds_double_with_their_power_curves() -> None:
    engine = Engine("fifo")
    cards = tuple(
        Device("gpu", f"m{k}", (k + 1) * GIB, power=DeviceProfile((0.0, 0.5, 1.0), (10.0 + k, 20.0, 30.0)))
        for k in range(9)
    )
    engine.node(Node("n", 4, GIB, devices=cards))
    engine.node(Node("o", 4, GIB, devices=cards[:2]))
    state = engine.state
    assert len(state.devices) == 2 * 16 and len(state.device_classes) == 16
    assert state.nodes.device_first[:2].tolist() == [0, 16] and state.nodes.device_n[:2].tolist() == [9, 2]
    assert state.devices.cls[:9].tolist() == list(range(9)) and state.devices.cls[16:18].tolist() == [0, 1]
    assert (state.devices.node[:9] == 0).all() and state.devices.node[16:18].tolist() == [1, 1]
    assert (state.devices.loaded[:9] == -1).all()
    assert len(state.candidates) == 64 + 2 * 32 + 64
    firsts, counts = state.device_classes.grid_first[:9], state.device_classes.grid_n[:9]
    grids = [state.device_grid[f : f + n].tolist() for f, n in zip(firsts.tolist(), counts.tolist(), strict=True)]
    assert [grid[0] for grid in grids] == [10.0 + k for k in range(9)] and {grid[-1] for grid in grids} == {30.0}
    assert firsts[0] == 1 and len(set(firsts.tolist())) == 9


def test_a_fork_goes_on_in_the_rows_that_it_has() -> None:
    engine, _ = engine_with(2)
    shape = engine.shape([Variant(cores=1)])
    for tag in range(3):
        engine.put(TASK, shape, tag=tag)
    one, _ = engine.step(0.0).placements
    engine.put(FINISHED, one.attempt)
    copy = fork(engine)
    assert len(copy.state.tasks) == 3 + 64 and len(copy.state.attempts) == 2 + 64
    assert [p.tag for p in copy.step(1.0).placements] == [p.tag for p in engine.step(1.0).placements] == [2]
    made = [(copy.put(TASK, shape), engine.put(TASK, shape)) for _ in range(5)]
    assert [a == b for a, b in made] == [True] * 5


# Just enough is enough


def test_a_table_that_just_holds_all_is_not_made_larger() -> None:
    engine = Engine("fifo")
    engine.node(Node("n", 4, GIB, devices=(card(0),) * 8))
    state = engine.state
    assert (len(state.class_nodes), len(state.devices), state.masks.shape) == (64, 8, (1, 1))
    likes = [Constraint(prefer=((1.0, (Match(f"l{k}"),)),)) for k in range(4)]
    sizes = []
    for one in likes:
        engine.constraint(one)
        sizes.append((len(state.wishes), len(state.wish_weights)))
    assert sizes == [(4, 4), (4, 4), (4, 4), (10, 10)], "a level each, from row 1 on"
    engine.node(Node("m", 4, GIB, devices=(card(0),)))
    assert len(state.devices) == 2 * 9 and len(state.class_nodes) == 2 * 128


def card(number: int) -> Device:
    return Device("gpu", f"m{number}", GIB, power=DeviceProfile((0.0, 1.0), (10.0, 30.0)))


def test_grids_of_watts_double_when_they_are_full() -> None:
    engine = Engine("fifo")
    straight = PowerProfile((0.0, 1.0), (10.0, 20.0))
    sizes = []
    for number in range(40):
        engine.node(Node(f"n{number}", 1, GIB, speed=1.0 + number, power=straight))
        sizes.append((engine._nodes._grid.used, len(engine.state.grid)))
    assert all(length >= used for used, length in sizes)
    grown_at = next(i for i, (_, length) in enumerate(sizes) if length > 64)
    assert sizes[grown_at - 1][0] <= 64 < sizes[grown_at][0] and sizes[grown_at][1] == 2 * sizes[grown_at][0]
    first, count = int(engine.state.classes.grid_first[39]), int(engine.state.classes.grid_n[39])
    assert engine.state.grid[first] == 10.0 and engine.state.grid[first + count - 1] == 20.0


def test_tallies_double_when_they_are_full_and_a_block_that_suffices_stays() -> None:
    book = CountBook(state := empty_state())
    book._column("zone")
    for value in range(4):
        book._domain("zone", {"zone": str(value)})
    term = book._term(Term("g", "zone"))
    assert book._blocks[term] == (1, 4) and len(state.tallies) == 10 and state.terms.first[term] == 1
    book._make_room(term, Term("g", "zone"))
    assert book._blocks[term] == (1, 4)
    other = book._term(Term("h", "zone"))
    assert book._blocks[other] == (5, 4) and len(state.tallies) == 10
    third = book._term(Term("i", "zone"))
    assert book._blocks[third] == (9, 4) and len(state.tallies) == 2 * 13
    book._domain("zone", {"zone": "more"})
    state.tallies[1:5] = (3, 1, 4, 1)
    book._make_room(term, Term("g", "zone"))
    assert book._blocks[term] == (13, 8) and state.tallies[13:21].tolist() == [3, 1, 4, 1, 0, 0, 0, 0]
    assert book._places.free == {4: [1]}


def test_a_class_that_moves_into_a_block_between_others_leaves_them_as_they_are() -> None:
    engine = Engine("fifo")
    for number in range(129):
        engine.node(Node(f"a{number}", 4, GIB))
    for number in range(65):
        engine.node(Node(f"b{number}", 4, GIB, speed=2.0))
    state = engine.state
    assert state.classes.first[:2].tolist() == [192, 64] and state.classes.room[:2].tolist() == [256, 128]
    assert state.class_nodes[192:448].tolist() == [*range(129), *[-1] * 127]
    assert state.class_nodes[64:192].tolist() == [*range(129, 194), *[-1] * 63]
    assert state.class_nodes[:64].tolist() == [-1] * 64

"""State without a workload: tables with room to spare, doubled when they are full."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import numpy as np

from wattflow.engine import tables
from wattflow.engine.tables import COUNTABLE, FREE, State
from wattflow.kernel.records import record_table

_TASKS, _ATTEMPTS, _SOME, _FEW = 1024, 256, 64, 8
"""Rows that tables have at first: of tasks, of attempts, of what is rarer, of what few clusters have more of. A node's
place is a bit of a word, so the places of classes are whole words."""
_LEVELS = 4
"""Frequency levels that the tables have room for at first."""
_RING = 4096
"""Changes of nodes that are remembered one by one."""
_BOARDS = 256
"""Variants whose costs are kept; 2 KB of each node's memory when all are in use."""

_SPARE, _FEWEST = 16, 64
"""Of the rows in use a copy has a sixteenth more, and at least so many more."""


def empty_state() -> State:
    """Make a State of no node and no task; row 0 of shapes is the placeholder's, row 0 of workflows that of none."""
    made: dict[str, Any] = {name: record_table(kind, 1) for name, kind in _RECORDS.items()}
    made |= {name: record_table(kind, _FEW) for name, kind in _SMALL.items()}
    made |= {name: np.zeros(_SOME, kind) for name, kind in _COLUMNS.items()}
    made |= {
        "class_nodes": np.full(_SOME, -1, np.int32), "class_ok": np.zeros((_SOME, _FEW), np.uint8),
        "speed": np.ones((_FEW, _FEW)), "frequency_speed": np.ones((_FEW, _LEVELS)),
        "level_seconds": np.ones((1, 1)), "level_power": np.ones((1, 1)),
        "frequency_power": np.ones((_FEW, _LEVELS)), "params": np.zeros(tables.PARAMS),
        "freed": np.full(_RING, -1, np.int32), "blocks": np.full(_SOME, -1, np.int64),
        "variant_counts": np.zeros((_SOME, COUNTABLE), np.int64), "masks": np.full((1, 1), ~np.uint64(0), np.uint64),
        "variants": record_table(tables.VARIANTS, _SOME), "timers": record_table(tables.TIMERS, _TASKS),
        "workflows": record_table(tables.WORKFLOWS, 1), "scratch": np.zeros(1, np.int32),
        "placed": np.zeros(0, np.int32), "active_shapes": np.zeros(_FEW, np.int32),
    }  # fmt: skip
    made |= dict.fromkeys(("tasks", "links", "marks", "extra", "ended", "attempts", "nodes", "node_marks"))
    made |= {name: record_table(kind, 0) for name, kind in _GROWING.items()}
    made |= {"other_counts": np.zeros((0, COUNTABLE), np.int64)}
    made |= {"node_counts": np.zeros((0, COUNTABLE), np.int64), "gang": np.zeros(0, np.int32), "cost": np.zeros(0)}
    made |= {"group_bits": np.zeros((0, 1), np.uint64), "group_slots": np.zeros(0, np.int32)}
    made |= {"active_groups": np.zeros(0, np.int32)}
    made |= tables.no_boards() | tables.no_rules() | {"bases": made["masks"].copy()}
    state = State(**made)
    for head in ("held_first", "free_attempt", "free_container", "hot_container", "free_task", "free_workflow"):
        state.counts[head] = -1
    state.counts["sealed_first"] = -1
    state.choice["reserved"] = -2
    state.clock["retry_at"], state.clock["epoch"] = np.inf, 1
    state.workflows["first_task"] = -1
    state.shapes["head"] = state.shapes["tail"] = -1
    state.shapes["parts"][0] = 1
    state.functions["first_container"] = -1
    grow_tasks(state, _TASKS)
    grow_attempts(state, _ATTEMPTS)
    grow_workflows(state, _SOME)
    grow_nodes(state, _SOME)
    return state


_RECORDS = {
    "clock": tables.CLOCK,
    "rules": tables.RULES,
    "counts": tables.COUNTS,
    "choice": tables.CHOICE,
    "containers": tables.CONTAINERS,
}
_SMALL = {
    "classes": tables.CLASSES,
    "shapes": tables.SHAPES,
    "functions": tables.FUNCTIONS,
    "devices": tables.DEVICES,
    "device_classes": tables.DEVICE_CLASSES,
}
_COLUMNS: dict[str, Any] = {
    "grid": np.float64, "device_grid": np.float64, "child": np.int32, "parent": np.int32, "parent_bytes": np.float64,
    "memory": np.float64,
}  # fmt: skip
_GROWING = {
    "tasks": tables.TASKS, "links": tables.LINKS, "marks": tables.MARKS, "extra": tables.EXTRA,
    "ended": tables.ENDED, "attempts": tables.ATTEMPTS, "nodes": tables.NODES, "node_marks": tables.NODE_MARKS,
    "groups": tables.GROUPS, "candidates": tables.CANDIDATES, "actions": tables.ACTIONS,
}  # fmt: skip


def grown(table: Any, rows: int, fill: int | float = 0) -> Any:
    """Return the same table with more rows; the new ones hold ``fill`` (a table of records: zeros)."""
    if table.dtype.names:
        larger = record_table(np.dtype(table.dtype.descr), rows)
    else:
        larger = np.full((rows, *table.shape[1:]), fill, table.dtype)
    larger[: len(table)] = table
    return larger


def widened(table: Any, columns: int, fill: Any = 0) -> Any:
    """Return the same two-dimensional table with more columns."""
    larger = np.full((len(table), columns), fill, table.dtype)
    larger[:, : table.shape[1]] = table
    return larger


def grow_tasks(state: State, rows: int) -> None:
    """Make more task rows, all free, in order."""
    old = len(state.tasks)
    made = {name: grown(getattr(state, name), rows) for name in ("tasks", "links", "marks", "extra", "ended")}
    made["tasks"].state[old:] = FREE
    made["tasks"].next[old:] = np.arange(old + 1, rows + 1)
    # The new rows are taken first, then those that were free before: `without_spare` relies on that order.
    made["tasks"].next[-1] = state.counts.free_task[0]
    made["marks"].generation[old:] = 1
    state.replace(**made, scratch=grown(state.scratch, max(len(state.scratch), rows)))
    state.counts["free_task"], state.counts["extra_n"] = old, rows
    state.counts["newest_tasks"] = old


def grow_attempts(state: State, rows: int) -> None:
    """Make more attempt rows, all free."""
    old = len(state.attempts)
    attempts = grown(state.attempts, rows)
    attempts.task[old:] = -1
    attempts.generation[old:] = 1
    attempts.next[old:] = np.arange(old + 1, rows + 1)
    attempts.next[-1] = state.counts.free_attempt[0]
    state.replace(
        attempts=attempts,
        placed=grown(state.placed, rows),
        scratch=grown(state.scratch, max(len(state.scratch), rows)),
        actions=grown(state.actions, _actions(state, rows)),
    )
    state.counts["free_attempt"] = state.counts["newest_attempts"] = old


def without_spare(state: State) -> dict[str, Any]:
    """Return tables of tasks and attempts without most rows that were never used, and counts that go with them.

    Rows that came last stand in the free list in order, and what is given back stands before them. So from the first
    one on that was never used none was, and the list can end earlier; some are kept.
    """
    counts = state.counts.copy()
    tasks = _kept_rows(len(state.tasks), int(counts.newest_tasks[0]), _unused_task(state))
    attempts = _kept_rows(len(state.attempts), int(counts.newest_attempts[0]), _unused_attempt(state))
    counts["extra_n"] = tasks
    made = {name: getattr(state, name)[:tasks] for name in ("tasks", "links", "marks", "extra", "ended")}
    return made | {"attempts": state.attempts[:attempts], "placed": state.placed[:attempts], "counts": counts}


def end_lists(short: State, whole: State) -> None:
    """End the lists of free rows where they ended before, in tables that `without_spare` cut."""
    for name in ("tasks", "attempts"):
        table, before = getattr(short, name), getattr(whole, name)
        if len(table) < len(before):
            table.next[-1] = before.next[-1]


def _kept_rows(rows: int, newest: int, unused: Callable[[int], bool]) -> int:
    # Used rows are a prefix of the newest ones, so a binary search finds the first that never was.
    used = bisect.bisect_left(range(newest, rows), True, key=unused) + newest
    return min(rows, used + used // _SPARE + _FEWEST)


def _unused_task(state: State) -> Callable[[int], bool]:
    states, generations = state.tasks["state"], state.marks["generation"]
    return lambda row: bool(states[row] == FREE and generations[row] == 1)


def _unused_attempt(state: State) -> Callable[[int], bool]:
    tasks, generations = state.attempts["task"], state.attempts["generation"]
    return lambda row: bool(tasks[row] < 0 and generations[row] == 1)


def _actions(state: State, attempts: int) -> int:
    """Return rows for one step's actions: each attempt stopped, each node slept and woken, and what a policy asks."""
    return max(len(state.actions), attempts + 4 * len(state.nodes) + 64)


def grow_workflows(state: State, rows: int) -> None:
    """Make more workflow rows, all free."""
    old = len(state.workflows)
    workflows = grown(state.workflows, rows)
    workflows.generation[old:] = 1
    workflows.first_task[old:] = np.arange(old + 1, rows + 1)
    workflows.first_task[-1] = state.counts.free_workflow[0]
    state.replace(workflows=workflows)
    state.counts["free_workflow"] = old


def grow_nodes(state: State, rows: int) -> None:
    """Make more node rows, all free and standing nowhere; the tables of groups have room for all of them."""
    old = len(state.nodes)
    nodes = grown(state.nodes, rows)
    nodes.pos[old:] = nodes.first_attempt[old:] = nodes.first_container[old:] = -1
    nodes.power_state[old:] = tables.DOWN
    marks = grown(state.node_marks, rows)
    marks.generation[old:] = 1
    counts, others = grown(state.node_counts, rows), grown(state.other_counts, rows)
    domains = grown(state.domains, rows, -1)
    state.replace(nodes=nodes, node_marks=marks, node_counts=counts, other_counts=others, domains=domains)
    state.replace(actions=grown(state.actions, _actions(state, len(state.attempts))))
    grow_groups(state, state.group_bits.shape[1])
    grow_candidates(state)


def grow_groups(state: State, words: int) -> None:
    """Make tables of groups for all node rows, with bit sets of so many words; `groups.rebuild` fills them."""
    count = 2 * len(state.nodes) + 64
    # A power of two at least four times the groups: open addressing stays short, and a mask finds the slot.
    slots = 1 << (4 * count - 1).bit_length()
    state.replace(
        groups=record_table(tables.GROUPS, count),
        group_bits=np.zeros((count, words), np.uint64),
        group_slots=np.full(slots, -1, np.int32),
        active_groups=np.zeros(count, np.int32),
    )
    state.counts["group_n"] = state.counts["active_n"] = 0


def grow_candidates(state: State) -> None:
    """Make room for every node and device as a candidate."""
    count = len(state.nodes) + 2 * len(state.devices) + 64
    if count > len(state.candidates):
        state.replace(
            candidates=record_table(tables.CANDIDATES, count), cost=np.zeros(count), gang=np.zeros(2 * count, np.int32)
        )


def fit_boards(state: State) -> None:
    """Make kept costs for all places there are, where the policy in use lets costs be kept; all void."""
    count, places = _BOARDS if state.rules.local[0] else 0, len(state.class_nodes)
    # All boards are void: they were filled at 0, and every place counts as touched at 1.
    state.touches["now"] = 1
    state.replace(
        boards=record_table(tables.BOARDS, count),
        board_costs=np.zeros((count, places)),
        board_lows=np.zeros((count, places // 64)),
        touched=np.ones(places, np.int64),
        board_synced=np.zeros((count if state.rules.score_limit[0] else 0, places // 64), np.int64),
        touched_words=np.ones(places // 64, np.int64),
        touch_ring=np.zeros(_RING, np.int32),
    )


def double_edges(state: State) -> None:
    """Make twice the room for edges."""
    state.replace(
        child=grown(state.child, 2 * len(state.child)),
        parent=grown(state.parent, 2 * len(state.parent)),
        parent_bytes=grown(state.parent_bytes, 2 * len(state.parent_bytes)),
    )


class Extents:
    """Places in a table handed out in blocks of two's powers, and taken back."""

    __slots__ = ("free", "smallest", "used")

    def __init__(self, used: int = 0, smallest: int = 1) -> None:
        self.used, self.smallest = used, smallest
        self.free: dict[int, list[int]] = {}

    def room(self, count: int) -> int:
        """Return size of the block that holds so many rows."""
        return max(self.smallest, 1 << (max(1, count) - 1).bit_length())

    def take(self, count: int) -> int:
        """Take a block; its first row."""
        room = self.room(count)
        if self.free.get(room):
            return self.free[room].pop()
        first, self.used = self.used, self.used + room
        return first

    def give(self, first: int, count: int) -> None:
        """Note that a block is free again."""
        self.free.setdefault(self.room(count), []).append(first)

"""The ready queue against a sorted list: linked lists in order of entry, skew heaps by key."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wattflow.engine import queue
from wattflow.engine.build import build_state
from wattflow.engine.tables import READY, State
from wattflow.kernel import jit
from wattflow.model.cluster import Cluster, Node
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload

TASKS = 40


@jit.jit
def push(state, task):
    queue.push(state, task)


@jit.jit
def remove(state, task):
    queue.remove(state, task)


@jit.jit
def cancel(state, task):
    queue.cancel(state, task)


def made(by_priority: bool, seed: int) -> State:
    shapes = (Shape(0, (Variant(),)), Shape(0, (Variant(cores=2),)), Shape(0, (Variant(cores=3),)))
    workload = Workload.of_columns(
        "w", release_s=np.zeros(TASKS), runtime_s=np.ones(TASKS), shapes=shapes,
        shape=np.array([t % 3 for t in range(TASKS)], np.int32),
    )  # fmt: skip
    state = build_state(workload, Cluster("c", (Node("n", 4, 1 << 30),)))
    state.rules["has_priority"] = int(by_priority)
    rng = random.Random(seed)
    for t in range(TASKS):
        state.tasks.key[t] = rng.randint(0, 5)
        state.tasks.sequence[t] = t
        state.tasks.state[t] = READY
    return state


def head(state: State, shape: int) -> int:
    return int(state.shapes.head[shape]) if state.shapes.waiting[shape] else -1


@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_heads_are_those_of_a_sorted_list(seed: int, by_priority: bool) -> None:
    state, rng = made(by_priority, seed), random.Random(seed)
    left = list(range(TASKS))
    rng.shuffle(left)
    entered: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def first(shape: int) -> int:
        rows = entered[shape]
        if not rows:
            return -1
        return min(rows, key=lambda t: (state.tasks.key[t], t)) if by_priority else rows[0]

    while left or any(entered.values()):
        if left and rng.random() < 0.6:
            task = left.pop()
            push(state.handle(), task)
            entered[task % 3].append(task)
        else:
            shape = rng.choice([s for s in entered if entered[s]] or [0])
            task = first(shape)
            if task < 0:
                continue
            if not by_priority and rng.random() < 0.5:
                task = rng.choice(entered[shape])  # a list gives up any of its tasks
            remove(state.handle(), task)
            entered[shape].remove(task)
        assert [head(state, shape) for shape in range(3)] == [first(shape) for shape in range(3)]
        assert int(state.counts.waiting[0]) == sum(len(rows) for rows in entered.values())
        assert int(state.counts.shapes_n[0]) == sum(bool(rows) for rows in entered.values())
        assert int(state.functions.waiting[0]) == int(state.counts.waiting[0])


def test_a_cancelled_task_never_comes_to_the_head_of_a_heap() -> None:
    state = made(True, 7)
    mine = [t for t in range(TASKS) if t % 3 == 0]
    for t in mine:
        push(state.handle(), t)
    gone = set(mine[::2])
    for t in sorted(gone):
        cancel(state.handle(), t)
    came = []
    while state.shapes.waiting[0]:
        came.append(head(state, 0))
        remove(state.handle(), came[-1])
    assert came == sorted(set(mine) - gone, key=lambda t: (state.tasks.key[t], t))


@jit.jit
def push_front(state, task):
    queue.push_front(state, task)


@jit.jit
def reinsert(state, task):
    queue.reinsert(state, task)


@jit.jit
def take_out(state, task):
    queue.take_out(state, task)


def listed(state: State, shape: int) -> list[int]:
    """A shape's queue from its head on; links and tallies agree."""
    found: list[int] = []
    task = head(state, shape)
    while task >= 0:
        assert int(state.tasks.previous[task]) == (found[-1] if found else -1)
        found.append(task)
        task = int(state.tasks.next[task])
    assert int(state.shapes.waiting[shape]) == len(found)
    assert not found or int(state.shapes.tail[shape]) == found[-1]
    return found


def test_held_tasks_go_to_the_front_of_a_list() -> None:
    state = made(False, 1)
    push_front(state.handle(), 6)
    push(state.handle(), 9)
    push_front(state.handle(), 0)
    push_front(state.handle(), 4)
    assert listed(state, 0) == [0, 6, 9]
    assert listed(state, 1) == [4]
    assert int(state.functions.waiting[0]) == int(state.counts.waiting[0]) == 4
    assert int(state.counts.shapes_n[0]) == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_task_that_comes_back_stands_where_its_sequence_says(seed: int) -> None:
    state, rng = made(False, seed), random.Random(seed)
    mine = [t for t in range(TASKS) if t % 3 == 0]
    order = mine.copy()
    rng.shuffle(order)
    for at, task in enumerate(order):
        reinsert(state.handle(), task)
        assert listed(state, 0) == sorted(order[: at + 1])
        assert int(state.functions.waiting[0]) == int(state.counts.waiting[0]) == at + 1
    remove(state.handle(), 0)
    reinsert(state.handle(), 0)
    assert listed(state, 0) == mine


@pytest.mark.parametrize("by_priority", [False, True])
def test_any_task_can_be_taken_out_and_the_others_keep_their_order(by_priority: bool) -> None:
    state, rng = made(by_priority, 3), random.Random(3)
    mine = [t for t in range(TASKS) if t % 3 == 1]
    for task in mine:
        push(state.handle(), task)
    for task in rng.sample(mine, 5):
        take_out(state.handle(), task)
        mine.remove(task)
        assert int(state.tasks.state[task]) == READY
    assert int(state.shapes.waiting[1]) == int(state.counts.waiting[0]) == len(mine)
    came = []
    while state.shapes.waiting[1]:
        came.append(head(state, 1))
        remove(state.handle(), came[-1])
    assert came == (sorted(mine, key=lambda t: (state.tasks.key[t], t)) if by_priority else mine)

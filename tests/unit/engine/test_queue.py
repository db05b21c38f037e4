"""The ready queue against a sorted list: linked lists in order of entry, skew heaps by key."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wattflow.engine import queue
from wattflow.engine.build import build_state
from wattflow.engine.tables import CANCELLED, FREE, GHOST, LEFT, READY, State
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


@jit.jit
def firsts(state):
    return queue.first(state), queue.first_of_all(state)


def noted(state, task):
    return state.memory[task]


def in_order(state: State, tasks: list[int]) -> int:
    """The task that goes first: the highest level of its shape, then key, then sequence; −1 of none."""

    def place(task: int) -> tuple[int, float, int]:
        return -int(state.shapes.level[task % 3]), float(state.tasks.key[task]), int(state.tasks.sequence[task])

    return min(tasks, key=place, default=-1)


@pytest.mark.parametrize("seed", range(6))
def test_the_first_task_is_of_the_highest_level_and_has_the_least_key(seed: int) -> None:
    """Shapes that have failed since capacity last grew are passed over, except by the strict head of line."""
    state, rng = made(True, seed), random.Random(seed)
    assert firsts(state.handle()) == (-1, -1)
    for task in rng.sample(range(TASKS), TASKS // 2):
        push(state.handle(), task)
        state.tasks.state[task] = READY
    waiting = [t for t in range(TASKS) if t in _reached(state)]
    assert len(waiting) == TASKS // 2
    for _ in range(12):
        state.shapes.level[:] = [rng.randrange(2) for _ in range(3)]
        failed = [rng.random() < 0.4 for _ in range(3)]
        state.shapes.failed[:] = [int(state.clock.epoch[0]) if each else 0 for each in failed]
        open_ = [t for t in waiting if not failed[t % 3]]
        assert firsts(state.handle()) == (in_order(state, open_), in_order(state, waiting))


def _reached(state: State) -> set[int]:
    """All tasks of the heaps, by their links."""
    found = [head(state, shape) for shape in range(3)]
    for task in found:
        found += [t for t in (int(state.tasks.next[task]), int(state.tasks.previous[task])) if task >= 0 and t >= 0]
    return set(found)


if not jit.COMPILED:  # compiled, only the engine passes functions on; runs of dynamic policies ask it then

    @pytest.mark.parametrize("seed", range(6))
    def test_a_dynamic_priority_is_asked_for_every_task_that_may_go(seed: int) -> None:
        state, rng = made(True, seed), random.Random(seed)
        state.rules["dynamic"] = 1
        assert queue.rekey(state.handle(), noted) == -1
        waiting = rng.sample(range(TASKS), TASKS // 2)
        for task in waiting:
            push(state.handle(), task)
        for turn in range(12):
            state.memory[:TASKS] = [float(rng.randrange(4)) for _ in range(TASKS)]
            state.shapes.level[:] = [rng.randrange(2) for _ in range(3)]
            failed = [rng.random() < 0.4 for _ in range(3)]
            state.shapes.failed[:] = [int(state.clock.epoch[0]) if each else 0 for each in failed]
            state.rules["queue"] = turn % 3  # a strict queue and EASY look at all
            may = [t for t in waiting if turn % 3 or not failed[t % 3]]
            found = queue.rekey(state.handle(), noted)
            for task in may:
                state.tasks.key[task] = state.memory[task]  # those of a lower level may not have been asked
            assert found == in_order(state, may)


def one_heap(order: list[int]) -> State:
    """A single shape; all tasks wait, with keys in this order."""
    count = len(order)
    work = Workload.of_columns(
        "w", release_s=np.zeros(count), runtime_s=np.ones(count), shapes=(Shape(0, (Variant(),)),)
    )
    state = build_state(work, Cluster("c", (Node("n", 4, 1 << 30),)))
    state.replace(scratch=np.zeros(count, np.int32))
    state.rules["has_priority"] = 1
    state.tasks.key[order], state.tasks.sequence[:] = np.arange(count), np.arange(count)
    state.tasks.state[:] = READY
    for task in range(count):
        push(state.handle(), task)
    return state


@pytest.mark.parametrize("step", [1, 7, 11, 29, 43])
def test_a_heap_of_many_ghosts_is_made_anew(step: int) -> None:
    """Of 150 tasks the last are cancelled; at the 108th there are more than 64 ghosts beyond those that wait."""
    order = [(step - 1 + step * k) % 150 for k in range(150)]
    state = one_heap(order)
    state.counts["free_task"] = -1
    for task in order[:42:-1]:
        cancel(state.handle(), task)
    assert (int(state.shapes.ghosts[0]), int(state.shapes.waiting[0])) == (107, 43)
    assert set(state.tasks.state[order[43:]].tolist()) == {GHOST}
    given_up = order[60]
    state.tasks.state[given_up] = LEFT  # its row was given up meanwhile
    cancel(state.handle(), order[42])
    assert (int(state.shapes.ghosts[0]), int(state.shapes.waiting[0])) == (0, 42)
    assert set(state.tasks.state[order[42:60] + order[61:]].tolist()) == {CANCELLED}
    assert int(state.tasks.state[given_up]) == FREE
    assert (int(state.counts.free_task[0]), int(state.tasks.next[given_up])) == (given_up, -1)
    came = []
    while state.shapes.waiting[0]:
        came.append(head(state, 0))
        remove(state.handle(), came[-1])
    assert came == order[:42]


def test_ghosts_at_the_head_of_a_heap_come_out_and_given_up_rows_are_free() -> None:
    state = one_heap(list(range(6)))
    state.counts["free_task"] = -1
    for task in (1, 2, 3):
        cancel(state.handle(), task)
    state.tasks.state[2] = LEFT
    assert (head(state, 0), int(state.shapes.ghosts[0])) == (0, 3)
    cancel(state.handle(), 0)
    assert (head(state, 0), int(state.shapes.ghosts[0]), int(state.shapes.waiting[0])) == (4, 0, 2)
    assert state.tasks.state[:4].tolist() == [CANCELLED, CANCELLED, FREE, CANCELLED]
    assert int(state.counts.free_task[0]) == 2


def test_a_list_lets_any_task_go_and_calls_it_cancelled() -> None:
    state = made(False, 2)
    for task in (0, 3, 6):
        push(state.handle(), task)
    cancel(state.handle(), 3)
    assert listed(state, 0) == [0, 6] and int(state.tasks.state[3]) == CANCELLED
    assert (int(state.tasks.next[6]), int(state.tasks.previous[0])) == (-1, -1)

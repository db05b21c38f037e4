"""The fence round the tables: what used to read foreign memory, or another's tables, is refused or right."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

from wattflow.kernel import jit
from wattflow.kernel.handle import Tables
from wattflow.kernel.lowering import FIRST, WORDS
from wattflow.kernel.records import record_table
from wattflow.model.workload import Workload
from wattflow.policy.base import Policy
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import sample_states

ROW = np.dtype([("a", "i8"), ("b", "f8")])
compiled_only = pytest.mark.skipif(not jit.COMPILED, reason="about compiled code")


class Pair(Tables):
    """Two tables for these tests."""

    __slots__ = ("grid", "rows")
    NAMES = ("rows", "grid")


@jit.jit
def add(pair, amount):
    for i in range(pair.rows.size):
        pair.rows[i].a += amount
    for i in range(pair.grid.shape[0]):
        for j in range(pair.grid.shape[1]):
            pair.grid[i, j] += amount
    return pair.rows[0].a


inside, leave = threading.Event(), threading.Event()


def _pause() -> None:
    inside.set()
    assert leave.wait(60)


@numba.njit
def pause(pair):
    """Stays inside until the test lets it go."""
    with numba.objmode():
        _pause()
    return pair.rows[0].a


def pair(rows: int = 3) -> Pair:
    return Pair(rows=record_table(ROW, rows), grid=np.zeros((2, 2)))


def simulation() -> Simulation:
    sample = sample_states()[2]
    made = Simulation(sample.workload, sample.cluster, "least-energy", seed=3)
    made.advance(until_s=6.0)
    return made


def test_a_copy_and_its_original_go_apart() -> None:
    for way in (copy.deepcopy, copy.copy, lambda p: pickle.loads(pickle.dumps(p)), lambda p: p.copy()):
        first = pair()
        add(first.handle(), 1)
        second = way(first)
        add(second.handle(), 10)
        assert first.rows.a.tolist() == [1, 1, 1]
        assert second.rows.a.tolist() == [11, 11, 11]
        assert second.grid.tolist() == [[11.0, 11.0], [11.0, 11.0]]
        assert type(second.rows) is type(first.rows)


@pytest.mark.slow
def test_a_pickled_simulation_goes_on_in_another_process() -> None:
    here = simulation()
    sent = pickle.dumps((here.state, here.world))
    code = (
        "import pickle, sys\n"
        "from wattflow.policy import bind, registry\n"
        "from wattflow.sim import kernel\n"
        "state, world = pickle.loads(sys.stdin.buffer.read())\n"
        "functions = bind.bind(registry.load('least-energy'), state)\n"
        "kernel.kernel(state, world, functions)(state.handle(), world.handle(), functions, float('inf'), 10**9)\n"
        "print(world.records[: int(world.pulse[0].record_n)].tobytes().hex())\n"
    )
    there = subprocess.run([sys.executable, "-W", "ignore", "-c", code], input=sent, capture_output=True, check=False)
    assert there.returncode == 0, there.stderr.decode()
    run = here.run()
    assert there.stdout.decode().split() == [run.attempts.tobytes().hex()]


def test_a_deep_copied_state_leaves_the_original_alone() -> None:
    first = simulation()
    before = {name: getattr(first.state, name).tobytes() for name in first.state.NAMES}
    second = copy.copy(first)
    second.state, second.world = copy.deepcopy(first.state), copy.deepcopy(first.world)
    second.run()
    assert {name: getattr(first.state, name).tobytes() for name in first.state.NAMES} == before
    assert second.result().attempts.tobytes() == first.run().attempts.tobytes()


def test_contents_can_be_taken_over_without_new_memory() -> None:
    first, second = pair(), pair()
    add(first.handle(), 5)
    handle = second.handle()
    second.copy_from(first)
    assert second.handle() is handle
    assert add(second.handle(), 1) == 6
    assert first.rows.a.tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="table rows has another size"):
        second.copy_from(pair(4))


def test_every_handle_is_checked_not_every_type() -> None:
    add(pair().handle(), 1)
    strided = np.zeros(6, pair().rows.dtype)[::2]
    with pytest.raises(ValueError, match="table rows must be contiguous"):
        pair().replace(rows=strided)
    if jit.COMPILED:
        with pytest.raises(ValueError, match="table rows must be contiguous"):
            Pair(rows=strided, grid=np.zeros((2, 2))).handle()
    locked = np.zeros((2, 2))
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="table grid must be contiguous, aligned and writeable"):
        pair().replace(grid=locked)
    with pytest.raises(ValueError, match="table grid must stay float64"):
        pair().replace(grid=np.zeros((2, 2), np.float32))


def test_assignment_goes_through_replace() -> None:
    tables = pair()
    with pytest.raises(AttributeError, match=r"Pair.grid is read-only; use replace\(grid=…\)"):
        tables.grid = np.ones((2, 2))
    tables.replace(grid=np.ones((3, 2)))
    add(tables.handle(), 1)
    assert tables.grid.tolist() == [[2.0, 2.0]] * 3


@compiled_only
def test_a_handle_does_not_leave_its_process() -> None:
    with pytest.raises(TypeError, match="addresses of this process"):
        pickle.dumps(pair().handle())


@compiled_only
def test_a_second_entry_is_refused_while_a_kernel_runs() -> None:
    tables = pair()
    add(tables.handle(), 0)
    leave.set()
    pause(tables.handle())  # compiled here: the compiler's warnings are errors in another thread
    inside.clear()
    leave.clear()
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(pause(tables.handle())))
    thread.start()
    try:
        assert inside.wait(60)
        assert tables.busy
        with pytest.raises(RuntimeError, match="in use"):
            add(tables.handle(), 1)
        for change in (lambda: tables.replace(grid=np.ones((2, 2))), tables.copy, lambda: pickle.dumps(tables)):
            with pytest.raises(RuntimeError, match="while compiled code runs on it"):
                change()
    finally:
        leave.set()
        thread.join()
    assert done == [0]
    assert not tables.busy
    add(tables.handle(), 1)


def _greedy(state, task, variant, out):
    state.replace(memory=np.zeros(64))


@compiled_only
def test_a_plain_policy_cannot_replace_tables_under_the_kernel() -> None:
    policy = Policy("greedy", "Replaces a table in the middle of a decision.", score=_greedy, compiled=False)
    sample = sample_states()[0]
    run = Simulation(sample.workload, sample.cluster, policy)
    with pytest.raises(RuntimeError, match="State cannot be changed while compiled code runs on it"):
        run.advance()
    assert not run.state.busy
    assert not run.world.busy


def test_a_plain_policy_sees_the_state_that_asks() -> None:
    seen: list[int] = []

    def score(state, task, variant, out):
        seen.append(id(state))
        out[:] = 0.0

    policy = Policy("looks", "Notes which State it is shown.", score=score, compiled=False)
    workload = Workload.of_columns("two", release_s=np.array([0.0, 5.0]), runtime_s=np.ones(2))
    first = Simulation(workload, sample_states()[0].cluster, policy)
    first.advance(until_s=1.0)
    assert set(seen) == {id(first.state)}
    second = copy.copy(first)
    second.state, second.world = first.state.copy(), first.world.copy()
    seen.clear()
    second.advance()
    assert set(seen) == {id(second.state)}


def test_copies_of_copies_are_taken_over_as_one_piece_until_a_table_is_replaced() -> None:
    first = Pair(rows=record_table(ROW, 3), grid=np.arange(4.0).reshape(2, 2))
    second = first.copy()
    third = second.copy()
    second.rows.a[1], second.grid[1, 0] = 7, 9.0
    third.copy_from(second)
    assert third.rows.a.tolist() == [0, 7, 0] and third.grid.tolist() == [[0.0, 1.0], [9.0, 3.0]]
    assert first.rows.a.tolist() == [0, 0, 0]
    third.replace(grid=np.zeros((2, 2)))
    second.grid[:] = 5.0
    third.copy_from(second)
    assert third.grid.tolist() == [[5.0, 5.0], [5.0, 5.0]]
    third.replace(grid=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="another size"):
        third.copy_from(second)


def test_tables_that_were_kept_come_back_also_after_one_was_replaced() -> None:
    one = Pair(rows=record_table(ROW, 3), grid=np.arange(4.0).reshape(2, 2)).copy()
    kept = one.keep()
    one.rows.a[1], one.grid[1, 0] = 7, 9.0
    one.take_back(kept)
    assert one.rows.a.tolist() == [0, 0, 0] and one.grid.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    one.replace(grid=np.zeros((3, 2)))
    one.take_back(kept)
    assert one.grid.tolist() == [[0.0, 1.0], [2.0, 3.0]]


@compiled_only
def test_a_handle_of_one_piece_names_the_address_of_each_table() -> None:
    one = Pair(rows=record_table(ROW, 3), grid=np.arange(6.0).reshape(3, 2)).copy()
    words = one.handle().directory[FIRST:].reshape(-1, WORDS)
    expected = [[table.ctypes.data, len(table), *(table.shape[1:] or (1,))] for table in (one.grid, one.rows)]
    assert sorted(words.tolist()) == sorted(expected)

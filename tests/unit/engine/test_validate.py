"""`validate_state` accepts every state that a run passes through, and names each kind of damage."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import containers, groups, validate
from wattflow.engine.agenda import WARM
from wattflow.engine.build import build_state
from wattflow.engine.tables import COUNTED, DONE, HOT, NODE_MARKS, PLACED, READY, TERMS, TIMERS, TOPOLOGIES, State
from wattflow.engine.validate import CorruptState, find_problems, validate_state
from wattflow.kernel import jit
from wattflow.kernel.records import record_table
from wattflow.model.workload import Workload
from wattflow.sim import kernel
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import Sample, sample_states

Damage = Callable[[State], None]


def crowded(policy: str) -> State:
    """A State of which many tasks run, some on devices, and many wait."""
    sample = sample_states()[1]
    rng = np.random.default_rng(4)
    workload = Workload.of_columns(
        "crowd", release_s=np.zeros(90), runtime_s=rng.uniform(2.0, 9.0, 90), shapes=sample.workload.shapes,
        functions=sample.workload.functions, shape=(np.arange(90) % len(sample.workload.shapes)).astype(np.int32),
    )  # fmt: skip
    run = Simulation(workload, sample.cluster, policy, seed=1)
    run.advance(until_s=3.0)
    return run.state


@pytest.mark.parametrize("policy", ["fifo", "sjf", "least-energy"])
@pytest.mark.parametrize("sample", sample_states(), ids=lambda sample: sample.name)
def test_every_state_of_a_run_is_sound(sample: Sample, policy: str) -> None:
    run = Simulation(sample.workload, sample.cluster, policy, seed=1)
    while run.advance(max_events=1) != kernel.DONE:
        validate_state(run.state)
    validate_state(run.state)


def busy(state: State) -> int:
    """A node on which something runs."""
    return int(np.flatnonzero(state.nodes.running)[0])


def queued(state: State, least: int = 2) -> int:
    """A shape of which so many wait."""
    return int(np.flatnonzero(state.shapes.waiting >= least)[0])


def add(name: str, field: str, more: int, row: Callable[[State], int] = lambda state: 0) -> Damage:
    """One number is another."""

    def damage(state: State) -> None:
        getattr(state, name)[field][row(state)] += more

    return damage


def _ring(state: State) -> None:
    first = int(state.nodes.first_attempt[busy(state)])
    state.attempts.next[first] = first


def _lose_a_task(state: State) -> None:
    shape = int(state.active_shapes[0])
    state.shapes.waiting[shape] += 1
    state.counts.waiting += 1


def _disorder(state: State) -> None:
    head = int(state.shapes.head[int(state.active_shapes[0])])
    state.tasks.key[head] = 1e9


def _ghosts(state: State) -> None:
    state.shapes.ghosts[queued(state)] += 1


def _lost_bit(state: State) -> None:
    state.group_bits[int(state.nodes.group[0])] = 0


def _free_list(state: State) -> None:
    state.counts["free_attempt"] = -1


def _runs_and_is_free(state: State) -> None:
    """The last free row is left out, and one that runs, the last of its node's list, stands in its place."""
    row, before = int(state.counts.free_attempt[0]), -1
    while state.attempts.next[row] >= 0:
        row, before = int(state.attempts.next[row]), row
    runs = int(np.flatnonzero((state.attempts.task >= 0) & (state.attempts.next < 0))[0])
    state.attempts.next[before] = runs


def _unlisted(state: State) -> None:
    state.nodes.first_attempt[busy(state)] = -1


def _forgotten(state: State) -> None:
    state.tasks.state[int(np.flatnonzero(state.tasks.state != READY)[0])] = READY


def _of_task(state: State) -> int:
    return int(state.attempts.task[int(np.flatnonzero(state.attempts.task >= 0)[0])])


def _not_placed(state: State) -> None:
    state.tasks.state[_of_task(state)] = DONE


def _placed(state: State) -> None:
    waits = int(state.shapes.head[queued(state)])
    state.tasks.state[waits] = PLACED


def _ready_with_a_parent(state: State) -> None:
    state.tasks.pending[int(state.shapes.head[queued(state)])] = 1


def _no_parent(state: State) -> None:
    state.tasks.pending[_of_task(state)] = -1


def _second(state: State) -> int:
    return int(state.tasks.next[int(state.shapes.head[queued(state)])])


def _queue_ring(state: State) -> None:
    head = int(state.shapes.head[queued(state)])
    state.tasks.next[_second(state)] = head


def _no_tail(state: State) -> None:
    shape = queued(state)
    state.shapes.tail[shape] = state.shapes.head[shape]


def _other_shape(state: State) -> None:
    head = int(state.shapes.head[queued(state)])
    state.tasks.form[head] = (int(state.tasks.form[head]) + 1) % len(state.shapes)


def _shape_list(state: State) -> None:
    state.active_shapes[0] = (int(state.active_shapes[0]) + 1) % len(state.shapes)


def _active_list(state: State) -> None:
    state.counts.active_n -= 1


def _swapped(state: State) -> None:
    state.groups.place[state.active_groups[:2]] = [1, 0]


def _misplaced(state: State) -> None:
    state.class_nodes[:2] = state.class_nodes[:2][::-1].copy()


DAMAGE: list[tuple[Damage, str, str]] = [
    (add("nodes", "used_u", -1, busy), "fifo", "used_u of row"),
    (add("nodes", "alloc_u", 1, busy), "fifo", "alloc_u of row"),
    (add("nodes", "used_mem", 5), "fifo", "used_mem of row 0 is"),
    (add("nodes", "running", 1), "fifo", "running of row 0 is"),
    (add("functions", "running", 1), "fifo", "running attempts of functions of row 0 is"),
    (add("counts", "asleep_n", 1), "fifo", "asleep_n is 1, but 0 nodes sleep"),
    (add("counts", "running", 1), "fifo", "attempts are"),
    (add("counts", "held_first", 1), "fifo", "tasks are held"),
    (add("counts", "placed_n", 1), "fifo", "placements unread"),
    (add("attempts", "previous", 1, lambda state: int(state.nodes.first_attempt[busy(state)])), "fifo", "linked both"),
    (_ring, "fifo", "are a ring|not linked both ways"),
    (_unlisted, "fifo", "attempts are listed with their nodes, but"),
    (_free_list, "fifo", "free list of attempts has no end or the wrong length"),
    (_runs_and_is_free, "fifo", "an attempt that runs is in the free list"),
    (_lose_a_task, "fifo", "in its queue, and says otherwise|not in order"),
    (_disorder, "sjf", "is not in order"),
    (_ghosts, "fifo", "ready tasks and 0 ghosts in its queue, and says otherwise"),
    (_queue_ring, "fifo", "the queue of shape . is not in order, or has no end"),
    (_queue_ring, "sjf", "the queue of shape . is not in order, or has no end"),
    (_no_tail, "fifo", "the queue of shape . is not in order, or has no end"),
    (add("tasks", "previous", 1, _second), "fifo", "the queue of shape . is not in order, or has no end"),
    (_other_shape, "fifo", "holds a task of another shape"),
    (_shape_list, "fifo", "the list of shapes that wait is not the shapes that wait"),
    (add("shapes", "place", 1, queued), "fifo", "the list of shapes that wait is not the shapes that wait"),
    (add("counts", "waiting", 1), "fifo", "but the shapes' queues hold"),
    (add("functions", "waiting", 1), "fifo", "waiting tasks of functions of row 0 is"),
    (add("groups", "free_u", 1, lambda state: int(state.nodes.group[0])), "fifo", "node 0 is in a group that says"),
    (add("groups", "free_mem", 1, lambda state: int(state.nodes.group[0])), "fifo", "node 0 is in a group that says"),
    (add("groups", "power_state", 1, lambda state: int(state.nodes.group[0])), "fifo", "node 0 is in a group that"),
    (add("groups", "count", 1, lambda state: int(state.nodes.group[0])), "fifo", "count of groups of row"),
    (add("groups", "low", 1, lambda state: int(state.nodes.group[0])), "fifo", "lowest node is not its lowest bit"),
    (add("groups", "node", 1, lambda state: int(state.nodes.group[0])), "fifo", "names another node than its lowest"),
    (_active_list, "fifo", "the list of active groups is not the groups that have nodes"),
    (_swapped, "fifo", "a group does not stand where it says"),
    (_misplaced, "fifo", "a node does not stand at its place in its class"),
    (_lost_bit, "fifo", "bits of a group"),
    (_forgotten, "fifo", "tasks are ready"),
    (_not_placed, "fifo", "has an attempt but is not placed"),
    (_placed, "fifo", "is placed but has no attempt"),
    (_ready_with_a_parent, "fifo", "a task is ready although a parent is open"),
    (_no_parent, "fifo", "a task waits for less than no parent"),
    (add("counts", "open", 1), "fifo", "but the workflows say otherwise"),
    (add("devices", "share_u", 1), "fifo", "share_u of devices of row 0"),
    (add("devices", "memory", 1), "fifo", "memory of devices of row 0"),
    (add("devices", "tasks", 1), "fifo", "tasks of devices of row 0"),
]


@pytest.fixture(scope="module")
def crowds() -> dict[str, State]:
    return {policy: crowded(policy) for policy in ("fifo", "sjf")}


@pytest.mark.parametrize(("damage", "policy", "words"), DAMAGE, ids=[words for _, _, words in DAMAGE])
def test_damage_is_named(damage: Damage, policy: str, words: str, crowds: dict[str, State]) -> None:
    state = crowds[policy].copy()
    validate_state(state)
    assert state.counts.waiting[0] > 2
    damage(state)
    assert [problem for problem in find_problems(state) if re.search(words, problem)]
    with pytest.raises(CorruptState):
        validate_state(state)


@pytest.mark.parametrize(("count", "more"), [(1, ""), (8, ""), (9, " (and 1 more)"), (20, " (and 12 more)")])
def test_eight_problems_are_shown_and_the_others_counted(
    count: int, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "find_problems", lambda state: iter([f"p{k}" for k in range(count)]))
    state = build_state(tasks([1.0]), nodes(node()))
    state.clock["now"] = 2.5
    with pytest.raises(CorruptState) as error:
        validate_state(state)
    assert str(error.value) == f"at 2.5 s: {'; '.join(f'p{k}' for k in range(min(8, count)))}{more}"


def with_containers() -> State:
    """Two idle containers of function 0 on node 1, one that serves any on node 0."""
    sample = next(each for each in sample_states() if each.name == "functions")
    state = Simulation(sample.workload, sample.cluster, "fifo").state
    for place, function in ((1, 0), (1, 0), (0, HOT)):
        keep(state.handle(), place, function)
    return state


@jit.jit
def keep(state, node, function):
    containers.keep(state, node, function)


def _container(state: State) -> int:
    return int(state.nodes.first_container[1])


def _free(state: State) -> int:
    return int(state.counts.free_container[0])


def set_to(name: str, field: str, row: Callable[[State], int], value: Callable[[State], int]) -> Damage:
    """One number is this instead."""

    def damage(state: State) -> None:
        getattr(state, name)[field][row(state)] = value(state)

    return damage


def first(state: State) -> int:
    return 0


def none(state: State) -> int:
    return -1


CONTAINER_DAMAGE: list[tuple[Damage, str]] = [
    (set_to("containers", "next_node", _container, _container), "of node 1 have no end"),
    (set_to("containers", "next_node", _free, _free), "the free list of containers has no end"),
    (add("containers", "node", 1, _container), "of node 1 have no end or are not its own"),
    (add("containers", "function", 1, _container), "of function 0 have no end or are not its own"),
    (add("containers", "previous_node", 1, _container), "of node 1 are not linked both ways"),
    (add("containers", "previous_function", 1, _container), "of function 0 are not linked both ways"),
    (set_to("counts", "hot_container", first, none), "3 containers are in use, but 2 are listed by function"),
    (set_to("counts", "hot_container", first, _container), "hot containers have no end or belong"),
    (set_to("nodes", "first_container", first, none), "3 containers are in use, but 2 are listed by node"),
]


@pytest.mark.parametrize(("damage", "words"), CONTAINER_DAMAGE, ids=[words for _, words in CONTAINER_DAMAGE])
def test_damage_to_containers_is_named(damage: Damage, words: str) -> None:
    state = with_containers()
    validate_state(state)
    damage(state)
    with pytest.raises(CorruptState, match=words):
        validate_state(state)


def counting_state() -> State:
    """A live engine's tables beside a run of a task on each of two nodes: a counter by node, and one by their rack."""
    run = Simulation(tasks([9.0] * 2), nodes(node(2), node(2)), "fifo")
    run.advance(until_s=1.0)
    state = run.state
    counted, terms = record_table(COUNTED, 3), record_table(TERMS, 3)
    counted.term[1:], counted.next[1] = [1, 2], 2
    terms.topology[1:], terms.first[1:], terms.total[1:] = [-1, 0], [0, 2], 2
    state.shapes["counted"] = 1
    domains = np.full((2, TOPOLOGIES), -1, np.int32)
    domains[:, 0] = 1
    state.replace(
        counted=counted, terms=terms, tallies=np.array([1, 1, 0, 2], np.int32), domains=domains,
        node_marks=record_table(NODE_MARKS, 2), timers=record_table(TIMERS, 4),
    )  # fmt: skip
    return state


def test_counters_hold_what_runs_and_marks_what_others_use() -> None:
    state = counting_state()
    validate_state(state)
    state.tallies[0] = 3
    assert list(find_problems(state)) == ["counter 1 says 3 of domain 0, where 1 tasks are"]
    state.tallies[0], state.terms.total[2] = 1, 1
    assert list(find_problems(state)) == ["counter 2 says 2 of domain 1, where 2 tasks are"]
    state.terms.total[2] = 2
    state.node_marks.other_u[1], state.node_marks.other_mem[1] = 7, 9
    assert len(list(find_problems(state))) == 3  # two sums of cores and one of memory
    state.nodes.used_u[1] += 7
    state.nodes.alloc_u[1] += 7
    state.nodes.used_mem[1] += 9
    with np.errstate(over="ignore"):
        groups.rebuild(state.handle())
    validate_state(state)
    state.timers.what[0], state.timers.who[0], state.counts["timer_n"] = WARM, 1, 1
    assert list(find_problems(state)) == ["warming of row 1 is 0, not 1"]
    state.node_marks.warming[1] = 1
    validate_state(state)


def test_groups_that_a_rebuild_forgot_are_no_damage() -> None:
    """Three equal nodes were in three groups, and after a rebuild are in one: what the other two held is void."""
    state = build_state(tasks([1.0]), nodes(*[node(4)] * 3))
    with np.errstate(over="ignore"):
        state.nodes.used_u[:] = [0, 1, 2]
        groups.rebuild(state.handle())
        assert int(state.counts.active_n[0]) == 3
        state.nodes.used_u[:] = 0
        groups.rebuild(state.handle())
    assert int(state.counts.active_n[0]) == 1
    validate_state(state)

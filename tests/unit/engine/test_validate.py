"""`validate_state` accepts every state that a run passes through, and names each kind of damage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import groups
from wattflow.engine.build import build_state
from wattflow.engine.tables import READY, State
from wattflow.engine.validate import CorruptState, find_problems, validate_state
from wattflow.model.workload import Workload
from wattflow.sim import kernel
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import Sample, sample_states


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


def _lose_cores(state: State) -> None:
    state.nodes.used_u[int(np.flatnonzero(state.nodes.running)[0])] -= 1


def _lose_memory(state: State) -> None:
    state.nodes.used_mem[0] += 5


def _ring(state: State) -> None:
    first = int(state.nodes.first_attempt[int(np.flatnonzero(state.nodes.running)[0])])
    state.attempts.next[first] = first


def _lose_a_task(state: State) -> None:
    shape = int(state.active_shapes[0])
    state.shapes.waiting[shape] += 1
    state.counts.waiting += 1


def _disorder(state: State) -> None:
    head = int(state.shapes.head[int(state.active_shapes[0])])
    state.tasks.key[head] = 1e9


def _wrong_group(state: State) -> None:
    state.groups.free_u[int(state.nodes.group[0])] += 1


def _lost_bit(state: State) -> None:
    state.group_bits[int(state.nodes.group[0])] = 0


def _free_list(state: State) -> None:
    state.counts["free_attempt"] = -1


def _forgotten(state: State) -> None:
    state.tasks.state[int(np.flatnonzero(state.tasks.state != READY)[0])] = READY


def _device(state: State) -> None:
    state.devices.share_u[0] += 1


DAMAGE: list[tuple[Callable[[State], None], str, str]] = [
    (_lose_cores, "fifo", "used_u of row"),
    (_lose_memory, "fifo", "used_mem of row 0"),
    (_ring, "fifo", "are a ring|not linked both ways"),
    (_lose_a_task, "fifo", "in its queue, and says otherwise|not in order"),
    (_disorder, "sjf", "is not in order"),
    (_wrong_group, "fifo", "says otherwise of it"),
    (_lost_bit, "fifo", "bits of a group"),
    (_free_list, "fifo", "free list of attempts"),
    (_forgotten, "fifo", "tasks are ready"),
    (_device, "fifo", "share_u of devices of row 0"),
]


@pytest.mark.parametrize(("damage", "policy", "words"), DAMAGE, ids=lambda value: getattr(value, "__name__", ""))
def test_damage_is_named(damage: Callable[[State], None], policy: str, words: str) -> None:
    state = crowded(policy)
    validate_state(state)
    assert state.counts.waiting[0] > 2
    damage(state)
    with pytest.raises(CorruptState, match=words):
        validate_state(state)
    assert list(find_problems(state))


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

"""What fits where, against plain arithmetic; groups of equal nodes stay those that a rebuild would make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import devices, fit, groups
from wattflow.engine.build import build_state
from wattflow.engine.settings import Settings
from wattflow.engine.tables import ASLEEP, NO_DEVICE, ON, READY, State
from wattflow.kernel import jit
from wattflow.model.cluster import Device, Serverless
from wattflow.model.profile import DeviceProfile
from wattflow.model.workflow import Variant
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import Sample, sample_states

CASES = [(sample, at_s) for sample in sample_states() for at_s in sample.looks_s]


@jit.jit
def candidates(state, variant, task):
    return fit.candidates(state, variant, task)


@jit.jit
def take(state, variant, node):
    fit.take(state, variant, node, -1)


def state_of(sample: Sample, at_s: float) -> State:
    simulation = Simulation(sample.workload, sample.cluster, "fifo", seed=1)
    simulation.advance(until_s=at_s)
    return simulation.state


def fits(state: State, variant: int, node: int) -> bool:
    """Cores and memory of a node that is on, as a reader of the docs would check them."""
    needs, row = state.variants[variant], state.nodes[node]
    return bool(
        state.class_ok[variant, row.cls] == 1
        and row.power_state == ON
        and row.used_u + needs.need_u <= row.capacity_u
        and row.used_mem + needs.memory <= row.capacity_mem
    )


def alike(state: State, a: int, b: int) -> bool:
    """Whether two nodes are the same to every policy: one class, as much in use."""
    names = ("cls", "used_u", "used_mem", "alloc_u", "power_state", "device_key", "capacity_u")
    return all(state.nodes[name][a] == state.nodes[name][b] for name in names)


@pytest.mark.parametrize(("sample", "at_s"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_candidates_are_the_nodes_that_fit_one_of_each_kind(sample: Sample, at_s: float) -> None:
    state = state_of(sample, at_s)
    seen = 0
    for task in range(len(state.tasks)):
        form = state.shapes[state.tasks.form[task]]
        for variant in range(form.variant_first, form.variant_first + form.variant_n):
            plain = state.variants.device[variant] == NO_DEVICE and state.tasks.pinned[task] < 0
            if not plain or any(state.classes.serverless) or state.tasks.state[task] > READY:
                continue
            able = [n for n in range(len(state.nodes)) if fits(state, variant, n)]
            count = candidates(state.handle(), variant, task)
            found = [int(n) for n in state.candidates.node[:count]]
            if able:
                assert set(found) <= set(able)
                assert all(any(alike(state, n, c) for c in found) for n in able)
                assert len({n for n in found}) == len(found)
                seen += 1
            else:
                assert all(state.nodes.power_state[n] != ON for n in found)
    assert seen or at_s > 0 or any(state.classes.serverless)


@pytest.mark.parametrize("sample", sample_states(), ids=lambda sample: sample.name)
def test_groups_are_what_a_rebuild_makes(sample: Sample) -> None:
    state = state_of(sample, sample.looks_s[-1])

    def parts() -> set[frozenset[int]]:
        there: dict[int, set[int]] = {}
        for n in range(len(state.nodes)):
            there.setdefault(int(state.nodes.group[n]), set()).add(n)
        for g, members in there.items():
            assert int(state.groups.count[g]) == len(members)
            assert int(state.groups.low[g]) == min(int(state.nodes.pos[n]) for n in members)
        assert int(state.counts.active_n[0]) == len(there)
        return {frozenset(members) for members in there.values()}

    before = parts()
    with np.errstate(over="ignore"):  # hashes, where the code is not compiled
        groups.rebuild(state.handle())
    assert parts() == before


def test_taking_room_moves_a_node_to_another_group() -> None:
    sample = sample_states()[0]
    twins = [n for n, node in enumerate(sample.cluster.nodes) if node.name in ("small", "twin")]
    idle = Simulation(sample.workload, sample.cluster, "fifo", seed=1).state
    assert idle.nodes.group[twins[0]] == idle.nodes.group[twins[1]]
    with np.errstate(over="ignore"):
        take(idle.handle(), 0, twins[0])
    assert idle.nodes.group[twins[0]] != idle.nodes.group[twins[1]]
    assert idle.nodes.used_u[twins[0]] == idle.variants.need_u[0] and idle.nodes.running[twins[0]] == 1
    with np.errstate(over="ignore"):
        take(idle.handle(), 0, twins[1])
    assert idle.nodes.group[twins[0]] == idle.nodes.group[twins[1]]


CARD = Device("gpu", "a", 100, "mps", 1, power=DeviceProfile((0.0, 1.0), (0.0, 10.0)))


def found(state: State, task: int = 0, variant: int = 0) -> list[tuple[int, int]]:
    count = candidates(state.handle(), variant, task)
    return [(int(c.node), int(c.device)) for c in state.candidates[:count]]


@pytest.mark.parametrize("name", ["cls", "share_u", "memory", "tasks", "busy_u", "duty_u", "loaded"])
def test_devices_that_differ_in_anything_are_candidates_of_their_own(name: str) -> None:
    """Three cards of one node: the first two alike, the third another only in this."""
    cards = (CARD, CARD, replace(CARD, speed=2.0) if name == "cls" else CARD)
    half = Variant("half", 1, 0, "gpu", 1, 0.5, 10)
    state = build_state(tasks([1.0], variants=(half,)), nodes(node(2, devices=cards)))
    if name != "cls":
        state.devices[name][2] += 1
    assert found(state) == [(0, 0), (0, 2)]


@pytest.mark.parametrize(("estimate_s", "fits"), [(40.0, True), (40.1, False), (39.9, True)])
def test_a_time_limit_is_the_longest_that_may_run(estimate_s: float, fits: bool) -> None:
    platform = node(4, serverless=Serverless(4.0, time_limit_s=40.0))
    assert found(build_state(tasks([estimate_s]), nodes(platform))) == ([(0, -1)] if fits else [])


def test_a_device_suits_by_kind_model_and_memory() -> None:
    """A variant for 60 bytes on model a: one card lacks memory, one is another model, one an FPGA."""
    cards = (replace(CARD, memory_bytes=59), replace(CARD, model="b"), Device("fpga", "a", 100), CARD)
    asked = Variant("asked", 1, 0, "gpu", 1, 1.0, 60, device_models=("a",))
    anyone = Variant("any", 1, 0, "gpu", 1, 1.0, 59)
    state = build_state(tasks([1.0], variants=(asked, anyone)), nodes(node(2, devices=cards)))
    assert [bool(devices.device_suits(state.handle(), 0, d)) for d in range(4)] == [False, False, False, True]
    assert [bool(devices.device_suits(state.handle(), 1, d)) for d in range(4)] == [True, True, False, True]
    assert found(state, variant=0) == [(0, 3)]


def test_of_many_nodes_some_that_fit_are_looked_at_and_the_search_goes_on_from_there() -> None:
    """Of 200 nodes kube-scheduler scores 100 that fit; one sleeps, one is full, all others get their turn."""
    state = build_state(tasks([1.0]), nodes(*[node(2)] * 200), Settings(samples=True))
    with np.errstate(over="ignore"):
        take(state.handle(), 0, 7)
        take(state.handle(), 0, 7)
    state.nodes.power_state[150] = ASLEEP
    first = [n for n, _ in found(state)]
    second = [n for n, _ in found(state)]
    assert first == [n for n in range(101) if n != 7]
    assert second == [*(n for n in range(101, 200) if n != 150), 0, 1]
    assert int(state.choice.sample_at[0]) == 2
    assert [int(fit.enough_nodes(n)) for n in (5, 99, 100, 200, 1000, 5000, 6000)] == [5, 99, 100, 100, 420, 500, 300]

"""Idle containers stand newest first in the lists of their node and of their function, linked both ways."""

from __future__ import annotations

from wattflow.engine import containers
from wattflow.engine.tables import State
from wattflow.engine.validate import validate_state
from wattflow.kernel import jit
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import sample_states


@jit.jit
def _keep(state, node, function):
    containers.keep(state, node, function)


@jit.jit
def _keep_since(state, node, function, idle_since):
    containers.keep_since(state, node, function, idle_since)


def three_idle() -> State:
    """Containers of function 0 on node 1, idle since 1, 2 and 3 s; it is 4 s."""
    sample = next(each for each in sample_states() if each.name == "functions")
    state = Simulation(sample.workload, sample.cluster, "fifo").state
    for now_s in (1.0, 2.0, 3.0):
        state.clock["now"] = now_s
        _keep(state.handle(), 1, 0)
    state.clock["now"] = 4.0
    return state


def idle_since(state: State, first: int, link: str) -> list[float]:
    found = []
    while first >= 0:
        found.append(float(state.containers["idle_since"][first]))
        first = int(state.containers[link][first])
    return found


def both(state: State) -> tuple[list[float], list[float]]:
    node, function = int(state.nodes["first_container"][1]), int(state.functions["first_container"][0])
    return idle_since(state, node, "next_node"), idle_since(state, function, "next_function")


def test_the_newest_stands_first() -> None:
    state = three_idle()
    assert both(state) == ([3.0, 2.0, 1.0],) * 2
    validate_state(state)


def test_one_that_comes_back_stands_where_it_stood() -> None:
    for since, expected in ((1.5, [3.0, 2.0, 1.5, 1.0]), (0.5, [3.0, 2.0, 1.0, 0.5]), (3.5, [3.5, 3.0, 2.0, 1.0])):
        state = three_idle()
        _keep_since(state.handle(), 1, 0, since)
        assert both(state) == (expected,) * 2
        validate_state(state)

"""When idle nodes sleep under the learned policy: weights that move a class's time-out, and a node's, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine.tables import ASLEEP, ON, State
from wattflow.model.cluster import Cluster, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.policy import learned, placing, weights
from wattflow.sim.simulate import Simulation

SLEEPS = Sleep(2.0, 30.0, 0.0, wake_w=10.0)
LINEAR = PowerProfile((0.0, 2.0), (10.0, 50.0))


def one_node(**more: object) -> Cluster:
    return nodes(node(2, **({"power": LINEAR, "sleep": SLEEPS} | more)))


def heads(sleep: float = 0.0, doze: float = 0.0) -> np.ndarray:
    """Weights of zero but for the biases of these two heads."""
    theta = np.zeros(weights.SIZE)
    theta[weights.SLEEP + learned.CLASS_N - 1] = sleep
    theta[weights.DOZE + placing.DOZE_N] = doze
    return theta


def prepared(theta: np.ndarray, cluster: Cluster) -> State:
    return Simulation(tasks([1.0]), cluster, learned.with_weights(theta)).state


def usual_s(state: State) -> float:
    """The flagship's time-out, which is a class's last feature."""
    return float(state.memory[int(state.memory[learned.NOTES.classes]) + learned.CLASS_N - 1])


def test_weights_of_zero_leave_the_flagships_time_out() -> None:
    """Break even after 30 s at 10 W over 8 W saved: 37.5 s, of which the flagship waits a share."""
    state = prepared(heads(), one_node())
    assert usual_s(state) == pytest.approx(float(state.params[learned.DIAL.idle]) * 37.5)
    assert state.classes.sleep_after_s.tolist() == pytest.approx([usual_s(state)])
    assert state.memory[int(state.memory[learned.NOTES.longest])] == 0.0


def test_the_sleep_head_moves_the_time_out_of_a_class() -> None:
    """1, softly held within 2, is 2/3; one and a half of that is a factor of e."""
    state = prepared(heads(sleep=1.0), one_node())
    assert state.classes.sleep_after_s.tolist() == pytest.approx([math.e * usual_s(state)])


def test_with_a_doze_head_the_engines_time_outs_come_last() -> None:
    state = prepared(heads(doze=-2.0), one_node())
    longest = math.exp(4.0)  # as far as the head can move a node
    assert state.memory[int(state.memory[learned.NOTES.longest])] == pytest.approx(longest)
    assert state.classes.sleep_after_s.tolist() == pytest.approx([longest * usual_s(state)])


def test_a_time_out_that_the_cluster_gives_stays() -> None:
    state = prepared(heads(sleep=1.0, doze=-2.0), one_node(sleep=Sleep(2.0, 30.0, after_s=77.0)))
    assert state.classes.sleep_after_s.tolist() == [77.0]
    assert usual_s(state) == math.inf


def test_the_doze_head_lets_an_idle_node_sleep_sooner() -> None:
    """−2, softly held within 2, is −1: a factor of e^−2 on the time-out. The node is idle from 5 s on."""
    work = tasks([5.0, 1.0], release=[0.0, 1e5])
    simulation = Simulation(work, one_node(), learned.with_weights(heads(doze=-2.0)))
    after_s = usual_s(simulation.state) * math.exp(-2.0)
    simulation.advance(until_s=5.0 + 0.99 * after_s)
    assert simulation.state.nodes.power_state.tolist() == [ON]
    simulation.advance(until_s=5.0 + 1.01 * after_s)
    assert simulation.state.nodes.power_state.tolist() == [ASLEEP]


def test_idle_nodes_of_a_worse_class_sleep_sooner_where_the_doze_head_says_so() -> None:
    """The head weighs how much worse a class is, so that it is −2, softly −1, for the worse of two: a factor of e^−2.

    Each node runs a task until 5 s; the better one keeps its time-out.
    """
    kinds = [
        node(1, power=PowerProfile((0.0, 1.0), (10.0, full_w)), sleep=Sleep(2.0, 30.0, 0.0, wake_w=wake_w))
        for full_w, wake_w in ((30.0, 10.0), (60.0, 40.0))
    ]
    cluster, work = nodes(*kinds), tasks([5.0, 5.0, 1.0], release=[0.0, 0.0, 1e5])
    plain = prepared(heads(), cluster)
    rows = plain.memory[int(plain.memory[learned.NOTES.classes]) :][: 2 * learned.CLASS_N].reshape(2, -1)
    assert rows[0, 0] == 0.0 < rows[1, 0]
    theta = np.zeros(weights.SIZE)
    theta[weights.DOZE + 3] = -2.0 / rows[1, 0]
    simulation = Simulation(work, cluster, learned.with_weights(theta))
    usual = rows[:, -1].tolist()
    due = sorted([(5.0 + usual[0], 0), (5.0 + usual[1] * math.exp(-2.0), 1)])
    asleep: set[int] = set()
    for at_s, place in due:
        simulation.advance(until_s=0.999 * at_s)
        assert set(np.flatnonzero(simulation.state.nodes.power_state == ASLEEP).tolist()) == asleep
        simulation.advance(until_s=1.001 * at_s)
        asleep.add(place)
        assert set(np.flatnonzero(simulation.state.nodes.power_state == ASLEEP).tolist()) == asleep


def test_features_of_classes_are_relative_and_finite() -> None:
    """Three nodes of 4 threads, one of 2 that neither sleeps nor is measured."""
    big = node(4, power=PowerProfile((0.0, 4.0), (20.0, 100.0)), sleep=SLEEPS)
    state = Simulation(tasks([1.0]), nodes(big, big, big, node(2)), "fifo").state
    cluster = nodes(big, big, big, node(2))
    rows = learned.class_rows(state, cluster)
    assert rows[:, -1].tolist() == [math.inf, math.inf]
    cycle_s = 30.0 * 10.0 / 18.0  # break-even seconds
    expected = [
        [0.0, 12 / 14, math.log(4 * 2 / 6), 0.2, math.log1p(cycle_s / 60), math.log1p(0.5), 1 / 3, 2 / 20],
        [2.0, 2 / 14, math.log(2 * 2 / 6), 0.0, 0.0, 0.0, 1.0, 0.0],
    ]
    assert rows[:, :-1] == pytest.approx(np.array(expected))

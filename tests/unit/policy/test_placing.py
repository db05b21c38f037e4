"""What the learned policy looks at, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine.tables import ASLEEP, State
from wattflow.model.cluster import Cluster, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.policy import learned, placing, pricing, weights
from wattflow.sim.simulate import Simulation

FIRST, FACTS, WATCHED, PARTS = 0, 100, 150, 180
LINEAR = PowerProfile((0.0, 2.0), (10.0, 50.0))


def pair() -> Cluster:
    """Two nodes of two threads, 10 W idle, 20 W a thread and 2 W asleep; 30 s to wake."""
    return nodes(*[node(2, power=LINEAR, sleep=Sleep(2.0, 30.0, 0.0, wake_w=10.0))] * 2)


def looked_at() -> State:
    """At 20 s: one task of 4 s waits, others run; the cluster's facts are 4 threads, 5 W, 2 nodes and 20 s."""
    state = Simulation(tasks([4.0, 4.0]), pair(), learned.with_weights(np.zeros(weights.SIZE))).state
    memory = np.zeros(200)
    memory[FACTS : FACTS + 4] = [4.0, 5.0, 2.0, 20.0]
    state.replace(memory=memory)
    state.clock["now"] = 20.0
    state.counts["waiting"], state.counts["running"], state.counts["asleep_n"] = 1, 5, 1
    state.extra["path"], state.extra["typical"], state.extra["rank"], state.extra["slack"] = 10.0, 8.0, 30.0, 4.0
    state.tasks["ready"] = 13.0
    state.workflows["submit"] = 15.0
    for name, value in {"wait": 5.0, "energy": 1.0, "response": 2.0, "makespan": 0.5, "cost": 0.25}.items():
        state.params[getattr(learned.DIAL, name)] = value
    state.params[learned.DIAL.utilisation] = 0.25
    return state


def test_facts_are_totals_and_means_of_the_cluster() -> None:
    state = Simulation(tasks([1.0]), pair(), "fifo").state
    assert placing.facts_of(state).tolist() == [4.0, 10.0, 2.0, 30.0]
    single = Simulation(tasks([1.0]), nodes(node(1)), "fifo").state
    assert placing.facts_of(single).tolist() == [1.0, 1e-3, 1.0, 10.0]


def test_around_describes_the_decision() -> None:
    state = looked_at()
    placing.around(state.handle(), 0, 0, FIRST, FACTS)
    expected = [
        math.log1p(1 / 4), 5 / 4, 1 / 2, math.log(20 / 8), 8 / 10, (30 - 20) / 10, (20 - 13) / 10, 1 * 2 / 4, 3.0,
        2 / 4, (0.5 + 0.25) / 4, math.log(20 / 10) / 3,
    ]  # fmt: skip
    assert state.memory[: placing.AROUND_N].tolist() == pytest.approx(expected)
    assert not state.memory[placing.AROUND_N : FACTS].any()


def test_around_holds_its_numbers_within_bounds() -> None:
    state = looked_at()
    state.counts["running"] = 9  # over 4 threads
    state.tasks["ready"] = -5.0  # 25 s ago, on a path of 10
    state.extra["typical"], state.extra["rank"] = 30.0, 60.0
    state.variants["cores_u"] = 6_000_000
    placing.around(state.handle(), 0, 0, FIRST, FACTS)
    assert state.memory[[1, 4, 5, 6, 7]].tolist() == [2.0, 1.0, 2.0, 2.0, 2.0]


def test_short_paths_are_told_in_their_own_seconds() -> None:
    """A path of half a second, of which the task is half; only thousandths are rounded up."""
    state = looked_at()
    state.extra["path"], state.extra["typical"], state.extra["rank"], state.extra["slack"] = 0.5, 0.25, 20.1, 0.1
    state.workflows["submit"], state.tasks["ready"] = 20.0, 19.8
    placing.around(state.handle(), 0, 0, FIRST, FACTS)
    assert state.memory[[3, 4, 5, 6, 11]].tolist() == pytest.approx([3.0, 0.5, 0.2, 0.4, 1.0])
    placing.order(state.handle(), 0, FIRST, FACTS)
    assert state.memory[:4].tolist() == pytest.approx([-1.0, 0.5, 0.2, 0.2])
    state.extra["path"] = state.extra["typical"] = 0.0
    placing.order(state.handle(), 0, FIRST, FACTS)
    assert state.memory[:4].tolist() == pytest.approx([-1.0, 1.0, 1.0, 2.0])


def candidate(state: State, price: float, least: float, longest: float = 1.0) -> list[float]:
    """Features of node 0 for a task that is due at 30 s, on a class of merit 0.5."""
    state.candidates.node[0], state.candidates.device[0] = 0, -1
    pricing.look(state.handle(), 0, 0, 0, PARTS)
    placing.candidate(state.handle(), 0, 0, 0, PARTS, FIRST, FACTS, 30.0, price, least, 0.5, longest)
    found = state.memory[placing.AROUND_N : placing.N]
    assert not state.memory[: placing.AROUND_N].any() and not state.memory[placing.N : FACTS].any()
    return [float(value) for value in found]


def test_a_candidate_that_is_on_and_empty() -> None:
    """4 s at 20 W are 80 J of a price of 100; awake for 4 s more at 8 W above sleep, 32 J; 2 cores hold 2.5 of 0.8."""
    state = looked_at()
    state.classes["sleep_after_s"] = 60.0
    expected = [
        math.log(100 / 50), 80 / 100, 32 / 100, (20 + 4 - 30) / 10, math.log(4 / 8), math.log(4 / 8), 0.0, 0.0, 1 / 2,
        0.0, 0.5, math.log(10 / 5), 0.0, 1.0, 0.0, 1 / 2.5,
    ]  # fmt: skip
    assert candidate(state, 100.0, 50.0) == pytest.approx(expected)


def test_a_candidate_of_a_small_price() -> None:
    """Half a joule, and the least a quarter: their ratio counts, and shares are held within 1 and 3."""
    state = looked_at()
    state.classes["sleep_after_s"] = 60.0
    assert candidate(state, 0.5, 0.25)[:3] == pytest.approx([math.log(2), 1.0, 3.0])


def test_a_candidate_that_sleeps() -> None:
    """Waking takes 30 s at 10 W. Awake until 34 s from now at 8 W above sleep, then 60 s before it sleeps again, of
    which a time-out twice the usual one counts half too much: 300 + 34 * 8 + 60 * 8 - 30 * 8 = 812 of 1000 J."""
    state = looked_at()
    state.classes["sleep_after_s"] = 60.0
    state.nodes.power_state[0] = ASLEEP
    found = candidate(state, 1000.0, 1000.0, longest=2.0)
    assert found[2] == pytest.approx(0.812)
    assert found[4:8] == pytest.approx([math.log(34 / 8), math.log(4 / 8), 30 / 20, 1.0])


def test_a_candidate_with_room_for_less_than_a_task_has_one_companion() -> None:
    state = looked_at()
    state.nodes.used_u[0] = 1_600_000  # 0.4 of 2 cores are left, half of what a task is guaranteed
    assert candidate(state, 100.0, 50.0)[15] == 1.0


def test_order_describes_a_task_that_enters_the_queue() -> None:
    state = looked_at()
    placing.order(state.handle(), 0, FIRST, FACTS)
    expected = [math.log(10 / 20) / 3, 8 / 10, 4 / 10, (30 - 15) / 10, 1 * 2 / 4, 2 / 4, 0.75 / 4]
    assert state.memory[: placing.ORDER_N].tolist() == pytest.approx(expected)


def test_order_holds_its_numbers_within_bounds() -> None:
    state = looked_at()
    state.extra["typical"], state.extra["slack"], state.extra["rank"] = 18.0, 13.0, 60.0  # on a path of 10 s
    state.variants["cores_u"] = 6_000_000
    placing.order(state.handle(), 0, FIRST, FACTS)
    assert state.memory[1:5].tolist() == [1.0, 1.0, 2.0, 2.0]


def test_dozing_describes_a_class_and_its_idle_node() -> None:
    state = looked_at()
    state.memory[WATCHED + placing.LOAD], state.memory[WATCHED + placing.PEAK] = 0.3, 0.25
    state.memory[WATCHED + placing.PACE] = math.log(10.0)
    placing.dozing(state.handle(), FIRST, FACTS, 0.7, WATCHED)
    expected = [math.log1p(1 / 4), 5 / 4, 1 / 2, 0.7, 0.0, 2 / 4, 0.75 / 4, 0.3]
    assert state.memory[:8].tolist() == pytest.approx(expected)
    placing.dozing_node(state.handle(), 0, FIRST, FACTS, WATCHED, 4.0)
    assert state.memory[8:10].tolist() == pytest.approx([0.0, 2 * ((4 - 2) / 4 - 0.25)])  # no path seen yet
    state.memory[WATCHED + placing.SEEN] = 1.0
    placing.dozing_node(state.handle(), 0, FIRST, FACTS, WATCHED, 4.0)
    assert state.memory[8] == pytest.approx(math.log(30 / 10))
    assert not state.memory[10:FACTS].any()


def test_paths_are_noted_as_a_mean_that_forgets() -> None:
    state = looked_at()
    placing.watch_task(state.handle(), 0, WATCHED)
    state.extra["path"] = 100.0
    placing.watch_task(state.handle(), 1, WATCHED)
    pace = math.log(10.0) + 0.05 * (math.log(100.0) - math.log(10.0))
    assert state.memory[WATCHED + placing.PACE] == pytest.approx(pace)
    assert state.memory[WATCHED + placing.SEEN] == 1.0


def test_load_is_noted_as_a_mean_and_a_fading_peak() -> None:
    """Paths of 10 s: after 100 s the load of before counts 1/e."""
    state = looked_at()
    watched = state.memory[WATCHED : WATCHED + placing.WATCHED_N]
    watched[[placing.AT, placing.SEEN, placing.PACE]] = [20.0, 1.0, math.log(10.0)]
    state.counts["running"] = 3  # and one waits: 4 over 4 threads
    placing.watch(state.handle(), FACTS, WATCHED)
    assert watched[[placing.LOAD, placing.PEAK, placing.BUSY, placing.AT]].tolist() == pytest.approx([0, 1, 1, 20])
    state.clock["now"] = 120.0
    state.counts["running"], state.counts["waiting"] = 1, 0
    placing.watch(state.handle(), FACTS, WATCHED)
    gone = 1 - math.exp(-1)
    expected = [gone * 1.0, 1 + gone * (0.25 - 1), 0.25, 120.0]
    assert watched[[placing.LOAD, placing.PEAK, placing.BUSY, placing.AT]].tolist() == pytest.approx(expected)
    state.counts["running"] = 12  # three times the threads counts as twice
    placing.watch(state.handle(), FACTS, WATCHED)
    assert watched[[placing.PEAK, placing.BUSY]].tolist() == pytest.approx([2.0, 3.0])
    assert not state.memory[:FACTS].any()

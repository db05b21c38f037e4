"""Functions that policies are made of, on states small enough for a pencil."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.engine.tables import State
from wattflow.model.cluster import Cluster, Frequency, Series, Sleep
from wattflow.model.profile import PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.policy import daydream, fifer, kubernetes, levels, patient, power_cap, registry, renewable, view, wattflow
from wattflow.sim.simulate import Simulation

SMT = node(2, threads_per_core=2, smt_slowdown=1.6, power=PowerProfile((0.0, 4.0), (10.0, 50.0)))
"""Two cores of two threads, 10 W a thread; threads beyond the cores add a quarter of a core each."""


def state_of(policy: str, cluster: Cluster, runtimes: list[float], **columns: object) -> State:
    """Nothing has happened yet; candidate 0 is node 0."""
    state = Simulation(tasks(runtimes, **columns), cluster, policy).state
    state.candidates.node[0], state.candidates.device[0] = 0, -1
    return state


@pytest.mark.parametrize(("busy", "dear"), [(0, 1.0), (1, 1.0), (2, 4.0), (3, 4.0), (4, 20.0)])
def test_work_on_a_crowded_node_costs_what_it_gains_there(busy: int, dear: float) -> None:
    """3 s at 10 W; beyond two cores a thread gains a quarter, beyond four threads nothing: counted as a twentieth."""
    state = state_of("fifo", nodes(SMT), [3.0])
    state.nodes.alloc_u[0] = busy * 1_000_000
    watts = 10.0 if busy < 4 else 0.0  # beyond its last thread a node draws no more
    assert view.worth_j(state.handle(), 0, 0, 0) == pytest.approx(3.0 * watts * dear)


@pytest.mark.parametrize(
    ("busy", "lost_s"), [(0, 0.0), (1, 0.0), (2, 2 * (3 / 2.25 - 1)), (3, 3 * (4 / 2.5 - 3 / 2.25))]
)
def test_crowding_is_what_the_others_lose_together(busy: int, lost_s: float) -> None:
    state = state_of("fifo", nodes(SMT), [6.0])
    state.nodes.alloc_u[0] = busy * 1_000_000
    assert view.crowding_s(state.handle(), 0, 0, 0) == pytest.approx(6.0 * lost_s)
    own_s = 6.0 * {0: 1.0, 1: 1.0, 2: 3 / 2.25, 3: 4 / 2.5}[busy]
    assert view.crowded_finish_s(state.handle(), 0, 0, 0) == pytest.approx(own_s)


@pytest.mark.parametrize(
    ("busy", "running", "crowded"), [(0, 0, False), (3, 1, False), (3.5, 1, True), (3.5, 0, False), (4, 4, True)]
)
def test_a_node_is_crowded_when_a_task_on_it_would_have_to_share(busy: float, running: int, crowded: bool) -> None:
    state = state_of("fifo", nodes(SMT), [1.0])
    state.nodes.alloc_u[0], state.nodes.running[0] = round(busy * 1_000_000), running
    assert bool(patient.crowded(state.handle(), 0, 0)) is crowded


def test_lateness_costs_the_clusters_idle_watts_shared_by_all_under_way() -> None:
    """At 100 s a task of 3 s that should have started by 90 and takes 5 s typically: late by 100 + 3 − 95 = 8 s."""
    state = state_of("wattflow", nodes(SMT), [3.0])
    state.clock["now"] = 100.0
    state.extra["start_at"], state.extra["typical"] = 90.0, 5.0
    for waiting, running, shared in ((1, 0, 1), (3, 1, 4), (0, 0, 1)):
        state.counts["waiting"], state.counts["running"] = waiting, running
        price_j = [patient.price_j(state.handle(), 0, 0, 0, idle_w) for idle_w in (0.0, 40.0)]
        assert price_j[0] == pytest.approx(30.0)
        assert price_j[1] - price_j[0] == pytest.approx(40.0 * 8.0 / shared)
    state.extra["start_at"] = 98.0  # in time by 0 s
    assert patient.price_j(state.handle(), 0, 0, 0, 40.0) == pytest.approx(30.0)


def test_a_crowd_shares_the_waking_of_a_node() -> None:
    """Three tenths of those that wait and would find room: 8 cores hold 10 tasks that are guaranteed 0.8 each."""
    state = state_of("wattflow", nodes(node(8, power=PowerProfile((0.0, 8.0), (10.0, 50.0)))), [1.0])
    shares = []
    for waiting in (1, 5, 100):
        state.counts["waiting"] = waiting
        shares.append(float(patient.companions(state.handle(), 0, 0)))
    assert shares == pytest.approx([1.0, 1.5, 3.0])


def test_fifers_slack_is_the_stages_share_of_what_the_deadline_leaves() -> None:
    """Submitted at 10 and due at 110 on a path of 20 s: 80 s are left, of which a stage of 6 s has 6 / 20."""
    state = state_of("fifer", nodes(SMT), [6.0], deadline_s=np.array([110.0]))
    state.workflows["submit"] = 10.0
    state.extra["deadline"], state.extra["path"], state.extra["typical"] = 110.0, 20.0, 6.0
    assert fifer.stage_slack_s(state.handle(), 0) == pytest.approx(24.0)
    state.extra["deadline"] = 25.0  # nothing is left
    assert fifer.stage_slack_s(state.handle(), 0) == 0.0
    state.extra["deadline"] = math.inf
    state.params[fifer.DIAL.objective] = 3.0
    assert fifer.stage_slack_s(state.handle(), 0) == pytest.approx(12.0)
    state.extra["deadline"], state.extra["path"] = 110.0, 0.0
    assert fifer.stage_slack_s(state.handle(), 0) == 0.0


def test_kubernetes_points_are_whole_numbers_of_what_stays_free() -> None:
    found = [kubernetes.free_points(part, whole) for part, whole in ((0, 4), (1, 4), (1, 3), (4, 4), (9, 4), (0, 0))]
    assert found == [100, 75, 66, 0, 0, 100]
    assert kubernetes.points(0.25, 0.75) == (75 + 25) // 2 + 75
    assert kubernetes.points(1 / 3, 1 / 3) == 66 + 100


LEVELS = (Frequency(), Frequency(0.5, 0.5))
CAPPED = nodes(*[node(2, power=PowerProfile((0.0, 2.0), (10.0, 110.0)), frequencies=LEVELS)] * 2)


def levels_under(*caps_w: float) -> list[list[int]]:
    """Both nodes' frequency levels in each step of 10 s of a cap, with four tasks that fill them from the start on."""
    policy = power_cap.following(Series(10.0, (1000.0, *caps_w)))
    simulation = Simulation(tasks([500.0] * 4), CAPPED, policy)
    found = []
    for step in range(len(caps_w)):
        simulation.advance(until_s=10.0 * (step + 1))
        found.append([int(level) for level in simulation.state.nodes.frequency])
    return found


def test_a_falling_cap_slows_no_more_nodes_than_it_must() -> None:
    """220 W in all; a slowed node draws 60 W instead of 110. 170 W is kept by one, 169 W by both."""
    assert levels_under(220.0, 170.0) == [[0, 0], [1, 0]]
    assert levels_under(169.0) == [[1, 1]]


def test_a_cap_that_rises_lets_slowed_nodes_go_on() -> None:
    """Each step back adds 50 W; it is taken only below 95 % of the cap."""
    assert levels_under(170.0, 230.0, 232.0) == [[1, 0], [1, 0], [0, 0]]
    assert levels_under(120.0, 1000.0) == [[1, 1], [0, 0]]


def test_the_sunny_day_and_its_battery() -> None:
    """Half of 220 full watts at noon, and a battery for two hours of it."""
    state = Simulation(tasks([1.0]), CAPPED, registry.load("renewable", battery_h=2.0)).state
    assert view.recall(state.handle(), renewable.NOTES.capacity_j, 0) == pytest.approx(2 * 3600 * 110.0)
    assert view.recall(state.handle(), renewable.NOTES.charge_j, 0) == 0.0
    day = renewable.sunny_day(110.0)
    assert (day.step_s, len(day.values)) == (3600.0, 24)
    noon_and_others = [110.0, 0.0, 0.0, 110.0 * math.sqrt(0.5), 0.0, 0.0]
    assert [day.values[h] for h in (12, 0, 6, 9, 18, 21)] == pytest.approx(noon_and_others, abs=1e-9)


def test_a_device_is_no_crowd_of_threads() -> None:
    """A variant without cores waits for no thread and takes none from anybody."""
    state = state_of("fifo", nodes(SMT), [6.0], variants=(Variant(cores=0),))
    state.nodes.alloc_u[0], state.nodes.running[0] = 4_000_000, 4
    assert view.crowding_s(state.handle(), 0, 0, 0) == 0.0
    assert view.crowded_finish_s(state.handle(), 0, 0, 0) == pytest.approx(6.0)
    assert not patient.crowded(state.handle(), 0, 0)


def test_a_node_that_could_sleep_counts_the_time_that_a_task_keeps_it_awake() -> None:
    """8 W above sleep: 5 s more than now; or 2 s more than what runs there until 3 s from now."""
    sleepy = node(2, power=PowerProfile((0.0, 2.0), (10.0, 50.0)), sleep=Sleep(2.0, 30.0, after_s=60.0))
    simulation = Simulation(tasks([3.0, 5.0], release=[0.0, 50.0]), nodes(sleepy), "fifo")
    state = simulation.state
    state.candidates.node[0] = 0
    assert view.awake_j(state.handle(), 0, 5.0) == pytest.approx(40.0)
    simulation.advance(until_s=0.0)
    assert view.awake_j(state.handle(), 0, 5.0) == pytest.approx(16.0)
    assert view.awake_j(state.handle(), 0, 2.0) == 0.0


def test_the_flagship_prices_seconds_past_the_time_at_which_nobody_waits() -> None:
    """Rank 90, less a margin of 0.05 of a path of 20 s, and 5 s typically: due at 94. At 100 s, 3 s to run: 9 late."""
    state = state_of("wattflow", nodes(SMT), [3.0])
    state.clock["now"] = 100.0
    state.extra["rank"], state.extra["path"], state.extra["typical"] = 90.0, 20.0, 5.0
    assert wattflow.due_s(state.handle(), 0) == pytest.approx(94.0)
    out = np.zeros(1)
    wattflow.late(state.handle(), 0, 0, out)
    assert out.tolist() == pytest.approx([150.0 * 9.0])
    wattflow.seconds(state.handle(), 0, 0, out)
    assert out.tolist() == pytest.approx([5.0 * 3.0])
    state.extra["rank"] = 200.0
    wattflow.late(state.handle(), 0, 0, out)
    assert out.tolist() == [0.0]
    state.extra["deadline"], state.extra["start_at"] = 150.0, 80.0  # a deadline that is earlier counts
    assert wattflow.due_s(state.handle(), 0) == pytest.approx(85.0)


def test_quantiles_of_weibull_distributions_with_known_shapes() -> None:
    """k = 1 is exponential: mean = spread. k = 2 is Rayleigh's: spread² = (4 / π − 1) mean²."""
    assert daydream.weibull_quantile(3.0, 3.0, 0.5) == pytest.approx(3.0 * math.log(2))
    spread, scale = 3.0 * math.sqrt(4 / math.pi - 1), 3.0 / (math.sqrt(math.pi) / 2)
    assert daydream.weibull_quantile(3.0, spread, 0.9) == pytest.approx(scale * math.sqrt(math.log(10)))
    assert [daydream.weibull_quantile(mean, spread, 0.9) for mean, spread in ((3.0, 0.0), (0.0, 2.0))] == [3.0, 0.0]


def test_daydream_sizes_its_pool_by_the_widths_of_phases_that_are_over() -> None:
    """Widths of 4 and then 2: a mean of 3 and a spread of 1, of which nine in ten are below 4.3."""
    state = state_of("daydream", nodes(SMT), [1.0], function=Function("f", cold_start_s=1.0))
    state.params[daydream.DIAL.quantile] = 0.9
    pools = []
    for waiting, running in ((1, 1), (1, 3), (0, 2), (0, 0), (2, 0), (0, 1), (0, 0), (0, 0)):
        state.functions["waiting"], state.functions["running"] = waiting, running
        daydream.watch(state.handle(), 0)
        pools.append(float(view.recall(state.handle(), daydream.NOTES.pool, 0)))
    assert pools == [0.0, 0.0, 0.0, 4.0, 4.0, 4.0, 5.0, 5.0]
    assert view.recall(state.handle(), daydream.NOTES.phases, 0) == 2.0


def test_levels_of_a_diamond() -> None:
    """2 s, then 3 or 5 s, then 1 s, on cores that take 1.5 s a second in the mean: a path of 12 s."""
    work = tasks([2.0, 3.0, 5.0, 1.0], edges=edges((0, 1), (0, 2), (1, 3), (2, 3)))
    found = levels.levels(work, nodes(node(2, speed=1.0), node(2, speed=0.5)))
    assert found.seconds.tolist() == pytest.approx([3.0, 4.5, 7.5, 1.5])
    assert found.before.tolist() == pytest.approx([0.0, 3.0, 3.0, 10.5])
    assert found.rest.tolist() == pytest.approx([12.0, 6.0, 9.0, 1.5])
    assert found.slack.tolist() == pytest.approx([0.0, 3.0, 0.0, 0.0])
    assert found.phase.tolist() == [0, 1, 1, 2]
    assert found.path.tolist() == pytest.approx([12.0] * 4)

"""The flagship by hand: prices, waiting for room, sleeping nodes not worth waking; formulas of rivals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.engine.tables import ASLEEP, DOWN, State
from wattflow.model.cluster import Cluster, Device, Network, Sleep
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape
from wattflow.policy import fgd, peaks, planning, pricing, registry, view, wattflow
from wattflow.policy.planning import reclaim, timeline
from wattflow.policy.planning.facts import empty_slots
from wattflow.sim.simulate import Simulation, simulate

LINEAR = PowerProfile((0.0, 4.0), (10.0, 50.0))
SLEEPY = node(4, power=LINEAR, sleep=Sleep(2.0, 30.0, 4.0, wake_w=7.0, after_s=50.0))


def state_of(cluster: Cluster, runtimes: list[float], policy: str = "wattflow", **columns: object) -> State:
    """Nothing has happened yet; candidate k is node k; nobody is late unless a test says so."""
    state = Simulation(tasks(runtimes, **columns), cluster, policy).state
    count = len(cluster.nodes)
    state.candidates.node[:count], state.candidates.device[:count] = np.arange(count), -1
    state.extra["rank"], state.extra["path"], state.extra["typical"] = 1e6, 10.0, 5.0
    return state


def settled(state: State, prices: list[float], haste: float = 1.0) -> list[float]:
    wattflow.fill_prices(state.handle(), 0, 0, np.zeros(len(prices)))  # what prices are made of is kept
    out = np.array(prices)
    wattflow.settle(state.handle(), 0, 0, haste, out)
    return [float(cost) for cost in out]


def test_a_price_is_joules_seconds_and_late_seconds() -> None:
    """3 s at 10 W, 5 W for each second until the end, 150 W for each past its time."""
    state = state_of(nodes(node(4, power=LINEAR), node(4)), [3.0])
    state.clock["now"] = 100.0
    priced = [wattflow.price_j(state.handle(), 0, 0, 0, due) for due in (94.0, 103.0, 200.0)]
    assert priced == pytest.approx([30.0 + 15.0 + 150.0 * 9.0, 45.0, 45.0])
    assert wattflow.price_j(state.handle(), 0, 0, 1, 200.0) == view.UNKNOWN_COST
    out = np.zeros(2)
    wattflow.fill_prices(state.handle(), 0, 0, out)
    assert out.tolist() == pytest.approx([45.0, view.UNKNOWN_COST])
    state.nodes.alloc_u[0], state.nodes.running[0] = 4_000_000, 4  # no thread is left
    wattflow.fill_prices(state.handle(), 0, 0, out)
    assert out.tolist() == [math.inf, view.UNKNOWN_COST]


def half_cards(interference: float) -> Cluster:
    card = Device("gpu", "a", 1, "mps", interference=interference, power=DeviceProfile((0.0, 1.0), (10.0, 110.0)))
    return nodes(node(4, power=LINEAR, devices=(card, card)))


def test_tasks_keep_away_from_each_other_on_devices_where_they_disturb() -> None:
    """Alike in watts: of two cards the second half goes to the free one, if beside the first both would take longer."""
    half = [Shape(0, (Variant("gpu", 1, 0, "gpu", 1, 0.5),), 1)]
    for interference, places in ((0.2, [0, 1]), (0.0, [0, 0])):
        done = simulate(tasks([100.0, 100.0], shapes=half), half_cards(interference), "wattflow")
        assert done.attempts["device"].tolist() == places
        assert done.makespan_s == pytest.approx(100.0)


def test_beside_others_a_task_takes_longer_and_so_do_they() -> None:
    """0.2 · (0.5 + 0.5) · ½ = 0.1 for each of two halves."""
    state = Simulation(
        tasks([100.0] * 2, shapes=[Shape(0, (Variant("gpu", 1, 0, "gpu", 1, 0.5),), 1)]), half_cards(0.2), "wattflow"
    ).state
    state.candidates.node[0], state.candidates.device[0] = 0, 0
    assert pricing.beside(state.handle(), 0, 0) == (1.0, 0.0)
    alone_j = pricing.worth_j(state.handle(), 0, 0, 0)
    state.devices.tasks[0], state.devices.busy_u[0] = 1, 500_000
    assert pricing.beside(state.handle(), 0, 0) == pytest.approx((1.1, 0.1))
    assert pricing.finish_s(state.handle(), 0, 0, 0) == pytest.approx(110.0)
    assert pricing.worth_j(state.handle(), 0, 0, 0) == pytest.approx(1.2 * alone_j)


def test_slack_is_free_until_four_times_the_cluster_is_asked_for() -> None:
    """Eight cores: 32 tasks of one core that wait or run; two cards: 16 halves."""
    state = state_of(nodes(node(4), node(4)), [1.0])
    for waiting, scarce in ((32, False), (33, True)):
        state.counts["waiting"] = waiting
        assert wattflow.is_scarce(state.handle(), 0, wattflow.SCARCE) is scarce


def test_those_that_wait_share_the_waking_of_a_node() -> None:
    """Half of those that wait and would find room: 4 cores hold 5 tasks that are guaranteed 0.8."""
    state = state_of(nodes(SLEEPY), [3.0])
    state.nodes.power_state[0] = ASLEEP
    waking_j = 30.0 * 7.0 + 8.0 * (3.0 + 30.0) + 8.0 * 50.0 + 4.0 * 7.0
    assert view.awake_j(state.handle(), 0, 33.0) == pytest.approx(waking_j)
    for waiting, share in ((0, 1.0), (2, 1.0), (4, 2.0), (9, 2.5)):
        state.counts["waiting"] = waiting
        assert wattflow.companions(state.handle(), 0, 0) == share
        assert wattflow.price_j(state.handle(), 0, 0, 0, 1e6) == pytest.approx(30.0 + 165.0 + waking_j / share)


def test_cores_that_idle_until_the_others_have_ended_have_a_price() -> None:
    """One of four cores, 100 s at 10 − 2 W; nothing where the task is the last to end, or without the dial."""
    state = state_of(nodes(SLEEPY), [3.0])
    plain_j = wattflow.price_j(state.handle(), 0, 0, 0, 1e6)
    for align in (0.0, 0.5):
        state.params[wattflow.DIAL.align] = align
        assert wattflow.price_j(state.handle(), 0, 0, 0, 1e6) == plain_j
        for until_s, idle_s in ((103.0, 100.0), (2.0, 0.0), (math.inf, 0.0)):
            found = wattflow.left_idle_j(state.handle(), 0, 0, until_s - 3.0)
            assert found == pytest.approx(align * idle_s * 8.0 / 4.0)


def test_tasks_that_end_together_share_a_node() -> None:
    """Two have woken two nodes; of two narrow ones that come then the short one would sit beside the long wide one."""
    sleepy = node(4, power=PowerProfile((0.0, 4.0), (50.0, 90.0)), sleep=Sleep(2.0, 1.0, 1.0, after_s=5.0))
    shapes = [Shape(0, (Variant(cores=cores),), 1) for cores in (3.0, 2.0, 1.0)]
    kinds = np.array([0, 1, 2, 2], np.int32)
    work = tasks([400.0, 100.0, 70.0, 360.0], release=[0.0, 0.0, 20.0, 25.0], shapes=shapes, shape=kinds)
    joules = []
    for align, together in ((0, [{0, 2}, {1, 3}]), (1, [{0, 3}, {1, 2}])):
        policy = registry.load(f"wattflow:spare=inf:align={align}").with_settings(guarantees=(1.0,))
        run = simulate(work, nodes(sleepy, sleepy), policy)
        rows = run.attempts
        assert [set(rows["task"][rows["node"] == n].tolist()) for n in (0, 1)] == together
        joules.append(run.total_j)
    assert joules[1] < joules[0], "a node empties sooner"


@pytest.mark.parametrize(
    ("finish_s", "due", "expected"), [(9.0, 94.0, 4.0), (9.0, 107.0, 2.0), (9.0, 120.0, 0.0), (4.0, 94.0, 0.0)]
)
def test_seconds_that_a_choice_adds_itself(finish_s: float, due: float, expected: float) -> None:
    """At 100 s, behind the later of its time and of a start at once, 5 s typically."""
    state = state_of(nodes(SLEEPY), [3.0])
    state.clock["now"] = 100.0
    assert wattflow.slower_s(state.handle(), 0, finish_s, due) == expected


def expect_end(state: State, node: int) -> None:
    """An attempt on a node that is expected to end."""
    state.attempts.end[0], state.attempts.next[0], state.nodes.first_attempt[node] = 100.0, -1, 0


def test_room_that_never_comes_is_waited_for_as_long_as_a_wake_takes() -> None:
    """16 cores are busy for 1,000 s, which looks like 2 x 2 x 10 s / 16 for two of them; another node sleeps."""
    power = PowerProfile((0.0, 16.0), (50.0, 150.0))
    sleepy = node(16, power=power, sleep=Sleep(2.0, 30.0, 4.0, wake_w=7.0, after_s=20.0))
    shapes = tuple(Shape(0, (Variant(cores=cores),), 1) for cores in (1.0, 2.0))
    kinds = np.array([0] * 16 + [1], np.int32)
    work = tasks([1000.0] * 16 + [10.0], release=[0.0] * 16 + [500.0], shapes=shapes, shape=kinds)
    run = simulate(work, nodes(sleepy, sleepy), registry.load("wattflow").with_settings(guarantees=(1.0,)))
    assert run.start_s_by_task()[:16].max() < 31.0  # they fill one node
    assert run.start_s_by_task()[16] - 500.0 == pytest.approx(2 * 30.0, abs=1e-6)


def test_a_sleeping_node_is_woken_only_where_it_is_cheaper() -> None:
    state = state_of(nodes(SLEEPY, SLEEPY), [3.0])
    state.params[wattflow.DIAL.spare] = math.inf
    state.nodes.power_state[1] = ASLEEP
    assert settled(state, [10.0, 5.0]) == [10.0, 5.0]
    assert settled(state, [5.0, 10.0]) == settled(state, [5.0, 5.0]) == [5.0, math.inf]
    assert settled(state, [math.inf, 5.0]) == [math.inf, 5.0]
    # Busy nodes are likely to have room in 4 x 5 s / 2, sooner than one wakes.
    state.counts["waiting"], state.counts["running"], state.nodes.running[0] = 4, 2, 2
    assert settled(state, [math.inf, 5.0]) == [math.inf, 5.0], "what outlasts its estimate promises no room"
    expect_end(state, 0)
    assert settled(state, [math.inf, 5.0]) == [math.inf, math.inf]
    assert settled(state, [math.inf, 5.0], haste=3.0) == [math.inf, 5.0]
    assert settled(state, [math.inf, math.inf]) == [math.inf, math.inf]
    state.nodes.alloc_u[0] = 4_000_000  # what it takes from those that run there: 3 s x 4 x (5/4 - 1), at χ λ
    assert settled(state, [5.0, view.UNKNOWN_COST]) == pytest.approx([5.0 + 0.25 * 150.0 * 3.0, math.inf])


def test_when_a_busy_node_is_likely_to_have_room() -> None:
    state = state_of(nodes(SLEEPY, SLEEPY), [3.0], variants=(Variant(cores=2),))
    state.counts["waiting"], state.counts["running"] = 3, 2
    assert wattflow.queue_s(state.handle(), 0, 0) == math.inf  # nothing runs on a node that could take it
    state.nodes.running[1] = 2
    expect_end(state, 1)
    assert wattflow.queue_s(state.handle(), 0, 0) == pytest.approx(3 * 4 * 5.0 / 2)
    state.extra["typical"] = 0.0
    assert wattflow.queue_s(state.handle(), 0, 0) == math.inf, "nobody waits for a task of unknown length"
    state.extra["typical"] = 5.0
    for table, name, value in (
        (state.shapes, "parts", 2), (state.variants, "device", 1), (state.counts, "running", 0),
    ):  # fmt: skip
        before = table[name].copy()
        table[name] = value
        assert wattflow.queue_s(state.handle(), 0, 0) == math.inf
        table[name] = before
    state.class_ok[0, :] = 0
    assert wattflow.queue_s(state.handle(), 0, 0) == math.inf


def late_state() -> State:
    """Task 0 runs on the fast node until 3 s; task 1 of 6 s is late, with the slow node at its disposal."""
    fast, slow = node(1, power=LINEAR), node(1, speed=0.1, power=LINEAR)
    simulation = Simulation(tasks([3.0, 6.0], release=[0.0, 50.0]), nodes(fast, slow), "wattflow")
    simulation.advance(until_s=0.0)
    state = simulation.state
    state.candidates.node[0], state.candidates.device[0] = 1, -1
    state.extra["rank"], state.extra["path"], state.extra["typical"] = -100.0, 10.0, 5.0
    return state


def test_a_late_task_holds_out_for_a_place_that_is_about_to_come() -> None:
    state = late_state()
    assert int(state.nodes.running[0]) == 1
    for waiting, end_s in ((0, 9.0), (2, 12.0)):  # half of those that wait come first
        state.counts["waiting"] = waiting
        assert wattflow.sooner_s(state.handle(), 1) == pytest.approx(end_s)
    state.counts["waiting"] = 0

    def passed() -> float:
        wattflow.fill_prices(state.handle(), 1, 0, np.zeros(1))
        out = np.array([7.0])
        wattflow.pass_over(state.handle(), 1, 0, out)
        return float(out[0])

    assert passed() == math.inf  # 60 s there, 9 s where room comes
    for spare, kept in ((5.6, math.inf), (5.7, 7.0)):  # 60 s over 9 s is 6.67
        state.params[wattflow.DIAL.spare] = spare
        assert passed() == kept
    state.params[wattflow.DIAL.spare] = 0.2
    state.extra["rank"] = 1e6  # not late
    assert passed() == 7.0
    state.extra["rank"] = -100.0
    state.shapes["parts"] = 2
    assert passed() == 7.0
    state.shapes["parts"] = 1
    state.nodes.power_state[0] = DOWN
    assert wattflow.sooner_s(state.handle(), 1) == math.inf and passed() == 7.0


def test_a_place_that_is_soon_enough_is_not_searched_further() -> None:
    state = late_state()
    state.counts["waiting"] = 0
    seconds, variant, there = wattflow.sooner(state.handle(), 1, 1e9)
    assert (seconds, variant, there) == (pytest.approx(9.0), 0, 0)
    assert wattflow.holds_out(state.handle(), 10.9, seconds) and not wattflow.holds_out(state.handle(), 10.7, seconds)


def test_what_a_price_is_made_of_is_known_of_more_candidates_than_are_kept() -> None:
    count = pricing.MOST + 3
    state = state_of(nodes(*(node(4, speed=1.0 + 0.1 * k, power=LINEAR) for k in range(count))), [3.0])
    out = np.zeros(count)
    wattflow.fill_prices(state.handle(), 0, 0, out)
    for c in (0, 1, pricing.MOST - 1, pricing.MOST, count - 1):
        kept = [wattflow.known(state.handle(), 0, 0, c, which) for which in (pricing.RUN, pricing.FINISH)]
        assert kept == [view.runtime_s(state.handle(), 0, 0, c), view.crowded_finish_s(state.handle(), 0, 0, c)]
    assert len(set(out.tolist())) == count


def test_ranks_are_latest_starts_if_nobody_waits() -> None:
    """2 s and then 3 s from 10 s on: starts at 10 and 12; a deadline at 14 makes that 9 and 11."""
    for deadline, expected in ((math.inf, [10.0, 12.0]), (14.0, [9.0, 11.0]), (99.0, [10.0, 12.0])):
        work = tasks(
            [2.0, 3.0], release=[10.0, 10.0], edges=edges((0, 1)), deadline_s=np.array([deadline] * 2),
            workflow=np.zeros(2, np.int32),
        )  # fmt: skip
        assert wattflow.rank(work, nodes(node(2))).tolist() == pytest.approx(expected)


def test_time_outs_follow_break_even_and_merit() -> None:
    """50 W for 4 cores at speed 1 or 2: 12.5 or 6.25 J a core second, so (1/2)^3 of twice the break-even time."""
    asleep = Sleep(2.0, 30.0, 4.0, wake_w=7.0)
    card = Device("gpu", "a", power=DeviceProfile((0.0, 1.0), (5.0, 9.0)))
    cluster = nodes(
        node(4, power=LINEAR, sleep=asleep), node(4, speed=2.0, power=LINEAR, sleep=asleep), node(4, sleep=asleep),
        node(4, power=LINEAR, devices=(card,)), node(4, power=LINEAR, sleep=Sleep(2.0, 1.0, after_s=9.0)),
    )  # fmt: skip
    state = state_of(cluster, [1.0])
    assert wattflow.merits(state, cluster).tolist() == pytest.approx([12.5, 6.25, math.inf, 55 / 4, 12.5])
    even_s = 34.0 * 7.0 / 8.0
    assert state.classes.sleep_after_s.tolist() == pytest.approx([2 * even_s / 8, 2 * even_s, math.inf, math.inf, 9.0])


def test_peaks_model_goes_through_three_points() -> None:
    for idle_w, half_w, full_w in ((10.0, 20.0, 40.0), (10.0, 30.0, 40.0)):
        k0, k1, k2 = peaks.fit(idle_w, half_w, full_w)
        assert [k0 + k1 * math.exp(k2 * x) for x in (0, 50, 100)] == pytest.approx([idle_w, half_w, full_w])
    assert peaks.fit(10.0, 30.0, 50.0) == pytest.approx((10.0, 0.4, 0.0))
    assert peaks.fit(10.0, 10.0, 50.0) == peaks.fit(10.0, 50.0, 50.0) == pytest.approx((10.0, 0.4, 0.0))


def test_peaks_prices_the_jump_of_utilisation() -> None:
    """A straight line from 10 to 50 W: 10 W for a core of four, and nothing beyond the last."""
    state = state_of(nodes(node(4, power=LINEAR), node(4)), [1.0], "peaks")
    jumps = []
    for busy in (0, 3, 3.5, 4):
        state.nodes.alloc_u[0] = round(busy * 1_000_000)
        out = np.zeros(2)
        peaks.score(state.handle(), 0, 0, out)
        jumps.append(float(out[0]))
        assert out[1] == view.UNKNOWN_COST
    assert jumps == pytest.approx([10.0, 10.0, 5.0, 0.0])


def gpu_node(sharing: str) -> State:
    """A node with three GPUs, the first of which has a quarter taken by one task."""
    cards = (Device("gpu", "a", 100, sharing, 2),) * 3
    offers = (Variant("half", 1, 0, "gpu", 1, 0.5), Variant("pair", 1, 0, "gpu", 2))
    state = state_of(nodes(node(8, devices=cards)), [1.0], "fgd", variants=offers)
    state.devices.tasks[0], state.devices.share_u[0] = 1, 250_000
    return state


def test_free_shares_of_gpus_with_a_placement_under_trial() -> None:
    def rests(state: State, at: int, devices: int, share_u: int) -> list[int]:
        count = int(fgd.note_rests(state.handle(), 0, at, devices, share_u))
        return [int(view.recall(state.handle(), fgd.NOTES.rests, i)) for i in range(count)]

    shared, turns = gpu_node("mps"), gpu_node("time-slice")
    assert rests(shared, -1, 0, 0) == [750_000, 1_000_000, 1_000_000]
    assert rests(shared, 0, 1, 500_000) == [250_000, 1_000_000, 1_000_000]
    assert rests(shared, 1, 1, 500_000) == [750_000, 500_000, 1_000_000]
    assert rests(shared, 0, 2, 1_000_000) == [750_000, 0, 0]  # several are taken where they are whole
    assert rests(turns, -1, 0, 0) == [500_000, 1_000_000, 1_000_000]
    assert rests(turns, 0, 1, 500_000) == [0, 1_000_000, 1_000_000]
    rests(shared, 1, 1, 600_000)  # 0.75, 0.4 and 1: half a GPU fits on two of them, two whole ones nowhere
    assert fgd.useless_u(shared.handle(), 0, 3) == 400_000
    assert fgd.useless_u(shared.handle(), 1, 3) == 2_150_000
    rests(shared, -1, 0, 0)
    assert fgd.useless_u(shared.handle(), 1, 3) == 750_000


def test_costs_on_a_scale_of_a_hundred() -> None:
    out = np.array([3.0, 5.0, 7.0, view.UNKNOWN_COST])
    fgd.scale(out, 3.0, 7.0)
    assert out.tolist() == [0.0, 50.0, 100.0, view.UNKNOWN_COST]
    out = np.array([3.0, 3.0])
    fgd.scale(out, 3.0, 3.0)
    assert out.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("overlap", "slot"), [(0.0, [19.0, 20.0]), (1.0, [15.5, 16.5])])
def test_a_reclaimed_slot_is_the_latest_that_delays_no_child(overlap: float, slot: list[float]) -> None:
    """Its child starts at 20 s on the other node; where bytes travel beside the runs, 25 of them need 3.5 s before."""
    link = Network(10.0, 1.0)
    work = tasks([1.0, 1.0], edges=edges((0, 1)), edge_bytes=np.array([25.0]))
    found = planning.problem(work, nodes(node(network=link), node(network=link)), {"overlap": overlap})
    slots = empty_slots(found.facts)
    slots.node[:], slots.start_s[:], slots.end_s[:] = [0, 1], [0.0, 20.0], [1.0, 21.0]
    tables = found.facts.handle(), slots.handle()
    timeline.gather(*tables, 0)
    reclaim._slot(*tables, 0, 0, 0, 30.0)
    assert slots.best[:2].tolist() == pytest.approx(slot)
    reclaim._slot(*tables, 0, 0, 0, 10.0)
    assert slots.best[:2].tolist() == pytest.approx([9.0, 10.0])
    reclaim._slot(*tables, 0, 0, 0, 0.5)
    assert slots.best[0] == -math.inf

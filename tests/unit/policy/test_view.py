"""What the public page `view` says of nodes, devices and containers, on states small enough for a pencil."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import groups
from wattflow.engine.build import build_state, container_table
from wattflow.engine.tables import ASLEEP, DOWN, DRAINING, FALLING, HOT, ON, WAKING, State
from wattflow.model.cluster import Device, Frequency, Serverless, Sleep
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape
from wattflow.policy import hpe, mashup, node_view, prewarm, taskflow, unicep, view
from wattflow.sim.simulate import Simulation

LINEAR = PowerProfile((0.0, 4.0), (10.0, 50.0))
CARD = DeviceProfile((0.0, 1.0), (5.0, 25.0))


def test_power_states_of_a_node() -> None:
    state = build_state(tasks([1.0]), nodes(node(4, power=LINEAR, sleep=Sleep(2.0, 30.0, 4.0, wake_w=7.0)), node(2)))
    said = {}
    for power_state in (ON, ASLEEP, WAKING, FALLING, DOWN, DRAINING):
        state.nodes.power_state[0] = power_state
        questions = (view.is_on, view.is_asleep, view.is_waking, view.is_gone)
        said[power_state] = "".join("ny"[bool(asks(state.handle(), 0))] for asks in questions)
    assert said == {ON: "ynnn", ASLEEP: "nynn", WAKING: "nnyn", FALLING: "nynn", DOWN: "nnny", DRAINING: "nnny"}
    assert [bool(view.can_sleep(state.handle(), n)) for n in (0, 1)] == [True, False]
    assert [bool(view.has_profile(state.handle(), n)) for n in (0, 1)] == [True, False]
    assert view.sleep_cycle_j(state.handle(), 0) == 34.0 * 7.0
    assert view.enter_j(state.handle(), 0) == 28.0
    assert (view.node_sleep_w(state.handle(), 0), view.node_wake_s(state.handle(), 0)) == (2.0, 30.0)


def test_what_a_node_draws_as_it_is_allocated_and_clocked() -> None:
    """10 W a core above 10 W idle, two cards of 5 W idle; level 1 draws 40 % of what is above idle."""
    cards = (Device("gpu", "a", power=CARD),) * 2
    kind = node(
        4,
        power=LINEAR,
        devices=cards,
        sleep=Sleep(2.0, 30.0, wake_w=7.0),
        frequencies=(Frequency(), Frequency(0.5, 0.4)),
    )
    state = build_state(tasks([1.0]), nodes(kind, node(4)))
    state.nodes.alloc_u[0] = 3_000_000
    assert view.node_now_w(state.handle(), 0) == pytest.approx(20.0 + 30.0)
    state.nodes.frequency[0] = 1
    assert view.node_now_w(state.handle(), 0) == pytest.approx(20.0 + 12.0)
    assert [view.frequency_power(state.handle(), 0, level) for level in (0, 1)] == [1.0, 0.4]
    drawn = []
    for power_state in (ASLEEP, WAKING, FALLING, DOWN):
        state.nodes.power_state[0] = power_state
        drawn.append(float(view.node_now_w(state.handle(), 0)))
    assert drawn == [2.0, 7.0, 7.0, 0.0]
    assert view.node_now_w(state.handle(), 1) == 0.0


def test_the_mean_slope_of_a_variant() -> None:
    """40 W over 4 threads: 10 W a core, whoever else is there; a card adds its 20 W between idle and full."""
    offers = (Variant(cores=2), Variant("gpu", 1, 0, "gpu", 1))
    state = build_state(
        tasks([1.0], variants=offers), nodes(node(4, power=LINEAR, devices=(Device("gpu", "a", power=CARD),)), node(4))
    )
    assert view.mean_w(state.handle(), 0, 0, -1) == pytest.approx(20.0)
    assert view.mean_w(state.handle(), 1, 0, 0) == pytest.approx(30.0)
    assert view.mean_w(state.handle(), 0, 1, -1) == view.UNKNOWN_COST


def test_devices_and_what_variants_ask_of_them() -> None:
    devices = tuple(
        Device(kind, "a", 100, sharing, slots, power=CARD)
        for kind, sharing, slots in (
            ("gpu", "exclusive", 1),
            ("gpu", "time-slice", 3),
            ("gpu", "mps", 1),
            ("fpga", "exclusive", 1),
        )
    )
    offers = (
        Variant(),
        Variant("half", 1, 0, "gpu", 1, 0.5),
        Variant("two", 1, 0, "gpu", 2),
        Variant("board", 1, 0, "fpga", 1),
    )
    state = build_state(tasks([1.0], variants=offers), nodes(node(4), node(4, devices=devices)))
    every = range(4)
    assert [bool(view.is_gpu(state.handle(), d)) for d in every] == [True, True, True, False]
    assert [int(view.device_turns(state.handle(), d)) for d in every] == [1, 3, 0, 1]
    assert [int(view.variant_devices(state.handle(), v)) for v in every] == [0, 1, 2, 1]
    assert [bool(view.wants_gpu(state.handle(), v)) for v in every] == [False, True, True, False]
    assert [int(view.variant_share_u(state.handle(), v)) for v in (1, 2, 3)] == [500_000, 1_000_000, 1_000_000]
    suits = [[bool(view.device_suits(state.handle(), v, d)) for d in every] for v in every]
    assert suits == [[False] * 4, [True, True, True, False], [True, True, True, False], [False, False, False, True]]
    assert [tuple(map(int, view.devices_of(state.handle(), n))) for n in (0, 1)] == [(0, 0), (0, 4)]


def test_how_many_nodes_a_candidate_stands_for() -> None:
    state = build_state(tasks([1.0]), nodes(node(2), node(4), node(2), node(2)))
    assert [int(view.stands_for(state.handle(), n)) for n in range(4)] == [3, 1, 3, 3]
    state.nodes.used_u[2] = 1
    with np.errstate(over="ignore"):
        groups.rebuild(state.handle())
    assert [int(view.stands_for(state.handle(), n)) for n in range(4)] == [2, 1, 1, 2]
    state.rules["grouped"] = 0
    assert [int(view.stands_for(state.handle(), n)) for n in range(4)] == [1] * 4


def running(policy: str, runtimes: list[float], cluster: object, **columns: object) -> State:
    """A run just after its first decisions."""
    simulation = Simulation(tasks(runtimes, **columns), cluster, policy)  # type: ignore[arg-type]
    simulation.advance(until_s=0.0)
    return simulation.state


def test_when_room_comes() -> None:
    """Tasks of 5, 3 and 9 s fill three of four cores; a task of two cores has room when the one of 3 s ends."""
    shapes = (Shape(0, (Variant(),)), Shape(0, (Variant(cores=2),)), Shape(0, (Variant(cores=3),)))
    state = running(
        "fifo", [5.0, 3.0, 9.0, 1.0, 1.0], nodes(node(4)), shapes=shapes, shape=np.array([0, 0, 0, 1, 2], np.int32),
        release=[0.0, 0.0, 0.0, 99.0, 99.0],
    )  # fmt: skip
    assert view.busy_until_s(state.handle(), 0) == 9.0
    assert [tuple(view.next_room(state.handle(), v, 0)) for v in (0, 1, 2)] == [(3.0, -1), (3.0, -1), (math.inf, -1)]
    attempts = {int(state.attempts.task[a]): a for a in np.flatnonzero(state.attempts.task >= 0).tolist()}
    assert bool(node_view.makes_room(state.handle(), 1, 0, attempts[0]))
    assert not node_view.makes_room(state.handle(), 2, 0, attempts[0])
    state.clock["now"] = 4.0  # one that should have ended promises nothing
    assert tuple(view.next_room(state.handle(), 1, 0)) == (1.0, -1)
    state.nodes.used_mem[0] = 100
    state.variants.memory[1] = 1
    assert tuple(view.next_room(state.handle(), 1, 0)) == (math.inf, -1)


def test_room_on_a_device_comes_from_one_that_holds_its_kind() -> None:
    """A card until 7 s and cores until 2 s: a further task for the card waits 7 s."""
    shapes = (Shape(0, (Variant("gpu", 1, 0, "gpu", 1),)), Shape(0, (Variant(),)))
    state = running(
        "fifo", [7.0, 2.0], nodes(node(2, devices=(Device("gpu", "a", power=CARD),))), shapes=shapes,
        shape=np.array([0, 1], np.int32),
    )  # fmt: skip
    assert tuple(view.next_room(state.handle(), 0, 0)) == (7.0, 0)
    assert tuple(view.next_room(state.handle(), 1, 0)) == (2.0, -1)


def test_attempts_that_request_nothing() -> None:
    shapes = (
        Shape(0, (Variant(cores=0),)),
        Shape(0, (Variant(memory_bytes=30),)),
        Shape(0, (Variant(cores=0, memory_bytes=7),)),
    )
    state = running("fifo", [5.0] * 3, nodes(node(4)), shapes=shapes, shape=np.arange(3, dtype=np.int32))
    assert not view.all_ask(state.handle())
    assert tuple(map(int, view.unasked(state.handle(), 0))) == (2, 1, 0)
    assert tuple(view.requested(state.handle(), 0, 1)) == (2.0, 67)
    assert [bool(view.asks_cores(state.handle(), v)) for v in range(3)] == [False, True, False]
    assert [bool(view.asks_memory(state.handle(), v)) for v in range(3)] == [False, True, True]
    state.variants.guarantee[2] = 0.0  # without any request, what it holds is nobody's request
    assert tuple(map(int, view.unasked(state.handle(), 0))) == (2, 2, 7)
    assert tuple(view.requested(state.handle(), 0, 1)) == (2.0, 60)
    state.candidates.node[0] = 0
    assert view.core_share(state.handle(), 1, 0) == 0.5
    assert view.memory_share(state.handle(), 1, 0) == pytest.approx(0.67)
    state.nodes.capacity_mem[0] = 0
    assert view.memory_share(state.handle(), 1, 0) == 0.0


def test_idle_containers_that_are_not_too_old() -> None:
    """Two of the function and one hot on node 0, kept for 10 s; one was idle at 10 s, and it is 20 s."""
    work = tasks([1.0], function=Function("f", cold_start_s=1.0))
    state = build_state(work, nodes(node(2, keep_alive_s=10.0)))
    state.replace(containers=container_table(4))
    state.clock["now"] = 20.0
    for row, (function, since) in enumerate(((0, 12.0), (0, 10.0), (HOT, 19.0))):
        state.containers.function[row], state.containers.idle_since[row] = function, since
    state.containers.next_function[:3] = [1, -1, -1]
    state.containers.next_node[:3] = [1, 2, -1]
    state.functions.first_container[0], state.counts["hot_container"], state.nodes.first_container[0] = 0, 2, 0
    assert int(view.idle_containers(state.handle(), 0)) == 1
    assert int(view.idle_containers(state.handle(), view.ANY_FUNCTION)) == 1
    assert int(view.spare_containers(state.handle(), 0, 0)) == 1
    state.attempts.task[3], state.attempts.node[3], state.placed[0], state.counts["placed_n"] = 0, 0, 3, 1
    assert int(view.spare_containers(state.handle(), 0, 0)) == 0  # one that is placed just now will take it


def test_containers_ahead_of_need_go_where_most_cores_are_free() -> None:
    state = build_state(
        tasks([1.0]), nodes(*(node(c, keep_alive_s=k) for c, k in ((2, 9.0), (4, 9.0), (8, 0.0), (4, 9.0))))
    )
    given = np.zeros(4)
    chosen = []
    for _ in range(12):
        chosen.append(int(prewarm.roomiest(state.handle(), given)))
        if chosen[-1] >= 0:
            given[chosen[-1]] += 1.0
    assert chosen == [1, 3, 1, 3, 0, 1, 3, 0, 1, 3, -1, -1]
    state.nodes.power_state[1] = ASLEEP
    assert int(prewarm.roomiest(state.handle(), np.zeros(4))) == 3


def mixed_cluster() -> object:
    """Fixed nodes of 3 and 4 cores at speeds 1 and 2, and a platform four times as fast."""
    return nodes(node(3), node(4, speed=2.0), node(9, speed=4.0, serverless=Serverless(9.0)))


def test_mashups_fixed_side_is_what_its_nodes_hold_and_the_fastest_of_them() -> None:
    state = build_state(tasks([8.0], variants=(Variant(cores=2),)), mixed_cluster())  # type: ignore[arg-type]
    assert mashup.fixed_slots(state.handle(), 0) == 1 + 2
    assert mashup.fixed_speed_s(state.handle(), 0, 0) == 4.0
    state.nodes.power_state[1] = DOWN
    assert mashup.fixed_slots(state.handle(), 0) == 1
    state.class_ok[0, :2] = 0
    assert (mashup.fixed_slots(state.handle(), 0), mashup.fixed_speed_s(state.handle(), 0, 0)) == (0.0, math.inf)


def scores(policy: object, state: State, places: list[int], task: int = 0, variant: int = 0) -> list[float]:
    """A policy's costs of these nodes."""
    state.candidates.node[: len(places)], state.candidates.device[: len(places)] = places, -1
    out = np.zeros(len(places))
    policy(state.handle(), task, variant, out)  # type: ignore[operator]
    return [float(cost) for cost in out]


def test_mashup_waits_for_the_fixed_side_where_its_waves_end_sooner() -> None:
    """8 s a task, two cores each: three at once on fixed nodes. Two waves of 4 s there against 2 s on the platform."""
    state = build_state(tasks([8.0], variants=(Variant(cores=2),)), mixed_cluster())  # type: ignore[arg-type]
    state.functions["waiting"], state.functions["running"] = 3, 2
    assert scores(mashup.score, state, [0, 1, 2]) == [16.0, 8.0, 2.0]
    state.functions["waiting"], state.functions["running"] = 1, 1
    state.classes.latency_s[2] = 0.0
    assert scores(mashup.score, state, [0, 1, 2]) == [8.0, 4.0, 2.0]
    state.speed[2] = 1.0  # the platform takes 8 s: a wave of 4 s is worth waiting for while something runs
    assert scores(mashup.score, state, [0, 1, 2]) == [8.0, 4.0, 8.0]
    state.counts["running"] = 1
    assert scores(mashup.score, state, [0, 1, 2]) == [8.0, 4.0, math.inf]
    state.shapes["parts"] = 2
    assert scores(mashup.score, state, [0, 1, 2]) == [8.0, 4.0, 8.0]


def test_hpe_prices_the_last_core_where_requests_no_longer_fit() -> None:
    """10, 18, 24, 28 and 30 W with 0 to 4 busy cores, TDP 15 W above idle."""
    bent = PowerProfile((0.0, 1.0, 2.0, 3.0, 4.0), (10.0, 18.0, 24.0, 28.0, 30.0))
    state = build_state(tasks([1.0], variants=(Variant(cores=2),)), nodes(node(4, power=bent, tdp_w=18.0)))
    state.candidates.node[0], state.candidates.device[0] = 0, -1
    assert hpe.last_core_w(state.handle(), 0, 0) == pytest.approx(4.0)
    found = []
    for busy in (0, 1, 2, 3, 4):
        state.nodes.alloc_u[0], state.nodes.running[0] = busy * 1_000_000, busy
        found.append(float(hpe.profiled_w(state.handle(), 0, 0, 0)))
    assert found == pytest.approx([14.0, 10.0, 6.0 if 14.0 + 6.0 <= 18.0 else math.inf, math.inf, math.inf])
    state.nodes.running[0] = 0  # an empty node takes any task
    assert hpe.profiled_w(state.handle(), 0, 0, 0) == pytest.approx(4.0)
    state.classes.tdp_w[0] = 24.0
    state.nodes.running[0] = 4
    assert hpe.profiled_w(state.handle(), 0, 0, 0) == pytest.approx(4.0)
    state.classes.tdp_w[0] = 23.9
    assert hpe.profiled_w(state.handle(), 0, 0, 0) == math.inf


def test_taskflow_knows_the_most_frugal_class_that_is_in_time() -> None:
    """8 s: 10 W a core at speed 1, or 40 W at speed 2 for half as long; 80 J in 8 s or 160 J in 4 s."""
    frugal, fast = node(4, power=LINEAR), node(4, speed=2.0, power=PowerProfile((0.0, 4.0), (10.0, 170.0)))
    state = Simulation(tasks([8.0]), nodes(frugal, fast, node(4)), "taskflow").state
    assert tuple(taskflow.class_best_j(state.handle(), 0, 0, 0)) == pytest.approx((10.0, 8.0))
    assert tuple(taskflow.class_best_j(state.handle(), 0, 0, 1)) == pytest.approx((20.0, 4.0))
    assert tuple(taskflow.class_best_j(state.handle(), 0, 0, 2)) == (view.UNKNOWN_COST, 8.0)
    assert tuple(taskflow.best_anywhere_j(state.handle(), 0, 8.0)) == pytest.approx((10.0, 8.0))
    assert tuple(taskflow.best_anywhere_j(state.handle(), 0, 7.9)) == pytest.approx((20.0, 4.0))
    assert tuple(taskflow.best_anywhere_j(state.handle(), 0, 3.9)) == (view.UNKNOWN_COST, math.inf)
    assert taskflow.known_j(view.UNKNOWN_COST, 0.0) == view.UNKNOWN_COST
    state.extra["start_at"], state.extra["typical"], state.workflows["submit"] = 30.0, 6.0, 10.0
    pace = float(view.recall(state.handle(), taskflow.NOTES.pace, 0))
    assert taskflow.latest_end_s(state.handle(), 0) == pytest.approx(10.0 + pace * 26.0)
    state.extra["deadline"] = 99.0
    assert taskflow.latest_end_s(state.handle(), 0) == 36.0


def test_unicep_favours_long_waits_of_small_short_tasks() -> None:
    """At 32 s, ready at 0: 8 s on 4 cores divides by log2 4 = 2; below two cores by 1; without an estimate last."""
    shapes = (Shape(0, (Variant(cores=4),)), Shape(0, (Variant(),)))
    work = tasks([8.0, 8.0, 8.0], shapes=shapes, shape=np.array([0, 1, 1], np.int32))
    state = build_state(work.with_estimates(np.array([8.0, 8.0, np.nan])), nodes(node(4)))
    state.clock["now"] = 32.0
    assert [float(unicep.priority(state.handle(), t)) for t in range(3)] == [-2.0, -4.0, view.UNKNOWN_COST]

"""What a policy may ask, on states small enough for a pencil: power, waiting, containers, data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.engine import view
from wattflow.engine.build import build_state, container_table
from wattflow.engine.tables import ASLEEP, DOWN, FALLING, HOT, ON, UNKNOWN_COST, WAKING, State
from wattflow.model.cluster import Device, Frequency, Network, Serverless, Sleep, Zone
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape

SMT = node(2, threads_per_core=2, smt_slowdown=1.6, power=PowerProfile((0.0, 4.0), (10.0, 50.0)))
"""Two cores of two threads, 10 W a thread; threads beyond the cores add a quarter of a core each."""


def at_node(state: State, place: int = 0, device: int = -1) -> State:
    """Candidate 0 is this node."""
    state.candidates.node[0], state.candidates.device[0] = place, device
    return state


@pytest.mark.parametrize(
    ("busy", "cores", "lost_w"),
    [
        (0, 2.0, 0.0),  # a core for each
        (1, 1.0, 0.0),
        (0, 4.0, 40.0 * (4 / 2.5 - 1)),  # alone: only its own longer run
        (2, 1.0, 10.0 * (3 / 2.25 - 1) + 30.0 * (1 - 0.75) * (1 + 0.001 * 3 / 4) / 0.75),
        (3, 1.0, 10.0 * (4 / 2.5 - 1) + 40.0 * (1 - 0.625 / 0.75) * (1 + 0.001 * 4 / 4) / 0.625),
        (4, 2.0, 0.0 + 50.0 * (1 - (2.5 / 6) / 0.625) * (1 + 0.001 * 6 / 4) / (2.5 / 6)),
    ],
)
def test_sharing_cores_costs_the_longer_runs_of_all(busy: int, cores: float, lost_w: float) -> None:
    """Progress is X(D) / D: 2.25 / 3 with three busy threads, 2.5 / 4 with four; 10 W a thread above 10 W idle."""
    state = build_state(tasks([1.0], variants=(Variant(cores=cores),)), nodes(SMT, SMT, SMT))
    state.nodes.alloc_u[0] = busy * 1_000_000
    assert view.crowding_w(state.handle(), 0, 0, -1) == pytest.approx(lost_w)
    at_node(state)
    added_w = view.added_w(state.handle(), 0, 0, 0)
    assert added_w == pytest.approx(10.0 * (min(4, busy + cores) - busy))
    assert view.priced_w(state.handle(), 0, 0, 0) == pytest.approx(added_w + lost_w)


def test_a_device_task_slows_only_the_others_down() -> None:
    state = build_state(tasks([1.0]), nodes(SMT))
    state.nodes.alloc_u[0] = 2_000_000
    assert view.crowding_w(state.handle(), 0, 0, 0) == pytest.approx(30.0 * 0.25 * (1 + 0.001 * 3 / 4))


def test_watts_are_linear_between_points_and_flat_beyond() -> None:
    curve = PowerProfile((0.0, 1.0, 4.0), (10.0, 40.0, 70.0))
    state = build_state(tasks([1.0]), nodes(node(4), node(4, power=curve)))
    known = int(state.nodes.cls[1])
    found = [view.watts(state.handle(), known, busy) for busy in (0.0, 0.5, 1.0, 2.5, 4.0, 9.0)]
    assert found == pytest.approx([10.0, 25.0, 40.0, 55.0, 70.0, 70.0])
    at_node(state)
    assert view.added_w(state.handle(), 0, 0, 0) == view.priced_w(state.handle(), 0, 0, 0) == UNKNOWN_COST


def test_a_device_adds_watts_by_its_curve_for_each_that_is_taken() -> None:
    card = Device("gpu", "a", 100, "mps", 1, power=DeviceProfile((0.0, 0.5, 1.0), (5.0, 25.0, 35.0)))
    offers = (Variant("half", 1, 0, "gpu", 1, 0.5, 10), Variant("pair", 1, 0, "gpu", 2, 1.0, 10))
    state = build_state(tasks([1.0], variants=offers), nodes(node(2, devices=(card, card), power=SMT.power)))
    assert [view.device_watts(state.handle(), 0, x) for x in (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)] == pytest.approx(
        [5.0, 15.0, 25.0, 30.0, 35.0, 35.0]
    )
    assert view.device_added_w(state.handle(), 0, 0) == pytest.approx(20.0)
    assert view.device_added_w(state.handle(), 1, 0) == pytest.approx(60.0)
    state.devices.busy_u[0] = 500_000
    assert view.device_added_w(state.handle(), 0, 0) == pytest.approx(10.0)
    assert view.node_added_w(state.handle(), 0, 0, 0) == pytest.approx(10.0 + 10.0)


def test_a_slower_level_stretches_what_is_bound_by_the_clock() -> None:
    """Level 1 halves the speed and the watts above idle; 60 % of the function is bound by the clock."""
    kind = node(
        4, speed=2.0, power=PowerProfile((0.0, 4.0), (10.0, 50.0)), frequencies=(Frequency(), Frequency(0.5, 0.4))
    )
    state = build_state(tasks([8.0], function=Function("f", compute_bound=0.6)), nodes(kind))
    at_node(state)
    assert view.runtime_s(state.handle(), 0, 0, 0) == pytest.approx(4.0)
    state.nodes.frequency[0] = 1
    assert view.level_at(state.handle(), 0, 0) == 1
    assert view.runtime_s(state.handle(), 0, 0, 0) == pytest.approx(4.0 * (0.4 + 0.6 / 0.5))
    assert view.added_w(state.handle(), 0, 0, 0) == pytest.approx(10.0 * 0.4)
    state.nodes.alloc_u[0] = 1_000_000
    assert view.added_w(state.handle(), 0, 0, 0) == pytest.approx(10.0 * 0.4)
    state.nodes.frequency[0], state.variants.frequency[0] = 0, 1  # its own level beside one that is not slowed
    assert view.level_at(state.handle(), 0, 0) == 1
    assert view.added_w(state.handle(), 0, 0, 0) == pytest.approx(20.0 * 1.4 / 2 - 10.0)
    state.tasks.estimate[0] = math.nan
    assert view.runtime_s(state.handle(), 0, 0, 0) == UNKNOWN_COST


def test_waiting_for_a_node_that_sleeps_or_wakes() -> None:
    state = build_state(tasks([1.0]), nodes(node(power=SMT.power, sleep=Sleep(2.0, 30.0, 4.0, wake_w=7.0))))
    at_node(state)
    state.clock["now"], state.nodes.on_at[0] = 100.0, 112.0
    found = {}
    for power_state in (ON, ASLEEP, WAKING, FALLING, DOWN):
        state.nodes.power_state[0] = power_state
        found[power_state] = view.wait_s(state.handle(), 0), view.wake_j(state.handle(), 0)
    assert found == {ON: (0, 0), ASLEEP: (30, 210), WAKING: (12, 0), FALLING: (30, 210), DOWN: (0, 0)}
    state.nodes.power_state[0], state.nodes.on_at[0] = WAKING, 90.0
    assert view.wait_s(state.handle(), 0) == 0.0
    assert view.idle_w(state.handle(), 0) == 10.0
    state.nodes.used_u[0] = 250_000
    assert view.load(state.handle(), 0) == 0.25


def with_containers(*rows: tuple[int, float]) -> State:
    """Node 1 has these idle containers of (function, since), the first first; it keeps them for 10 s and it is 20 s."""
    functions = (Function("f", cold_start_s=2.0), Function("g", cold_start_s=5.0), Function("h"))
    shapes = tuple(Shape(f, (Variant(),)) for f in range(3))
    work = tasks([1.0] * 3, functions=functions, shapes=shapes, shape=np.arange(3, dtype=np.int32))
    state = build_state(work, nodes(node(2), node(2, keep_alive_s=10.0, cold_start_factor=1.5)))
    state.replace(containers=container_table(8))
    state.clock["now"] = 20.0
    for at, (function, since) in enumerate(rows):
        row = state.containers[at]
        row.node, row.function, row.idle_since = 1, function, since
        row.next_node = row.next_function = at + 1 if at + 1 < len(rows) else -1
    state.nodes.first_container[1] = 0 if rows else -1
    return at_node(state, 1)


def test_a_container_is_the_newest_of_the_function_or_a_hot_one_and_not_too_old() -> None:
    state = with_containers((HOT, 19.0), (1, 18.0), (0, 15.0), (HOT, 14.0), (1, 10.5), (2, 10.0))
    find = [int(view.find_container(state.handle(), 1, f)) for f in (0, 1, 2)]
    assert find == [2, 1, 0]  # of the third function there is only one that is 10 s old
    assert [bool(view.warm(state.handle(), t, 0)) for t in range(3)] == [True] * 3
    assert view.find_container(state.handle(), 0, 0) == -1
    assert view.cold_start_s(state.handle(), 0, 0, 0) == 0.0
    bare = with_containers((1, 18.0), (0, 10.0))
    assert [int(view.find_container(bare.handle(), 1, f)) for f in (0, 1, 2)] == [-1, 0, -1]
    assert [view.cold_start_s(bare.handle(), t, t, 0) for t in range(3)] == [3.0, 0.0, 0.0]
    assert not view.warm(bare.handle(), 0, 0)


def test_making_a_container_takes_its_functions_time_a_hot_one_the_longest() -> None:
    state = with_containers()
    assert [view.warming_s(state.handle(), 1, f) for f in (0, 1, 2, HOT)] == [3.0, 7.5, 0.0, 7.5]
    assert [view.warming_s(state.handle(), 0, f) for f in (0, HOT)] == [2.0, 5.0]


def test_an_fpga_that_holds_another_kernel_is_loaded_first() -> None:
    board = Device("fpga", reconfigure_s=2.5, power=DeviceProfile((0.0, 1.0), (1.0, 9.0)))
    work = tasks([1.0], function=Function("f", cold_start_s=1.0), variants=(Variant("k", 1, 0, "fpga", 1),))
    state = at_node(build_state(work, nodes(node(2, devices=(board,)))), 0, 0)
    assert view.cold_start_s(state.handle(), 0, 0, 0) == 3.5
    state.devices.loaded[0] = 0
    assert view.cold_start_s(state.handle(), 0, 0, 0) == 1.0


def data_state(input_bytes: float = 0.0) -> State:
    """Task 2 has parents 0 (30 bytes) and 1 (20 bytes); nodes 0 and 1 in one zone, 2 in another, 3 a platform there."""
    link = Network(10.0, 1.0, 5.0, 0.5)
    kinds = [node(4, network=link, zone=zone) for zone in ("a", "a", "b")]
    cluster = nodes(*kinds, node(4, network=link, zone="b", serverless=Serverless(4.0)), zones=(Zone("a"), Zone("b")))
    work = tasks(
        [1.0] * 3, edges=edges((0, 2), (1, 2)), edge_bytes=np.array([30.0, 20.0]),
        input_bytes=np.array([0.0, 0.0, input_bytes]),
    )  # fmt: skip
    return build_state(work, cluster)


@pytest.mark.parametrize(
    ("at", "to", "size", "latency_s"),
    [((0, 0), 0, 0.0, 1.0), ((0, 1), 0, 20.0, 1.0), ((0, 1), 1, 30.0, 1.0), ((1, 1), 0, 50.0, 1.0),
     ((0, 2), 0, 20.0, 6.0), ((0, 0), 2, 50.0, 6.0), ((3, 3), 3, 50.0, 1.0), ((-1, -1), 0, 50.0, 1.0),
     ((2, -1), 0, 50.0, 6.0)],
)  # fmt: skip
def test_bytes_travel_that_do_not_lie_there(at: tuple[int, int], to: int, size: float, latency_s: float) -> None:
    """A platform keeps no data, and from another zone the first byte takes longer."""
    for given in (0.0, 7.0):
        state = at_node(data_state(given), to)
        state.tasks.node[:2] = at
        assert view.bytes_to(state.handle(), 2, to) == size + given
        assert view.data_latency_s(state.handle(), 2, to) == latency_s
        expected = latency_s + (size + given) / 10.0 if size + given else 0.0
        assert view.transfer_s(state.handle(), 2, 0) == pytest.approx(expected)
        assert view.ready_in_s(state.handle(), 2, 0, 0) == pytest.approx(expected)
        assert view.finish_s(state.handle(), 2, 0, 0) == pytest.approx(expected + 1.0)


def test_a_hold_is_the_soonest_that_is_asked_for() -> None:
    state = build_state(tasks([1.0]), nodes(node()))
    state.clock["now"], state.tasks.ready[0] = 5.0, 2.0
    times = []
    for at_s in (4.0, 5.0, 9.0, 12.0, 7.0):
        view.hold_until(state.handle(), at_s)
        times.append(float(state.clock.retry_at[0]))
    assert times == [math.inf, math.inf, 9.0, 9.0, 7.0]
    assert view.waited_s(state.handle(), 0) == 3.0


def test_actions_are_noted_in_order_while_there_is_room() -> None:
    state = build_state(tasks([1.0]), nodes(node()))
    room = len(state.actions)
    state.counts["action_n"] = room - 2
    for turn in range(3):
        view.request_action(state.handle(), 2, turn, 7, 1.5)
    assert int(state.counts.action_n[0]) == room
    assert [tuple(row) for row in state.actions[-2:].tolist()] == [(2, 0, 7, 1.5), (2, 1, 7, 1.5)]

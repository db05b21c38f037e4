"""The reference simulator against sums done by hand: queue, fit, stages, sharing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference.facts import Options, Policy, Stuck
from reference.hand import edges, ends, node, nodes, starts, tasks
from reference.policies import POLICIES
from reference.simulator import simulate
from wattflow.model.cluster import Device, Frequency, Network, Node, Serverless, Sleep, Zone
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape

FIFO, FIRST = POLICIES["fifo"], POLICIES["first-fit"]


def test_a_chain_and_a_fork_follow_their_parents() -> None:
    work = tasks([2, 3, 5, 1], edges=edges((0, 1), (0, 2), (1, 3), (2, 3)))
    result = simulate(work, nodes(node(4)), FIFO)
    assert ends(result, 4) == [2, 5, 7, 8]
    assert result.of_task(3)[0].ready_s == 7


def test_release_may_come_after_the_parents() -> None:
    result = simulate(tasks([2, 1], edges=edges((0, 1)), release=[0, 10]), nodes(node()), FIFO)
    assert starts(result, 2) == [0, 10]
    assert result.of_task(1)[0].ready_s == 10


def test_skip_tries_the_next_task_and_strict_does_not() -> None:
    shapes = (Shape(0, (Variant(cores=1),)), Shape(0, (Variant(cores=2),)))
    work = tasks([10, 5, 3], shapes=shapes, shape=np.array([0, 1, 0], np.int32))
    cluster = nodes(node(2))
    assert starts(simulate(work, cluster, FIFO), 3) == [0, 10, 0]
    assert starts(simulate(work, cluster, FIFO, Options(queue="strict")), 3) == [0, 10, 15]


def test_infinite_costs_hold_a_task_and_ties_go_to_the_lower_index() -> None:
    never_first = Policy("x", lambda view, task, offer, at, device: float("inf") if at == 0 else 1.0)
    result = simulate(tasks([1, 1, 1]), nodes(node(4), node(1), node(1)), never_first)
    assert [r.node for r in result.records] == [1, 2, 1]
    assert starts(result, 3) == [0, 0, 1]


def test_shortest_first_and_wfp3_reorder_the_queue() -> None:
    assert starts(simulate(tasks([4, 3, 1]), nodes(node()), POLICIES["sjf"]), 3) == [4, 1, 0]
    # At 10 s the second has waited 9 s of an estimated 8, the third 2 s of 1: (9/8)³ < 2³.
    work = tasks([10, 8, 1], release=[0, 1, 8])
    assert starts(simulate(work, nodes(node()), POLICIES["wfp3"]), 3) == [0, 11, 10]


def test_memory_architecture_and_features_must_match() -> None:
    wants = Variant(memory_bytes=60, architecture="arm64", features=("avx",))
    cluster = nodes(node(8), node(8, architecture="arm64"), node(8, architecture="arm64", features=("avx", "ssd")))
    result = simulate(tasks([3, 3], variants=(wants,)), cluster, FIFO)
    assert [r.node for r in result.records] == [2, 2]
    assert starts(result, 2) == [0, 3]
    with pytest.raises(Stuck):
        simulate(tasks([1], variants=(Variant(memory_bytes=101),)), cluster, FIFO)


def test_one_job_alone_takes_82_seconds_and_half_as_long_again_when_all_threads_are_busy() -> None:
    cluster = nodes(node(2, threads_per_core=2, smt_slowdown=1.5))
    assert ends(simulate(tasks([82]), cluster, FIFO), 1) == [82]
    assert ends(simulate(tasks([82] * 2), cluster, FIFO), 2) == [82, 82]
    assert ends(simulate(tasks([82] * 4), cluster, FIFO), 4) == pytest.approx([123] * 4)
    # Three of four threads: X = 2 + 1 · (4/1.5 − 2)/2 = 7/3, each at 7/9.
    assert ends(simulate(tasks([82] * 3), cluster, FIFO), 3) == pytest.approx([82 * 9 / 7] * 3)


def test_rates_change_when_a_neighbour_ends() -> None:
    # Both at 3/4 until the short one has done its 3 s at 4 s; the other then has 6 − 3 = 3 s left, alone.
    result = simulate(tasks([3, 6]), nodes(node(1, threads_per_core=2, smt_slowdown=4 / 3)), FIFO)
    assert ends(result, 2) == pytest.approx([4, 7])


def test_a_guarantee_of_80_per_cent_lets_a_fifth_job_on_four_cores() -> None:
    cluster = nodes(node(4))
    assert starts(simulate(tasks([10] * 5), cluster, FIFO), 5) == [0, 0, 0, 0, 10]
    result = simulate(tasks([10] * 5), cluster, FIFO, Options(guarantees=(0.8,)))
    assert starts(result, 5) == [0] * 5
    assert ends(result, 5) == pytest.approx([12.5] * 5)  # five at 4/5


def test_guarantees_are_variants_in_the_order_offered() -> None:
    shapes = (Shape(0, (Variant(cores=3.5),)), Shape(0, (Variant(cores=0.6),)))
    work = tasks([10, 10], shapes=shapes, shape=np.array([0, 1], np.int32))
    result = simulate(work, nodes(node(4)), FIFO, Options(guarantees=(1.0, 0.8)))
    assert [(r.variant, r.guarantee) for r in sorted(result.records, key=lambda r: r.task)] == [(0, 1.0), (0, 0.8)]
    assert ends(result, 2) == pytest.approx([10.25] * 2)  # D = 4.1 on 4 cores


def test_speeds_by_node_function_factor_and_frequency() -> None:
    fast = node(1, speed=2.0, function_speed={"f": 4.0})
    assert ends(simulate(tasks([8], variants=(Variant(runtime_factor=3.0),)), nodes(fast), FIFO), 1) == [6]
    slow = node(1, frequencies=(Frequency(), Frequency(0.5, 0.4)))
    half = simulate(tasks([8], function=Function("f", compute_bound=0.75)), nodes(slow), FIFO, Options(levels=(1,)))
    assert ends(half, 1) == [8 * (0.25 + 0.75 / 0.5)]


def gpu(**facts: Any) -> Node:
    return node(8, devices=(Device("gpu", memory_bytes=80, **facts),))


def on_gpu(share: float = 1.0, memory: int = 10, count: int = 1) -> tuple[Variant, ...]:
    return (Variant("gpu", 1, 0, "gpu", count, share, memory),)


@pytest.mark.parametrize(
    ("facts", "share", "first", "last"),
    [
        ({"sharing": "exclusive", "speed": 2.0}, 0.5, 5, 10),
        ({"sharing": "time-slice", "slots": 2}, 1.0, 20, 20),
        ({"sharing": "time-slice", "slots": 1}, 1.0, 10, 20),
        ({"sharing": "mps", "interference": 0.5}, 0.25, 11.25, 11.25),  # 1 + 0.5 · 0.5 · 1/2 = 1.125
        ({"sharing": "mps", "interference": 0.5}, 0.6, 10, 20),  # the shares do not fit together
        ({"sharing": "mig", "interference": 0.5}, 0.52, 10, 20),  # 4/7 each
        ({"sharing": "mig", "interference": 0.5}, 3 / 7, 10, 10),
    ],
)
def test_two_tasks_on_one_gpu(facts: dict[str, Any], share: float, first: float, last: float) -> None:
    result = simulate(tasks([10, 10], variants=on_gpu(share)), nodes(gpu(**facts)), FIFO)
    assert ends(result, 2) == pytest.approx([first, last])
    assert {r.device for r in result.records} == {0}


def test_device_memory_never_oversubscribes() -> None:
    result = simulate(tasks([10, 10], variants=on_gpu(0.1, memory=50)), nodes(gpu(sharing="mps")), FIFO)
    assert ends(result, 2) == [10, 20]


def test_several_devices_are_taken_whole_lowest_first() -> None:
    card = Device("gpu", memory_bytes=80, sharing="mps")
    shapes = (Shape(0, on_gpu(0.25)), Shape(0, on_gpu(1.0, count=2)))
    work = tasks([4, 6, 1], shapes=shapes, shape=np.array([0, 1, 0], np.int32))
    result = simulate(work, nodes(node(8, devices=(card, card, card))), FIFO)
    by_task = sorted(result.records, key=lambda r: r.task)
    assert [(r.device, r.start_s) for r in by_task] == [(0, 0), (1, 0), (0, 0)]


def test_an_fpga_is_loaded_once_for_each_change_of_function() -> None:
    variants = (Variant("fpga", 1, 0, "fpga", 1),)
    work = tasks(
        [2, 2, 2],
        functions=(Function("a"), Function("b")),
        shapes=(Shape(0, variants), Shape(1, variants)),
        shape=np.array([0, 0, 1], np.int32),
    )
    result = simulate(work, nodes(node(4, devices=(Device("fpga", reconfigure_s=3.0),))), FIFO)
    assert starts(result, 3) == [3, 5, 10]
    assert [r.cold_s for r in result.records] == [3, 0, 3]


def test_two_transfers_share_the_link_and_the_latency_is_not_shared() -> None:
    link = Network(bandwidth_bytes_per_s=10, latency_s=0.5, energy_j_per_byte=2)
    work = tasks([1, 1], input_bytes=np.array([100.0, 50.0]))
    result = simulate(work, nodes(node(4, network=link)), FIFO)
    assert starts(result, 2) == pytest.approx([15.5, 10.5])  # 5 B/s each until 50 are in, then 10 B/s
    assert [r.data_s for r in result.records] == pytest.approx([10.5, 15.5])
    assert result.account_j("transfer") == pytest.approx(300)


def test_data_at_hand_is_not_fetched_and_another_zone_adds_its_latency() -> None:
    far = Network(10, 1.0, 3.0)
    cluster = nodes(node(1, zone="a"), node(1, zone="b", network=far), zones=(Zone("a"), Zone("b")))
    work = tasks([2, 4, 4], edges=edges((0, 1), (0, 2)), edge_bytes=np.array([20.0, 20.0]))
    result = simulate(work, cluster, FIRST)
    assert starts(result, 3) == [0, 2, 8]  # the second child: 2 + 1 + 3 + 20/10
    assert [r.data_s for r in result.records] == [0, 0, 6]


def test_outputs_of_a_function_platform_lie_in_storage() -> None:
    cluster = nodes(node(4, serverless=Serverless(), network=Network(10, 1.0, 50.0)))
    work = tasks([2, 2], edges=edges((0, 1)), edge_bytes=np.array([20.0]))
    assert starts(simulate(work, cluster, FIFO), 2) == [0, 5]


def test_a_platform_grows_by_its_ramp_and_refuses_long_tasks() -> None:
    cluster = nodes(node(1), node(4, serverless=Serverless(burst=1, ramp_per_s=0.5, time_limit_s=20)))
    last_node = Policy("x", lambda view, task, offer, at, device: -float(at))
    result = simulate(tasks([10, 10, 10, 30, 10]), cluster, last_node)
    where = {r.task: (r.node, r.start_s) for r in result.records}
    assert where == {0: (1, 0), 1: (0, 0), 2: (1, 2), 3: (0, 10), 4: (1, 4)}


def test_an_attempt_over_the_time_limit_is_ended_for_good() -> None:
    cluster = nodes(node(4, serverless=Serverless(time_limit_s=5, price_per_core_s=2, price_per_call=1)))
    result = simulate(tasks([8], estimate_s=np.array([4.0])), cluster, FIFO, Options(max_retries=1))
    assert [(r.outcome, r.attempt, r.start_s, r.end_s) for r in result.records] == [("time_limit", 0, 0, 5)]
    assert result.abandoned == (0,)
    assert result.cost[0] == pytest.approx(10 + 1)


def test_containers_stay_warm_for_their_keep_alive() -> None:
    cold = Function("f", cold_start_s=2.0)
    host = node(1, keep_alive_s=5.0, cold_start_factor=1.5)
    result = simulate(tasks([1, 1, 1], function=cold, release=[0, 8.9, 15]), nodes(host), FIFO)
    assert [r.cold_s for r in result.records] == [3, 0, 3]  # warm at 8.9 − 4 < 5; gone at 15 − 9.9 ≥ 5
    assert starts(result, 3) == pytest.approx([3, 8.9, 18])


def test_message_wake_cold_data_run_in_this_order() -> None:
    sleeper = node(1, sleep=Sleep(1, wake_s=4, enter_s=1, after_s=3), network=Network(10))
    work = tasks([1], function=Function("f", cold_start_s=2.0), release=[6], input_bytes=np.array([20.0]))
    result = simulate(work, nodes(sleeper), FIFO, Options(message_s=0.5, from_zero=True))
    row = result.records[0]
    assert (row.message_s, row.wake_s, row.cold_s, row.data_s) == pytest.approx((0.5, 4, 2, 2))
    assert (row.placed_s, row.start_s, row.end_s) == pytest.approx((6, 14.5, 15.5))


def test_a_placement_while_falling_asleep_waits_for_the_fall_then_wakes() -> None:
    sleeper = node(1, sleep=Sleep(1, wake_s=4, enter_s=2, after_s=3))
    result = simulate(tasks([1], release=[3.5]), nodes(sleeper), FIFO, Options(from_zero=True))
    assert starts(result, 1) == [9]


def test_nodes_that_are_on_come_first() -> None:
    cluster = nodes(node(4, sleep=Sleep(1, wake_s=4, after_s=3)), node(1))
    result = simulate(tasks([10, 10], release=[5, 5]), cluster, FIRST, Options(from_zero=True))
    assert [(r.task, r.node, r.start_s) for r in result.records] == [(0, 1, 5), (1, 0, 9)]
    seen = simulate(tasks([10], release=[5]), cluster, FIRST, Options(from_zero=True, see_sleeping=True))
    assert seen.records[0].node == 0


def test_rounds_take_decisions_only_at_multiples() -> None:
    result = simulate(tasks([1.5, 1, 1], release=[0, 0.2, 3.1]), nodes(node()), FIFO, Options(round_s=1.0))
    assert starts(result, 3) == [0, 2, 4]


def test_all_parts_are_placed_together_or_none() -> None:
    shapes = (Shape(0, (Variant(),)), Shape(0, (Variant(),), 3))
    work = tasks([5, 2, 1], shapes=shapes, shape=np.array([0, 1, 0], np.int32))
    result = simulate(work, nodes(node(2), node(1, speed=2)), FIRST)
    gang = result.of_task(1)
    assert {r.placed_s for r in gang} == {5}
    assert sorted((r.part, r.node, r.end_s) for r in gang) == [(0, 0, 7), (1, 0, 7), (2, 1, 6)]
    assert starts(result, 3) == [0, 5, 0]


def test_zero_length_tasks_pass_within_one_instant() -> None:
    work = tasks([0, 0, 1], edges=edges((0, 1), (1, 2)))
    result = simulate(work, nodes(node()), FIFO)
    assert starts(result, 3) == [0, 0, 0]
    assert result.makespan_s == 1

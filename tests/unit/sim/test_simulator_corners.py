"""Corners of the engine that random cases do not reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reference.engine_side import POLICIES
from reference.hand import edges, node, nodes, tasks
from wattflow.engine import view
from wattflow.engine.tables import ACT_FREQUENCY, ACT_TIMER, ACT_WARM
from wattflow.model.cluster import Device, Frequency, Network, Sleep, Zone
from wattflow.model.profile import DeviceProfile, PowerProfile, ends_profile
from wattflow.model.run import ACCOUNTS, Run
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape
from wattflow.policy import registry
from wattflow.policy.base import Plan, Policy
from wattflow.sim import SimOptions, simulate
from wattflow.sim.simulate import Simulation

FIFO = POLICIES["fifo"]


def test_a_single_task_fetches_its_input() -> None:
    run = simulate(tasks([1.0], input_bytes=np.array([50.0])), nodes(node(network=Network(10, 1.0))), FIFO)
    assert run.attempts["start_s"].tolist() == [6.0]


def test_a_single_task_resumes_from_its_checkpoint() -> None:
    saving = Function("f", checkpoint_s=3, checkpoint_cost_s=0.5)
    options = SimOptions(task_faults=((0, 0, 0.7),))
    run = simulate(tasks([10.0], function=saving), nodes(node()), FIFO, options=options)
    assert run.attempts["end_s"].tolist() == pytest.approx([8.05, 12.55])


def test_seven_slices_of_a_mig_device_fit() -> None:
    card = Device("gpu", sharing="mig", power=DeviceProfile((0.0, 1.0), (10.0, 80.0)))
    variants = (Variant("slice", 0.5, 0, "gpu", 1, 1 / 7),)
    run = simulate(tasks([4.0] * 8, variants=variants), nodes(node(8, devices=(card,))), FIFO)
    assert sorted(run.attempts["start_s"].tolist()) == [0.0] * 7 + [4.0]
    assert run.account_j("run") == pytest.approx(4 * 70 + 4 * 10, rel=1e-5)


def test_a_pinned_task_does_not_hold_back_others_of_its_shape() -> None:
    """Task 0 keeps node 0 busy; task 1 waits for node 0, and task 2 is free to start on node 1."""

    def plan(workload, cluster, params):
        return Plan(np.array([0, 0, 1], np.int32), np.array([0.0, 1.0, 2.0]))

    run = simulate(tasks([5.0, 5.0, 5.0]), nodes(node(), node()), Policy("planned", plan=plan))
    assert run.start_s_by_task().tolist() == [0.0, 5.0, 0.0]
    assert run.attempts[np.argsort(run.attempts["task"])]["node"].tolist() == [0, 0, 1]


def test_several_fpgas_are_loaded_together() -> None:
    cards = tuple(Device("fpga", reconfigure_s=seconds) for seconds in (1.0, 3.0))
    pair = (Variant("pair", 1, 0, "fpga", 2),)
    run = simulate(tasks([2.0, 2.0], variants=pair, edges=edges((0, 1))), nodes(node(4, devices=cards)), FIFO)
    assert run.attempts["cold_s"].tolist() == [3.0, 0.0]
    assert run.attempts["end_s"].tolist() == [5.0, 7.0]


def test_a_gang_is_finished_only_if_its_last_attempt_is() -> None:
    """Part 0 of task 0 ends well each time, part 1 is on the slow node that is lost four times."""
    work = tasks([2.0], shapes=(Shape(0, (Variant(),), 2),))
    outages = tuple((1, 4.0 * k + 3.0, 4.0 * k + 3.5) for k in range(8))
    run = simulate(work, nodes(node(), node(speed=0.1)), FIFO, options=SimOptions(outages=outages))
    assert not run.finished[0]
    assert np.isnan(run.end_s_by_task()[0])


def test_a_recorded_run_keeps_little_memory() -> None:
    """A log of a few rows reserves kilobytes, and the Run does not hold the buffer that it was written to."""
    simulation = Simulation(tasks([1.0] * 3), nodes(node(), node()), FIFO, options=SimOptions(record_power=True))
    assert simulation.world.power_log.nbytes < 200_000
    run = simulation.run()
    assert run.power_log is not None
    assert run.power_log.base is None or run.power_log.base.nbytes <= 2 * run.power_log.nbytes + 100_000
    assert run.attempts.base is None or run.attempts.base.nbytes <= 2 * run.attempts.nbytes + 100_000


def test_a_recorded_run_of_a_large_gpu_cluster_reserves_megabytes() -> None:
    """1,523 nodes with four devices each and 8,152 tasks, as in Alibaba's lists: no gigabytes for a log."""
    power = PowerProfile((0.0, 96.0), (100.0, 500.0))
    server = node(96, devices=(Device("gpu"),) * 4, power=power)
    work, options = tasks([1.0] * 8152), SimOptions(record_power=True)
    simulation = Simulation(work, nodes(*[server] * 1523), FIFO, options=options)
    assert simulation.world.power_log.nbytes < 32 << 20


def _warm_at_once(node_index: int) -> Policy:
    """Asks once, at the start, for a container on a node."""

    def act(state):
        if state.memory[0] == 0.0:
            state.memory[0] = 1.0
            view.request_action(state, ACT_WARM, node_index, 0, 0.0)

    return Policy("warm", act=act)


WARM_NODE = node(power=PowerProfile((0.0, 1.0), (0.0, 100.0)), keep_alive_s=1000.0)


def test_warming_ends_with_its_node() -> None:
    """A container that takes 20 s to make on a node of 100 W that is lost after 2.5 s: 250 J, and it never serves."""
    slow = tasks([1.0, 1.0], function=Function("f", cold_start_s=20.0), release=[0.0, 60.0])
    options = SimOptions(outages=((1, 2.5, 10.0),))
    quick = node(power=PowerProfile((0.0, 1.0), (0.0, 0.0)))
    pinned = Policy("warm", act=_warm_at_once(1).act, plan=lambda *_: Plan(np.array([0, 1]), np.zeros(2)))
    run = simulate(slow, nodes(quick, WARM_NODE), pinned, options=options)
    assert run.energy_j[1, ACCOUNTS.index("unattributed")] == pytest.approx(250.0)
    assert run.attempts["cold_s"].tolist() == [20.0, 20.0]
    assert run.energy_j[1].sum() == pytest.approx(250.0 + 2100.0)


def test_a_node_does_not_sleep_while_it_warms() -> None:
    """It would sleep after 5 s, and warms for 20: a task finds the container, and its joules have an account."""
    sleepy = replace(WARM_NODE, sleep=Sleep(0.0, 3.0, 0.0, 0.0, 5.0))
    work = tasks([1.0, 1.0], function=Function("f", cold_start_s=20.0), release=[0.0, 22.0])
    run = simulate(work, nodes(node(), sleepy), Policy("warm", act=_warm_at_once(1).act,
                   plan=lambda *_: Plan(np.array([0, 1]), np.zeros(2))))  # fmt: skip
    second = run.attempts[run.attempts["task"] == 1][0]
    assert (second["start_s"], second["wake_s"], second["cold_s"]) == (22.0, 0.0, 0.0)
    assert run.energy_j[1, ACCOUNTS.index("unattributed")] == pytest.approx(2000.0)
    own_j = sum(float(run.attempts[name].sum()) for name in ("run_j", "cold_j"))
    assert run.account_j("run") + run.account_j("cold_start") == pytest.approx(own_j)


def test_the_way_to_another_zone_counts_in_the_estimate() -> None:
    """The near node needs 20 s, the faster one far away 100 + 0.5 + 19: who asks for the end stays near."""

    def earliest(state, task, variant, out):
        for c in range(out.size):
            out[c] = view.finish_s(state, task, variant, c)

    link = Network(10, 0.0, 100.0)
    far = nodes(node(network=link, zone="a"), node(network=link, zone="b", speed=20 / 19), zones=(Zone("a"), Zone("b")))
    work = tasks([0.0, 20.0], edges=edges((0, 1)), edge_bytes=np.array([5.0]))
    run = simulate(work, far, Policy("earliest", score=earliest))
    assert run.end_s_by_task().tolist() == [0.0, 20.0]
    away = Policy("away", score=earliest, plan=lambda *_: Plan(np.array([0, 1]), np.zeros(2)))
    assert simulate(work, far, away).end_s_by_task().tolist() == pytest.approx([0.0, 119.5])


def test_energy_from_zero_leaves_the_makespan() -> None:
    work = tasks([4.0], release=[6.0])
    on = node(power=PowerProfile((0.0, 1.0), (10.0, 30.0)))
    late, zero = (simulate(work, nodes(on), FIFO, options=SimOptions(from_zero=z)) for z in (False, True))
    assert (late.makespan_s, zero.makespan_s) == (4.0, 4.0)
    assert (late.total_j, zero.total_j) == (120.0, 180.0)
    assert (zero.start_s, zero.span_s) == (0.0, 10.0)


def test_parts_of_a_gang_start_together() -> None:
    """Node 1 fetches for 3 s more, so part 0 holds its core idle for 3 s."""
    watts = PowerProfile((0.0, 1.0), (10.0, 30.0))
    slow, quick = (node(power=watts, network=Network(rate)) for rate in (10.0, 40.0))
    work = tasks([2.0], shapes=(Shape(0, (Variant(),), 2),), input_bytes=np.array([40.0]))
    run = simulate(work, nodes(quick, slow), FIFO)
    assert run.attempts["start_s"].tolist() == [4.0, 4.0]
    assert sorted(run.attempts["hold_s"].tolist()) == [0.0, 3.0]
    assert run.account_j("idle") == pytest.approx(2 * 6 * 10.0)
    assert run.account_j("run") == pytest.approx(2 * 2 * 20.0)


def test_packing_two_threads_a_core_beats_spreading() -> None:
    """96 jobs of 100 s, two nodes of 48 cores and 96 threads: 0.87 · 300 W · 100 s twice, or 300 W · 150 s."""
    power = ends_profile(0.0, 300.0, 48, 2)
    server = node(48, threads_per_core=2, allocatable_cores=96.0, power=power)
    spread = simulate(tasks([100.0] * 96), nodes(server, server), FIFO)
    packed = simulate(tasks([100.0] * 96), nodes(server, server), POLICIES["first-fit"])
    assert (spread.makespan_s, packed.makespan_s) == (100.0, pytest.approx(150.0))
    assert spread.total_j == pytest.approx(52_200.0)
    assert packed.total_j == pytest.approx(45_000.0)


@pytest.mark.parametrize("name", ["fifo", "least-energy", "hpe"])
def test_a_full_node_is_not_free(name: str) -> None:
    """30 tasks of 10 s on two nodes of 10 cores that admit 40: 15 on each is 15 s · 400 W, all on one 30 s · 300 W."""
    wide = node(10, allocatable_cores=40.0, power=PowerProfile((0.0, 10.0), (100.0, 200.0)), tdp_w=1000.0)
    run = simulate(tasks([10.0] * 30), nodes(wide, wide), name)
    assert run.makespan_s == pytest.approx(15.0)
    assert run.total_j == pytest.approx(6_000.0)


def test_pinned_jobs_keep_their_thread_until_one_falls_idle() -> None:
    """Three jobs of 6 s on two threads: one alone ends at 6 s; the pair has 3 s left each, then each has a thread."""
    fair, fixed = (
        simulate(tasks([6.0] * 3), nodes(node(2, allocatable_cores=3.0, sharing=sharing)), FIFO)
        for sharing in ("fair", "pinned")
    )
    assert fair.end_s_by_task().tolist() == pytest.approx([9.0, 9.0, 9.0])
    assert fixed.end_s_by_task().tolist() == pytest.approx([9.0, 6.0, 9.0])


def test_pinned_jobs_without_a_guarantee_may_share_a_thread_of_three() -> None:
    """Four jobs of 6 s on two threads: two pairs end at 12 s; beside three the one alone ends at 6 s and takes one."""
    bare = registry.load("kubernetes").with_settings(guarantees=(0.0,))
    seen = set()
    for seed in range(8):
        run = simulate(tasks([6.0] * 4), nodes(node(2, sharing="pinned")), bare, seed=seed)
        seen.add(tuple(sorted(round(end_s, 6) for end_s in run.end_s_by_task().tolist())))
    assert seen == {(12.0, 12.0, 12.0, 12.0), (6.0, 10.0, 12.0, 12.0)}


def test_host_cores_beside_a_device_crowd() -> None:
    """A GPU task holds one of two cores for 10 s: two CPU tasks beside it share the two with it, at two thirds."""
    card = Device("gpu")
    shapes = (Shape(0, (Variant("gpu", 1, 0, "gpu", 1),)), Shape(0, (Variant(),)))
    work = tasks([10.0, 4.0, 4.0], shapes=shapes, shape=np.array([0, 1, 1], np.int32))
    run = simulate(work, nodes(node(2, allocatable_cores=3.0, devices=(card,))), FIFO)
    assert run.end_s_by_task().tolist() == pytest.approx([10.0, 6.0, 6.0])


def _slow_down_at(at_s: float) -> Policy:
    """Sets the second level of node 0 once, at a time."""

    def act(state):
        now = state.clock.now[0]
        if now < at_s:
            view.request_action(state, ACT_TIMER, 0, 0, at_s)
        elif state.memory[0] == 0.0:
            state.memory[0] = 1.0
            view.request_action(state, ACT_FREQUENCY, 0, 1, now)

    return Policy("slow", act=act)


@pytest.mark.parametrize("way", ["task", "node", "half way"])
def test_one_law_of_frequency(way: str) -> None:
    """10 s of work, 60 % bound by the clock, at half speed: 16 s; 20 of 80 W above idle. After half the work: 13 s."""
    slow = node(
        2, power=PowerProfile((0.0, 1.0, 2.0), (50.0, 130.0, 140.0)), frequencies=(Frequency(), Frequency(0.5, 0.25))
    )
    work = tasks([10.0], function=Function("f", compute_bound=0.6))
    policy = FIFO.with_settings(frequencies=(1,)) if way == "task" else _slow_down_at(0.0 if way == "node" else 5.0)
    run = simulate(work, nodes(slow), policy)
    if way == "half way":
        assert run.makespan_s == pytest.approx(13.0)
        assert run.account_j("run") == pytest.approx(5 * 80.0 + 8 * 20.0)
    else:
        assert run.makespan_s == pytest.approx(16.0)
        assert run.account_j("run") == pytest.approx(16 * 20.0)
    assert float(run.attempts["run_j"].sum()) == pytest.approx(run.account_j("run"))


def test_an_error_of_watts_holds_for_every_state_of_a_node() -> None:
    """Idle, busy, device, falling asleep, asleep and waking: each account is off by the node's one factor."""
    card = Device("gpu", power=DeviceProfile((0.0, 1.0), (10.0, 110.0)))
    sleepy = node(
        2, devices=(card,), power=PowerProfile((0.0, 2.0), (50.0, 90.0)), sleep=Sleep(5.0, 4.0, 2.0, 60.0, 3.0)
    )
    work = tasks([5.0, 5.0], release=[0.0, 20.0], variants=(Variant("gpu", 1, 0, "gpu", 1),))
    true, off = (
        simulate(work, nodes(sleepy), FIFO, seed=1, options=SimOptions(power_error=error)) for error in (0.0, 0.5)
    )
    known = true.energy_j[0] > 0
    ratio = off.energy_j[0][known] / true.energy_j[0][known]
    assert known.sum() >= 4
    assert ratio == pytest.approx(np.full(int(known.sum()), ratio[0]))
    assert ratio[0] != pytest.approx(1.0)


def _on_device(duties: list[float], sharing: str, **facts: object) -> Run:
    """Tasks of 10 s with these duties on one device of 20 W idle and 120 W busy."""
    card = Device("gpu", sharing=sharing, power=DeviceProfile((0.0, 1.0), (20.0, 120.0)), **facts)  # type: ignore[arg-type]
    share = 0.25 if sharing == "mps" else 1.0
    shapes = tuple(Shape(0, (Variant("gpu", 0, 0, "gpu", 1, share, device_duty=duty),)) for duty in duties)
    work = tasks([10.0] * len(duties), shapes=shapes, shape=np.arange(len(duties), dtype=np.int32))
    return simulate(work, nodes(node(8, devices=(card,))), FIFO)


def test_a_device_is_busy_as_its_tasks_keep_it() -> None:
    """Watts follow the sum of duties in every mode."""
    alone = _on_device([0.4], "exclusive")
    assert (alone.makespan_s, alone.account_j("run")) == (10.0, pytest.approx(0.4 * 100 * 10))
    pair = _on_device([0.3, 0.4], "time-slice", slots=4)
    assert (pair.makespan_s, pair.account_j("run")) == (10.0, pytest.approx(0.7 * 100 * 10))
    shared = _on_device([0.4] * 4, "mps")
    assert (shared.makespan_s, shared.account_j("run")) == (10.0, pytest.approx(0.4 * 100 * 10))


def test_turns_slow_down_only_where_duties_exceed_the_device() -> None:
    """Four of duty 0.4: 1.6 times as long, and a quarter more for changing turns; the device is busy all the time."""
    crowded = _on_device([0.4] * 4, "time-slice", slots=4)
    assert crowded.makespan_s == pytest.approx(16.0)
    assert crowded.account_j("run") == pytest.approx(16 * 100)
    lossy = _on_device([0.4] * 4, "time-slice", slots=4, switch_loss=0.25)
    assert lossy.makespan_s == pytest.approx(20.0)
    disturbed = _on_device([0.4] * 4, "mps", interference=0.5)
    assert disturbed.makespan_s == pytest.approx(10 * (1 + 0.5 * 0.3))

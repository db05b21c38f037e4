"""The event loop and its tables by hand: rounds, actions of policies, lanes, growth, and a World taken over midway."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from reference.hand import edges, node, nodes, tasks
from wattflow.engine import agenda, view
from wattflow.engine.tables import ACT_TIMER, ACT_WAKE, ASLEEP, FALLING, ON, WAITS, WAKING
from wattflow.kernel import jit
from wattflow.model.cluster import Device, Network, Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate
from wattflow.sim.adopt import take_over
from wattflow.sim.simulate import Simulation, grow
from wattflow.sim.world_build import build_world


def count_acts(state):
    state.memory[0] += 1.0


def test_a_policy_acts_once_at_each_time_when_all_that_happens_then_has_happened() -> None:
    """At 0 a task ends that takes no time, and its child starts and ends, too: one look; then at 5 and at 8."""
    work = tasks([0.0, 0.0, 5.0, 3.0], edges=edges((0, 1), (1, 2), (2, 3)))
    simulation = Simulation(work, nodes(node()), Policy("counts", act=count_acts))
    run = simulation.run()
    assert run.end_s_by_task().tolist() == [0.0, 0.0, 5.0, 8.0]
    assert simulation.state.memory[0] == 3.0


@pytest.mark.parametrize(
    ("release_s", "round_s", "start_s"),
    [(0.0, 10.0, 0.0), (4.0, 10.0, 10.0), (10.0, 10.0, 10.0), (10.5, 10.0, 20.0), (900000.3, 0.3, 900000.3)],
)
def test_decisions_fall_on_rounds(release_s: float, round_s: float, start_s: float) -> None:
    """900000.3 is a multiple of 0.3 but for rounding, which grows with the time."""
    run = simulate(tasks([1.0], release=[release_s]), nodes(node()), "fifo", options=SimOptions(round_s=round_s))
    assert run.attempts["start_s"].tolist() == [start_s]


def test_pinned_jobs_fill_lanes_from_the_lowest() -> None:
    """Five jobs on three lanes: 0 and 3, 1 and 4 take turns, 2 is alone. When it ends at 2 s, job 3, placed last
    on the lowest of the longest lanes, moves over with 3 of its 4 s left; job 0 has 9 left and is alone, too.

    Jobs 1 and 4 go on taking turns: job 4 has done 1 s at 2 and ends its 2 at 4; job 1 is alone from there on.
    """
    run = simulate(tasks([10.0, 10.0, 2.0, 4.0, 2.0]), nodes(node(3, allocatable_cores=5, sharing="pinned")), "fifo")
    assert run.end_s_by_task().tolist() == pytest.approx([11.0, 12.0, 2.0, 5.0, 4.0])


def test_a_device_task_beside_pinned_jobs_slows_them_while_it_runs() -> None:
    """A core of two threads, which together do 1.25 of its work. The card's task keeps one thread busy for 4 s, so that
    the job beside it has done 2.5 of its 10 s; it is alone from there on, and so is one that comes later."""
    card = Device("gpu", "a", power=DeviceProfile((0.0, 1.0), (0.0, 10.0)))
    pinned = node(1, threads_per_core=2, smt_slowdown=1.6, sharing="pinned", devices=(card,))
    shapes = (Shape(0, (Variant("gpu", 1, 0, "gpu", 1),)), Shape(0, (Variant(),)))
    work = tasks([4.0, 10.0, 3.0], release=[0.0, 0.0, 20.0], shapes=shapes, shape=np.array([0, 1, 1], np.int32))
    assert simulate(work, nodes(pinned), "fifo").end_s_by_task().tolist() == pytest.approx([4.0, 11.5, 23.0])


def test_pinned_nodes_take_tasks_of_one_core_and_those_of_devices() -> None:
    pinned = node(4, sharing="pinned", devices=(Device("gpu", "a"),))
    wide = Variant(cores=1.5)
    with pytest.raises(InvalidInput, match="at most one core"):
        simulate(tasks([1.0], variants=(wide,)), nodes(pinned), "fifo")
    for fitting in (Variant(cores=1), Variant("gpu", 1.5, 0, "gpu", 1)):
        assert simulate(tasks([1.0], variants=(fitting,)), nodes(pinned), "fifo").makespan_s == 1.0
    assert simulate(tasks([1.0], variants=(wide,)), nodes(node(4)), "fifo").makespan_s == 1.0


def test_a_run_counts_its_cold_starts_and_transfers() -> None:
    """Two cold starts, the third task finds the first one's container; its parents' bytes come from the other node."""
    work = tasks(
        [1.0, 1.0, 1.0], function=Function("f", cold_start_s=2.0), edges=edges((0, 2), (1, 2)),
        edge_bytes=np.array([30.0, 20.0]),
    )  # fmt: skip
    kind = node(1, keep_alive_s=100.0, network=Network(10.0, 1.0))
    run = simulate(work, nodes(kind, kind), "fifo")
    assert [run.scalars[name] for name in ("cold_starts", "transfers", "moved_bytes")] == [2.0, 1.0, 20.0]
    assert run.end_s_by_task().tolist() == [3.0, 3.0, 7.0]


def wake_once(state):
    if state.memory[0] == 0.0:
        state.memory[0] = 1.0
        view.request_action(state, ACT_TIMER, 0, 0, 10.0)
    elif state.memory[0] == 1.0 and state.clock[0].now >= 10.0:
        state.memory[0] = 2.0
        view.request_action(state, ACT_WAKE, 1, 0, 0.0)


def test_a_node_woken_for_nothing_sleeps_again_after_its_time() -> None:
    """Node 1 sleeps after 5 s, is woken at 10 s, is on at 40 s, and sleeps again at 45 s; node 0 is busy throughout."""
    kind = node(power=PowerProfile((0.0, 1.0), (10.0, 20.0)), sleep=Sleep(1.0, 30.0, after_s=5.0))
    simulation = Simulation(tasks([200.0]), nodes(kind, kind), Policy("wakes", act=wake_once))
    found = []
    for until_s in (4.0, 6.0, 39.0, 41.0, 44.0, 46.0):
        simulation.advance(until_s=until_s)
        found.append(int(simulation.state.nodes.power_state[1]))
    assert found == [ON, ASLEEP, WAKING, ON, ON, ASLEEP]


def test_tables_grow_only_where_room_ran_out() -> None:
    simulation = Simulation(tasks([1.0] * 3), nodes(node()), "fifo", options=SimOptions(record_power=True))
    state, world = simulation.state, simulation.world
    before = {name: len(table) for name, table in (("attempts", state.attempts), ("runs", world.runs),
                                                   ("records", world.records), ("timers", state.timers),
                                                   ("power_log", world.power_log))}  # fmt: skip
    state.counts["timer_n"], world.pulse["log_n"], world.pulse["record_n"] = 0, 0, 0
    grow(state, world, simulation.options)
    assert (len(state.attempts), len(world.runs), len(world.records)) == (
        before["attempts"], before["runs"], before["records"],
    )  # fmt: skip
    world.pulse["record_n"] = before["records"] - 63
    state.counts["timer_n"] = before["timers"] - 1
    world.pulse["log_n"] = before["power_log"]
    grow(state, world, simulation.options)
    assert len(world.records) == int(before["records"] * 1.5) + 64
    assert len(state.timers) > before["timers"] and len(world.power_log) > before["power_log"]
    assert len(state.attempts) == before["attempts"]


def test_more_attempts_are_free_rows_before_the_old_ones() -> None:
    simulation = Simulation(tasks([1.0] * 3), nodes(node()), "fifo")
    state, old = simulation.state, len(simulation.state.attempts)
    state.counts["running"] = old // 2
    grow(state, simulation.world, simulation.options)
    assert len(state.attempts) == len(state.placed) == len(simulation.world.runs) == 2 * old
    free, row = [], int(state.counts.free_attempt[0])
    while row >= 0:
        free.append(row)
        row = int(state.attempts.next[row])
    assert free == [*range(old, 2 * old), *range(old)]
    assert np.all(state.attempts.task == -1)


def events(simulation: Simulation) -> list[tuple[float, int, int]]:
    rows = simulation.state.timers[: int(simulation.state.counts.timer_n[0])]
    return sorted((float(row.time), int(row.what), int(row.who)) for row in rows)


def test_a_world_taken_over_midway_knows_when_nodes_wake_fall_asleep_and_are_looked_at() -> None:
    """At 100 s: node 0 wakes until 130, node 1 should have woken at 90, node 2 falls asleep for 4 s more, node 3 has
    been idle for 45 of the 60 s after which it sleeps, node 4 longer than that, node 5 sleeps."""
    kind = node(power=PowerProfile((0.0, 1.0), (10.0, 20.0)), sleep=Sleep(1.0, 30.0, 4.0, after_s=60.0))
    simulation = Simulation(tasks([1.0], release=[1000.0]), nodes(*[kind] * 6), "fifo")
    state, world = simulation.state, simulation.world
    state.clock["now"] = 100.0
    state.nodes.power_state[:] = [WAKING, WAKING, FALLING, ON, ON, ASLEEP]
    state.nodes.on_at[:2] = [130.0, 90.0]
    state.nodes.idle_since[3:5] = [55.0, 10.0]
    take_over(state, world)
    assert events(simulation) == sorted([
        (130.0, agenda.WAKE_DONE, 0), (100.0, agenda.WAKE_DONE, 1), (104.0, agenda.FALL_DONE, 2),
        (115.0, agenda.SLEEP, 3), (100.0, agenda.SLEEP, 4),
    ])  # fmt: skip
    assert world.nodes.watts[3:].tolist() == [10.0, 10.0, 1.0]


def test_a_world_taken_over_midway_runs_what_is_left_of_the_attempts() -> None:
    """Tasks of 10, 4 and 20 s on two cores; at 3 s the first two have 7 and 1 s left and go on from there."""
    work = tasks([10.0, 4.0, 20.0])
    simulation = Simulation(work, nodes(node(2)), "fifo")
    simulation.advance(until_s=3.0)
    state = simulation.state
    state.clock["now"] = 3.0
    world = build_world(state, work, simulation.cluster, simulation.options, 0)
    state.clock["now"] = 3.0  # a new World begins at the first release
    world.pulse["next_arrival"] = 3
    world.runtime[:] = [7.0, 1.0, 20.0]
    take_over(state, world)
    simulation.world = world
    assert simulation.run().end_s_by_task().tolist() == [10.0, 4.0, 24.0]


def test_checked_runs_look_at_the_state_after_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []
    monkeypatch.setattr(jit, "CHECKED", True)
    monkeypatch.setattr(
        sys.modules["wattflow.sim.simulate"], "validate_state", lambda state: looked.append(float(state.clock.now[0]))
    )
    Simulation(tasks([2.0, 3.0], release=[0.0, 1.0]), nodes(node(2)), "fifo").run()
    assert sorted(set(looked)) == [0.0, 1.0, 2.0, 4.0]


def test_what_a_row_ended_in_before_does_not_count_for_its_next_attempt() -> None:
    """Rows whose last attempt ended while it waited for its node, used again for two tasks that wake one at once.

    The node sleeps from 3 s on and wakes in no time: the first placement wakes it, and whoever waits there goes on.
    The second is placed too, but has not begun, and must not be taken for one that waits.
    """
    kind = node(4, power=PowerProfile((0.0, 4.0), (10.0, 20.0)), sleep=Sleep(1.0, 0.0, after_s=1.0))
    work = tasks([2.0, 3.0, 3.0], release=[0.0, 10.0, 10.0])
    fresh, used = (Simulation(work, nodes(kind), "fifo") for _ in range(2))
    used.state.attempts["stage"] = WAITS
    assert used.run().attempts.tobytes() == fresh.run().attempts.tobytes()

"""Each mechanism on a case small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattflow.frames import frame as frames
from wattflow.frames import frame_run, library
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.frame_run import run_frame
from wattflow.model.cluster import Cluster, Network, Node
from wattflow.model.errors import InfeasibleTask
from wattflow.model.profile import PowerProfile
from wattflow.model.run import OUTCOMES, Run
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload

pytestmark = pytest.mark.slow  # the frames' kernel is compiled for no fast test: 18 s
PUSH = Frame("push", placers=frames.Placers(binding="early"), hosts=frames.Hosts(queue=True))


def hosts(count: int, cores: int = 1) -> Cluster:
    power = PowerProfile.from_form("linear", cores, 10.0, 10.0 + 5.0 * cores)
    network = Network(energy_j_per_byte=1e-6, bandwidth_bytes_per_s=1e6)
    return Cluster("c", tuple(Node(f"n{h}", cores, 1 << 30, power=power, network=network) for h in range(count)))


def tasks(*rows: tuple[float, float], **columns: Any) -> Workload:
    release, runtime = (np.array(side, np.float64) for side in zip(*rows))
    return Workload.of_columns("w", release_s=release, runtime_s=runtime, **columns)


def rows(run: Run, outcome: str = "done") -> list[tuple[int, float, float]]:
    chosen = run.attempts[run.attempts["outcome"] == OUTCOMES.index(outcome)]
    return [(int(r["task"]), round(float(r["start_s"]), 9), round(float(r["end_s"]), 9)) for r in chosen]


def test_messages_and_decisions_take_their_time() -> None:
    frame = Frame("x", messages=frames.Messages(Delay(0.1)), placers=frames.Placers(service=Delay(0.2)))
    run = run_frame(frame, tasks((0, 1), (0, 1)), hosts(2))
    # message, decision, message; the second decision waits for the first
    assert rows(run) == [(0, 0.4, 1.4), (1, 0.6, 1.6)]
    assert run.scalars["wait_placer_s"] == pytest.approx(0.2 + 0.4)


def test_d_samples_are_d_questions_and_d_answers_asked_at_once() -> None:
    placers = frames.Placers(rule="samples", samples=3, binding="early")
    frame = replace(PUSH, placers=placers, messages=frames.Messages(Delay(0.1), energy_j=2.0))
    run = run_frame(frame, tasks((0, 1), (5, 1)), hosts(4))
    # To the placer, question, answer, to the host: the three are asked at once.
    assert rows(run) == [(0, 0.4, 1.4), (1, 5.4, 6.4)]
    assert run.scalars["messages"] == 2 * (1 + 2 * 3 + 1)
    assert run.scalars["message_j"] == 2.0 * run.scalars["messages"]


def test_the_slowest_answer_of_all_samples_is_waited_for() -> None:
    latency = Delay(kind="choice", values_s=(0.0, 1.0), weights=(1.0, 1.0))
    work = tasks(*[(100.0 * k, 1.0) for k in range(400)])

    def mean_start_s(samples: int) -> float:
        placers = frames.Placers(rule="samples", samples=samples, binding="early")
        frame = replace(PUSH, placers=placers, messages=frames.Messages(latency))
        return float(np.mean(run_frame(frame, work, hosts(4)).attempts["start_s"] - work.release_s))

    # Two messages in a row take 1 s on average, two such pairs at once 1.375 s; two more messages 1 s.
    assert mean_start_s(1) == pytest.approx(2.0, abs=0.15)
    assert mean_start_s(2) == pytest.approx(2.375, abs=0.15)


def test_a_refresh_is_a_message_from_each_host_to_each_placer() -> None:
    frame = replace(
        PUSH, architecture="decentralised", placers=frames.Placers(count=3, binding="early", refresh_s=1.0),
    )  # fmt: skip
    run = run_frame(frame, tasks((0, 5.5)), hosts(4))
    # Five refreshes, the task to its placer and on to its host.
    assert run.scalars["messages"] == 5 * 4 * 3 + 2


def test_an_idle_placer_asks_and_is_answered_by_each_other() -> None:
    placers = frames.Placers(count=3, service=Delay(1.0), binding="early", route="hash")
    frame = replace(PUSH, architecture="decentralised", placers=placers)
    work = tasks(*[(0.0, 1.0)] * 4)
    # The tasks hash to placers 2, 2, 1 and 2: placer 0 asks both others and takes one of the two that wait at placer 2.
    run = run_frame(replace(frame, stealing=frames.Stealing(placers=2, retry_s=100.0)), work, hosts(4))
    assert run.scalars["placer_stolen"] == 1
    assert run.scalars["messages"] == 4 * 2 + 2 * 2 + 1


def test_a_broker_adds_its_queue_and_a_message() -> None:
    frame = Frame(
        "x", "delegated", messages=frames.Messages(Delay(0.1)), broker=frames.Broker(Delay(0.05)),
        placers=frames.Placers(count=2, service=Delay(0.2)),
    )  # fmt: skip
    assert rows(run_frame(frame, tasks((0, 1), (0, 1)), hosts(4))) == [(0, 0.55, 1.55), (1, 0.6, 1.6)]


def test_idle_hosts_steal() -> None:
    things = {"object": np.zeros(4, np.int32)}
    frame = replace(PUSH, placers=frames.Placers(rule="hash", binding="early"), architecture="decentralised")
    alone = run_frame(frame, tasks((0, 1), (0, 1), (0, 1), (0, 1), columns=things), hosts(2))
    assert alone.makespan_s == 4.0
    stolen = run_frame(
        replace(frame, stealing=frames.Stealing(hosts=1, retry_s=0.25)),
        tasks((0, 1), (0, 1), (0, 1), (0, 1), columns=things), hosts(2),
    )  # fmt: skip
    assert stolen.makespan_s == 2.25
    assert stolen.scalars["stolen"] == 2


def test_suspended_tasks_keep_their_progress_and_killed_ones_do_not() -> None:
    work = tasks((0, 5), (0.5, 1))
    preemption = frames.Preemption(after_s=2.0, resume_s=0.5, limit=1)
    run = run_frame(replace(PUSH, preemption=preemption), work, hosts(1))
    assert rows(run) == [(1, 2.0, 3.0), (0, 3.0, 6.5)]
    assert rows(run, "preempted") == [(0, 0.0, 2.0)]
    assert run.account_j("lost") == 0.0
    killed = run_frame(replace(PUSH, preemption=replace(preemption, kill=True)), work, hosts(1))
    assert rows(killed) == [(1, 2.0, 3.0), (0, 3.0, 8.5)]
    assert killed.account_j("lost") == pytest.approx(2.0 * 5.0)


def test_fair_share_preempts_only_for_a_poorer_job() -> None:
    preemption = frames.Preemption("fair-share", after_s=1.0, limit=1)
    work = tasks((0, 4), (0, 4), (0.5, 1), workflow=np.array([0, 0, 1], np.int32))
    run = run_frame(Frame("x", preemption=preemption), work, hosts(1, cores=2))
    assert (2, 1.0, 2.0) in rows(run)
    same = run_frame(
        Frame("x", preemption=preemption), replace(work, workflow=np.zeros(3, np.int32)), hosts(1, cores=2)
    )
    assert not rows(same, "preempted")


def test_the_loser_of_two_copies_costs_its_joules() -> None:
    work = tasks((0, 10), estimate_s=np.array([1.0]))
    run = run_frame(replace(PUSH, speculation=frames.Speculation(2.0)), work, hosts(2))
    assert rows(run) == [(0, 0.0, 10.0)]
    assert rows(run, "superseded") == [(0, 2.0, 10.0)]
    assert run.account_j("lost") == pytest.approx(8.0 * 5.0)
    assert run.scalars["copy_j"] == pytest.approx(40.0)


def test_caches_miss_once_and_forget_the_least_recent() -> None:
    data = frames.DataManager(cache_objects=2, fetch=Delay(0.5), object_bytes=1000.0)
    frame = replace(PUSH, metadata=frames.MetadataService(), data=data)
    things = {"object": np.array([0, 0, 1, 2, 0], np.int32)}
    run = run_frame(frame, tasks(*[(0, 1)] * 5, columns=things), hosts(1))
    assert (run.scalars["cache_hits"], run.scalars["cache_misses"]) == (1, 4)
    assert run.makespan_s == pytest.approx(5 + 4 * 0.5)
    assert run.account_j("transfer") == pytest.approx(4 * 1000 * 1e-6)


def test_intermediate_data_stay_with_the_parent() -> None:
    data = frames.DataManager(intermediate="local", fetch=Delay(0.25))
    edges = (np.array([0, 0], np.int32), np.array([1, 2], np.int32))
    work = tasks((0, 1), (0, 1), (0, 1), edges=edges, edge_bytes=np.array([1e6, 1e6]))
    local = run_frame(Frame("x", metadata=frames.MetadataService(), data=data), work, hosts(2))
    assert rows(local) == [(0, 0.0, 1.0), (1, 1.0, 2.0), (2, 2.0, 3.0)]
    stored = run_frame(
        Frame("x", metadata=frames.MetadataService(), data=replace(data, intermediate="stored")), work, hosts(2)
    )
    assert rows(stored)[1:] == [(1, 3.25, 4.25), (2, 3.25, 4.25)]


def test_hints_follow_the_data() -> None:
    data = frames.DataManager(cache_objects=5, fetch=Delay(0.5))
    things = {"object": np.array([0, 1, 1], np.int32)}
    work = tasks((0, 1), (0, 1), (5, 1), columns=things)
    frame = Frame("x", metadata=frames.MetadataService(), data=data)
    assert run_frame(frame, work, hosts(2, cores=2)).scalars["cache_misses"] == 3
    assert run_frame(replace(frame, hints=frames.Hints()), work, hosts(2, cores=2)).scalars["cache_misses"] == 2


def test_gangs_start_together() -> None:
    shapes = (Shape(0, (Variant(),)), Shape(0, (Variant(),), parts=2))
    work = tasks((0, 3), (1, 1), shapes=shapes, shape=np.array([0, 1], np.int32))
    run = run_frame(Frame("x", barriers=frames.Barriers()), work, hosts(2))
    assert rows(run) == [(0, 0.0, 3.0), (1, 3.0, 4.0), (1, 3.0, 4.0)]
    with pytest.raises(InfeasibleTask, match="no gangs"):
        run_frame(Frame("x"), work, hosts(2))


def test_levels_wait_for_the_whole_level_before() -> None:
    edges = (np.array([0], np.int32), np.array([2], np.int32))
    work = tasks((0, 1), (0, 4), (0, 1), edges=edges)
    assert (2, 1.0, 2.0) in rows(run_frame(Frame("x"), work, hosts(3)))
    barriers = frames.Barriers(gangs=False, levels=True)
    assert (2, 4.0, 5.0) in rows(run_frame(Frame("x", barriers=barriers), work, hosts(3)))


def test_hosts_are_switched_off_and_on_by_watermarks() -> None:
    elastic = frames.Elasticity(high=0.9, low=0.5, period_s=1.0, boot_s=2.0, off_w=1.0)
    frame = Frame("x", broker=frames.Broker(), elasticity=elastic)
    run = run_frame(frame, tasks((0, 10), *[(20, 5)] * 6), hosts(4))
    assert run.scalars["hosts_removed"] >= 3
    assert run.scalars["hosts_added"] >= 3
    assert run.account_j("sleep") > 0
    assert run.account_j("wake") == pytest.approx(run.scalars["hosts_added"] * 2.0 * 10.0)
    assert run.account_j("idle") < 40.0 * run.makespan_s


def test_lost_hosts_are_noticed_and_tasks_run_again() -> None:
    faults = frames.FaultTolerance(host_mtbf_s=3.0, host_repair_s=1.0, heartbeat_s=0.5, retries=1000)
    run = run_frame(
        Frame("x", metadata=frames.MetadataService(), faults=faults), tasks(*[(0, 1)] * 20), hosts(2), seed=3
    )
    assert run.finished.all()
    assert run.scalars["host_failures"] > 0
    assert run.account_j("lost") > 0


def test_retries_end() -> None:
    faults = frames.FaultTolerance(host_mtbf_s=0.5, host_repair_s=0.1, retries=2)
    run = run_frame(Frame("x", faults=faults), tasks((0, 50)), hosts(1))
    assert run.scalars["failed_tasks"] == 1
    assert len(run.attempts) == 3


def test_hybrid_keeps_long_tasks_off_the_reserved_hosts() -> None:
    frame = Frame(
        "x", "hybrid", placers=frames.Placers(count=2, rule="random", binding="early"), hosts=frames.Hosts(queue=True),
        split=frames.Split(5.0, 0.5),
    )  # fmt: skip
    run = run_frame(frame, tasks(*[(0, 10)] * 6), hosts(4))
    assert set(run.attempts["node"].tolist()) == {2, 3}


@pytest.mark.parametrize("name", library.frame_names())
def test_known_systems_run(name: str) -> None:
    frame = library.load_frame(name)
    things = {"object": (np.arange(60) % 7).astype(np.int32)}
    run = run_frame(frame, tasks(*[(k / 10, 0.5 + k % 3) for k in range(60)], columns=things), hosts(6, cores=2))
    assert run.finished.all()
    shown = frame_run.tail(run)
    assert 1.0 <= shown["p50"] <= shown["p99"] <= shown["p99.9"]
    assert all(value >= 0 for value in frame_run.waits_s(run).values())


def test_an_empty_workload_is_a_run() -> None:
    run = run_frame(Frame("x"), Workload.of_columns("w", release_s=np.zeros(0), runtime_s=np.zeros(0)), hosts(2))
    assert len(run.attempts) == 0
    assert run.makespan_s == 0.0

"""Laws of planning policies: what is planned is what is simulated, and nothing beats a lower bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattflow.model.cluster import Cluster, Device, Frequency, Network, Node, Sleep
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Variant
from wattflow.model.workload import Shape, Workload
from wattflow.plan import relaxation
from wattflow.policy import arrivals, registry
from wattflow.policy.base import Policy
from wattflow.sim import simulate

LIST = ("heft", "peft", "cpop")
RECLAIM = ("eheft", "dewts")
SHORT = 1e-4
"""Tasks that take no time are planned a microsecond long."""
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def random_workload(seed: int, cores=(1.0,), data: bool = False, memory: int = 0) -> Workload:
    """One to three workflows of random edges, released at random times; some tasks take no time at all."""
    random = np.random.default_rng(seed)
    flows = int(random.integers(1, 4))
    sizes = random.integers(1, 13, flows)
    parents, children, base = [], [], 0
    for size in sizes.tolist():
        for child in range(1, size):
            for parent in range(child):
                if random.random() < 1.5 / child:
                    parents.append(base + parent)
                    children.append(base + child)
        base += size
    workflow = np.repeat(np.arange(flows), sizes)
    runtime = random.uniform(1.0, 20.0, base) * (random.random(base) > 0.1)
    shapes = [Shape(0, (Variant(cores=c, memory_bytes=int(random.integers(0, memory + 1))),)) for c in cores]
    edges = (np.array(parents, np.int32), np.array(children, np.int32)) if parents else None
    extra: dict[str, Any] = (
        {"edge_bytes": random.uniform(0.0, 50.0, len(parents)) * (random.random(len(parents)) > 0.3)} if data else {}
    )
    return Workload.of_columns(
        "random",
        release_s=(random.uniform(0.0, 30.0, flows) * (np.arange(flows) > 0))[workflow],
        runtime_s=runtime,
        workflow=workflow,
        shapes=shapes,
        shape=random.integers(0, len(cores), base),
        edges=edges,
        **(extra if parents else {}),
    )


def random_cluster(seed: int, cores: int = 4, link: float = 5.0) -> Cluster:
    """Nodes that differ in cores, threads, speed, watts, frequency levels and sleep."""
    random = np.random.default_rng(seed)
    nodes = []
    for n in range(int(random.integers(1, 6))):
        own = int(random.integers(1, cores + 1))
        idle = float(random.uniform(5, 50))
        nodes.append(
            Node(
                f"n{n}",
                cores=own,
                memory_bytes=100,
                threads_per_core=int(random.integers(1, 3)),
                speed=float(random.choice([0.5, 1.0, 1.7])),
                power=PowerProfile((0.0, own / 2, float(own)), (idle, idle + 20 * own, idle + 30 * own)),
                network=Network(link, latency_s=float(random.choice([0.0, 0.5]))),
                frequencies=(Frequency(), Frequency(0.8, 0.5), Frequency(0.5, 0.2))[: int(random.integers(1, 4))],
                sleep=Sleep(2.0, 5.0) if random.random() < 0.3 else None,
            )
        )
    return Cluster("random", tuple(nodes))


def planned(policy: Policy, workload: Workload, cluster: Cluster):
    return arrivals.plans(policy, workload, cluster)


@pytest.mark.parametrize("name", LIST)
@few
@given(st.integers(0, 10**6))
def test_one_core_tasks_start_exactly_when_planned(name, seed):
    workload, cluster = random_workload(seed), random_cluster(seed + 1)
    policy = registry.load(name, smt=0)
    run = simulate(workload, cluster, policy)
    assert run.start_s_by_task() == pytest.approx(planned(policy, workload, cluster).order, abs=SHORT)


@pytest.mark.parametrize("name", LIST)
@few
@given(st.integers(0, 10**6))
def test_transfers_into_nodes_of_one_core_are_planned_exactly(name, seed):
    workload, cluster = random_workload(seed, data=True), random_cluster(seed + 1, cores=1)
    policy = registry.load(name, smt=0)
    run = simulate(workload, cluster, policy)
    taken = np.full(len(workload), np.inf)
    np.minimum.at(taken, run.attempts["task"], run.attempts["placed_s"])
    assert taken == pytest.approx(planned(policy, workload, cluster).order, abs=SHORT)


@pytest.mark.parametrize("name", LIST + RECLAIM)
@few
@given(st.integers(0, 10**6))
def test_no_task_starts_later_than_planned_whatever_it_needs(name, seed):
    workload = random_workload(seed, cores=(0.5, 1.0, 2.0, 3.0), memory=60)
    wide = Node("wide", cores=4, memory_bytes=100, power=PowerProfile((0.0, 4.0), (10.0, 90.0)))
    cluster = random_cluster(seed + 1)
    cluster = Cluster("random", (*cluster.nodes, wide))
    run = simulate(workload, cluster, name)
    assert run.finished.all()
    assert (run.start_s_by_task() <= planned(registry.load(name), workload, cluster).order + SHORT).all()


@pytest.mark.parametrize("name", RECLAIM)
@few
@given(st.integers(0, 10**6))
def test_reclaimed_slack_does_not_delay_its_workflow(name, seed):
    workload, cluster = random_workload(seed), random_cluster(seed + 1)
    # On physical cores HEFT ends exactly when planned, and that end is the limit.
    before, after = (simulate(workload, cluster, registry.load(policy, smt=0)) for policy in ("heft", name))
    # Those that arrive later find other slots taken than after HEFT, so the first tells.
    mine = workload.workflow == int(np.argmin(workload.workflow_submit_s))
    assert after.end_s_by_task()[mine].max() <= before.end_s_by_task()[mine].max() + SHORT


@pytest.mark.parametrize("name", [n for n in registry.names() if n != "nsga2"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_no_policy_beats_a_bound(name, seed):
    workload, cluster = random_workload(seed, data=True), random_cluster(seed + 1)
    run = simulate(workload, cluster, name)
    assert run.makespan_s >= relaxation.makespan_bound_s(workload, cluster) - 1e-6
    assert run.total_j >= relaxation.energy_bound_j(workload, cluster) * (1 - 1e-9) - 1e-6


@pytest.mark.parametrize("name", LIST + RECLAIM)
@pytest.mark.parametrize("sharing", ["exclusive", "mps", "time-slice"])
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_device_tasks_are_planned_on_devices(name, sharing, seed):
    random = np.random.default_rng(seed)
    count = 20
    shapes = [
        Shape(0, (Variant(cores=1),)),
        Shape(0, (Variant("gpu", 1, device="gpu", devices=1, device_share=0.5, runtime_factor=0.2), Variant(cores=1))),
        Shape(0, (Variant("gpus", 1, device="gpu", devices=2),)),
    ]
    workload = Workload.of_columns(
        "devices",
        release_s=np.zeros(count),
        runtime_s=random.uniform(1, 10, count),
        shapes=shapes,
        shape=random.integers(0, 3, count),
        edges=(np.arange(0, 10, dtype=np.int32), np.arange(10, 20, dtype=np.int32)),
    )
    gpu = Device("gpu", sharing=sharing, slots=2, power=DeviceProfile())
    nodes = (Node("g", 4, 0, devices=(gpu, gpu)), Node("c", 2, 0, speed=2.0))
    cluster = Cluster("devices", nodes)
    run = simulate(workload, cluster, name)
    assert run.finished.all()
    if sharing != "time-slice":  # The engine picks the device, and may give one task's turn to another's.
        assert (run.start_s_by_task() <= planned(registry.load(name), workload, cluster).order + SHORT).all()

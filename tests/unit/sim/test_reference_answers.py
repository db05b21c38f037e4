"""The other independent answers, the case generator and the comparison."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reference import mmc
from reference.cases import FEATURES, random_case
from reference.compare import assert_same, differences
from reference.facts import Options, Result
from reference.hand import node, nodes, tasks
from reference.opendc_rounds import opendc_rounds, read_hosts, read_jobs
from reference.policies import POLICIES
from reference.simulator import Simulation, simulate
from wattflow.model.cluster import Cluster
from wattflow.model.profile import PowerProfile
from wattflow.model.run import ATTEMPT, OUTCOMES, Run
from wattflow.model.workload import Workload


def as_run(workload: Workload, cluster: Cluster, result: Result) -> Run:
    rows = np.zeros(len(result.records), ATTEMPT)
    for row, record in zip(rows, result.records, strict=True):
        for name in ATTEMPT.names or ():
            if name not in ("outcome", "marginal_j"):
                row[name] = getattr(record, name)
        row["outcome"] = OUTCOMES.index(record.outcome)
    return Run(
        workload, cluster, "fifo", rows, result.energy_j, result.carbon_g, result.cost, result.peak_w,
        result.makespan_s,
    )  # fmt: skip


def test_erlang_c_of_one_server_is_its_load() -> None:
    assert mmc.erlang_c(1, 0.6, 1.0) == pytest.approx(0.6)
    assert mmc.mean_wait_s(1, 0.6, 1.0) == pytest.approx(0.6 / 0.4)
    assert mmc.wait_quantile_s(1, 0.6, 1.0, 0.3) == 0
    assert mmc.wait_quantile_s(1, 0.6, 1.0, 0.9) == pytest.approx(math.log(6) / 0.4)


def test_erlang_c_of_two_servers_by_its_sum() -> None:
    # C = (a²/2) · 2/(2 − a) / (1 + a + (a²/2) · 2/(2 − a)), a = 1.2
    tail = 1.2**2 / 2 * 2 / 0.8
    assert mmc.erlang_c(2, 1.2, 1.0) == pytest.approx(tail / (1 + 1.2 + tail))
    with pytest.raises(ValueError, match="too few"):
        mmc.erlang_c(2, 2.0, 1.0)


def test_the_reference_waits_as_erlang_says() -> None:
    rng = np.random.default_rng(5)
    count, servers, load = 4000, 3, 0.6
    work = tasks(rng.exponential(1.0, count).tolist(), release=np.cumsum(rng.exponential(1 / (servers * load), count)))
    result = simulate(work, nodes(node(servers)), POLICIES["fifo"])
    waits = [r.start_s - r.ready_s for r in sorted(result.records, key=lambda r: r.task)]
    low, high = mmc.confidence_interval(waits)
    assert low <= mmc.mean_wait_s(servers, servers * load, 1.0) <= high


@pytest.mark.parametrize("kind", ["indep", "dag"])
def test_opendc_rounds_keep_their_rule(data_dir: Path, kind: str) -> None:
    folder = data_dir / "opendc_sample" / kind
    found = opendc_rounds(folder)
    hosts, by_number = read_hosts(folder), {job.number: job for job in found.jobs}
    assert len(hosts) == 64
    assert all(job.start_ms % 1000 == 0 and job.start_ms >= job.submit_ms for job in found.jobs)
    assert all(by_number[p].end_ms <= job.start_ms for job in found.jobs for p in job.parents)
    edges = sorted(
        [(job.start_ms, 1, job.host) for job in found.jobs] + [(job.end_ms, 0, job.host) for job in found.jobs]
    )
    busy = [0] * len(hosts)
    for _, starts, host in edges:
        busy[host] += 1 if starts else -1
        assert 0 <= busy[host] <= 4
    core_s = sum(job.duration_ms for job in found.jobs) / 1000
    assert found.energy_j == pytest.approx(64 * 100 * found.makespan_s + 100 * core_s / 4)


def test_the_reference_in_rounds_is_the_opendc_loop(data_dir: Path) -> None:
    folder = data_dir / "opendc_sample" / "indep"
    jobs = read_jobs(folder)[:400]
    work = tasks([job.duration_ms / 1000 for job in jobs], release=[job.submit_ms / 1000 for job in jobs])
    curve = PowerProfile((0.0, 4.0), (100.0, 200.0))
    cluster = nodes(*(node(4, memory_bytes=10**9, power=curve) for _ in range(64)))
    result = simulate(work, cluster, POLICIES["fifo"], Options(round_s=1.0))
    loop = {job.number: job for job in opendc_rounds(folder).jobs}
    for record in result.records:
        assert record.start_s == loop[record.task].start_ms / 1000


def test_energy_accounts_sum_to_the_power_curve_in_random_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(POLICIES)
    for seed in range(60):
        workload, cluster, options = random_case(seed)
        simulation = Simulation(workload, cluster, POLICIES[names[seed % len(names)]], options)
        total_j = np.zeros(len(cluster.nodes))
        plain_add = simulation.meter.add

        def add(from_s: float, to_s: float, simulation=simulation, total_j=total_j, plain_add=plain_add) -> None:
            for live in simulation.nodes:
                base_w, _, shares = live.power()
                total_j[live.index] += (base_w + sum(w for _, w in shares)) * (to_s - from_s)
            plain_add(from_s, to_s)

        monkeypatch.setattr(simulation.meter, "add", add)
        result = simulation.run()
        moved_j = np.zeros(len(cluster.nodes))
        for record in result.records:
            moved_j[record.node] += record.transfer_j
        assert result.energy_j.sum(axis=1) == pytest.approx(total_j + moved_j)
        assert (result.energy_j >= -1e-6).all()


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_alone_runs_to_its_end(feature: str) -> None:
    for seed in range(4):
        workload, cluster, options = random_case(seed, {feature, "dag", "arrivals"})
        result = simulate(workload, cluster, POLICIES["fifo"], options)
        done = {r.task for r in result.records if r.outcome == "done"}
        assert done | set(result.abandoned) == set(range(len(workload)))
        for record in result.records:
            if record.outcome == "done":
                assert record.ready_s <= record.placed_s <= record.start_s <= record.end_s
                waited_s = record.message_s + record.wake_s + record.cold_s + record.data_s
                assert record.placed_s + waited_s == pytest.approx(record.start_s)


def test_a_case_is_the_same_every_time() -> None:
    first, second = (simulate(*random_case(3)[:2], POLICIES["fifo"], random_case(3)[2]) for _ in range(2))
    assert first.records == second.records
    with pytest.raises(ValueError, match="no features named"):
        random_case(0, {"magic"})


def test_comparison_accepts_itself_and_names_what_differs() -> None:
    workload, cluster, options = random_case(2, {"dag", "transfers", "cold", "carbon"})
    result = simulate(workload, cluster, POLICIES["fifo"], options)
    run = as_run(workload, cluster, result)
    assert_same(run, result)
    late = run.attempts.copy()
    late["end_s"][0] += 1e-4
    energy_j = run.energy_j * 1.001
    found = differences(replace(run, attempts=late, energy_j=energy_j), result)
    assert any("end_s" in text for text in found)
    assert any("idle" in text for text in found)
    with pytest.raises(AssertionError, match="differences"):
        assert_same(replace(run, attempts=late[1:]), result)

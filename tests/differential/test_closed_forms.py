"""The engine against closed forms and independent loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reference import mmc
from reference.engine_side import POLICIES
from reference.hand import node, nodes, tasks
from reference.opendc_rounds import opendc_rounds
from research import opendc_topology
from wattflow import traces
from wattflow.model.profile import PowerProfile
from wattflow.sim import SimOptions, simulate

FIFO = POLICIES["fifo"]


@pytest.mark.parametrize(("hosts", "servers", "load", "seed"), [(1, 1, 0.7, 1), (1, 4, 0.8, 2), (8, 2, 0.85, 3)])
def test_waiting_times_are_those_of_erlang(hosts: int, servers: int, load: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, rate = 60_000, 0.5
    arrivals = rate * hosts * servers * load
    work = tasks(rng.exponential(1 / rate, count).tolist(), release=np.cumsum(rng.exponential(1 / arrivals, count)))
    run = simulate(work, nodes(*[node(servers)] * hosts), FIFO)
    rows = run.attempts[np.argsort(run.attempts["task"])]
    waits = rows["start_s"] - rows["ready_s"]
    low, high = mmc.confidence_interval(waits, level=0.99)
    assert low <= mmc.mean_wait_s(hosts * servers, arrivals, rate) <= high
    low, high = mmc.confidence_interval(waits > 1e-12, level=0.99)
    assert low <= mmc.erlang_c(hosts * servers, arrivals, rate) <= high


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_linear_hosts_use_idle_watts_and_a_constant_for_each_core_second(name: str) -> None:
    """E = Σ P(0) · makespan + Σ (P(H) − P(0))/H · cores · runtime, whatever the placement, on equal hosts."""
    rng = np.random.default_rng(7)
    runtimes = rng.lognormal(1, 1, 500)
    curve = PowerProfile.from_form("linear", 8, 60.0, 220.0)
    work = tasks(runtimes.tolist(), release=rng.uniform(0, 100, 500))
    run = simulate(work, nodes(*[node(8, power=curve)] * 5), POLICIES[name])
    assert run.account_j("idle") == pytest.approx(5 * 60.0 * run.makespan_s, rel=1e-12)
    assert run.account_j("run") == pytest.approx(20.0 * runtimes.sum(), rel=1e-9)
    assert run.total_j == pytest.approx(5 * 60.0 * run.makespan_s + 20.0 * runtimes.sum(), rel=1e-9)


def test_a_job_alone_takes_82_seconds_and_half_as_long_again_on_busy_threads() -> None:
    """The HPE paper's measurement: 82 s alone, about 1.5 × that with all 96 hardware threads of a node busy."""
    host = nodes(node(48, threads_per_core=2, smt_slowdown=1.5))
    for jobs, seconds in ((1, 82.0), (48, 82.0), (96, 123.0)):
        run = simulate(tasks([82.0] * jobs), host, FIFO)
        assert run.attempts["end_s"] == pytest.approx(seconds, rel=1e-12)
    # Between: 72 jobs get X = 48 + 24 · (64 − 48)/48 = 56 cores' worth, 56/72 each.
    assert simulate(tasks([82.0] * 72), host, FIFO).makespan_s == pytest.approx(82 * 72 / 56, rel=1e-12)


def test_a_guarantee_of_80_per_cent_lets_a_quarter_more_jobs_start() -> None:
    """The 80 % rule: 96 threads take 96 requests, or 120 at 80 %; then all progress at 64/120 of a core."""
    host = nodes(node(48, threads_per_core=2, smt_slowdown=1.5))
    work = tasks([82.0] * 120)
    asked = simulate(work, host, FIFO)
    assert np.count_nonzero(asked.attempts["placed_s"] == 0) == 96
    dialled = simulate(work, host, FIFO.with_settings(guarantees=(0.8,)))
    assert (dialled.attempts["placed_s"] == 0).all()
    assert dialled.makespan_s == pytest.approx(82 * 120 / 64, rel=1e-12)


@pytest.mark.data
@pytest.mark.parametrize("kind", ["indep", "dag"])
def test_the_opendc_sample_in_rounds_of_a_second(data_dir: Path, kind: str) -> None:
    """Every task needs one core of four, so that the host with the fewest tasks is the least loaded one."""
    folder = data_dir / "opendc_sample" / kind
    loop = opendc_rounds(folder)
    workload, cluster = traces.load(folder), opendc_topology.read_topology(folder / "topology.json")
    run = simulate(workload, cluster, FIFO, options=SimOptions(round_s=1.0))
    assert run.makespan_s == pytest.approx(loop.makespan_s, rel=1e-3)
    assert run.total_j == pytest.approx(loop.energy_j, rel=1e-3)
    # The reader counts from the first submission; on the file's own clock, where the rounds lie, all starts agree.
    jobs = sorted(loop.jobs, key=lambda job: job.number)
    assert [int(workload.task_id(t)) for t in range(len(workload))] == [job.number for job in jobs]
    own_clock = replace(workload, release_s=np.array([job.submit_ms / 1000 for job in jobs]))
    run = simulate(own_clock, cluster, FIFO, options=SimOptions(round_s=1.0))
    assert run.start_s_by_task() == pytest.approx([job.start_ms / 1000 for job in jobs], abs=1e-6)
    assert (run.makespan_s, run.total_j) == pytest.approx((loop.makespan_s, loop.energy_j), rel=1e-9)

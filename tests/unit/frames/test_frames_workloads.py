"""The generator keeps what is published of the traces; the command explains frames."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from wattflow.frames import frame as frames
from wattflow.frames import workloads
from wattflow.frames.frame_run import run_frame
from wattflow.model.errors import InvalidInput

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import stable_trace


def test_traces_differ_and_come_back_the_same() -> None:
    first, cluster = workloads.ibm_like(3, 2000)
    again, _ = workloads.ibm_like(3, 2000)
    other, _ = workloads.ibm_like(4, 2000)
    assert np.array_equal(first.release_s, again.release_s)
    assert np.array_equal(first.columns["object"], again.columns["object"])
    assert not np.array_equal(first.runtime_s, other.runtime_s)
    assert (np.diff(first.release_s) >= 0).all()
    assert len(cluster.nodes) * 4 == cluster.total_cores


def test_every_trace_has_its_own_cluster_of_15_to_31_hosts() -> None:
    sizes = [len(workloads.ibm_like(k, 10)[1].nodes) for k in range(workloads.TRACES)]
    assert min(sizes) >= 15
    assert max(sizes) <= 31
    assert len(set(sizes)) > 10


@pytest.mark.parametrize("trace", [0, 20, 53])
def test_loads_are_between_a_half_and_three_quarters(trace: int) -> None:
    workload, cluster = workloads.ibm_like(trace, 100_000)
    span = workload.release_s[-1] - workload.release_s[0]
    load = workload.runtime_s.sum() / (cluster.total_cores * span)
    assert 0.4 < load < 0.75


def test_the_headline_trace() -> None:
    workload, cluster = workloads.skewed(100_000)
    assert cluster.total_cores == 80
    assert workload.runtime_s.mean() == pytest.approx(1.0, rel=0.02)
    share = np.bincount(workload.columns["object"], minlength=5000).max() / 100_000
    expected = 1 / (np.arange(1, 5001) ** -0.9).sum()
    assert share == pytest.approx(expected, rel=0.1)
    load = workload.runtime_s.sum() / (80 * workload.release_s[-1])
    assert load == pytest.approx(0.7, rel=0.02)


@pytest.mark.parametrize("hash", ["ring", "rendezvous"])
def test_a_stable_trace_offers_the_hottest_host_nine_tenths(hash: str) -> None:
    workload, cluster, skew = stable_trace.stable(20_000, hash=hash)
    placers = frames.Placers(rule="hash", hash=hash, binding="early")
    run = run_frame(
        frames.Frame("h", "decentralised", placers=placers, hosts=frames.Hosts(queue=True)), workload, cluster
    )
    work = np.bincount(run.attempts["node"], run.attempts["end_s"] - run.attempts["start_s"], minlength=20)
    assert work.max() / (4 * workload.release_s[-1]) == pytest.approx(0.9, abs=0.02)
    assert 0.0 < skew < 2.0


def test_no_skew_is_weak_enough_for_a_cool_hottest_host() -> None:
    with pytest.raises(InvalidInput, match="without skew"):
        stable_trace.stable(5_000, hottest=0.5)


def test_a_trace_that_does_not_exist() -> None:
    with pytest.raises(InvalidInput, match="0 to 53"):
        workloads.ibm_like(54)


@pytest.mark.data
def test_real_invocations(data_dir: Path) -> None:
    workload = workloads.azure_2021(data_dir)
    assert len(workload) > 100
    assert (workload.runtime_s > 0).all()
    assert workload.columns["object"].max() > 5


def test_the_command_lists_explains_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    from wattflow.cli.lab_commands import frames

    frames()
    assert "sparrow" in capsys.readouterr().out
    frames("hawk")
    shown = capsys.readouterr().out
    assert "work stealing" in shown
    assert "ATC 2015" in shown
    frames(mechanisms=True)
    assert "preemption" in capsys.readouterr().out
    frames("hash", source=True)
    assert 'rule = "hash"' in capsys.readouterr().out

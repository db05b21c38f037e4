"""The judge: draws of ties, one horizon, what counts as kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research import judge
from research.judge import Judge, Outcome, Stream
from wattflow.clusters import load_cluster
from wattflow.generate import Recipe
from wattflow.sim import SimOptions, simulate

PARTS = tuple(Recipe.parse("fork-join:tasks=6,mean=60s").draw(seed) for seed in range(3))


def stream(load: float = 0.3, workflows: int = 12) -> Stream:
    return Stream(PARTS, load_cluster("equal"), load, seed=3, workflows=workflows)


@pytest.fixture(scope="module")
def judged() -> Judge:
    return Judge(stream(), draws=3)


def test_the_reference_is_itself(judged: Judge) -> None:
    found = judged.verdict("kubernetes")
    assert (found.mean, found.p95) == (1.0, 1.0)
    assert found.energy == pytest.approx(1.0, abs=1e-9)
    assert found.kept


def test_joules_end_with_the_reference_however_soon_a_policy_ends(judged: Judge) -> None:
    """All nodes on and nothing asleep: who ends sooner draws idle watts until the reference's end."""
    base = replace(judged.base[0], end_s=judged.base[0].end_s + 50.0)
    known = judge.followed(judged.workload, 2 * base.end_s)
    run = simulate(known, judge.shuffled(judged.stream.cluster, 0), "eft", options=SimOptions(record_power=True))
    short = judge.outcome_of(run, len(judged.workload.workflow_names), base.end_s)
    longer = judge.outcome_of(run, len(judged.workload.workflow_names), base.end_s + 100.0)
    idle_w = sum(node.power.idle_w for node in judged.stream.cluster.nodes if node.power)
    assert short.end_s < base.end_s
    assert longer.energy_j - short.energy_j == pytest.approx(100.0 * idle_w)


def test_a_later_end_is_charged_and_the_reference_idles_as_long(judged: Judge) -> None:
    late = [replace(one, end_s=one.end_s + 1000.0) for one in judged.base]
    found = judged._beside("late", late, judged.base)
    assert found.energy < 1.0


def test_draws_of_ties_are_drawn_by_their_number(judged: Judge) -> None:
    again = Judge(stream(), draws=3)
    assert [one.energy_j for one in again.base] == [one.energy_j for one in judged.base]
    assert len({tuple(node.name for node in judge.shuffled(judged.stream.cluster, d).nodes) for d in range(3)}) == 3


def outcome(seconds: float, late: bool = False) -> Outcome:
    return Outcome(np.full(20, seconds), 1.0, 100.0, np.full(20, late), np.zeros(20))


@pytest.mark.parametrize(
    ("ours", "late", "kept"),
    [((102, 102), False, True), ((103, 103), False, False), ((101, 105), False, True), ((100, 100), True, False)],
)
def test_kept_is_the_bound_within_two_standard_errors(
    judged: Judge, ours: tuple[float, float], late: bool, kept: bool
) -> None:
    base = [outcome(100.0), outcome(100.0)]
    assert judged._beside("x", [outcome(seconds, late) for seconds in ours], base).kept is kept


def test_estimates_of_each_kind(judged: Judge) -> None:
    truth = judged.workload.runtime_s
    assert np.isnan(judge.estimated(judged.workload, "unknown", 0).estimate_s).all()
    assert judge.estimated(judged.workload, "exact", 0).estimate_s == pytest.approx(truth)
    assert np.median(judge.estimated(judged.workload, "biased", 0).estimate_s / truth) == pytest.approx(2.0, rel=0.15)


def test_a_doubtful_stream_is_made_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "ERROR", -1.0)
    monkeypatch.setattr(judge, "LONGEST", 24)
    assert Judge(stream(workflows=6), draws=2).stream.workflows == 24


def test_a_growing_backlog_has_another_reference() -> None:
    many = stream(load=3.0, workflows=80)
    one_node = replace(many, cluster=replace(many.cluster, nodes=many.cluster.nodes[:1]))
    found = Judge(one_node, draws=2)
    assert found.reference == "eft" and found.grows
    assert not Judge(stream(load=0.1, workflows=24), draws=2).grows


def test_workflows_that_do_not_wait_are_no_backlog_however_many_are_open() -> None:
    """They come within a second and all have room, so each takes its critical path and all are open at the end."""
    found = Judge(stream(load=30.0, workflows=40), draws=2)
    response_s = np.mean([one.response_s for one in found.base], axis=0)
    assert response_s.min() > found.workload.workflow_submit_s[-1]
    path_s = (found.workload.deadline_s - found.workload.release_s) / judge.SLACK
    assert response_s[found.workload.workflow] == pytest.approx(path_s, rel=0.01)
    assert found.reference == "kubernetes" and not found.grows

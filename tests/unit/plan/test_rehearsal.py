"""Rehearsals: which dials are chosen, from what is known at the first arrival, and when none are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.plan import joining, measured, rehearsal
from wattflow.plan.measured import Result
from wattflow.plan.rehearsal import Tried
from wattflow.policy import arrivals, registry
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate
from wattflow.sim.simulate import Simulation

CLUSTER = load_cluster("mixed")
FEW = [dict(rehearsal.settings()[i]) for i in (0, 2, 5)]


@pytest.fixture(scope="module")
def stream() -> Workload:
    """Eight workflows, one after the other."""
    one = generate.workload("montage", 30, 1)
    return joining.joined([one] * 8, np.arange(0.0, 1600.0, 200.0), CLUSTER, 4.0, "stream")


def first_of(workload: Workload) -> list[Workload]:
    """The workflow that arrives first, alone."""
    return [next(arrivals.workflows(workload))[1]]


def test_what_is_compared_is_joules_and_a_fine_for_waiting() -> None:
    usual = Result(100.0, 10.0, 20.0, 30.0)

    def judged(mean_s: float, p95_s: float, makespan_s: float, *missed: int) -> tuple[float, ...]:
        ours = Result(50.0, mean_s, p95_s, makespan_s, frozenset(missed))
        total, energy, slower = rehearsal.cost(ours, usual, usual)
        return total - energy, energy, slower

    assert judged(9.6, 19.0, 30.0) == pytest.approx((0.0, np.log(0.5), 1.0))  # a makespan as long as theirs is no delay
    assert judged(10.0, 19.0, 30.0) == pytest.approx((0.5, np.log(0.5), 1.0))
    assert judged(9.0, 20.0, 30.0)[0] == judged(9.0, 18.0, 31.2)[0] == pytest.approx(0.5)
    assert judged(9.0, 18.0, 60.0) == pytest.approx((1.0 + 0.5 * 0.92, np.log(0.5), 2.0))
    assert judged(9.0, 18.0, 900.0)[0] == pytest.approx(1.5)  # one bad stream does not outweigh all others
    assert judged(9.0, 18.0, 27.0, 3)[0] == pytest.approx(1.0)
    assert judged(9.0, 18.0, 60.0, 3)[0] == pytest.approx(1.46)
    excused = Result(50.0, 9.0, 18.0, 27.0, frozenset({3}))
    assert rehearsal.cost(excused, usual, excused)[0] == pytest.approx(np.log(0.5))


def test_the_rehearsed_stream_has_the_load_and_the_deadlines_of_what_is_known(stream: Workload) -> None:
    known = first_of(stream)
    assert len(known) == 1
    drawn = [rehearsal.stream_of(known, CLUSTER, 0.5, seed) for seed in range(200)]
    work_s = joining.core_seconds(known[0])
    gap_s = np.mean([np.diff(one.workflow_submit_s).mean() for one in drawn])
    assert work_s / gap_s / joining.capacity(CLUSTER) == pytest.approx(0.5, rel=0.05)
    first = drawn[0]
    assert first.deadline_s[0] - first.workflow_submit_s[0] == pytest.approx(stream.deadline_s[0])
    assert len(first.workflow_names) == 400 // 30


def test_the_best_of_the_rehearsal_is_used_and_nothing_of_the_future(stream: Workload) -> None:
    options = SimOptions(runtime_error=0.2)
    used = Simulation(stream, CLUSTER, rehearsal.REHEARSED.with_params(load=0.3), seed=2, options=options).policy
    usual = rehearsal.reference(0.3)
    tries = rehearsal.distinct([*rehearsal.settings(), usual, *rehearsal.leaning(usual)], rehearsal.REHEARSED.params)
    assert len(tries) == 28 + 6  # the portfolio's own is one of the 28
    noise = np.random.default_rng([2, 11]).normal(0.0, 0.2, len(stream))  # as the simulator draws estimates
    known = first_of(stream.with_estimates(stream.estimate_s * np.exp(noise)))
    base = replace(rehearsal.REHEARSED, tailor=None)
    best = rehearsal.rehearse(known, CLUSTER, 0.3, base, tries)[0]
    assert {name: used.params[name] for name in best.dials} == dict(best.dials)
    assert used.tailor is None
    # Another future, the same choice.
    factor = np.where(stream.workflow == 0, 1.0, 3.0)
    later = replace(stream, runtime_s=stream.runtime_s * factor, estimate_s=stream.estimate_s * factor)
    assert (
        Simulation(later, CLUSTER, rehearsal.REHEARSED.with_params(load=0.3), seed=2, options=options).policy.params
        == used.params
    )


def test_finalists_are_tried_on_all_streams_and_come_first(stream: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "ROUNDS", (2, 1, 1))
    monkeypatch.setattr(rehearsal, "STREAMS", 1)
    base = replace(rehearsal.REHEARSED, tailor=None)
    found = rehearsal.rehearse(first_of(stream), CLUSTER, 0.6, base, FEW)
    assert [one.streams for one in found] == [3, 2, 1]
    known = first_of(stream)
    seeds = []
    for seed in range(3):
        drawn = rehearsal.stream_of([rehearsal.small(w) for w in known], CLUSTER, 0.6, seed)
        usual, punctual, ours = (
            measured.measure(drawn, CLUSTER, policy, seed, SimOptions(runtime_error=rehearsal.SPREAD))
            for policy in ("kubernetes", "eft:sleep=120", base.with_params(**found[0].dials))
        )
        seeds.append(rehearsal.cost(ours, usual, punctual))
    each = np.array([one[0] for one in seeds])
    assert found[0].cost == pytest.approx(each.mean() + rehearsal.RISK * each.std())
    assert found[0].slower == pytest.approx(np.mean([one[2] for one in seeds]))


def test_it_is_done_again_with_what_has_arrived_since(stream: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[float, list[float]]] = []

    def rehearse(
        known: Sequence[Workload], cluster: Cluster, load: float, base: Policy, tries: object, beside: object = None
    ) -> list[Tried]:
        shown.append((load, [float(one.workflow_submit_s[0]) for one in known]))
        return [Tried({"second": 2.0 + len(shown)}, 0.0, 1.0, 1.0, 1)]

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    simulate(stream, CLUSTER, rehearsal.REHEARSED.with_params(load=0.3), seed=1)
    submit_s = stream.workflow_submit_s.tolist()
    assert shown == [(0.3, submit_s[:count]) for count in (1, 2, 4, 8)]
    shown.clear()
    monkeypatch.setattr(rehearsal, "RECENT", 3)
    simulate(stream, CLUSTER, rehearsal.REHEARSED.with_params(load=0.0), seed=1)  # a batch: at every arrival
    assert shown == [(0.0, submit_s[max(0, count - 3) : count]) for count in range(1, 9)]


def test_sure_leaves_the_portfolios_setting_only_for_one_that_is_better_everywhere(
    stream: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, known = rehearsal.reference(0.3), [one for _, one in arrivals.workflows(stream)]
    found = [Tried({"second": 7.0}, -0.2, 0.8, 0.9, 6, 0.03, -0.1)]
    policy = rehearsal.REHEARSED.with_params(load=0.3, sure=3.0)
    monkeypatch.setattr(rehearsal, "rehearse", lambda *args: found)

    def second(count: int) -> float:
        return rehearsal.tailored(policy, known[:count], CLUSTER).params["second"]

    assert [second(count) for count in (1, 3, 4)] == [usual["second"], usual["second"], 7.0]
    best = found[0]
    for other in (
        replace(best, worst=0.01), replace(best, error=0.06), replace(best, cost=-0.13), replace(best, slower=1.01)
    ):  # fmt: skip
        found[:] = [other]
        assert second(8) == usual["second"]


def test_beside_another_setting_waiting_counts_from_its_own(stream: Workload) -> None:
    theirs = Result(100.0, 10.0, 20.0, 30.0, frozenset({1}))
    assert rehearsal.harm(Result(80.0, 10.0, 20.0, 30.0, frozenset({1})), theirs)[0] == pytest.approx(np.log(0.8))
    for worse in (Result(80.0, 10.8, 20.0, 30.0), Result(80.0, 9.0, 20.0, 30.0, frozenset({1, 2}))):
        assert rehearsal.harm(worse, theirs)[0] == pytest.approx(np.log(0.8) + 1.0)
    base = replace(rehearsal.REHEARSED, tailor=None)
    same = rehearsal.rehearse(first_of(stream), CLUSTER, 0.6, base, [FEW[0]], FEW[0])[0]
    assert (same.cost, same.energy, same.slower, same.error) == (0.0, 1.0, 1.0, 0.0) and not same.is_sure(0.0)


def test_a_batch_is_rehearsed_as_it_came(stream: Workload) -> None:
    known = [one for _, one in arrivals.workflows(stream)][2:5]
    again = rehearsal.as_they_came(known, CLUSTER)
    assert again.workflow_submit_s.tolist() == [0.0, 200.0, 400.0]
    assert len(again) == sum(map(len, known))
    assert again.deadline_s[0] == pytest.approx(known[0].deadline_s[0] - 400.0)


def test_the_last_workflows_are_rehearsed_and_long_ones_left_out(stream: Workload) -> None:
    known = [one for _, one in arrivals.workflows(stream)] * 3
    assert rehearsal.recent(known) == known[-rehearsal.RECENT :]
    many = generate.workload("montage", rehearsal.MOST + 100, 1)
    assert rehearsal.recent([known[0], many, known[1]]) == [known[0], known[1]]


@pytest.mark.parametrize(("lean", "same"), [(0.0, "wattflow:second=7:shield=none"), (1.0, "learned:second=7")])
def test_the_simulation_may_choose_the_network_or_the_heuristic(
    stream: Workload, monkeypatch: pytest.MonkeyPatch, lean: float, same: str
) -> None:
    chosen = [Tried({"second": 7.0, "lean": lean}, 0.0, 1.0, 1.0, 1)]
    monkeypatch.setattr(rehearsal, "rehearse", lambda *args: chosen)
    once = replace(rehearsal.REHEARSED, tailor_next=None)
    ours, theirs = simulate(stream, CLUSTER, once, seed=1), simulate(stream, CLUSTER, same, seed=1)
    assert ours.total_j == theirs.total_j and (ours.attempts == theirs.attempts).all()


def test_a_setting_that_fails_in_one_stream_is_worse_than_its_mean() -> None:
    even, uneven = np.full(6, -0.5), np.array([-0.7, -0.7, -0.7, -0.7, -0.7, 0.5])
    assert rehearsal.compared(uneven, False) == pytest.approx(rehearsal.compared(even, False))
    assert rehearsal.compared(uneven, True) > rehearsal.compared(even, True) == pytest.approx(-0.5)


def test_dials_set_by_hand_stay(stream: Workload) -> None:
    used = Simulation(stream, CLUSTER, rehearsal.REHEARSED.with_params(second=7.0), seed=2).policy
    assert used.params["second"] == 7


def test_too_little_too_much_or_unknown_watts_leave_the_flagship(stream: Workload) -> None:
    flagship = registry.load("wattflow:shield=none").params
    few = generate.workload("bag", 2, 1)
    dark = Cluster("dark", tuple(replace(node, power=None) for node in CLUSTER.nodes))
    for workload, cluster in ((few, CLUSTER), (stream, dark)):
        used = Simulation(workload, cluster, rehearsal.REHEARSED, seed=1).policy
        assert {name: used.params[name] for name in flagship} == dict(flagship)
    plain, same = (simulate(few, CLUSTER, name, seed=1) for name in ("wattflow:shield=none", rehearsal.REHEARSED))
    assert plain.total_j == same.total_j


def test_settings_are_within_the_flagship_and_chosen_for_every_fold() -> None:
    flagship = registry.load("wattflow:shield=none").params
    for name in ("all", "fold-0", "fold-1", "fold-2", "fold-3"):
        some = rehearsal.settings(name)
        assert len(some) == 28 == len({tuple(sorted({**flagship, **one}.items())) for one in some})
        for dials in (*some, *(rehearsal.reference(load, name) for load in (0.3, 0.6, 0.8))):
            registry.load("wattflow", **dials)
    assert rehearsal.reference(0.1) == rehearsal.reference(0.3)

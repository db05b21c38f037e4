"""The shield: a ledger of lateness beside a replayed shadow opens and closes the budget; what is unknown earns none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from wattflow import generate
from wattflow.model.cluster import Cluster, Node, Sleep
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile
from wattflow.model.workload import Workload
from wattflow.plan import joining, measured, race, reference_replay, shield
from wattflow.policy import arrivals, registry
from wattflow.policy.base import Policy, Seen
from wattflow.policy.portfolio import REFERENCE, SLEEPY
from wattflow.sim import simulate

SAVER = race.Tried("saver", {"rule": 1.0, "after_s": 30.0}, -0.4, -0.3, 1.0, 1.0, 0)
LATE = race.Tried("late", {"rule": 2.0, "after_s": 30.0}, -0.6, -0.5, 1.03, 1.0, 0)


def equal(count: int = 6, wake_s: float = 30.0) -> Cluster:
    power = PowerProfile((0.0, 8.0), (90.0, 200.0))
    nodes = [Node(f"n{i}", 8, 1 << 36, threads_per_core=2, power=power, sleep=Sleep(5.0, wake_s)) for i in range(count)]
    return Cluster("equal", tuple(nodes))


def stream(flows: int, gap_s: float, cluster: Cluster, tasks: int = 12) -> Workload:
    rng = np.random.default_rng(5)
    parts = [generate.workload("montage" if tasks > 4 else "chain", tasks, seed) for seed in range(3)]
    submit_s = np.concatenate([[0.0], np.cumsum(rng.exponential(gap_s, flows))[:-1]])
    return joining.joined([parts[i % 3] for i in range(flows)], submit_s, cluster, math.inf, "stream")


def seen_of(workload: Workload, slower: float, until: int) -> Seen:
    """Workflows that all ended, each after so many times the seconds that the reference gives it."""
    run = simulate(workload, equal(), "kubernetes")
    usual_s = reference_replay.responses(run.end_s_by_task(), workload)
    flows = [flow for _, flow in arrivals.workflows(workload)][:until]
    end_s = np.array([float(f.workflow_submit_s[0]) + slower * usual_s[i] for i, f in enumerate(flows)])
    return Seen(0, flows, [flow.runtime_s for flow in flows], end_s)


def steered(monkeypatch: pytest.MonkeyPatch, *ranking: race.Tried) -> shield.Shield:
    monkeypatch.setattr(race.Race, "run", lambda *_: list(ranking))
    policy = registry.load("wattflow:shield=kubernetes")
    return shield.Shield(policy, equal(), "kubernetes", race.candidates())


def is_all_on(policy: Policy) -> bool:
    return policy.params["rule"] == REFERENCE["rule"] and policy.params["after_s"] == math.inf


def is_late_sleep(policy: Policy) -> bool:
    return policy.params["rule"] == REFERENCE["rule"] and SLEEPY["after_s"] <= policy.params["after_s"] < math.inf


def test_a_ledger_tells_lateness_in_sum_the_tail_and_who_is_late() -> None:
    ledger = shield.Ledger()
    assert ledger.tail == 1.0 and ledger.doubt == 0.0
    for number in range(shield.ENOUGH):
        ledger.note(number, 10.0, 10.0)
    ledger.note(3, 14.0, 10.0)
    assert ledger.late == pytest.approx(4.0 / (10.0 * shield.PRIOR)) and ledger.latest() == [3]
    ledger.note_open(6.0, 10.0)
    assert ledger.late == pytest.approx(10.0 / (10.0 * shield.PRIOR + 10.0))
    for number in range(100, 100 + shield.KEPT):
        ledger.note(number, 20.0, 10.0)
    assert len(ledger) == shield.KEPT and 3 not in ledger and ledger.tail == 2.0
    again = shield.Ledger()
    again.restore(ledger.rows())
    assert again.rows() == ledger.rows() and again.tail == ledger.tail
    assert again.latest() == [], "those arrived before the first that is counted now"


def test_the_cheapest_that_keeps_the_bound_is_used_until_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = equal()
    workload = stream(60, 20.0, cluster, 2)
    one = steered(monkeypatch, LATE, SAVER)
    chosen = one.consider(1e6, seen_of(workload, 1.0, 24))
    assert chosen is not None and chosen.params["rule"] == 1.0  # `late` saves more and does not keep the bound
    assert one.notes[-1]["chosen"] == "saver"
    spent = one.consider(1e6, seen_of(workload, 1.05, 28))
    assert spent is not None and spent.params["after_s"] == math.inf and spent.params["rule"] == REFERENCE["rule"]
    assert one.notes[-1]["why"] == "the budget is spent" and one.notes[-1]["latest"]
    assert "reference (rule=3 after_s=inf), the budget is spent; 3.5% later" in shield.told(one.notes[-1])
    assert one.consider(1e6, seen_of(workload, 1.016, 32)) is None, "not recovered"
    again = one.consider(1e6, seen_of(workload, 1.0, 36))
    assert again is not None and again.params["rule"] == 1.0


def test_what_is_spent_once_makes_the_next_choice_more_careful(monkeypatch: pytest.MonkeyPatch) -> None:
    close = replace(SAVER, mean_high=1.012)
    one = steered(monkeypatch, close)
    workload = stream(60, 20.0, equal(), 2)
    assert one.consider(1e6, seen_of(workload, 1.0, 24)) is not None
    before = one._rest_s(1.0)
    assert one.consider(1e6, seen_of(workload, 1.05, 28)) is not None
    assert one._rest_s(1.0) == pytest.approx(shield.CAREFUL * before, rel=0.1)
    assert one.consider(1e6, seen_of(workload, 1.0, 36)) is None, "its interval is too wide for that now"


def test_nothing_is_chosen_without_a_race_or_for_joules_that_are_not_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = stream(24, 20.0, equal(), 2)
    for ranking in ([replace(SAVER, energy_high=0.01)], [replace(SAVER, missed=1)]):
        chosen = steered(monkeypatch, *ranking).consider(1e6, seen_of(workload, 1.0, 24))
        assert chosen is not None and is_all_on(chosen)
    one = steered(monkeypatch, SAVER)
    dark = tuple(replace(node, power=None) for node in equal().nodes)
    one.move_to(replace(equal(), nodes=dark))
    chosen = one.consider(1e6, seen_of(workload, 1.0, 24))
    assert chosen is not None and is_late_sleep(chosen), "no watts, no race"


def test_runtimes_are_measured_else_estimated_as_far_off_as_those_that_ended() -> None:
    workload = stream(2, 20.0, equal())
    flows = [flow for _, flow in arrivals.workflows(workload.with_estimates(2.0 * workload.runtime_s))]
    true_s = [flow.estimate_s / 2.0 for flow in flows]
    half = [true_s[0], np.full(len(flows[1]), np.nan)]
    found, error = reference_replay.filled(Seen(0, flows, half, np.array([100.0, np.nan])))
    assert error == pytest.approx(0.0, abs=1e-6)
    assert found[0].runtime_s == pytest.approx(true_s[0]) and found[1].runtime_s == pytest.approx(true_s[1])
    unknown = [flow.with_estimates(np.full(len(flow), np.nan)) for flow in flows]
    found, error = reference_replay.filled(Seen(0, unknown, half, np.array([100.0, np.nan])))
    assert error > 0.1, "one mean for all says little of each"
    assert found[1].runtime_s == pytest.approx(float(true_s[0].mean()))


def test_a_race_is_drawn_from_what_arrived_and_leaves_out_who_waits() -> None:
    cluster = equal()
    flows = [flow for _, flow in arrivals.workflows(stream(16, 60.0, cluster))]
    drawn = race.stream_of(flows, 0, 1000)
    gaps = set(np.round(np.diff([float(f.workflow_submit_s[0]) for f in flows]), 6).tolist())
    assert set(np.round(np.diff(drawn.workflow_submit_s), 6).tolist()) <= gaps
    base = replace(registry.load("wattflow:shield=kubernetes"), steer=None)
    tries = {
        "same": dict(REFERENCE),
        "sleepless": {"rule": 1.0, "after_s": 1e9},
        "hasty": {"rule": 1.0, "after_s": 0.0},
    }
    found = {one.name: one for one in race.Race(flows, cluster, base, lambda _: 0.0).run(tries)}
    assert found["same"].energy == 0.0 and found["same"].mean_high == 1.0
    assert found["hasty"].mean_high > shield.BOUND, "nodes that sleep at once make people wait"


def test_every_candidate_is_what_its_name_says() -> None:
    cluster = equal()
    workload = stream(16, 60.0, cluster)
    base = replace(registry.load("wattflow:shield=kubernetes"), steer=None)
    usual_j = simulate(workload, cluster, base).total_j
    assert usual_j == pytest.approx(simulate(workload, cluster, "kubernetes").total_j)
    flagship = simulate(workload, cluster, "wattflow:shield=none").total_j
    for name, dials in race.candidates().items():
        run = simulate(workload, cluster, base.with_params(**dials))
        assert run.scalars["sleeps"] > 0 or "600" in name, name  # else all nodes are on, as under the reference
        if name == "flagship 0.05/0.25/2":
            assert run.total_j == flagship
        awake = simulate(workload, cluster, base.with_params(**race.sleepless(dials)))
        assert awake.scalars["sleeps"] == 0, name


def test_a_rule_that_earns_may_let_nodes_sleep_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    one = steered(monkeypatch, SAVER)
    one.consider(1e6, seen_of(stream(24, 20.0, equal(), 2), 1.0, 24))
    assert one._rest_s(1.0) == pytest.approx(one._rest_s(1.2)) and one._rest_s(1.0) > 10.0 * one._rest_s(0.8) > 0.0


def test_time_outs_below_the_price_of_sleep_are_one_candidate() -> None:
    cluster = equal()
    flows = [flow for _, flow in arrivals.workflows(stream(16, 60.0, cluster))]
    base = replace(registry.load("wattflow:shield=kubernetes"), steer=None)
    tries = {f"soonest {after_s:g}": {"rule": 1.0, "after_s": after_s} for after_s in (30.0, 60.0, 900.0)}
    found = race.Race(flows, cluster, base, lambda _: 120.0).run(tries)
    assert sorted(one.dials["after_s"] for one in found) == [120.0, 900.0]


def test_a_note_tells_what_was_forbidden_and_a_summary_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    one = steered(monkeypatch, LATE, SAVER)
    one.consider(1e6, seen_of(stream(60, 20.0, equal(), 2), 1.0, 24))
    assert "forbade late (would save 45%; 1.030 of the reference's waiting)" in shield.told(one.notes[-1])
    one.consider(1e6, seen_of(stream(60, 20.0, equal(), 2), 1.0, 48))
    summary = one.summary()
    assert summary["kept"] and summary["workflows"] == 48 and summary["spent"] == 0
    assert summary["saved"] == pytest.approx(0.5 * (1.0 - math.exp(SAVER.energy)), abs=1e-3)
    assert "promise kept on the last 48 of 48 workflows" in shield.summed(summary)


def test_equal_nodes_keep_the_bound_where_the_flagship_does_not() -> None:
    cluster = equal()
    workload = stream(48, 25.0, cluster)
    usual = reference_replay.responses(simulate(workload, cluster, "kubernetes").end_s_by_task(), workload)

    def ratios(policy: str | Policy) -> tuple[float, float]:
        ours = reference_replay.responses(simulate(workload, cluster, policy).end_s_by_task(), workload)
        return float(ours.mean() / usual.mean()), float(np.quantile(ours, 0.95) / np.quantile(usual, 0.95))

    assert max(ratios("wattflow:shield=none")) > 1.02, "the case does not ask enough"
    assert max(ratios("wattflow:shield=kubernetes")) <= 1.02


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("heft:shield=kubernetes", "heft:shield=kubernetes: cannot be shielded: it plans ahead"),
        ("nsga2:shield=kubernetes", "it plans ahead"),
        ("wattflow:shield=fifo", "only beside `kubernetes`"),
        ("power-cap:watts=900:shield=kubernetes", "it keeps a cap"),
        ("eft:shield=fifo", "only beside `kubernetes`"),
        ("wattflow:shield=kubernetes:sleep=60", "leave sleep, queue and order out"),
        ("wattflow:queue=strict:shield=kubernetes", "leave sleep, queue and order out"),
    ],
)
def test_what_cannot_be_shielded_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        registry.load(text)


def test_dials_set_by_hand_stay_under_the_shield() -> None:
    kept = registry.load("wattflow:late=300:shield=kubernetes")
    assert (
        kept.params["late"] == 300.0 and kept.steer is not None and kept.name == "wattflow:late=300:shield=kubernetes"
    )


def test_a_window_begins_with_the_shadows_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = equal(1)
    workload = stream(32, 4.0, cluster)
    usual_s = reference_replay.responses(simulate(workload, cluster, "kubernetes").end_s_by_task(), workload)
    assert usual_s[30] > 2.0 * usual_s[0], "the case has no backlog"
    flows = [flow for _, flow in arrivals.workflows(workload)]
    monkeypatch.setattr(shield, "backlog_grows", lambda *_: False)  # it does: the quicker reference would be meant

    def last_shadow_s(*windows: tuple[int, int]) -> float:
        one = steered(monkeypatch)
        one.move_to(cluster)
        for first, last in windows:
            end_s = np.array([float(f.workflow_submit_s[0]) for f in flows[first:last]]) + usual_s[first:last]
            one.consider(1e6, Seen(first, flows[first:last], [f.runtime_s for f in flows[first:last]], end_s))
        return one.ledger.rows()[-1][1]

    assert last_shadow_s((0, 24), (16, 32)) == pytest.approx(usual_s[31], rel=0.03)
    hops = [(first, first + 8) for first in range(0, 26, 2)]
    assert last_shadow_s(*hops) == pytest.approx(usual_s[31], rel=0.03), "small windows, one after the other"
    assert last_shadow_s((16, 32)) < 0.8 * usual_s[31], "the case asks for no backlog"


def test_what_is_too_large_to_replay_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = steered(monkeypatch, SAVER)
    monkeypatch.setattr(shield, "MOST_TASKS", 10)
    assert one.consider(1e6, seen_of(stream(24, 20.0, equal(), 2), 1.0, 24)) is None and len(one.ledger) == 0


def test_an_open_workflow_is_overdue_beyond_the_error_of_estimates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose shadow rests on estimates that are off by much is not late yet when these have passed."""
    workload = stream(24, 20.0, equal(), 2)
    usual = seen_of(workload, 1.0, 24)
    still = np.where(np.arange(24) == 23, np.nan, usual.end_s)
    submit_s, runtime_s = float(usual.flows[23].workflow_submit_s[0]), [*usual.runtime_s]
    runtime_s[23] = np.full(len(runtime_s[23]), np.nan)
    late: dict[float, float] = {}
    for spread in (0.0, 1.0):
        factor = np.exp(spread * np.tile([-1.0, 1.0], 12))
        flows = [f.with_estimates(f.runtime_s * x) for f, x in zip(usual.flows, factor.tolist(), strict=True)]
        one = steered(monkeypatch)
        one.consider(submit_s + 1.5 * float(usual.end_s[23] - submit_s), Seen(0, flows, runtime_s, still))
        late[spread] = one.ledger._open[0]
    assert late[0.0] > 0.0 and late[1.0] == 0.0


def test_a_race_sees_a_wake_that_one_workflow_in_fifteen_waits_for() -> None:
    usual = measured.Result(100.0, 10.0, 12.0, 50.0, tail_s=12.0)
    ours = replace(usual, energy_j=60.0, mean_s=10.1, p95_s=14.0, tail_s=12.1)
    tried = race._summed("one", {}, np.array([race.beside(ours, usual, 0.0)] * 2), 3.0)
    assert tried.mean_high <= shield.BOUND and tried.tail_high > 1.1


def test_the_flagship_is_left_out_of_a_race_of_very_wide_workflows(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = equal()
    flows = [flow for _, flow in arrivals.workflows(stream(16, 60.0, cluster))]
    base = replace(registry.load("wattflow:shield=kubernetes"), steer=None)
    tries = {"flagship": {"rule": 0.0, "after_s": 600.0}, "soonest": {"rule": 1.0, "after_s": 600.0}}
    for wide, ran in ((100_000, ["flagship", "soonest"]), (10, ["soonest"])):
        monkeypatch.setattr(race, "WIDE", wide)
        assert sorted(one.name for one in race.Race(flows, cluster, base, lambda _: 0.0).run(tries)) == ran


def test_a_window_has_the_shapes_that_it_uses_alone() -> None:
    workload = stream(6, 20.0, equal())
    flows = [flow for _, flow in arrivals.workflows(workload)]
    window = joining.together(flows[:1])
    assert len(window.shapes) == len(np.unique(flows[0].shape)) < len(workload.shapes)
    for task in range(len(window)):
        assert window.shapes[window.shape[task]] == flows[0].shapes[flows[0].shape[task]]


def test_who_broke_in_a_stream_of_the_last_two_races_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, cluster = stream(60, 20.0, equal(), 2), equal()
    rankings = [[replace(SAVER, worst=1.4)], [SAVER], [SAVER]]
    monkeypatch.setattr(race.Race, "run", lambda *_: rankings.pop(0))
    one = shield.Shield(registry.load("wattflow:shield=kubernetes"), cluster, "kubernetes", race.candidates())
    chosen = [one.consider(1e6, seen_of(workload, 1.0, until)) for until in (8, 16, 32)]
    assert chosen[0] is not None and is_all_on(chosen[0]) and chosen[1] is None
    assert chosen[2] is not None and chosen[2].params["rule"] == 1.0 and not rankings


def test_a_backlog_grows_by_its_last_arrivals_alone() -> None:
    rising = np.arange(200.0)
    assert not reference_replay.backlog_grows(np.full(200, 3.0))
    assert reference_replay.backlog_grows(rising)
    assert not reference_replay.backlog_grows(np.where(rising < 100.0, 50.0, 1.0)), "it shrinks"


def test_those_who_wait_are_counted_by_workflow_and_time() -> None:
    """Beside the definition, time by time; a task that was given up waits on, and what follows it never could run."""
    rng = np.random.default_rng(3)
    workload = stream(24, 4.0, equal(1))
    run = simulate(workload, equal(1), "kubernetes")
    start_s, end_s = run.start_s_by_task(), run.end_s_by_task()
    given_up = rng.choice(len(workload), 3, replace=False)
    start_s[given_up[:2]], end_s[given_up] = np.nan, np.nan
    at_s = np.sort(np.concatenate([workload.workflow_submit_s, rng.uniform(0.0, np.nanmax(end_s), 30)]))
    expected = []
    for now_s in at_s.tolist():
        waits = set()
        for task in range(len(workload)):
            ends_s = end_s[workload.parents_of(task)]
            ready_s = max([float(workload.release_s[task]), *np.where(np.isnan(ends_s), np.inf, ends_s).tolist()])
            if ready_s < now_s and not start_s[task] <= now_s:  # what arrives at that moment does not wait yet
                waits.add(int(workload.workflow[task]))
        expected.append(len(waits))
    assert max(expected) > 3
    assert reference_replay.waiting_at(at_s, workload, start_s, end_s).tolist() == expected


def test_a_cluster_that_is_large_enough_has_no_backlog() -> None:
    """Chains that all run at once and outlast the arrivals: more and more are open, and nobody waits. On one node they
    wait."""
    chain = generate.workload("chain", 3, 1)
    submit_s = float(chain.runtime_s.sum()) / 200 * np.arange(160.0)
    for nodes, grows in ((60, False), (1, True)):
        workload = joining.joined([chain] * 160, submit_s, equal(nodes), math.inf, "stream")
        run = simulate(workload, equal(nodes), "kubernetes")
        still_open = submit_s + reference_replay.responses(run.end_s_by_task(), workload) > submit_s[-1]
        assert still_open.all(), "the case has nothing under way"
        waiting = reference_replay.waiting_at(submit_s, workload, run.start_s_by_task(), run.end_s_by_task())
        assert reference_replay.backlog_grows(waiting) is grows


def test_while_the_references_backlog_grows_the_quicker_one_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[race.Dials] = []

    def run(held: race.Race, _: object) -> list[race.Tried]:
        asked.append(held.reference)
        return [SAVER]

    one = steered(monkeypatch)
    monkeypatch.setattr(race.Race, "run", run)
    workload = stream(60, 20.0, equal(), 2)
    assert one.consider(1e6, seen_of(workload, 1.0, 24)) is not None and asked == [REFERENCE]
    usual = one.ledger
    monkeypatch.setattr(shield, "backlog_grows", lambda *_: True)
    assert one.consider(1e6, seen_of(workload, 1.0, 28)) is None and asked == [REFERENCE, race.QUICKER]
    assert one.ledger is not usual and len(one.ledger) == 28, "each reference has a ledger of its own"
    spent = one.consider(1e6, seen_of(workload, 1.1, 32))
    assert spent is not None and spent.params["rule"] == race.QUICKER["rule"] and spent.params["after_s"] == math.inf
    monkeypatch.setattr(shield, "backlog_grows", lambda *_: False)
    again = one.consider(1e6, seen_of(workload, 1.0, 36))
    assert one.ledger is usual and again is not None and again.params["after_s"] == SAVER.dials["after_s"]


STEADY = race.Tried("late sleep", {"rule": 3.0, "after_s": 600.0}, -0.2, -0.1, 1.004, 1.006, 0, 1.01, steady=True)


def test_the_candidate_nearest_to_the_reference_runs_every_race_to_its_end() -> None:
    cluster = equal()
    flows = [flow for _, flow in arrivals.workflows(stream(16, 60.0, cluster))]
    base = replace(registry.load("wattflow:shield=kubernetes"), steer=None)
    tries = {f"soonest {after_s:g}": {"rule": 1.0, "after_s": after_s} for after_s in (30.0, 31.0, 32.0, 33.0, 34.0)}
    tries |= {f"spread {after_s:g}": {"rule": 3.0, "after_s": after_s} for after_s in (600.0, 1e6)}
    found = race.Race(flows, cluster, base, lambda _: 0.0).run(tries)
    assert [one.name for one in found if one.steady] == ["spread 1e+06"]
    assert race.steadiest({"soonest": {"rule": 1.0, "after_s": 30.0}}) == []


def test_nodes_may_sleep_late_while_the_budget_is_spent_if_that_keeps_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = stream(60, 20.0, equal(), 2)
    for steady, rule_after_s in ((STEADY, 600.0), (replace(STEADY, mean_high=1.012), math.inf)):
        one = steered(monkeypatch, SAVER, steady)
        one.consider(1e6, seen_of(workload, 1.0, 24))
        spent = one.consider(2e6, seen_of(workload, 1.05, 28))
        assert spent is not None and spent.params["rule"] == REFERENCE["rule"]
        assert spent.params["after_s"] == rule_after_s and "the budget is spent" in str(one.notes[-1]["why"])
        # Those that the choice before let sleep are woken first.
        assert (spent.params["on_until_s"] > 2e6) is (steady is STEADY)


def test_late_sleep_is_held_to_the_bound_alone_where_others_have_spent_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload, near = stream(60, 20.0, equal(), 2), shield.BOUND - 0.5 * shield.STRICTER
    one = steered(monkeypatch, replace(SAVER, mean_high=near), replace(STEADY, mean_high=near))
    assert one.consider(1e6, seen_of(workload, 1.0, 24)) is not None and one.notes[-1]["chosen"] == "saver"
    one.consider(1e6, seen_of(workload, 1.05, 28))
    one.consider(1e6, seen_of(workload, 0.9, 48))
    assert one.notes[-1]["chosen"] == "late sleep" and "the fewest joules" in str(one.notes[-1]["why"])


def test_a_stream_begins_with_late_sleep_until_a_race_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = equal()
    short = stream(3, 2000.0, cluster, 2)
    began = simulate(short, cluster, "wattflow:shield=kubernetes").total_j
    assert began == pytest.approx(simulate(short, cluster, "kubernetes:sleep=600").total_j)
    assert began < 0.9 * simulate(short, cluster, "kubernetes").total_j
    # Without a race: all nodes on while one is due, late sleep where none can be held.
    one, workload = steered(monkeypatch), stream(24, 20.0, cluster, 2)
    first, later = (one.consider(1e6, seen_of(workload, 1.0, until)) for until in (shield.FIRST, shield.RARELY))
    assert first is not None and is_all_on(first) and later is not None and is_late_sleep(later)


def test_late_sleep_that_spent_the_budget_comes_back_later(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = stream(60, 20.0, equal(), 2)
    one = steered(monkeypatch)
    before = one.consider(1e6, seen_of(workload, 1.0, 24))
    spent = one.consider(1e6, seen_of(workload, 1.05, 28))
    again = one.consider(1e6, seen_of(workload, 1.0, 36))
    assert before is not None and spent is not None and again is not None
    assert is_late_sleep(before) and is_all_on(spent) and is_late_sleep(again)
    assert again.params["after_s"] >= shield.CAREFUL * SLEEPY["after_s"]
    assert again.params["after_s"] >= 0.9 * shield.CAREFUL * before.params["after_s"]


@pytest.mark.parametrize(
    ("changes", "sleeps"),
    [
        ({"mean_high": shield.LOOSE - 0.001}, True),
        ({"mean_high": shield.LOOSE + 0.001}, False),
        ({"tail_high": shield.LOOSE + 0.001}, False),
        ({"worst": shield.LOOSE_WORST + 0.001}, False),
        ({"missed": 1}, False),
    ],
)
def test_late_sleep_holds_where_nothing_else_does_unless_a_race_finds_it_late(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, float], sleeps: bool
) -> None:
    one = steered(monkeypatch, LATE, replace(STEADY, **{"mean_high": shield.BOUND + 0.001, **changes}))  # type: ignore[arg-type]
    chosen = one.consider(1e6, seen_of(stream(24, 20.0, equal(), 2), 1.0, 24))
    assert chosen is not None and (is_late_sleep(chosen) if sleeps else is_all_on(chosen))
    assert ("nothing speaks against late sleep" in str(one.notes[-1]["why"])) is sleeps


def test_a_tail_is_as_uncertain_as_the_few_workflows_that_make_it() -> None:
    rng = np.random.default_rng(2)
    ledger = shield.Ledger()
    for number in range(100):
        shadow_s = 100.0 if number % 20 else 1000.0
        ledger.note(number, shadow_s * float(rng.uniform(0.9, 1.1)), shadow_s)
    assert ledger.tail_doubt > 4.0 * ledger.doubt > 0.0
    alike = shield.Ledger()
    for number in range(100):
        alike.note(number, 10.0 + number, 10.0 + number)
    assert alike.tail_doubt == 0.0


def test_p95_is_numpys_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 3, 20, 21, 47, 80, 333):
        some = rng.exponential(100.0, count)
        assert measured.p95_of(some) == float(np.quantile(some, 0.95))


def test_sleep_becomes_cheaper_only_where_nodes_could_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a stream shorter than its time-outs nobody waits for a node that sleeps, whatever sleep would cost."""
    workload = stream(60, 20.0, equal(), 2)
    for passed_s, cheaper in ((shield.TRIED * 30.0 - 1.0, False), (shield.TRIED * 30.0, True)):
        one = steered(monkeypatch, SAVER)
        one.consider(1e6, seen_of(workload, 1.0, 24))
        before, care = one._rest_s(1.0), one._care
        one.consider(1e6 + passed_s, seen_of(workload, 1.0, 48))
        assert one._raced == 48 and (one._rest_s(1.0) < 0.6 * before) is cheaper
        one.consider(1e6 + passed_s + 1.0, seen_of(workload, 1.0, 60))
        assert (one._rest_s(1.0) < 0.6 * before) is cheaper and one._care >= shield.EASIER * care, "it counts once"
    assert shield.time_out(SAVER.dials) == 30.0 and shield.time_out({**SAVER.dials, "rest_s": 90.0}) == 90.0
    assert shield.time_out({**SAVER.dials, "reserve": 0.3, "rest_s": 9.0}) == 9.0, "beyond a pool nodes sleep at once"


def test_for_less_than_is_worth_it_nobody_is_put_at_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = stream(24, 20.0, equal(), 2)
    for energy, used in ((-shield.WORTH, True), (-0.9 * shield.WORTH, False)):
        one = steered(monkeypatch, replace(SAVER, energy=energy, energy_high=-1e-3))
        one.consider(1e6, seen_of(workload, 1.0, 24))
        assert (one.notes[-1]["chosen"] == "saver") is used


def test_all_nodes_are_woken_for_late_sleep_only_where_others_had_gathered_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each change of a time-out, and each other name of the same, had woken all: ten minutes of idle watts."""
    workload = stream(60, 20.0, equal(), 2)
    sooner = replace(STEADY, name="sooner", dials={"rule": 3.0, "after_s": 120.0}, steady=False)
    same = replace(STEADY, name="the same", dials={**STEADY.dials, "rest_s": 40.0})
    rankings = [[SAVER], [STEADY], [sooner], [STEADY], [same]]
    monkeypatch.setattr(race.Race, "run", lambda *_: rankings.pop(0))
    one, chosen = steered_by_races(), []
    for until in (8, 16, 24, 32, 40):
        one._race_at = until
        chosen.append(one.consider(1e6 + until, seen_of(workload, 1.0, until)))
    roused = [None if found is None else found.params["on_until_s"] > 0.0 for found in chosen]
    assert roused == [False, True, False, False, None] and not rankings
    assert [note["chosen"] for note in one.notes] == ["saver", "late sleep", "sooner", "late sleep"]


def steered_by_races() -> shield.Shield:
    return shield.Shield(registry.load("wattflow:shield=kubernetes"), equal(), "kubernetes", race.candidates())


def test_it_looks_every_few_arrivals_in_a_long_stream_too() -> None:
    one = steered_by_races()
    one._looked = 400
    assert one.is_due(400 + shield.EVERY) and not one.is_due(399 + shield.EVERY)


def test_a_load_that_doubles_is_mostly_seen_after_eight_arrivals() -> None:
    """By the rule alone, on gaps and sizes as drawn; what is raced then is another matter."""
    rng, one, seen = np.random.default_rng(1), steered_by_races(), 0
    chain = generate.workload("chain", 2, 1)
    for _ in range(100):
        gaps_s = rng.exponential(100.0, 40)
        gaps_s[32:] /= 2.0
        flows = [
            flow for _, flow in arrivals.workflows(joining.joined([chain] * 40, np.cumsum(gaps_s), equal(), 4.0, "s"))
        ]
        one._raced_load = shield.load_of(flows[:32])
        seen += one._has_drifted(shield.load_of(flows[-shield.LATELY :]))
    assert seen > 80


def test_sleep_becomes_no_cheaper_while_one_in_a_hundred_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all workflows last as long, p95 stands until one in twenty has waited, and then it is too late."""
    workload = stream(60, 20.0, equal(), 2)
    for late, cheaper in ((0, True), (1, False)):
        one = steered(monkeypatch, SAVER)
        one.consider(1e6, seen_of(workload, 1.0, 24))
        seen, care = seen_of(workload, 1.0, 48), one._care
        response_s = seen.end_s - np.array([flow.workflow_submit_s[0] for flow in seen.flows])
        longest = int(np.argmax(response_s))
        seen.end_s[longest] += late * 0.2 * response_s[longest]
        one.consider(1e6 + shield.TRIED * 30.0, seen)
        assert one.ledger.late < shield.LATE / 2.0 and one.ledger.tail == 1.0
        assert (one._care < care) is cheaper


def test_what_ends_much_sooner_pays_for_sleep_that_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = stream(60, 20.0, equal(), 2)
    for faster, cheaper in ((0.9, True), (0.999, False)):
        one = steered(monkeypatch, SAVER)
        one.consider(1e6, seen_of(workload, faster, 24))
        care = one._care
        one.consider(1e6 + 1.0, seen_of(workload, faster, 48))
        assert (one._care < care) is cheaper

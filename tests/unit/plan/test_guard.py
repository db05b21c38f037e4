"""Any policy under the shield: it decides while the budget lasts, and the reference does while it is spent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wattflow.live import shielding
from wattflow.model.cluster import Cluster
from wattflow.plan import guard, reference_replay, shield
from wattflow.policy import registry
from wattflow.policy.base import Policy
from wattflow.policy.portfolio import PORTFOLIO, REFERENCE
from wattflow.sim import simulate

from .test_shield import equal, seen_of, stream

TYPED = "least-energy:sleep=10:shield=kubernetes"


def guarded(text: str = TYPED, cluster: Cluster | None = None) -> guard.Guard:
    policy = registry.load(text)
    assert policy.steer is not None
    made = policy.steer(policy, cluster or equal())
    assert isinstance(made, guard.Guard)
    return made


def stands_in(policy: Policy | None) -> bool:
    return policy is not None and policy.score is PORTFOLIO.score and policy.params["rule"] == REFERENCE["rule"]


def test_it_decides_until_the_budget_is_spent_and_again_when_it_is_won_back() -> None:
    cluster = equal(wake_s=1.0)  # so that no time-out is too short
    workload, one = stream(60, 20.0, cluster, 2), guarded(cluster=cluster)
    assert one.consider(1e6, seen_of(workload, 1.0, 24)) is None and one.choice.name == TYPED
    spent = one.consider(1e6, seen_of(workload, 1.05, 28))
    assert stands_in(spent) and spent is not None and spent.params["after_s"] == math.inf and spent.name == TYPED
    told = shield.told(one.notes[-1])
    assert "reference (rule=3 after_s=inf), the budget is spent; 3.5% later" in told
    assert "forbade least-energy:sleep=10" in told and "shield=" not in told
    assert one.consider(1e6, seen_of(workload, 1.016, 32)) is None, "not recovered"
    again = one.consider(1e6, seen_of(workload, 1.0, 36))
    assert again is not None and again.score is registry.load("least-energy").score and again.sleep_after_s == 10.0
    assert "36 workflows, 1000000 s: least-energy:sleep=10 (sleep=10), the budget" in shield.told(one.notes[-1])


def test_nodes_sleep_no_sooner_than_sleep_is_priced_at() -> None:
    workload, one = stream(60, 20.0, equal(), 2), guarded()
    slower = one.consider(1e6, seen_of(workload, 1.0, 24))
    assert slower is not None and slower.name == TYPED and slower.score is registry.load("least-energy").score
    after_s = slower.sleep_after_s
    assert after_s is not None and one._rest_s(1.0) <= after_s == 10.0 * 3.0 ** round(math.log(after_s / 10.0, 3.0))
    assert registry.load(shielding.typed(slower)).sleep_after_s == after_s
    sooner = one.consider(1e6, seen_of(workload, 0.5, 48))
    assert sooner is not None and sooner.sleep_after_s is not None and sooner.sleep_after_s < after_s
    # Whoever sets no time-out keeps what the cluster says, and what is slept by other rules is not the shield's.
    assert guarded("fifo:shield=kubernetes").consider(1e6, seen_of(workload, 1.0, 24)) is None


def test_what_it_saves_is_unknown_and_said_of_nobody() -> None:
    workload, one = stream(60, 20.0, equal(), 2), guarded()
    one.consider(1e6, seen_of(workload, 1.0, 48))
    summary = one.summary()
    assert summary["saved"] is None and summary["kept"] and summary["chosen"] == "least-energy:sleep=10"
    text = shield.summed(summary)
    assert "joules" not in text and "p95 1.000 of its; budget spent 0 times" in text


@pytest.mark.parametrize(
    "text", ["most-allocated:sleep=1", "hpe:sleep=1", "sjf:order=path:sleep=1", "carbon-delay:sleep=1"]
)
def test_a_hasty_policy_makes_nobody_wait_for_long(text: str) -> None:
    """Nodes that sleep at once and wake late: half of the bound's breach is gone at least, of the bare rule's."""
    cluster = equal(wake_s=200.0)
    workload = stream(160, 40.0, cluster)
    usual = reference_replay.responses(simulate(workload, cluster, "kubernetes").end_s_by_task(), workload)

    def late(policy: str) -> float:
        run = simulate(workload, cluster, policy)
        assert run.policy == policy
        ours = reference_replay.responses(run.end_s_by_task(), workload)
        return float(ours.mean() / usual.mean()) - 1.0

    bare = late(text)
    assert bare > 0.05, "the case does not ask enough"
    assert late(f"{text}:shield=kubernetes") < 0.5 * bare


def test_a_guarded_simulation_tells_what_it_did() -> None:
    cluster = equal(wake_s=200.0)
    run = simulate(stream(80, 40.0, cluster), cluster, "most-allocated:sleep=1:shield=kubernetes")
    steps, summary = run.manifest["steering"], run.manifest["shield"]
    assert isinstance(steps, list) and isinstance(summary, dict)
    chosen = [step["chosen"] for step in steps]
    assert chosen[0] == "most-allocated:sleep=1" and "sleep=" in steps[0]["dials"], "later than it was typed"
    assert "reference" in chosen and summary["spent"] >= 1 and summary["saved"] is None
    assert np.isfinite(run.end_s_by_task()).all()


def test_where_the_references_backlog_grows_the_quicker_one_takes_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, one = stream(60, 20.0, equal(), 2), guarded()
    monkeypatch.setattr(shield, "backlog_grows", lambda *_: True)
    spent = one.consider(1e6, seen_of(workload, 1.1, 28))
    assert spent is not None and spent.params["rule"] == 1.0 and spent.params["after_s"] == math.inf


def test_a_choice_is_typed_by_the_policys_name_or_the_references_numbers() -> None:
    workload, one = stream(60, 20.0, equal(), 2), guarded()
    assert shielding.typed(one.choice) == TYPED
    spent = one.consider(1e6, seen_of(workload, 1.1, 28))
    assert spent is not None
    again = registry.load(shielding.typed(spent))
    assert stands_in(again) and again.params["after_s"] == math.inf

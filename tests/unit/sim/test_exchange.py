"""Rules that are exchanged in the middle of a simulation: nothing is lost, and what is put in for itself changes
nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.kernel import jit
from wattflow.model.cluster import Cluster
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.policy.base import Policy, Seen
from wattflow.policy.portfolio import PORTFOLIO, REFERENCE
from wattflow.sim import SimOptions, simulate

SMALL = [node for node in load_cluster("mixed").nodes if node.cores < 10]
CLUSTER = replace(load_cluster("mixed"), nodes=tuple(SMALL[:3]))
PARTS = [generate.workload("fork-join", 24, seed) for seed in range(12)]
STREAM = joining.joined(PARTS, np.arange(0.0, 24.0, 2.0), CLUSTER, 3.0, "stream")
INSTEAD = PORTFOLIO.with_params(**REFERENCE).with_settings(guarantees=(1.0,), frequencies=(0,))
GUARDED = [name for name in registry.POLICIES if registry.load(name).plan is None]


class Turns:
    """Puts policies in one after the other, at every arrival."""

    def __init__(self, *policies: Policy) -> None:
        self.notes: list[dict[str, object]] = []
        self._policies, self._turn = policies, 0

    def is_due(self, arrived: int) -> bool:
        return True

    def summary(self) -> dict[str, object]:
        return {}

    def consider(self, now_s: float, seen: Seen) -> Policy:
        self._turn += 1
        return self._policies[self._turn % len(self._policies)]


def in_turns(policy: Policy, *others: Policy) -> Policy:
    def steer(own: Policy, cluster: Cluster) -> Turns:
        return Turns(own, *others)

    return replace(policy, steer=steer)


@pytest.mark.parametrize("name", GUARDED)
def test_every_rule_takes_turns_with_the_reference_and_loses_no_task(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "CHECKED", True)  # the State is looked through after every event
    run = simulate(STREAM, CLUSTER, in_turns(registry.load(name), INSTEAD))
    assert np.isfinite(run.end_s_by_task()).all() and run.policy == name
    start_s, end_s = run.start_s_by_task(), run.end_s_by_task()
    for task in range(len(STREAM)):
        assert (start_s[task] >= end_s[STREAM.parents_of(task)]).all()


@pytest.mark.parametrize(
    "text", ["fifo:queue=strict", "fifo:queue=easy-backfill", "fifo:order=path:sleep=20", "wfp3", "min-min", "hpe"]
)
def test_rules_that_are_put_in_for_themselves_change_nothing(text: str) -> None:
    # Without a score, as nothing says that two such policies are one, and the lowest index wins.
    plain = replace(registry.load(text), score=None)
    once, again = (simulate(STREAM, CLUSTER, one, seed=3) for one in (plain, in_turns(plain)))
    assert once.scalars["decisions"] > len(STREAM) / 2
    assert once.attempts.tobytes() == again.attempts.tobytes() and once.total_j == again.total_j


def test_the_reference_in_a_policys_place_decides_as_kube_scheduler_does() -> None:
    """Whatever the policy would have offered, ordered, kept asleep or waited for."""
    first_alone_s = np.concatenate([[0.0], np.arange(1e5, 1e5 + 110.0, 10.0)])
    stream = joining.joined(PARTS, first_alone_s, CLUSTER, 3.0, "stream")

    def placed(policy: str | Policy) -> list[tuple[int, int, float, float]]:
        rows = simulate(stream, CLUSTER, policy).attempts
        later = rows[stream.workflow[rows["task"]] > 0]
        return [tuple(row) for row in later[["task", "node", "start_s", "end_s"]].tolist()]

    usual = placed("kubernetes")
    for text in ("hpe:sleep=1", "wattflow", "sjf:queue=strict", "kubernetes:sleep=1"):

        def steer(own: Policy, cluster: Cluster) -> Turns:
            return Turns(INSTEAD)

        assert placed(replace(registry.load(text), steer=steer)) == usual, text


def test_time_outs_that_are_asked_for_stay_whatever_rules_are_in_use() -> None:
    own = replace(registry.load("fifo"), sleep_after_s=5.0)
    asleep = simulate(STREAM, CLUSTER, in_turns(own, registry.load("sjf"))).scalars["sleeps"]
    asked = SimOptions(sleep_after_s=1e6)
    assert asleep > 0 == simulate(STREAM, CLUSTER, in_turns(own, registry.load("sjf")), options=asked).scalars["sleeps"]

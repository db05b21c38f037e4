"""Simulate before commit inside the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattflow.learn import foresight
from wattflow.learn.foresight import Foresight, Look
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Trial
from wattflow.live import roll
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry

FLAGSHIP = registry.load("learned", lean=0.0)


def test_looking_ahead_with_one_member_changes_nothing(small: Scenario) -> None:
    workload = small.draw(4)
    plain = Trial(workload, small.cluster, FLAGSHIP, 4, small.options).run()
    look = Foresight(workload, small.cluster, [FLAGSHIP], 4, small.options, draws=2)
    assert look.run() == plain
    assert look.run() == plain


def test_a_member_that_saves_nothing_is_never_used_and_a_better_one_is(
    small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = small.draw(4)
    slow = FLAGSHIP.with_params(sleep=1e6)
    look = Foresight(workload, small.cluster, [FLAGSHIP, slow], 4, small.options, draws=1)
    look.run()
    assert look.used[1] == 0
    other = Foresight(workload, small.cluster, [slow, FLAGSHIP], 4, small.options, draws=1)
    monkeypatch.setattr(foresight, "LEARNT", 10**6)
    other.run()
    assert other.used[1] == 0  # nothing to look back on
    monkeypatch.setattr(foresight, "LEARNT", 0)
    found = other.run()
    assert other.used[1] > 0
    assert found.energy_j < Trial(workload, small.cluster, slow, 4, small.options).run().energy_j


def test_a_look_sees_estimates_and_not_the_truth(small: Scenario) -> None:
    """Two worlds with the same estimates and other runtimes are chosen for alike at the first arrival."""
    workload = small.draw(4)
    known = workload.with_estimates(workload.runtime_s * 1.3)
    members = [FLAGSHIP, FLAGSHIP.with_params(second=50.0)]
    seen = []
    for factor in (1.0, 3.0):
        other = known if factor == 1.0 else replace(known, runtime_s=known.runtime_s * factor)
        look = Foresight(other, small.cluster, members, 4, draws=1)
        look.restart()
        look.simulation.advance(float(other.workflow_submit_s.min()))
        left = roll.draw_left(look.simulation.state, 0.2, 0)
        seen.append(look._roll(look.members[1], left))
    assert seen[0] == seen[1]


def test_who_waits_longer_or_is_late_is_not_taken() -> None:
    reference = Look(100.0, 10.0, 1.0)
    assert foresight.keeps(Look(1.0, 10.1, 1.0), reference)
    assert not foresight.keeps(Look(1.0, 10.5, 1.0), reference)
    assert not foresight.keeps(Look(1.0, 10.0, 2.0), reference)


def test_members_are_settings_of_the_learned_policy(small: Scenario) -> None:
    with pytest.raises(InvalidInput, match="settings of the policy"):
        Foresight(small.draw(4), small.cluster, [registry.load("wattflow")], 4)
    assert np.isfinite(FLAGSHIP.params["second"])

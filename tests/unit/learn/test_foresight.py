"""Simulate before commit inside the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattflow.learn.foresight import Foresight
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Trial
from wattflow.live import roll
from wattflow.live.looking import Rule
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry
from wattflow.sim.world import RUN

FLAGSHIP = registry.load("learned", lean=0.0)


def test_looking_ahead_with_one_member_changes_nothing(small: Scenario) -> None:
    workload = small.draw(4)
    plain = Trial(workload, small.cluster, FLAGSHIP, 4, small.options).run()
    look = Foresight(workload, small.cluster, [FLAGSHIP], 4, small.options, draws=2)
    assert look.run() == plain
    assert look.run() == plain


def test_a_member_that_saves_nothing_is_never_used_and_a_better_one_is(small: Scenario) -> None:
    workload = small.draw(4)
    slow = FLAGSHIP.with_params(sleep=1e6)
    look = Foresight(workload, small.cluster, [FLAGSHIP, slow], 4, small.options, draws=1)
    look.run()
    assert look.used[1] == 0
    other = Foresight(workload, small.cluster, [slow, FLAGSHIP], 4, small.options, draws=1)
    other.rule = Rule(learnt=10**6)
    other.run()
    assert other.used[1] == 0  # nothing to look back on
    other.rule = Rule(learnt=0)
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


def test_what_runs_has_run_since_it_began_and_a_look_ends_with_the_work(small: Scenario) -> None:
    """Both were wrong once: all seemed to have run since time 0, and looks went on until every time-out was over."""
    workload = small.draw(4)
    look = Foresight(workload, small.cluster, [FLAGSHIP, FLAGSHIP.with_params(sleep=1e6)], 4, spread=0.0)
    look.restart()
    look.simulation.advance(float(np.sort(workload.workflow_submit_s)[-2]))
    look._as_told_live()
    state, runs = look.simulation.state, look.simulation.world.runs
    now = float(state.clock.now[0])
    left, tasks = roll.draw_left(state, 0.0, 0), np.asarray(state.attempts["task"])
    mine = np.flatnonzero((tasks >= 0) & (np.asarray(state.attempts["stage"]) == RUN))
    began = np.asarray(runs["start"])[mine]
    assert np.array_equal(np.asarray(state.attempts["started"])[mine], began)
    assert len(mine) and began.max() > 0.5 * now
    latest = tasks[mine[np.argmax(began)]]
    assert left[latest] > 0.5 * state.tasks["estimate"][latest]
    plain, awake = (look._roll(member, left) for member in look.members)
    most_w = sum(node.power.watts[-1] for node in small.cluster.nodes if node.power)
    assert awake.energy_j <= 1.5 * most_w * awake.last_s and plain.energy_j <= awake.energy_j


def test_members_are_settings_of_the_learned_policy(small: Scenario) -> None:
    with pytest.raises(InvalidInput, match="settings of the policy"):
        Foresight(small.draw(4), small.cluster, [registry.load("wattflow")], 4)
    assert np.isfinite(FLAGSHIP.params["second"])

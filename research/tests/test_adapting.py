"""Fine-tuning after a shift: what is trained on is never what it is judged on, and nobody may wait longer."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from research import adapting
from research.adapting import Adapted, Case
from wattflow.learn import recorded, scenarios
from wattflow.learn.evolve import FineTuner, Verdict
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Judge
from wattflow.policy import weights


def test_the_halves_of_a_stream_share_no_workflow(small: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "stream_of", lambda *_: small.stream)
    first, second = Case("pegasus/montage", 0.6, 301, True).halves()
    assert len(first) == len(second) == adapting.BLOCKS
    flows = [len(block.workload.workflow_names) for block in (*first, *second)]
    assert sum(flows) == adapting.WORKFLOWS and min(flows) >= recorded.FEWEST
    plain = Case("pegasus/montage", 0.6, 301, False).halves()[0][0].cluster
    drawn = [sum(node.power.full_w for node in c.nodes if node.power) for c in (first[0].cluster, plain)]
    assert drawn[0] > 1.05 * drawn[1]


def test_cases_take_every_application_in_turn_and_weights_that_never_saw_it() -> None:
    some = adapting.cases(20)
    assert {case.application for case in some} == set(scenarios.APPLICATIONS)
    assert all(case.application in scenarios.FOLDS[case.fold] for case in some)
    assert {case.load for case in some} == set(scenarios.LOADS)


def test_what_was_not_promoted_saves_and_loses_nothing() -> None:
    good, bad = Verdict(0.1, 0.01, 0.0, 0, 6), Verdict(-0.1, 0.01, 0.0, 0, 6)
    case = adapting.cases(1)[0]
    assert Adapted(case, good, bad).served == -0.1
    assert Adapted(case, bad, good).served == 0.0
    mean, low, high = adapting.interval([0.0, 0.1, 0.2, 0.1])
    assert low < mean < high and mean == pytest.approx(0.1)
    assert adapting.percent(math.log(2.0)) == pytest.approx(-50.0)


def test_a_tuner_fines_whoever_is_slower_than_the_weights_in_use(small: Scenario) -> None:
    block = recorded.blocks("run", small.draw(3), small.cluster, most=2)[0]
    judge = Judge(block, 1)
    present = np.zeros(weights.SIZE)
    tuner = FineTuner(present, [judge])
    assert tuner.judge(present) == (0.0, 0.0, 1.0)
    found = judge.trial.run(present)
    assert judge.baseline == found and judge.penalty(found) == 0.0 and judge.keeps(found)
    slower = replace(found, mean_s=1.1 * found.mean_s, p95_s=1.1 * found.p95_s)
    assert judge.penalty(slower) > 0.1 and not judge.keeps(slower)


def test_what_was_stored_is_read_again() -> None:
    """A long benchmark goes on from the cases that it has."""
    case, verdict = adapting.cases(1)[0], Verdict(0.1, 0.02, 0.0, 1, 6, 0.01)
    one = Adapted(case, verdict, Verdict(0.2, 0.01, 0.0, 0, 12))
    assert adapting.read(json.dumps([asdict(one)])) == [one]

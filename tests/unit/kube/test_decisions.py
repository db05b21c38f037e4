"""Candidates of past decisions, from the journal of the engine that made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wattflow.kube import explaining
from wattflow.kube.engine_decider import EngineDecider
from wattflow.kube.explaining import Decisions
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile

from .making import node, pod
from .test_decide import add, want


def test_a_past_decision_names_its_candidates_with_their_costs(tmp_path: Path) -> None:
    decider = EngineDecider("least-energy")
    kept = Decisions.into(tmp_path, decider)
    for name, watts in (("frugal", (10.0, 20.0)), ("thirsty", (10.0, 90.0))):
        add(decider, node(name), PowerProfile((0.0, 4.0), watts))
    want(decider, pod("one", cpu="1"))
    (choice,) = decider.step(1.0).choices
    assert choice.node == "frugal"
    note = kept.note(choice.uid)
    decider.started(choice.uid)
    want(decider, pod("two", cpu="1"))
    decider.step(2.0)
    said = explaining.candidates(tmp_path, note)
    assert said[0] == "2 candidates, cheapest first:"
    assert said[1].startswith("  frugal: cost ") and said[2].startswith("  thirsty: cost ")
    kept.journal.checkpoint()
    assert "older than" in explaining.candidates(tmp_path, note)[0]
    assert "no journal" in explaining.candidates(tmp_path, {"policy": "x"})[0]
    kept.journal.close()
    with pytest.raises(InvalidInput, match="does not hold"):
        explaining.candidates(tmp_path, {"run": "run-1", "task": 1})


@pytest.mark.parametrize("policy", ["learned", "learned:lean=0.5"])
def test_a_learned_decision_names_the_features_that_moved_it(policy: str, tmp_path: Path) -> None:
    decider = EngineDecider(policy)
    kept = Decisions.into(tmp_path, decider)
    for name, watts in (("frugal", (10.0, 20.0)), ("thirsty", (40.0, 90.0))):
        add(decider, node(name), PowerProfile((0.0, 4.0), watts))
    want(decider, pod("one", cpu="1"))
    (choice,) = decider.step(1.0).choices
    note = kept.note(choice.uid)
    kept.journal.close()
    *_, last = explaining.candidates(tmp_path, note)
    said = re.fullmatch(r"features that moved the first price against that of thirsty: (.+)", last)
    assert said is not None
    assert re.match(r"[a-z ]+ [+−][0-9.]+ %", said[1])


def test_the_journals_of_the_last_runs_are_kept(tmp_path: Path) -> None:
    other = tmp_path / "something-else"
    other.mkdir()
    names = []
    for _ in range(5):
        with Decisions.into(tmp_path, EngineDecider("fifo")).journal as journal:
            names.append(journal.folder.name)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([*names[-3:], "something-else"])

"""Learning from what was recorded: journals become workloads, and a candidate is promoted only if it wins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from wattflow.cli.main import app
from wattflow.clusters import load_cluster
from wattflow.learn import evolve, recorded
from wattflow.learn.evolve import Verdict
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Judge
from wattflow.live import EDGE, FINISHED, STARTED, TASK, Engine
from wattflow.live.journal import Journal
from wattflow.model.errors import InvalidInput
from wattflow.model.workflow import Variant
from wattflow.policy import weights
from wattflow.sim.simulate import Simulation


def drive(folder: Path, workflows: int = 9) -> Engine:
    """An engine with a journal: chains of two tasks arrive every 5 s and run for 4 and 2 s."""
    engine = Engine("fifo", load_cluster("edge-cloud"))
    ends: list[tuple[float, int]] = []
    with Journal(engine, folder):
        shape = engine.shape((Variant(cores=1.0),), "align")
        for number in range(workflows):
            now_s = 5.0 * number
            flow = engine.workflow(submit_s=now_s, deadline_s=now_s + 100.0)
            first, second = (engine.put(TASK, shape, flow, estimate_s=seconds) for seconds in (4.0, 2.0))
            engine.put(EDGE, first, second, 1000.0)
            engine.put(TASK, shape, estimate_s=1.0)  # of no workflow, and it never ends
            for at_s in (now_s, now_s + 4.0, now_s + 4.5):
                for attempt in [a for end_s, a in ends if end_s <= at_s]:
                    engine.put(FINISHED, attempt)
                ends = [one for one in ends if one[0] > at_s]
                for placement in engine.step(at_s).placements:
                    engine.put(STARTED, placement.attempt)
                    if placement.task in (first, second):
                        ends.append((at_s + (4.0 if placement.task == first else 0.4), placement.attempt))
                engine.step(at_s)
    return engine


def test_a_journal_becomes_a_workload(tmp_path: Path) -> None:
    engine = drive(tmp_path / "journal")
    workload, cluster = recorded.from_journal(tmp_path / "journal")
    assert [node.name for node in cluster.nodes] == [node.name for node in load_cluster("edge-cloud").nodes]
    assert engine.counts["running"] > 0
    assert len(workload.workflow_submit_s) == 9
    assert np.allclose(workload.workflow_submit_s, 5.0 * np.arange(9))
    firsts = np.flatnonzero(np.diff(workload.parent_start) == 0)
    assert len(firsts) == 9 and workload.edge_count == len(workload) - 9
    assert (workload.parent_bytes == 1000.0).all()
    speeds = {node.speed for node in cluster.nodes}
    assert all(any(np.isclose(s, 4.0 * speed) for speed in speeds) for s in workload.runtime_s[firsts])
    parts = recorded.blocks("run", workload, cluster)
    assert [len(part.workload.workflow_submit_s) for part in parts] == [5, 4]
    assert sum(len(part.workload) for part in parts) == len(workload)
    assert parts[1].workload.workflow_submit_s[0] == 0.0


def test_an_empty_journal_teaches_nothing(tmp_path: Path) -> None:
    with Journal(Engine("fifo", load_cluster("edge-cloud")), tmp_path / "journal"):
        pass
    with pytest.raises(InvalidInput, match="nothing to learn from"):
        recorded.from_journal(tmp_path / "journal")
    with pytest.raises(InvalidInput, match="no such folder"):
        recorded.from_journal(tmp_path / "none")


def test_attempts_of_a_run_are_the_runtimes_on_a_node_of_speed_1(small: Scenario) -> None:
    workload = small.draw(3)
    simulation = Simulation(workload, small.cluster, "eft")
    run = simulation.run()
    learned = recorded.with_attempts(workload, run.attempts, small.cluster)
    ratio = learned.runtime_s / workload.runtime_s
    assert ratio.min() == pytest.approx(1.0, rel=1e-6)  # alone on its node; crowded ones take longer
    assert np.median(ratio) < 2.0


def test_attempts_of_another_workload_are_refused(small: Scenario) -> None:
    run = Simulation(small.draw(3), small.cluster, "eft").run()
    with pytest.raises(InvalidInput, match="none of the"):
        recorded.with_attempts(
            recorded.blocks("a", small.draw(3), small.cluster)[0].workload, run.attempts, small.cluster
        )


def test_attempts_of_a_smaller_or_otherwise_built_workload_are_refused(small: Scenario) -> None:
    whole = small.draw(3)
    part = recorded.blocks("a", whole, small.cluster)[0].workload
    run = Simulation(part, small.cluster, "eft").run()
    with pytest.raises(InvalidInput, match=f"the run has {len(part)} tasks, the workload {len(whole)}"):
        recorded.with_attempts(whole, run.attempts, small.cluster)
    nodes = [small.cluster.nodes[i].name for i in run.attempts["node"]]
    assert recorded.with_attempts(part, run.attempts, small.cluster, {"node_name": nodes})
    with pytest.raises(InvalidInput, match="a node 'other' where"):
        recorded.with_attempts(part, run.attempts, small.cluster, {"node_name": ["other", *nodes[1:]]})
    shuffled = run.attempts.copy()
    shuffled["task"] = len(part) - 1 - shuffled["task"]
    with pytest.raises(InvalidInput, match="began before one that they wait for"):
        recorded.with_attempts(part, shuffled, small.cluster)


def test_fine_tuning_is_repeatable_and_no_worse_where_it_was_trained(small: Scenario) -> None:
    blocks = recorded.blocks("run", small.draw(3), small.cluster, most=2)
    judges = [Judge(one, seed) for one in blocks for seed in range(2)]
    present = np.zeros(weights.SIZE)
    settings = evolve.EvolutionSettings(directions=4, tries=1, sigma=0.1, rate=0.05, decay=0.0)
    found = []
    for _ in range(2):
        tuner = evolve.FineTuner(present, judges, settings=settings)
        found.append(tuner.run(1e9, generations=8))
        assert tuner.progress.best_reward >= tuner.judge(present)[0]
    assert np.array_equal(found[0], found[1])
    assert not evolve.shadow(present, present, judges).promoted


def test_a_candidate_needs_a_sure_saving_and_may_make_nobody_wait() -> None:
    assert Verdict(0.03, 0.01, 0.0, 0, 6).promoted
    assert not Verdict(0.03, 0.04, 0.0, 0, 6).promoted
    assert not Verdict(0.03, 0.01, 0.05, 0, 6).promoted
    assert not Verdict(0.03, 0.01, 0.0, 1, 6).promoted
    assert "6 paired runs" in str(Verdict(-0.01, 0.01, 0.0, 0, 6))


def test_the_alarm_needs_a_sure_loss_or_longer_waits() -> None:
    assert not Verdict(-0.01, 0.02, 0.0, 0, 6).alarm
    assert Verdict(-0.03, 0.02, 0.0, 0, 6).alarm
    assert Verdict(0.05, 0.02, 0.04, 0, 6).alarm
    assert not Verdict(0.05, 0.02, 0.04, 0, 6, slower_error=0.03).alarm  # what was promoted at 2 % does not go at once
    assert Verdict(0.05, 0.02, 0.0, 1, 6).alarm


def test_draws_of_one_block_are_no_tests_of_their_own() -> None:
    assert evolve.over_blocks([7, 7, 7, 9, 9, 9], [0.1, 0.2, 0.3, 0.0, 0.0, 0.0]) == pytest.approx((0.1, 0.1))
    mean, error = evolve.over_blocks([7, 7, 7], [0.1, 0.1, 0.1])
    assert mean == pytest.approx(0.1) and error == np.inf
    assert not Verdict(mean, error, 0.0, 0, 3, np.inf).promoted
    assert "too few to be sure" in str(Verdict(mean, error, 0.0, 0, 3, np.inf))
    assert not Verdict(-mean, error, 0.5, 0, 3, np.inf).alarm


def test_one_block_of_the_shadow_test_promotes_nothing(small: Scenario) -> None:
    (block,) = recorded.blocks("run", small.draw(3), small.cluster, most=1)
    present, other = weights.current(), np.zeros(weights.SIZE)
    one = evolve.shadow(present, other, evolve.tested([block], 2))
    assert one.tests == 2 and one.error == one.slower_error == np.inf and not one.promoted
    two = evolve.shadow(present, other, evolve.tested([block, replace(block)], 2))
    assert two.tests == 4 and two.error == two.slower_error == 0.0


def test_the_command_writes_a_candidate_with_its_card_and_checks_it_later(tmp_path: Path) -> None:
    drive(tmp_path / "journal", workflows=13)
    out = tmp_path / "candidate.npz"
    made = CliRunner().invoke(app, ["learn", str(tmp_path / "journal"), "--out", str(out), "--seconds", "0"])
    assert made.exit_code == 0, made.output
    assert "shadow test, not promoted" in made.stdout  # no time, so they are the weights in use
    theta, card = weights.load(out)
    assert np.array_equal(theta, weights.current())
    assert card["shadow"]["promoted"] is False and card["recorded_trials"] == 6
    later = CliRunner().invoke(app, ["learn", str(tmp_path / "journal"), "--check", str(out)])
    assert later.exit_code == 0 and "no alarm" in later.stdout

"""The literature's rivals: their networks learn, they decide whole streams, and their files hold no pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from research import evaluate, portfolio
from research.evaluate import Place, Plan
from research.rivals import files, judging, network, play, selector, training
from research.rivals.agent import Agent
from research.rivals.arena import Arena
from research.rivals.network import Net
from research.spread_reward import SCALE
from wattflow.learn.scenarios import Scenario
from wattflow.model.errors import InvalidInput


def test_a_net_learns_what_it_is_shown() -> None:
    rng = np.random.default_rng(1)
    net = Net.start((3, 16, 1), rng)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = (x[:, 0] * x[:, 1]).astype(np.float32)
    for _ in range(1500):
        net.descend((net.forward(x) - y[:, None]) / np.float32(len(y)), 1e-2)
    assert np.mean((net.forward(x)[:, 0] - y) ** 2) < 0.1 * np.var(y)


def test_chances_of_each_decision_sum_to_one_and_the_first_greatest_is_best() -> None:
    logits = np.array([1.0, 3.0, 3.0, -2.0, 5.0, 5.5], np.float32)
    starts = np.array([0, 3, 4])
    chance = np.exp(network.log_softmax(logits, starts))
    assert np.add.reduceat(chance, starts) == pytest.approx([1.0, 1.0, 1.0], abs=1e-6)
    assert network.best(logits, starts).tolist() == [1, 0, 1]
    drawn = [network.drawn(np.log(chance), starts, np.random.default_rng(seed)) for seed in range(400)]
    assert np.mean([some[0] == 1 for some in drawn]) == pytest.approx(chance[1], abs=0.08)


def test_a_selector_that_always_names_the_flagship_is_the_flagship(small: Scenario) -> None:
    agent = selector.Selector.start(1)
    for w, b in agent.net.layers:
        w[:], b[:] = 0.0, 0.0
    agent.net.layers[-1][1][selector.RULES.index("flagship")] = 1.0
    stream = play.open_stream(agent, small, 3)
    assert play.roll(agent, stream) == stream.judge.reference
    agent.net.layers[-1][1][selector.RULES.index("emptiest")] = 2.0
    assert play.roll(agent, stream) != stream.judge.reference


@pytest.mark.parametrize("name", list(files.RIVALS))
def test_every_rival_learns_plays_and_is_kept_in_a_file(name: str, small: Scenario, tmp_path: Path) -> None:
    agent: Agent = files.RIVALS[name].start(1)
    # Where one shape of tasks waits at a time a kernel has no choice, and only its critic learns.
    layers = [pair for net in (agent.net, agent.critic) if net is not None for pair in net.layers]
    before = [w.copy() for w, _ in layers]
    arena = Arena(agent, lambda _: small, 1, 2)
    trainer = training.trainer_of(agent, arena, 1)
    assert np.isfinite(trainer.round())
    assert any((w != old).any() for (w, _), old in zip(layers, before, strict=True))
    stream = play.open_stream(agent, small, 4)
    found = play.roll(agent, stream)
    assert found.energy_j > 0.0 and stream.state.counts.open[0] == 0
    assert play.roll(agent, stream) == found
    files.save(tmp_path / "one.npz", agent)
    again = files.load(tmp_path / "one.npz")
    assert again.card["rival"] == name and play.roll(again, stream) == found


def test_a_rival_is_judged_in_the_very_scenario_that_a_policy_is(small: Scenario, tmp_path: Path) -> None:
    flagship = selector.Selector.start(1)
    for w, b in flagship.net.layers:
        w[:], b[:] = 0.0, 0.0
    files.save(tmp_path / files.shipped(flagship.name, -1).name, flagship)
    folder = Path(small.stream.instances[0]).parents[1]
    place, plan = Place("app", -1, 0.6, "edge-cloud", str(folder)), Plan(seeds=2, tasks=100)
    rows = {row.policy: row for row in judging.judge_all([place], plan, 1, folder=tmp_path)}
    assert list(rows) == [flagship.name]
    scenario = evaluate.scenario_of(place, plan)
    expected = tuple(
        portfolio.measure(scenario.draw(seed), scenario.cluster, "wattflow", seed, scenario.options)
        for seed in range(plan.seeds)
    )
    for found, same in zip(rows[flagship.name].results, expected, strict=True):
        assert found.energy_j == pytest.approx(same.energy_j) and found.missed == same.missed
        assert found.p95_s == pytest.approx(same.p95_s) and found.makespan_s == pytest.approx(same.makespan_s)


def test_rewards_of_the_arena_are_those_of_the_environment_spread_evenly(small: Scenario) -> None:
    agent = selector.Selector.start(1)
    arena = Arena(agent, lambda _: small, 1, 1)
    total, ended = 0.0, False
    while not ended:
        reward, done = arena.step(np.zeros(1, np.int64))
        total, ended = total + float(reward[0]) / SCALE, bool(done[0])
    judge = arena.env.episodes[0].judge
    assert total == pytest.approx(-judge.penalty(judge.reference), abs=0.02)


def test_a_file_that_is_no_rival_is_said_to_be_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", card=np.array('{"rival": "nobody"}'))
    with pytest.raises(InvalidInput, match="holds no rival"):
        files.load(tmp_path / "other.npz")

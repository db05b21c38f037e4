"""PPO trains the very place head that is served: the same costs, a run that goes on is the one that did not stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("jax")
pytest.importorskip("optax")

import jax

from wattflow.learn import ppo, ppo_network, ppo_run
from wattflow.learn.environment import SchedulingVectorEnv
from wattflow.learn.ppo import Batch, PpoSettings, Trainer
from wattflow.learn.ppo_network import PLACE, Look
from wattflow.learn.ppo_run import Run
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Judge
from wattflow.model.errors import InvalidInput
from wattflow.policy import placing, registry, wattflow, weights

TINY = PpoSettings(count=2, rows=16, steps=24, turns=2, parts=2, every=1)
CROWDING = placing.AROUND_N + placing.CANDIDATE.index("crowding")


def test_costs_in_jax_are_those_of_the_compiled_policy(small: Scenario) -> None:
    theta = np.random.default_rng(4).normal(0.0, 0.2, weights.SIZE)
    env = SchedulingVectorEnv(lambda _: small, 2, theta=theta)
    env.reset(seed=6)
    rng, same, dearer = np.random.default_rng(5), [], []
    for one in env.episodes:  # a place that is passed over is no row, though others may be priced beside it
        one.state.params[wattflow.DIAL.spare] = np.inf
    seen, *_ = env.step([0, 0])
    for _ in range(150):
        f = ppo_network.correction(theta[PLACE], seen[:, :, : placing.N])
        price, cost = ppo.prices(env, 64)
        for i, n in enumerate(env.shown.tolist()):
            beyond = cost[i, :n] - (price + f)[i, :n]  # what the task takes from others there
            alone = seen[i, :n, CROWDING] == 0.0
            same += np.abs(beyond[alone]).tolist()
            dearer += beyond[~alone].tolist()
        seen, _, ended, *_ = env.step(rng.integers(env.shown))
        assert not ended.any()
    assert len(same) > 300 and len(dearer) > 50
    assert max(same) < 1e-4
    assert min(dearer) > -1e-4 and max(dearer) > 0.01


def look_of(rng: np.random.Generator, decisions: int, rows: int) -> Look:
    features = rng.normal(0.0, 1.0, (decisions, rows, placing.N)).astype(np.float32)
    mask = np.arange(rows) < rng.integers(2, rows + 1, (decisions, 1))
    return Look(features, np.zeros((decisions, rows), np.float32), np.full((decisions, rows), -20.0, np.float32), mask)


def test_rows_that_did_well_become_likelier_and_those_that_are_not_there_stay_impossible() -> None:
    rng = np.random.default_rng(2)
    look = look_of(rng, 40, 6)
    theta = {"place": np.zeros(weights.HASTE, np.float32), "critic": ppo_network.start_critic(jax.random.PRNGKey(1))}
    row, chance, value, kept = ppo_network.act(theta, jax.random.PRNGKey(3), look._replace(taken=np.zeros((40, 6))))
    assert look.mask[np.arange(40), row].all() and np.isfinite(np.asarray(kept.taken)).all()
    assert np.allclose(np.exp(chance), 1.0 / look.mask.sum(1), rtol=1e-4) and not np.asarray(value).any()
    gain = np.asarray(look.features[np.arange(40), np.asarray(row), 3])
    part = (kept, row, chance, gain, np.zeros(40, np.float32))
    before, slope = jax.jit(jax.value_and_grad(ppo_network.loss))(theta, part, 0.2)
    moved = {"place": theta["place"] - 1e-4 * slope["place"], "critic": theta["critic"]}
    assert float(jax.jit(ppo_network.loss)(moved, part, 0.2)) < float(before)
    # A greater third feature did well, so a row that has more of it is cheaper now.
    ahead = np.zeros((1, 2, placing.N), np.float32)
    ahead[0, 1, 3] = 1.0
    cheaper = ppo_network.correction(moved["place"], ahead)[0]
    assert float(cheaper[1]) < float(cheaper[0])


def test_gains_are_what_came_beyond_what_was_expected() -> None:
    reward, ended = np.array([[1.0], [2.0], [4.0]]), np.array([[0.0], [1.0], [0.0]])
    batch = Batch(Look(0, 0, 0, 0), 0, 0, np.array([[0.5], [0.25], [3.0]]), reward, ended)
    found = ppo.gains(batch, np.array([10.0]), 0.5, 0.8)
    last, second = 4.0 + 0.5 * 10.0 - 3.0, 2.0 - 0.25
    assert found[:, 0].tolist() == pytest.approx([1.0 + 0.5 * 0.25 - 0.5 + 0.4 * second, second, last])


@pytest.fixture(scope="module")
def judges(small: Scenario) -> list[Judge]:
    return [Judge(small, 6000)]


@pytest.mark.slow
def test_a_run_that_goes_on_is_the_run_that_did_not_stop(small: Scenario, judges: list[Judge], tmp_path: Path) -> None:
    def run(out: str, rounds: int, again: bool = False, settings: PpoSettings = TINY) -> Run:
        made = Run(Trainer(settings, draw=lambda _: small), judges, tmp_path / out, again)
        made.train(60.0, rounds)
        return made

    through = run("through", 2)
    run("stopped", 1)
    on = run("stopped", 2, again=True)
    assert through.trainer.number == on.trainer.number == 2
    assert np.array_equal(through.trainer.weights, on.trainer.weights)
    assert np.array_equal(through.progress.best, on.progress.best)
    for one, other in zip(through.progress.curve, on.progress.curve, strict=True):
        assert np.isfinite(one).all() and one[:1] + one[2:] == other[:1] + other[2:]
    start = Trainer(TINY, draw=lambda _: small).weights
    moved = np.abs(through.trainer.weights - start)
    assert moved[PLACE].max() > 1e-4 and not moved[weights.HASTE :].any()
    assert through.progress.curve[0][5] == pytest.approx(0.0, abs=1e-12)  # the flagship
    on.draw()
    served = tmp_path / "stopped" / "ppo-all-seed-1.npz"
    assert served.with_suffix(".png").is_file() and served.with_suffix(".csv").read_text().count("\n") == 4
    assert weights.load(served)[1]["trainer"] == "PPO"
    assert registry.load(f"learned:weights={served}").name.startswith("learned")
    with pytest.raises(InvalidInput, match="--resume goes on"):
        run("stopped", 2)
    with pytest.raises(InvalidInput, match="other settings"):
        run("stopped", 2, again=True, settings=replace(TINY, place=0.1))


def test_what_cannot_be_trained_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights.save(tmp_path / "large.npz", np.zeros(weights.LARGE_SIZE), {})
    for wrong, told in (
        (["--seed", "0"], "give 1 or more"),
        (["--from", str(tmp_path / "large.npz")], "has attention"),
        (["--from", str(tmp_path / "none.npz")], "none.npz"),
    ):
        with pytest.raises(SystemExit) as stopped:
            ppo_run.main([*wrong, "--out", str(tmp_path / "out")])
        assert stopped.value.code == 2 and told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

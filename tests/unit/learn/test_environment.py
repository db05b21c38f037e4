"""The Gymnasium environment: every decision is a step, and the first row is the flagship."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env

from wattflow.learn import episode, renewing, scenarios
from wattflow.learn.environment import Episode, SchedulingEnv, SchedulingVectorEnv
from wattflow.learn.scenarios import Scenario
from wattflow.live import wanted


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_finds_nothing_wrong(small: Scenario) -> None:
    check_env(SchedulingEnv(lambda _: small), skip_render_check=True)
    check_env(SchedulingEnv(lambda _: small, joint=True), skip_render_check=True)


def test_the_first_row_is_the_flagship_and_waiting_is_borne(small: Scenario) -> None:
    env = SchedulingEnv(lambda _: small)
    observation, info = env.reset(seed=4)
    assert observation.shape == env.observation_space.shape and info["action_mask"][0]
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, info = env.step(0)
        total += reward
    assert env._episode is not None
    judge = env._episode.judge
    assert judge.trial.result() == judge.reference
    assert total == pytest.approx(-judge.penalty(judge.reference), abs=0.02)
    rng, ended = np.random.default_rng(1), False
    env.reset(seed=5)
    while not ended:
        *_, ended, _, info = env.step(int(rng.integers(64)))
    assert env._episode.state.counts.open[0] == 0


@pytest.mark.parametrize("seed", [0, 16, 20])
def test_the_first_row_is_the_flagship_where_it_lets_tasks_wait(small: Scenario, seed: int) -> None:
    cluster = scenarios.random_cluster(np.random.default_rng(seed), "other")
    one = Episode(replace(small, cluster=cluster, stream=replace(small.stream, load=0.3)), seed, joint=False)
    nothing = np.zeros((0, episode.WIDTH), np.float32)
    shown = one.step(wanted.NONE, nothing)
    while shown > 0:
        shown = one.step(0, nothing)
    one.closing_reward()
    assert one.judge.trial.result() == one.judge.reference


def test_the_first_row_is_the_flagship_where_few_of_many_rows_are_shown(small: Scenario) -> None:
    one = Episode(small, 3, joint=False, rows=2)
    nothing = np.zeros((0, episode.WIDTH), np.float32)
    shown = one.step(wanted.NONE, nothing)
    while shown > 0:
        assert shown <= 2
        shown = one.step(0, nothing)
    assert one.closing_reward() == pytest.approx(1.0 - one.judge.penalty(one.judge.reference))
    assert one.judge.trial.result() == one.judge.reference
    assert int(one.ask.ask["lost"][0]) > 0


def test_an_episode_that_is_begun_anew_in_compiled_code_is_the_same_again(small: Scenario) -> None:
    many = SchedulingVectorEnv(lambda _: small, 2, features=False)
    many.reset(seed=7)
    rewards: list[float] = []
    ends: list[int] = []
    while len(ends) < 2:
        _, reward, ended, _, _ = many.step(np.zeros(2, np.int64))
        rewards.append(float(reward[0]))
        if ended[0]:
            ends.append(len(rewards))
    first, second = rewards[: ends[0]], rewards[ends[0] :]
    assert first == second
    judge = many.episodes[0].judge
    used = -sum(first) + 1.0 - judge.penalty(judge.reference)
    assert used == pytest.approx(1.0, abs=0.02)
    assert first[-1] > -1.0


def test_to_play_is_to_step_by_the_first_row(small: Scenario) -> None:
    stepped, played = (SchedulingVectorEnv(lambda _: small, 3) for _ in range(2))
    stepped.reset(seed=7)
    played.reset(seed=7)
    total, ends = np.zeros(3), np.zeros(3, np.int64)
    for _ in range(600):
        seen, reward, ended, _, info = stepped.step(np.zeros(3, np.int64))
        total += reward
        ends += ended
    other, sums, ended, mask = played.play(600)
    assert ends.min() >= 1 and np.array_equal(ends, ended)
    assert sums == pytest.approx(total)
    assert np.array_equal(mask["action_mask"], info["action_mask"])
    for i, shown in enumerate(stepped.shown.tolist()):
        assert np.array_equal(seen[i, :shown], other[i, :shown])


def test_what_is_beyond_the_rows_is_empty(small: Scenario) -> None:
    many = SchedulingVectorEnv(lambda _: small, 2)
    seen, _ = many.reset(seed=7)
    first, fewer, last = seen.copy(), 0, many.shown.copy()
    for _ in range(300):
        seen, *_, info = many.step(np.zeros(2, np.int64))
        fewer += int((many.shown < last).sum())
        last = many.shown.copy()
        assert np.array_equal(seen.any(axis=2), info["action_mask"])
    assert fewer > 0
    assert np.array_equal(many.reset(seed=7)[0], first)


def test_a_new_beginning_brings_back_all_that_an_episode_changes(small: Scenario) -> None:
    one = Episode(small, 3, joint=False)
    nothing = np.zeros((0, episode.WIDTH), np.float32)
    shown = one.step(wanted.NONE, nothing)
    while shown > 0:
        shown = one.step(shown - 1, nothing)
    state, _ = one.judge.trial.beginning
    for name in renewing.FIXED:
        assert np.array_equal(getattr(one.state, name), getattr(state, name)), name


def test_many_streams_go_on_for_ever_and_as_one_does(small: Scenario) -> None:
    many = SchedulingVectorEnv(lambda _: small, 3)
    seen, info = many.reset(seed=7)
    assert seen.shape == many.observation_space.shape
    first, returns, ends = np.zeros(3, np.int64), np.zeros(3), np.zeros(3, np.int64)
    for _ in range(700):
        seen, reward, ended, _, info = many.step(first)
        returns += reward * (ends == 0)
        ends += ended
    assert ends.min() >= 2
    assert info["action_mask"].any(axis=1).all()
    lost = [-one.judge.penalty(one.judge.reference) for one in many.episodes]
    assert returns == pytest.approx(lost, abs=0.02)


def test_streams_do_not_depend_on_threads_and_unpriced_rows_come_in_the_engines_order(small: Scenario) -> None:
    rewards = []
    for threads in (1, 2):
        many = SchedulingVectorEnv(lambda _: small, 4, threads=threads)
        many.reset(seed=3)
        rewards.append([many.step(np.zeros(4, np.int64))[1] for _ in range(150)])
        many.close()
    assert np.array_equal(rewards[0], rewards[1])
    plain = SchedulingVectorEnv(lambda _: small, 2, features=False, priced=False)
    seen, _ = plain.reset(seed=3)
    assert seen.shape[1] == 0
    ended = np.zeros(2, np.int64)
    for _ in range(400):
        assert plain.shown.min() > 0
        ended += plain.step(np.zeros(2, np.int64))[2]
    assert ended.min() >= 1
    assert all((one.ask.rows["cost"] == 0.0).any() for one in plain.episodes)

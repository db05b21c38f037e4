"""The Gymnasium environment: every decision is a step, and the first row is the flagship."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

from wattflow.learn import episode, renewing, scenarios
from wattflow.learn.environment import Episode, SchedulingEnv, SchedulingVectorEnv
from wattflow.learn.scenarios import Scenario
from wattflow.learn.trial import Judge
from wattflow.live import caller_choice
from wattflow.policy import weights

pytestmark = pytest.mark.slow  # its kernel is compiled for no other test: 18 s


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
    shown = one.step(caller_choice.NONE, nothing)
    while shown > 0:
        shown = one.step(0, nothing)
    one.closing_reward()
    assert one.judge.trial.result() == one.judge.reference


def test_the_first_row_is_the_flagship_where_few_of_many_rows_are_shown(small: Scenario) -> None:
    one = Episode(small, 3, joint=False, rows=2)
    nothing = np.zeros((0, episode.WIDTH), np.float32)
    shown = one.step(caller_choice.NONE, nothing)
    while shown > 0:
        assert shown <= 2
        shown = one.step(0, nothing)
    assert one.closing_reward() == pytest.approx(1.0 - one.judge.penalty(one.judge.reference))
    assert one.judge.trial.result() == one.judge.reference
    assert int(one.ask.ask["lost"][0]) > 0


def test_an_episode_that_is_begun_anew_in_compiled_code_is_the_same_again(small: Scenario) -> None:
    many = SchedulingVectorEnv(lambda _: small, 2, features=False, plays=None)
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
    shown = one.step(caller_choice.NONE, nothing)
    while shown > 0:
        shown = one.step(shown - 1, nothing)
    state, _ = one.judge.trial.beginning
    for name in renewing.FIXED:
        assert np.array_equal(getattr(one.state, name), getattr(state, name)), name


def test_many_streams_go_on_for_ever_and_as_one_does(small: Scenario) -> None:
    many = SchedulingVectorEnv(lambda _: small, 3, plays=None)
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


def _numbers(small: Scenario, plays: int, seeds: tuple[int | None, ...], steps: int) -> tuple[list[int], int]:
    """The streams that were drawn in turn, and how many ended."""
    drawn: list[int] = []

    def draw(number: int) -> Scenario:
        drawn.append(number)
        return small

    many = SchedulingVectorEnv(draw, 2, features=False, plays=plays)
    ends = 0
    for seed in seeds:
        many.reset(seed=seed)
        for _ in range(steps):
            ends += int(many.step(np.zeros(2, np.int64))[2].sum())
    return drawn, ends


def test_other_streams_follow_an_end_and_a_reset_and_the_first_seed_says_which(small: Scenario) -> None:
    drawn, ends = _numbers(small, 1, (7, None), 300)
    assert len(drawn) == 4 + ends and ends >= 2
    assert len(set(drawn)) == len(drawn) and set(drawn[:2]) == {1007, 1008}
    assert _numbers(small, 1, (7, None), 300) == (drawn, ends)
    assert _numbers(small, 1, (None, None), 1)[0] == [1000, 1001, 1002, 1003]
    twice, ends = _numbers(small, 2, (7,), 600)
    assert len(set(twice)) == len(twice) and ends >= 4
    assert (ends - 2) // 2 <= len(twice) - 2 <= ends // 2


def test_what_is_no_action_is_refused(small: Scenario) -> None:
    one, many = SchedulingEnv(lambda _: small, rows=8), SchedulingVectorEnv(lambda _: small, 2, rows=8)
    with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
        one.step(0)
    with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
        many.step([0, 0])
    one.reset(seed=1)
    many.reset(seed=1)
    before = many.shown.copy()
    for wrong in ([0], [0, 0, 0], 0, [[0, 0]], [0.0, 1.0], [True, False], [0, -1], [8, 0]):
        with pytest.raises(InvalidAction, match="2 whole numbers"):
            many.step(wrong)
    for wrong_one in (-1, 8, 0.5, None):
        with pytest.raises(InvalidAction, match="from 0 to 7"):
            one.step(wrong_one)  # type: ignore[arg-type]
    assert np.array_equal(many.shown, before)
    many.step(np.array([7, 0], np.int32))


def test_a_number_beyond_the_rows_waits_in_one_stream_and_in_many(small: Scenario) -> None:
    many = SchedulingVectorEnv(lambda _: small, 1, plays=None)
    many.reset(seed=3)
    one = Episode(small, 1003, joint=False)
    out = np.zeros((64, episode.WIDTH), np.float32)
    shown, waited = one.step(caller_choice.NONE, out), 0
    rng = np.random.default_rng(2)
    for _ in range(150):
        action = int(rng.integers(shown + 2))
        running = int(one.state.counts.running[0]) > 0
        waited += action >= shown and running
        before = float(one.joules[0])
        shown = one.step(action if action < shown else caller_choice.NONE if running else 0, out)
        seen, reward, *_ = many.step([action])
        assert shown == many.shown[0] and np.array_equal(seen[0, :shown], out[:shown])
        assert reward[0] == (before - one.joules[0]) / one.judge.reference.energy_j
    assert waited > 10


def test_an_end_is_told_as_gymnasium_asks_and_copies_stay_as_they_were(small: Scenario) -> None:
    many = SchedulingVectorEnv(lambda _: small, 2, copy=True)
    first, info = many.reset(seed=7)
    kept, mask = first.copy(), info["action_mask"].copy()
    while True:
        seen, _, ended, _, told = many.step([0, 0])
        if ended.any():
            break
        assert set(told) == {"action_mask"}
    assert np.array_equal(first, kept) and np.array_equal(info["action_mask"], mask)
    assert np.array_equal(told["_final_obs"], ended) and np.array_equal(told["_final_info"], ended)
    for i in range(2):
        assert (told["final_obs"][i] is not None) == ended[i]
        if ended[i]:
            assert told["final_obs"][i].shape == many.single_observation_space.shape
            assert not told["final_obs"][i].any() and seen[i].any()
            assert told["final_info"]["action_mask"][i].tolist() == [True] + [False] * 63
            assert told["final_info"]["_action_mask"][i]


def test_by_weights_the_first_row_is_the_learned_policy(small: Scenario) -> None:
    theta = np.random.default_rng(8).normal(0.0, 0.3, weights.SIZE)
    many = SchedulingVectorEnv(lambda _: small, 2, theta=np.zeros(weights.SIZE))
    many.reset(seed=5)
    many.step([0, 0])
    judge = Episode(small, 1007, joint=False).judge
    zero = judge.trial.run(np.zeros(weights.SIZE))
    assert zero == judge.reference
    many.follow(theta)
    ended = np.zeros(2, bool)
    while not ended[0]:
        ended = many.step([0, 0])[2]
    total, ended = 0.0, np.zeros(2, bool)
    one = many.episodes[0]
    assert one.judge.seed == 1007
    while not ended[0]:
        _, reward, ended, *_ = many.step([0, 0])
        total += float(reward[0])
    by_weights = Judge(small, 1007).trial.run(theta)
    assert by_weights.energy_j != pytest.approx(zero.energy_j, rel=1e-3)
    used = 1.0 - judge.penalty(by_weights) - total
    assert used == pytest.approx(by_weights.energy_j / judge.reference.energy_j, abs=0.02)
    one.closing_reward()
    assert one.judge.trial.result() == by_weights

"""Weights of members, and the plain members themselves, on cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.predict import conformal, kriging, plain
from wattflow.predict.core import MEMBERS
from wattflow.predict.observations import Observations, concatenate, in_order
from wattflow.predict.training import CoreTrainer


def test_a_blend_is_no_worse_than_its_best_member() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        residual = rng.normal(rng.normal(0, 0.2, 4), rng.uniform(0.05, 0.6, 4), (60, 4))
        weights = conformal.choose(residual, np.arange(60) % 5)
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0).all()
        assert conformal.relative_cost(residual @ weights) <= min(
            conformal.relative_cost(column) for column in residual.T
        )


def test_errors_that_cancel_are_averaged_and_a_bad_member_gets_nothing() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.3, 600)
    residual = np.column_stack([noise, -noise, rng.normal(2, 1, 600)])
    weights = conformal.choose(residual, np.arange(600) // 10)
    assert weights[:2] == pytest.approx([0.5, 0.5], abs=0.1)
    assert weights[2] < 0.02


def test_a_handicap_decides_near_ties_only() -> None:
    rng = np.random.default_rng(2)
    common = rng.normal(0, 0.2, 400)
    near = np.column_stack([common, common * 0.98])
    assert conformal.choose(near, handicap=np.array([0.0, 0.05]))[0] == 1.0
    clear = np.column_stack([common, common * 0.5])
    assert conformal.choose(clear, handicap=np.array([0.0, 0.05]))[1] == 1.0


def test_plain_members_say_what_a_script_would() -> None:
    task, machine = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    data, size = np.array([0, 1, 0, -1]), np.array([1e9, 3e9, 1e9, np.nan])
    log_s = np.log([2.0, 4.0, 10.0, 5.0])
    fitted = plain.fit_plain(task, machine, size, data, log_s, (2, 2, 2))
    found = dict(
        zip(plain.NAMES, np.exp(fitted.predict(task[:1], machine[:1], np.array([2e9]), data[:1])[0]), strict=True)
    )
    assert found["median"] == pytest.approx(4.0)
    assert found["median here"] == pytest.approx(3.0)
    assert found["last here"] == pytest.approx(4.0)
    assert found["line here"] == pytest.approx(3.0)
    assert found["least squares here"] == pytest.approx(3.0)
    assert found["same input"] == pytest.approx(np.sqrt(20.0))
    assert found["same input here"] == pytest.approx(2.0)
    unknown = fitted.predict(np.array([1]), np.array([0]), np.array([1e9]), np.array([-1]))[0]
    assert np.isnan(unknown[plain.NAMES.index("median here")])


def test_a_wild_single_run_is_held() -> None:
    data = np.arange(20)
    log_s = np.log(np.r_[np.full(19, 0.015) * np.linspace(0.9, 1.1, 19), 5.0])
    zero = np.zeros(20, np.int64)
    fitted = plain.fit_plain(zero, zero, np.full(20, np.nan), data, log_s, (1, 1, 20))
    asked = fitted.predict(zero[:1], zero[:1], np.array([np.nan]), np.array([19]))[0]
    assert np.exp(asked[plain.NAMES.index("same input")]) == pytest.approx(5.0)
    assert np.exp(asked[plain.NAMES.index("same input, steadied")]) < 0.05


def test_inputs_are_told_from_noise_by_one_run_each() -> None:
    rng = np.random.default_rng(0)
    task, data = np.repeat(np.arange(6), 30), np.tile(np.arange(30), 6)
    same = rng.normal(0, 0.5, 30)[data]
    noise = rng.normal(0, 0.5, 180)
    assert plain.likeness_of_inputs(task, data, same + 0.1 * noise) > 0.8
    assert plain.likeness_of_inputs(task, data, noise) < 0.1
    assert plain.likeness_of_inputs(task, np.full(180, -1), noise) == 0.0


def test_each_task_is_read_along_its_own_size() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.uniform(1e9, 9e9, (60, 2))
    task = np.arange(60) % 2
    seconds = np.where(task == 0, sizes[:, 0], sizes[:, 1]) / 1e9
    assert plain.best_sizes(task, np.zeros(60, np.int64), sizes, np.log(seconds), (2, 1)).tolist() == [0, 1]


def test_likelihood_slopes_equal_differences() -> None:
    rng = np.random.default_rng(0)
    places = kriging.Coordinates(rng.integers(0, 3, 15), rng.normal(size=15), rng.integers(-1, 3, 15))
    apart = np.abs(rng.normal(size=(3, 3)))
    distance = apart + apart.T
    np.fill_diagonal(distance, 0.0)
    parts, values = kriging._Parts.of(places, distance), rng.normal(0, 0.2, 15)
    slope = parts.likelihood(kriging.PRIOR, values)[1]
    for i in range(8):
        step = np.zeros(8)
        step[i] = 1e-5
        above, below = (parts.likelihood(kriging.PRIOR + s * step, values)[0] for s in (1, -1))
        assert slope[i] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-6)


def test_members_by_machine_pay_where_only_one_run_was_seen() -> None:
    rows = Observations.of(task=["a"] * 30, run=["1"] * 30, runtime_s=np.linspace(1, 2, 30))
    burden = CoreTrainer(rows, {}, 0).handicap
    assert burden[MEMBERS.index("median here")] > 0 == burden[MEMBERS.index("median")]
    both = concatenate([rows, Observations.of(task=["a"], run=["2"], runtime_s=[1.0])])
    # With two runs only the member pays that is best with one repeat: later there will be one more.
    burden = CoreTrainer(both, {}, 0).handicap
    assert [MEMBERS[i] for i in np.flatnonzero(burden)] == ["same input, steadied"]


def test_a_blend_that_gains_no_more_than_chance_gives_way_to_the_best_member() -> None:
    rng = np.random.default_rng(0)
    task = np.arange(200) % 5
    first, second = rng.normal(0, 0.2, 200), rng.normal(0, 0.2, 200)
    # Errors that differ row by row cancel: the blend wins. Errors of whole tasks, five of them, prove nothing.
    assert (conformal.choose(np.column_stack([first, second]), task, sure=2.0) > 0).all()
    whole = np.column_stack([np.array([0.5, 0.1, -0.1, 0.1, -0.1])[task], np.array([-0.5, 0.1, -0.1, 0.1, -0.1])[task]])
    assert sorted(conformal.choose(whole, task, sure=2.0).tolist()) == [0.0, 1.0]


def test_lines_are_carried_to_machines_where_a_task_never_ran() -> None:
    # On machine 0 the task takes 2 + 3 s a GB; machine 1 is half as fast, by the factors.
    size, zeros = np.array([1e9, 2e9, 3e9]), np.zeros(3, np.int64)
    fitted = plain.fit_plain(zeros, zeros, size, zeros - 1, np.log(2.0 + 3.0 * size / 1e9), (1, 2, 0))
    carried = plain.carried(fitted, np.log([[1.0, 2.0]]))
    found = carried.predict(np.zeros(1, np.int64), np.ones(1, np.int64), np.array([4e9]), np.array([-1]))[0]
    assert np.exp(found[plain.NAMES.index("least squares here")]) == pytest.approx(28.0)
    assert np.isnan(found[plain.NAMES.index("median here")])


def test_rows_are_learned_in_the_order_they_finished() -> None:
    rows = Observations.of(task=["a", "b"], columns={"finished_s": np.array([2.0, 1.0])})
    assert in_order(rows).task.tolist() == ["b", "a"]
    sized = Observations.of(task=["c"], sizes=np.array([[7.0]]), size_names=("size",))
    joined = concatenate([rows, sized])
    assert joined.size_names == ("size",)
    assert np.isnan(joined.sizes[:2]).all()
    assert joined.sizes[2, 0] == 7.0

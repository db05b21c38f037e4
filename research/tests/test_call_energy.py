"""Energy of function calls from what was seen before them."""

from __future__ import annotations

import numpy as np
import pytest

from research import call_energy as serverless
from wattflow.predict import trees

QUICK = (trees.BoostSetting(rounds=0), trees.BoostSetting(rounds=20))


def calls(count: int = 160, seed: int = 0) -> serverless.Calls:
    rng = np.random.default_rng(seed)
    function = np.array(["f", "g"])[np.arange(count) // (count // 2)]
    machine = np.array(["x", "y"])[np.arange(count) // (count // 4) % 2]
    block = np.char.add(function, machine)
    start = np.arange(count, dtype=np.float64) * 2.0
    duration = np.where(function == "f", 1.0, 5.0) * np.exp(rng.normal(0, 0.05, count))
    power = np.where(machine == "x", 2.0, 6.0) * np.exp(rng.normal(0, 0.05, count))
    waves = serverless.waves(block, start)
    return serverless.Calls(function, machine, block, waves, np.ones(count), start, duration, power)


def test_calls_are_predicted_from_the_past_only() -> None:
    some = calls()
    seen = serverless.observe(some)
    assert np.isnan(seen.log_s[0]).all()
    later = serverless.Calls(some.function, some.machine, some.block, some.wave, some.warm, some.start_s,
                             some.duration_s.copy(), some.power_w.copy())  # fmt: skip
    later.power_w[100:] *= 50
    again = serverless.observe(later)
    np.testing.assert_array_equal(again.table[:100], seen.table[:100])
    np.testing.assert_array_equal(again.log_w[:100], seen.log_w[:100])


def test_the_call_that_started_last_is_told_from_the_one_that_finished_last() -> None:
    start, duration = np.array([0.0, 5.0, 20.0]), np.array([10.0, 1.0, 1.0])
    names = np.array(["f"] * 3)
    some = serverless.Calls(names, names, names, names, np.ones(3), start, duration, np.array([2.0, 3.0, 4.0]))
    seen = serverless.observe(some)
    started, finished = (serverless.MEMBERS.index(name) for name in ("started last", "finished last"))
    assert np.exp(seen.log_w[2, started]) == pytest.approx(3.0)
    assert np.exp(seen.log_w[2, finished]) == pytest.approx(2.0)


def test_energy_of_calls_is_predicted_and_covered() -> None:
    some = calls()
    seen = serverless.observe(some)
    model = serverless.fit(some, seen, some.wave, settings=QUICK)
    energy, low, high = model.predict(some, seen)
    assert np.median(np.abs(energy / some.energy_j - 1)) < 0.2
    assert np.mean((some.energy_j >= low) & (some.energy_j <= high)) > 0.8
    cold = serverless.fit(some, seen, some.wave, history=False, settings=QUICK).predict(some, seen)[0]
    assert np.isfinite(cold).all()


def test_trees_correct_calls_for_load_and_what_was_left_out_calibrates() -> None:
    rng = np.random.default_rng(1)
    count, wave = 600, 12
    place = np.arange(count) % wave
    start = np.arange(count) // wave * 30.0 + 0.01 * place
    names = np.full(count, "f")
    duration = 2.0 * np.exp(rng.normal(0, 0.02, count))
    power = np.exp(-0.15 * place + rng.normal(0, 0.05, count))  # the node's watts are shared by all that run
    block = np.full(count, "b")
    some = serverless.Calls(names, names, block, serverless.waves(block, start), np.ones(count), start, duration, power)
    seen = serverless.observe(some)
    train, test = np.arange(400), np.arange(400, count)
    model = serverless.fit(some.take(train), seen.take(train), some.wave[train])
    energy, low, high = model.predict(some.take(test), seen.take(test))
    last = np.exp(seen.log_s[test, 0] + seen.log_w[test, 0])
    true = some.energy_j[test]
    assert np.median(np.abs(energy / true - 1)) < 0.6 * np.median(np.abs(last / true - 1))
    assert 0.8 < np.mean((true >= low) & (true <= high)) < 0.98


def test_a_function_on_a_machine_without_calls_has_the_interval_of_machines_left_out() -> None:
    some = calls()
    seen = serverless.observe(some)
    model = serverless.fit(some, seen, some.machine, history=False)
    _, low, high = model.predict(some, seen)
    assert (high / low > 5.0).all(), "the machines differ threefold, and each was predicted from the other"
    assert np.mean((some.energy_j >= low) & (some.energy_j <= high)) > 0.85


def test_waves_split_at_gaps() -> None:
    names = serverless.waves(np.array(["b", "b", "b", "c"]), np.array([0.0, 0.1, 1.0, 1.0]))
    assert names[0] == names[1] != names[2]
    assert names[3] != names[2]


def test_a_function_never_seen_starts_from_its_machines_reading() -> None:
    count = 60
    machine = np.array(["hot", "cool"] * (count // 2))
    names = np.array([f"f{i % 3}" for i in range(count)])
    start = np.arange(count, dtype=np.float64) * np.float64(10.0)
    power = np.where(machine == "hot", 200.0, 20.0)
    block = machine.copy()
    known = serverless.Calls(
        names, machine, block, serverless.waves(block, start), np.ones(count), start, np.full(count, 1.0), power
    )
    model = serverless.fit(known, serverless.observe(known), known.wave)
    more = serverless.Calls(
        *(np.append(part, extra) for part, extra in (
            (known.function, "new"), (known.machine, "cool"), (known.block, "cool"), (known.wave, "w"),
            (known.warm, 1.0), (known.start_s, 700.0), (known.duration_s, 1.0), (known.power_w, 20.0),
        ))
    )  # fmt: skip
    last = np.array([count])
    log_w = model.parts(more.take(last), serverless.observe(more).take(last))[1]
    np.testing.assert_allclose(np.exp(log_w), 20.0)


def table(seed: int, rows: int, missing: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).round(1)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + rng.normal(0, 0.1, rows)
    x[rng.random(x.shape) < missing] = np.nan
    return x, y


def test_the_mean_of_ensembles_is_the_mean_of_their_predictions() -> None:
    x, y = table(1, 200, 0.1)
    parts = [trees.boost(x, y, trees.BoostSetting(loss=loss, rounds=20)) for loss in ("l1", "l2")]
    both = serverless.mean(parts)
    np.testing.assert_allclose(both.predict(x), (parts[0].predict(x) + parts[1].predict(x)) / 2, atol=1e-12)


def test_shrunk_trees_say_a_share() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 2))
    some = trees.boost(rows, rows[:, 0] + 3.0, trees.BoostSetting(rounds=5))
    np.testing.assert_allclose(serverless.shrunk(some, 0.25).predict(rows), 0.25 * some.predict(rows))

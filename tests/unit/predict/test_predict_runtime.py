"""Runtime predictions on made-up clusters whose truth is known."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from wattflow.model.errors import InvalidInput
from wattflow.predict import backbone, runtime, serving, tasks, text, training
from wattflow.predict.core import numbers
from wattflow.predict.observations import Observations

TASKS = {"wf/align": (2.0, 30.0, 1.0), "wf/sort": (1.0, 4.0, 0.3), "wf/report": (5.0, 0.0, 0.0)}
SPEEDS = {"a": 1.0, "b": 0.7, "c": 1.5, "d": 1.1}
BENCHMARKS = {m: {"wf/align": 10 / s, "wf/sort": 3 / s, "other": 7 / s} for m, s in SPEEDS.items()}


def observed(machines: tuple[str, ...], seed: int = 0, noise: float = 0.03, runs: int = 14) -> Observations:
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, str, str, float, float]] = []
    for machine in machines:
        for r in range(runs):
            size = float(10 ** rng.uniform(8, 10))
            for name, (a, b, _) in TASKS.items():
                true = (a + b * size / 1e9) / SPEEDS[machine] * math.exp(rng.normal(0, noise))
                rows.append((name, machine, f"{machine}-{r}", size, true))
    return Observations.of(
        task=[r[0] for r in rows], machine=[r[1] for r in rows], run=[r[2] for r in rows],
        workflow=["wf"] * len(rows), sizes=np.array([[r[3]] for r in rows]), size_names=("size",),
        runtime_s=[r[4] for r in rows], peak_bytes=[r[3] / 10 for r in rows], used_cores=[1.0] * len(rows),
        energy_j=[r[4] * 20.0 for r in rows],
    )  # fmt: skip


@pytest.fixture(scope="module")
def model() -> runtime.RuntimeModel:
    return runtime.fit(observed(("a", "b", "c")), BENCHMARKS)


def test_relative_line_finds_the_line_in_spite_of_an_outlier() -> None:
    x = np.linspace(0.1, 10, 30)
    t = 2.0 + 3.0 * x
    t[5] *= 40
    assert backbone.relative_line(x, t) == pytest.approx((2.0, 3.0), rel=0.02)
    assert backbone.relative_line(np.ones(5), np.full(5, 4.0)) == pytest.approx((4.0, 0.0))


def test_the_backbone_recovers_machine_factors() -> None:
    rows = observed(("a", "b"), noise=0.0)
    task = numbers(rows.task, tuple(TASKS))
    machine = numbers(rows.machine, ("a", "b"))
    fitted = backbone.fit_backbone(task, machine, rows.sizes[:, 0], np.log(rows.runtime_s), (3, 2))
    np.testing.assert_allclose(fitted.offset[:, 1] - fitted.offset[:, 0], math.log(1 / 0.7), atol=1e-6)
    np.testing.assert_allclose(fitted.predict(task, machine, rows.sizes[:, 0]), np.log(rows.runtime_s), atol=1e-6)


def test_known_tasks_are_predicted_and_covered(model: runtime.RuntimeModel) -> None:
    fresh = observed(("a", "b", "c"), seed=9, runs=40)
    found = model.predict(fresh)
    assert set(found.novelty) == {runtime.KNOWN}
    assert np.median(np.abs(found.runtime_s / fresh.runtime_s - 1)) < 0.05
    inside = np.mean((fresh.runtime_s >= found.low_s) & (fresh.runtime_s <= found.high_s))
    assert 0.8 < inside <= 1.0
    assert found.advice() == []


def test_a_machine_with_benchmarks_only_is_placed(model: runtime.RuntimeModel) -> None:
    fresh = observed(("d",), seed=4)
    found = model.predict(fresh)
    assert set(found.novelty) == {runtime.NEW_MACHINE}
    assert np.median(np.abs(found.runtime_s / fresh.runtime_s - 1)) < 0.15
    assert "micro-benchmarks" in found.advice()[0]


def test_a_machine_nobody_knows_gets_the_mean_of_all(model: runtime.RuntimeModel) -> None:
    rows = observed(("a",), seed=4, runs=3)
    known = model.predict(rows).runtime_s
    nowhere = model.predict(Observations.of(
        task=rows.task, machine=["moon"] * len(rows), sizes=rows.sizes, size_names=("size",)))  # fmt: skip
    assert set(nowhere.novelty) == {runtime.NEW_MACHINE}
    assert np.all((nowhere.runtime_s > 0.3 * known) & (nowhere.runtime_s < 3 * known))


def test_an_unknown_task_has_no_point_and_a_wide_interval(model: runtime.RuntimeModel) -> None:
    rows = Observations.of(task=["new/align"], machine=["a"], sizes=np.array([[1e9]]), size_names=("size",))
    found = model.predict(rows)
    assert math.isnan(found.runtime_s[0])
    assert found.high_s[0] > 3 * found.low_s[0] > 0
    assert found.provenance()[0] == "guessed"
    assert "down-sampled" in found.advice()[0]


def asked(task: str, size: float) -> Observations:
    return Observations.of(task=[task], machine=["a"], sizes=np.array([[size]]), size_names=("size",))


def width(found: runtime.Prediction) -> float:
    return float(found.high_s[0] / found.low_s[0])


def test_a_missing_size_is_taken_as_typical_and_makes_unsure(model: runtime.RuntimeModel) -> None:
    found = model.predict(Observations.of(task=["wf/align"], machine=["a"]))
    assert 5 < found.runtime_s[0] < 320
    assert found.novelty[0] == runtime.NO_SIZE
    assert found.low_s[0] < 2.0 + 30 * 0.2 < 2.0 + 30 * 5.0 < found.high_s[0], "sizes run from 0.1 to 10 GB"
    assert "sizes are missing" in found.advice()[0]
    constant = model.predict(Observations.of(task=["wf/report"], machine=["a"]))
    assert width(constant) < 1.5, "a task whose size does not matter stays sure"


def test_intervals_widen_beyond_the_sizes_seen(model: runtime.RuntimeModel) -> None:
    inside, beyond, far = (model.predict(asked("wf/align", size)) for size in (5e9, 4e10, 83 * 1e10))
    assert width(inside) < width(beyond) < width(far)
    assert width(far) > 2.5
    assert (inside.novelty[0], far.novelty[0]) == (runtime.KNOWN, runtime.BEYOND_SIZES)
    assert far.runtime_s[0] == pytest.approx(2.0 + 30 * 830, rel=0.15), "the line goes on"
    assert "outside those" in far.advice()[0]


def test_the_same_input_is_known_again() -> None:
    rng = np.random.default_rng(0)
    work = np.exp(rng.normal(0, 1, 12))

    def run(seed: int) -> Observations:
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.02, 48))
        return Observations.of(
            task=[f"wf/t{i // 12}" for i in range(48)], data=[f"s{i % 12}" for i in range(48)], run=[str(seed)] * 48,
            runtime_s=np.tile(work, 4) * np.repeat([5.0, 20.0, 60.0, 9.0], 12) * noise,
        )  # fmt: skip

    found = runtime.fit(run(1)).predict(run(2))
    assert np.median(np.abs(found.runtime_s / run(2).runtime_s - 1)) < 0.06


@pytest.mark.slow
def test_a_fit_of_a_workflow_takes_about_a_second(model: runtime.RuntimeModel) -> None:
    rows = observed(("a", "b", "c", "d"), runs=120)
    taken_s = []
    for _ in range(2):  # the first may compile
        began = time.process_time()
        runtime.fit(rows, BENCHMARKS)
        taken_s.append(time.process_time() - began)
    assert min(taken_s) < 4.0, "1 s on a quiet machine; make bench-predict measures it"


def test_single_rows_equal_the_table(model: runtime.RuntimeModel) -> None:
    rows = observed(("a", "b", "d"), seed=7, runs=5)
    one = serving.RowPredictor(model)
    got = [one.predict_s(str(t), str(m), float(s)) for t, m, s in zip(rows.task, rows.machine, rows.sizes[:, 0])]
    np.testing.assert_allclose(got, model.predict(rows).runtime_s, rtol=1e-9)
    assert math.isnan(one.predict_s("no/such", "a", 1.0))
    assert one.predict_s("wf/align", "a") > 0


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 20"):
        runtime.fit(observed(("a",), runs=2))


def test_one_machine_and_one_run_still_fit() -> None:
    rows = observed(("a",), runs=12)
    same = Observations.of(task=rows.task, runtime_s=rows.runtime_s)
    found = runtime.fit(same).predict(same)
    assert np.isfinite(found.runtime_s).all()
    assert np.isfinite(found.low_s).all()


def test_the_same_rows_give_the_same_model() -> None:
    rows = observed(("a", "b"))
    first, second = (runtime.fit(rows, BENCHMARKS).predict(rows).high_s for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_everything_of_a_task_is_predicted_apart() -> None:
    rows = observed(("a", "b"))
    model = tasks.fit(rows, BENCHMARKS)
    found = tasks.predict(model, rows)
    assert found.power is not None
    np.testing.assert_allclose(found.power.power_w, 20.0, rtol=0.05)
    energy, low, high = found.energy_j
    np.testing.assert_allclose(energy, found.runtime.runtime_s * found.power.power_w)
    assert np.all((low <= energy * 1.001) & (energy <= high * 1.001))
    assert np.all(found.request_bytes >= rows.peak_bytes)


def test_without_energy_there_are_no_joules() -> None:
    rows = observed(("a", "b"))
    bare = Observations.of(task=rows.task, machine=rows.machine, run=rows.run, runtime_s=rows.runtime_s)
    found = tasks.predict(tasks.fit(bare), bare)
    assert found.power is None
    assert np.isnan(found.energy_j[0]).all()


def test_identical_benchmarks_are_one() -> None:
    table = training.benchmark_table(
        {"a": {"x": 1.0, "y": 1.0, "z": 2.0}, "b": {"x": 2.0, "y": 2.0}}, ("a", "b"), ("x",)
    )
    assert table.log_s.shape == (2, 2)
    assert table.own.sum() == 1.0
    assert table.distance(table.log_s[:, 0], table.log_s[:, 1]) == pytest.approx(math.log(2))


def test_offsets_of_a_new_machine_follow_the_benchmarks() -> None:
    speed = np.log(np.array([1.0, 1.4, 0.8, 2.0]))
    benchmarks = {f"m{i}": {"b1": math.exp(s), "b2": 3 * math.exp(s)} for i, s in enumerate(speed)}
    table = training.benchmark_table(benchmarks, tuple(benchmarks), ("k",))
    offset = np.array([[0.5 + s if i < 3 else np.nan for i, s in enumerate(speed)]])
    setting = training.choose_setting(offset, table, np.arange(3))
    found = training.predict_offsets(offset, table, np.arange(3), (table.log_s[:, 3], setting))
    assert found[0] == pytest.approx(0.5 + math.log(2), abs=1e-6)


def test_names_alike_are_alike() -> None:
    close = text.likeness(["x/FASTQC", "x/STAR_ALIGN"], ["y/fastqc_raw", "y/star_align"])
    assert close[0, 0] > 0.5 > close[0, 1]
    assert close[1, 1] == pytest.approx(1.0)
    assert text.likeness(["x/"], ["y/a"]).shape == (1, 1)


def exact_line() -> Observations:
    """One task whose runtime is exactly a line of its size: nothing left out is ever missed."""
    sizes = np.random.default_rng(1).uniform(1e6, 1e8, 40)
    return Observations.of(
        task=["wf/exact"] * 40, machine=["a"] * 40, workflow=["wf"] * 40, run=[f"run{i % 4}" for i in range(40)],
        sizes=sizes[:, None], size_names=("size",), runtime_s=3.0 + 1.5e-6 * sizes,
    )  # fmt: skip


def test_exact_data_does_not_make_sure_of_a_missing_size_or_of_a_task_never_seen() -> None:
    observations = exact_line()
    model = runtime.fit(observations)
    missing = model.predict(asked("wf/exact", float("nan")))
    inside = (observations.runtime_s >= missing.low_s[0]) & (observations.runtime_s <= missing.high_s[0])
    assert inside.mean() >= 0.85
    assert width(model.predict(asked("wf/exact", 83e8))) > 2.0
    assert width(model.predict(asked("wf/other", 5e7))) > 100.0


def test_where_machine_and_source_are_new_the_member_that_reads_sizes_best_answers() -> None:
    rng = np.random.default_rng(0)
    count = 240
    size = np.where(np.arange(count) % 2, rng.uniform(1e8, 1e9, count), rng.uniform(5e8, 4e9, count))
    seconds = (2.0 + 10.0 * size / 1e9) * np.exp(rng.normal(0, 0.03, count))
    table = Observations.of(
        task=[f"wf/t{i % 4}" for i in range(count)], machine=["local"] * count, runtime_s=seconds,
        run=[f"r{i // 8}" for i in range(count)], workflow=["wf"] * count, size_names=("size",),
        source=[f"s{i % 2}" for i in range(count)], sizes=size[:, None],
    )  # fmt: skip
    marks = {"local": {"a": 1.0, "b": 2.0, "c": 3.0}, "far": {"a": 2.0, "b": 4.1, "c": 5.9}}
    model = runtime.fit(table, marks, (runtime.KNOWN, runtime.NEW_SOURCE, runtime.NEW_MACHINE))
    asked = Observations.of(task=["wf/t1"], machine=["far"], source=["full"], sizes=np.array([[2e10]]),
                            size_names=("size",))  # fmt: skip
    found = model.predict(asked)
    assert found.novelty[0] == runtime.NEW_BOTH
    assert found.runtime_s[0] == pytest.approx(404.0, rel=0.15)
    assert found.low_s[0] < 404.0 < found.high_s[0]

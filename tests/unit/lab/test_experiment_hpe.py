"""The HPE experiment: calibrated on the first row only, its figures told as they are, its files written."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from drawn import check_drawn
from research.papers import (
    experiment,
    hpe_beyond,
    hpe_factorial,
    hpe_model,
    hpe_readings,
    hpe_table1,
    hpe_table2,
)
from research.papers.findings import Figure
from research.papers.hpe_factorial import Effect
from research.replay import replay
from wattflow.cli.screen import guarded
from wattflow.model.errors import InvalidInput

FILE = Path(__file__).parents[3] / "experiments" / "hpe_table1.toml"


@pytest.fixture(scope="module")
def settings() -> hpe_table1.HpeSettings:
    loaded = experiment.load(str(FILE)).settings
    assert isinstance(loaded, hpe_table1.HpeSettings)
    return loaded


def test_the_published_rows_are_those_of_the_shared_table(settings: hpe_table1.HpeSettings, data_dir: Path) -> None:
    with (data_dir / "reference_results" / "hpe_hsc_tables.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["experiment"] == "cpu_210_parsec"]
    names = {"default_k8s": "default", "default_k8s_no_request": "no_request", "energy_aware": "energy_aware"}
    stored = {names[row["scheduler"]]: (float(row["makespan_s"]), float(row["energy_Wh"])) for row in rows}
    assert stored == {row: (each.makespan_s, each.energy_wh) for row, each in settings.published.items()}


def test_the_fit_to_the_first_row_gives_the_listed_calibration(settings: hpe_table1.HpeSettings) -> None:
    fitted, listed = hpe_model.fit(settings.setting, settings.first_row), settings.setting.calibration
    for name in ("long_s", "short_s", "spread", "watts_scale"):
        assert getattr(fitted, name) == pytest.approx(getattr(listed, name), rel=0.006), name


def test_the_fit_does_not_look_at_the_other_rows(settings: hpe_table1.HpeSettings) -> None:
    """Nothing but the first row is among what the fit is given."""
    row = settings.first_row
    assert (row.makespan_s, row.energy_wh, row.mark_s) == (476.0, 73.47, 320.0)
    assert set(hpe_model.FirstRow.__dataclass_fields__) == {"makespan_s", "energy_wh", "mark_s", "window_s"}


def test_the_first_row_is_reproduced(settings: hpe_table1.HpeSettings) -> None:
    setting = settings.setting
    runs = hpe_model.repeat(setting, hpe_model.testbed(setting), hpe_model.schedulers()["default"])
    assert hpe_model.mean(runs, lambda run: run.makespan_s) == pytest.approx(476.0, rel=0.002)
    assert hpe_model.mean(runs, lambda run: run.total_j) / 3600 == pytest.approx(73.47, rel=0.002)
    for run in runs:
        starts = run.start_s_by_task()
        assert (starts == 0.0).sum() == 190
        assert np.all(np.abs(starts[starts > 0.0] - 320.0) <= 5.1)


def test_without_requests_and_with_the_guarantee_all_jobs_start_at_once(settings: hpe_table1.HpeSettings) -> None:
    setting = replace(settings.setting, repetitions=1)
    policies = hpe_model.schedulers()
    even = hpe_model.repeat(setting, hpe_model.testbed(setting), policies["no_request"])[0]
    aware = hpe_model.repeat(setting, hpe_model.testbed(setting), policies["energy_aware"])[0]
    assert even.start_s_by_task().max() == aware.start_s_by_task().max() == 0.0
    assert np.ptp(np.bincount(even.attempts["node"], minlength=4)) <= 3
    assert set(np.unique(aware.attempts["guarantee"])) == {np.float32(0.8)}


def test_joules_put_right_afterwards_are_those_of_the_true_curves(settings: hpe_table1.HpeSettings) -> None:
    setting = replace(settings.setting, repetitions=1)
    true = hpe_model.testbed(setting)
    policy = hpe_model.schedulers()["no_request"]
    believed = hpe_model.repeat(setting, hpe_model.with_mean_curve(true), policy)[0]
    assert hpe_model.on_true_curves(believed, true) == pytest.approx(
        hpe_model.repeat(setting, true, policy)[0].total_j, rel=1e-9
    )


def test_the_second_reading_is_fitted_to_the_first_row_alone(settings: hpe_table1.HpeSettings) -> None:
    """One class of jobs: 320 s of 95 on 48 cores, then 156 s nearly alone."""
    setting = replace(hpe_readings.setting_of(settings.second, settings.setting), repetitions=1)
    fitted, listed = hpe_readings.fit(setting, settings.first_row, 0.0), settings.second.calibration
    for name in ("long_s", "short_s", "smt_slowdown", "watts_scale"):
        assert getattr(fitted, name) == pytest.approx(getattr(listed, name), rel=0.01), name


def test_pinned_jobs_without_requests_end_later_than_fair_ones(settings: hpe_table1.HpeSettings) -> None:
    """105 jobs on 96 threads: one of a pair has 78 s of work left when the others end at 324 s, of three 104 s."""
    ends = {}
    for sharing in hpe_readings.SHARING:
        setting = replace(hpe_readings.setting_of(settings.second, settings.setting, sharing), repetitions=5)
        runs = hpe_model.repeat(setting, hpe_model.testbed(setting), hpe_model.schedulers()["no_request"])
        ends[sharing] = {round(run.makespan_s) for run in runs}
    assert ends["pinned"] == {402, 428}
    assert max(ends["fair"]) < 402 - 30


def test_a_bent_curve_has_the_paper_s_energy_aware_joules(settings: hpe_table1.HpeSettings) -> None:
    """60.03 Wh published: watts that rise with the tenth power of the busy share give that, fitted to row 1 alone."""
    first = replace(settings.setting, repetitions=1)
    setting = hpe_readings.concave(settings.second, first, settings.first_row, "power:0.1")
    runs = hpe_model.repeat(setting, hpe_model.testbed(setting), hpe_model.schedulers()["energy_aware"])
    assert runs[0].makespan_s == pytest.approx(402, abs=1)
    assert runs[0].total_j / hpe_model.J_PER_WH == pytest.approx(60.03, rel=0.01)


def test_duty_is_fitted_on_two_rows_and_the_third_is_predicted() -> None:
    chosen = experiment.load(str(FILE.with_name("hpe_table2.toml"))).settings
    assert isinstance(chosen, hpe_table2.Table2Settings)
    bench = chosen.paper
    fitted = hpe_table2.fit(bench, 0.45, 0.0)
    assert fitted.duty == pytest.approx(364 / 2 / 44.35 / 10)
    ours = {mode: hpe_table2.simulated(bench, fitted, 0.45, 0.0, mode) for mode in hpe_table2.MODES}
    assert ours["exclusive"] == pytest.approx(bench.published["exclusive"], rel=1e-3)
    assert ours["time-slice"] == pytest.approx(bench.published["time-slice"], rel=1e-3)
    assert ours["mps"][0] == pytest.approx(2 * 44.35 * (1 + fitted.duty * 3.5))


def test_shares_of_the_factors_sum_to_the_whole() -> None:
    rng = np.random.default_rng(1)
    corners = {(a, b, c): Effect(*rng.uniform(1, 9, 2)) for a in (0, 1) for b in (0, 1) for c in (0, 1)}
    parts = hpe_factorial.shares(corners).values()
    assert sum(part.makespan_s for part in parts) == pytest.approx(
        corners[0, 0, 0].makespan_s - corners[1, 1, 1].makespan_s
    )
    assert sum(part.energy_wh for part in parts) == pytest.approx(
        corners[0, 0, 0].energy_wh - corners[1, 1, 1].energy_wh
    )


def test_our_policy_is_held_against_algorithm_1_with_sleep(settings: hpe_table1.HpeSettings) -> None:
    """The rival that may sleep comes first: saving against one that may not says little about a policy."""
    assert settings.beyond.against[0] == "hpe:sleep=30"
    beyond = replace(settings.beyond, seeds=1)
    results = hpe_beyond.measure(beyond, settings.setting)
    seconds, _ = hpe_beyond.saved_pct(results["parsec"]["hpe:sleep=30"], results["parsec"]["wattflow"])
    assert seconds > 0.0


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(guarded(replay))
    return app


@pytest.mark.slow
def test_the_whole_experiment_prints_and_writes_what_it_found(tmp_path: Path) -> None:
    result = CliRunner().invoke(_app(), [str(FILE), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    figures = {line.split()[1]: line for line in result.stdout.splitlines() if line.startswith("figure ")}
    for name in ("hpe_first_row_makespan", "hpe_first_row_energy", "hpe_makespan_saved", "hpe_energy_saved"):
        assert figures[name].endswith(" ok"), figures[name]
    assert "hpe_makespan_saved_against_no_request" in figures
    assert "does not settle" in result.stdout
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(found["factorial"]) == 8
    assert found["started_at_once"] == {"default": 190.0, "no_request": 210.0, "energy_aware": 210.0}
    for name in ("watts", "stretch", "savings"):
        check_drawn(tmp_path / "out" / f"{name}.png")
        check_drawn(tmp_path / "out" / f"{name}.svg")


def test_a_figure_says_whether_it_is_met() -> None:
    assert str(Figure("x", 19.188, "%", "16.2±3", True)) == "figure x 19.19 % goal 16.2±3 ok"
    assert str(Figure("x", -1.0, "%", ">0", False)).endswith("goal >0 short")


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    text = FILE.read_text().replace("long_s =", "lomg_s =").replace('policy = "wattflow"', 'policy = "watflow"')
    wrong.write_text(text.replace("repetitions = 5", "repetition = 5"))
    with pytest.raises(InvalidInput) as caught:
        experiment.load(str(wrong))
    told = str(caught.value)
    for part in ("calibrated.lomg_s", "did you mean 'long_s'", "watflow", "did you mean 'repetitions'"):
        assert part in told


def test_unknown_experiments_and_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="did you mean 'hpe_table"):
        experiment.load("hpe_table")
    other = tmp_path / "other.toml"
    other.write_text('kind = "hpe_table3"\n')
    with pytest.raises(InvalidInput, match="did you mean 'hpe_table"):
        experiment.load(str(other))
    other.write_text("kind = ")
    with pytest.raises(InvalidInput, match="is not TOML"):
        experiment.load(str(other))


def test_the_command_lists_what_can_be_replayed() -> None:
    result = CliRunner().invoke(_app(), [])
    assert result.exit_code == 0
    assert "hpe_table1" in result.stdout

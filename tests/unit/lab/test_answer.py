"""The answer first: the sentence, folding, and rows that fit."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

import wattflow as wf
from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.compare.results import SeedResult
from wattflow.lab.run import points
from wattflow.lab.show import answer, result_tables


def made(rows: dict[str, dict[str, float]], seeds: int = 3) -> Comparison:
    """A comparison with given figures; the energy of seed s is 1 + s/100 of it."""
    from wattflow.lab.figures.metrics import METRICS

    results = []
    for policy, values in rows.items():
        for seed in range(seeds):
            whole: dict[str, float | None] = dict.fromkeys(METRICS)
            whole |= {"makespan_s": 100.0, "workflow_response_mean_s": 50.0, "tasks": 10.0, **values}
            whole["energy_j"] = values["energy_j"] * (1 + seed / 100)
            results.append(SeedResult("w", policy, seed, whole))
    return Comparison(wf.load_cluster("hpe"), "kubernetes", ("w",), tuple(rows), tuple(range(seeds)), tuple(results))


WAITING = {"workflow_response_mean_s": 60.0}


def test_the_sentence_is_about_who_keeps_the_bound_with_the_fewest_joules() -> None:
    rows = {"kubernetes": {"energy_j": 3.6e6}, "least-energy": {"energy_j": 1e6, **WAITING}}
    rows |= {"eft": {"energy_j": 2.7e6}, "heft": {"energy_j": 3e6}, "wattflow": {"energy_j": 2e6, **WAITING}}
    text = answer.sentence(made(rows))
    assert text.startswith("eft against kubernetes: 25.0 % less energy, mean response and makespan the same")
    assert "Of the 2 that keep responses within 2 % of those under kubernetes it has the fewest joules." in text
    assert "wattflow: 44.4 % less energy, but 20.0 % longer mean response on w." in text
    # 0.25 of about 3.6 MJ in 100 s is about 9.09 kW
    assert "79.7 MWh" in text
    assert "assumed" in text


def test_where_nobody_keeps_the_bound_the_sentence_says_so() -> None:
    text = answer.sentence(made({"kubernetes": {"energy_j": 3.6e6}, "wattflow": {"energy_j": 2e6, **WAITING}}))
    assert "somebody waits" in text


def test_where_the_baseline_has_the_fewest_joules_nobody_else_is_said_to() -> None:
    dear = {"energy_j": 5e6}
    text = answer.sentence(made({"kubernetes": {"energy_j": 3.6e6}, "fifo": {**dear, **WAITING}}))
    assert "No policy here takes fewer joules than kubernetes, or keeps every response within 2 %" in text
    text = answer.sentence(made({"kubernetes": {"energy_j": 3.6e6}, "fifo": dear}))
    assert "None of the 1 that keep responses within 2 % of those under kubernetes takes fewer joules." in text
    assert "it has the fewest" not in text


def test_one_that_misses_more_deadlines_does_not_keep_the_bound() -> None:
    late = {"energy_j": 2e6, "deadlines_missed": 3.0}
    rows = {"kubernetes": {"energy_j": 3.6e6, "deadlines_missed": 2.0}, "late": late}
    assert not answer.keeps(made(rows), "late")


def test_what_is_within_noise_saves_nothing_a_year() -> None:
    found = made({"kubernetes": {"energy_j": 1e6}, "wattflow": {"energy_j": 1e6}})
    points = [
        replace(p, values={**p.values, "energy_j": 1e6 * (1 + 0.02 * (-1) ** p.seed)}) if p.policy == "wattflow" else p
        for p in found.points
    ]
    text = answer.sentence(replace(found, points=tuple(points)))
    assert "energy the same within noise" in text
    assert "a year" not in text


def test_sentence_and_columns_have_one_price_and_one_carbon_factor() -> None:
    kwh = 3.6e6 * 1.01 / 3.6e6  # the mean of the seeds
    paid = {"electricity_cost": 0.5 * kwh, "carbon_g": 400.0 * kwh, "cost": 99.0}
    text = answer.sentence(made({"kubernetes": {"energy_j": 3.6e6, **paid}, "wattflow": {"energy_j": 1.8e6, **paid}}))
    # half of 3.636 MJ in 100 s: 18.18 kW, 159.4 MWh a year
    assert "159 MWh, 79,683 USD of electricity and 63.7 t of CO₂ a year." in text


def test_what_sleep_alone_saves_is_said() -> None:
    rows = {"kubernetes": {"energy_j": 4e6}, "kubernetes:sleep=600": {"energy_j": 3e6}, "wattflow": {"energy_j": 2e6}}
    assert "Sleep alone (kubernetes:sleep=600): 25.0 % less energy." in answer.sentence(made(rows))


def test_more_than_twice_is_said_as_a_factor() -> None:
    assert answer.less_by(-52.87, 0.1) == "× 53.9"
    assert answer.less_by(0.312, 0.008) == "31.2 ±0.8 %"
    found = made({"kubernetes": {"energy_j": 1e6}, "wattflow": {"energy_j": 54e6}})
    assert "energy × 54" in answer.sentence(found)


def test_equal_policies_are_one_row_and_the_table_fits_80_columns() -> None:
    rows = {
        "kubernetes": {"energy_j": 4e6},
        "wattflow": {"energy_j": 2e6, "makespan_s": 98765.0, "electricity_cost": 12.34},
    }
    rows |= {f"policy-number-{i}": {"energy_j": 4e6} for i in range(5)}
    rows |= {f"other-{i}": {"energy_j": 5e6 + i, "deadlines_missed": 3.0, "carbon_g": 12345.6} for i in range(12)}
    found = made(rows)
    groups = answer.folded(found, "w")
    assert ["kubernetes", *(f"policy-number-{i}" for i in range(5))] in groups
    out = io.StringIO()
    table = answer.short_table(found, "w")
    Console(file=out, width=200).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert table.row_count == answer.ROWS
    assert max(len(line) for line in lines if "=" not in line or "(=" in line) <= 80
    assert any("6 policies = kubernetes here" in line for line in lines)
    assert "more with --full" in out.getvalue()


def test_a_policy_that_knows_the_future_is_marked() -> None:
    found = made({"kubernetes": {"energy_j": 4e6}, "nsga2": {"energy_j": 2e6}, "mine": {"energy_j": 3e6}})
    table = answer.short_table(found, "w")
    assert list(table.columns[0].cells) == ["nsga2 *", "mine", "kubernetes"]
    assert "knows the future" in str(table.caption)


def test_units_scale() -> None:
    assert result_tables.amount(12_345.0, "W") == "12.3 kW"
    assert result_tables.amount(2.5e6, "g") == "2.5 t"


def test_a_pair_without_dice_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, cluster = wf.generate.workload("montage", tasks=30, seed=1), wf.load_cluster("mixed")
    ran = []
    usual = points.Bench.run

    def counted(self: points.Bench, job: points.PointJob, progress: object = None) -> object:
        ran.append((job.policy_name, job.seed))
        return usual(self, job, None)

    monkeypatch.setattr(points.Bench, "run", counted)
    result = wf.compare(workload, cluster, ["fifo", "random"], seeds=4)
    assert [name for name, _ in ran].count("fifo") == 1
    assert [name for name, _ in ran].count("random") == 4
    assert result.summary("montage", "fifo", "energy_j").deterministic
    assert len(result.values("montage", "fifo", "energy_j")) == 4


def test_a_drawn_workload_is_never_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, cluster = wf.Recipe("montage", tasks=30), wf.load_cluster("mixed")
    result = wf.compare(recipe, cluster, ["fifo"], seeds=3)
    assert len(set(result.values("montage", "fifo", "energy_j"))) == 3

"""The answer first: the sentence, folding, and rows that fit."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import wattflow as wf
from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.compare.results import SeedResult
from wattflow.lab.run import points
from wattflow.lab.show import answer


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


def test_the_sentence_is_about_the_flagship_against_the_baseline() -> None:
    found = made({"kubernetes": {"energy_j": 3.6e6}, "eft": {"energy_j": 1e6}, "wattflow": {"energy_j": 2.7e6}})
    text = answer.sentence(found)
    assert text.startswith("wattflow against kubernetes: 25.0 % less energy, mean response the same within noise")
    # 0.25 of about 3.6 MJ in 100 s is about 9.09 kW
    assert "79.7 MWh" in text
    assert "assumed" in text


def test_more_than_twice_is_said_as_a_factor() -> None:
    assert answer.less_by(-52.87, 0.1) == "× 53.9"
    assert answer.less_by(0.312, 0.008) == "31.2 ±0.8 %"
    found = made({"kubernetes": {"energy_j": 1e6}, "wattflow": {"energy_j": 54e6}})
    assert "energy × 54" in answer.sentence(found)


def test_equal_policies_are_one_row_and_the_table_fits_80_columns() -> None:
    rows = {"kubernetes": {"energy_j": 4e6}, "wattflow": {"energy_j": 2e6, "makespan_s": 98765.0, "cost": 12.34}}
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
    assert answer.amount(12_345.0, "W") == "12.3 kW"
    assert answer.amount(2.5e6, "g") == "2.5 t"


def test_a_pair_without_dice_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, cluster = wf.generate.workload("montage", tasks=30, seed=1), wf.load_cluster("mixed")
    ran = []
    usual = points.Bench.run

    def counted(self: points.Bench, job: points.Job, progress: object = None) -> object:
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

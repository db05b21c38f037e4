"""Comparisons as rows and tables."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from wattflow.lab.compare.comparison import Comparison
from wattflow.lab.compare.results import SeedResult
from wattflow.lab.figures.metrics import METRICS
from wattflow.lab.show.result_tables import (
    as_text,
    comparison_about,
    comparison_rows,
    comparison_tables,
    explanation,
    metric_names,
    run_rows,
    show,
    show_change,
    write_rows,
)
from wattflow.model.errors import InvalidInput, UnknownName

from .comparisons import small_comparison


def row(rows: list[dict[str, object]], policy: str, metric: str) -> dict[str, object]:
    return next(r for r in rows if r["policy"] == policy and r["metric"] == metric)


def test_a_row_holds_the_mean_the_plain_percentage_and_both_intervals() -> None:
    energy = row(comparison_rows(small_comparison()), "frugal", "energy_j")
    assert energy["mean"] == pytest.approx(0.75 * 4010)
    assert energy["reduction_pct"] == pytest.approx(25.0)
    assert energy["reduction_half_width_95_pct"] == pytest.approx(0.0, abs=1e-9)
    assert energy["half_width_95"] == pytest.approx(0.75 * 10 * 4.30265 / 3**0.5, rel=1e-4)
    assert energy["baseline"] == "fifo" and energy["seeds"] == 3


def test_equal_seeds_are_called_deterministic_and_others_are_not() -> None:
    rows = comparison_rows(small_comparison())
    assert row(rows, "frugal", "makespan_s")["deterministic"] is True
    assert row(rows, "frugal", "makespan_s")["half_width_95"] == 0.0
    assert row(rows, "frugal", "energy_j")["deterministic"] is False
    assert row(rows, "frugal", "decision_us")["deterministic"] is False


def test_an_unknown_figure_is_null_in_json_and_empty_in_csv() -> None:
    rows = comparison_rows(small_comparison(), ["cost"])
    assert json.loads(as_text(rows, "json"))["rows"][0]["mean"] is None
    assert next(csv.DictReader(io.StringIO(as_text(rows, "csv"))))["mean"] == ""


def test_json_says_what_the_rows_are(tmp_path: Path) -> None:
    comparison = replace(small_comparison(), about={"options": "as by default"})
    write_rows(tmp_path / "a.json", comparison_rows(comparison), "json", comparison_about(comparison))
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["baseline"] == "fifo" and document["simulated"] is True and document["notes"] == ["a remark"]
    assert len(document["rows"]) == 2 * len(METRICS)


def test_parquet_carries_the_rows_and_what_they_are(tmp_path: Path) -> None:
    comparison = small_comparison()
    write_rows(tmp_path / "a.parquet", comparison_rows(comparison), "parquet", comparison_about(comparison))
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == 2 * len(METRICS)
    assert json.loads(table.schema.metadata[b"wattflow"])["cluster"] == "pair"


def printed(comparison: Comparison) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    for table in comparison_tables(comparison):
        console.print(table)
    return console.export_text()


def test_few_policies_stand_beside_each_other() -> None:
    text = printed(small_comparison())
    assert "three on pair, 3 seeds" in text
    assert "+25.0 %" in text
    assert text.count("less by") == 1


def test_many_policies_stand_below_each_other_with_the_baseline_first() -> None:
    few = small_comparison()
    points = list(few.points)
    for number in range(4):
        points += [SeedResult("three", f"other-{number}", p.seed, p.values) for p in few.points if p.policy == "fifo"]
    names = ("fifo", "frugal", *(f"other-{n}" for n in range(4)))
    lines = printed(replace(few, policies=names, points=tuple(points))).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("fifo"))
    assert lines[first + 1].startswith("frugal ●")


def test_the_explanation_names_the_baseline_and_says_when_nothing_is_random() -> None:
    comparison = small_comparison()
    assert "against fifo" in explanation(comparison) and "random" not in explanation(comparison)
    still = tuple(replace(p, values={**p.values, "energy_j": 1.0}) for p in comparison.points)
    assert "nothing here is random" in explanation(replace(comparison, points=still))


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("energy_j", 4300.0, "1.19 Wh"),
        ("energy_j", 12.0, "0.00333 Wh"),
        ("energy_j", 4.321e7, "12 kWh"),
        ("energy_j", 1.278e10, "3.55 MWh"),
        ("makespan_s", 125.0, "2m 05s"),
        ("utilisation", 0.123, "12.3 %"),
        ("peak_w", 1234.4, "1,234 W"),
        ("slowdown_p95", 1.2345, "1.23"),
        ("carbon_g", None, "–"),
        ("edp_js", 2.5e6, "2.5 MJ·s"),
        ("wait_data_s", 0.0123, "0.012 s"),
        ("tasks", 3.0, "3"),
    ],
)
def test_figures_for_readers(metric: str, value: float | None, text: str) -> None:
    assert show(metric, value) == text


def test_changes_for_readers() -> None:
    each = small_comparison().summary("three", "frugal", "energy_j")
    assert show_change(replace(each, reduction=-0.042, reduction_half_width=0.003)) == "−4.2 ±0.3 %"
    assert show_change(replace(each, reduction=-0.0001, reduction_half_width=None)) == "0.0 %"
    assert show_change(replace(each, reduction=None)) == "–"


def test_names_of_figures_are_checked() -> None:
    assert metric_names("energy_j, peak_w") == ("energy_j", "peak_w")
    assert set(metric_names("all")) == set(METRICS)
    with pytest.raises(UnknownName, match="did you mean 'energy_j'"):
        metric_names("energy_k")
    with pytest.raises(InvalidInput):
        metric_names(",")


def test_rows_of_one_run_have_labels_and_units() -> None:
    rows = run_rows({**dict.fromkeys(METRICS), "peak_w": 3.0}, ["peak_w"])
    assert rows == [{"metric": "peak_w", "label": "peak power", "value": 3.0, "unit": "W"}]


def test_the_front_leaves_out_what_is_beaten() -> None:
    assert small_comparison().front("three") == ["frugal"]

"""Every command through typer's runner."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from wattflow.cli.main import COMMANDS, app
from wattflow.lab.figures.metrics import METRICS


def wattflow(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="wattflow")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    assert wattflow("generate", "chain:tasks=4", "--out", path).exit_code == 0
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = wattflow(command, "--help")
    assert result.exit_code == 0
    assert "Usage: wattflow" in result.output


def test_compare_prints_a_table_and_says_how_to_read_it(trace: Path) -> None:
    result = wattflow("compare", trace, "-p", "fifo", "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert "chain on mixed, 2 seeds" in result.stdout
    assert "makespan" in result.stdout and "energy" in result.stdout
    assert "nothing here is random" in result.stdout


def test_compare_takes_files_and_generated_workloads_together(trace: Path) -> None:
    result = wattflow("compare", trace, "fork-join:tasks=5", "-p", "fifo", "--seeds", 1, "-o", "json")
    document = json.loads(result.stdout)
    assert {row["workload"] for row in document["rows"]} == {"chain", "fork-join"}
    assert len(document["rows"]) == 2 * len(METRICS)
    assert document["cluster"] == "mixed" and document["baseline"] == "fifo"


def test_csv_and_parquet_hold_the_same_rows(tmp_path: Path, trace: Path) -> None:
    same = ("compare", trace, "-p", "fifo", "--seeds", 1)
    text = wattflow(*same, "-o", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert wattflow(*same, "--out", tmp_path / "a.parquet").exit_code == 0
    table = pq.read_table(tmp_path / "a.parquet").to_pylist()
    energy = next(float(row["mean"]) for row in rows if row["metric"] == "energy_j")
    assert energy == next(row["mean"] for row in table if row["metric"] == "energy_j")


def test_simulate_prints_every_figure_and_writes_attempts_and_report(tmp_path: Path) -> None:
    attempts, report = tmp_path / "run.parquet", tmp_path / "run.html"
    result = wattflow("simulate", "in-tree:tasks=7", "--attempts", attempts, "--report", report)
    assert result.exit_code == 0, result.output
    for metric in METRICS.values():
        assert metric.label in result.stdout
    assert pq.read_table(attempts).num_rows == 7
    assert "Timelines" in report.read_text(encoding="utf-8")


def test_simulate_follows_seed_queue_rounds_and_sleep() -> None:
    def makespan(*more: object) -> float:
        rows = json.loads(wattflow("simulate", "chain:tasks=6", "-o", "json", *more).stdout)["rows"]
        return float(next(row["value"] for row in rows if row["metric"] == "makespan_s"))

    plain = makespan()
    assert makespan() == plain
    assert makespan("--seed", 1) != plain
    assert makespan("--round-s", 50) > plain
    assert makespan("--queue", "strict", "--sleep-after", 0) >= plain


def test_simulate_keeps_a_cap_and_says_how_well(tmp_path: Path) -> None:
    plain = ("simulate", "map-reduce:tasks=12", "-c", "equal", "-p", "power-cap")
    series = tmp_path / "cap.csv"
    series.write_text("datetime,watts\n2026-01-01T00:00:00Z,2000\n2026-01-01T00:05:00Z,1800\n")
    for cap in ("2000", series):
        told = wattflow(*plain, "--cap-w", cap)
        assert told.exit_code == 0 and "cap: above it 0 % of the time" in told.output, told.output
    for cap, policy, why in (("2000", "fifo", "write -p power-cap"), ("-5", "power-cap", "above 0 W"),
                             ("nan", "power-cap", "above 0 W"), ("none.csv", "power-cap", "none.csv")):  # fmt: skip
        refused = wattflow("simulate", "chain:tasks=3", "-p", policy, "--cap-w", cap)
        assert refused.exit_code == 2 and why in refused.output, refused.output


def test_describe_reads_what_generate_wrote(trace: Path) -> None:
    rows = json.loads(wattflow("describe", trace, "-o", "json").stdout)["rows"]
    values = {row["what"]: row["value"] for row in rows}
    assert values["tasks"] == 4 and values["edges"] == 3 and values["levels"] == 4
    assert "tasks of the widest level" in wattflow("describe", trace).stdout


def test_generate_writes_the_same_bytes_for_a_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert (
            wattflow("generate", "layered:tasks=30", "--seed", seed, "--out", tmp_path / f"{name}.json").exit_code == 0
        )
    a, b, c = ((tmp_path / f"{name}.json").read_bytes() for name in "abc")
    assert a == b != c


def test_generate_lists_what_it_can_make() -> None:
    text = wattflow("generate", "--list").stdout
    for word in ("montage", "fork-join", "demo:mixed", "pareto", "bursty", "cold-start"):
        assert word in text


def test_convert_says_what_the_other_format_cannot_hold(tmp_path: Path, trace: Path) -> None:
    result = wattflow("convert", trace, tmp_path / "chain.swf")
    assert result.exit_code == 0 and (tmp_path / "chain.swf").exists()
    assert "4 tasks, wfformat to swf" in result.stderr
    assert "cannot hold" in result.stderr


def test_policies_and_clusters_are_listed_and_shown() -> None:
    assert "fifo" in wattflow("policies").stdout
    assert json.loads(wattflow("policies", "fifo", "-o", "json").stdout)["rows"][0]["policy"] == "fifo"
    assert "mixed" in wattflow("clusters").stdout
    assert "idle–full W" in wattflow("clusters", "mixed").stdout
    assert len(json.loads(wattflow("clusters", "mixed", "-o", "json").stdout)["rows"]) > 1


def test_demo_runs_three_workloads_and_writes_a_report(tmp_path: Path) -> None:
    result = wattflow("demo", "-p", "fifo", "--seeds", 1, "--report", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert result.stdout.count(" on mixed, 1 seed") == 3
    assert "on twelve equal nodes (equal): fifo against kubernetes" in result.stdout
    assert (tmp_path / "r.html").stat().st_size > 50_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "nothing-here"), "neither a file nor a generated workload"),
        (("compare", "./none.json"), "no such file"),
        (("compare", "montage:tasks=3"), "needs at least 11"),
        (("compare", "chain", "-p", "fofi"), "no policy named 'fofi'"),
        (("compare", "chain", "-c", "mixd"), "did you mean 'mixed'"),
        (("compare", "chain", "-o", "parquet"), "add --out FILE"),
        (("compare", "chain", "--out", "x.txt"), "does not say which form"),
        (("compare", "chain", "--out", "x.json", "-o", "table"), "does not say which form"),
        (("compare", "chain", "--report", "no/such/r.html"), "does not exist"),
        (("compare", "chain", "--metrics", "joules"), "no figure named 'joules'"),
        (("compare", "chain", "-b", "nobody"), "no policy named 'nobody'"),
        (("policies", "fofi"), "no policy named 'fofi'"),
        (("clusters", "mixd"), "did you mean 'mixed'"),
        (("generate", "chain:tasks=4"), "add --out FILE"),
        (("generate", "chane"), "neither a file"),
        (("convert", "none.json", "x.swf"), "none.json"),
        (("describe", "none.json"), "no such file"),
    ],
)
def test_what_was_typed_wrong_is_said_in_one_message(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = wattflow(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr and result.stderr.startswith("error: ")
    assert "Traceback" not in result.output and result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_bad_document_lists_all_its_problems_and_writes_nothing(tmp_path: Path, trace: Path) -> None:
    document = json.loads(trace.read_text())
    tasks = document["workflow"]["specification"]["tasks"]
    tasks[0]["parents"], tasks[1]["parents"] = ["ghost"], ["phantom"]
    trace.write_text(json.dumps(document))
    result = wattflow("convert", trace, tmp_path / "out.swf")
    assert result.exit_code == 2
    assert "ghost" in result.stderr and "phantom" in result.stderr
    assert not (tmp_path / "out.swf").exists()


def test_a_usage_error_is_told_from_a_bad_input_by_its_help() -> None:
    result = wattflow("compare", "chain", "--seeds", "0")
    assert result.exit_code == 2 and "--seeds" in result.stderr


def test_the_version_is_printed() -> None:
    assert wattflow("--version").stdout.startswith("wattflow 0.")

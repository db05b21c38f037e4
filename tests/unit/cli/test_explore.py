"""`wattflow explore` through typer's runner."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from wattflow.cli.main import app

DESIGN = """
name = "tiny"
frames = ["hash", "delegated"]
policies = ["fifo", "sjf"]
workloads = ["skewed:tasks=200", "ibm-like:trace=5,tasks=200"]
"""


def wattflow(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="wattflow")


@pytest.fixture
def design(tmp_path: Path) -> Path:
    path = tmp_path / "design.toml"
    path.write_text(DESIGN, encoding="utf-8")
    return path


def test_plan_counts_and_runs_nothing(design: Path, tmp_path: Path) -> None:
    found = wattflow("explore", design, "--out", tmp_path / "out", "--plan")
    assert (found.exit_code, found.stdout) == (0, "tiny: 8 points, 8 to run\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_explore_writes_results_and_report_and_goes_on(design: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = wattflow("explore", design, "--out", out, "--workers", 1)
    assert found.exit_code == 0, found.output
    assert "share of the variance" in found.stdout and "delegated" in found.stdout
    assert "8 points, 0 from before" in found.stderr
    assert (out / "results.parquet").exists() and "</html>" in (out / "report.html").read_text(encoding="utf-8")
    again = wattflow("explore", design, "--out", out)
    assert "8 points, 8 from before" in again.stderr and again.stdout == found.stdout


@pytest.mark.slow
def test_failed_points_are_an_error_after_the_results(tmp_path: Path) -> None:
    path = tmp_path / "design.toml"
    path.write_text('frames = ["hash"]\nclusters = ["2x4"]\nworkloads = ["chain:tasks=3", "chain:tasks=3,cores=9"]\n')
    found = wattflow("explore", path, "--out", tmp_path / "out", "--workers", 1)
    assert found.exit_code == 2 and "1 points could not be run" in found.stderr
    assert (tmp_path / "out" / "results.parquet").exists()


@pytest.mark.parametrize("workers", ["0", "many", "dask://", "-1"])
def test_wrong_workers_are_refused(design: Path, workers: str) -> None:
    found = wattflow("explore", design, "--workers", workers)
    assert found.exit_code == 2 and "--workers" in found.stderr


def test_a_wrong_design_names_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "design.toml"
    path.write_text('frames = ["nothing"]\nworkloads = []\n')
    found = wattflow("explore", path)
    assert found.exit_code == 2
    assert "no frame named 'nothing'" in found.stderr and "needs at least one workload" in found.stderr
    assert wattflow("explore", tmp_path / "absent.toml").exit_code == 2


def test_frames_are_listed() -> None:
    assert "sparrow" in wattflow("frames").stdout


def test_our_designs_are_found_by_name_unless_a_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "points" in wattflow("explore", "explore_small", "--plan").stdout
    Path("explore_small").write_text("nonsense")
    assert wattflow("explore", "explore_small", "--plan").exit_code == 2

"""A run as a parquet file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wattflow.lab.run.run_file import is_run, read_run, write_run
from wattflow.model.errors import InvalidInput
from wattflow.model.run import ACCOUNTS, ATTEMPT

from .runs import two_node_run


def test_attempts_are_rows_and_the_rest_is_in_the_metadata(tmp_path: Path) -> None:
    run = two_node_run()
    write_run(tmp_path / "run.parquet", run)
    table = pq.read_table(tmp_path / "run.parquet")
    assert table.num_rows == 3
    assert set(ATTEMPT.names or ()) <= set(table.column_names)
    assert table["end_s"].to_pylist() == run.attempts["end_s"].tolist()
    assert table["node_name"].to_pylist() == ["a", "a", "b"]
    assert table["outcome_name"].to_pylist() == ["done"] * 3
    about = json.loads(table.schema.metadata[b"wattflow"])
    assert about["accounts"] == list(ACCOUNTS)
    assert sum(map(sum, about["energy_j"])) == run.total_j
    assert about["simulated"] is True


def test_a_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = two_node_run()
    write_run(tmp_path / "run.parquet", run)
    saved = read_run(tmp_path / "run.parquet")
    assert saved.attempts.tobytes() == run.attempts.tobytes()
    assert saved.names["node_name"] == ["a", "a", "b"]
    assert saved.makespan_s == run.makespan_s
    assert sum(value for value in saved.energy_j().values() if value is not None) == pytest.approx(run.total_j)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    (tmp_path / "text.parquet").write_text("no", encoding="utf-8")
    for path in (other, tmp_path / "text.parquet"):
        assert not is_run(path)
        with pytest.raises(InvalidInput, match="is no run"):
            read_run(path)


def test_describe_prints_a_run_with_its_options_and_versions(tmp_path: Path) -> None:
    from wattflow.cli.main import app

    path = tmp_path / "run.parquet"
    call = ["simulate", "bag:tasks=4", "-p", "random", "--seed", "7", "--runtime-error", "0.2", "--attempts", str(path)]
    assert CliRunner().invoke(app, call).exit_code == 0
    shown = CliRunner().invoke(app, ["describe", str(path)])
    assert shown.exit_code == 0, shown.output
    for text in ("bag on mixed under random", "attempts done", "runtime_error=0.2", "numba=", "seed"):
        assert text in shown.stdout

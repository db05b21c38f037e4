"""A run as a parquet file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from wattflow.lab.run.run_file import write_run
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

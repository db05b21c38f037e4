"""Readers of the sets that predictions are judged on."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from research import prediction_sets as datasets
from wattflow.model.errors import InvalidInput, MissingData

LOTARU_HEAD = ("Label", "Machine", "Workflow", "Task", "Realtime", "%cpu", "cpus", "memory", "peak_rss",
               "rchar", "wchar", *datasets.LOTARU_SIZES)  # fmt: skip


def write_table(path: Path, head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_lotaru_rows_that_copy_another_machine_are_dropped(tmp_path: Path) -> None:
    sizes = (10, 20, 30, 40, 50)
    one = ("train-1", "a", "wf", "T", 1000, 90.0, 1, 100, 50, 7, 8, *sizes)
    copy = ("train-1", "b", *one[2:])
    other = ("train-1", "c", "wf", "T", 1001, *one[5:])
    write_table(tmp_path / datasets.LOTARU / "execution_reports.csv.gz", LOTARU_HEAD, [one, copy, other])
    assert datasets.lotaru(tmp_path).machine.tolist() == ["a", "c"]
    assert len(datasets.lotaru(tmp_path, keep_copies=True)) == 3
    assert datasets.lotaru(tmp_path).runtime_s.tolist() == [1.0, 1.001]


def test_benchmarks_that_were_not_measured_are_left_out(tmp_path: Path) -> None:
    head = ("Workflow", "Task", "Machine", "Realtime1", "Realtime2", "Realtime3")
    rows = [("Wf", "A", "m", 3.0, 2.0, 9.0), ("Wf", "B", "m", -1.0, -1.0, -1.0), ("Wf", "C", "m", 1.0, 1.0, 1.0)]
    write_table(tmp_path / datasets.LOTARU / "microbenchmarks.csv", head, rows)
    assert datasets.lotaru_benchmarks(tmp_path) == {"m": {"wf/A": 3.0}}


def test_missing_files_and_columns_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        datasets.lotaru(tmp_path)
    with pytest.raises(MissingData, match="no Sizey traces"):
        datasets.sizey(tmp_path)
    write_table(tmp_path / datasets.GREENFAAS, ("block_id", "machine"), [("x", "y")])
    with pytest.raises(InvalidInput, match=r"(?s)func_name.*energy_J"):
        datasets.greenfaas(tmp_path)


def test_the_shared_sets_are_read(data_dir: Path) -> None:
    lotaru = datasets.lotaru(data_dir)
    assert np.all(lotaru.runtime_s > 0)
    assert len(datasets.lotaru(data_dir, keep_copies=True)) - len(lotaru) == 154
    assert set(np.unique(lotaru.machine)) <= set(datasets.lotaru_benchmarks(data_dir))
    calls, left_out = datasets.greenfaas(data_dir)
    assert len(calls) + left_out == 1614
    assert np.all(np.diff(calls.start_s) >= 0)
    assert np.isfinite(datasets.sizey(data_dir).peak_bytes).all()

"""`make bench-operator` tells every row of its table, whatever became of its parts."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in ("benchmarks", "tools/kube-rig"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import operator_figures

    return operator_figures


def test_a_part_that_fails_costs_its_own_rows_alone(
    figures: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: argparse.Namespace) -> None:
        raise RuntimeError("the machine is busy")

    def measured(options: argparse.Namespace) -> object:
        return figures._portion("memory", 1, 0.0, {}, [], {"mb": 300.0})

    monkeypatch.setattr(figures, "PARTS", {"curves": broken, "memory": measured})
    monkeypatch.setattr("sys.argv", ["operator_figures.py", "--record", str(tmp_path / "record.json")])
    with pytest.raises(SystemExit, match="failed: curves"):
        figures.main()
    said = capsys.readouterr().out
    assert "figure operator_memory_at_5000_nodes 300 MB goal ≤1000 ok" in said
    assert "figure operator_curves_off_at_most not-measured % goal ≤5 short" in said and "is busy" in said


def test_a_portion_without_figures_is_measured_again_and_hides_no_other(
    figures: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    empty = figures._portion("install", 1, 0.0, {}, ["make: no rule"])
    assert not figures._done("install", [empty])
    told = figures._portion("install", 1, 0.0, {}, [], {"s": 120.0})
    assert figures._done("install", [empty, told])
    for portion in (told, empty):
        figures.trust_tally.recorded(tmp_path / "record.json", portion)
    figures.report(tmp_path / "record.json")
    assert "figure operator_install_typed 120 s" in capsys.readouterr().out

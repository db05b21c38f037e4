"""The picture of learning curves: every seed is drawn, and the legend has one line for each fold."""

from __future__ import annotations

from pathlib import Path

import pytest

from research import curves

HEAD = "generation,seconds,reward,gain,energy\n"


def test_seeds_of_a_fold_share_a_colour_and_a_line_of_the_legend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    kept = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda self, *_, **__: kept.append(self))
    names = ("all-seed-1", "fold-0-seed-1", "fold-0-seed-2", "fold-1-seed-1")
    for number, name in enumerate(names):
        (tmp_path / f"{name}.csv").write_text(f"{HEAD}10,60,0,{number / 100},-0.01\n20,120,0,0.02,-0.02\n")
    (tmp_path / "fold-2-seed-1.csv").write_text(HEAD)
    curves.draw(tmp_path / "curves.png", sorted(tmp_path.glob("*.csv")))
    (figure,) = kept
    for axes in figure.axes:
        lines = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_color() != "black"]
        assert [line.get_color() for line in lines] == ["C0", "C1", "C1", "C2"]
        assert lines[0].get_xdata().tolist() == [1.0, 2.0]
        assert axes.get_legend() is None
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["all (1 seed)", "fold-0 (2 seeds)", "fold-1 (1 seed)"]


def test_the_shipped_curves_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert len({curves.group(path) for path in curves.curves()}) == 5
    curves.draw(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000

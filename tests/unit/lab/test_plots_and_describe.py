"""Plots as files, and what a workload holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from drawn import check_drawn
from wattflow.generate import Recipe, workload
from wattflow.lab.show.describe import describe_workload
from wattflow.lab.show.plots import plot_front, plot_power, plot_slowdown

from .comparisons import small_comparison
from .runs import two_node_run


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_plots_are_written_whole(tmp_path: Path, ending: str) -> None:
    runs = {"fifo": two_node_run()}
    plot_front(small_comparison(), "three", tmp_path / f"front.{ending}")
    plot_power(runs, tmp_path / f"power.{ending}")
    plot_slowdown(runs, tmp_path / f"slowdown.{ending}")
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["front", "power", "slowdown"]
    for path in tmp_path.iterdir():
        check_drawn(path)


def test_a_description_counts_levels_widths_and_the_longest_path() -> None:
    made = workload("fork-join", 6)
    values = {row["what"]: row["value"] for row in describe_workload(made)}
    assert (values["tasks"], values["edges"], values["levels"], values["tasks of the widest level"]) == (6, 8, 3, 4)
    longest = made.runtime_s[0] + made.runtime_s[1:5].max() + made.runtime_s[5]
    assert values["longest path, s"] == pytest.approx(longest)
    assert values["variants on"] == "cpu"


def test_a_description_of_a_stream_counts_workflows_deadlines_and_devices() -> None:
    values = {row["what"]: row["value"] for row in describe_workload(Recipe("mixed", 8, 3, slack=2.0).draw())}
    assert values["workflows"] == 3 and values["tasks with a deadline"] == 24
    assert values["variants on"] == "cpu, fpga, gpu"

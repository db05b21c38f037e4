"""Names instead of objects, and a comparison in pandas, LaTeX, HTML and matplotlib."""

from __future__ import annotations

from pathlib import Path

import pytest

import wattflow as wf
from wattflow.model.errors import InvalidInput


@pytest.fixture(scope="module")
def result() -> wf.Comparison:
    return wf.compare(["bag:tasks=6", "chain:tasks=3"], "mixed", ["kubernetes", "eft"], seeds=2, baseline="kubernetes")


def test_names_stand_for_objects(tmp_path: Path) -> None:
    workload = wf.generate.workload("montage", tasks=30, seed=3)
    wf.save(workload, tmp_path / "x.json")
    by_name = wf.simulate(tmp_path / "x.json", "mixed", "fifo")
    assert by_name.makespan_s == pytest.approx(wf.simulate(workload, wf.load_cluster("mixed"), "fifo").makespan_s)
    assert wf.simulate("bag:tasks=4", "mixed", seed=2).makespan_s > 0
    assert wf.compare(str(tmp_path / "x.json"), "mixed", ["fifo"], seeds=1).workloads == ("montage",)
    with pytest.raises(InvalidInput, match="no such file"):
        wf.compare("absent.json", "mixed", ["fifo"])


def test_pandas_has_a_row_for_each_figure(result: wf.Comparison) -> None:
    frame = result.to_pandas(["energy_j", "makespan_s"])
    assert len(frame) == 2 * 2 * 2
    row = frame[(frame.policy == "eft") & (frame.workload == "bag") & (frame.metric == "energy_j")].iloc[0]
    assert row["mean"] == pytest.approx(result.summary("bag", "eft", "energy_j").mean)


def test_latex_is_a_tabular_without_raw_signs(result: wf.Comparison) -> None:
    text = result.to_latex("bag")
    assert text.startswith(r"\begin{tabular}{l")
    assert text.count(r"\\") == 3
    assert "±" not in text


def test_a_notebook_shows_the_answer_and_every_workload(result: wf.Comparison) -> None:
    shown = result._repr_html_()
    assert "eft against kubernetes" in shown
    assert shown.count("<table>") == 2
    assert repr(result) == "Comparison(2 workloads × 2 policies × 2 seeds on mixed, against kubernetes)"


def test_the_plot_names_every_policy(result: wf.Comparison) -> None:
    texts = {text.get_text() for text in result.plot().axes[0].texts}
    assert texts == {"kubernetes", "eft"}


def test_objects_say_what_they_are_in_one_line() -> None:
    run = wf.simulate("bag:tasks=3", "mixed")
    assert repr(run).startswith("Run('bag' on 'mixed' under 'fifo': 3 attempts, ") and repr(run).endswith("simulated)")
    assert repr(run.workload) == "Workload('bag': 3 tasks, 1 workflows)"
    assert repr(run.cluster) == f"Cluster('mixed': {len(run.cluster.nodes)} nodes, {run.cluster.total_cores} cores)"
    assert all(len(repr(each)) < 120 for each in (run, run.workload, run.cluster))

"""The measured GPU experiment: what the page shows is what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.papers import experiment, hpe_gpu
from research.papers.findings import Findings, no_progress


@pytest.fixture(scope="module")
def outcome() -> Findings:
    loaded = experiment.load(str(experiment.find("hpe_gpu"))).settings
    assert isinstance(loaded, hpe_gpu.SharingSettings)
    return hpe_gpu.run(loaded, no_progress)


def test_reductions_are_plain_and_short_ones_are_said(outcome: Findings) -> None:
    by_name = {figure.name: figure for figure in outcome.figures}
    ways = outcome.results["ways"]
    assert isinstance(ways, dict)
    sliced, best = ways["time-sliced"], ways[str(outcome.results["best"])]
    cut = 100 * (sliced["makespan_s"] - best["makespan_s"]) / sliced["makespan_s"]
    assert by_name["mps_makespan_cut_against_time_sliced"].value == pytest.approx(cut)
    assert not by_name["mps_energy_cut_against_time_sliced"].ok
    assert len(by_name) == 4


def test_every_mode_ran_forty_jobs_and_joules_are_watts_by_seconds() -> None:
    import json

    found = json.loads((hpe_gpu.MEASURED / "h200_sharing.json").read_text(encoding="utf-8"))
    for run in found["runs"]:
        assert sum(len(times) for times in run["job_s"].values()) == 40
        assert run["energy_j"] == pytest.approx(run["mean_w"] * run["makespan_s"], rel=1e-3)


def test_a_job_alone_is_not_stretched() -> None:
    alone = [{"job_s": {"a": [1.0, 3.0]}}]
    assert hpe_gpu.stretch(alone, alone) == pytest.approx(1.0)
    assert hpe_gpu.stretch([{"job_s": {"a": [4.0]}}], alone) == pytest.approx(2.0)


def test_pictures_show_three_curves(outcome: Findings, tmp_path: Path) -> None:
    path = tmp_path / "power.svg"
    outcome.pictures["power"](path)
    text = path.read_text(encoding="utf-8")
    assert text.count('id="line2d_') >= 3

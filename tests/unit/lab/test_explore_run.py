"""Running a design: nothing lost, nothing twice, wherever it is interrupted."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattflow.frames import frame as frames
from wattflow.frames import library, workloads
from wattflow.frames.frame_run import run_frame
from wattflow.lab.explore.design import Design, design_of
from wattflow.lab.explore.exploration import Exploration, Store, explore, read_rows
from wattflow.lab.explore.explore_page import exploration_report, percent
from wattflow.lab.explore.point import result, utilisation

pytestmark = pytest.mark.slow


def design(**changed: Any) -> Design:
    facts: dict[str, Any] = {
        "name": "tiny",
        "frames": [{"use": "hash", "stealing": [False, {"hosts": 2, "label": "host stealing"}]}, "delegated"],
        "policies": ["fifo", "sjf"],
        "workloads": ["skewed:tasks=300", "ibm-like:trace=3,tasks=300", "ibm-like:trace=4,tasks=300"],
        "seeds": 2,
        **changed,
    }
    return design_of(facts, "design", Path())


def same(rows: Any, others: Any) -> None:
    """Equal but for the time that the machine took."""
    assert [{k: v for k, v in row.items() if k != "kernel_s"} for row in rows] == [
        {k: v for k, v in row.items() if k != "kernel_s"} for row in others
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Exploration:
    return explore(design(), tmp_path_factory.mktemp("whole"), workers=1)


def test_one_row_per_point_in_one_parquet(whole: Exploration) -> None:
    assert len(whole.rows) == len(whole.design.points) == 36
    assert not whole.failed and whole.reused == 0
    rows = read_rows(whole.parquet)
    assert [row["key"] for row in rows] == [point.key for point in whole.design.points]
    assert all(row["finished"] == row["tasks"] == 300 for row in rows)
    assert {row["watts"] for row in rows} == {"guessed"}
    assert rows[0]["axis.stealing"] == "no stealing" and rows[2]["axis.stealing"] is None
    assert all(row["carbon_g"] is None for row in rows), "the clusters name no carbon intensity"
    assert {row["slower_over"][0] >= row["slower_over"][-1] for row in rows} == {True}


def test_processes_give_the_same_and_survive_a_death(whole: Exploration, tmp_path: Path) -> None:
    killed: list[int | None] = []

    def progress(share: float, text: str) -> None:
        if share > 0.2 and not killed:
            child = multiprocessing.active_children()[0]
            killed.append(child.pid)
            child.kill()

    found = explore(design(), tmp_path, workers=2, progress=progress)
    assert killed and not found.failed
    same(found.rows, whole.rows)
    assert not multiprocessing.active_children()


def test_an_interruption_leaves_finished_points_and_the_rest_follows(whole: Exploration, tmp_path: Path) -> None:
    def progress(share: float, text: str) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore(design(), tmp_path, workers=1, progress=progress)
    kept = len(list((tmp_path / "points").glob("*.json")))
    assert 18 < kept < 36
    found = explore(design(), tmp_path, workers=1)
    assert found.reused == kept
    same(found.rows, whole.rows)
    ran: list[str] = []
    again = explore(design(), tmp_path, progress=lambda share, text: ran.append(text))
    assert again.reused == 36 and not ran


def test_a_broken_file_is_run_again(whole: Exploration, tmp_path: Path) -> None:
    explore(design(seeds=1), tmp_path, workers=1)
    files = sorted((tmp_path / "points").glob("*.json"))
    files[0].write_text("{", encoding="utf-8")
    files[1].write_text(json.dumps({"key": "another"}), encoding="utf-8")
    found = explore(design(), tmp_path, workers=1)
    assert found.reused == 18 - 2
    same(found.rows, whole.rows)


def test_a_design_that_grows_runs_only_what_is_new(tmp_path: Path) -> None:
    explore(design(policies=["fifo"]), tmp_path, workers=1)
    found = explore(design(name="renamed"), tmp_path, workers=1)
    assert (len(found.rows), found.reused) == (36, 18)


def test_points_that_cannot_run_are_named_and_the_others_kept(tmp_path: Path) -> None:
    found = explore(design(clusters=["20x4"], workloads=["montage:tasks=20,cores=64", "chain:tasks=5"]), tmp_path, 1)
    assert len(found.rows) == 12 and len(found.failed) == 12
    assert "cores" in found.failed[0][1]
    assert len(Store(tmp_path).left(found.design.points)) == 12
    assert "could not" not in exploration_report(found) and "failed: " in exploration_report(found)


def test_utilisation_over_time_is_that_of_the_run() -> None:
    workload, cluster = workloads.skewed(2000)
    caches = frames.DataManager(cache_objects=100, fetch=frames.Delay(0.5))
    cached = replace(library.load_frame("hash"), metadata=frames.MetadataService(), data=caches)
    for frame in (*(library.load_frame(name) for name in ("centralised", "hash-stealing", "kubernetes")), cached):
        run = run_frame(frame, workload, cluster)
        slices = utilisation(run)
        assert np.mean(slices) == pytest.approx(run.scalars["utilisation"], rel=1e-6)
        assert max(slices) <= 1 + 1e-9


def test_energy_accounts_and_waits_close(whole: Exploration) -> None:
    for row in whole.rows:
        accounts = sum(v for k, v in row.items() if k.startswith("energy_") and k.endswith("_j"))
        assert accounts - row["energy_j"] == pytest.approx(row["energy_j"], rel=1e-9)
        assert 0 <= row["slowdown_p50"] <= row["slowdown_p99"] <= row["slowdown_p99.9"]


def test_a_run_without_finished_tasks_has_unknown_figures() -> None:
    run = run_frame(library.load_frame("centralised"), *workloads.skewed(5))
    found = result(replace(run, attempts=run.attempts[:0]))
    values = found["values"]
    assert isinstance(values, dict) and values["slowdown_p99"] is None and values["finished"] == 0
    assert found["slower"] == found["utilisation"] == []


def test_the_report_holds_every_part_and_no_network(whole: Exploration) -> None:
    text = exploration_report(whole)
    for part in (
        "What explains the differences", "Of what differs in p99 slowdown", "with everything else equal", "the tail",
        "Percentiles", "p99.9", "CPU utilisation over time", "Where the joules went", "Where the time went",
        "Heat maps", "host stealing", "profiles are guessed", "sjf+least-loaded",
    ):  # fmt: skip
        assert part in text, part
    assert "http://" not in text and "https://" not in text and "<script src" not in text
    assert "nan" not in text.lower().replace("nanny", "")
    assert text.count("<svg") >= 12


def test_the_report_of_an_empty_or_single_exploration(tmp_path: Path, whole: Exploration) -> None:
    one = design(frames=["hash"], policies=["fifo"], workloads=["skewed:tasks=20"], seeds=1)
    assert "Nothing varies" in exploration_report(explore(one, tmp_path, 1))
    empty = Exploration(one, (), 0, (("a", "<b>why</b>"),), whole.parquet)
    assert "&lt;b&gt;why" in exploration_report(empty)


def test_percent() -> None:
    assert [percent(x) for x in (0.0, 0.125, -0.5, 11.0, -0.99)] == ["0 %", "+12.5 %", "-50.0 %", "×12", "÷100"]


def test_deaths_at_the_last_point_are_made_good(whole: Exploration, tmp_path: Path) -> None:
    small = design(policies=["fifo"], workloads=["skewed:tasks=300", "ibm-like:trace=3,tasks=200000"], seeds=1)
    heavy = [point for point in small.points if "200000" in point.source.label]
    killed: list[int | None] = []

    def progress(share: float, text: str) -> None:
        if share >= 1 - 1.5 / len(small.points) and not killed:
            for child in multiprocessing.active_children():
                killed.append(child.pid)
                child.kill()

    found = explore(small, tmp_path, workers=2, progress=progress)
    assert killed and not found.failed
    assert [row["key"] for row in found.rows] == [point.key for point in small.points]
    assert sum(row["tasks"] for row in found.rows) == 300 * 3 + 200_000 * len(heavy)

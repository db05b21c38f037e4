"""Streams of recorded workflows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wattflow import traces
from wattflow.clusters import load_cluster
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Stream
from wattflow.model.errors import InvalidInput, MissingData
from wattflow.sim import simulate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    for seed, tasks in enumerate((20, 40)):
        traces.save(Recipe("montage", tasks).draw(seed), tmp_path / "app" / f"montage-{tasks}.json", "wfformat")
    return tmp_path


def instances(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(map(str, (folder / "app").iterdir())))


def test_a_stream_has_its_load_and_whole_workflows(folder: Path) -> None:
    cluster = load_cluster("mixed")
    stream = Stream("app", instances(folder), 0.6, workflows=200)
    workload = stream.draw(cluster, 3)
    sizes = np.bincount(workload.workflow)
    assert set(sizes.tolist()) == {20, 40}
    offered = scenarios.core_seconds(workload) / workload.workflow_submit_s[-1] / scenarios.capacity(cluster)
    assert offered == pytest.approx(0.6, rel=0.25)
    child = np.repeat(np.arange(len(workload)), np.diff(workload.parent_start))
    assert (workload.workflow[workload.parent] == workload.workflow[child]).all()
    assert (workload.deadline_s > workload.release_s).all()


def test_the_same_seed_is_the_same_stream_and_runs_to_its_end(folder: Path) -> None:
    cluster = load_cluster("mixed")
    stream = Stream("app", instances(folder), 0.3, workflows=4)
    one, two, other = (stream.draw(cluster, seed) for seed in (1, 1, 2))
    assert (one.release_s == two.release_s).all()
    assert one.release_s[-1] != other.release_s[-1]
    assert np.isfinite(simulate(one, cluster, "eft").end_s_by_task()).all()


def test_an_application_that_is_not_there_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "wfinstances" / "empty").mkdir(parents=True)
    (folder / "MANIFEST.csv").touch()
    monkeypatch.setenv("WATTFLOW_DATA", str(folder))
    with pytest.raises(InvalidInput, match="holds no workflow"):
        scenarios.instances_of("empty")
    with pytest.raises(MissingData, match="is not there"):
        scenarios.instances_of("nothing")

"""A small scenario for tests: generated workflows as files, on a cluster drawn at random; and the real data."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from wattflow import traces
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from required import data_dir, pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["data_dir", "pytest_make_collect_report", "pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("workflows") / "app"
    folder.mkdir()
    for seed, tasks in enumerate((20, 30)):
        traces.save(Recipe("montage", tasks).draw(seed), folder / f"montage-{tasks}.json", "wfformat")
    cluster = scenarios.random_cluster(np.random.default_rng(5), "small")
    files = sorted(map(str, folder.iterdir()))
    return Scenario("small", cluster, scenarios.stream_of("app", 0.6, 200, files), runtime_error=0.1)

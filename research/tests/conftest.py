"""A small scenario for tests: generated workflows as files, on a cluster drawn at random; and the real data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from wattflow import traces
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; tests that need it skip by name without it."""
    folder = Path(os.environ.get("WATTFLOW_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (folder / "MANIFEST.csv").exists():
        pytest.skip(f"needs the real data of WATTFLOW_DATA, looked in {folder}")
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("workflows") / "app"
    folder.mkdir()
    for seed, tasks in enumerate((20, 30)):
        traces.save(Recipe("montage", tasks).draw(seed), folder / f"montage-{tasks}.json", "wfformat")
    cluster = scenarios.random_cluster(np.random.default_rng(5), "small")
    files = sorted(map(str, folder.iterdir()))
    return Scenario("small", cluster, scenarios.stream_of("app", 0.6, 200, files), runtime_error=0.1)

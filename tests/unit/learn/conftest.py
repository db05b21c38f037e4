"""A small scenario for tests of learning: generated workflows as files, on a cluster drawn at random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wattflow import traces
from wattflow.generate import Recipe
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder: Path = tmp_path_factory.mktemp("workflows")
    (folder / "app").mkdir()
    for seed, tasks in enumerate((20, 30)):
        traces.save(Recipe("montage", tasks).draw(seed), folder / "app" / f"montage-{tasks}.json", "wfformat")
    cluster = scenarios.random_cluster(np.random.default_rng(5), "small")
    files = sorted(map(str, (folder / "app").iterdir()))
    return Scenario("small", cluster, scenarios.stream_of("app", 0.6, 200, files), runtime_error=0.1)

"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that a failure is a change's own. WATTFLOW_FUZZ=1 draws new ones.
settings.register_profile("same", derandomize=not os.environ.get("WATTFLOW_FUZZ"), deadline=None)
settings.load_profile("same")

DATA = Path(os.environ.get("WATTFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; tests that need it skip by name without it (`.ci/run` fails instead)."""
    if not (DATA / "MANIFEST.csv").exists():
        pytest.skip(f"needs the real data of WATTFLOW_DATA, looked in {DATA}")
    return DATA

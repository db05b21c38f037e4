"""Policies on predicted runtimes: `--estimates MODEL`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from wattflow import generate, traces
from wattflow.cli.main import app
from wattflow.cli.options import estimated
from wattflow.model.errors import InvalidInput
from wattflow.model.workload import Workload


@pytest.fixture
def fitted(tmp_path: Path) -> tuple[Path, Path]:
    """A trace and a model of it."""
    trace, model = tmp_path / "trace.json", tmp_path / "runtimes.model"
    traces.save(generate.workload("map-reduce", tasks=60, seed=3), trace)
    result = CliRunner().invoke(app, ["fit", str(trace), str(model)])
    assert result.exit_code == 0, result.output
    return trace, model


def test_policies_see_what_the_model_predicts(fitted: tuple[Path, Path]) -> None:
    trace, model = fitted
    plain = traces.load(trace)
    seen = estimated(plain, model)
    assert isinstance(seen, Workload)
    np.testing.assert_array_equal(seen.runtime_s, plain.runtime_s)
    assert not np.array_equal(seen.estimate_s, plain.estimate_s)


def test_a_comparison_runs_on_estimates(fitted: tuple[Path, Path]) -> None:
    trace, model = fitted
    command = ["compare", str(trace), "-p", "fifo,sjf", "--seeds", "1", "-q", "--estimates", str(model)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "sjf" in result.output


def test_a_generated_workload_has_no_predictions(fitted: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidInput, match="recorded trace"):
        estimated(generate.Recipe("chain"), fitted[1])

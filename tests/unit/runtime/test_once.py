"""One attempt in one process, as Slurm and Dask start it: the function is loaded and called there."""

from __future__ import annotations

import pickle
from pathlib import Path

import cloudpickle
import pytest

from wattflow.runtime import messages as m
from wattflow.runtime.executors import zygote
from wattflow.runtime.executors.once import Errand, run_errand


@pytest.mark.parametrize(
    ("python", "outcome", "words"),
    [(zygote.PYTHON, "done", None), ("2.7", "refused", "made by Python 2.7")],
)
def test_a_call_is_loaded_and_made_or_refused(tmp_path: Path, python: str, outcome: str, words: str | None) -> None:
    spec = m.Task(key="t", name="t", function="digest", python=python, variants=[m.Variant()])
    lease = m.Lease(fence=1, task=2, number=3, node="n", workflow="w", spec=spec)
    call = pickle.dumps(((20,), {"more": 1}))
    ended = run_errand(Errand(lease, [cloudpickle.dumps(lambda x, more: 2 * x + more), call]), tmp_path)
    assert ended.outcome == outcome
    if words is None:
        assert ended.result is not None and ended.result.data is not None and pickle.loads(ended.result.data) == 41
    else:
        assert words in (ended.reason or "")

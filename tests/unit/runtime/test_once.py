"""One attempt in one process, as Slurm and Dask start it: the function is loaded and called there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import msgspec
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


def test_functions_find_their_modules_beside_files_that_are_called_as_pythons_own(tmp_path: Path) -> None:
    folder = tmp_path / "attempt"
    folder.mkdir()
    for name in ("copy", "types", "queue", "random", "token"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    spec = m.Task(key="t", name="t", function="0" * 64, python=zygote.PYTHON, variants=[m.Variant()])
    lease = m.Lease(fence=1, task=2, number=3, node="n", workflow="w", spec=spec)
    by_name = b"cmine\ndouble\n."  # as a function of a module is pickled
    (folder / "lease").write_bytes(m.pack(Errand(lease, [by_name, pickle.dumps(((21,), {}))])))
    command = [sys.executable, "-P", "-m", "wattflow.runtime.executors.once", str(folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ended = msgspec.msgpack.decode((folder / "ended").read_bytes(), type=m.Ended)
    assert ended.outcome == "done", ended.reason
    assert ended.result is not None and ended.result.data is not None and pickle.loads(ended.result.data) == 42

"""The same costs without compilation: a second interpreter with ``NUMBA_DISABLE_JIT=1`` scores the same States.

    python tests/uncompiled.py QUESTIONS ANSWERS

is that interpreter's side; `uncompiled_costs` starts it.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.tables import TABLES, State
from wattflow.kernel.records import RecordTable
from wattflow.policy.base import Policy
from wattflow.testing.check_policy import Look


def uncompiled_costs(questions: Sequence[tuple[Policy, Look]]) -> list[NDArray[np.float64]]:
    """Compute the costs of each look as plain Python. The policies' functions must be importable by name."""
    rows = []
    for policy, look in questions:
        assert policy.score is not None
        tables = {name: np.asarray(getattr(look.state, name)) for name in TABLES}
        # By name: compiled functions cannot be pickled, and the other interpreter must import the plain
        # ones.
        rows.append((policy.score.__module__, policy.score.__qualname__, tables, look.task, look.variant, look.count))
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "questions", Path(folder) / "answers"
        asked.write_bytes(pickle.dumps(rows))
        command = [sys.executable, __file__, str(asked), str(answered)]
        # numba reads the variable when it is imported, so another process is needed.
        subprocess.run(command, check=True, env=os.environ | {"NUMBA_DISABLE_JIT": "1"})
        answers: list[NDArray[np.float64]] = pickle.loads(answered.read_bytes())
    return answers


def _answer(module: str, name: str, tables: dict[str, Any], place: tuple[int, int, int]) -> NDArray[np.float64]:
    score = getattr(importlib.import_module(module), name)
    records = {key: table.view(RecordTable) if table.dtype.names else table for key, table in tables.items()}
    task, variant, count = place
    out = np.full(count, -1.0)
    # Compiled code does not warn either.
    with np.errstate(all="ignore"):
        score(State(**records), task, variant, out)
    return out


def main(asked: str, answered: str) -> None:
    """Read questions, write answers."""
    rows = pickle.loads(Path(asked).read_bytes())
    answers = [_answer(module, name, tables, place) for module, name, tables, *place in rows]
    Path(answered).write_bytes(pickle.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])

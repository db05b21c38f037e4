"""The example of a policy in plain Python runs, and says something about both policies."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [("plain_policy.py", "frugal-idlers")]


@pytest.mark.parametrize(("file", "name"), FILES)
def test_the_example_runs_in_at_most_fifteen_lines(file: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = runpy.run_path(str(EXAMPLES / file), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["fifo", name]
    assert made["run"].finished.all()
    score = made[name.replace("-", "_")].score
    assert len(inspect.getsource(score).splitlines()) <= 15

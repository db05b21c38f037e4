"""The code of docs/workloads.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wattflow import traces

HOWTO = Path(__file__).parents[3] / "docs" / "workloads.md"
JOB = "1 0 -1 5 2 -1 -1 2 9 100 1 1 1 1 1 1 -1 -1\n"


def test_the_howto_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.swf").write_text(JOB * 2)
    traces.convert("log.swf", "log.swf.gz")
    traces.convert("log.swf", "workflow.json")
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)
    assert "2 tasks, swf → wfformat" in capsys.readouterr().out
    labelled = traces.load("labelled.json").documents[0].tasks[0]
    assert (labelled.energy_j, labelled.energy_provenance) == (1200.0, "modelled")

"""The energy-labelled set: every task labelled, every file valid, sums that agree, a card that says it is modelled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from jsonschema.validators import Draft7Validator

from research import energy_set
from wattflow import traces
from wattflow.model.errors import InvalidInput


@pytest.mark.data
@pytest.mark.slow
def test_two_workflows_on_one_cluster(data_dir: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    for name in ("helloworld/helloworld-chain-5-chameleon", "helloworld/helloworld-forkjoin-10-chameleon"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data_dir / "wfinstances" / f"{name}.json.gz", source / f"{name}.json.gz")
    rows = energy_set.build(source, out, ("hpe",))
    assert [row.tasks for row in rows] == [5, 10]
    validator = Draft7Validator(json.loads((data_dir / "wfinstances" / "wfcommons-schema-1.5.json").read_text()))
    files = sorted((out / "wfinstances").rglob("*.json"))
    assert len(files) == 2
    for file, row in zip(files, rows, strict=True):
        document = json.loads(file.read_text())
        assert not list(validator.iter_errors(document))
        labelled = [task["energyInKWh"] for task in document["workflow"]["execution"]["tasks"]]
        assert sum(labelled) * 3.6e6 == pytest.approx(row.task_j)
        again = traces.load(file)
        assert set(again.columns["energy_provenance"].tolist()) == {"modelled"}
    wta = traces.load(out / "wta" / "hpe")
    assert float(np.nansum(wta.columns["energy_j"])) == pytest.approx(sum(row.task_j for row in rows))
    assert "modelled, not measured" in (out / "README.md").read_text()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no WfFormat"):
        energy_set.build(tmp_path, tmp_path / "out")

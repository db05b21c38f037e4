"""What a training tells of itself: the time on two cores is that of a run from scratch, and is not lost."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from research import shipped, train_all
from wattflow.policy import weights


@pytest.fixture
def train() -> ModuleType:
    return train_all


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    card = {
        "held_out": [], "generations": 10, "simulations": 20, "wall_s": 30.0, "cpu_s": 40.0, "joules_estimated": 400,
        "gain": 0.01,
    }  # fmt: skip
    weights.save(tmp_path / "all-seed-1.npz", np.zeros(weights.SIZE), card)
    return tmp_path


def test_the_time_on_two_cores_is_told_only_of_a_run_from_scratch(
    train: ModuleType, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = train.summary(trained, 50.0, 2, True, "all of it")[train.TWO_CORES]
    assert told == {"run": "all-seed-1", "wall_s": 50.0, "workers": 2, "cpu_s": 40.0, "about": "all of it"}
    assert train.TWO_CORES not in train.summary(trained, 50.0, 2, False)
    assert train.TWO_CORES not in train.summary(trained, 50.0, 3, True)
    train.report(trained, 1.0, 2, True)
    train.report(trained, 1.0, 2, False)
    names = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert names == ["train_two_cores", "train_two_cores_gain", "learned_training", "learned_training_gain"]


def test_shipping_keeps_the_time_on_two_cores(train: ModuleType, tmp_path: Path) -> None:
    made, target = tmp_path / "summary.json", tmp_path / "training.json"
    old, new = {"wall_s": 391.4}, {"wall_s": 300.0}
    target.write_text(json.dumps({"workers": 14, train.TWO_CORES: old}))
    made.write_text(json.dumps({"workers": 16}))
    train.keep_summary(made, target)
    assert json.loads(target.read_text()) == {"workers": 16, train.TWO_CORES: old}
    made.write_text(json.dumps({"workers": 2, train.TWO_CORES: new}))
    train.keep_summary(made, target)
    assert json.loads(target.read_text()) == {"workers": 2, train.TWO_CORES: new}


def test_shipped_is_the_mean_of_the_seeds_and_other_folds_stay(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, target = tmp_path / "out", tmp_path / "package"
    out.mkdir()
    target.mkdir()
    monkeypatch.setattr(weights, "shipped", lambda: target / "weights.npz")
    monkeypatch.setattr(shipped, "LEARNED", target)
    card = {
        "held_out": [], "generations": 10, "simulations": 20, "wall_s": 30.0, "cpu_s": 40.0, "joules_estimated": 400,
        "gain": 0.01,
    }  # fmt: skip
    for seed, value in ((1, 0.2), (2, 0.4)):
        weights.save(out / f"fold-0-seed-{seed}.npz", np.full(weights.SIZE, value), card)
        weights.save(out / f".fold-0-seed-{seed}.checkpoint-draft.npz", np.zeros(weights.SIZE), card)
        (out / f"fold-0-seed-{seed}.csv").write_text("generation\n")
    (out / "summary.json").write_text(json.dumps(train.summary(out, 60.0, 16, True)))
    for name in ("weights", "fold-0-seed-7"):
        weights.save(target / f"{name}.npz", np.zeros(weights.SIZE), card)
    (target / "training.json").write_text(json.dumps({"runs": {"all-seed-1": card, "fold-0-seed-7": card}}))
    train.ship(out)
    assert sorted(path.stem for path in target.glob("*.npz")) == ["fold-0", "fold-0-seed-1", "fold-0-seed-2", "weights"]
    theta, told = weights.load(target / "fold-0.npz")
    assert theta == pytest.approx(np.full(weights.SIZE, 0.3))
    assert (told["mean_of"], told["cpu_s"]) == (["fold-0-seed-1", "fold-0-seed-2"], 80.0)
    training = json.loads((target / "training.json").read_text())
    assert sorted(training["runs"]) == ["all-seed-1", "fold-0-seed-1", "fold-0-seed-2"]
    assert training["joules_estimated"] == 1200

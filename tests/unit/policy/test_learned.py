"""The learned policy: without weights it is the flagship, with weights it is another policy that keeps the contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wattflow.clusters import load_cluster
from wattflow.generate import Arrivals, Recipe
from wattflow.live import Engine
from wattflow.model.errors import InvalidInput
from wattflow.policy import learned, placing, registry, wattflow, weights
from wattflow.sim import simulate
from wattflow.testing import check_policy

STREAM = Recipe("montage", 40, 12, arrivals=Arrivals("poisson", 0.05))


def random_weights(folder: Path) -> Path:
    path = folder / "random.npz"
    weights.save(path, np.random.default_rng(3).normal(0.0, 0.5, weights.SIZE), {"about": "random"})
    return path


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zero.npz"
    weights.save(path, np.zeros(weights.SIZE), {})
    monkeypatch.setenv(weights.ENVIRONMENT, str(path))


@pytest.mark.parametrize("cluster", ["mixed", "edge-cloud", "ichnos"])
@pytest.mark.usefixtures("no_weights")
def test_weights_of_zero_are_the_flagship(cluster: str) -> None:
    workload = STREAM.draw(5)
    ours, theirs = (simulate(workload, cluster, name, seed=2) for name in ("learned", "wattflow"))
    assert ours.attempts.tobytes() == theirs.attempts.tobytes()
    assert ours.energy_j.tobytes() == theirs.energy_j.tobytes()


def test_without_lean_any_weights_are_the_flagship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(weights.ENVIRONMENT, str(random_weights(tmp_path)))
    workload = STREAM.draw(6)
    ours = simulate(workload, "mixed", registry.load("learned", lean=0.0), seed=2)
    moved = simulate(workload, "mixed", "learned", seed=2)
    theirs = simulate(workload, "mixed", "wattflow", seed=2)
    assert ours.attempts.tobytes() == theirs.attempts.tobytes()
    assert moved.attempts.tobytes() != theirs.attempts.tobytes()


def test_any_weights_keep_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(weights.ENVIRONMENT, str(random_weights(tmp_path)))
    check_policy(registry.load("learned"))


def test_names_of_nodes_do_not_matter() -> None:
    from dataclasses import replace

    cluster = load_cluster("mixed")
    other = replace(cluster, nodes=tuple(replace(node, name=f"x{i}") for i, node in enumerate(cluster.nodes)))
    workload = STREAM.draw(7)
    assert simulate(workload, cluster, "learned").total_j == simulate(workload, other, "learned").total_j


def test_the_encoder_reads_the_weights_where_the_policy_keeps_them() -> None:
    names = ("wait", "energy", "response", "makespan", "cost", "utilisation")
    theirs = [getattr(learned.DIAL, name) for name in names]
    assert theirs == [getattr(placing, f"_{name.upper()}") for name in names]
    assert list(learned.LEARNED.params)[: len(wattflow.DIAL.defaults)] == list(wattflow.DIAL.defaults)


def broken(path: Path, kind: str) -> Path:
    """A file of weights with one thing wrong."""
    good = weights.shipped().read_bytes()
    parts = {"theta": np.zeros(weights.SIZE), "layout": np.array(weights.LAYOUT), "card": np.array("{}")}
    wrong = {
        "strings": {"theta": np.array(["a"] * weights.SIZE)}, "card": {"card": np.array("no JSON")},
        "list": {"card": np.array("[1]")}, "nan": {"theta": np.full(weights.SIZE, np.nan)},
        "size": {"theta": np.zeros(3)}, "layout": {"layout": np.array([1, 2])}, "words": {"layout": np.array("x")},
        "pickle": {"theta": np.array([{}], dtype=object)},
    }  # fmt: skip
    if kind in wrong:
        made = {**parts, **wrong[kind]}
        np.savez(path, theta=made["theta"], layout=made["layout"], card=made["card"])
    elif kind == "lacks":
        np.savez(path, theta=parts["theta"])
    elif kind == "array":
        with path.open("wb") as stream:
            np.save(stream, parts["theta"])
    elif kind != "absent":
        middle = len(good) // 2
        hurt = good[:middle] + bytes(64) + good[middle + 64 :]
        path.write_bytes({"short": good[: len(good) // 2], "empty": b"", "text": b"no zip", "hurt": hurt}[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("short", "only a part"), ("empty", "no .npz"), ("text", "no .npz"), ("hurt", "no .npz"), ("array", "npy"),
        ("strings", "theta is <U1"), ("card", "card is no JSON"), ("list", "card is no JSON"),
        ("nan", f"{weights.SIZE} of its {weights.SIZE}"), ("size", f"float64 of shape (3,), not {weights.SIZE}"),
        ("layout", "layout (1, 2)"), ("words", "no list of whole"),
        ("pickle", "no .npz of plain arrays"), ("lacks", "lacks layout, card"), ("absent", "No such file"),
    ],
)  # fmt: skip
def test_a_broken_file_of_weights_is_one_clear_message(tmp_path: Path, kind: str, said: str) -> None:
    path = broken(tmp_path / "w.npz", kind)
    with pytest.raises(InvalidInput) as caught:
        weights.load(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and said in message and "\n" not in message
    assert "pickle" not in message


def test_a_live_engine_reads_its_weights_when_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(weights.ENVIRONMENT, str(broken(tmp_path / "w.npz", "short")))
    with pytest.raises(InvalidInput, match="only a part"):
        Engine("learned")
    engine = Engine("least-energy")
    with pytest.raises(InvalidInput, match="only a part"):
        engine.use("learned")
    good = weights.shipped()
    assert Engine(f"learned:weights={good}") and Engine("wattflow"), "these do not use that file"

"""Training from scratch, and the statistics of comparisons."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from research import paired, training
from research.paired import Sample
from research.recipe import ScratchSettings
from wattflow.learn import scenarios
from wattflow.learn.scenarios import Scenario


@pytest.mark.parametrize("adam", [True, False])
def test_training_starts_at_the_flagship_and_goes_on_where_it_stopped(
    small: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adam: bool
) -> None:
    monkeypatch.setattr(scenarios, "draw", lambda seed, *_: small)
    settings = ScratchSettings(pool=2, chosen_on=1, directions=2, tries=1, longest_s=60.0, adam=adam)
    monkeypatch.setattr(training, "teaches", lambda one: True)
    trainer = training.ScratchTrainer(settings)
    first = trainer.choosing[0]
    assert first.trial.run(trainer.progress.theta) == first.reference
    trainer.generation()
    training.save(tmp_path / "half.npz", trainer.progress, settings)
    trainer.generation()
    again = training.ScratchTrainer(settings, progress=training.resume(tmp_path / "half.npz"))
    again.generation()
    for name in ("theta", "mean"):
        assert getattr(again.progress, name).tobytes() == getattr(trainer.progress, name).tobytes()
    assert trainer.compare()["best"] >= 0.0 or not adam  # plain steps are averaged, not chosen among


def test_no_fold_trains_on_what_it_holds_out() -> None:
    for fold, held in enumerate(scenarios.FOLDS):
        assert not set(held) & set(training.training_applications(fold))
    assert set(training.training_applications(-1)) == set(scenarios.APPLICATIONS)


def test_signed_ranks_and_holm_are_those_of_the_books() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(2).normal(0.1, 1.0, 60).round(1)
    book = stats.wilcoxon(values[values != 0], correction=True, method="approx").pvalue
    assert paired.wilcoxon(values) == pytest.approx(book, rel=1e-9)
    assert paired.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


def test_few_signed_ranks_are_exact() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(3).normal(0.3, 1.0, 10)
    assert paired.exact_wilcoxon(values) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)
    assert paired.exact_wilcoxon(-np.arange(1.0, 11.0)) == pytest.approx(2 / 1024)


def test_a_paired_comparison_finds_what_is_there() -> None:
    rng = np.random.default_rng(1)
    samples = [
        Sample(f"app{a}", f"c{c}", tuple(-0.05 + 0.01 * rng.normal() for _ in range(3)))
        for a in range(5)
        for c in range(6)
    ]
    found = paired.compare(samples, draws=300)
    assert found.low < found.percent < found.high < 0
    assert found.percent == pytest.approx(100 * math.expm1(-0.05), abs=0.5)
    assert (found.wins, found.losses) == (30, 0)
    assert found.p_applications == pytest.approx(2 / 32)


def test_an_interval_knows_that_applications_share_the_clusters() -> None:
    """What differs between clusters alone is one draw of each cluster, not one of each application and cluster."""
    rng = np.random.default_rng(1)
    effect = {f"c{c}": float(rng.normal(0.0, 0.2)) for c in range(6)}
    samples = [Sample(f"app{a}", c, (value, value)) for a in range(10) for c, value in effect.items() for _ in range(3)]
    found = paired.compare(samples, draws=1000)
    nested, crossed = (ends[1] - ends[0] for ends in (found.nested, found.crossed))
    spread = 2 * 1.96 * 100 * np.std(list(effect.values())) / math.sqrt(len(effect))
    assert crossed == pytest.approx(spread, rel=0.25) and nested < 0.5 * crossed
    assert found.interval == found.crossed
    # and the other way round: seeds that differ, clusters and applications alike
    apart = [Sample(f"app{a}", f"c{c}", tuple(rng.normal(0, 0.2, 2))) for a in range(10) for c in range(6)]
    assert paired.compare(apart, draws=300).high > 0 > paired.compare(apart, draws=300).low

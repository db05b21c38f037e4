"""Node curves from recorded metrics against the truth that made them, and guesses where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.kube import objects
from wattflow.kube.curves import fit
from wattflow.kube.power import MODEL, Watts, guess
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import Provenance

from .making import node

WEEK_S, STEP_S, THREADS = 7 * 86400, 60, 32


def recorded(seed: int, bend: float) -> tuple[list[tuple[float, float, float]], np.ndarray]:
    """A week of a node: daily load with jumps, noise of 4 %, spikes, gaps, and restarts that show as nothing at all."""
    draw = np.random.default_rng(seed)
    at = np.arange(0.0, WEEK_S, STEP_S)
    load = (
        0.35
        + 0.3 * np.sin(2 * np.pi * at / 86400)
        + np.repeat(draw.uniform(-0.3, 0.3, len(at) // 30 + 1), 30)[: len(at)]
    )
    busy = THREADS * np.clip(load, 0.01, 1)
    watts = truth(busy, bend) * draw.normal(1, 0.04, len(at))
    watts[draw.random(len(at)) < 0.01] *= 3
    for gap in draw.integers(0, len(at) - 300, 5):
        watts[gap : gap + 300] = np.nan
    watts[draw.random(len(at)) < 0.005] = 0.0
    return list(zip(at, busy, watts, strict=True)), truth(np.linspace(0, THREADS, 21), bend)


def truth(busy: np.ndarray, bend: float) -> np.ndarray:
    return np.asarray(80 + 200 * (busy / THREADS) ** bend)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bend", [0.6, 0.8, 1.0, 1.4])
def test_a_week_of_metrics_gives_the_curve_within_five_percent(seed: int, bend: float) -> None:
    samples, wanted = recorded(seed, bend)
    found = fit(samples, THREADS, "kepler")
    ours = np.array([found.curve.at(one) for one in np.linspace(0, THREADS, 21)])
    assert np.abs(ours / wanted - 1).max() <= 0.05
    assert found.below < 1 < found.above < 1.2
    assert found.newest_s == WEEK_S - STEP_S and found.curve.provenance is Provenance.MEASURED


def test_too_little_is_told() -> None:
    with pytest.raises(InvalidInput, match="60 are needed"):
        fit([(0.0, 1.0, 50.0)] * 10, 4, "kepler")
    with pytest.raises(InvalidInput, match="more loads"):
        fit([(0.0, 1.0, 50.0)] * 100, 4, "kepler")


def test_guesses_by_number_by_words_and_by_kind() -> None:
    nfd = "feature.node.kubernetes.io/cpu-model."
    milan = node("a", {f"{nfd}vendor_id": "AMD", f"{nfd}family": "25", f"{nfd}id": "1"})
    words = node("b", {MODEL: "AMD-EPYC-7763-64-Core-Processor"})
    assert "epyc-7763" in guess(milan, 32).source and "epyc-7763" in guess(words, 32).source
    plain = guess(node("c"), 32)
    assert "median" in plain.source and plain.provenance is Provenance.GUESSED
    assert 0 < plain.idle_w < plain.full_w
    arm = node("d")
    arm.status.node_info = objects.NodeInfo(architecture="arm64")
    assert guess(arm, 32).full_w != plain.full_w
    assert guess(node("e", {MODEL: "²²²", f"{nfd}id": "²"}), 4).provenance is Provenance.GUESSED


def test_a_stated_curve_goes_before_a_guess() -> None:
    assert Watts().profile_of(node("a")) is None
    guessed = Watts(guesses=True).profile_of(node("a"))
    assert guessed is not None and guessed.provenance is Provenance.GUESSED
    stated = Watts("ccf:epyc-7763-dl325", guesses=True).profile_of(node("a"))
    assert stated is not None and stated.provenance is not Provenance.GUESSED

"""Shares of variance and paired effects against models whose answers are known."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from wattflow.lab.explore.design import Design, design_of
from wattflow.lab.explore.exploration import Row
from wattflow.lab.explore.stats import decompose, effects, variance

FRAMES, POLICIES, LOADS = ("a", "b", "c"), ("p", "q"), ("u", "v", "w", "x")
FRAME_PART = dict(zip(FRAMES, (-2.0, 0.0, 2.0)))
POLICY_PART = dict(zip(POLICIES, (-0.5, 0.5)))
LOAD_PART = dict(zip(LOADS, (-1.5, -0.5, 0.5, 1.5)))
INTERACTION = {(f, p): 0.3 * i * j for (i, f) in zip((-1, 0, 1), FRAMES) for (j, p) in zip((-1, 1), POLICIES)}


def row(frame: str, policy: str, load: str, seed: int, value: float) -> Row:
    return {"frame": frame, "policy": policy, "cluster": "own", "workload": load, "seed": seed, "y": value}


def model(noise: float = 0.0, *, together: bool = False) -> list[Row]:
    rng = np.random.default_rng(1)
    return [
        row(f, p, w, s, math.exp(FRAME_PART[f] + POLICY_PART[p] + LOAD_PART[w]
                                 + (INTERACTION[f, p] if together else 0.0) + noise * rng.normal()))
        for f, p, w, s in itertools.product(FRAMES, POLICIES, LOADS, range(2))
    ]  # fmt: skip


def test_an_additive_model_gives_its_known_shares() -> None:
    found = variance(model(), "y")
    assert found is not None
    parts = {"frame": 8 / 3, "policy": 0.25, "workload": 1.25}
    for name, part in parts.items():
        assert found.share(name) == pytest.approx(part / sum(parts.values()), abs=1e-12)
    assert sum(share.share for share in found.shares if len(share.factors) > 1) == pytest.approx(0, abs=1e-12)
    assert found.share("seeds") == pytest.approx(0, abs=1e-12)
    assert found.within is not None
    assert found.within["frame",] == pytest.approx((8 / 3) / (8 / 3 + 0.25), abs=1e-12)
    low, high = found.intervals["frame",]
    assert low == pytest.approx(high) == pytest.approx(found.within["frame",])


def test_an_interaction_is_not_given_to_its_factors() -> None:
    found = variance(model(together=True), "y")
    assert found is not None
    part = np.mean([value**2 for value in INTERACTION.values()])
    total = 8 / 3 + 0.25 + 1.25 + part
    assert found.share("frame", "policy") == pytest.approx(part / total, abs=1e-12)
    assert found.share("frame") == pytest.approx(8 / 3 / total, abs=1e-12)


def test_noise_goes_to_the_seeds() -> None:
    found = variance(model(noise=1.0), "y")
    assert found is not None
    assert sum(share.share for share in found.shares) == pytest.approx(1, abs=1e-12)
    assert 0.05 < found.share("seeds") < 0.4
    freedom = {share.factors: share.freedom for share in found.shares}
    assert sum(freedom.values()) == 3 * 2 * 4 * 2 - 1


def test_workloads_with_gaps_are_left_out_and_named() -> None:
    rows = [r for r in model() if (r["frame"], r["workload"], r["seed"]) != ("a", "v", 1)]
    found = variance(rows, "y")
    assert found is not None and found.left_out == ("v",)
    assert variance([r for r in model() if r["frame"] == "a" or r["seed"] == 0], "y") is None


def test_what_does_not_vary_has_no_shares() -> None:
    assert variance([{**r, "y": 1.0} for r in model()], "y") is None
    assert decompose(np.full((2, 2, 1), 1.0 + 1e-13), ("frame", "policy")) == []
    assert variance([{**r, "y": None} for r in model()], "y") is None


def pairs_design() -> Design:
    facts = {
        "frames": [
            {"use": "hash", "name": "h", "stealing": [False, {"hosts": 2, "label": "steal"}]},
            {"use": "delegated", "name": "d", "stealing": [False, {"hosts": 2, "label": "steal"}]},
            {"use": "centralised-push", "name": "c"},
        ],
        "policies": ["fifo", "sjf"],
        "workloads": [f"skewed:tasks={n}" for n in (10, 20, 30)],
        "seeds": 2,
    }
    return design_of(facts, "design", Path())


def made_rows(design: Design, stealing: float, spread: float = 0.0) -> list[Row]:
    """A figure that stealing multiplies, the policy halves, and the frame and the workload change as well."""
    rows = []
    for point in design.points:
        load = ("10", "20", "30").index(point.source.label[-2:])
        value = {"h": 5.0, "d": 2.0, "c": 1.0}[point.design] * (1 + load) * (0.5 if "sjf" in point.policy else 1.0)
        value *= stealing * math.exp(spread * (load - 1)) if point.frame.stealing else 1.0
        rows.append(
            {"key": point.key, "workload": point.source.label, "cluster": "own", "seed": point.seed, "y": value}
        )
    return rows


def test_an_effect_is_found_with_everything_else_equal() -> None:
    design = pairs_design()
    found = {(e.axis, e.after): e for e in effects(design, made_rows(design, 0.2), "y")}
    steal = found["stealing", "steal"]
    assert (steal.before, steal.pairs, steal.blocks) == ("no stealing", 2 * 2 * 3 * 2, 3)
    assert steal.change == pytest.approx(-0.8)
    assert steal.low == pytest.approx(-0.8) and steal.high == pytest.approx(-0.8)
    assert found["policy", "sjf+least-loaded"].change == pytest.approx(-0.5)
    assert found["policy", "sjf+least-loaded"].pairs == 5 * 3 * 2
    assert found["frame", "d"].change == pytest.approx(-0.6)


def test_the_interval_is_over_workloads() -> None:
    design = pairs_design()
    steal = next(e for e in effects(design, made_rows(design, 1.0, spread=0.1), "y") if e.axis == "stealing")
    half = 4.302652729749464 * 0.1 / math.sqrt(3)
    assert steal.low == pytest.approx(math.expm1(-half)) and steal.high == pytest.approx(math.expm1(half))


def test_points_without_a_partner_and_unknown_figures_count_for_nothing() -> None:
    design = pairs_design()
    rows = [r if n % 2 else {**r, "y": None} for n, r in enumerate(made_rows(design, 0.2))]
    assert all(e.pairs > 0 for e in effects(design, rows, "y"))
    assert effects(design, [{**r, "y": None} for r in rows], "y") == []


def test_an_axis_of_one_frame_is_compared_within_it() -> None:
    facts = {
        "frames": ["centralised-push", {"use": "hash", "placers": {"service": ["1ms", "10ms", "20ms"]}}],
        "workloads": ["skewed:tasks=10"],
        "seeds": 2,
    }
    design = design_of(facts, "design", Path())
    rows = [
        {"key": p.key, "workload": "w", "cluster": "own", "seed": p.seed, "y": 1 + p.frame.placers.service.mean_s}
        for p in design.points
    ]
    found = {(e.before, e.after): e for e in effects(design, rows, "y") if e.axis == "placers.service"}
    assert set(found) == {("placers.service 1ms", f"placers.service {n}ms") for n in (10, 20)}
    assert found["placers.service 1ms", "placers.service 10ms"].change == pytest.approx(1.010 / 1.001 - 1)

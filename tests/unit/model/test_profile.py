"""Power profiles: closed forms, load curves, devices, and what they refuse."""

from __future__ import annotations

import math

import pytest

from wattflow.model.profile import FORMS, DeviceProfile, PowerProfile, Provenance, Scope, interpolate


@pytest.mark.parametrize(
    ("form", "share"),
    [("linear", 0.5), ("square", 0.25), ("cubic", 0.125), ("sqrt", math.sqrt(0.5)), ("constant", 1.0)],
)
def test_closed_forms_at_half_load(form: str, share: float) -> None:
    profile = PowerProfile.from_form(form, 8, 100.0, 300.0)
    assert profile.at(4) == pytest.approx(100 + 200 * share)
    assert profile.full_w == pytest.approx(300)


def test_the_asymptotic_form_follows_its_formula() -> None:
    profile = PowerProfile.from_form("asymptotic", 10, 50.0, 150.0)
    expected = 50 + 100 * (1 - math.exp(-0.3 / 0.3)) / (1 - math.exp(-1 / 0.3))
    assert profile.at(3) == pytest.approx(expected)
    assert profile.at(10) == pytest.approx(150)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("threads", [1, 7, 96, 5000])
def test_closed_forms_rise_and_end_at_full_watts(form: str, threads: int) -> None:
    profile = PowerProfile.from_form(form, threads, 20.0, 90.0)
    assert profile.busy[-1] == threads
    assert profile.full_w == pytest.approx(90)
    assert list(profile.watts) == sorted(profile.watts)
    assert profile.idle_w == pytest.approx(90.0 if form == "constant" else 20.0)


def test_a_profile_is_linear_between_points_and_flat_beyond() -> None:
    profile = PowerProfile((0.0, 4.0, 8.0), (10.0, 30.0, 34.0))
    assert [profile.at(k) for k in (-1, 0, 2, 4, 6, 8, 99)] == [10, 10, 20, 30, 32, 34, 34]


def test_a_load_curve_is_sorted_and_scaled_to_threads() -> None:
    profile = PowerProfile.from_load(64, [(1.0, 200.0), (0.0, 50.0), (0.5, 150.0)], scope="package")
    assert profile.busy == (0.0, 32.0, 64.0)
    assert profile.watts == (50.0, 150.0, 200.0)
    assert (profile.scope, profile.provenance) == (Scope.PACKAGE, Provenance.MEASURED)


@pytest.mark.parametrize(
    ("busy", "watts", "told"),
    [
        ((), (), "at least one"),
        ((0.0, 1.0), (5.0,), "as many watts"),
        ((1.0, 2.0), (5.0, 6.0), "rise from 0"),
        ((0.0, 0.0), (5.0, 6.0), "rise from 0"),
        ((0.0, 1.0), (5.0, -1.0), "not negative"),
        ((0.0, 1.0), (5.0, math.nan), "finite"),
    ],
)
def test_bad_points_are_refused(busy: tuple[float, ...], watts: tuple[float, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PowerProfile(busy, watts)


def test_bad_forms_and_loads_are_refused() -> None:
    with pytest.raises(ValueError, match="no closed form named 'quartic'"):
        PowerProfile.from_form("quartic", 4, 1.0, 2.0)
    with pytest.raises(ValueError, match="at least one hardware thread"):
        PowerProfile.from_form("sqrt", 0, 1.0, 2.0)
    with pytest.raises(ValueError, match="load 0 to at most 1"):
        PowerProfile.from_load(4, [(0.0, 1.0), (100.0, 2.0)])


def test_gpu_watts_are_flat_above_the_knee() -> None:
    gpu = DeviceProfile.from_knee(40.0, 250.0)
    assert gpu.at(0.0) == 40
    assert gpu.at(0.225) == pytest.approx(145)
    assert gpu.at(0.45) == gpu.at(0.7) == gpu.at(1.0) == 250


def test_a_knee_of_one_is_a_straight_line() -> None:
    assert DeviceProfile.from_knee(30.0, 110.0, 1.0).at(0.5) == pytest.approx(70)
    with pytest.raises(ValueError, match="knee"):
        DeviceProfile.from_knee(30.0, 110.0, 0.0)


@pytest.mark.parametrize(
    ("share", "watts"),
    [((0.0,), (1.0,)), ((0.1, 1.0), (1.0, 2.0)), ((0.0, 0.0), (1.0, 2.0)), ((0.0, 1.5), (1.0, 2.0)),
     ((0.0, 1.0), (1.0, math.inf))],
)  # fmt: skip
def test_bad_device_points_are_refused(share: tuple[float, ...], watts: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"points|shares|watts"):
        DeviceProfile(share, watts)


def test_interpolation_meets_its_points() -> None:
    xs, ys = (0.0, 1.0, 3.0), (2.0, 8.0, 5.0)
    assert [interpolate(x, xs, ys) for x in xs] == list(ys)
    assert interpolate(2.0, xs, ys) == pytest.approx(6.5)


def test_a_curve_ends_where_its_node_does() -> None:
    curve = PowerProfile((0.0, 4.0, 8.0), (10.0, 30.0, 38.0))
    assert curve.up_to(8) is curve
    assert curve.up_to(6) == PowerProfile((0.0, 4.0, 6.0), (10.0, 30.0, 34.0))
    assert curve.up_to(4).watts == (10.0, 30.0) and curve.up_to(2).watts == (10.0, 20.0)
